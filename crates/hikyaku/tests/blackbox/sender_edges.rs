//! R1, R7, R9-R12, R14, R23, R24 where several things happen at once: what was decided about one event, one webhook or
//! one attempt, while another is under way.

use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::harness::{Api, Config, Receiver, Reply, Server, Webhook, deliveries, eventually, gated, items, statuses};

const OLD: &str = "order.created";
const NEW: &str = "sale.created";

/// An endpoint that fails everything, and holds the first attempt of what is old until it has a permit for it.
async fn holds_the_old() -> (Receiver, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let receiver = Receiver::start(move |seen| {
        let held = seen.attempt == 1 && seen.json()["type"] == OLD;
        if held { Reply::After(inner.clone(), Box::new(Reply::status(500))) } else { Reply::status(500) }
    });
    (receiver.await, gate)
}

/// Has the old event's first attempt under way, and the webhook switched off by a new one. Gives both ids.
async fn switched_off_beside_an_older_one(api: &Api, receiver: &mut Receiver, webhook: &Webhook) -> (String, String) {
    let old = api.publish(OLD, "{}").await;
    assert_eq!(receiver.next().await.delivery(), old);
    let new = api.publish(NEW, "{}").await;
    assert_eq!(api.ended_one(&new).await["state"], "exhausted");
    assert_eq!(off(api, webhook).await, (json!(false), json!("exhausted"), json!(new)));
    (old, new)
}

/// Whether a webhook is on, and if not, why and by which event.
async fn off(api: &Api, webhook: &Webhook) -> (Value, Value, Value) {
    let webhook = api.read_webhook(webhook).await;
    (webhook["active"].clone(), webhook["offReason"].clone(), webhook["offEvent"].clone())
}

fn told(delivery: &Value) -> (Option<&str>, Vec<u64>) {
    (delivery["state"].as_str(), statuses(delivery))
}

#[tokio::test]
async fn r1_what_was_not_accepted_comes_again_by_itself() {
    for refusals in [&[500, 200][..], &[404, 503, 200], &[301, 401, 500, 200]] {
        let script = move |attempt: usize| Reply::status(refusals[attempt - 1]);
        let (server, receiver) =
            (Server::start(Config::default()).await, Receiver::start(move |seen| script(seen.attempt)).await);
        let api = server.api();
        let webhook = api.webhook(&receiver.url("/")).await;
        let delivery = api.ended_one(&api.publish(NEW, "{}").await).await;
        let expected: Vec<_> = refusals.iter().map(|status| u64::from(*status)).collect();
        assert_eq!(told(&delivery), (Some("delivered"), expected));
        assert_eq!(receiver.seen().len(), refusals.len());
        assert_eq!(api.read_webhook(&webhook).await["active"], true);
    }
}

