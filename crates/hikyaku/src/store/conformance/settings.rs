//! What is set per webhook is kept, and the count behind `disableAfter` lives with it.

use std::collections::HashMap;
use std::time::Duration;

use hikyaku_core::delivery::Decision;
use hikyaku_core::disable::DisableAfter;
use hikyaku_core::signature::{Scheme, Secret};
use hikyaku_core::webhook::{Off, OffReason, PreviousSecret, Setting, Settings, Webhook, WhileInactive};

use super::fixture::*;
use crate::store::*;

/// None of them the default.
fn unusual() -> Settings {
    let text = r#"{"retryDelays":[0.2,60],"timeoutSeconds":1.5,"maxInFlight":3,"rateLimit":{"perSecond":0.01,"burst":7},
        "headers":{"authorization":"Bearer 'x'; --"},"respectRetryAfter":true,"disableAfter":"never",
        "whileInactive":"hold","signature":"standard-webhooks","traceContext":true}"#;
    serde_json::from_str(text).unwrap()
}

async fn set(store: &dyn Store, id: &str, settings: Vec<Setting>) -> Webhook {
    let change = WebhookChange { settings, ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id(id), change, at(9)).await.unwrap().unwrap()
}

pub(crate) async fn settings_are_kept_as_they_were_given(store: &dyn Store) {
    let given = Webhook { settings: unusual(), exhausted: 5, ..webhook("w") };
    store.create_webhook(given.clone()).await.unwrap();
    create(store, &["other"]).await;
    assert_eq!(find_webhook(store, "w").await, given);
    assert_eq!(find_webhook(store, "other").await.settings, Settings::default());
}

pub(crate) async fn a_setting_changes_and_leaves_the_others(store: &dyn Store) {
    create(store, &["w"]).await;
    let mut expected = webhook("w");
    let unusual = unusual();
    for setting in [
        Setting::RetryDelays(unusual.retry_delays),
        Setting::Timeout(unusual.timeout),
        Setting::MaxInFlight(unusual.max_in_flight),
        Setting::RateLimit(unusual.rate_limit),
        Setting::Headers(unusual.headers),
        Setting::RespectRetryAfter(true),
        Setting::DisableAfter(DisableAfter::Events(2)),
        Setting::WhileInactive(WhileInactive::Hold),
        Setting::Signature(Scheme::StandardWebhooks),
        Setting::TraceContext(true),
        Setting::RetryDelays(None),
    ] {
        expected.settings.set(setting.clone());
        assert_eq!(set(store, "w", vec![setting]).await, expected);
        assert_eq!(find_webhook(store, "w").await, expected);
    }
}

/// Finishes a new event as exhausted, and gives the webhook as it then is.
async fn exhaust(store: &dyn Store, event: &str, seconds: i64) -> Webhook {
    store_events(store, &[event]).await;
    let claimed = claim_one(store, "a", seconds).await;
    finish(store, &claimed, "a", seconds, ERROR, SWITCH_OFF).await;
    find_webhook(store, "w").await
}

pub(crate) async fn r11_so_many_exhausted_events_in_a_row_switch_off(store: &dyn Store) {
    create(store, &["w"]).await;
    set(store, "w", vec![Setting::DisableAfter(DisableAfter::Events(2))]).await;
    let once = exhaust(store, "e1", 1).await;
    assert_eq!((once.exhausted, once.off), (1, None));
    store_events(store, &["good"]).await;
    let claimed = claim_one(store, "a", 2).await;
    finish(store, &claimed, "a", 2, OK, Decision::Delivered).await;
    assert_eq!(find_webhook(store, "w").await.exhausted, 0, "a success ends the row");
    assert_eq!(exhaust(store, "e2", 3).await.off, None);
    let off = exhaust(store, "e3", 4).await.off.unwrap();
    assert!(matches!(off, Off { reason: OffReason::Exhausted(event), .. } if event == event_id("e3")));
    let on = set_active(store, "w", true, 5).await;
    assert_eq!((on.exhausted, on.off), (0, None), "switching on begins anew");
    assert_eq!(exhaust(store, "e4", 6).await.off, None);
}

