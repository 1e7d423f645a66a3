//! How much waits in the inbox.

use std::collections::BTreeMap;

use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;

use super::inbox::{Inbox, row_key};
use crate::store::RouteBacklog;

impl Inbox {
    /// How many effects wait, and when the oldest is or was due.
    pub(super) fn backlog(&self) -> (u64, Option<Timestamp>) {
        let effects = self.lanes.values().map(|lane| lane.work.len() as u64).sum();
        (effects, self.lanes.values().map(|lane| lane.due_at).min())
    }

    /// What waits for each route.
    pub(super) fn routes(&self) -> BTreeMap<(OrganizationId, String), RouteBacklog> {
        let mut routes = BTreeMap::<_, RouteBacklog>::new();
        for (key, lane) in &self.lanes {
            let route = routes.entry((key.organization.clone(), key.route.clone())).or_default();
            for row in lane.work.iter().filter_map(|(_, delivery)| self.rows.get(&row_key(key, delivery))) {
                route.effects += 1;
                route.failing += u64::from(row.effects.get(&key.route).is_some_and(|effect| effect.failures > 0));
                route.oldest = route.oldest.into_iter().chain([row.new.due_at]).min();
            }
        }
        routes
    }

    /// How many lanes of each route have work.
    pub(super) fn lanes_by_route(&self) -> BTreeMap<(OrganizationId, String), u64> {
        let mut lanes = BTreeMap::new();
        for key in self.lanes.keys() {
            *lanes.entry((key.organization.clone(), key.route.clone())).or_default() += 1;
        }
        lanes
    }
}
