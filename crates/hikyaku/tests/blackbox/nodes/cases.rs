//! Public cases that are about two nodes: 5, 6 and 25.

use std::collections::BTreeSet;

use hikyaku_core::signature::{Secret, receiptroller};

use super::roles::in_role;
use super::*;
use crate::harness::{TestDatabase, gated, statuses};
use crate::publish::publish_until_taken;

async fn two_nodes(config: &Config) -> (TestDatabase, Server, Server) {
    let database = TestDatabase::create().await;
    let first = Server::node(&database.url(), config.clone()).await;
    let second = Server::node(&database.url(), config.clone()).await;
    (database, first, second)
}

#[tokio::test]
async fn case5_one_id_published_64_times_at_once_through_two_nodes_is_one_event() {
    let (_database, first, second) = two_nodes(&Config::default()).await;
    let mut receiver = Receiver::always(200).await;
    first.api().webhook(&receiver.url("/")).await;
    for id in ["one", "two", "three"] {
        let mut callers = JoinSet::new();
        for caller in 0..64 {
            let api = if caller % 2 == 0 { first.api() } else { second.api() };
            let body = format!(r#"{{"id":"{id}","type":"sale.created","data":{{}}}}"#);
            callers.spawn(publish_until_taken(api, body));
        }
        let answers = callers.join_all().await;
        assert!(answers.iter().all(|answer| [200, 202].contains(&answer.status)), "{answers:?}");
        let said: BTreeSet<_> = answers.iter().map(|answer| answer.json.to_string()).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert_eq!((&answers[0].json["id"], &answers[0].json["deliveries"]), (&json!(id), &json!(1)));
        assert_eq!(receiver.next().await.delivery(), id);
        assert_eq!(statuses(&second.api().ended_one(id).await), [200]);
    }
    assert_eq!(receiver.count(), 3);
}

#[tokio::test]
async fn case6_of_50_deliveries_that_take_long_each_attempt_has_one_sender_and_the_disable_one_notice() {
    /// What each second attempt takes.
    const LONG: Duration = Duration::from_millis(9_900);
    let (_database, first, second) = two_nodes(&Config::default()).await;
    let receiver = Receiver::start(|seen| match seen.attempt {
        2 => Reply::Slow(LONG, 500),
        _ => Reply::status(500),
    });
    let (receiver, mut watcher) = (receiver.await, Receiver::always(200).await);
    let api = first.api();
    let webhook = api.webhook_with(json!({ "url": receiver.url("/"), "events": ["sale.*"], "maxInFlight": 64 })).await;
    api.webhook_with(json!({ "url": watcher.url("/"), "events": ["webhook.disabled"] })).await;
    let events: Vec<_> = (0..50).map(|n| format!(r#"{{"id":"e{n}","type":"sale.created","data":{{}}}}"#)).collect();
    api.publish_batch(&events).await.expect(202);
    let told: Value = serde_json::from_slice(&watcher.next().await.body).unwrap();
    assert_eq!(told["data"]["webhookId"], webhook.id);
    let mut requests = 0;
    for n in 0..50 {
        let delivery = second.api().ended_one(&format!("e{n}")).await;
        requests += statuses(&delivery).len();
    }
    assert_eq!(receiver.count(), requests, "each request is one attempt");
    assert_eq!(receiver.overlapping(), [""; 0]);
    assert_eq!(api.read_webhook(&webhook).await["active"], false);
    // What was under way when the webhook went off has ended by now: every delivery is exhausted or cancelled.
    assert_eq!(watcher.count(), 1);
}

#[tokio::test]
async fn case6_what_a_node_publishes_that_does_not_send_two_others_send_each_a_part_and_nothing_twice() {
    const EVENTS: usize = 50;
    let database = TestDatabase::create().await;
    let url = database.url();
    let node = |role: &'static str| Server::node(&url, in_role(role));
    let (front, _first, _second) = (node("api").await, node("sender").await, node("sender").await);
    let (receiver, gate) = gated(200).await;
    let api = front.api();
    // Half of them is the most that one node has under way, and none is answered before all have come.
    let most = EVENTS / 2;
    let webhook = json!({ "url": receiver.url("/"), "events": ["sale.*"], "maxInFlight": most });
    api.webhook_with(webhook).await;
    let ids: Vec<_> = (0..EVENTS).map(|n| format!("e{n}")).collect();
    let events: Vec<_> = ids.iter().map(|id| format!(r#"{{"id":"{id}","type":"sale.created","data":{{}}}}"#)).collect();
    api.publish_batch(&events).await.expect(202);
    eventually("all of them to be under way", async || (receiver.count() == EVENTS).then_some(())).await;
    gate.add_permits(EVENTS);
    for id in &ids {
        assert_eq!(statuses(&api.ended_one(id).await), [200], "{id}");
    }
    let came: BTreeSet<_> = receiver.seen().iter().map(|seen| seen.delivery().to_owned()).collect();
    assert_eq!((receiver.count(), came.len()), (EVENTS, EVENTS));
}

#[tokio::test]
async fn case22_a_result_that_a_node_brings_after_its_lease_has_ended_is_logged_and_changes_nothing() {
    let (_database, first, second) = two_nodes(&config()).await;
    let (mut receiver, gate) = gated(200).await;
    let webhook = first.api().webhook(&receiver.url("/")).await;
    let event = first.api().publish("sale.created", "{}").await;
    receiver.next().await;
    first.signal("STOP");
    assert_eq!(receiver.next().await.attempt, 2, "the other node takes it over");
    gate.add_permits(2);
    assert_eq!(statuses(&second.api().ended_one(&event).await), [0, 200]);
    first.signal("CONT");
    eventually("the first node to find its result refused", async || {
        first.log().contains("the delivery had ended or been taken over").then_some(())
    })
    .await;
    let delivery = second.api().ended_one(&event).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery).len()), (Some("delivered"), 2), "{delivery}");
    assert_eq!(second.api().read_webhook(&webhook).await["active"], true);
    assert_eq!(receiver.count(), 2);
}

#[tokio::test]
async fn case25_a_change_through_one_node_holds_for_the_next_publish_through_the_other() {
    let (_database, first, second) = two_nodes(&Config::default()).await;
    let (here, there) = (first.api(), second.api());
    let mut receiver = Receiver::always(200).await;
    let webhook = here.webhook(&receiver.url("/")).await;
    for round in 0..10 {
        let (here, there) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let published =
            async || there.publish_raw(r#"{"type":"sale.created","data":{}}"#).await.expect(202)["deliveries"].clone();
        here.patch(&webhook, json!({ "active": false })).await;
        assert_eq!(published().await, 0, "it is off, round {round}");
        is_shown(there, &webhook, |shown| shown["active"] == false).await;
        here.patch(&webhook, json!({ "active": true })).await;
        assert_eq!(published().await, 1, "it is on, round {round}");
        receiver.next().await;
        is_shown(there, &webhook, |shown| shown["active"] == true).await;
        let rotated = here.call(Method::POST, &["webhooks", &webhook.id, "rotate-secret"], "{}").await.expect(200);
        assert_eq!(published().await, 1);
        let seen = receiver.next().await;
        let secret = Secret::new(text(&rotated["secret"]));
        let verified = receiptroller::verify(&[secret], Some(seen.signature().as_bytes()), &seen.body);
        assert!(verified.is_ok(), "it is signed with the new secret, round {round}");
    }
    assert_eq!(here.delete(&webhook).await, 204);
    assert_eq!(there.publish_raw(r#"{"type":"sale.created","data":{}}"#).await.expect(202)["deliveries"], 0);
    eventually("the other node to know that it is deleted", async || {
        (there.get(&["webhooks", &webhook.id], &[]).await.status == 404).then_some(())
    })
    .await;
}

/// Waits until the API shows a webhook so.
async fn is_shown(api: &Api, webhook: &Webhook, so: fn(&Value) -> bool) {
    eventually("the change to be shown by the other node", async || so(&api.read_webhook(webhook).await).then_some(()))
        .await;
}