pub(crate) async fn r11_never_means_never(store: &dyn Store) {
    create(store, &["w"]).await;
    set(store, "w", vec![Setting::DisableAfter(DisableAfter::Never)]).await;
    for (number, event) in ["e1", "e2", "e3"].into_iter().enumerate() {
        let webhook = exhaust(store, event, number as i64).await;
        assert_eq!((webhook.exhausted, webhook.off), (number as u32 + 1, None));
    }
}

pub(crate) async fn r17_what_we_spoiled_does_not_count(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let claimed = claim_one(store, "a", 0).await;
    finish(store, &claimed, "a", 0, INTERRUPTED, Decision::Exhausted { switch_off: false }).await;
    assert_eq!(find_webhook(store, "w").await, webhook("w"));
}

async fn rotate(store: &dyn Store, secret: &str, overlap: u64, seconds: i64) -> Webhook {
    let rotation = Some(Rotation { secret: Secret::new(secret), overlap: Duration::from_secs(overlap) });
    let change = WebhookChange { rotation, ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("w"), change, at(seconds)).await.unwrap().unwrap()
}

pub(crate) async fn s15_a_rotation_keeps_two_secrets_for_its_overlap(store: &dyn Store) {
    create(store, &["w"]).await;
    let rotated = rotate(store, "new", 100, 10).await;
    let previous = PreviousSecret { secret: webhook("w").secret, rotated_at: at(10), until: at(110) };
    let expected = Webhook { secret: Secret::new("new"), previous_secret: Some(previous), ..webhook("w") };
    assert_eq!(rotated, expected);
    assert_eq!(find_webhook(store, "w").await, expected);
    assert_eq!(set_active(store, "w", true, 109).await, expected);
    assert_eq!(set_active(store, "w", true, 110).await.previous_secret, None, "it is good for nothing any more");
    assert_eq!(rotate(store, "newer", 100, 200).await.previous_secret.unwrap().secret.reveal(), "new");
    assert_eq!(rotate(store, "newest", 100, 201).await.previous_secret.unwrap().secret.reveal(), "newer");
}

pub(crate) async fn s15_a_secret_is_forgotten_when_its_overlap_has_ended(store: &dyn Store) {
    create(store, &["w", "v", "never-rotated"]).await;
    rotate(store, "new", 100, 10).await;
    let rotation = Some(Rotation { secret: Secret::new("other"), overlap: Duration::from_secs(50) });
    let change = WebhookChange { rotation, ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("v"), change, at(10)).await.unwrap();
    assert_eq!(store.forget_secrets(at(59), 10).await.unwrap(), 0);
    assert_eq!(store.forget_secrets(at(60), 10).await.unwrap(), 1);
    assert_eq!(find_webhook(store, "v").await, Webhook { secret: Secret::new("other"), ..webhook("v") });
    assert!(find_webhook(store, "w").await.previous_secret.is_some(), "its own is good still");
    assert_eq!(store.forget_secrets(at(110), 0).await.unwrap(), 0);
    assert_eq!(store.forget_secrets(at(110), 10).await.unwrap(), 1);
    assert_eq!(find_webhook(store, "w").await.previous_secret, None);
    assert_eq!(store.forget_secrets(at(111), 10).await.unwrap(), 0);
}

