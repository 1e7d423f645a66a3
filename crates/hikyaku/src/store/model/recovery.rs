//! What a webhook did not get, and how it comes to it after all: resend, recovery, and the release of what was held.

use hikyaku_core::event::EventType;
use hikyaku_core::ids::{EventId, OrganizationId, RecoveryId, WebhookId};
use hikyaku_core::webhook::{Off, Webhook, WhileInactive};
use jiff::Timestamp;

/// Why a webhook did not get an event that it subscribes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UndeliveredKind {
    /// It was off when the event was published (R12).
    Missed,
    /// Every attempt failed (R7).
    Exhausted,
    /// It was off, and has its events held until it is on again.
    Held,
}

impl UndeliveredKind {
    /// What becomes of an event that a webhook subscribes to, but is off for.
    pub fn of_absence(webhook: &Webhook) -> Self {
        match webhook.settings.while_inactive {
            WhileInactive::Drop => Self::Missed,
            WhileInactive::Hold => Self::Held,
        }
    }

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Exhausted => "exhausted",
            Self::Held => "held",
        }
    }
}

/// Which events a recovery makes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that the webhook missed while it was off.
    Missed,
    /// Those whose attempts all failed.
    Exhausted,
    /// Both.
    All,
    /// Those that are held; only switching the webhook on releases them.
    Held,
}

impl Which {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Missed, Self::Exhausted, Self::All, Self::Held];

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missed => "missed",
            Self::Exhausted => "exhausted",
            Self::All => "all",
            Self::Held => "held",
        }
    }

    /// The kinds that are meant.
    pub fn kinds(self) -> &'static [UndeliveredKind] {
        match self {
            Self::Missed => &[UndeliveredKind::Missed],
            Self::Exhausted => &[UndeliveredKind::Exhausted],
            Self::All => &[UndeliveredKind::Missed, UndeliveredKind::Exhausted],
            Self::Held => &[UndeliveredKind::Held],
        }
    }
}

/// That a webhook missed an event (R12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missed {
    /// Which webhook.
    pub webhook: WebhookId,
    /// Since when and why it was off then.
    pub off: Off,
}

/// What became of a resend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendOutcome {
    /// A new run of attempts has begun; the first one is due.
    Begun,
    /// The delivery waits already, or an attempt is under way: nothing was changed.
    StillWaiting,
    /// There is no such event.
    NoSuchEvent,
    /// There is no such webhook.
    NoSuchWebhook,
}

/// Which of the events that a webhook missed, or that were exhausted.
#[derive(Debug, Clone)]
pub struct MissedQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// Of which webhook.
    pub webhook: WebhookId,
    /// Only events whose timestamp is not before this.
    pub from: Option<Timestamp>,
    /// Only events whose timestamp is before this.
    pub to: Option<Timestamp>,
    /// Only events after this one.
    pub after: Option<MissedPosition>,
    /// At most so many; the counts are of all.
    pub limit: u32,
    /// Counting stops here, for each of the counts.
    pub count_to: u32,
}

/// An event's place in the list, oldest first: by its timestamp, then by its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissedPosition {
    /// The event's timestamp.
    pub timestamp: Timestamp,
    /// The event.
    pub event: EventId,
}

/// An event that a webhook missed, or that was exhausted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedEntry {
    /// Which event, and where it stands in the list.
    pub position: MissedPosition,
    /// The event's type.
    pub event_type: EventType,
    /// Why the webhook did not get it.
    pub kind: UndeliveredKind,
}

/// What a recovery would find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissedEvents {
    /// The events of the page, oldest first.
    pub entries: Vec<MissedEntry>,
    /// How many were missed in the whole period.
    pub missed: u64,
    /// How many were exhausted in the whole period.
    pub exhausted: u64,
}

/// A recovery to begin.
#[derive(Debug, Clone)]
pub struct NewRecovery {
    /// Its id, which must be new.
    pub id: RecoveryId,
    /// Whose.
    pub organization: OrganizationId,
    /// Of which webhook.
    pub webhook: WebhookId,
    /// Which events.
    pub which: Which,
    /// Of events whose timestamp is not before this.
    pub from: Timestamp,
    /// Of events whose timestamp is before this.
    pub to: Timestamp,
    /// When somebody asked for it, by the wall clock.
    pub at: Timestamp,
}

/// What became of a [`NewRecovery`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoverOutcome {
    /// It has begun.
    Begun(Recovery),
    /// Another recovery of this webhook that somebody asked for has not ended yet.
    Running(RecoveryId),
    /// The webhook is off.
    Off(Off),
    /// There is no such webhook.
    NoSuchWebhook,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryState {
    /// There may be more to make due.
    Running,
    /// Everything that it found was made due.
    Done,
    /// Somebody stopped it; what was made due stays so.
    Cancelled,
}

impl RecoveryState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Running, Self::Done, Self::Cancelled];

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A recovery as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Its id.
    pub id: RecoveryId,
    /// Which events.
    pub which: Which,
    /// Of events whose timestamp is not before this; `None`: of all.
    pub from: Option<Timestamp>,
    /// Of events whose timestamp is before this; `None`: of all.
    pub to: Option<Timestamp>,
    /// How many events there were when it began, or more if more were found.
    pub total: u64,
    /// How many of them were made due so far.
    pub recovered: u64,
    /// How far it is.
    pub state: RecoveryState,
    /// When it began.
    pub created_at: Timestamp,
}

/// One step of the recoveries that run.
#[derive(Debug, Clone)]
pub struct RecoveryStep {
    /// The schedule clock: what is made due is due now.
    pub now: Timestamp,
    /// A webhook with so many due deliveries gets no more of them.
    pub most_due: u32,
    /// At most so many recoveries take part, at least 1.
    pub limit: u32,
    /// Where the last step stopped for its limit: only recoveries after this one.
    pub after: Option<RecoveryKey>,
}

/// Names a recovery everywhere.
pub type RecoveryKey = (OrganizationId, WebhookId, RecoveryId);

/// What a step came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryStepped {
    /// How many deliveries were made due.
    pub made_due: u32,
    /// How many recoveries may have more to make due soon; those of a webhook that is off rest until it is on.
    pub running: u32,
    /// The last recovery that took part, if the step reached its limit; to be passed as `after`.
    pub stopped_at: Option<RecoveryKey>,
}
