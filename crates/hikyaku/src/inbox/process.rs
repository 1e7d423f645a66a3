//! The way out: takes due lanes under a lease, lets their rows take effect in order, and writes what came of it (C15).
//!
//! One loop looks in the store, on a nudge and by the clock; recovery after a crash is the same path. A lane's rows take
//! effect one after another, lanes side by side, and a route's lanes take no other route's slots. What came of a row is written before the next one is
//! begun, unless the destination commits with its effects that they were made: a crash repeats what was under way, and
//! no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::destination::Effect;
use super::outlet::{Outlet, Portion, Slot};
use super::{Inbox, Order, metrics};
use crate::clock;
use crate::crash;
use crate::store::{
    Backlog, ClaimedLane, EffectState, EndedRow, FinishLane, FinishOutcome, LaneClaim, LaneKey, Lease, RetryRow,
    WorkRow,
};
use crate::trace;

/// The pause after the store did not answer a claim.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);
/// What a lease holds beyond the effects, for writing what came of them.
const LEASE_SPARE: Duration = Duration::from_secs(10);
/// How often the end of a lane's work is handed to a store that does not take it.
const FINISH_TRIES: u32 = 5;
/// The pause after the first of those tries; it doubles, and all of them together stay below [`LEASE_SPARE`].
const FINISH_PAUSE: Duration = Duration::from_millis(100);
/// The longest wait that a destination may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A lane's work as far as it has come.
pub(super) struct Progress {
    pub(super) applied: Option<Version>,
    pub(super) ended: Vec<EndedRow>,
    pub(super) retry: Option<RetryRow>,
    /// Whether the lane waits with that row because it was not its turn, and not because it failed.
    pub(super) postponed: bool,
}

impl Inbox {
    /// Works off what is due until `stop`; then claims nothing more, and returns when what is under way has ended.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        self.warn_of_stranded().await;
        let lanes = TaskTracker::new();
        while !stop.is_cancelled() {
            let pause = self.claim(&lanes, &stop).await;
            tokio::select! {
                biased; // the order is no matter, but a simulation must be able to repeat itself
                () = stop.cancelled() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        lanes.close();
        lanes.wait().await;
    }

    /// Says what waits for nobody: the work of a route that was renamed or removed, which would otherwise wait in silence.
    async fn warn_of_stranded(&self) {
        match self.store.backlog().await {
            Ok(backlog) => self.stranded(&backlog).for_each(|(organization, route, keys)| {
                tracing::warn!(
                    organization,
                    route,
                    keys,
                    "work waits for a route that the configuration does not have; it goes on when a route of this name \
                     is back"
                );
            }),
            Err(error) => tracing::warn!(%error, "could not look for work of routes that are gone"),
        }
    }

    /// The routes with work that this inbox does not have, and how many keys wait for each.
    pub(super) fn stranded<'a>(&self, backlog: &'a Backlog) -> impl Iterator<Item = (&'a str, &'a str, u64)> {
        let is_ours = |organization: &OrganizationId, route: &str| {
            self.outlets.get(route).is_some_and(|outlet| outlet.organization == *organization)
        };
        let lanes = backlog.lanes.iter().filter(move |((organization, route), _)| !is_ours(organization, route));
        lanes.map(|((organization, route), keys)| (organization.as_str(), route.as_str(), *keys))
    }

    /// Looks once for due lanes and starts them; returns how long to wait for more.
    async fn claim(self: &Arc<Self>, lanes: &TaskTracker, stop: &CancellationToken) -> Duration {
        let mut pause = self.settings.look_every;
        for (portion, slots) in self.free_slots() {
            pause = pause.min(self.claim_of(portion, slots, lanes, stop).await);
        }
        pause
    }

