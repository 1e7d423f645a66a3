//! Rows that were received, and the lanes in which they take effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

use crate::store::{
    ClaimedLane, EFFECT_INTERRUPTED, EffectState, EffectView, EndedRow, FinishLane, FinishOutcome, Found, InboxPlace,
    InboxQuery, InboxRowDetail, InboxRowView, LaneClaim, LaneClaims, LaneKey, NewRow, RecordOutcome, RetryRow,
    RowPlace, RowPosition, RowState, VersionPlace, WorkRow,
};

/// Organization, provider and the provider's id.
pub(super) type RowKey = (OrganizationId, String, String);

#[derive(Debug, Clone, Default)]
pub(super) struct Inbox {
    pub(super) rows: BTreeMap<RowKey, Row>,
    /// The ids of the rows of each organization's, provider's and business key.
    pub(super) by_key: BTreeMap<RowKey, BTreeSet<String>>,
    /// Rows ever recorded: a place is given once.
    recorded: i64,
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    /// The newest version that took effect, and when, by organization, provider and lane, and then by route; outlives the
    /// lane.
    pub(super) applied: BTreeMap<RowKey, BTreeMap<String, (Version, Timestamp)>>,
    /// Ids that outlived their rows, with when they came.
    known_ids: BTreeMap<RowKey, Timestamp>,
    /// Claims ever made: a lane that ended and began anew must not give out an old token again.
    claims: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) position: RowPosition,
    pub(super) new: NewRow,
    pub(super) effects: BTreeMap<String, Effect>,
    /// How it stands while it has no effects.
    pub(super) bare: RowState,
    /// What is kept of it beside the body while it is quarantined.
    pub(super) headers: Bytes,
}

#[derive(Debug, Clone)]
pub(super) struct Effect {
    pub(super) state: EffectState,
    pub(super) failures: u32,
    pub(super) detail: String,
    pub(super) ended_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// From when anyone may act on it: the retry's time or, while leased, the lease's end.
    pub(super) due_at: Timestamp,
    pub(super) leased: Option<(Arc<str>, u64)>,
    /// The first and the last row of those that it was taken for; `None` when they were finished.
    taken: Option<(Place, Place)>,
    /// The waiting rows.
    pub(super) work: BTreeSet<Place>,
}

/// A row's place in its key's history: its version, and its delivery id.
pub(super) type Place = (Version, String);

impl Lane {
    /// Whether a row at this place is one of those that a lease which lasts was taken for.
    pub(super) fn has_taken(&self, place: &Place, now: Timestamp) -> bool {
        let lasts = self.leased.is_some() && self.due_at > now;
        lasts && self.taken.as_ref().is_some_and(|(first, last)| (first..=last).contains(&place))
    }

    /// Ends a lease that has ended, or a pause: another may act on the lane now.
    pub(super) fn free(&mut self, now: Timestamp) {
        if self.leased.is_none() || self.due_at <= now {
            (self.leased, self.due_at) = (None, self.due_at.min(now));
        }
    }
}

impl Inbox {
    pub(super) fn record(&mut self, new: NewRow) -> RecordOutcome {
        let key = (new.organization.clone(), new.provider.clone(), new.delivery.clone());
        if self.rows.contains_key(&key) || self.known_ids.contains_key(&key) {
            return RecordOutcome::Duplicate;
        }
        let (routes, now) = (new.routes.clone(), new.due_at);
        self.put(key.clone(), new, RowState::Parked, Bytes::new());
        self.begin(&key, &routes, now);
        RecordOutcome::Stored
    }

    pub(super) fn put(&mut self, key: RowKey, new: NewRow, bare: RowState, headers: Bytes) {
        self.recorded += 1;
        let position = RowPosition(self.recorded);
        self.by_key.entry(business_key(&new)).or_default().insert(new.delivery.clone());
        self.rows.insert(key, Row { position, new, effects: BTreeMap::new(), bare, headers });
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, key: &RowKey) -> Option<Row> {
        let row = self.rows.remove(key)?;
        let of = business_key(&row.new);
        if let Some(ids) = self.by_key.get_mut(&of) {
            ids.remove(&row.new.delivery);
            if ids.is_empty() {
                self.by_key.remove(&of);
            }
        }
        Some(row)
    }

