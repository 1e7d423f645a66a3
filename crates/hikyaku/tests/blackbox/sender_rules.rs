//! R2, R3, R7-R12, R14: what counts as success, how often and when it is tried, when a webhook is switched off.

use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{Api, Config, Receiver, Reply, Server, Webhook, eventually, gated, items, statuses};

/// A receiver that answers the status that the path names, always.
async fn status_by_path() -> Receiver {
    Receiver::start(|seen| {
        let status = seen.path().trim_start_matches('/');
        Reply::Raw(
            format!(
                "HTTP/1.1 {status} X\r\nlocation: /followed\r\n{}\r\n",
                match status {
                    "204" => "",
                    _ => "content-length: 0\r\n",
                }
            )
            .into_bytes(),
        )
    })
    .await
}

async fn webhooks_by_status(api: &Api, receiver: &Receiver, all: &[u16]) -> Vec<(u16, Webhook)> {
    let mut webhooks = Vec::new();
    for status in all {
        webhooks.push((*status, api.webhook(&receiver.url(&format!("/{status}"))).await));
    }
    webhooks
}

#[tokio::test]
async fn r2_any_2xx_is_success() {
    let (server, receiver) = (Server::start(Config::default()).await, status_by_path().await);
    let api = server.api();
    let webhooks = webhooks_by_status(&api, &receiver, &[200, 201, 202, 204, 299]).await;
    let event = api.ended(&api.publish("sale.created", "{}").await).await;
    for (status, webhook) in webhooks {
        let delivery = delivery_of(&event, &webhook);
        assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("delivered"), vec![status.into()]));
        assert_eq!(api.read_webhook(&webhook).await["active"], true);
    }
    assert_eq!(receiver.seen().len(), 5);
}

#[tokio::test]
async fn r3_everything_else_is_retried_alike_and_no_redirect_is_followed() {
    let (server, receiver) = (Server::start(Config::default()).await, status_by_path().await);
    let api = server.api();
    let webhooks = webhooks_by_status(&api, &receiver, &[300, 301, 302, 307, 400, 401, 404, 410, 429, 500, 503]).await;
    let event = api.ended(&api.publish("sale.created", "{}").await).await;
    for (status, webhook) in &webhooks {
        let delivery = delivery_of(&event, webhook);
        assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("exhausted"), vec![(*status).into(); 4]));
        assert_eq!(api.read_webhook(webhook).await["active"], false, "{status}");
    }
    let seen = receiver.seen();
    assert_eq!(seen.len(), webhooks.len() * 4);
    assert!(seen.iter().all(|seen| seen.path() != "/followed"));
}

fn delivery_of(event: &serde_json::Value, webhook: &Webhook) -> serde_json::Value {
    let deliveries = event["deliveries"].as_array().unwrap();
    let mine = deliveries.iter().find(|delivery| delivery["webhookId"] == webhook.id.as_str());
    mine.unwrap_or_else(|| panic!("no delivery for {}: {event}", webhook.id)).clone()
}

#[tokio::test]
async fn r7_r8_four_attempts_each_its_delay_after_the_end_of_the_one_before() {
    // The clock reads whole milliseconds, at both ends of a gap.
    const ROUNDING_MS: i64 = 2;
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    api.ended(&api.publish("sale.created", "{}").await).await;
    let mut lines = items(&api.log(&webhook, &[]).await);
    lines.reverse();
    assert_eq!(lines.len(), 4);
    let starts: Vec<jiff::Timestamp> =
        lines.iter().map(|l| l["startedAt"].as_str().unwrap().parse().unwrap()).collect();
    for (i, delay) in [100, 200, 300].into_iter().enumerate() {
        let took = lines[i]["durationMs"].as_f64().unwrap() as i64;
        let pause = starts[i + 1].as_millisecond() - starts[i].as_millisecond() - took;
        assert!(pause >= delay - ROUNDING_MS, "attempt {} came {pause} ms after the one before: {lines:?}", i + 2);
        assert_eq!(lines[i]["attempt"], i + 1);
    }
    assert_eq!(receiver.seen().len(), 4);
}

#[tokio::test]
async fn r9_all_attempts_carry_the_same_bytes_and_the_signature_computed_by_hand() {
    // HMAC-SHA256 of the body below under this secret, from another program.
    const SECRET: &str = "a-secret-of-twenty-four-bytes-or-more";
    const BODY: &str =
        r#"{"id":"evt-9","type":"sale.created","timestamp":"2026-11-30T09:15:00.250Z","data":{"b":1, "a":2.0}}"#;
    const SIGNATURE: &str = "sha256=e5bb312f9fbb205e43c47992be0b6377c9300dd186a69ea0f3c1bac5b535f658";
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    api.webhook_with(json!({ "url": receiver.url("/hook?x=1"), "secret": SECRET })).await;
    let publish =
        r#"{"id":"evt-9","type":"sale.created","timestamp":"2026-11-30T18:15:00.25+09:00","data":{"b":1, "a":2.0}}"#;
    api.publish_raw(publish).await.expect(202);
    let seen = receiver.next_many(4).await;
    for request in &seen {
        assert_eq!((request.method(), request.path()), ("POST", "/hook?x=1"));
        assert_eq!(request.header("content-type"), Some("application/json"));
        assert_eq!((request.delivery(), request.signature()), ("evt-9", SIGNATURE));
        assert_eq!(String::from_utf8_lossy(&request.body), BODY);
        assert_eq!(request.head, seen[0].head);
    }
    assert_eq!(receiptroller::sign(&Secret::new(SECRET), BODY.as_bytes()), SIGNATURE);
}