pub(crate) async fn t8_a_retry_knows_when_its_first_attempt_began_while_there_are_two_secrets(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 3).await;
    assert_eq!(first.first_attempt_at, None);
    finish(store, &first, "a", 3, ERROR, retry(20)).await;
    let second = claim_one(store, "a", 20).await;
    assert_eq!(second.first_attempt_at, None, "there is one secret only");
    finish(store, &second, "a", 20, ERROR, retry(40)).await;
    rotate(store, "new", 1000, 30).await;
    let third = claim_one(store, "a", 40).await;
    assert_eq!(third.first_attempt_at, Some(at(3)));
    assert_eq!(third.webhook.secret_of(third.first_attempt_at, at(40)), &webhook("w").secret);
    store_events(store, &["later"]).await;
    let later = claim_one(store, "a", 41).await;
    assert_eq!(later.first_attempt_at, None);
    assert_eq!(later.webhook.secret_of(None, at(41)).reveal(), "new");
}

pub(crate) async fn a_claim_keeps_to_a_webhooks_own_cap_and_rate(store: &dyn Store) {
    let with = |id: &str, text: &str| Webhook { settings: serde_json::from_str(text).unwrap(), ..webhook(id) };
    create(store, &["plain"]).await;
    store.create_webhook(with("narrow", r#"{"maxInFlight":3}"#)).await.unwrap();
    store.create_webhook(with("slow", r#"{"rateLimit":{"perSecond":1,"burst":1}}"#)).await.unwrap();
    store_events(store, &["e1", "e2", "e3", "e4", "e5"]).await;
    let claims = store.claim_deliveries(DeliveryClaim { slots_each: 4, ..claim_of("a", 0) }).await.unwrap();
    let count = |id: &str| claims.deliveries.iter().filter(|claimed| claimed.key.webhook.as_str() == id).count();
    assert_eq!((count("plain"), count("narrow"), count("slow")), (4, 2, 1));
    let mut saturated: Vec<_> = claims.saturated.iter().map(|(_, webhook)| webhook.as_str()).collect();
    saturated.sort_unstable();
    assert_eq!(saturated, ["narrow", "plain", "slow"]);
    let slots = HashMap::from([((acme(), webhook_id("narrow")), 3)]);
    let claims = store.claim_deliveries(DeliveryClaim { slots, ..claim_of("a", 1) }).await.unwrap();
    let narrow = claims.deliveries.iter().filter(|claimed| claimed.key.webhook.as_str() == "narrow").count();
    assert_eq!(narrow, 3, "what the claim says of a webhook holds");
}

pub(crate) async fn case14_where_slots_are_scarce_no_webhooks_own_cap_is_more_than_the_others(store: &dyn Store) {
    let settings = serde_json::from_str(r#"{"maxInFlight":100}"#).unwrap();
    store.create_webhook(Webhook { settings, ..webhook("wide") }).await.unwrap();
    store_events(store, &["e1", "e2", "e3", "e4", "e5"]).await;
    let claim = DeliveryClaim { slots_each: 1, most_each: 2, ..claim_of("a", 0) };
    let claims = store.claim_deliveries(claim).await.unwrap();
    assert_eq!((claims.deliveries.len(), claims.saturated.len()), (2, 1));
}

pub(crate) async fn r4_a_lease_outlasts_the_webhooks_own_timeout(store: &dyn Store) {
    create(store, &["plain"]).await;
    let settings = serde_json::from_str(r#"{"timeoutSeconds":30}"#).unwrap();
    store.create_webhook(Webhook { settings, ..webhook("slow") }).await.unwrap();
    let room = [("plain", 1), ("slow", 1)].map(|(id, room)| (webhook_id(id), room)).into();
    commit_publish(store, Publish { room, ..publish_of(&["published"]) }).await;
    store_events(store, &["claimed"]).await;
    assert_eq!(claim(store, "a", 0).await.len(), 2);
    let taken = claim(store, "b", LEASE_SECONDS).await;
    assert_eq!(sorted_names(&taken), [("claimed", "plain"), ("published", "plain")]);
    assert!(claim(store, "b", 39).await.is_empty());
    let taken = claim(store, "b", 40).await;
    assert_eq!(sorted_names(&taken), [("claimed", "slow"), ("published", "slow")]);
}
