//! Operational events are published in the commit of what they tell of, once, and never to the webhook they are about.

use hikyaku_core::delivery::Decision;
use hikyaku_core::event::EventPattern;
use hikyaku_core::webhook::Webhook;

use super::fixture::*;
use crate::store::*;

/// A webhook that takes sales and everything operational.
async fn create_watcher(store: &dyn Store, id: &str) {
    let events = ["sale.*", "webhook.*", "delivery.*"].map(|pattern| EventPattern::parse(pattern).unwrap()).to_vec();
    store.create_webhook(Webhook { events, ..webhook(id) }).await.unwrap();
}

fn notice(id: &str, name: &str) -> NewEvent {
    NewEvent { event_type: event_type(name), ..event(id) }
}

/// Notices with the ids `{prefix}-exhausted` and `{prefix}-off`, due at `seconds`.
pub(super) fn notices(prefix: &str, seconds: i64) -> Option<Box<FinishNotices>> {
    Some(Box::new(FinishNotices {
        exhausted: Some(notice(&format!("{prefix}-exhausted"), "delivery.exhausted")),
        switched_off: notice(&format!("{prefix}-off"), "webhook.disabled"),
        due_at: at(seconds),
    }))
}

/// A change that switches a webhook on or off and tells of it.
pub(super) fn switch(active: bool, id: &str, seconds: i64) -> WebhookChange {
    let name = if active { "webhook.enabled" } else { "webhook.disabled" };
    let notice = Some(SwitchNotice { event: notice(id, name), due_at: at(seconds) });
    WebhookChange { active: Some(active), notice, ..WebhookChange::default() }
}

/// To whom an event goes, or `None` where it was not published. Nobody may have missed it.
async fn takers(store: &dyn Store, id: &str) -> Option<Vec<String>> {
    let event = store.event(&acme(), &event_id(id)).await.unwrap()?;
    assert!(event.missed.is_empty(), "{event:?}");
    Some(event.deliveries.into_iter().map(|delivery| delivery.webhook.to_string()).collect())
}

fn of_webhook(claimed: &[ClaimedDelivery], webhook: &str) -> ClaimedDelivery {
    claimed.iter().find(|claimed| claimed.key.webhook.as_str() == webhook).unwrap().clone()
}

/// Publishes one sale and gives the delivery to `w` that `owner` claimed.
async fn claim_sale(store: &dyn Store, owner: &str) -> ClaimedDelivery {
    store_events(store, &["e"]).await;
    of_webhook(&claim(store, owner, 0).await, "w")
}

/// `*` means the platform's events, and a webhook gets no news of itself.
pub(crate) async fn r10_a_switch_off_is_told_once_whoever_raced_for_it(store: &dyn Store) {
    create(store, &["all"]).await;
    create_watcher(store, "w").await;
    create_watcher(store, "watcher").await;
    let late = claim_sale(store, "a").await;
    let taken_over = of_webhook(&claim(store, "b", LEASE_SECONDS).await, "w");
    for (owner, claimed, expected) in [
        ("a", &late, FinishOutcome::LeaseLost),
        ("b", &taken_over, FinishOutcome::Applied { switched_off: true }),
        ("b", &taken_over, FinishOutcome::LeaseLost),
        ("a", &late, FinishOutcome::LeaseLost),
    ] {
        let finish = finish_of(claimed, owner, 31, ERROR, SWITCH_OFF);
        let finish = FinishAttempt { notices: notices(owner, 31), ..finish };
        assert_eq!(commit_finish(store, finish).await, expected, "{owner}");
    }
    for (id, expected) in [("a-exhausted", None), ("a-off", None), ("b-exhausted", Some(())), ("b-off", Some(()))] {
        assert_eq!(takers(store, id).await, expected.map(|()| vec!["watcher".to_owned()]), "{id}");
    }
    let due = claim(store, "c", 31).await;
    assert_eq!(sorted_names(&due), [("b-exhausted", "watcher"), ("b-off", "watcher")]);
}

pub(crate) async fn r10_only_what_happened_is_told(store: &dyn Store) {
    create_watcher(store, "w").await;
    create_watcher(store, "watcher").await;
    let mut claimed = claim_sale(store, "a").await;
    let finish = finish_of(&claimed, "a", 1, ERROR, retry(60));
    commit_finish(store, FinishAttempt { notices: notices("retry", 1), ..finish }).await;
    claimed = of_webhook(&claim(store, "a", 60).await, "w");
    let decision = Decision::Exhausted { switch_off: false };
    let finish = finish_of(&claimed, "a", 60, ERROR, decision);
    commit_finish(store, FinishAttempt { notices: notices("last", 60), ..finish }).await;
    assert_eq!(takers(store, "retry-exhausted").await, None);
    assert_eq!(takers(store, "last-exhausted").await, Some(vec!["watcher".to_owned()]));
    assert_eq!(takers(store, "last-off").await, None, "the webhook is still on");
}

pub(crate) async fn switching_a_webhook_is_told_if_it_changes_anything(store: &dyn Store) {
    create_watcher(store, "w").await;
    create_watcher(store, "watcher").await;
    for (id, active, told) in [("1", true, false), ("2", false, true), ("3", false, false), ("4", true, true)] {
        store.update_webhook(&acme(), &webhook_id("w"), switch(active, id, 5), at(5)).await.unwrap().unwrap();
        assert_eq!(takers(store, id).await, told.then(|| vec!["watcher".to_owned()]), "{id}");
    }
    assert!(claim(store, "a", 4).await.is_empty(), "due by the schedule clock, not before");
    assert_eq!(sorted_names(&claim(store, "a", 5).await), [("2", "watcher"), ("4", "watcher")]);
    let nobody = store.update_webhook(&acme(), &webhook_id("nobody"), switch(true, "5", 5), at(5)).await.unwrap();
    assert!(nobody.is_none() && takers(store, "5").await.is_none());
}
