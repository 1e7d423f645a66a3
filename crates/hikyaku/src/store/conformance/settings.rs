//! What is set per webhook is kept, and the count behind `disableAfter` lives with it.

use hikyaku_core::delivery::Decision;
use hikyaku_core::disable::DisableAfter;
use hikyaku_core::signature::Scheme;
use hikyaku_core::webhook::{Off, OffReason, Setting, Settings, Webhook, WhileInactive};

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
