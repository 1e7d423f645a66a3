//! A route as it runs: its destination, its slots, and what it remembers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::{Verdict, Version, judge};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::destination::Destination;
use super::fetch::Fetcher;
use super::refresh::Absences;
use super::{LastError, Once, Order, Route, RouteStatus};
use crate::store::{EffectState, WorkRow};

/// Most rows that one reading of a present state covers. They come without their bodies, but for the newest one's.
const ROWS_PER_READING: u32 = 500;

/// How much of a lane is taken at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Portion {
    pub(super) rows_each: u32,
    pub(super) last_body_only: bool,
}

/// A route with its destination and its slots.
pub(super) struct Outlet {
    pub(super) organization: OrganizationId,
    pub(super) route: Route,
    pub(super) destination: Arc<dyn Destination>,
    /// What reads present states, by the source's name, where its provider can be asked.
    fetchers: Vec<(String, Arc<Fetcher>)>,
    /// Lanes under way.
    pub(super) busy: AtomicU32,
    /// Keys that its source's provider does not have.
    pub(super) absences: Absences,
    last_error: Mutex<Option<LastError>>,
}

impl Outlet {
    pub(super) fn new(
        organization: OrganizationId,
        route: Route,
        destination: Arc<dyn Destination>,
        fetchers: Vec<(String, Arc<Fetcher>)>,
    ) -> Self {
        let (busy, absences, last_error) = Default::default();
        Self { organization, route, destination, fetchers, busy, absences, last_error }
    }

    pub(super) fn name(&self) -> &str {
        &self.route.name
    }

    /// What reads the present state for a row that came through this source. A source that is gone is of the same provider
    /// as the others, and the first of them is asked.
    pub(super) fn fetcher(&self, source: &str) -> Option<&Arc<Fetcher>> {
        let own = self.fetchers.iter().find(|(name, _)| name == source);
        own.or(self.fetchers.first()).map(|(_, fetcher)| fetcher)
    }

    pub(super) fn organization(&self) -> &OrganizationId {
        &self.organization
    }

    /// How much of a lane it takes at a time: all that one reading covers, or as many rows as the destination says.
    pub(super) fn portion(&self) -> Portion {
        match self.route.order {
            Order::Fetch => Portion { rows_each: ROWS_PER_READING, last_body_only: true },
            _ => Portion { rows_each: self.destination.rows_at_a_time(), last_body_only: false },
        }
    }

    pub(super) fn status(&self) -> RouteStatus {
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        RouteStatus { route: self.route.clone(), under_way: self.busy.load(Ordering::Acquire), last_error }
    }

    pub(super) fn failed(&self, at: Timestamp, delivery: &str, error: &str) {
        let error = LastError { at, delivery: delivery.to_owned(), error: error.to_owned() };
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// Whether it matters to this route what took effect on a row's key before.
    pub(super) fn remembers(&self, row_key: &str) -> bool {
        !row_key.is_empty() && (self.route.order != Order::Every || self.route.once == Once::Key)
    }

    /// How a row ends without a word to the destination, if what took effect before says so (C4, T5).
    pub(super) fn ends_without_effect(
        &self,
        applied: Option<&Version>,
        row: &WorkRow,
    ) -> Option<(EffectState, String)> {
        if !self.remembers(&row.key) {
            return None;
        }
        match judge(applied, &row.version) {
            Verdict::Same => Some((EffectState::Done, "it took effect before".to_owned())),
            _ if self.route.once == Once::Key && applied.is_some() => {
                Some((EffectState::Stale, "its key had its one effect before".to_owned()))
            }
            Verdict::Stale if self.route.order == Order::Latest => {
                Some((EffectState::Stale, "a newer event of its key took effect before".to_owned()))
            }
            _ => None,
        }
    }
}

/// A lane's slot in its route. It is given back and the loop woken however the lane's task ends, a panic included.
pub(super) struct Slot {
    pub(super) outlet: Arc<Outlet>,
    pub(super) wake: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.outlet.busy.fetch_sub(1, Ordering::AcqRel);
        self.wake.notify_one();
    }
}