#[tokio::test]
async fn r7_r10_r14_the_fourth_failure_of_an_older_event_changes_nothing_on_a_webhook_that_is_off() {
    let (server, (mut receiver, gate)) = (Server::start(Config::default()).await, holds_the_old().await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let (old, new) = switched_off_beside_an_older_one(&api, &mut receiver, &webhook).await;
    let before = api.read_webhook(&webhook).await;
    gate.add_permits(1);
    assert_eq!(told(&api.ended_one(&old).await), (Some("exhausted"), vec![500; 4]), "its retries go on");
    assert_eq!(api.read_webhook(&webhook).await, before, "it is off since {new}, and stays so");
}

#[tokio::test]
async fn r10_r11_an_older_events_fourth_failure_switches_off_what_was_switched_on_in_between() {
    let (server, (mut receiver, gate)) = (Server::start(Config::default()).await, holds_the_old().await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let (old, new) = switched_off_beside_an_older_one(&api, &mut receiver, &webhook).await;
    assert_eq!(api.patch(&webhook, json!({ "active": true })).await["active"], true);
    gate.add_permits(1);
    assert_eq!(told(&api.ended_one(&old).await), (Some("exhausted"), vec![500; 4]));
    assert_eq!(off(&api, &webhook).await, (json!(false), json!("exhausted"), json!(old)));
    assert_eq!(statuses(&api.ended_one(&new).await).len(), 4, "what had ended comes no more");
    assert_eq!(receiver.seen().len(), 8);
}

#[tokio::test]
async fn r7_r10_two_events_that_fail_side_by_side_have_four_attempts_each_and_switch_off_once() {
    let server = Server::start(Config::default()).await;
    let (mut receiver, gate) = gated(500).await;
    let mut watcher = Receiver::always(200).await;
    let api = server.api();
    let webhook = api.webhook_with(json!({ "url": receiver.url("/"), "events": ["sale.*"] })).await;
    api.webhook_with(json!({ "url": watcher.url("/"), "events": ["webhook.*", "delivery.exhausted"] })).await;
    let (one, other) = (api.publish(NEW, "{}").await, api.publish(NEW, "{}").await);
    // Both are under way before either has failed.
    receiver.next_many(2).await;
    gate.add_permits(8);
    for id in [&one, &other] {
        assert_eq!(told(&api.ended_one(id).await), (Some("exhausted"), vec![500; 4]));
    }
    let (active, reason, event) = off(&api, &webhook).await;
    assert_eq!((active, reason), (json!(false), json!("exhausted")));
    assert!(event == one.as_str() || event == other.as_str(), "{event}");
    let notices = watcher.next_many(3).await;
    // Were there a second notice of the end, it would come before that of the return.
    api.patch(&webhook, json!({ "active": true })).await;
    let last = watcher.next().await.json();
    assert_eq!(last["type"], "webhook.enabled");
    let mut types: Vec<_> = notices.iter().map(|seen| seen.json()["type"].as_str().unwrap().to_owned()).collect();
    types.sort();
    assert_eq!(types, ["delivery.exhausted", "delivery.exhausted", "webhook.disabled"]);
}

#[tokio::test]
async fn r7_r10_one_event_for_two_failing_webhooks_is_four_attempts_each_and_ends_each_by_itself() {
    let server = Server::start(Config::default()).await;
    let (one, other, fine) = (Receiver::always(500).await, Receiver::always(404).await, Receiver::always(200).await);
    let api = server.api();
    let mut webhooks = Vec::new();
    for receiver in [&one, &other, &fine] {
        webhooks.push(api.webhook(&receiver.url("/")).await);
    }
    let id = api.publish(NEW, "{}").await;
    let event = api.ended(&id).await;
    let of = |webhook: &Webhook| {
        deliveries(&event).iter().find(|delivery| delivery["webhookId"] == webhook.id.as_str()).unwrap().clone()
    };
    for (webhook, status) in webhooks.iter().zip([500, 404]) {
        assert_eq!(told(&of(webhook)), (Some("exhausted"), vec![status; 4]));
        assert_eq!(off(&api, webhook).await, (json!(false), json!("exhausted"), json!(id)));
        assert_eq!(items(&api.log(webhook, &[]).await).len(), 4);
    }
    assert_eq!(told(&of(&webhooks[2])), (Some("delivered"), vec![200]));
    assert_eq!(api.read_webhook(&webhooks[2]).await["active"], true);
    assert_eq!([one.seen().len(), other.seen().len(), fine.seen().len()], [4, 4, 1]);
}

#[tokio::test]
async fn r7_a_webhook_that_is_deleted_during_the_fourth_attempt_is_told_as_cancelled() {
    let server = Server::start(Config::default()).await;
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let mut receiver = Receiver::start(move |seen| match seen.attempt {
        4 => Reply::After(inner.clone(), Box::new(Reply::status(500))),
        _ => Reply::status(500),
    })
    .await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let id = api.publish(NEW, "{}").await;
    receiver.next_many(4).await;
    assert_eq!(api.delete(&webhook).await, 204);
    gate.add_permits(1);
    let delivery = eventually("the fourth line of the log", async || {
        let delivery = api.ended_one(&id).await;
        (statuses(&delivery).len() == 4).then_some(delivery)
    })
    .await;
    assert_eq!(told(&delivery), (Some("cancelled"), vec![500; 4]));
    assert!(delivery["reason"].as_str().unwrap().to_lowercase().contains("deleted"), "{delivery}");
    assert_eq!(receiver.seen().len(), 4);
}

#[tokio::test]
async fn r9_t8_url_and_secret_changed_in_between_a_retry_goes_there_with_the_first_signature() {
    let server = Server::start(Config::default()).await;
    let ((mut before, gate), mut after) = (gated(500).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook(&before.url("/")).await;
    let id = api.publish(NEW, r#"{"n":1.0}"#).await;
    let first = before.next().await;
    let rotated = api.call(Method::POST, &["webhooks", &webhook.id, "rotate-secret"], "").await.expect(200);
    api.patch(&webhook, json!({ "url": after.url("/moved") })).await;
    gate.add_permits(1);
    let second = after.next().await;
    assert_eq!((second.path(), second.delivery()), ("/moved", id.as_str()));
    assert_eq!((second.signature(), &second.body), (first.signature(), &first.body));
    // What is published from now on carries the new one.
    let later = api.publish(NEW, "{}").await;
    let third = after.next().await;
    let secret = Secret::new(rotated["secret"].as_str().unwrap());
    assert_eq!((third.delivery(), third.signature()), (later.as_str(), &*receiptroller::sign(&secret, &third.body)));
    assert_eq!(told(&api.ended_one(&id).await), (Some("delivered"), vec![500, 200]));
    assert_eq!(before.seen().len(), 1);
}

#[tokio::test]
async fn r23_work_that_was_done_and_not_acknowledged_in_time_comes_again_under_the_same_id() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for (what, reply, timeout_s, status) in
        [("too slow", Reply::Hang, 1, 0), ("failed part-way", Reply::status(500), 30, 500)]
    {
        let receiver =
            Receiver::start(move |seen| if seen.attempt == 1 { reply.clone() } else { Reply::status(200) }).await;
        let webhook = json!({ "url": receiver.url("/"), "timeoutSeconds": timeout_s });
        let webhook = api.webhook_with(webhook).await;
        let id = api.publish(NEW, r#"{"id":"T01|2026-11|1001"}"#).await;
        let delivery = api.ended_one(&id).await;
        // On a machine that is busy enough, a later attempt may be late too; it is the same event all the same.
        let statuses = statuses(&delivery);
        assert_eq!((statuses.first(), statuses.last()), (Some(&status), Some(&200)), "{what}: {delivery}");
        let seen = receiver.seen();
        assert_eq!(seen.len(), statuses.len(), "{what}");
        assert!(seen.iter().all(|again| again.delivery() == id && again.body == seen[0].body), "{what}");
        api.patch(&webhook, json!({ "active": false })).await;
    }
}

#[tokio::test]
async fn r24_a_sales_and_an_orders_key_arrive_as_published_and_are_found() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    for (event_type, data, key) in [
        (NEW, r#"{"id":"T01|2026-11|1001","n":1}"#, "T01|2026-11|1001"),
        (NEW, r#"{"id":"|2026-13|","n":2}"#, "|2026-13|"),
        (OLD, r#"{"order_id":"ord-7","id":"not-this"}"#, "ord-7"),
    ] {
        let id = api.publish(event_type, data).await;
        let body = String::from_utf8(receiver.next().await.body).unwrap();
        assert!(body.contains(data), "{body}");
        let found = items(&api.get(&["deliveries"], &[("key", key)]).await.expect(200));
        let found: Vec<_> = found.iter().map(|delivery| delivery["deliveryId"].as_str().unwrap()).collect();
        assert_eq!(found, [id.as_str()], "{key}");
    }
}
