//! Which streams serve a search in a database, and where in them it begins.

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{EventId, WebhookId};
use jiff::Timestamp;

use super::{DeliveryPosition, DeliveryQuery, StoreError};

/// Where a stream of deliveries comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// One event's.
    Event,
    /// Those of the events with the key.
    EventsOfKey,
    /// Those of all events.
    Events,
    /// All that wait.
    Waiting,
    /// All that is held.
    Held,
    /// All that ended in this state, which is not delivered.
    Failed(DeliveryState),
}

/// The streams that hold all that a query asks for, and as little else as the indexes allow.
pub(super) fn sources(query: &DeliveryQuery) -> Vec<Source> {
    if query.event.is_some() {
        return vec![Source::Event];
    }
    if query.key.is_some() {
        return vec![Source::EventsOfKey];
    }
    let wanted = DeliveryState::ALL.into_iter().filter(|state| states_take(query, *state));
    let source = |state| match state {
        DeliveryState::Delivered => Source::Events,
        DeliveryState::Waiting => Source::Waiting,
        DeliveryState::Held => Source::Held,
        other => Source::Failed(other),
    };
    let sources: Vec<_> = wanted.map(source).collect();
    if sources.contains(&Source::Events) { vec![Source::Events] } else { sources }
}

/// Whether a delivery in this state can be asked for. Its last attempt was a success if it is delivered (R2).
pub(super) fn states_take(query: &DeliveryQuery, state: DeliveryState) -> bool {
    query.state.is_none_or(|wanted| wanted == state)
        && !(state == DeliveryState::Delivered && query.last.takes_failures_only())
}

/// The first stored point in time that is not before `at`: a bound may be finer than a millisecond.
pub(super) fn ceil_millis(at: Timestamp) -> i64 {
    let millis = at.as_millisecond();
    millis + i64::from(Timestamp::from_millisecond(millis).is_ok_and(|floor| floor < at))
}

/// A place in the list, as it stands in columns; without a webhook it is behind the event's last delivery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) created_at: i64,
    pub(super) event: String,
    pub(super) webhook: String,
}

impl Place {
    /// The place after which a query's deliveries begin.
    pub(super) fn first(query: &DeliveryQuery) -> Self {
        let at = |created_at| Self { created_at, event: String::new(), webhook: String::new() };
        let to = query.to.map_or_else(|| at(i64::MAX), |to| at(ceil_millis(to)));
        let after = query.after.as_ref().map(|place| Self {
            created_at: place.created_at.as_millisecond(),
            event: place.event.to_string(),
            webhook: place.webhook.as_ref().map(ToString::to_string).unwrap_or_default(),
        });
        after.map_or(to.clone(), |after| after.min(to))
    }

    pub(super) fn position(self) -> Result<DeliveryPosition, StoreError> {
        let webhook = Some(self.webhook).filter(|webhook| !webhook.is_empty());
        Ok(DeliveryPosition {
            created_at: sound("created_at", Timestamp::from_millisecond(self.created_at))?,
            event: sound("event", EventId::parse(self.event))?,
            webhook: webhook.map(|webhook| sound("webhook", WebhookId::parse(webhook))).transpose()?,
        })
    }
}

fn sound<T, E: std::fmt::Display>(column: &str, read: Result<T, E>) -> Result<T, StoreError> {
    read.map_err(|error| StoreError::Damaged(format!("{column}: {error}")))
}
