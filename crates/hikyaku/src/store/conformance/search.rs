//! Searching deliveries: pages, and who sees what. What each filter finds is compared in
//! [`search_model`](super::search_model).

use hikyaku_core::delivery::{Decision, DeliveryState};
use hikyaku_core::webhook::Webhook;

use super::fixture::*;
use crate::store::*;

/// Publishes an event with this age, due at once.
async fn publish_at(store: &dyn Store, id: &str, seconds: i64) {
    commit_publish(store, publish(vec![NewEvent { created_at: at(seconds), ..event(id) }])).await;
}

pub(crate) async fn pages_stay_right_while_deliveries_end_and_events_are_added(store: &dyn Store) {
    create(store, &["v", "w"]).await;
    // Two of the same instant, and ids that say nothing about the order.
    for (id, seconds) in [("m", 50), ("z", 10), ("a", 30), ("b", 30), ("k", 20)] {
        publish_at(store, id, seconds).await;
    }
    let mut claimed = claim(store, "a", 0).await;
    let mut page = 0;
    let between = async || {
        page += 1;
        for id in [format!("new{page}"), format!("old{page}")] {
            publish_at(store, &id, if id.starts_with("new") { 60 + page } else { -page }).await;
        }
        for (claimed, decision) in
            claimed.drain(..2.min(claimed.len())).zip([Decision::Delivered, Decision::Exhausted { switch_off: false }])
        {
            let outcome = if decision == Decision::Delivered { OK } else { ERROR };
            assert_eq!(finish(store, &claimed, "a", 5, outcome, decision).await, APPLIED);
        }
    };
    let query = DeliveryQuery { limit: 3, from: Some(at(0)), ..delivery_query() };
    let seen = search(store, query, between).await;
    let expected = ["m", "b", "a", "k", "z"].into_iter().flat_map(|event| [(event, "w"), (event, "v")]);
    let expected: Vec<_> = expected.map(|(event, webhook)| (event.to_owned(), webhook.to_owned())).collect();
    assert_eq!(seen, expected);
}

pub(crate) async fn a_cancelled_delivery_keeps_its_place(store: &dyn Store) {
    create(store, &["v", "w"]).await;
    publish_at(store, "e1", 1).await;
    publish_at(store, "e2", 2).await;
    let before = search(store, delivery_query(), async || ()).await;
    store.delete_webhook(&acme(), &webhook_id("w"), at(9)).await.unwrap();
    assert_eq!(search(store, delivery_query(), async || ()).await, before);
    let cancelled = DeliveryQuery { state: Some(DeliveryState::Cancelled), limit: 1, ..delivery_query() };
    assert_eq!(search(store, cancelled.clone(), async || ()).await.len(), 2);
    assert_eq!(store.deliveries(cancelled).await.unwrap().rows[0].reason, "webhookDeleted");
}

pub(crate) async fn s17_deliveries_of_another_organization_are_not_found(store: &dyn Store) {
    let rival = organization("rival");
    create(store, &["w"]).await;
    store.create_webhook(Webhook { organization: rival.clone(), ..webhook("w") }).await.unwrap();
    let keyed = NewEvent { key: Some("k".into()), ..event("e") };
    commit_publish(store, Publish { organization: rival.clone(), ..publish(vec![keyed, event("theirs")]) }).await;
    store_events(store, &["e"]).await;
    let ours = vec![("e".to_owned(), "w".to_owned())];
    let waiting = DeliveryQuery { state: Some(DeliveryState::Waiting), ..delivery_query() };
    for query in [delivery_query(), waiting, DeliveryQuery { event: Some(event_id("e")), ..delivery_query() }] {
        assert_eq!(search(store, query, async || ()).await, ours);
    }
    for query in [
        DeliveryQuery { key: Some("k".into()), ..delivery_query() },
        DeliveryQuery { event: Some(event_id("theirs")), ..delivery_query() },
        DeliveryQuery { event: Some(event_id("e")), key: Some("k".into()), ..delivery_query() },
    ] {
        assert!(search(store, query, async || ()).await.is_empty());
    }
    assert_eq!(search(store, DeliveryQuery { organization: rival, ..delivery_query() }, async || ()).await.len(), 2);
}
