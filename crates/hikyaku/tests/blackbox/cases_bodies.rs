//! Public cases 1-4 and 20: bodies that broke systems like this one. The bytes are what counts, everywhere.

use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};
use serde_json::json;

use crate::harness::{
    Config, Receiver, SOURCE_SECRET, Server, event_body, forward_to, fresh_sales_table, sales_to_sql, source, statuses,
};

const SOURCE: &str = "receiptroller";

/// Data that a parser would not give back as it was.
fn odd_data() -> Vec<String> {
    let deep = |open: &str, close: &str| format!("{}0{}", open.repeat(10_000), close.repeat(10_000));
    let mut data: Vec<String> = [
        r#"{"b":1, "a":2.0}"#,
        "{ \"b\" :\t1 ,\r\n  \"a\" : 2.0 }",
        r#"{"z":1,"a":2,"z":3}"#,
        r#"{"bizId":29383937493038367292}"#,
        "[1e400, -0, 0.1e-999, 1E+2, 123456789012345678901234567890.10]",
        r#"["\u0000","\ud800","\udc00\ud800","\/","\u0041","é","é","領収書","\uD83D\uDE00"]"#,
        r#"{"":{"a.b":1,"__proto__":2,"id":"x|y||"}}"#,
        "null",
        "true",
        "-12.50",
        r#""a bare text""#,
        "[]",
        "{}",
        "\"\u{2028}\u{feff}\u{7f}\"",
    ]
    .map(String::from)
    .into();
    data.extend([deep("[", "]"), deep("{\"a\":", "}")]);
    data
}

#[tokio::test]
async fn case1_case3_bytes_in_are_bytes_signed_sent_stored_and_forwarded() {
    let mut destination = Receiver::always(200).await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let (api, mut wire) = (server.api(), Receiver::always(200).await);
    let own = format!("http://{}/in/receiptroller", server.addr());
    api.webhook_with(json!({ "url": own, "secret": SOURCE_SECRET })).await;
    api.webhook_with(json!({ "url": wire.url("/"), "secret": SOURCE_SECRET })).await;
    for (n, data) in odd_data().into_iter().enumerate() {
        let id = format!("odd-{n}");
        let at = "2026-11-30T09:15:00.000Z";
        // Space around the values belongs to the request; the value itself is taken as it is written.
        let publish =
            format!("\r\n{{\"id\":\"{id}\", \"data\" : {data} ,\n\"timestamp\":\"{at}\",\"type\":\"odd.body\"}}\n");
        api.publish_raw(publish).await.expect(202);
        let expected = event_body(&id, "odd.body", at, &data);
        let (sent, forwarded) = (wire.next().await, destination.next().await);
        assert_eq!(String::from_utf8_lossy(&sent.body), expected);
        assert_eq!(sent.signature(), receiptroller::sign(&Secret::new(SOURCE_SECRET), expected.as_bytes()));
        assert_eq!(String::from_utf8_lossy(&forwarded.body), expected);
        assert_eq!(api.inbox_body(SOURCE, &id).await, expected.as_bytes());
    }
}