    /// Makes a row's work of these routes due. A lane that is leased or backs off keeps its time.
    pub(super) fn begin(&mut self, key: &RowKey, routes: &[String], now: Timestamp) {
        let Some(row) = self.rows.get_mut(key) else { return };
        for route in routes {
            let waiting = Effect { state: EffectState::Waiting, failures: 0, detail: String::new(), ended_at: None };
            row.effects.insert(route.clone(), waiting);
            let fresh = || Lane { due_at: now, leased: None, taken: None, work: BTreeSet::new() };
            let lane = self.lanes.entry(LaneKey::of(&row.new, route)).or_insert_with(fresh);
            lane.work.insert((row.new.version.clone(), row.new.delivery.clone()));
        }
    }

    pub(super) fn claim(&mut self, claim: &LaneClaim) -> LaneClaims {
        let mut claims = LaneClaims::default();
        for (organization, route, slots) in &claim.slots {
            let mut due: Vec<(Timestamp, LaneKey)> = self
                .lanes
                .iter()
                .filter(|(key, lane)| {
                    key.organization == *organization && key.route == *route && lane.due_at <= claim.now
                })
                .map(|(key, lane)| (lane.due_at, key.clone()))
                .collect();
            due.sort();
            claims.lanes.extend(due.into_iter().take(*slots as usize).filter_map(|(_, key)| self.lease(key, claim)));
        }
        let asked = |key: &LaneKey| {
            claim.slots.iter().any(|(organization, route, _)| *organization == key.organization && *route == key.route)
        };
        let later = self.lanes.iter().filter(|(key, lane)| asked(key) && lane.due_at > claim.now);
        claims.next_due = later.map(|(_, lane)| lane.due_at).min();
        claims
    }

    fn lease(&mut self, key: LaneKey, claim: &LaneClaim) -> Option<ClaimedLane> {
        self.claims += 1;
        let lane = self.lanes.get_mut(&key)?;
        lane.leased = Some((claim.lease.owner.clone(), self.claims));
        lane.due_at = claim.now.saturating_add(claim.lease.duration).unwrap_or(Timestamp::MAX);
        let first: Vec<_> = lane.work.iter().take(claim.rows_each as usize).cloned().collect();
        let taken = first.first().cloned().zip(first.last().cloned());
        let begun = std::mem::replace(&mut lane.taken, taken).map(|((_, delivery), _)| delivery);
        let interrupted = begun.filter(|delivery| {
            let left = waiting_effect(&mut self.rows, &key, delivery);
            left.map(|(_, effect)| {
                (effect.failures, effect.detail) = (effect.failures + 1, EFFECT_INTERRUPTED.to_owned())
            })
            .is_some()
        });
        let rows =
            first.iter().filter_map(|(_, delivery)| work_row(self.rows.get(&row_key(&key, delivery))?, &key.route));
        let mut rows: Vec<_> = rows.collect();
        if claim.last_body_only {
            rows.iter_mut().rev().skip(1).for_each(|row| row.body.clear());
        }
        Some(ClaimedLane {
            applied: self.applied(&key).map(|(version, _)| version.clone()),
            key,
            claim: self.claims,
            interrupted,
            rows,
        })
    }