    /// The same for the routes that take such portions.
    async fn claim_of(
        self: &Arc<Self>,
        portion: Portion,
        slots: Vec<(OrganizationId, String, u32)>,
        lanes: &TaskTracker,
        stop: &CancellationToken,
    ) -> Duration {
        let now = self.clock.schedule();
        let effect = self.settings.effect_timeout;
        // A row begun at the last moment still ends, and is written, within the lease.
        let last_start = now.checked_add(effect).unwrap_or(now);
        let lease = Lease { owner: self.owner.clone(), duration: effect * 2 + LEASE_SPARE };
        let Portion { rows_each, last_body_only } = portion;
        let until = now.saturating_add(self.settings.look_every).unwrap_or(Timestamp::MAX);
        match self.store.claim_lanes(LaneClaim { lease, now, until, slots, rows_each, last_body_only }).await {
            Ok(claims) => {
                if !claims.lanes.is_empty() {
                    crash::point("lane.claimed");
                }
                for lane in claims.lanes {
                    self.start(lane, last_start, lanes, stop);
                }
                clock::wait_until(&*self.clock, claims.next_due, self.settings.look_every)
            }
            Err(error) => {
                tracing::warn!(%error, "could not look for inbox work; trying again");
                CLAIM_PAUSE
            }
        }
    }

    /// The free slots of the routes, by the portions in which these take their lanes' rows.
    fn free_slots(&self) -> BTreeMap<Portion, Vec<(OrganizationId, String, u32)>> {
        let mut slots = BTreeMap::<_, Vec<_>>::new();
        for outlet in self.outlets.values() {
            let most = outlet.destination.keys_at_a_time().unwrap_or(self.settings.in_flight_per_route);
            let free = most.saturating_sub(outlet.busy.load(Ordering::Acquire));
            if free > 0 {
                let slot = (outlet.organization.clone(), outlet.route.name.clone(), free);
                slots.entry(outlet.portion()).or_default().push(slot);
            }
        }
        slots
    }

    fn start(
        self: &Arc<Self>,
        lane: ClaimedLane,
        last_start: Timestamp,
        lanes: &TaskTracker,
        stop: &CancellationToken,
    ) {
        let Some(outlet) = self.outlets.get(&lane.key.route).cloned() else { return };
        if let Some(delivery) = &lane.interrupted {
            // The cause of every effect that is seen twice though its destination took it: a crash, or a store that was away.
            tracing::warn!(
                route = outlet.name(),
                delivery,
                "work on a key was begun before and its end never written; effects it may have had are made again"
            );
            metrics::effect(outlet.name(), "interrupted");
        }
        outlet.busy.fetch_add(1, Ordering::AcqRel);
        let slot = Slot { outlet, wake: self.wake.clone() };
        let (inbox, stop) = (self.clone(), stop.clone());
        lanes.spawn(async move {
            inbox.work(&slot.outlet, lane, last_start, &stop).await;
        });
    }

    /// Works a lane off and writes what came of it.
    async fn work(&self, outlet: &Outlet, lane: ClaimedLane, last_start: Timestamp, stop: &CancellationToken) {
        let mut progress = Progress { applied: lane.applied, ended: Vec::new(), retry: None, postponed: false };
        let remembers = lane.rows.first().is_some_and(|row| outlet.remembers(&row.key));
        match outlet.route.order {
            _ if stop.is_cancelled() => {}
            Order::Fetch => self.refresh(outlet, &lane.key, lane.rows, &mut progress).await,
            _ => self.work_rows(outlet, &lane.key, lane.rows, last_start, stop, &mut progress).await,
        }
        let finish = FinishLane {
            key: lane.key,
            owner: self.owner.clone(),
            claim: lane.claim,
            ended: progress.ended,
            retry: progress.retry,
            applied: progress.applied.filter(|_| remembers),
            at: self.clock.now(),
            now: self.clock.schedule(),
        };
        self.finish(finish, if progress.postponed { "postponed" } else { "failed" }).await;
    }

