//! Odd inputs of every kind: the bytes and the ids that come in are the ones in the store and at a destination.

use hikyaku_core::signature::{Secret, receiptroller};

use crate::harness::{Config, Receiver, Server, event_body, forward_to};

const SOURCE: &str = "receiptroller";
const TIMESTAMP: &str = "2026-11-30T09:15:00.000Z";
/// The secret that the destination knows.
const OWN_SECRET: &str = "a-secret-of-the-destination";
/// Largest body that is taken.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// What is in no envelope, and waits for a person.
const UNREADABLE: [(&str, &[u8]); 5] = [
    ("an empty body", b""),
    ("no JSON", b"hello\r\n"),
    ("a raw NUL", b"{\"id\":\"\0\"}"),
    ("no UTF-8", b"{\"id\":\"\xff\"}"),
    ("half a body", b"{\"id\":"),
];

/// Events whose data no parser would give back as it was.
fn odd_events() -> Vec<(&'static str, Vec<u8>)> {
    let with = |data: &str| event_body("", "sale.created", TIMESTAMP, data).replace("\"id\":\"\",", "");
    let deep = format!("{}0{}", "[".repeat(10_000), "]".repeat(10_000));
    let plain = with("{}");
    let padded = with("\"\"").len();
    [
        ("duplicate keys", with(r#"{"z":1,"a":2,"z":3}"#)),
        ("depth of 10,000", with(&deep)),
        ("1e400", with("[1e400, -0, 1E+2]")),
        ("20 digits", with(r#"{"id":29383937493038367292}"#)),
        ("lone surrogates", with(r#"["\ud800","\udc00\ud800"]"#)),
        ("an escaped NUL", with(r#"{"id":"a\u0000b"}"#)),
        ("a BOM", format!("\u{feff}{plain}")),
        ("a trailing newline", plain.clone() + "\n"),
        ("CRLF", plain.replace(',', ",\r\n") + "\r\n\r\n"),
        ("odd spacing", plain.replace("\":", "\"\t:  ")),
        ("the largest body", with(&format!("\"{}\"", "x".repeat(MAX_BODY_BYTES - padded)))),
    ]
    .map(|(what, body)| (what, body.into_bytes()))
    .into()
}

/// Ids with everything that a separator or a statement could stumble over.
const IDS: [&str; 10] = [
    "T01|2026-11|1001",
    "t1|2026-13||9",
    "||",
    "|",
    "%7C",
    "a/b",
    "?id=1&x#y",
    "'; DROP TABLE inbox_rows; --",
    "\"quoted\"",
    "-0",
];

#[tokio::test]
async fn c5_c13_bodies_and_ids_come_back_to_the_byte_from_the_store_and_at_a_destination() {
    let mut destination = Receiver::always(200).await;
    let signing = format!("kind = \"http\"\nsecret = \"{OWN_SECRET}\"");
    let tables = forward_to(&destination.url("/x")).replace("kind = \"http\"", &signing);
    let server = Server::start(Config::default().with(&tables)).await;
    let of_id = |id: &str| event_body(&id.replace('"', "\\\""), "sale.created", TIMESTAMP, "{}").into_bytes();
    let by_body = odd_events().into_iter().enumerate().map(|(n, (what, body))| (format!("odd-{n}"), what, body));
    let by_id = IDS.map(|id| (id.to_owned(), "an id", of_id(id)));
    for (id, what, body) in by_body.chain(by_id) {
        assert_eq!(server.api().deliver_signed(&id, &body).await, 200, "{what}: {id}");
        let row = server.api().settled(SOURCE, &id).await;
        assert_eq!(
            (&row["deliveryId"], &row["state"]),
            (&id.as_str().into(), &"done".into()),
            "{what}: {}",
            row["reason"]
        );
        let seen = destination.next().await;
        assert!(seen.body == body, "{what}: other bytes at the destination");
        assert_eq!(seen.signature(), receiptroller::sign(&Secret::new(OWN_SECRET), &body), "{what}: {id}");
        // A header's value has no spaces here; an id with some is in the body alone.
        let is_word = id.bytes().all(|byte| byte.is_ascii_graphic());
        assert_eq!(seen.delivery(), if is_word { &id } else { "" }, "{what}");
        assert!(server.api().inbox_body(SOURCE, &id).await == body, "{what}: other bytes in the store");
    }
}

#[tokio::test]
async fn t6_what_cannot_be_read_is_kept_to_the_byte_and_what_is_too_large_is_413() {
    let destination = Receiver::always(200).await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    for (id, (what, body)) in IDS.iter().zip(UNREADABLE) {
        assert_eq!(api.deliver_signed(id, body).await, 200, "{what}");
        assert_eq!(api.inbox_row(SOURCE, id).await.unwrap()["state"], "parked", "{what}");
        assert_eq!(api.inbox_body(SOURCE, id).await, body, "{what}");
    }
    assert_eq!(api.deliver_signed("over", vec![b' '; MAX_BODY_BYTES + 1]).await, 413);
    assert_eq!(api.inbox(&[]).await.len(), UNREADABLE.len());
    assert!(destination.seen().is_empty());
}
