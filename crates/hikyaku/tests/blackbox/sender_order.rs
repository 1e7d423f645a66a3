//! R19-R22: events are independent of each other, and one event is the same to everybody at every time.

use std::collections::BTreeSet;
use std::sync::Arc;

use hikyaku_core::signature::{Secret, receiptroller};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::harness::{Config, Receiver, Reply, Server, items, statuses};

#[tokio::test]
async fn r19_an_event_whose_first_attempt_fails_comes_after_later_ones() {
    let server = Server::start(Config::default()).await;
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let mut receiver = Receiver::start(move |seen| match (seen.json()["type"] == "order.created", seen.attempt) {
        (true, 1) => Reply::After(inner.clone(), Box::new(Reply::status(500))),
        _ => Reply::status(200),
    })
    .await;
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let created = api.publish("order.created", r#"{"order_id":"o1"}"#).await;
    assert_eq!(receiver.next().await.delivery(), created);
    // The first is still unanswered, and holds up nothing.
    let updated = api.publish("order.updated", r#"{"order_id":"o1"}"#).await;
    assert_eq!(receiver.next().await.delivery(), updated);
    assert_eq!(statuses(&api.ended_one(&updated).await), [200]);
    gate.add_permits(1);
    let retry = receiver.next().await;
    assert_eq!((retry.delivery(), retry.attempt), (created.as_str(), 2));
    assert_eq!(statuses(&api.ended_one(&created).await), [500, 200]);
}

#[tokio::test]
async fn r20_the_timestamp_is_when_the_event_was_sent_out_and_stays_in_every_retry() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::by_attempt(&[500, 500, 200]).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let answer = api.publish_raw(r#"{"type":"sale.created","data":{}}"#).await.expect(202);
    let stamped = receiver.next_many(3).await;
    assert!(stamped.iter().all(|seen| seen.json()["timestamp"] == answer["timestamp"]), "{answer}");
    let given = r#"{"type":"sale.created","data":{},"timestamp":"2026-01-01T09:00:00.5+09:00"}"#;
    let answer = api.publish_raw(given).await.expect(202);
    assert_eq!(answer["timestamp"], "2026-01-01T00:00:00.500Z");
    assert_eq!(receiver.next().await.json()["timestamp"], "2026-01-01T00:00:00.500Z");
}

#[tokio::test]
async fn r21_every_delivery_carries_an_id_of_its_event_alone_that_equals_the_bodys() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let mut published = BTreeSet::new();
    for _ in 0..5 {
        published.insert(api.publish("sale.created", "{}").await);
    }
    for id in ["t1|2026-13|9", "||", "a/b?c=%2F#d"] {
        let answer = api.publish_raw(json!({ "id": id, "type": "sale.created", "data": {} }).to_string()).await;
        assert_eq!(answer.expect(202)["id"], id);
        published.insert(id.to_owned());
        assert_eq!(api.ended(id).await["id"], id);
    }
    let seen = receiver.next_many(8).await;
    assert!(seen.iter().all(|seen| seen.json()["id"] == seen.delivery()));
    assert_eq!(seen.iter().map(|seen| seen.delivery().to_owned()).collect::<BTreeSet<_>>(), published);
}

#[tokio::test]
async fn r22_all_webhooks_of_an_event_get_the_same_id_and_bytes_each_under_its_own_secret() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    let webhooks = [
        ("/all", api.webhook_with(json!({ "url": receiver.url("/all"), "events": ["*"] })).await),
        ("/prefix", api.webhook_with(json!({ "url": receiver.url("/prefix"), "events": ["order.*"] })).await),
        ("/exact", api.webhook_with(json!({ "url": receiver.url("/exact"), "events": ["x.y", "order.paid"] })).await),
        ("/other", api.webhook_with(json!({ "url": receiver.url("/other"), "events": ["sale.*"] })).await),
        ("/off", api.webhook_with(json!({ "url": receiver.url("/off"), "active": false })).await),
    ];
    let answer = api.publish_raw(r#"{"type":"order.paid","data":{"n":1.0}}"#).await.expect(202);
    assert_eq!(answer["deliveries"], 3);
    let seen = receiver.next_many(3).await;
    for request in &seen {
        let (_, webhook) = webhooks.iter().find(|(path, _)| *path == request.path()).unwrap();
        assert_eq!(request.signature(), receiptroller::sign(&Secret::new(webhook.secret.as_str()), &request.body));
        assert_eq!((request.delivery(), &request.body), (answer["id"].as_str().unwrap(), &seen[0].body));
    }
    let paths: BTreeSet<_> = seen.iter().map(|seen| seen.path().to_owned()).collect();
    assert_eq!(paths, ["/all", "/exact", "/prefix"].map(String::from).into());
    api.ended(answer["id"].as_str().unwrap()).await;
    assert!(items(&api.log(&webhooks[3].1, &[]).await).is_empty());
}
