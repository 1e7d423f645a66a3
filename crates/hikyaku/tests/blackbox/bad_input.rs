//! What a caller can get wrong: each a clear problem document, and never a lost write or a panic.

use reqwest::Method;
use serde_json::json;

use crate::harness::{Config, Server};

/// Largest publish that is taken, in bytes, unless set otherwise.
const MAX_EVENT_BYTES: usize = 256 * 1024;

#[tokio::test]
async fn a_publish_at_the_limit_is_taken_and_one_byte_more_is_413() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let sized = |id: &str, bytes: usize| {
        let empty = format!(r#"{{"id":"{id}","type":"a.b","data":""}}"#);
        empty.replace(r#""""#, &format!(r#""{}""#, "x".repeat(bytes - empty.len())))
    };
    assert_eq!(sized("fits", MAX_EVENT_BYTES).len(), MAX_EVENT_BYTES);
    api.publish_raw(sized("fits", MAX_EVENT_BYTES)).await.expect(202);
    for bytes in [MAX_EVENT_BYTES + 1, 4 * MAX_EVENT_BYTES] {
        let answer = api.publish_raw(sized("over", bytes)).await;
        assert!(answer.problem(413).contains("262144"), "{answer:?}");
    }
    api.get(&["events", "over"], &[]).await.problem(404);
}

#[tokio::test]
async fn what_is_not_json_is_400_with_the_position() {
    let server = Server::start(Config::default()).await;
    for (body, position) in [
        (&b"{\n  \"type\": oops}"[..], "line 2 column 11"),
        (b"", "line 1 column 0"),
        (b"{\"type\":\"a.b\",\"data\":1} trailing", "column 25"),
        (b"{\"type\":\"a.b\",\"data\":\"\xff\"}", "column"),
        (b"{\"type\":\"a.b\",\"data\":\"a\0b\"}", "column"),
        (b"\x1f\x8b\x08", "column"),
    ] {
        let answer = server.api().publish_raw(body).await;
        let detail = answer.problem(400);
        assert!(detail.contains(position), "{body:?}: {detail}");
    }
}

#[tokio::test]
async fn a_publish_that_is_json_and_no_event_is_400_and_says_what_is_wrong() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let long = "x".repeat(201);
    for (body, words) in [
        (json!({ "type": "a.b", "data": 1, "extra": 1, "more": 2 }), vec!["extra", "more"]),
        (json!({ "type": "sale", "data": 1 }), vec!["type", "sale.created"]),
        (json!({ "type": "sale.*", "data": 1 }), vec!["type"]),
        (json!({ "type": "売上.作成", "data": 1 }), vec!["type"]),
        (json!({ "type": 5, "data": 1 }), vec!["type"]),
        (json!({ "type": null, "data": 1 }), vec!["type"]),
        (json!({ "data": 1 }), vec!["type"]),
        (json!({ "type": "a.b" }), vec!["data"]),
        (json!({ "type": "a.b", "data": 1, "id": "" }), vec!["id", "empty"]),
        (json!({ "type": "a.b", "data": 1, "id": "a b" }), vec!["id", "visible"]),
        (json!({ "type": "a.b", "data": 1, "id": long }), vec!["id", "200"]),
        (json!({ "type": "a.b", "data": 1, "id": 7 }), vec!["id"]),
        (json!({ "type": "a.b", "data": 1, "timestamp": "yesterday" }), vec!["timestamp"]),
        (json!({ "type": "a.b", "data": 1, "timestamp": "2026-13-01T00:00:00Z" }), vec!["timestamp"]),
        (json!([]), vec!["object"]),
        (json!("text"), vec!["object"]),
        (json!(null), vec!["object"]),
    ] {
        let answer = api.publish_raw(body.to_string()).await;
        let detail = answer.problem(400);
        for word in words {
            assert!(detail.contains(word), "{body}: {detail:?} does not say {word:?}");
        }
    }
}

#[tokio::test]
async fn a_url_that_nothing_can_be_delivered_to_is_422_with_the_reason() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for (url, reason) in [
        ("ftp://example.com/", "ftp"),
        ("javascript:alert(1)", "javascript"),
        ("/relative", "absolute"),
        ("", "absolute"),
        ("https://user:pass@example.com/", "user name"),
        ("https://example.com/#part", "fragment"),
        ("https://10.0.0.1/", "private"),
        ("https://[::1]/", "loopback"),
        ("https://[fe80::1]/", "link-local"),
        ("http://169.254.169.254/latest/meta-data", "metadata"),
        ("http://[::ffff:169.254.169.254]/", "metadata"),
        ("https://0x0a000001/", "private"),
        ("https://8.8.8.8:8443/", "8443"),
    ] {
        let answer = api.call(Method::POST, &["webhooks"], json!({ "url": url }).to_string()).await;
        let detail = answer.problem(422).to_lowercase();
        assert!(detail.contains(reason), "{url}: {detail:?} does not say {reason:?}");
    }
    let webhook = api.webhook("http://127.0.0.1:9/").await;
    let change = json!({ "url": "https://10.0.0.1/" }).to_string();
    api.call(Method::PATCH, &["webhooks", &webhook.id], change).await.problem(422);
    assert_eq!(api.read_webhook(&webhook).await["url"], "http://127.0.0.1:9/");
}

#[tokio::test]
async fn a_webhook_that_is_described_wrongly_is_400() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let url = "http://127.0.0.1:9/";
    for (body, word) in [
        (json!({}), "url"),
        (json!({ "url": 5 }), "url"),
        (json!({ "url": url, "colour": "red" }), "colour"),
        (json!({ "url": url, "events": ["order"] }), "events"),
        (json!({ "url": url, "events": [] }), "events"),
        (json!({ "url": url, "events": "order.*" }), "events"),
        (json!({ "url": url, "secret": "short" }), "secret"),
        (json!({ "url": url, "active": "yes" }), "active"),
    ] {
        let answer = api.call(Method::POST, &["webhooks"], body.to_string()).await;
        assert!(answer.problem(400).contains(word), "{body}: {answer:?}");
    }
    assert_eq!(api.get(&["webhooks"], &[]).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn what_is_unknown_is_404_and_a_wrong_method_405() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let long = "x".repeat(5000);
    for path in [
        vec!["events", "nobody"],
        vec!["events", &long],
        vec!["webhooks", "nobody"],
        vec!["webhooks", "nobody", "log"],
        vec!["inbox", "nobody", "x"],
        vec!["nothing"],
    ] {
        api.get(&path, &[]).await.problem(404);
    }
    for method in [Method::PATCH, Method::DELETE] {
        api.call(method, &["webhooks", "nobody"], "{}").await.problem(404);
    }
    api.call(Method::PUT, &["events"], "{}").await.problem(405);
    let root = api.try_send(Method::GET, api.url(&["favicon.ico"]), &[], Vec::new()).await.unwrap();
    root.problem(404);
}

#[tokio::test]
async fn a_query_that_cannot_be_meant_is_400() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let webhook = api.webhook("http://127.0.0.1:9/").await;
    let log = ["webhooks", webhook.id.as_str(), "log"];
    for query in
        [("limit", "0"), ("limit", "x"), ("limit", "-1"), ("limit", "100000"), ("cursor", "???"), ("page", "2")]
    {
        assert!(api.get(&log, &[query]).await.problem(400).contains(query.0), "{query:?}");
        assert!(api.get(&["inbox"], &[query]).await.problem(400).contains(query.0), "{query:?}");
    }
    assert!(api.get(&["inbox"], &[("state", "asleep")]).await.problem(400).contains("quarantined"));
}
