//! What the API shows: the shapes of its answers, and nothing that decides.

mod inbox;

use hikyaku_core::delivery::Outcome;
use hikyaku_core::event::EventPattern;
use hikyaku_core::json;
use hikyaku_core::timestamp;
use hikyaku_core::webhook::{OffReason, Settings, Webhook};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(super) use self::inbox::{RowDetail, RowItem};
use super::openapi::settings::WebhookSettings;
use super::openapi::words;
use crate::clock::Clock;
use crate::store::{AttemptRecord, DeliveryRow, DeliveryView, EventView, LastAttempt, LogEntry, PublishedEvent};

/// A list that has one page only.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Items<T> {
    /// All of them.
    pub(super) items: Vec<T>,
}

/// A webhook, without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Webhook)]
pub(super) struct WebhookView {
    /// Its id.
    id: String,
    /// Where deliveries go.
    url: String,
    /// Which types it gets.
    #[schema(value_type = Vec<String>)]
    events: Vec<EventPattern>,
    /// For people.
    description: String,
    /// Whether it gets new events.
    active: bool,
    #[serde(flatten)]
    #[schema(value_type = WebhookSettings)]
    settings: Settings,
    /// What receivers verify with; only of a scheme that has such a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    public_key: Option<String>,
    /// Until when the secret before the last rotation is good; only while there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    previous_secret_until: Option<String>,
    /// When it was registered.
    #[schema(format = DateTime)]
    created_at: String,
    /// Since when it is off; only while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    off_since: Option<String>,
    // R10
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::off_reason)]
    off_reason: Option<&'static str>,
    /// The event whose attempts were all used up; only with `exhausted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    off_event: Option<String>,
}

impl WebhookView {
    /// A webhook as it is at `now`.
    pub(super) fn of(webhook: &Webhook, now: Timestamp) -> Self {
        let (off_reason, off_event) = match webhook.off.as_ref().map(|off| &off.reason) {
            None => (None, None),
            Some(OffReason::Paused) => (Some("paused"), None),
            Some(OffReason::Exhausted(event)) => (Some("exhausted"), Some(event.to_string())),
        };
        Self {
            id: webhook.id.to_string(),
            url: webhook.url.as_str().to_owned(),
            events: webhook.events.clone(),
            description: webhook.description.clone(),
            active: webhook.off.is_none(),
            settings: webhook.settings.clone(),
            public_key: webhook.settings.signature.public_key(&webhook.secret),
            previous_secret_until: webhook.good_previous(now).map(|previous| timestamp::format(previous.until)),
            created_at: timestamp::format(webhook.created_at),
            off_since: webhook.off.as_ref().map(|off| timestamp::format(off.since)),
            off_reason,
            off_event,
        }
    }
}

// S15: nothing else shows the secret.
/// A webhook with its new secret, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(super) struct WebhookWithSecret {
    #[serde(flatten)]
    webhook: WebhookView,
    /// What its deliveries are signed with.
    secret: String,
}

impl WebhookWithSecret {
    pub(super) fn of(webhook: &Webhook, now: Timestamp) -> Self {
        Self { webhook: WebhookView::of(webhook, now), secret: webhook.secret.reveal().to_owned() }
    }
}

/// The answer to a publish.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PublishedEvent)]
pub(super) struct Published {
    /// Its id.
    id: String,
    /// Its type.
    r#type: String,
    /// When it happened.
    #[schema(format = DateTime)]
    timestamp: String,
    /// To how many webhooks it goes.
    deliveries: u32,
}

impl Published {
    pub(super) fn of(event: &PublishedEvent) -> Self {
        Self {
            id: event.id.to_string(),
            r#type: event.event_type.to_string(),
            timestamp: timestamp::format(event.timestamp),
            deliveries: event.deliveries,
        }
    }
}

/// The answer to a batch, in its order.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PublishedEvents)]
pub(super) struct Events {
    /// One answer for each event.
    pub(super) events: Vec<Published>,
}

/// An event as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(super) struct EventJson<'a> {
    /// Its id.
    id: &'a str,
    /// Its type.
    r#type: &'a str,
    /// When it happened.
    #[schema(format = DateTime)]
    timestamp: String,
    /// As it was published, to the byte.
    #[schema(required, value_type = Value)]
    data: Option<&'a RawValue>,
    /// One for each webhook that it went to.
    deliveries: Vec<DeliveryJson<'a>>,
}

impl<'a> EventJson<'a> {
    pub(super) fn of(event: &'a EventView, clock: &dyn Clock) -> Self {
        Self {
            id: event.id.as_str(),
            r#type: event.event_type.as_str(),
            timestamp: timestamp::format(event.timestamp),
            data: json::pointer(&event.body, "/data"),
            deliveries: event.deliveries.iter().map(|delivery| DeliveryJson::of(delivery, clock)).collect(),
        }
    }
}

/// A delivery as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
pub(super) struct DeliveryJson<'a> {
    /// To which webhook.
    webhook_id: &'a str,
    #[schema(schema_with = words::delivery_state)]
    state: &'static str,
    /// The run of attempts: 1 began with the publish, each later one was asked for.
    run: u32,
    /// Whether an attempt is under way.
    in_flight: bool,
    /// When the next attempt is due; `null` where none is, or one is under way.
    #[schema(required, format = DateTime)]
    next_attempt_at: Option<String>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    /// The attempts that ended, in their order.
    attempts: Vec<AttemptJson>,
}

