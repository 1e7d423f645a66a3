//! Received deliveries on their way to destinations.

use std::sync::Arc;

use bytes::Bytes;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

use super::{EffectState, Lease, NewRow};

/// The queue of one business key within one route: its rows take effect one after another. A row without a key has a
/// lane of its own, named by its delivery id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// Whose.
    pub organization: OrganizationId,
    /// Which route.
    pub route: String,
    /// The provider of the lane's rows.
    pub provider: String,
    /// The business key: `k:` and the key, or `d:` and the delivery id of a row without one.
    pub lane: String,
}

impl LaneKey {
    /// The lane in which a row takes effect through `route`.
    pub fn of(row: &NewRow, route: &str) -> Self {
        Self::in_route(&row.organization, route, &row.provider, &row.key, &row.delivery)
    }

    /// The lane in which a delivery of this business key (or with an empty one) takes effect through `route`.
    pub fn in_route(organization: &OrganizationId, route: &str, provider: &str, key: &str, delivery: &str) -> Self {
        let lane = if key.is_empty() { format!("d:{delivery}") } else { format!("k:{key}") };
        Self { organization: organization.clone(), route: route.to_owned(), provider: provider.to_owned(), lane }
    }
}

/// Which lanes to take.
#[derive(Debug, Clone)]
pub struct LaneClaim {
    /// The lease to take them under.
    pub lease: Lease,
    /// The schedule clock.
    pub now: Timestamp,
    /// The schedule clock: what is due later than this need not be told, because whoever claims looks again before.
    pub until: Timestamp,
    /// Free slots per organization and route.
    pub slots: Vec<(OrganizationId, String, u32)>,
    /// The most rows to take of one lane.
    pub rows_each: u32,
    /// Whether of each lane only the last of these rows needs its body; the others then have an empty one.
    pub last_body_only: bool,
}

/// What a claim of lanes brought.
#[derive(Debug, Clone, Default)]
pub struct LaneClaims {
    /// The lanes taken.
    pub lanes: Vec<ClaimedLane>,
    /// When the earliest lane of these routes is due that is not due yet, by the schedule clock.
    pub next_due: Option<Timestamp>,
}

/// A lane under lease.
#[derive(Debug, Clone)]
pub struct ClaimedLane {
    /// Which lane.
    pub key: LaneKey,
    /// Another one at every claim of this lane key, also after the lane was empty; with the owner it is the lease's token.
    pub claim: u64,
    /// The newest version of this key that took effect through this route, if any did.
    pub applied: Option<Version>,
    /// The delivery that was first at an earlier claim of which no end was written, if it still waits: it may have taken
    /// effect. The claim has counted that as a failure of it.
    pub interrupted: Option<String>,
    /// The lane's first rows, oldest version first.
    pub rows: Vec<WorkRow>,
}

/// What a row that was interrupted shows as its last failure.
pub const EFFECT_INTERRUPTED: &str = "interrupted: the process ended, or lost its lease, before the end of this effect was written; it may have taken \
     place, and is made again";

/// One row of a lane, with all that a destination needs.
#[derive(Debug, Clone)]
pub struct WorkRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// Through which source it came.
    pub source: String,
    /// The event's type; empty if not known.
    pub event_type: String,
    /// The business key; empty if not known.
    pub key: String,
    /// The event's place in its object's history.
    pub version: Version,
    /// Attempts at this row's effect that failed before.
    pub failures: u32,
    /// When it was received, by the wall clock.
    pub received_at: Timestamp,
    /// When it was received, or was given another beginning by somebody, by the schedule clock.
    pub due_since: Timestamp,
    /// The bytes as they came.
    pub body: Bytes,
}

/// What was done with a lane, to be written under its lease. Rows that are in neither part stay, due at once.
#[derive(Debug, Clone)]
pub struct FinishLane {
    /// Which lane.
    pub key: LaneKey,
    /// Who held the lease.
    pub owner: Arc<str>,
    /// Which claim.
    pub claim: u64,
    /// Rows that have ended.
    pub ended: Vec<EndedRow>,
    /// A row that failed, and when to try again (schedule clock); the lane waits until then, to keep its order.
    pub retry: Option<RetryRow>,
    /// The newest version that has taken effect by now, if that is to be remembered; it outlives the lane, and an older
    /// one than is remembered changes nothing.
    pub applied: Option<Version>,
    /// The wall clock.
    pub at: Timestamp,
    /// The schedule clock: rows that are left and not waiting for a retry are due from here on.
    pub now: Timestamp,
}

/// A row whose effect through one route has ended.
#[derive(Debug, Clone)]
pub struct EndedRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// How it ended.
    pub state: EffectState,
    /// Failures in all, the last one included.
    pub failures: u32,
    /// For people: what the destination did, or why it gave up.
    pub detail: String,
}

/// A row whose effect failed and is tried again.
#[derive(Debug, Clone)]
pub struct RetryRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// Failures so far, this one included.
    pub failures: u32,
    /// For people: what went wrong. Empty: what went wrong before stays to be seen.
    pub error: String,
    /// When to try again, by the schedule clock.
    pub due_at: Timestamp,
}
