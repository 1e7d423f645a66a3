//! What is held while a webhook is off, and its release.

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::webhook::{Settings, Webhook, WhileInactive};

use super::fixture::*;
use super::recovery::{
    claim_in_order, missed, missed_by_w, progress, query, recover, recovery_key, resend, step, store_dated,
};
use crate::store::*;

/// Registers `w` as one that has its events held, and publishes while it is off.
async fn held_for_w(store: &dyn Store, events: &[(&str, i64)]) {
    let settings = Settings { while_inactive: WhileInactive::Hold, ..Settings::default() };
    store.create_webhook(Webhook { settings, ..webhook("w") }).await.unwrap();
    set_active(store, "w", false, 1).await;
    store_dated(store, events).await;
}

pub(crate) async fn what_is_held_is_released_when_the_webhook_is_switched_on(store: &dyn Store) {
    held_for_w(store, &[("b", 2), ("a", 3), ("c", 1)]).await;
    let held = view(store, "a", "w").await;
    assert_eq!((held.state, held.run, held.next_attempt_at), (DeliveryState::Held, 1, None));
    assert_eq!(missed(store, query()).await, (vec![], 0, 0), "what is held is not missed");
    let backlog = store.backlog().await.unwrap();
    assert_eq!((backlog.deliveries, backlog.deliveries_held), (0, 3));
    assert_eq!(step(store, 5, 10).await, (0, 0));
    assert!(claim(store, "a", 5).await.is_empty());
    set_active(store, "w", true, 6).await;
    assert_eq!(progress(store, "held").await, ("running", 3, 0));
    assert_eq!(step(store, 7, 2).await, (2, 1));
    assert_eq!(claim_in_order(store, 7).await, ["c", "b"]);
    assert_eq!(step(store, 8, 2).await, (1, 0));
    let last = claim_one(store, "a", 8).await;
    assert_eq!((last.key.event.as_str(), last.run, last.history.on_request), ("a", 1, false));
    assert_eq!(progress(store, "held").await, ("done", 3, 3));
}

pub(crate) async fn what_a_cancelled_release_left_is_released_by_switching_on_once_more(store: &dyn Store) {
    held_for_w(store, &[("b", 2), ("a", 3), ("c", 1)]).await;
    set_active(store, "w", true, 6).await;
    assert_eq!(step(store, 7, 1).await, (1, 1));
    store.cancel_recovery(&recovery_key("held")).await.unwrap().unwrap();
    assert_eq!(step(store, 8, 10).await, (0, 0));
    store.update_webhook(&acme(), &webhook_id("w"), WebhookChange::default(), at(8)).await.unwrap();
    assert_eq!(progress(store, "held").await, ("cancelled", 3, 1), "another change releases nothing");
    set_active(store, "w", true, 9).await;
    assert_eq!(progress(store, "held").await, ("running", 2, 0));
    assert_eq!(step(store, 10, 10).await, (2, 0));
    assert_eq!(claim_in_order(store, 10).await, ["c", "b", "a"]);
    set_active(store, "w", true, 11).await;
    assert_eq!(progress(store, "held").await, ("done", 2, 2), "nothing is held any more");
}

pub(crate) async fn a_held_event_can_be_resent_before_its_release(store: &dyn Store) {
    held_for_w(store, &[("a", 1)]).await;
    assert_eq!(resend(store, "a", "w", 5).await, ResendOutcome::Begun);
    assert_eq!(claim_one(store, "a", 5).await.run, 2);
    set_active(store, "w", true, 6).await;
    assert_eq!(store.recovery(&recovery_key("held")).await.unwrap(), None, "nothing is left to release");
}

pub(crate) async fn deleting_a_webhook_cancels_what_is_held_and_forgets_what_it_missed(store: &dyn Store) {
    held_for_w(store, &[("a", 1)]).await;
    set_active(store, "w", true, 2).await;
    assert_eq!(store.delete_webhook(&acme(), &webhook_id("w"), at(3)).await.unwrap(), Some(1));
    let cancelled = view(store, "a", "w").await;
    assert_eq!((cancelled.state, cancelled.reason.as_str()), (DeliveryState::Cancelled, "webhookDeleted"));
    assert_eq!(store.recovery(&recovery_key("held")).await.unwrap(), None);
    missed_by_w(store, &[("m", 1)]).await;
    recover(store, "r", Which::All).await;
    assert_eq!(
        store.delete_webhook(&acme(), &webhook_id("w"), at(4)).await.unwrap(),
        Some(0),
        "it was missed, and never waited"
    );
    assert_eq!(missed(store, query()).await, (vec![], 0, 0));
    assert_eq!(step(store, 6, 10).await, (0, 0));
    let event = store.event(&acme(), &event_id("m")).await.unwrap().unwrap();
    assert!(event.missed.is_empty() && event.deliveries.is_empty());
}
