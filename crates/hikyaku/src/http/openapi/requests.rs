//! What requests carry, as the description shows it. `fields.rs` and `request.rs` read it; the tests compare names and
//! bounds with theirs (utoipa takes no constants for bounds).

#![expect(dead_code, reason = "these types are described and never made")]

use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::words;

/// A webhook to register.
#[derive(ToSchema)]
#[schema(example = json!({"url": "https://hooks.example/hikyaku", "events": ["sale.*", "order.created"]}))]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NewWebhook {
    /// Where deliveries go: an absolute https URL without user name, password and fragment. The server's settings may
    /// allow more.
    #[schema(max_length = 2048, pattern = "^https?://.", example = "https://hooks.example/hikyaku")]
    url: String,
    /// Which types it gets; left out, all.
    #[schema(required = false, schema_with = words::event_patterns)]
    events: Vec<String>,
    /// For people.
    #[schema(required = false, default = "", max_length = 1024)]
    description: String,
    /// What its deliveries are signed with; left out, one is made.
    #[schema(
        required = false,
        min_length = 24,
        max_length = 256,
        pattern = "^[^ ]+$",
        example = "a-secret-of-24-bytes-or-more"
    )]
    secret: String,
    /// Whether it gets new events.
    #[schema(required = false, default = true)]
    active: bool,
}

/// What is to change about a webhook; the rest stays.
#[derive(ToSchema)]
#[schema(example = json!({"active": true}))]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WebhookChange {
    /// Where deliveries go, also those that wait already.
    #[schema(required = false, max_length = 2048, pattern = "^https?://.")]
    url: String,
    /// Which types it gets.
    #[schema(required = false, schema_with = words::event_patterns)]
    events: Vec<String>,
    /// For people.
    #[schema(required = false, max_length = 1024)]
    description: String,
    /// Whether it gets new events.
    #[schema(required = false)]
    active: bool,
}

/// A period to compare with a provider's list; left out, the next cycle begins now.
#[derive(ToSchema)]
#[schema(example = json!({"from": "2026-11-01T00:00:00Z", "to": "2026-12-01T00:00:00Z"}))]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReconcileRequest {
    /// Its first instant.
    #[schema(required = false, format = DateTime)]
    from: String,
    /// The first instant after it; left out, now. Needs `from`.
    #[schema(required = false, format = DateTime)]
    to: String,
}

/// An event to publish.
#[derive(ToSchema)]
#[schema(example = json!({
    "id": "sale-1",
    "type": "sale.created",
    "data": {"id": "T01|2026-11|1001", "paymentSummary": {"grandTotal": 1280}}
}))]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NewEvent {
    /// Two or more words joined by dots.
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)+$", example = "sale.created")]
    r#type: String,
    /// Any JSON. It is delivered byte for byte as it is written here.
    data: Value,
    /// Makes it safe to publish it again; left out, one is made.
    #[schema(required = false, max_length = 200, pattern = "^[!-~]+$", example = "sale-1")]
    id: String,
    /// When it happened; left out, now.
    #[schema(required = false, schema_with = words::time)]
    timestamp: String,
}

/// Events that are stored all or none.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Batch {
    /// The events, every id once.
    #[schema(min_items = 1, max_items = 1000)]
    events: Vec<NewEvent>,
}

/// What is to be sent again.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "2026-11-30T09:00:00Z", "which": "all"}))]
pub(in crate::http) struct NewRecovery {
    /// From when on the events are.
    #[schema(schema_with = words::time)]
    from: String,
    /// Until when, not included; left out, until now.
    #[schema(required = false, schema_with = words::time)]
    to: String,
    #[schema(schema_with = words::recoverable)]
    which: String,
}

/// A secret to take the place of the present one.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"overlap": 86400}))]
pub(in crate::http) struct NewSecret {
    /// How long the old secret stays good, in seconds.
    #[schema(required = false, default = 86400, maximum = 2592000)]
    overlap: u64,
    /// What deliveries are signed with from now on; left out, one is made.
    #[schema(required = false, min_length = 24, max_length = 256, pattern = "^[^ ]+$")]
    secret: String,
}

/// Which deliveries.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct DeliveryFilter {
    /// Only those to this webhook.
    #[param(required = false, max_length = 200, pattern = "^[!-~]+$")]
    webhook: String,
    /// Only those of this event.
    #[param(required = false, max_length = 200, pattern = "^[!-~]+$")]
    event: String,
    /// Only those in this state.
    #[param(required = false, schema_with = words::delivery_state)]
    state: String,
    /// Only those with this business key.
    #[param(required = false)]
    key: String,
}

/// By what they are about, and what they came to.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Outcomes {
    /// Only this type, or those below a prefix such as `order.*`.
    #[param(required = false, schema_with = words::event_pattern)]
    r#type: String,
    /// Only this status (`503`, or `0` where none came), or this class (`5xx`).
    #[param(required = false, rename = "httpStatus", pattern = "^(0|[1-9]([0-9][0-9]|xx))$")]
    http_status: String,
    /// Only this kind of error.
    #[param(required = false, schema_with = words::error_kind)]
    error: String,
}

