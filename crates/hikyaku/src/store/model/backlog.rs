//! How much waits, and what keeps the store from cleaning up.

use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;

/// How much waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries that wait, those under way included.
    pub deliveries: u64,
    /// Those of them that are under a lease, as a rule because an attempt is under way.
    pub deliveries_leased: u64,
    /// When the earliest of them is or was due, by the schedule clock; a lease counts as due when it ends.
    pub oldest_delivery_due: Option<Timestamp>,
    /// Deliveries that are held until their webhook is switched on.
    pub deliveries_held: u64,
    /// Inbox rows' effects that wait, those under way included.
    pub effects: u64,
    /// When the earliest of their lanes is or was due, by the schedule clock; a lease counts as due when it ends.
    pub oldest_effect_due: Option<Timestamp>,
    /// How many of those lanes each route has, also one that no configuration names any more.
    pub lanes: BTreeMap<(OrganizationId, String), u64>,
    /// What waits for each route, also for one that no configuration names any more.
    pub routes: BTreeMap<(OrganizationId, String), RouteBacklog>,
    /// Webhooks that are off.
    pub webhooks_off: u64,
}

/// How much waits for one route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteBacklog {
    /// Effects that wait, those under way included.
    pub effects: u64,
    /// Those of them that have failed before.
    pub failing: u64,
    /// When the oldest of their rows was received, by the schedule clock.
    pub oldest: Option<Timestamp>,
}

/// What keeps the store from cleaning up what has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// How long the oldest transaction of anybody has been open, as far as the store may see it.
    pub oldest_transaction: Option<Duration>,
    /// Rows of what waits that have ended and are still there, as the store estimates.
    pub ended_rows: u64,
}
