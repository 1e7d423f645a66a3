//! Test deliveries: what the endpoint said, and what to make of it.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{Api, Config, Receiver, Reply, Server, TlsReceiver, Webhook, certificate_for, items};

async fn test(api: &Api, webhook: &Webhook) -> Value {
    api.call(Method::POST, &["webhooks", &webhook.id, "test"], "").await.expect(200)
}

#[tokio::test]
async fn a_test_answers_with_what_the_endpoint_said_and_leaves_nothing_behind() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(503).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    for active in [true, false] {
        let before = api.patch(&webhook, json!({ "active": active })).await;
        let answer = test(&api, &webhook).await;
        assert_eq!((&answer["delivered"], &answer["httpStatus"]), (&json!(false), &json!(503)), "{answer}");
        assert_eq!((&answer["error"], &answer["errorKind"]), (&Value::Null, &Value::Null));
        let id = answer["eventId"].as_str().unwrap();
        let seen = receiver.next().await;
        assert_eq!(seen.delivery(), id);
        assert_eq!(serde_json::from_slice::<Value>(&seen.body).unwrap()["type"], "webhook.test");
        assert!(api.get(&["events", id], &[]).await.problem(404).contains(id));
        assert_eq!(api.read_webhook(&webhook).await, before);
    }
    assert!(items(&api.log(&webhook, &[]).await).is_empty());
    assert_eq!(receiver.seen().len(), 2, "one request each");
    let nobody = Webhook { id: "wh_nobody".into(), secret: String::new() };
    let answer = api.call(Method::POST, &["webhooks", &nobody.id, "test"], "").await;
    assert!(answer.problem(404).contains("wh_nobody"));
}

/// S5: the redirect's target is told and never asked.
#[tokio::test]
async fn s5_every_kind_of_endpoint_gets_its_advice() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let target = Receiver::always(200).await;
    let redirect = format!("HTTP/1.1 308 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url("/new"));
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\n<hi>";
    let moved = format!("belong to {}, set", target.url("/new"));
    for (reply, status, kind, advice) in [
        (Reply::status(204), 204, None, "nothing to do"),
        (Reply::Raw(page.into()), 200, None, "HTML page"),
        (Reply::Raw(redirect.into_bytes()), 308, None, moved.as_str()),
        (Reply::status(401), 401, None, "x-rr-signature"),
        (Reply::status(404), 404, None, "last slash"),
        (Reply::Close, 0, Some("reset"), "look for a crash"),
        (Reply::RawThenClose(b"SSH-2.0-x\r\n".to_vec()), 0, Some("protocol"), "speaks HTTP/1.1"),
    ] {
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let answer = test(&api, &api.webhook(&receiver.url("/")).await).await;
        assert_eq!((&answer["httpStatus"], &answer["errorKind"]), (&json!(status), &json!(kind)), "{answer}");
        assert_eq!(answer["error"].is_string(), kind.is_some(), "{answer}");
        assert_eq!(answer["delivered"], (200..300).contains(&status), "{answer}");
        assert!(answer["advice"].as_str().unwrap().contains(advice), "{answer}");
    }
    assert!(target.seen().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_reached_gets_its_advice_too() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    let (unknown, misnamed) = (certificate_for("127.0.0.1"), certificate_for("elsewhere.test"));
    let (unknown, misnamed) = (TlsReceiver::start(&unknown).await, TlsReceiver::start(&misnamed).await);
    for (url, kind, advice) in [
        (refused, "connect", "listens on port"),
        (unknown.url(), "tls", "authority that the sender's machine trusts"),
        (misnamed.url(), "tls", "name 127.0.0.1"),
    ] {
        let answer = test(&api, &api.webhook(&url).await).await;
        assert_eq!((&answer["httpStatus"], &answer["errorKind"]), (&json!(0), &json!(kind)), "{answer}");
        assert!(answer["advice"].as_str().unwrap().contains(advice), "{answer}");
    }
    assert_eq!((unknown.requests(), misnamed.requests()), (0, 0));
}
