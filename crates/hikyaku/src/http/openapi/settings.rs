//! The settings of a webhook, as the description shows them.

use std::collections::BTreeMap;

use utoipa::ToSchema;
use utoipa::openapi::{Components, RefOr, Schema};

use super::words;

/// What can be set per webhook. `null` is the default: the server's setting where there is one.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "it is described and never made")]
pub(in crate::http) struct WebhookSettings {
    /// The pauses between attempts, in seconds, each from the end of the attempt before.
    #[schema(max_items = 20, example = json!([60, 600, 3600]))]
    retry_delays: Option<Vec<f64>>,
    /// From the start of an attempt until its status must have come, in seconds.
    #[schema(minimum = 1, maximum = 30)]
    timeout_seconds: Option<f64>,
    /// Attempts under way at a time.
    #[schema(minimum = 1, maximum = 256)]
    max_in_flight: Option<u32>,
    /// How fast attempts may follow each other.
    rate_limit: Option<RateLimit>,
    /// Headers that every delivery carries besides ours.
    headers: Option<BTreeMap<String, String>>,
    /// Whether `Retry-After` of a 429 or 503 may postpone the next attempt.
    respect_retry_after: Option<bool>,
    /// How many exhausted events in a row switch it off: a number, or `never`.
    #[schema(schema_with = words::disable_after)]
    disable_after: Option<String>,
    /// What becomes of events that match while it is off.
    #[schema(schema_with = words::while_inactive)]
    while_inactive: Option<String>,
    /// How deliveries are signed.
    #[schema(schema_with = words::signature)]
    signature: Option<String>,
    /// Whether deliveries carry the trace context in which the event was published.
    trace_context: Option<bool>,
}

/// A rate, and how many attempts may start at the same moment after a rest.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "it is described and never made")]
struct RateLimit {
    /// Attempts per second, with two decimals at most.
    #[schema(minimum = 0.01, maximum = 1000)]
    per_second: f64,
    /// How many may start at the same moment.
    #[schema(minimum = 1, maximum = 1000)]
    burst: u32,
}

/// Settings stand flat among a webhook's other fields. Where unknown fields are refused, no schema can say that by
/// composition, so they are copied.
pub(super) fn lay_flat(components: &mut Components) {
    let settings = components.schemas.get(&*WebhookSettings::name()).cloned();
    let Some(RefOr::T(Schema::Object(settings))) = settings else { return };
    for name in ["NewWebhook", "WebhookChange"] {
        if let Some(RefOr::T(Schema::Object(webhook))) = components.schemas.get_mut(name) {
            webhook.properties.extend(settings.properties.clone());
        }
    }
}