    /// Works rows off, one after another.
    async fn work_rows(
        &self,
        outlet: &Outlet,
        lane: &LaneKey,
        rows: Vec<WorkRow>,
        last_start: Timestamp,
        stop: &CancellationToken,
        progress: &mut Progress,
    ) {
        for row in rows {
            // The first row is always begun: the lease is fresh, and a lane must get on.
            let late = !progress.ended.is_empty() && self.clock.schedule() > last_start;
            if progress.retry.is_some() || late || stop.is_cancelled() {
                break;
            }
            let span = effect_span(lane, &row, self.clock.now());
            self.take(outlet, Arc::new(row), progress).await;
            end_span(span, progress);
        }
    }

    /// Lets one row take effect, or ends it without, or says when to try again.
    async fn take(&self, outlet: &Outlet, row: Arc<WorkRow>, progress: &mut Progress) {
        let ended = match outlet.ends_without_effect(progress.applied.as_ref(), &row) {
            Some((state, detail)) => Ok(end(&row, state, row.failures, detail)),
            None => self.after(outlet, &row, self.apply(outlet, row.clone()).await),
        };
        self.note(outlet, &row, ended, progress);
    }

    /// Notes how a row ended, or when it is tried again.
    pub(super) fn note(
        &self,
        outlet: &Outlet,
        row: &WorkRow,
        ended: Result<EndedRow, RetryRow>,
        progress: &mut Progress,
    ) {
        let (route, delivery) = (outlet.name(), &row.delivery);
        match ended {
            Ok(ended) => {
                if ended.state == EffectState::Dead {
                    outlet.failed(self.clock.now(), delivery, &ended.detail);
                    tracing::error!(route, delivery, detail = first_line(&ended.detail), "an inbox row is dead");
                }
                if ended.state == EffectState::Done {
                    progress.applied = progress.applied.take().max(Some(row.version.clone()));
                }
                progress.ended.push(ended);
            }
            Err(retry) => {
                let (failures, error) = (retry.failures, first_line(&retry.error));
                progress.postponed = failures == row.failures;
                if progress.postponed {
                    tracing::debug!(route, delivery, reason = error, "an effect waits for its turn");
                } else {
                    outlet.failed(self.clock.now(), delivery, &retry.error);
                    tracing::warn!(route, delivery, failures, error, "an effect failed; it is tried again");
                }
                progress.retry = Some(retry);
            }
        }
    }

    /// What follows from a destination's answer: how the row ends, or when it is tried again.
    pub(super) fn after(&self, outlet: &Outlet, row: &WorkRow, effect: Effect) -> Result<EndedRow, RetryRow> {
        let failed = row.failures.saturating_add(1);
        match effect {
            Effect::Done(detail) => Ok(end(row, EffectState::Done, row.failures, detail)),
            Effect::Stale(detail) => Ok(end(row, EffectState::Stale, row.failures, detail)),
            Effect::Refused(detail) => Ok(end(row, EffectState::Dead, failed, detail)),
            Effect::Later { pause, reason } => {
                let now = self.clock.schedule();
                let due_at = now.checked_add(pause.min(MAX_RETRY_AFTER)).unwrap_or(now);
                // What it failed with before says more than that it waits.
                let error = if row.failures == 0 { reason } else { String::new() };
                Err(RetryRow { delivery: row.delivery.clone(), failures: row.failures, error, due_at })
            }
            Effect::Failed { error, retry_after } => match self.retry_at(outlet, row, failed, retry_after) {
                Some(due_at) => Err(RetryRow { delivery: row.delivery.clone(), failures: failed, error, due_at }),
                None => {
                    let times = if failed == 1 { "failure" } else { "failures" };
                    Ok(end(row, EffectState::Dead, failed, format!("given up after {failed} {times}: {error}")))
                }
            },
        }
    }

