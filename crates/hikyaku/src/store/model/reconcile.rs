//! How far a provider's list has been compared, and what came of it.

use bytes::Bytes;
use hikyaku_core::gap::Period;
use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;

/// Which reconciliation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReconcileKey {
    /// For whom.
    pub organization: OrganizationId,
    /// Its name in the configuration.
    pub name: String,
}

/// How far a reconciliation has come. All of it outlives the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReconcileState {
    /// Everything before it was compared by a cycle that ended.
    pub mark: Option<Timestamp>,
    /// What is to be compared beside the schedule, as soon as possible.
    pub wanted: Option<Period>,
    /// Calls of the provider's API in the present period of the budget.
    pub calls: u32,
    /// When that period began.
    pub calls_since: Option<Timestamp>,
    /// When the provider's webhook was last seen to be on (T4).
    pub active_at: Option<Timestamp>,
    /// The last cycle. It goes on where it is if it has not ended.
    pub cycle: Option<Cycle>,
}

/// One comparison of a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// Its number, from 1.
    pub number: i64,
    /// What is compared.
    pub period: Period,
    /// Everything of the period before this is done.
    pub done_to: Timestamp,
    /// When it began, by the wall clock.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What was found.
    pub counts: CycleCounts,
    /// Calls of the provider's API that it took.
    pub calls: u32,
    /// Why it does not go on at present, for people; empty where it does.
    pub problem: String,
}

/// What a cycle found; every key counts once per piece of its period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CycleCounts {
    /// Items in the provider's list.
    pub listed: u64,
    /// Of these, those that are here as listed.
    pub known: u64,
    /// Those of which nothing was here.
    pub missing: u64,
    /// Items that entered the inbox: missing ones, and states that are newer than what was here.
    pub repaired: u64,
    /// Those that were here otherwise.
    pub different: u64,
    /// Keys that are here and not in the list.
    pub unknown: u64,
}

/// What is known of a business key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownKey {
    /// The greatest timestamp with which it came, in microseconds since 1970; `None` where only its effect is remembered.
    pub micros: Option<i64>,
    /// The body with that timestamp, unless it is gone or larger than was asked for.
    pub body: Option<Bytes>,
}

/// Which keys.
#[derive(Debug, Clone)]
pub struct KnownKeysQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// From which provider.
    pub provider: String,
    /// The keys.
    pub keys: Vec<String>,
    /// Largest body that is wanted, in bytes.
    pub max_body_bytes: u32,
}

/// Received rows of a period, by their own timestamps.
#[derive(Debug, Clone)]
pub struct TimedKeysQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// From which provider.
    pub provider: String,
    /// The first timestamp, in microseconds since 1970.
    pub from_micros: i64,
    /// The first that is too late.
    pub to_micros: i64,
    /// Where the page before ended: only rows after this.
    pub after: Option<(i64, i64)>,
    /// At most so many.
    pub limit: u32,
}

/// A received row of a period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedKey {
    /// Where the next page begins after it: its timestamp and its place in the inbox.
    pub place: (i64, i64),
    /// Its business key.
    pub key: String,
    /// Its event type.
    pub event_type: String,
}