    pub(super) fn finish(&mut self, finish: FinishLane) -> FinishOutcome {
        let FinishLane { key, owner, claim, ended, retry, applied, at, now } = finish;
        let Some(lane) = self
            .lanes
            .get_mut(&key)
            .filter(|lane| lane.leased.as_ref().is_some_and(|(by, n)| *by == owner && *n == claim))
        else {
            return FinishOutcome::LeaseLost;
        };
        (lane.leased, lane.taken) = (None, None);
        lane.due_at = retry.as_ref().map_or(now, |retry| retry.due_at);
        for EndedRow { delivery, state, failures, detail } in ended {
            let Some((row, effect)) = waiting_effect(&mut self.rows, &key, &delivery) else { continue };
            lane.work.remove(&(row.clone(), delivery));
            *effect = Effect { state, detail, ended_at: Some(at), failures };
        }
        if let Some(RetryRow { delivery, failures, error, .. }) = retry
            && let Some((_, effect)) = waiting_effect(&mut self.rows, &key, &delivery)
        {
            effect.failures = failures;
            if !error.is_empty() {
                effect.detail = error;
            }
        }
        if lane.work.is_empty() {
            self.lanes.remove(&key);
        }
        if let Some(version) = applied {
            let of_routes = self.applied.entry(whatever_route(&key)).or_default();
            let newest = of_routes.entry(key.route).or_insert_with(|| (version.clone(), now));
            if version > newest.0 {
                *newest = (version, now);
            }
        }
        FinishOutcome::Applied { switched_off: false }
    }

    pub(super) fn list(&self, query: &InboxQuery) -> Found<InboxRowView, RowPlace> {
        let wanted = |row: &InboxRowView| {
            query.source.as_ref().is_none_or(|source| *source == row.source)
                && query.state.is_none_or(|state| state == row.state)
                && query.key.as_ref().is_none_or(|key| *key == row.key)
                && query.before.is_none_or(|before| row.position < before)
        };
        let in_state = |effect: &Effect| query.state.is_none_or(|state| state.as_str() == effect.state.as_str());
        let has_route = |row: &Row, route| row.effects.get(route).is_some_and(in_state);
        let meant = self.rows.values().filter(|row| row.new.organization == query.organization);
        let meant = meant.filter(|row| query.route.as_ref().is_none_or(|route| has_route(row, route)));
        let mut rows: Vec<_> = meant.map(Row::view).filter(wanted).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.position));
        rows.truncate(query.limit as usize);
        Found { rows, searched_to: None }
    }

    pub(super) fn detail(
        &self,
        organization: &OrganizationId,
        provider: &str,
        delivery: &str,
    ) -> Option<InboxRowDetail> {
        let row = self.rows.get(&(organization.clone(), provider.to_owned(), delivery.to_owned()))?;
        let effects = row.effects.iter().map(|(route, effect)| EffectView {
            route: route.clone(),
            state: effect.state,
            failures: effect.failures,
            next_attempt_at: self.next_attempt_at(row, route, effect),
            detail: effect.detail.clone(),
            ended_at: effect.ended_at,
        });
        let (body, headers) = (row.new.body.clone(), row.headers.clone());
        Some(InboxRowDetail { row: row.view(), body, headers, effects: effects.collect() })
    }

    fn next_attempt_at(&self, row: &Row, route: &str, effect: &Effect) -> Option<Timestamp> {
        let lane = self.lanes.get(&LaneKey::of(&row.new, route))?;
        let idle = effect.state == EffectState::Waiting && lane.leased.is_none();
        idle.then_some(lane.due_at)
    }

    /// The rows that came before `before` and have no work left, as keys in the order of their age.
    pub(super) fn aged(&self, before: Timestamp) -> Vec<(InboxPlace, RowKey)> {
        let waits = |row: &Row| row.effects.values().any(|effect| effect.state == EffectState::Waiting);
        let aged = self.rows.iter().filter(|(_, row)| row.new.due_at < before && !waits(row));
        let place = |row: &Row| InboxPlace { due_since: row.new.due_at, position: row.position };
        let mut aged: Vec<_> = aged.map(|(key, row)| (place(row), key.clone())).collect();
        aged.sort();
        aged
    }

    /// Forgets a row, but not its id if that came at `ids_before` or later.
    pub(super) fn forget(&mut self, key: &RowKey, ids_before: Timestamp) {
        let row = self.remove(key);
        let young = row.map(|row| row.new.due_at).filter(|came| *came >= ids_before);
        self.known_ids.extend(young.map(|came| (key.clone(), came)));
    }

    /// The ids that outlived their rows and came before `before`, oldest first.
    pub(super) fn aged_ids(&self, before: Timestamp) -> Vec<RowKey> {
        let aged = self.known_ids.iter().filter(|(_, came)| **came < before);
        let mut aged: Vec<_> = aged.map(|(key, came)| (*came, key.clone())).collect();
        aged.sort();
        aged.into_iter().map(|(_, key)| key).collect()
    }

    /// Forgets an id.
    pub(super) fn forget_id(&mut self, key: &RowKey) {
        self.known_ids.remove(key);
    }

    /// The versions that took effect before `before`, oldest first, but for those of lanes with work.
    pub(super) fn aged_versions(&self, before: Timestamp) -> Vec<VersionPlace> {
        let of_route = |(organization, provider, lane): &RowKey, route: &String| LaneKey {
            organization: organization.clone(),
            route: route.clone(),
            provider: provider.clone(),
            lane: lane.clone(),
        };
        let all = self.applied.iter().flat_map(|(place, of_routes)| of_routes.iter().map(move |one| (place, one)));
        let aged = all.filter(|(_, (_, (_, at)))| *at < before);
        let aged = aged.map(|(place, (route, (_, at)))| VersionPlace { applied_at: *at, lane: of_route(place, route) });
        let mut aged: Vec<_> = aged.filter(|version| !self.lanes.contains_key(&version.lane)).collect();
        aged.sort();
        aged
    }

    /// Forgets a version.
    pub(super) fn forget_version(&mut self, lane: &LaneKey) {
        let place = whatever_route(lane);
        if let Some(of_routes) = self.applied.get_mut(&place) {
            of_routes.remove(&lane.route);
            if of_routes.is_empty() {
                self.applied.remove(&place);
            }
        }
    }

    fn applied(&self, lane: &LaneKey) -> Option<&(Version, Timestamp)> {
        self.applied.get(&whatever_route(lane))?.get(&lane.route)
    }
}

