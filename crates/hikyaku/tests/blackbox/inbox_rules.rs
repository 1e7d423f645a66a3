//! C4-C6, C8-C16: verified, stored, answered, and then worked off, once and in order.

use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};
use serde_json::json;

use crate::harness::{
    Config, Receiver, Reply, SOURCE_SECRET, Sale, Server, event_body, forward_to, fresh_sales_table, gated,
    sales_to_sql, signed,
};

const SOURCE: &str = "receiptroller";

/// A program whose sales go into a table.
async fn server_with_books() -> Server {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    Server::start_in(dir, Config::default().with(&sales_to_sql())).await
}

/// A sale's event, with its total.
fn sale(event: &str, verb: &str, second: u32, key: &str, total: i64) -> String {
    let data = format!(r#"{{"id":"{key}","paymentSummary":{{"grandTotal":{total}}}}}"#);
    event_body(event, &format!("sale.{verb}"), &format!("2026-11-30T09:15:{second:02}.000Z"), &data)
}

fn row(key: &str, total: i64, event: &str) -> Sale {
    Sale { id: key.into(), total: Some(total), event: event.into(), biz: None }
}

#[tokio::test]
async fn c11_a_bad_signature_is_401_and_nothing_is_stored() {
    let server = server_with_books().await;
    let api = server.api();
    let body = sale("e1", "created", 1, "k", 100);
    let good = receiptroller::sign(&Secret::new(SOURCE_SECRET), body.as_bytes());
    let other = receiptroller::sign(&Secret::new("another-secret-of-somebody"), body.as_bytes());
    let of_other_body = receiptroller::sign(&Secret::new(SOURCE_SECRET), b"{}");
    let bad = [
        None,
        Some(String::new()),
        Some(other),
        Some(of_other_body),
        Some(good.replace("sha256=", "")),
        Some(good.replace("sha256=", "sha1=")),
        Some(good[..good.len() - 1].to_owned()),
        Some(format!("{good}00")),
    ];
    for signature in &bad {
        let mut headers = vec![("x-rr-delivery", "e1")];
        headers.extend(signature.as_deref().map(|signature| ("x-rr-signature", signature)));
        assert_eq!(api.deliver(SOURCE, &headers, body.as_bytes()).await, 401, "{signature:?}");
    }
    assert_eq!(api.deliver(SOURCE, &[("x-rr-delivery", "e1"), ("x-rr-signature", &good)], b"{}").await, 401);
    assert!(api.inbox(&[]).await.is_empty());
    assert_eq!(api.inbox_row(SOURCE, "e1").await, None);
    // The refused ones have not used up the id.
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    assert_eq!(api.settled(SOURCE, "e1").await["state"], "done");
    assert_eq!(api.deliver("nobody", &[("x-rr-delivery", "e1"), ("x-rr-signature", &good)], b"{}").await, 404);
}

#[tokio::test]
async fn c5_c6_c12_a_repeated_delivery_is_answered_200_and_has_one_effect() {
    let server = server_with_books().await;
    let api = server.api();
    let body = sale("e1", "created", 1, "k", 100);
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (api, body) = (api.clone(), body.clone());
            tokio::spawn(async move { api.deliver_signed("e1", &body).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    api.settled(SOURCE, "e1").await;
    // Long after it was worked off, and with other bytes: the id decides.
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    assert_eq!(api.deliver_signed("e1", sale("e1", "created", 1, "k", 999)).await, 200);
    assert_eq!(api.inbox(&[]).await.len(), 1);
    // A later event of the same key ends after anything that the repeats might have caused.
    assert_eq!(api.deliver_signed("e2", sale("e2", "updated", 2, "k", 200)).await, 200);
    api.settled(SOURCE, "e2").await;
    assert_eq!(server.effects(), [("k".into(), "e1".into()), ("k".into(), "e2".into())]);
    assert_eq!(api.inbox_body(SOURCE, "e1").await, body.as_bytes());
}

#[tokio::test]
async fn c9_two_sources_of_one_provider_process_an_event_once() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    const SECOND_SECRET: &str = "the-secret-of-the-second-webhook";
    let second = format!(
        "[[source]]\nname = \"second\"\nprovider = \"receiptroller\"\norganization = \"acme\"\n\
         secrets = [\"{SECOND_SECRET}\"]\n\n[[route]]\nsource = \"second\"\nevents = [\"*\"]\n\
         destination = \"books\"\norder = \"latest\"\n"
    );
    let server = Server::start_in(dir, Config::default().with(&sales_to_sql()).with(&second)).await;
    let api = server.api();
    let body = sale("e1", "created", 1, "k", 100);
    let signature = receiptroller::sign(&Secret::new(SECOND_SECRET), body.as_bytes());
    let headers = [("x-rr-delivery", "e1"), ("x-rr-signature", signature.as_str())];
    assert_eq!(api.deliver(SOURCE, &headers, body.as_bytes()).await, 401, "each source has its own secret");
    assert_eq!(api.deliver("second", &headers, body.as_bytes()).await, 200);
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    assert_eq!(api.deliver_signed("e2", sale("e2", "updated", 2, "k", 200)).await, 200);
    api.settled(SOURCE, "e1").await;
    api.settled(SOURCE, "e2").await;
    assert_eq!(api.inbox(&[]).await.len(), 2);
    assert_eq!(server.effects(), [("k".into(), "e1".into()), ("k".into(), "e2".into())]);
}

#[tokio::test]
async fn c10_a_key_is_one_row_that_the_newest_event_wrote() {
    let server = server_with_books().await;
    let api = server.api();
    for (event, verb, second, total) in [("a", "created", 1, 100), ("b", "updated", 2, 150), ("c", "voided", 3, 0)] {
        assert_eq!(api.deliver_signed(event, sale(event, verb, second, "t1|2026-11|9", total)).await, 200);
        assert_eq!(api.settled(SOURCE, event).await["state"], "done");
    }
    assert_eq!(server.sales(), [row("t1|2026-11|9", 0, "c")]);
    assert_eq!(api.inbox(&[("key", "t1|2026-11|9")]).await.len(), 3);
    assert!(api.inbox(&[("key", "t1|2026-11")]).await.is_empty());
}

#[tokio::test]
async fn c4_an_older_event_never_overwrites_a_newer_whatever_the_order_of_arrival() {
    let server = server_with_books().await;
    let api = server.api();
    // Two of them carry the same timestamp: the later stage of a sale's life wins.
    let events = [("a", "created", 1, 100), ("b", "created", 2, 110), ("c", "updated", 2, 120), ("d", "voided", 2, 0)];
    let mut expected = Vec::new();
    for (n, order) in permutations(events.len()).into_iter().enumerate() {
        let key = format!("k{n:02}");
        for (place, i) in order.iter().enumerate() {
            let (name, verb, second, total) = events[*i];
            let event = format!("{key}-{name}");
            assert_eq!(api.deliver_signed(&event, sale(&event, verb, second, &key, total)).await, 200);
            // Half of the keys are worked off one by one, the others as they pile up.
            let newest = order[..=place].iter().max() == Some(i);
            if n % 2 == 0 {
                let state = api.settled(SOURCE, &event).await["state"].clone();
                assert_eq!(state, if newest { "done" } else { "stale" }, "{order:?} {event}");
            }
        }
        for (name, ..) in events {
            api.settled(SOURCE, &format!("{key}-{name}")).await;
        }
        expected.push(row(&key, 0, &format!("{key}-d")));
    }
    assert_eq!(server.sales(), expected);
}

fn permutations(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(n - 1);
    let insert = |rest: Vec<usize>| (0..n).map(move |at| [&rest[..at], &[n - 1], &rest[at..]].concat());
    shorter.into_iter().flat_map(insert).collect()
}

#[tokio::test]
async fn c13_c14_c16_it_is_stored_and_answered_200_while_the_destination_hangs_or_is_down() {
    let (mut destination, gate) = gated(200).await;
    let mut server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    let body = sale("e1", "created", 1, "k", 100);
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    destination.next().await;
    // The destination is asked and has not answered; the provider has its 200 all the same, for this and any other.
    assert_eq!(api.inbox_row(SOURCE, "e1").await.unwrap()["state"], "waiting");
    assert_eq!(api.deliver_signed("e2", sale("e2", "created", 1, "other", 1)).await, 200);
    assert_eq!(api.inbox(&[("state", "waiting")]).await.len(), 2);
    assert_eq!(api.inbox_body(SOURCE, "e1").await, body.as_bytes());
    gate.add_permits(2);
    for event in ["e1", "e2"] {
        assert_eq!(api.settled(SOURCE, event).await["state"], "done");
    }
    assert_eq!(destination.seen().len(), 2);
    // And what was answered 200 is there after a crash.
    server.kill9().await;
    server.restart().await;
    assert_eq!(server.api().inbox_body(SOURCE, "e1").await, body.as_bytes());
}

#[tokio::test]
async fn c15_a_failed_effect_is_tried_again_with_the_same_bytes_and_idempotency_key() {
    let mut destination = Receiver::start(|seen| match seen.order {
        0 => Reply::status(500),
        1 => Reply::Reset,
        2 => Reply::status(404),
        _ => Reply::status(200),
    })
    .await;
    let config = "[inbox]\nretry_first = \"20ms\"\nretry_longest = \"40ms\"\n";
    let server = Server::start(Config::default().with(config).with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    let body = sale("e1", "created", 1, "k", 100);
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    let seen = destination.next_many(4).await;
    let done = api.settled(SOURCE, "e1").await;
    assert_eq!((&done["state"], &done["effects"][0]["failures"]), (&json!("done"), &json!(3)), "{done}");
    for request in &seen {
        assert_eq!((request.body.as_slice(), request.delivery()), (body.as_bytes(), "e1"));
        assert!(request.header("idempotency-key").is_some_and(|key| !key.is_empty()));
        assert_eq!(request.header("idempotency-key"), seen[0].header("idempotency-key"));
    }
}

#[tokio::test]
async fn case21_a_row_that_always_fails_ends_as_dead_and_holds_up_no_other_key() {
    let destination = Receiver::start(|seen| Reply::status(if seen.delivery() == "bad" { 500 } else { 200 })).await;
    let config = "[inbox]\nretry_first = \"10ms\"\nretry_longest = \"20ms\"\ngive_up_after = \"300ms\"\n";
    let server = Server::start(Config::default().with(config).with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    assert_eq!(api.deliver_signed("bad", sale("bad", "created", 1, "k", 1)).await, 200);
    assert_eq!(api.deliver_signed("good", sale("good", "created", 1, "other", 1)).await, 200);
    assert_eq!(api.settled(SOURCE, "good").await["state"], "done");
    let dead = api.settled(SOURCE, "bad").await;
    assert_eq!(dead["state"], "dead");
    assert!(dead["effects"][0]["detail"].as_str().unwrap().contains("500"), "{dead}");
    assert_eq!(api.inbox(&[("state", "dead")]).await.len(), 1);
}

#[tokio::test]
async fn t6_what_is_signed_is_never_refused() {
    let server = server_with_books().await;
    let api = server.api();
    for (id, body) in [
        ("u1", event_body("u1", "weather.changed", "2026-11-30T09:15:00.000Z", "{}")),
        ("u2", r#"{"completely":"different"}"#.to_owned()),
        ("u3", event_body("u3", "sale.created", "yesterday", r#"{"id":null}"#)),
    ] {
        assert_eq!(api.deliver_signed(id, &body).await, 200, "{body}");
        let state = api.settled(SOURCE, id).await["state"].clone();
        assert!(state == "parked" || state == "dead", "{body}: {state}");
        assert_eq!(api.inbox_body(SOURCE, id).await, body.as_bytes());
    }
    // A header that contradicts the signed id may be somebody's replay (R21): kept, and without effect.
    let body = event_body("signed", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k"}"#);
    assert_eq!(api.deliver_signed("unsigned", &body).await, 200);
    let reasons: Vec<_> = api.inbox(&[("state", "parked")]).await.iter().map(|row| row["reason"].to_string()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("unsigned") && reason.contains("signed")), "{reasons:?}");
    // Without the header the signed body's own id is the delivery's; another type of content changes nothing.
    let body = sale("in-body", "created", 1, "k", 7);
    let [_, (name, signature)] = signed("", body.as_bytes());
    let headers = [(name, signature.as_str()), ("content-type", "text/plain")];
    assert_eq!(api.deliver(SOURCE, &headers, body.as_bytes()).await, 200);
    assert_eq!(api.settled(SOURCE, "in-body").await["state"], "done");
    assert_eq!(server.sales(), [row("k", 7, "in-body")]);
}

#[tokio::test]
async fn end_to_end_what_is_published_is_a_row_of_the_table() {
    let server = server_with_books().await;
    let api = server.api();
    let own = format!("http://{}/in/receiptroller", server.addr());
    api.webhook_with(json!({ "url": own, "secret": SOURCE_SECRET })).await;
    let mut expected = Vec::new();
    for n in 0..30 {
        let data = format!(r#"{{"id":"t1|2026-11|{n:02}","paymentSummary":{{"grandTotal":{}}}}}"#, n * 100);
        let id = api.publish("sale.created", &data).await;
        expected.push((id.clone(), row(&format!("t1|2026-11|{n:02}"), n * 100, &id)));
    }
    for (id, _) in &expected {
        assert_eq!(api.ended_one(id).await["state"], "delivered");
        assert_eq!(api.settled(SOURCE, id).await["state"], "done");
    }
    assert_eq!(server.sales(), expected.iter().map(|(_, row)| row.clone()).collect::<Vec<_>>());
    assert_eq!(server.effects().len(), 30);
}
