//! Webhooks are registered, changed and listed.

use std::collections::HashMap;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::event::EventPattern;
use hikyaku_core::webhook::{Off, OffReason, WebhookUrl};

use super::fixture::*;
use crate::store::*;

pub(crate) async fn a_webhook_is_listed_as_it_was_created(store: &dyn Store) {
    assert!(store.webhooks(&acme()).await.unwrap().is_empty());
    let odd = Webhook {
        events: vec![EventPattern::parse("order.*").unwrap(), EventPattern::parse("sale.created").unwrap()],
        description: "領収書 'quoted' \"twice\"\n\0".into(),
        off: Some(Off { since: at(3), reason: OffReason::Exhausted(event_id("e|1")) }),
        created_at: at(2),
        ..webhook("odd")
    };
    let paused = Webhook {
        off: Some(Off { since: at(4), reason: OffReason::Paused }),
        created_at: at(1),
        events: Vec::new(),
        ..webhook("paused")
    };
    let all = [webhook("a"), webhook("b"), paused, odd];
    for index in [3, 1, 0, 2] {
        store.create_webhook(all[index].clone()).await.unwrap();
    }
    let listed = store.webhooks(&acme()).await.unwrap();
    assert_eq!(listed.iter().map(|webhook| Webhook::clone(webhook)).collect::<Vec<_>>(), all);
    let again = store.create_webhook(webhook("a")).await;
    assert!(matches!(again, Err(StoreError::Damaged(_))), "{again:?}");
    assert_eq!(store.webhooks(&acme()).await.unwrap().len(), all.len());
}

pub(crate) async fn a_change_changes_what_it_names_and_nothing_else(store: &dyn Store) {
    create(store, &["other", "w"]).await;
    let url = WebhookUrl::parse("https://new.example.com/x").unwrap();
    let events = vec![EventPattern::parse("sale.*").unwrap()];
    let changes = [
        WebhookChange { url: Some(url.clone()), ..WebhookChange::default() },
        WebhookChange { events: Some(events.clone()), ..WebhookChange::default() },
        WebhookChange { description: Some("new".into()), ..WebhookChange::default() },
        WebhookChange::default(),
    ];
    let mut expected = webhook("w");
    for (number, change) in changes.into_iter().enumerate() {
        match number {
            0 => expected.url = url.clone(),
            1 => expected.events = events.clone(),
            2 => expected.description = "new".into(),
            _ => (),
        }
        let changed = store.update_webhook(&acme(), &webhook_id("w"), change, at(9)).await.unwrap();
        assert_eq!(changed.as_ref(), Some(&expected));
        assert_eq!(find_webhook(store, "w").await, expected);
    }
    assert_eq!(find_webhook(store, "other").await, webhook("other"));
    let unknown = store.update_webhook(&acme(), &webhook_id("x"), WebhookChange::default(), at(9)).await.unwrap();
    assert_eq!(unknown, None);
}

pub(crate) async fn pausing_keeps_the_older_reason_and_switching_on_clears_it(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let claimed = claim_one(store, "a", 0).await;
    finish(store, &claimed, "a", 1, ERROR, SWITCH_OFF).await;
    let exhausted = find_webhook(store, "w").await.off;
    assert!(exhausted.is_some());
    assert_eq!(set_active(store, "w", false, 5).await.off, exhausted);
    assert_eq!(set_active(store, "w", true, 6).await.off, None);
    assert_eq!(set_active(store, "w", true, 7).await.off, None);
    let paused = Some(Off { since: at(8), reason: OffReason::Paused });
    assert_eq!(set_active(store, "w", false, 8).await.off, paused);
    assert_eq!(set_active(store, "w", false, 9).await.off, paused);
}

pub(crate) async fn s17_webhooks_of_another_organization_are_out_of_reach(store: &dyn Store) {
    let rival = organization("rival");
    create(store, &["ours", "same"]).await;
    store.create_webhook(Webhook { organization: rival.clone(), ..webhook("same") }).await.unwrap();
    store_events(store, &["e"]).await;
    let off = WebhookChange { active: Some(false), ..WebhookChange::default() };
    assert_eq!(store.update_webhook(&rival, &webhook_id("ours"), off.clone(), at(1)).await.unwrap(), None);
    assert_eq!(store.delete_webhook(&rival, &webhook_id("ours"), at(1)).await.unwrap(), None);
    assert!(store.update_webhook(&rival, &webhook_id("same"), off, at(1)).await.unwrap().is_some());
    assert!(store.delete_webhook(&rival, &webhook_id("same"), at(2)).await.unwrap().is_some());
    assert!(store.webhooks(&rival).await.unwrap().is_empty());
    for id in ["ours", "same"] {
        assert_eq!(find_webhook(store, id).await, webhook(id));
        assert_eq!(view(store, "e", id).await.state, DeliveryState::Waiting);
    }
}

pub(crate) async fn a_webhook_with_a_long_queue_is_removed_in_steps_and_nothing_of_it_is_sent(store: &dyn Store) {
    let many = MAX_REMOVED_AT_ONCE as usize * 2 + 10;
    create(store, &["gone", "stays"]).await;
    let ids: Vec<_> = (0..many).map(|number| format!("e{number:04}")).collect();
    store_events(store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let slots = HashMap::from([((acme(), webhook_id("stays")), 0)]);
    let claim = DeliveryClaim { slots_each: 3, slots, ..claim_of("a", 0) };
    let under_way = store.claim_deliveries(claim).await.unwrap().deliveries;

    let mut cancelled = store.delete_webhook(&acme(), &webhook_id("gone"), at(5)).await.unwrap().unwrap();
    assert_eq!(store.delete_webhook(&acme(), &webhook_id("gone"), at(6)).await.unwrap(), None);
    let few = store.claim_deliveries(DeliveryClaim { slots_each: 1, ..claim_of("b", 999) }).await.unwrap();
    assert_eq!(few.saturated, [(acme(), webhook_id("stays"))], "nobody looks at what is left of it");
    let all = DeliveryClaim { limit: 10_000, slots_each: 10_000, ..claim_of("b", 1_030) };
    let claims = store.claim_deliveries(all).await.unwrap();
    assert!(claims.deliveries.iter().all(|claimed| claimed.key.webhook.as_str() == "stays"));
    assert_eq!(claims.deliveries.len(), many);
    let _ = finish(store, &under_way[0], "a", 7, ERROR, retry(8)).await;
    assert!(claim_one_of(store, "gone", 1_040).await.is_none(), "a retry of what was under way is not sent either");

    let mut steps = 0;
    while let Some(more) = store.step_removals(MAX_REMOVED_AT_ONCE).await.unwrap() {
        (cancelled, steps) = (cancelled + more, steps + 1);
        assert!(steps < 9, "it does not come to an end");
    }
    assert_eq!(cancelled as usize, many, "each is counted once, and what was under way too");
    for id in [&ids[0], &ids[many - 1]] {
        let shown = view(store, id, "gone").await;
        assert_eq!((shown.state, shown.reason.as_str()), (DeliveryState::Cancelled, "webhookDeleted"));
        assert_eq!(view(store, id, "stays").await.state, DeliveryState::Waiting);
    }
    assert_eq!(store.backlog().await.unwrap().deliveries, many as u64);
}

async fn claim_one_of(store: &dyn Store, webhook: &str, seconds: i64) -> Option<ClaimedDelivery> {
    let claims = store.claim_deliveries(DeliveryClaim { limit: 10_000, ..claim_of("c", seconds) }).await.unwrap();
    claims.deliveries.into_iter().find(|claimed| claimed.key.webhook.as_str() == webhook)
}