#[tokio::test]
async fn r9_a_retry_goes_to_the_present_url_with_the_first_signature() {
    let server = Server::start(Config::default()).await;
    let ((mut old, gate), mut new) = (gated(500).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook(&old.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    let first = old.next().await;
    api.patch(&webhook, json!({ "url": new.url("/moved") })).await;
    gate.add_permits(1);
    let second = new.next().await;
    assert_eq!((second.path(), second.delivery()), ("/moved", id.as_str()));
    assert_eq!((second.signature(), &second.body), (first.signature(), &first.body));
    assert_eq!(statuses(&api.ended_one(&id).await), [500, 200]);
}

#[tokio::test]
async fn a_deleted_webhooks_waiting_retries_are_cancelled_with_a_reason() {
    let server = Server::start(Config::default().retry_delays(["1h", "1h", "1h"])).await;
    let (mut receiver, api) = (Receiver::always(500).await, server.api());
    let webhook = api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    receiver.next().await;
    eventually("the first attempt's line", async || items(&api.log(&webhook, &[]).await).pop()).await;
    let waiting = api.event(&id).await["deliveries"][0].clone();
    assert!(waiting["state"] == "waiting" && waiting["nextAttemptAt"].is_string(), "{waiting}");
    assert_eq!(api.delete(&webhook).await, 204);
    let delivery = api.ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("cancelled"), vec![500]));
    assert!(delivery["nextAttemptAt"].is_null(), "{delivery}");
    assert!(delivery["reason"].as_str().unwrap().to_lowercase().contains("deleted"), "{delivery}");
    api.get(&["webhooks", &webhook.id], &[]).await.problem(404);
    assert_eq!(api.publish_raw(r#"{"type":"a.b","data":1}"#).await.expect(202)["deliveries"], 0);
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn r10_r11_one_events_four_failures_switch_the_webhook_off_and_say_so() {
    let server = Server::start(Config::default()).await;
    let mut receiver = Receiver::start(|seen| {
        let sale = seen.json()["type"] == "sale.created";
        Reply::status(if sale { 500 } else { 200 })
    })
    .await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let other = api.webhook_with(json!({ "url": receiver.url("/other"), "events": ["order.*"] })).await;
    let fine = api.publish("order.created", "{}").await;
    let failing = api.publish("sale.created", "{}").await;
    receiver.next_many(6).await;
    api.ended(&fine).await;
    assert_eq!(api.ended_one(&failing).await["state"], "exhausted");
    let off = api.read_webhook(&webhook).await;
    assert_eq!(off["active"], false);
    assert!(off.to_string().contains(&failing), "the reason names no event: {off}");
    assert_eq!(api.read_webhook(&other).await["active"], true);
    let answer = api.publish_raw(r#"{"type":"order.updated","data":{}}"#).await.expect(202);
    assert_eq!(answer["deliveries"], 1, "only the other webhook gets a later event");
}

#[tokio::test]
async fn r12_events_of_the_time_off_never_come_by_themselves() {
    let (mut server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    api.patch(&webhook, json!({ "active": false })).await;
    let missed = api.publish_raw(r#"{"type":"sale.created","data":{}}"#).await.expect(202);
    assert_eq!(missed["deliveries"], 0);
    assert_eq!(api.patch(&webhook, json!({ "active": true })).await["active"], true);
    let later = api.publish("sale.created", "{}").await;
    assert_eq!(receiver.next().await.delivery(), later);
    server.restart().await;
    let api = server.api();
    let last = api.publish("sale.created", "{}").await;
    assert_eq!(receiver.next().await.delivery(), last);
    assert_eq!(api.event(missed["id"].as_str().unwrap()).await["deliveries"], json!([]));
    assert_eq!(receiver.seen().len(), 2);
}

#[tokio::test]
async fn r14_a_paused_webhooks_waiting_retries_go_on_and_do_not_switch_it_on() {
    let server = Server::start(Config::default()).await;
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let mut receiver = Receiver::start(move |seen| match seen.attempt {
        1 => Reply::After(inner.clone(), Box::new(Reply::status(500))),
        2 => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    receiver.next().await;
    assert_eq!(api.patch(&webhook, json!({ "active": false })).await["active"], false);
    gate.add_permits(1);
    receiver.next_many(2).await;
    let delivery = api.ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("delivered"), vec![500, 500, 200]));
    assert_eq!(api.read_webhook(&webhook).await["active"], false);
}

#[tokio::test]
async fn an_exhausted_delivery_of_a_paused_webhook_leaves_it_paused() {
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    api.patch(&webhook, json!({ "active": false })).await;
    assert_eq!(api.ended_one(&id).await["state"], "exhausted");
    assert_eq!(api.read_webhook(&webhook).await["active"], false);
}
