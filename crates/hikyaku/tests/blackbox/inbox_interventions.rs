//! T2, T6, C16 and case 21: what waits for a person, and a source that never switches itself off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hikyaku_core::signature::{Secret, receiptroller};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    Api, Config, Receiver, Reply, SOURCE_SECRET, Server, event_body, eventually, forward_to, fresh_sales_table,
    sales_to_sql, source,
};

const SOURCE: &str = "receiptroller";
const TIMESTAMP: &str = "2026-11-30T09:15:00.000Z";
/// What gives a row up after a few failures, within a second or so.
const IMPATIENT: &str = "[inbox]\nretry_first = \"10ms\"\nretry_longest = \"20ms\"\ngive_up_after = \"3s\"\n";

fn sale(event: &str, key: &str) -> String {
    event_body(event, "sale.created", TIMESTAMP, &format!(r#"{{"id":"{key}"}}"#))
}

async fn intervene(api: &Api, delivery: &str, verb: &str, body: Value) -> Value {
    api.call(Method::POST, &["inbox", SOURCE, delivery, verb], body.to_string()).await.expect(200)
}

/// The log is read beside the answers, and may come after them.
async fn is_logged(server: &Server, words: &str) {
    eventually(&format!("{words:?} in the log"), async || server.log().contains(words).then_some(())).await;
}

/// A destination that fails until it is told to be well.
async fn ailing() -> (Receiver, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = is_well.clone();
    let receiver = Receiver::start(move |_| Reply::status(if well.load(Ordering::Acquire) { 200 } else { 500 })).await;
    (receiver, is_well)
}

#[tokio::test]
async fn case21_c16_a_row_that_always_fails_is_dead_visible_and_replayable_and_costs_the_provider_nothing() {
    let (destination, is_well) = ailing().await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/"))).with(IMPATIENT)).await;
    let api = server.api();
    for n in 0..3 {
        let delivery = format!("e{n}");
        assert_eq!(api.deliver_signed(&delivery, sale(&delivery, &format!("k{n}"))).await, 200, "C16");
    }
    for n in 0..3 {
        let row = api.settled(SOURCE, &format!("e{n}")).await;
        let effect = &row["effects"][0];
        assert_eq!((&row["state"], &effect["state"]), (&json!("dead"), &json!("dead")), "{row}");
        assert!(effect["failures"].as_u64() > Some(1), "{row}");
        assert!(effect["detail"].as_str().unwrap().contains("500"), "the last error is there: {row}");
    }
    assert_eq!(api.inbox(&[("state", "dead"), ("route", "receiptroller-forward")]).await.len(), 3);

    is_well.store(true, Ordering::Release);
    assert_eq!(intervene(&api, "e0", "replay", json!({})).await, json!({"outcome": "done"}));
    assert_eq!(api.settled(SOURCE, "e0").await["state"], "done");
    let many = async |preview: bool| {
        let body = json!({"state": "dead", "route": "receiptroller-forward", "preview": preview}).to_string();
        api.call(Method::POST, &["inbox", "replay"], body).await.expect(200)
    };
    let preview = many(true).await;
    assert_eq!((&preview["matched"], &preview["changed"]), (&json!(2), &json!(0)), "{preview}");
    let done = many(false).await;
    assert_eq!((&done["matched"], &done["changed"], &done["nextCursor"]), (&json!(2), &json!(2), &Value::Null));
    for n in 1..3 {
        assert_eq!(api.settled(SOURCE, &format!("e{n}")).await["state"], "done");
    }
    assert!(api.inbox(&[("state", "dead")]).await.is_empty());
    // The provider's own retry of what took effect at last is a duplicate still.
    assert_eq!(api.deliver_signed("e0", sale("e0", "k0")).await, 200);
    assert_eq!(api.inbox(&[]).await.len(), 3);
}

/// C8: where the destination keeps its own record, nothing takes effect twice, whoever asks.
#[tokio::test]
async fn c8_a_replay_of_what_took_effect_in_a_database_changes_nothing_there() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    let server = Server::start_in(dir, Config::default().with(&sales_to_sql())).await;
    let api = server.api();
    assert_eq!(api.deliver_signed("e1", sale("e1", "k")).await, 200);
    api.settled(SOURCE, "e1").await;
    intervene(&api, "e1", "replay", json!({"route": "receiptroller-books"})).await;
    let row = api.settled(SOURCE, "e1").await;
    assert_eq!((&row["state"], &row["effects"][0]["detail"]), (&json!("done"), &json!("it took effect before")));
    assert_eq!(server.effects().len(), 1);
}

#[tokio::test]
async fn t6_what_no_route_takes_is_answered_200_and_released_when_one_does() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let mut server = Server::start_in(dir.clone(), Config::default().with(&source())).await;
    let api = server.api();
    for delivery in ["e1", "e2"] {
        assert_eq!(api.deliver_signed(delivery, sale(delivery, "k")).await, 200);
    }
    assert_eq!(api.deliver_signed("odd", "not json").await, 200);
    let still = api.call(Method::POST, &["inbox", SOURCE, "e1", "release"], "").await;
    assert!(still.problem(409).contains("no route"), "{still:?}");
    intervene(&api, "e2", "discard", json!({"reason": "a test sale"})).await;
    server.sigterm().await;

    let mut destination = Receiver::always(200).await;
    let server = Server::start_in(dir, Config::default().with(&forward_to(&destination.url("/")))).await;
    let api = server.api();
    let released = api.call(Method::POST, &["inbox", "release"], r#"{"state":"parked"}"#).await.expect(200);
    assert_eq!((&released["matched"], &released["changed"]), (&json!(2), &json!(1)), "{released}");
    assert_eq!(released["unchanged"][0]["deliveryId"], "odd");
    assert_eq!(destination.next().await.body, sale("e1", "k").as_bytes());
    assert_eq!(api.settled(SOURCE, "e1").await["state"], "done");
    let discarded = api.inbox_row(SOURCE, "e2").await.unwrap();
    assert_eq!((&discarded["state"], &discarded["reason"]), (&json!("discarded"), &json!("a test sale")));
    assert_eq!(api.inbox_row(SOURCE, "odd").await.unwrap()["state"], "parked");
}

const QUARANTINE: &str = "on_bad_signature = \"quarantine\"\nquarantine_max_rows = 2\n";

/// The source with this secret, and where its events go.
fn with_secret(secret: &str, destination: &Receiver) -> Config {
    let tables = forward_to(&destination.url("/"));
    let of_source = format!("secrets = [\"{secret}\"]\n{QUARANTINE}");
    Config::default().with(&tables.replace(&format!("secrets = [\"{SOURCE_SECRET}\"]\n"), &of_source))
}

#[tokio::test]
async fn t2_a_quarantine_answers_200_until_the_secret_is_right_and_everything_takes_effect_then() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let mut destination = Receiver::always(200).await;
    let mut server = Server::start_in(dir.clone(), with_secret("a-secret-that-was-mistyped", &destination)).await;
    let api = server.api();
    for delivery in ["e1", "e2", "e2"] {
        assert_eq!(api.deliver_signed(delivery, sale(delivery, delivery)).await, 200, "{delivery}");
    }
    assert_eq!(api.deliver_signed("e3", sale("e3", "k")).await, 401, "it is full");
    is_logged(&server, "quarantine is full").await;
    let kept = api.inbox(&[("state", "quarantined")]).await;
    assert_eq!(kept.len(), 2);
    let id = kept[0]["deliveryId"].as_str().unwrap();
    let still = api.call(Method::POST, &["inbox", SOURCE, id, "release"], "").await;
    assert!(still.problem(409).contains("secrets"), "{still:?}");
    assert_eq!(api.inbox_row(SOURCE, "e1").await, None, "no id is used up");
    server.sigterm().await;

    let server = Server::start_in(dir, with_secret(SOURCE_SECRET, &destination)).await;
    let api = server.api();
    // The provider's retry comes first.
    assert_eq!(api.deliver_signed("e2", sale("e2", "e2")).await, 200);
    destination.next().await;
    let released = api.call(Method::POST, &["inbox", "release"], r#"{"state":"quarantined"}"#).await.expect(200);
    assert_eq!((&released["matched"], &released["changed"]), (&json!(2), &json!(2)), "{released}");
    assert_eq!(destination.next().await.body, sale("e1", "e1").as_bytes());
    for delivery in ["e1", "e2"] {
        assert_eq!(api.settled(SOURCE, delivery).await["state"], "done");
    }
    assert_eq!(destination.seen().len(), 2, "each once");
    assert!(api.inbox(&[("state", "quarantined")]).await.is_empty());
}

#[tokio::test]
async fn t2_a_wrong_secret_is_told_at_once_with_the_time_at_which_the_webhook_goes_off() {
    let server = Server::start(Config::default().with(&source())).await;
    let api = server.api();
    let sources = async || api.get(&["sources"], &[]).await.expect(200)["items"][0].clone();
    assert!(sources().await["refusedSince"].is_null());
    let body = sale("e1", "k");
    let signature = receiptroller::sign(&Secret::new("another-secret-of-the-provider"), body.as_bytes());
    let headers = [("x-rr-delivery", "e1"), ("x-rr-signature", signature.as_str())];
    assert_eq!(api.deliver(SOURCE, &headers, body.as_bytes()).await, 401);
    let told = sources().await;
    let at = |name: &str| told[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!(at("switchedOffAt").duration_since(at("refusedSince")).as_secs(), 71 * 60, "{told}");
    assert!(told["lastRefusedBecause"].as_str().unwrap().contains("another secret"), "{told}");
    is_logged(&server, "may switch its webhook off").await;
    is_logged(&server, "switched_off_at").await;

    assert_eq!(api.deliver_signed("e2", sale("e2", "k")).await, 200);
    let told = sources().await;
    assert!(told["switchedOffAt"].is_null() && told["lastGoodAt"].is_string(), "{told}");
}
