//! Dropping what is old.

use hikyaku_core::ids::{EventId, OrganizationId};
use jiff::Timestamp;

/// One step of dropping what is old: a short transaction of its own.
#[derive(Debug, Clone)]
pub struct DropStep {
    /// What to drop, and from where on.
    pub what: Aged,
    /// What came before this is old. The time of an event's publish, or of a received delivery's arrival or a version's
    /// effect (schedule clock), is compared with it.
    pub before: Timestamp,
    /// Ids of received deliveries that came before this (schedule clock) are old as well. When a younger row is dropped,
    /// its id stays known (C7).
    pub ids_before: Timestamp,
    /// How many rows may be touched, at least 1; the rows of the last delivery or event that is dropped may exceed it.
    pub max_rows: u32,
}

/// What ages, and where the dropping of it has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aged {
    /// Events with their deliveries and attempts. One of whose deliveries any waits or is held is kept as a whole; one that was
    /// missed goes, and can then no longer be recovered.
    Events(Option<EventPlace>),
    /// Received deliveries with their bodies and effects. One that has work left is kept. With the row goes the memory
    /// of its id (C7), unless the id is younger than [`DropStep::ids_before`].
    InboxRows(Option<InboxPlace>),
    /// Ids that outlived their rows.
    Ids,
    /// Versions that took effect, and with them the protection of their keys from what is older (C4, T5). That of a key
    /// with work left is kept.
    Versions(Option<VersionPlace>),
}

/// An event's place among all, by organization and age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPlace {
    /// Whose.
    pub organization: OrganizationId,
    /// When it was published.
    pub created_at: Timestamp,
    /// Its id.
    pub event: EventId,
}

/// A received delivery's place among all, by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct InboxPlace {
    /// When it came, by the schedule clock.
    pub due_since: Timestamp,
    /// Its place in the inbox.
    pub position: super::RowPosition,
}

/// A version's place among all, by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VersionPlace {
    /// When it took effect, by the schedule clock.
    pub applied_at: Timestamp,
    /// Of which lane.
    pub lane: super::LaneKey,
}

/// What a [`DropStep`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Events that are gone.
    pub events: u64,
    /// Deliveries that are gone.
    pub deliveries: u64,
    /// Attempts that are gone.
    pub attempts: u64,
    /// Inbox rows that are gone.
    pub inbox_rows: u64,
    /// Ids that are gone after their rows.
    pub ids: u64,
    /// Versions that are gone.
    pub versions: u64,
    /// Where the next step goes on; `None` when everything old has been looked at.
    pub next: Option<Aged>,
}
