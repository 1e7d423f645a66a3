//! How inbox rows are shown.

use data_encoding::BASE64;
use hikyaku_core::timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::on_the_wall;
use crate::clock::Clock;
use crate::http::openapi::words;
use crate::store::{EffectView, InboxRowDetail, InboxRowView};

/// An inbox row in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxRow)]
pub(in crate::http) struct RowItem {
    /// Where it came in.
    source: String,
    /// Whose webhook it is.
    provider: String,
    /// Its id.
    delivery_id: String,
    /// Empty where it is not known.
    event_type: String,
    /// The business key; empty where it is not known.
    key: String,
    /// The body's; where it has none, when it was received.
    #[schema(format = DateTime)]
    timestamp: String,
    /// When it was received.
    #[schema(format = DateTime)]
    received_at: String,
    #[schema(schema_with = words::row_state)]
    state: &'static str,
    /// Why it is parked.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

impl RowItem {
    pub(in crate::http) fn of(row: &InboxRowView) -> Self {
        Self {
            source: row.source.clone(),
            provider: row.provider.clone(),
            delivery_id: row.delivery.clone(),
            event_type: row.event_type.clone(),
            key: row.key.clone(),
            timestamp: timestamp::format(row.timestamp),
            received_at: timestamp::format(row.received_at),
            state: row.state.as_str(),
            reason: row.reason.clone(),
        }
    }
}

/// An inbox row in full.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = InboxRowDetail)]
pub(in crate::http) struct RowDetail {
    #[serde(flatten)]
    row: RowItem,
    /// The body as text, or in base64 where it is no UTF-8; its bytes are at `…/body`.
    body: String,
    /// `utf-8` or `base64`.
    #[schema(schema_with = words::body_encoding)]
    body_encoding: &'static str,
    /// One for each route that takes it.
    effects: Vec<EffectJson>,
}

impl RowDetail {
    pub(in crate::http) fn of(detail: &InboxRowDetail, clock: &dyn Clock) -> Self {
        let (body, body_encoding) = match str::from_utf8(&detail.body) {
            Ok(text) => (text.to_owned(), "utf-8"),
            Err(_) => (BASE64.encode(&detail.body), "base64"),
        };
        let effects = detail.effects.iter().map(|effect| EffectJson::of(effect, clock)).collect();
        Self { row: RowItem::of(&detail.row), body, body_encoding, effects }
    }
}

/// How a row stands with one route.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Effect)]
struct EffectJson {
    /// The route.
    route: String,
    #[schema(schema_with = words::effect_state)]
    state: &'static str,
    /// How often it failed.
    failures: u32,
    /// When the next try is due; `null` where none is, or one is under way.
    #[schema(required, format = DateTime)]
    next_attempt_at: Option<String>,
    /// When it ended; `null` before.
    #[schema(required, format = DateTime)]
    ended_at: Option<String>,
    /// The last error, or what the destination did.
    detail: String,
}

impl EffectJson {
    fn of(effect: &EffectView, clock: &dyn Clock) -> Self {
        Self {
            route: effect.route.clone(),
            state: effect.state.as_str(),
            failures: effect.failures,
            next_attempt_at: effect.next_attempt_at.map(|due| timestamp::format(on_the_wall(due, clock))),
            ended_at: effect.ended_at.map(timestamp::format),
            detail: effect.detail.clone(),
        }
    }
}
