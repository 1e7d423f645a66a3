//! Events, their deliveries and their attempts as they stand.

use bytes::Bytes;
use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{EventId, WebhookId};
use jiff::Timestamp;

use super::{AttemptRecord, Missed};

/// An event as it stands.
#[derive(Debug, Clone)]
pub struct EventView {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it was sent out.
    pub timestamp: Timestamp,
    /// When it was published, by the wall clock.
    pub created_at: Timestamp,
    /// The body that goes to every webhook.
    pub body: Bytes,
    /// Its deliveries, by webhook id; held ones are among them.
    pub deliveries: Vec<DeliveryView>,
    /// The webhooks that missed it and have not got it since, by id.
    pub missed: Vec<Missed>,
}

/// A delivery as it stands.
#[derive(Debug, Clone)]
pub struct DeliveryView {
    /// To which webhook.
    pub webhook: WebhookId,
    /// Where it stands.
    pub state: DeliveryState,
    /// The present run, or the last one.
    pub run: u32,
    /// When the next attempt is due (schedule clock); only while it waits and none is under way.
    pub next_attempt_at: Option<Timestamp>,
    /// Whether an attempt is under way now.
    pub in_flight: bool,
    /// Why it was cancelled; empty otherwise.
    pub reason: String,
    /// The attempts that ended, in their order.
    pub attempts: Vec<AttemptRecord>,
}

/// One line of a webhook's log.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Of which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: EventType,
    /// The attempt.
    pub attempt: AttemptRecord,
}