impl<'a> DeliveryJson<'a> {
    pub(super) fn of(delivery: &'a DeliveryView, clock: &dyn Clock) -> Self {
        Self {
            webhook_id: delivery.webhook.as_str(),
            state: delivery.state.as_str(),
            run: delivery.run,
            in_flight: delivery.in_flight,
            next_attempt_at: delivery.next_attempt_at.map(|due| timestamp::format(on_the_wall(due, clock))),
            reason: &delivery.reason,
            attempts: delivery.attempts.iter().map(AttemptJson::of).collect(),
        }
    }
}

/// An attempt.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Attempt)]
struct AttemptJson {
    /// Of which run, from 1.
    run: u32,
    /// Its number in the run, from 1.
    attempt: u32,
    // R6
    /// The status that came; 0 if none came.
    http_status: u16,
    /// For people; `null` after an answer.
    #[schema(required)]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::error_kind)]
    error_kind: Option<&'static str>,
    /// When it began.
    #[schema(format = DateTime)]
    started_at: String,
    /// How long it took, in milliseconds.
    duration_ms: u64,
    /// The response's first bytes; what is not UTF-8 in them is shown as U+FFFD.
    response_body: String,
}

impl AttemptJson {
    fn of(attempt: &AttemptRecord) -> Self {
        let error_kind = error_kind(attempt.outcome);
        let error = if attempt.error.is_empty() { error_kind } else { Some(attempt.error.as_str()) };
        Self {
            run: attempt.run,
            attempt: attempt.number,
            http_status: attempt.outcome.http_status(),
            error: error.map(str::to_owned),
            error_kind,
            started_at: timestamp::format(attempt.started_at),
            duration_ms: u64::try_from(attempt.duration.as_millis()).unwrap_or(u64::MAX),
            response_body: String::from_utf8_lossy(&attempt.response_body).into_owned(),
        }
    }
}

/// A delivery in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = FoundDelivery)]
pub(super) struct DeliveryItem {
    // R21
    /// The event's id, which is the delivery's for the receiver.
    delivery_id: String,
    /// The event's type.
    event_type: String,
    /// To which webhook.
    webhook_id: String,
    /// When the event was published.
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(schema_with = words::delivery_state)]
    state: &'static str,
    /// Whether an attempt is under way.
    in_flight: bool,
    /// When the next attempt is due; `null` where none is, or one is under way.
    #[schema(required, format = DateTime)]
    next_attempt_at: Option<String>,
    /// Why it was cancelled.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// How many attempts have ended.
    attempts: u32,
    /// The last of them; `null` where there is none.
    #[schema(required)]
    last_attempt: Option<LastAttemptJson>,
}

impl DeliveryItem {
    pub(super) fn of(row: &DeliveryRow, clock: &dyn Clock) -> Self {
        Self {
            delivery_id: row.event.to_string(),
            event_type: row.event_type.to_string(),
            webhook_id: row.webhook.to_string(),
            created_at: timestamp::format(row.created_at),
            state: row.state.as_str(),
            in_flight: row.in_flight,
            next_attempt_at: row.next_attempt_at.map(|due| timestamp::format(on_the_wall(due, clock))),
            reason: row.reason.clone(),
            attempts: row.attempts,
            last_attempt: row.last.map(LastAttemptJson::of),
        }
    }
}

/// The last attempt of a delivery, in short.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LastAttempt)]
struct LastAttemptJson {
    // R6
    /// The status that came; 0 if none came.
    http_status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = words::error_kind)]
    error_kind: Option<&'static str>,
    /// When it began.
    #[schema(format = DateTime)]
    started_at: String,
    /// How long it took, in milliseconds.
    duration_ms: u64,
}

impl LastAttemptJson {
    fn of(last: LastAttempt) -> Self {
        Self {
            http_status: last.outcome.http_status(),
            error_kind: error_kind(last.outcome),
            started_at: timestamp::format(last.started_at),
            duration_ms: u64::try_from(last.duration.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn error_kind(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Answered(_) => None,
        Outcome::Failed(kind) => Some(kind.as_str()),
    }
}

/// A line of a webhook's log.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LoggedAttempt)]
pub(super) struct LogItem {
    // R21
    /// The event's id, which is the delivery's for the receiver.
    delivery_id: String,
    /// The event's type.
    event_type: String,
    #[serde(flatten)]
    attempt: AttemptJson,
}

impl LogItem {
    pub(super) fn of(entry: &LogEntry) -> Self {
        Self {
            delivery_id: entry.event.to_string(),
            event_type: entry.event_type.to_string(),
            attempt: AttemptJson::of(&entry.attempt),
        }
    }
}

/// A due time of the schedule clock, as people read it: as far from the wall clock's now as it is from the schedule's.
pub(super) fn on_the_wall(due: Timestamp, clock: &dyn Clock) -> Timestamp {
    let wait = due.duration_since(clock.schedule());
    clock.now().checked_add(wait).unwrap_or(Timestamp::MAX)
}
