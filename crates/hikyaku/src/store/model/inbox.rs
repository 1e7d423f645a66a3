//! Received deliveries.

use bytes::Bytes;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

/// A received delivery, ready to be stored: the deduplication record and the saved work in one (T1).
#[derive(Debug, Clone)]
pub struct NewRow {
    /// Whose.
    pub organization: OrganizationId,
    /// From which provider: ids are unique per organization and provider, over all of its sources (C9).
    pub provider: String,
    /// Through which source.
    pub source: String,
    /// The provider's id of the delivery (C5).
    pub delivery: String,
    /// The event's type, as the provider wrote it; empty if not known.
    pub event_type: String,
    /// The event's place in its object's history.
    pub version: Version,
    /// The business key; empty if not known.
    pub key: String,
    /// The bytes as they came.
    pub body: Bytes,
    /// When it came, by the wall clock.
    pub received_at: Timestamp,
    /// The schedule clock: its work is due from here on.
    pub due_at: Timestamp,
    /// Which routes take it, each once; none: it is parked.
    pub routes: Vec<String>,
    /// Why no route takes it; empty where one does.
    pub park_reason: String,
}

/// What became of a received delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is stored.
    Stored,
    /// Its id was stored before (C6, C12); nothing was written.
    Duplicate,
}

/// How a row stands with one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectState {
    /// It waits for its turn or its retry.
    Waiting,
    /// It took effect.
    Done,
    /// It is older than what took effect (C4), or its key had its one effect already.
    Stale,
    /// Its destination failed until it was given up.
    Dead,
    /// Somebody decided that it shall have no effect.
    Discarded,
}

impl EffectState {
    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stale => "stale",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}

/// How an inbox row stands over all of its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Some effect waits.
    Waiting,
    /// All have ended, some took effect, and none is dead.
    Done,
    /// All have ended, and none took effect because newer ones had.
    Stale,
    /// No route takes it.
    Parked,
    /// All have ended, and one or more were given up.
    Dead,
    /// All have ended, by somebody's decision.
    Discarded,
    /// Its signature did not verify, and it was kept all the same.
    Quarantined,
}

impl RowState {
    /// All states, in the order of their documentation.
    pub const ALL: [Self; 7] =
        [Self::Waiting, Self::Done, Self::Stale, Self::Parked, Self::Dead, Self::Discarded, Self::Quarantined];

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stale => "stale",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
            Self::Quarantined => "quarantined",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state of a row whose effects stand like this.
    pub fn of(effects: impl IntoIterator<Item = EffectState>) -> Self {
        // Worst first: one waiting effect keeps the row waiting, one dead effect makes it dead, and so on.
        const ORDER: [(EffectState, RowState); 5] = [
            (EffectState::Waiting, RowState::Waiting),
            (EffectState::Dead, RowState::Dead),
            (EffectState::Done, RowState::Done),
            (EffectState::Stale, RowState::Stale),
            (EffectState::Discarded, RowState::Discarded),
        ];
        let effects: Vec<_> = effects.into_iter().collect();
        let first = ORDER.iter().find(|(effect, _)| effects.contains(effect));
        first.map_or(Self::Parked, |(_, row)| *row)
    }
}

/// Which inbox rows.
#[derive(Debug, Clone)]
pub struct InboxQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// Only of this source.
    pub source: Option<String>,
    /// Only in this state.
    pub state: Option<RowState>,
    /// Only of this business key.
    pub key: Option<String>,
    /// Only with an effect through this route; where a state is asked for, that effect stands so too.
    pub route: Option<String>,
    /// Only rows older than this one.
    pub before: Option<RowPosition>,
    /// At most so many.
    pub limit: u32,
    /// How many rows may be looked at, at least 1: see [`Found::searched_to`](super::Found::searched_to).
    pub look_at: u32,
}

impl InboxQuery {
    /// The newest rows of an organization, all of them looked at that it takes.
    pub fn newest(organization: OrganizationId, limit: u32) -> Self {
        let (source, state, key, route, before) = Default::default();
        Self { organization, source, state, key, route, before, limit, look_at: u32::MAX }
    }
}

/// How far a search of the inbox came: a row's place, and when it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// The place.
    pub position: RowPosition,
    /// When the row there was received.
    pub received_at: Timestamp,
}

/// A row's place in the inbox, newest first: its number, which the store gives in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition(pub i64);

/// An inbox row in a list.
#[derive(Debug, Clone)]
pub struct InboxRowView {
    /// Its place.
    pub position: RowPosition,
    /// From which provider.
    pub provider: String,
    /// Through which source.
    pub source: String,
    /// The provider's id of the delivery.
    pub delivery: String,
    /// The event's type; empty if not known.
    pub event_type: String,
    /// The business key; empty if not known.
    pub key: String,
    /// When the provider sent it out (or when we got it, if the provider does not say).
    pub timestamp: Timestamp,
    /// When it came.
    pub received_at: Timestamp,
    /// How it stands.
    pub state: RowState,
    /// Why it is parked or quarantined, or was discarded then; empty otherwise.
    pub reason: String,
}

/// An inbox row in full.
#[derive(Debug, Clone)]
pub struct InboxRowDetail {
    /// What a list shows.
    pub row: InboxRowView,
    /// The bytes as they came.
    pub body: Bytes,
    /// What was kept beside them, of a quarantined row; see [`Quarantined::headers`](super::Quarantined::headers).
    pub headers: Bytes,
    /// Its effects, by route.
    pub effects: Vec<EffectView>,
}

/// How a row stands with one route.
#[derive(Debug, Clone)]
pub struct EffectView {
    /// Which route.
    pub route: String,
    /// How it stands.
    pub state: EffectState,
    /// Failures so far.
    pub failures: u32,
    /// When its lane is due (schedule clock); only while it waits and the lane is not leased.
    pub next_attempt_at: Option<Timestamp>,
    /// The last error, or what the destination did.
    pub detail: String,
    /// When it ended, by the wall clock.
    pub ended_at: Option<Timestamp>,
}
