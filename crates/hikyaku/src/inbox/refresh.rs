//! One reading for many rows (C3): a route whose order is `fetch` takes every event as "something changed", and gives
//! its destination what the provider says now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hikyaku_core::ordering::{Rank, Verdict, Version, judge};

use super::destination::Effect;
use super::fetch::Fetched;
use super::outlet::Outlet;
use super::process::{Progress, effect_span, end, end_span};
use super::{Inbox, Once, metrics};
use crate::store::{EffectState, LaneKey, WorkRow};

/// Readings in a row after which a state that the provider does not have is given up; with the default pauses about a
/// minute. A provider that announces an object before its API knows it gets so long.
const MAX_TRIES_OF_GONE: u32 = 6;
/// Most keys of a route of which it is counted that the provider does not have them. What is beyond waits until its route
/// gives up.
const MAX_ABSENT_KEYS: usize = 10_000;

/// How often in a row the provider did not have an object. Failures of another kind, like an outage of its API, are none
/// of these. It is not stored: another process counts anew.
#[derive(Default)]
pub(super) struct Absences(Mutex<BTreeMap<LaneKey, u32>>);

impl Absences {
    /// The provider does not have it, once more.
    fn add(&self, lane: &LaneKey) -> u32 {
        let mut absent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if absent.len() >= MAX_ABSENT_KEYS && !absent.contains_key(lane) {
            return 1;
        }
        let times = absent.entry(lane.clone()).or_default();
        *times += 1;
        *times
    }

    /// Another answer came, or there will be no further reading for this one.
    fn end(&self, lane: &LaneKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(lane);
    }
}

impl Inbox {
    /// Lets a lane's rows, oldest version first, take effect as one: a reading that begins after all of them came, given
    /// to the destination with the newest one's metadata. What comes meanwhile stays in the lane and brings another
    /// reading.
    pub(super) async fn refresh(&self, outlet: &Outlet, lane: &LaneKey, rows: Vec<WorkRow>, progress: &mut Progress) {
        let Some(newest) = rows.last() else { return };
        let span = effect_span(lane, newest, self.clock.now());
        self.refresh_with(outlet, lane, newest, &rows, progress).await;
        end_span(span, progress);
    }

    async fn refresh_with(
        &self,
        outlet: &Outlet,
        lane: &LaneKey,
        newest: &WorkRow,
        rows: &[WorkRow],
        progress: &mut Progress,
    ) {
        if outlet.route.once == Once::Key && progress.applied.is_some() && outlet.remembers(&newest.key) {
            let detail = "its key had its one effect before";
            progress.ended.extend(rows.iter().map(|row| end(row, EffectState::Stale, row.failures, detail.to_owned())));
            return;
        }
        let row = WorkRow {
            version: version_of_reading(progress.applied.as_ref(), &newest.version),
            // They fail together, and are given up when the one that came last would be.
            failures: rows.iter().map(|row| row.failures).max().unwrap_or_default(),
            due_since: rows.iter().map(|row| row.due_since).max().unwrap_or(newest.due_since),
            ..newest.clone()
        };
        let effect = self.read_and_apply(outlet, lane, &row).await;
        let ended = self.after(outlet, &row, effect);
        if ended.is_ok() {
            outlet.absences.end(lane);
        }
        if let Ok(ended) = &ended {
            let others = rows.iter().filter(|other| other.delivery != row.delivery);
            let detail = format!("covered by the reading for delivery {:?}: {}", row.delivery, ended.detail);
            progress.ended.extend(others.map(|other| end(other, ended.state, ended.failures, detail.clone())));
        }
        self.note(outlet, &row, ended, progress);
    }

    async fn read_and_apply(&self, outlet: &Outlet, lane: &LaneKey, row: &WorkRow) -> Effect {
        let Some(fetcher) = outlet.fetcher(&row.source) else {
            return Effect::Refused("the source has no `fetch` settings any more".to_owned());
        };
        let fetched = fetcher.fetch(row).await;
        metrics::reading(&fetched);
        if !matches!(fetched, Fetched::Gone(_)) {
            outlet.absences.end(lane);
        }
        match fetched {
            Fetched::State(body) => self.apply(outlet, Arc::new(WorkRow { body, ..row.clone() })).await,
            Fetched::Gone(reason) => of_gone(row, reason, outlet.absences.add(lane)),
            Fetched::Failed { error, retry_after } => Effect::Failed { error, retry_after },
            Fetched::Unaskable(reason) => Effect::Refused(reason),
        }
    }
}

/// What it means that the provider does not have an object: nothing, where the event says that it ended. Everywhere else
/// the address may be wrong, which must not pass in silence.
fn of_gone(row: &WorkRow, reason: String, times: u32) -> Effect {
    if row.version.rank == Rank::Ended {
        return Effect::Stale(format!("{reason}, and the event says that it ended"));
    }
    match times < MAX_TRIES_OF_GONE {
        true => Effect::Failed { error: reason, retry_after: None },
        false => Effect::Refused(reason),
    }
}

/// The version of a state that was read because of an event: the event's. Where one took effect that is not older, the
/// smallest one after it: the state is newer all the same, because it was read later.
fn version_of_reading(applied: Option<&Version>, newest: &Version) -> Version {
    match (judge(applied, newest), applied) {
        (Verdict::Same | Verdict::Stale, Some(applied)) => {
            Version { micros: applied.micros.saturating_add(1), ..newest.clone() }
        }
        _ => newest.clone(),
    }
}