    /// The destination's answer, by the deadline. Its own task contains a panic, which then counts as a failure.
    pub(super) async fn apply(&self, outlet: &Outlet, row: Arc<WorkRow>) -> Effect {
        let destination = outlet.destination.clone();
        crash::point("effect.begun");
        let watch = clock::Stopwatch::start();
        let task = AbortOnDropHandle::new(tokio::spawn(async move { destination.apply(&row).await }));
        let failed = |error| Effect::Failed { error, retry_after: None };
        let effect = match tokio::time::timeout(self.settings.effect_timeout, task).await {
            Ok(Ok(effect)) => effect,
            Ok(Err(_)) => failed("the destination panicked, which is a defect of this program".to_owned()),
            Err(_) => failed(format!("no end within {:?}", self.settings.effect_timeout)),
        };
        crash::point("effect.made");
        metrics::destination(outlet.name(), &effect, watch.elapsed());
        effect
    }

    /// When a row that failed is tried again; `None` when it is time to give up.
    fn retry_at(
        &self,
        outlet: &Outlet,
        row: &WorkRow,
        failures: u32,
        retry_after: Option<Duration>,
    ) -> Option<Timestamp> {
        let now = self.clock.schedule();
        let backoff = outlet.route.backoff.unwrap_or(self.settings.backoff);
        let planned = backoff.next(failures, row.due_since, now, clock::draw())?;
        let asked = now.checked_add(retry_after.unwrap_or_default().min(MAX_RETRY_AFTER)).ok()?;
        Some(planned.max(asked))
    }

    /// Writes the end of a lane's work under its lease; `waits` is how the row is counted that waits. If the store never takes it, the lease ends and the rows are
    /// worked off again, with the same delivery ids. Every error is tried again: it may be of another write in the same
    /// commit.
    async fn finish(&self, finish: FinishLane, waits: &'static str) {
        let mut pause = FINISH_PAUSE;
        for try_number in 1..=FINISH_TRIES {
            match self.committer.finish_lane(finish.clone()).await {
                Ok(FinishOutcome::Applied { .. }) => {
                    crash::point("lane.committed");
                    return count(&finish, waits);
                }
                Ok(FinishOutcome::LeaseLost) => {
                    return tracing::warn!(
                        route = finish.key.route,
                        "a lane's lease was lost before its end was written"
                    );
                }
                Err(error) => {
                    tracing::warn!(route = finish.key.route, %error, try_number, "could not write the end of a lane")
                }
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
}

pub(super) fn end(row: &WorkRow, state: EffectState, failures: u32, detail: String) -> EndedRow {
    EndedRow { delivery: row.delivery.clone(), state, failures, detail }
}

/// An effect in its row's trace.
pub(super) fn effect_span(lane: &LaneKey, row: &WorkRow, now: Timestamp) -> trace::Span {
    if !trace::is_on() {
        return trace::Span::none();
    }
    let received = trace::Context::of(trace::ROW, &[lane.organization.as_str(), &lane.provider, &row.delivery]);
    let mut span = trace::Span::start("effect", trace::Kind::Internal, received.child(), Some(received), now);
    span.tell("hikyaku.organization", lane.organization.as_str());
    span.tell("hikyaku.route", &lane.route);
    span.tell("hikyaku.delivery.id", &row.delivery);
    span
}

pub(super) fn end_span(mut span: trace::Span, progress: &Progress) {
    match (&progress.retry, progress.ended.last()) {
        (Some(_), _) if progress.postponed => {}
        (Some(retry), _) => span.fail(first_line(&retry.error)),
        (None, Some(ended)) => span.tell("hikyaku.effect.state", ended.state.as_str()),
        (None, None) => {}
    }
    span.end();
}

/// The part of an explanation that may stand in the log; what follows may quote what a program or a server said (S19).
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// `waits` says of a row that waits whether it failed.
fn count(finish: &FinishLane, waits: &'static str) {
    let states = finish.ended.iter().map(|row| row.state.as_str()).chain(finish.retry.iter().map(|_| waits));
    for state in states {
        metrics::effect(&finish.key.route, state);
    }
}
