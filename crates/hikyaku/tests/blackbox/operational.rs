//! Operational events: a webhook that watches the others.

use serde_json::{Value, json};

use crate::harness::{Config, Receiver, Server};

#[tokio::test]
async fn r10_a_watcher_hears_of_the_end_of_a_webhook_and_of_its_return() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let (failing, mut watcher) = (Receiver::always(500).await, Receiver::always(200).await);
    let webhook = api.webhook_with(json!({ "url": failing.url("/hook?token=1"), "events": ["sale.*"] })).await;
    api.webhook_with(json!({ "url": watcher.url("/"), "events": ["webhook.*", "delivery.exhausted"] })).await;
    let event = api.publish("sale.created", "{}").await;
    let mut told: Vec<Value> =
        watcher.next_many(2).await.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    told.sort_by_key(|body| body["type"].to_string());
    let [exhausted, disabled] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&exhausted["type"], &disabled["type"]), (&json!("delivery.exhausted"), &json!("webhook.disabled")));
    for body in &told {
        let data = &body["data"];
        assert_eq!((&data["webhookId"], &data["eventId"]), (&json!(webhook.id), &json!(event)));
        assert!(!data.to_string().contains("token"), "S19: {data}");
    }
    assert_eq!((&exhausted["data"]["attempts"], &exhausted["data"]["httpStatus"]), (&json!(4), &json!(500)));
    assert_eq!(disabled["data"]["at"], api.read_webhook(&webhook).await["offSince"]);
    for (active, event_type) in [(true, "webhook.enabled"), (false, "webhook.disabled")] {
        api.patch(&webhook, json!({ "active": active })).await;
        let body: Value = serde_json::from_slice(&watcher.next().await.body).unwrap();
        assert_eq!((&body["type"], &body["data"]["webhookId"]), (&json!(event_type), &json!(webhook.id)));
        let stored = api.ended(body["id"].as_str().unwrap()).await;
        assert_eq!(stored["type"], event_type, "it is an event like any other: {stored}");
    }
}

#[tokio::test]
async fn nobody_else_publishes_operational_events() {
    let server = Server::start(Config::default()).await;
    for event_type in ["webhook.disabled", "webhook.test", "delivery.exhausted", "delivery.anything"] {
        let answer = server.api().publish_raw(format!(r#"{{"type":"{event_type}","data":1}}"#)).await;
        assert!(answer.problem(400).contains("for the sender's own events"), "{answer:?}");
    }
}
