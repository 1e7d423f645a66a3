//! Searching what was sent: the deliveries of an organization, and the log of a webhook.

use std::time::Duration;

use hikyaku_core::delivery::{DeliveryState, FailureKind, Outcome};
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use jiff::Timestamp;

/// Which HTTP statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusFilter {
    /// This one; 0 where none came (R6).
    Exact(u16),
    /// Those of this hundred: 5 is 500 to 599.
    Class(u16),
}

impl StatusFilter {
    /// Reads a status (`503`, `0`) or a class (`5xx`).
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(class) = text.strip_suffix("xx") {
            let class = class.parse().ok().filter(|_| digits(class))?;
            return (1..=9).contains(&class).then_some(Self::Class(class));
        }
        let status = text.parse().ok().filter(|_| digits(text))?;
        (status == 0 || (100..=999).contains(&status)).then_some(Self::Exact(status))
    }

    /// Whether it takes this status.
    pub fn takes(self, status: u16) -> bool {
        match self {
            Self::Exact(exact) => status == exact,
            Self::Class(class) => status / 100 == class,
        }
    }

    fn takes_a_success(self) -> bool {
        match self {
            Self::Exact(status) => Outcome::Answered(status).is_success(),
            Self::Class(class) => class == 2,
        }
    }
}

/// Which attempts, by what they came to. Without conditions it takes them all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutcomeFilter {
    /// Only those with such a status.
    pub status: Option<StatusFilter>,
    /// Only those that brought no status for this reason.
    pub failure: Option<FailureKind>,
}

impl OutcomeFilter {
    /// Whether it takes an attempt that came to this.
    pub fn takes(self, outcome: Outcome) -> bool {
        self.status.is_none_or(|status| status.takes(outcome.http_status()))
            && self.failure.is_none_or(|failure| outcome == Outcome::Failed(failure))
    }

    /// Whether it takes everything.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether it takes no success (R2), so that only what failed has to be looked at.
    pub fn takes_failures_only(self) -> bool {
        self.failure.is_some() || self.status.is_some_and(|status| !status.takes_a_success())
    }
}

/// Which deliveries; every condition must hold.
#[derive(Debug, Clone)]
pub struct DeliveryQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// Only to this webhook.
    pub webhook: Option<WebhookId>,
    /// Only of this event.
    pub event: Option<EventId>,
    /// Only of events with a type of this pattern.
    pub event_type: Option<EventPattern>,
    /// Only in this state.
    pub state: Option<DeliveryState>,
    /// Only those whose last attempt came to this. A delivery without attempts is taken only by a filter that is empty.
    pub last: OutcomeFilter,
    /// Only of events with this business key.
    pub key: Option<String>,
    /// Only of events published then or later.
    pub from: Option<Timestamp>,
    /// Only of events published before then.
    pub to: Option<Timestamp>,
    /// Only deliveries after this place, in the order of the list.
    pub after: Option<DeliveryPosition>,
    /// At most so many.
    pub limit: u32,
    /// How many deliveries or events may be looked at, at least 1: see [`Found::searched_to`].
    pub look_at: u32,
}

/// A delivery's place in the list, which goes from the greatest down: newest events first. It is the same while the
/// delivery waits and when it has ended, so that a cursor stays right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryPosition {
    /// When its event was published.
    pub created_at: Timestamp,
    /// Its event.
    pub event: EventId,
    /// Its webhook; `None` is the place behind the event's last delivery.
    pub webhook: Option<WebhookId>,
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Found<R, P> {
    /// The rows, in their order.
    pub rows: Vec<R>,
    /// `Some` when the search ended because it had looked at as much as it may: nothing more is to be found up to here,
    /// and the search can be continued from here.
    pub searched_to: Option<P>,
}

/// A delivery in a list.
#[derive(Debug, Clone)]
pub struct DeliveryRow {
    /// Of which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: EventType,
    /// When the event was published.
    pub created_at: Timestamp,
    /// To which webhook.
    pub webhook: WebhookId,
    /// Where it stands.
    pub state: DeliveryState,
    /// When the next attempt is due (schedule clock); only while it waits and none is under way.
    pub next_attempt_at: Option<Timestamp>,
    /// Whether an attempt is under way now.
    pub in_flight: bool,
    /// Why it was cancelled; empty otherwise.
    pub reason: String,
    /// How many attempts have ended.
    pub attempts: u32,
    /// The last of them.
    pub last: Option<LastAttempt>,
}

impl DeliveryRow {
    /// Its place in the list.
    pub fn position(&self) -> DeliveryPosition {
        let (event, webhook) = (self.event.clone(), Some(self.webhook.clone()));
        DeliveryPosition { created_at: self.created_at, event, webhook }
    }
}

/// The last attempt of a delivery that has ended, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastAttempt {
    /// When it began, by the wall clock.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// What it came to.
    pub outcome: Outcome,
}

/// Which lines of a webhook's log.
#[derive(Debug, Clone)]
pub struct LogQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// Of which webhook.
    pub webhook: WebhookId,
    /// Only of events with a type of this pattern.
    pub event_type: Option<EventPattern>,
    /// Only attempts that came to this.
    pub outcome: OutcomeFilter,
    /// Only attempts begun then or later.
    pub from: Option<Timestamp>,
    /// Only attempts begun before then.
    pub to: Option<Timestamp>,
    /// Only lines older than this one.
    pub before: Option<LogPosition>,
    /// At most so many.
    pub limit: u32,
    /// How many lines may be looked at, at least 1: see [`Found::searched_to`].
    pub look_at: u32,
}

/// A line's place in the log, newest first: it never moves, so that a cursor stays right while lines are added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPosition {
    /// When the attempt began.
    pub started_at: Timestamp,
    /// Of which event.
    pub event: EventId,
    /// Of which run.
    pub run: u32,
    /// Which attempt.
    pub number: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_number_or_a_class() {
        for (text, takes, refuses) in [("503", 503, 500), ("0", 0, 200), ("5xx", 599, 600), ("2xx", 204, 302)] {
            let filter = StatusFilter::parse(text).unwrap();
            assert!(filter.takes(takes) && !filter.takes(refuses), "{text}");
        }
        for bad in ["", "x", "5x", "xx", "0xx", "55xx", "+5xx", "+200", "99", "1000", "-1", "5XX", "2 00"] {
            assert_eq!(StatusFilter::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_filter_of_failures_takes_no_success() {
        let status = |text| OutcomeFilter { status: StatusFilter::parse(text), failure: None };
        let failure = OutcomeFilter { status: None, failure: Some(FailureKind::Dns) };
        for (filter, failures_only) in [
            (OutcomeFilter::default(), false),
            (status("2xx"), false),
            (status("204"), false),
            (status("0"), true),
            (status("302"), true),
            (failure, true),
        ] {
            assert_eq!(filter.takes_failures_only(), failures_only, "{filter:?}");
            assert!(!failures_only || (200..300).all(|status| !filter.takes(Outcome::Answered(status))), "{filter:?}");
        }
    }
}