#[tokio::test]
async fn case2_odd_bytes_are_the_same_on_all_four_attempts_and_over_a_restart() {
    let (mut server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let data: Vec<_> = odd_data().into_iter().filter(|data| data.len() < 1000).collect();
    let mut expected = std::collections::BTreeMap::new();
    let batch: Vec<_> = data
        .iter()
        .enumerate()
        .map(|(n, data)| {
            let at = "2026-11-30T09:15:00.000Z";
            expected.insert(format!("odd-{n}"), event_body(&format!("odd-{n}"), "odd.body", at, data));
            format!(r#"{{"id":"odd-{n}","type":"odd.body","timestamp":"{at}","data":{data}}}"#)
        })
        .collect();
    api.publish_batch(&batch).await.expect(202);
    receiver.next_many(data.len() + 3).await;
    assert_eq!(server.sigterm().await.code(), Some(0));
    server.restart().await;
    for id in expected.keys() {
        let delivery = server.api().ended_one(id).await;
        assert_eq!((delivery["state"].as_str(), statuses(&delivery).len()), (Some("exhausted"), 4));
    }
    let seen = receiver.seen();
    assert_eq!(seen.len(), 4 * data.len());
    for request in seen {
        assert_eq!(String::from_utf8_lossy(&request.body), expected[request.delivery()]);
        let signature = receiptroller::sign(&Secret::new(webhook.secret.as_str()), &request.body);
        assert_eq!(request.signature(), signature);
    }
}

#[tokio::test]
async fn case3_a_number_of_twenty_digits_survives_into_a_sql_row() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    let server = Server::start_in(dir, Config::default().with(&sales_to_sql())).await;
    let api = server.api();
    let numbers = ["29383937493038367292", "-9223372036854775809", "9223372036854775807", "1.10", "1e400", "007x"];
    for (n, number) in numbers.iter().enumerate() {
        let written = if *number == "007x" { format!("{number:?}") } else { (*number).to_owned() };
        let data = format!(r#"{{"id":"k{n}","bizId":{written}}}"#);
        let id = format!("e{n}");
        let body = event_body(&id, "sale.created", "2026-11-30T09:15:00.000Z", &data);
        assert_eq!(api.deliver_signed(&id, &body).await, 200);
        let row = api.settled(SOURCE, &id).await;
        assert_eq!(row["state"], "done", "{number}: {row}");
    }
    let stored: Vec<_> = server.sales().into_iter().map(|sale| sale.biz.unwrap()).collect();
    assert_eq!(stored, numbers);
}

#[tokio::test]
async fn case3_a_key_of_twenty_digits_is_a_key() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    let server = Server::start_in(dir, Config::default().with(&sales_to_sql())).await;
    let api = server.api();
    for (id, key) in [("a", "29383937493038367292"), ("b", "29383937493038367293")] {
        let body = event_body(id, "sale.created", "2026-11-30T09:15:00.000Z", &format!(r#"{{"id":{key}}}"#));
        assert_eq!(api.deliver_signed(id, &body).await, 200);
        assert_eq!(api.settled(SOURCE, id).await["key"], key);
    }
    let keys: Vec<_> = server.sales().into_iter().map(|sale| sale.id).collect();
    assert_eq!(keys, ["29383937493038367292", "29383937493038367293"]);
}

#[tokio::test]
async fn case4_case20_whatever_is_signed_is_stored_to_the_byte_answered_200_and_parked() {
    let destination = Receiver::always(200).await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    let limit = 1024 * 1024;
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("null", b"null".to_vec()),
        ("number", b"12.50".to_vec()),
        ("text", b"\"a bare text\"".to_vec()),
        ("list", b"[1, 2]".to_vec()),
        ("not JSON", b"hello".to_vec()),
        ("half", b"{\"id\":".to_vec()),
        ("NUL", b"\0".to_vec()),
        ("NUL inside", b"{\"a\":\"\0\"}".to_vec()),
        ("every byte", (0..=255).collect()),
        ("two values", b"{}{}".to_vec()),
        ("newline", b"null\r\n".to_vec()),
        ("deep", "[".repeat(100_000).into_bytes()),
        ("at the limit", vec![b'x'; limit]),
    ];
    for (n, (what, body)) in bodies.iter().enumerate() {
        let id = format!("d{n}");
        assert_eq!(api.deliver_signed(&id, body).await, 200, "{what}");
        let row = api.inbox_row(SOURCE, &id).await.unwrap();
        assert_eq!(row["state"], "parked", "{what}: {row}");
        assert!(!row["reason"].as_str().unwrap().is_empty(), "{what}: {row}");
        assert!(api.inbox_body(SOURCE, &id).await == *body, "{what}: other bytes");
    }
    assert_eq!(api.deliver_signed("over", vec![b'x'; limit + 1]).await, 413);
    assert_eq!(api.inbox_row(SOURCE, "over").await, None);
    assert!(destination.seen().is_empty());
}

#[tokio::test]
async fn case4_nul_and_line_ends_in_a_used_body_are_forwarded_as_they_came() {
    let mut destination = Receiver::always(200).await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    let at = "2026-11-30T09:15:00.000Z";
    let body = |id: &str, data: &str| event_body(id, "sale.created", at, data);
    for (id, body) in [
        ("nul", body("nul", r#"{"id":"k\u0000k"}"#)),
        ("bom", format!("\u{feff}{}", body("bom", "{}"))),
        ("newline", body("newline", "{}") + "\n"),
        ("crlf", body("crlf", "{}").replace(',', ",\r\n") + "\r\n\r\n"),
        ("twice", r#"{"id":"x","id":"twice","type":"a.b","type":"c.d","data":{"id":1,"id":2}}"#.to_owned()),
    ] {
        assert_eq!(api.deliver_signed(id, &body).await, 200, "{id}");
        let forwarded = destination.next().await;
        assert_eq!(String::from_utf8_lossy(&forwarded.body), body);
        assert_eq!(api.settled(SOURCE, id).await["state"], "done");
    }
}

#[tokio::test]
async fn a_source_without_routes_stores_and_parks() {
    let server = Server::start(Config::default().with(&source())).await;
    let api = server.api();
    let body = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", "{}");
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    assert_eq!(api.inbox_row(SOURCE, "e1").await.unwrap()["state"], "parked");
}
