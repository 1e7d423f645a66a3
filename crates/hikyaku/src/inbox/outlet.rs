//! A route as it runs: its destination, its slots, and what it remembers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::{Verdict, Version, judge};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::destination::Destination;
use super::fetch::Fetcher;
use super::{LastError, Once, Order, Route, RouteStatus};
use crate::store::{EffectState, WorkRow};

/// A route with its destination and its slots.
pub(super) struct Outlet {
    pub(super) organization: OrganizationId,
    pub(super) route: Route,
    pub(super) destination: Arc<dyn Destination>,
    /// Reads the present state, where the source's provider can be asked.
    pub(super) fetcher: Option<Arc<Fetcher>>,
    /// Lanes under way.
    pub(super) busy: AtomicU32,
    last_error: Mutex<Option<LastError>>,
}

impl Outlet {
    pub(super) fn new(
        organization: OrganizationId,
        route: Route,
        destination: Arc<dyn Destination>,
        fetcher: Option<Arc<Fetcher>>,
    ) -> Self {
        Self { organization, route, destination, fetcher, busy: AtomicU32::new(0), last_error: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.route.name
    }

    pub(super) fn organization(&self) -> &OrganizationId {
        &self.organization
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