/// Of which time events are.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct Period {
    /// From when on.
    #[param(required = false, schema_with = words::time)]
    from: String,
    /// Until when, not included.
    #[param(required = false, schema_with = words::time)]
    to: String,
}

/// A token to make.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "the shop's server"}))]
pub(in crate::http) struct NewToken {
    /// For people.
    #[schema(required = false, max_length = 200)]
    name: String,
}

/// A token to make: an admin token, or one for an organization.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"organization": "default", "name": "the shop's server"}))]
pub(in crate::http) struct NewAnyToken {
    /// The one organization that it opens; not with `admin`.
    #[schema(required = false, max_length = 64, pattern = "^[A-Za-z0-9_.-]+$", example = "default")]
    organization: String,
    /// Whether it opens everything.
    #[schema(required = false)]
    admin: bool,
    /// For people.
    #[schema(required = false, max_length = 200)]
    name: String,
}

/// Which page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct InPage {
    /// Most rows of the page.
    #[param(required = false, default = 50, minimum = 1, maximum = 200)]
    limit: u32,
    /// The `nextCursor` of an earlier page of this list.
    #[param(required = false, min_length = 1, pattern = "^[A-Za-z0-9_-]+$")]
    cursor: String,
}

/// Which rows of the inbox.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct InboxFilter {
    /// Only what this source brought.
    #[param(required = false)]
    source: String,
    /// Only rows in this state.
    #[param(required = false, schema_with = words::row_state)]
    state: String,
    /// Only rows with this business key.
    #[param(required = false)]
    key: String,
    /// Only rows with an effect through this route; with `state`, one that stands so too.
    #[param(required = false)]
    route: String,
}

/// Nothing: a request without anything to say.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({}))]
pub(in crate::http) struct Nothing {}

/// A row that is to be replayed.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"route": "receiptroller-books"}))]
pub(in crate::http) struct RowToReplay {
    /// Only through this route, which the configuration must have.
    #[schema(required = false)]
    route: String,
}

/// A row that is to be discarded.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "a test sale"}))]
pub(in crate::http) struct RowToDiscard {
    /// For people.
    #[schema(min_length = 1, max_length = 1024)]
    reason: String,
    /// Only through this route.
    #[schema(required = false)]
    route: String,
}

/// Which rows something is to be done about.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"state": "dead", "route": "receiptroller-books", "preview": true}))]
pub(in crate::http) struct ManyRows {
    #[schema(schema_with = words::row_state)]
    state: String,
    /// Only what this source brought.
    #[schema(required = false)]
    source: String,
    #[schema(required = false, schema_with = words::received_pattern)]
    r#type: String,
    /// Only with this business key.
    #[schema(required = false)]
    key: String,
    /// Only with an effect in this state through this route, and only that effect.
    #[schema(required = false)]
    route: String,
    /// Only what was received from then on.
    #[schema(required = false, schema_with = words::time)]
    from: String,
    /// Only what was received before then.
    #[schema(required = false, schema_with = words::time)]
    to: String,
    /// Whether it is only to be looked.
    #[schema(required = false, default = false)]
    preview: bool,
    /// The `nextCursor` of an earlier answer to the same request.
    #[schema(required = false, min_length = 1, pattern = "^[A-Za-z0-9_-]+$")]
    cursor: String,
}

/// Which rows are to be discarded, and why.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"state": "parked", "type": "test.*", "reason": "tests of the till", "preview": true}))]
pub(in crate::http) struct ManyRowsToDiscard {
    #[schema(schema_with = words::row_state)]
    state: String,
    /// Only what this source brought.
    #[schema(required = false)]
    source: String,
    #[schema(required = false, schema_with = words::received_pattern)]
    r#type: String,
    /// Only with this business key.
    #[schema(required = false)]
    key: String,
    /// Only with an effect in this state through this route, and only that effect.
    #[schema(required = false)]
    route: String,
    /// Only what was received from then on.
    #[schema(required = false, schema_with = words::time)]
    from: String,
    /// Only what was received before then.
    #[schema(required = false, schema_with = words::time)]
    to: String,
    /// Whether it is only to be looked.
    #[schema(required = false, default = false)]
    preview: bool,
    /// The `nextCursor` of an earlier answer to the same request.
    #[schema(required = false, min_length = 1, pattern = "^[A-Za-z0-9_-]+$")]
    cursor: String,
    /// For people.
    #[schema(min_length = 1, max_length = 1024)]
    reason: String,
}

/// What a provider sends beside the bytes.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(in crate::http) struct SignedBy {
    /// For a ReceiptRoller source; other providers sign in headers of their own. `sha256=` and the HMAC-SHA256 of the
    /// body's bytes in lower-case hex, by a secret of the source.
    #[param(rename = "x-rr-signature", pattern = "^sha256=[0-9a-f]{64}$")]
    signature: String,
    /// For a ReceiptRoller source: the delivery's id; without it, the body's `id`, else a hash of the body.
    #[param(rename = "x-rr-delivery", required = false)]
    delivery: String,
}
