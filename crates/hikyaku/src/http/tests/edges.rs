use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::http::body::BODY_TIMEOUT;
use crate::store::memory::Operation;

#[tokio::test]
async fn what_is_not_there_is_a_404_and_a_wrong_method_a_405_that_says_which_is_right() {
    let api = Api::start().await;
    for path in ["/", "/v1", "/v2/organizations/acme/events", "/in/", &format!("{ACME}/inbox/shop/a/b/c")] {
        api.get(path).await.is_problem(404, "no-such-path", &[path]);
    }
    for (method, path, allowed) in [
        (Method::GET, format!("{ACME}/events"), "POST"),
        (Method::DELETE, format!("{ACME}/events/e1"), "GET,HEAD"),
        (Method::PUT, format!("{ACME}/webhooks/w1"), "DELETE,GET,HEAD,PATCH"),
        (Method::GET, "/in/shop".to_owned(), "POST"),
        (Method::POST, "/healthz".to_owned(), "GET,HEAD"),
    ] {
        let answer = Answer::of(api.request(method, &path)).await;
        answer.is_problem(405, "method-not-allowed", &[&path]);
        let mut named: Vec<_> = answer.headers["allow"].to_str().unwrap().split(',').collect();
        named.sort_unstable();
        assert_eq!(named.join(","), allowed);
    }
}

#[tokio::test]
async fn a_path_or_query_that_cannot_be_read_is_400_and_says_why() {
    let api = Api::start().await;
    for (path, part) in [
        ("/v1/organizations/a%20b/webhooks", "\"a b\" contains ' '"),
        (&*format!("/v1/organizations/{}/webhooks", "x".repeat(65)), "at most 64"),
        ("/v1/organizations/%ff/webhooks", "UTF-8"),
        ("/v1/organizations/acme/webhooks/%zz", "a \"%\" itself is written %25"),
        ("/v1/organizations/acme/events/100%", "%25"),
    ] {
        api.get(path).await.is_problem(400, "invalid-path", &[part]);
    }
    let id = api.webhook().await;
    let log = format!("{ACME}/webhooks/{id}/log");
    for (query, part) in [
        ("limit=0", "\"limit\" must be a whole number from 1 to 200"),
        ("limit=201", "\"limit\""),
        ("limit=ten", "not \"ten\""),
        ("limit=%2B5x", "\"limit\""),
        ("limit=1&limit=2", "more than once"),
        ("cursor=zzz", "\"cursor\""),
        ("cursor=", "\"cursor\""),
        ("cursor=%ff", "not UTF-8"),
        (
            "page=2&limit=1&sort=x",
            "\"page\" is not known here; known are type, httpStatus, error, from, to, limit, cursor; \"sort\"",
        ),
    ] {
        api.get(&format!("{log}?{query}")).await.is_problem(400, "invalid-query", &[part]);
    }
    for (query, part) in [
        ("state=lost", "one of waiting, done, stale, parked, dead, discarded, quarantined"),
        ("form=shop", "\"form\" is not known"),
        ("key=a&key=b", "more than once"),
    ] {
        api.get(&format!("{ACME}/inbox?{query}")).await.is_problem(400, "invalid-query", &[part]);
    }
    api.get(&format!("{ACME}/webhooks?limit=5")).await.is_problem(
        400,
        "invalid-query",
        &["\"limit\" is not known here; no parameter is"],
    );
}

#[tokio::test]
async fn a_body_must_be_declared_as_json_or_as_nothing() {
    let api = Api::start().await;
    let path = format!("{ACME}/events");
    let publish = |header: &str, value: &str| {
        Answer::of(api.request(Method::POST, &path).header(header, value).body(r#"{"type":"a.b","data":1}"#))
    };
    for good in ["application/json", "Application/JSON; charset=utf-8", "text/json", "application/cloudevents+json"] {
        assert_eq!(publish("content-type", good).await.status, 202, "{good}");
    }
    for bad in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""] {
        publish("content-type", bad).await.is_problem(415, "unsupported-media-type", &["application/json"]);
    }
}

#[tokio::test]
async fn s10_a_compressed_body_is_refused() {
    let api = Api::start().await;
    let path = format!("{ACME}/events");
    let publish = |header: &str, value: &str| {
        Answer::of(api.request(Method::POST, &path).header(header, value).body(r#"{"type":"a.b","data":1}"#))
    };
    assert_eq!(publish("content-encoding", "identity").await.status, 202);
    for bad in ["gzip", "br", "identity, gzip", ""] {
        publish("content-encoding", bad).await.is_problem(415, "unsupported-encoding", &["send it as it is"]);
    }
}

/// A body that does not say how long it is.
struct Pieces(Vec<u8>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let end = self.0.len().min(1000);
        let piece: Vec<_> = self.0.drain(..end).collect();
        Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece.into()))))
    }
}

