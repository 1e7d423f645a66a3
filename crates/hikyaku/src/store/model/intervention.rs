//! What a person does about inbox rows, and what waits for one.

use bytes::Bytes;
use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;

use super::{EffectState, NewRow, RowState};

/// Something that a person does about one inbox row.
#[derive(Debug, Clone)]
pub struct Intervention {
    /// Whose row.
    pub organization: OrganizationId,
    /// From which provider.
    pub provider: String,
    /// The provider's id of the delivery.
    pub delivery: String,
    /// What is done.
    pub act: Act,
    /// The wall clock.
    pub at: Timestamp,
    /// The schedule clock: what begins anew is due from here on.
    pub now: Timestamp,
}

/// What is done about an inbox row.
#[derive(Debug, Clone)]
pub enum Act {
    /// Effects that have ended begin anew, with no failures and the whole time before they are given up. A lane that is
    /// leased or backs off keeps its time, and with it the order of its key.
    Replay {
        /// Of which routes, with the state in which each was seen: one that has changed since is left as it is.
        effects: Vec<(String, EffectState)>,
    },
    /// A parked row is given to routes.
    Release {
        /// To which; none: it stays parked.
        routes: Vec<String>,
        /// Why it stays parked; empty where a route takes it.
        park_reason: String,
    },
    /// A quarantined row is what it claims to be: it is stored as if it came now, unless it came by itself since, and
    /// the quarantined row is gone.
    Admit(Box<NewRow>),
    /// Effects that wait or are dead, and rows that are parked or quarantined, end without effect.
    Discard {
        /// Of which route; `None` for all of them, and for the row where it has none.
        route: Option<String>,
        /// Why, for people.
        reason: String,
    },
}

/// What became of an [`Intervention`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervened {
    /// It is done.
    Done,
    /// No route takes it: it is parked as before.
    StillParked,
    /// The delivery came by itself since, and is stored; the quarantined row is gone.
    Duplicate,
    /// An effect that was to be discarded is one of those that somebody's lease was taken for, who may be making it take
    /// place; so is what came between them since. Nothing is changed.
    UnderWay,
    /// There is nothing of it that this could be done to. Nothing is changed.
    Unfit(RowState),
    /// There is no such row.
    NoSuchRow,
}

/// A delivery whose signature does not verify, kept aside for a person (T2). It has no effect and takes no place of a
/// good one: its id is none that a provider gives.
#[derive(Debug, Clone)]
pub struct Quarantined {
    /// The row, without routes; `park_reason` says what is wrong with it.
    pub row: NewRow,
    /// What came beside the body and is needed to verify it again, in the inbox's own form.
    pub headers: Bytes,
    /// Most rows of its source that may be quarantined.
    pub max_rows: u32,
    /// Most bytes that they may have, bodies and headers together.
    pub max_bytes: u64,
}

impl Quarantined {
    /// How many bytes it takes of those that may be kept.
    pub fn bytes(&self) -> u64 {
        (self.row.body.len() + self.headers.len()) as u64
    }
}

/// What became of a [`Quarantined`] delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineOutcome {
    /// It is kept.
    Kept,
    /// The same was kept before.
    Duplicate,
    /// Its source has as many of them as it may have. Nothing was written.
    Full,
}
