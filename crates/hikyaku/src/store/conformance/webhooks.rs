//! Webhooks are registered, changed and listed.

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
    assert!(!store.delete_webhook(&rival, &webhook_id("ours"), at(1)).await.unwrap());
    assert!(store.update_webhook(&rival, &webhook_id("same"), off, at(1)).await.unwrap().is_some());
    assert!(store.delete_webhook(&rival, &webhook_id("same"), at(2)).await.unwrap());
    assert!(store.webhooks(&rival).await.unwrap().is_empty());
    for id in ["ours", "same"] {
        assert_eq!(find_webhook(store, id).await, webhook(id));
        assert_eq!(view(store, "e", id).await.state, DeliveryState::Waiting);
    }
}