fn streamed(bytes: Vec<u8>) -> Body {
    Body::wrap(Pieces(bytes))
}

#[tokio::test]
async fn s11_a_body_beyond_the_limit_is_413_however_it_is_sent() {
    let api = Api::start().await;
    let path = format!("{ACME}/events");
    let event = |bytes: usize| {
        let (head, tail) = (r#"{"type":"a.b","data":""#, r#""}"#);
        format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
    };
    assert_eq!(api.post(&path, event(MAX_EVENT_BYTES)).await.status, 202);
    assert_eq!(api.post(&path, streamed(event(MAX_EVENT_BYTES).into())).await.status, 202);
    for large in [MAX_EVENT_BYTES + 1, 10 * MAX_EVENT_BYTES] {
        api.post(&path, event(large)).await.is_problem(413, "too-large", &["50000 bytes", "nothing was stored"]);
        api.post(&path, streamed(event(large).into())).await.is_problem(413, "too-large", &["50000 bytes"]);
    }
    // No signature: a 401 would mean that the body was looked at.
    for body in [Body::from(vec![0; MAX_RECEIVED_BYTES + 1]), streamed(vec![0; MAX_RECEIVED_BYTES + 1])] {
        api.post("/in/shop", body).await.is_problem(413, "too-large", &["10000 bytes"]);
    }
    api.post("/in/shop", vec![0; MAX_RECEIVED_BYTES]).await.is_problem(401, "invalid-signature", &[]);
}

/// Sends a request's beginning and gives all that comes back until the server closes.
async fn answer_to_half(api: &Api, half: &str) -> String {
    let mut stream = TcpStream::connect(api.base.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(half.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(start_paused = true)]
async fn s11_a_body_that_does_not_come_is_408() {
    let api = Api::start().await;
    for path in ["/in/shop", &format!("{ACME}/events")] {
        let half = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{\"type\":");
        let clock = SystemClock::start();
        let begun = clock.schedule();
        let answer = answer_to_half(&api, &half).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("/problems/slow-body"), "{answer}");
        let waited = clock.schedule().duration_since(begun).unsigned_abs();
        assert!((BODY_TIMEOUT..2 * BODY_TIMEOUT).contains(&waited), "{waited:?}");
    }
}

#[tokio::test]
async fn with_a_token_only_the_open_doors_open_without_it() {
    let api = Api::start_with(Some("a-token-of-enough-length")).await;
    let id = "Bearer a-token-of-enough-length";
    for path in [&*format!("{ACME}/webhooks"), &format!("{ACME}/events/e1"), &format!("{ACME}/inbox"), "/metrics"] {
        for wrong in [
            None,
            Some(""),
            Some("Bearer "),
            Some("Bearer a-token-of-enough-lengtH"),
            Some(&id[7..]),
            Some("Basic eDp5"),
        ] {
            let request = api.request(Method::GET, path);
            let request = wrong.into_iter().fold(request, |request, value| request.header("authorization", value));
            let answer = Answer::of(request).await;
            answer.is_problem(401, "unauthorized", &["authorization: Bearer"]);
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
        let twice = api.request(Method::GET, path).header("authorization", id).header("authorization", "Bearer x");
        Answer::of(twice).await.is_problem(401, "unauthorized", &[]);
        assert_ne!(Answer::of(api.request(Method::GET, path).header("authorization", id)).await.status, 401);
        assert_ne!(
            Answer::of(api.request(Method::GET, path).header("authorization", id.replace("Bear", "bEAR"))).await.status,
            401
        );
    }
    assert_eq!(api.get("/healthz").await.status, 200);
    assert_eq!(api.get("/readyz").await.status, 200);
    api.post("/in/shop", "{}").await.is_problem(401, "invalid-signature", &[]);
}

#[tokio::test]
async fn a_store_that_is_down_makes_us_not_ready_but_alive() {
    let api = Api::start().await;
    assert_eq!(api.get("/readyz").await.status, 200);
    for operation in Operation::ALL {
        api.store.set_down(operation, true);
    }
    assert_eq!(api.get("/healthz").await.status, 200);
    let answer = api.get("/readyz").await;
    answer.is_problem(503, "unavailable", &["does not take writes"]);
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(api.get("/metrics").await.status, 200);
    for path in ["webhooks", "webhooks/w1", "webhooks/w1/log", "events/e1", "inbox", "inbox/shop/1"] {
        api.get(&format!("{ACME}/{path}")).await.is_problem(503, "unavailable", &[]);
    }
    for operation in Operation::ALL {
        api.store.set_down(operation, false);
    }
    assert_eq!(api.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_request_that_takes_no_body_takes_none() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let event = r#"{"type":"a.b","data":1,"id":"e"}"#;
    assert_eq!(api.post(&format!("{ACME}/events"), event).await.status, 202);
    for path in [
        format!("{ACME}/deliveries/e/{webhook}/resend"),
        format!("{ACME}/webhooks/{webhook}/test"),
        format!("{ACME}/inbox/shop/d/release"),
    ] {
        api.post(&path, r#"{"x":1}"#).await.is_problem(400, "invalid-request", &["\"x\" is not known here"]);
        api.post(&path, "junk{").await.is_problem(400, "not-json", &["JSON"]);
        api.post(&path, vec![b' '; 3 * 1024 * 1024]).await.is_problem(413, "too-large", &[]);
        let typed = api.request(Method::POST, &path).header("content-type", "text/plain").body("{}");
        Answer::of(typed).await.is_problem(415, "unsupported-media-type", &[]);
    }
    for nothing in ["", "{}", "{ }"] {
        let path = format!("{ACME}/deliveries/e/{webhook}/resend");
        api.post(&path, nothing).await.is_problem(409, "delivery-waiting", &[]);
    }
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_only() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let body = |id: u32| format!(r#"{{"type":"a.b","data":1,"id":"e{id}"}}"#);
    for id in 0..3 {
        assert_eq!(api.post(&format!("{ACME}/events"), body(id)).await.status, 202);
    }
    let deliveries = format!("{ACME}/deliveries?type=a.b&state=waiting");
    let page = api.get(&format!("{deliveries}&limit=1")).await.json();
    let cursor = page["nextCursor"].as_str().unwrap();
    for own in
        [format!("{deliveries}&limit=1"), deliveries, format!("{ACME}/deliveries?state=waiting&limit=2&type=a.b")]
    {
        assert_eq!(api.get(&format!("{own}&cursor={cursor}")).await.status, 200, "{own}");
    }
    let rival = ACME.replace("acme", "rival");
    for other in [
        format!("{ACME}/deliveries?type=a.b"),
        format!("{ACME}/deliveries?type=a.*&state=waiting"),
        format!("{rival}/deliveries?type=a.b&state=waiting"),
        format!("{ACME}/webhooks/{webhook}/missed?"),
        format!("{ACME}/webhooks/{webhook}/log?"),
        format!("{ACME}/inbox?"),
        format!("{ACME}/tokens?"),
        "/v1/tokens?".to_owned(),
        "/v1/outages?".to_owned(),
    ] {
        let refused = api.get(&format!("{other}&cursor={cursor}")).await;
        refused.is_problem(400, "invalid-query", &["nextCursor"]);
    }
}

#[tokio::test]
async fn half_of_a_surrogate_pair_is_called_that() {
    let api = Api::start().await;
    let body = r#"{"url":"http://127.0.0.1:9/","description":"\ud800"}"#;
    api.post(&format!("{ACME}/webhooks"), body).await.is_problem(400, "invalid-request", &["half of a surrogate pair"]);
    let body = r#"{"url":"http://127.0.0.1:9/","description":5}"#;
    let number = api.post(&format!("{ACME}/webhooks"), body).await;
    assert!(number.text.contains("must be a string") && !number.text.contains("surrogate"), "{number:?}");
}