impl Row {
    pub(super) fn state(&self) -> RowState {
        if self.effects.is_empty() {
            return self.bare;
        }
        RowState::of(self.effects.values().map(|effect| effect.state))
    }

    fn view(&self) -> InboxRowView {
        let new = &self.new;
        InboxRowView {
            position: self.position,
            provider: new.provider.clone(),
            source: new.source.clone(),
            delivery: new.delivery.clone(),
            event_type: new.event_type.clone(),
            key: new.key.clone(),
            timestamp: Timestamp::from_microsecond(new.version.micros).unwrap_or(new.received_at),
            received_at: new.received_at,
            state: self.state(),
            reason: new.park_reason.clone(),
        }
    }
}

fn business_key(new: &NewRow) -> RowKey {
    (new.organization.clone(), new.provider.clone(), new.key.clone())
}

fn whatever_route(lane: &LaneKey) -> RowKey {
    (lane.organization.clone(), lane.provider.clone(), lane.lane.clone())
}

pub(super) fn row_key(lane: &LaneKey, delivery: &str) -> RowKey {
    (lane.organization.clone(), lane.provider.clone(), delivery.to_owned())
}

fn work_row(row: &Row, route: &str) -> Option<WorkRow> {
    let NewRow { delivery, source, event_type, key, version, received_at, due_at, body, .. } = row.new.clone();
    let failures = row.effects.get(route)?.failures;
    Some(WorkRow { delivery, source, event_type, key, version, failures, received_at, due_since: due_at, body })
}

/// The effect of a row that waits in this lane, with the row's version.
fn waiting_effect<'a>(
    rows: &'a mut BTreeMap<RowKey, Row>,
    lane: &LaneKey,
    delivery: &str,
) -> Option<(&'a Version, &'a mut Effect)> {
    let row = rows.get_mut(&row_key(lane, delivery))?;
    if LaneKey::of(&row.new, &lane.route) != *lane {
        return None;
    }
    let effect = row.effects.get_mut(&lane.route).filter(|effect| effect.state == EffectState::Waiting)?;
    Some((&row.new.version, effect))
}
