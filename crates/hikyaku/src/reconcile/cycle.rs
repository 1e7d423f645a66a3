//! A cycle: one period compared, slice by slice, each saved when it is done.

use hikyaku_core::gap::Period;
use hikyaku_core::timestamp;
use jiff::{SignedDuration, Timestamp};

use super::pass::Seen;
use super::{BUDGET_PERIOD, Stop, Worker, metrics};
use crate::outbound::Response;
use crate::provider_api::Call;
use crate::store::{Cycle, CycleCounts, OutageQuery, ReconcileState, StoreError};

impl Worker {
    /// Does what is due; returns when there is more to do, by the schedule clock.
    pub(super) async fn work(&self) -> Result<Timestamp, Stop> {
        // A webhook that cannot be looked at keeps no list from being compared.
        let watched = self.watch().await;
        loop {
            match self.begin().await? {
                Ok(cycle) => self.go_on(cycle).await?,
                Err(next_at) => return Ok(watched?.map_or(next_at, |at| at.min(next_at))),
            }
        }
    }

    /// The cycle that is open or due, or when the next one is.
    async fn begin(&self) -> Result<Result<Cycle, Timestamp>, StoreError> {
        let (now, schedule) = (self.tools.clock.now(), self.tools.clock.schedule());
        let state = self.state().await?;
        let number = match state.cycle {
            Some(cycle) if cycle.ended_at.is_none() => return Ok(Ok(cycle)),
            Some(cycle) => cycle.number + 1,
            None => 1,
        };
        let next_at = self.next_at(state.mark, now, schedule);
        let wanted = state.wanted;
        if wanted.is_none() && next_at > schedule && !self.is_after_outage(state.mark).await? {
            return Ok(Err(next_at));
        }
        let period = wanted.unwrap_or_else(|| self.next_period(state.mark, now));
        let cycle = Cycle {
            number,
            period,
            done_to: period.from,
            started_at: now,
            ended_at: None,
            counts: CycleCounts::default(),
            calls: 0,
            problem: String::new(),
        };
        let begun = cycle.clone();
        let state = self
            .change(|state| {
                // Another process may have begun this one meanwhile, and be further by now.
                if state.cycle.as_ref().is_some_and(|other| other.number >= number) {
                    return;
                }
                match wanted {
                    // What was asked for meanwhile is compared after this.
                    Some(_) if state.wanted == wanted => state.wanted = None,
                    Some(_) => {}
                    // What lies before the first cycle is nobody's to compare.
                    None => state.mark = state.mark.or(Some(period.from)),
                }
                state.cycle = Some(begun.clone());
            })
            .await?;
        if state.cycle.as_ref() != Some(&cycle) {
            return Ok(state.cycle.filter(|other| other.ended_at.is_none()).ok_or(schedule));
        }
        if wanted.is_none() {
            self.plan().next_at = schedule.checked_add(self.settings.next_after(now).duration_since(now)).ok();
        }
        Ok(Ok(cycle))
    }

    /// When the next cycle begins, by the schedule clock. The first of a process goes by the wall clock: the last one's end.
    fn next_at(&self, mark: Option<Timestamp>, now: Timestamp, schedule: Timestamp) -> Timestamp {
        *self.plan().next_at.get_or_insert_with(|| {
            let due = mark.map(|mark| self.settings.next_after(mark));
            let wait = due.map_or(SignedDuration::ZERO, |due| due.duration_since(now)).max(SignedDuration::ZERO);
            schedule.saturating_add(wait).unwrap_or(schedule)
        })
    }

    /// Whether an outage of ours has ended since the last cycle (T4): what was sent in it comes by no push any more, and waits
    /// for no schedule.
    async fn is_after_outage(&self, mark: Option<Timestamp>) -> Result<bool, StoreError> {
        let Some(mark) = mark else { return Ok(false) };
        let newest = self.tools.store.outages(OutageQuery { before: None, limit: 1 }).await?;
        // A cycle ends on a whole second.
        Ok(newest.first().is_some_and(|outage| outage.to.as_second() > mark.as_second()))
    }

    pub(super) fn next_period(&self, mark: Option<Timestamp>, now: Timestamp) -> Period {
        Period::next(mark, self.settings.overlap, self.settings.lookback, now)
    }

    /// Whether a period leaves nothing out before the mark that a list may have got since: all of the overlap. The first one
    /// begins at the mark itself, and no other does ([`Worker::want`]).
    fn reaches(&self, mark: Timestamp, period: Period) -> bool {
        period.from == mark || period.from <= mark.checked_sub(self.settings.overlap).unwrap_or(Timestamp::MIN)
    }

    /// Has a period compared beside the schedule, together with what is wanted already. One that begins at the mark begins a
    /// second earlier, because it is not the first one.
    pub(super) fn want(state: &mut ReconcileState, period: Period) {
        let is_at_mark = state.mark == Some(period.from);
        let earlier = || period.from.checked_sub(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MIN);
        let period = Period { from: if is_at_mark { earlier() } else { period.from }, ..period };
        state.wanted = Some(state.wanted.map_or(period, |wanted| wanted.and(period)));
    }

    /// Compares what is left of a cycle.
    async fn go_on(&self, cycle: Cycle) -> Result<(), Stop> {
        let (mut seen, mut at) = (Seen::of(&cycle), cycle.done_to);
        while let Some(rest) = Period::around(at, cycle.period.to) {
            let slice = self.adapter.first_slice(rest);
            self.compare(slice, &mut seen).await?;
            at = slice.to;
            seen.turn();
        }
        self.end(cycle.number).await?;
        Ok(())
    }

    /// Ends a cycle, unless another process has ended it: the one after it, which may be under way, is not compared yet.
    async fn end(&self, number: i64) -> Result<(), StoreError> {
        let now = self.tools.clock.now();
        let state = self
            .change(|state| {
                let Some(cycle) = open(state, number) else { return };
                (cycle.ended_at, cycle.problem) = (Some(now), String::new());
                let period = cycle.period;
                state.mark = state.mark.map(|mark| if self.reaches(mark, period) { mark.max(period.to) } else { mark });
            })
            .await?;
        metrics::ended(&self.key, state.mark);
        let Some(Cycle { number, period, counts, .. }) = state.cycle else { return Ok(()) };
        tracing::info!(
            reconcile = self.key.name,
            number,
            from = timestamp::format(period.from),
            to = timestamp::format(period.to),
            listed = counts.listed,
            missing = counts.missing,
            repaired = counts.repaired,
            different = counts.different,
            unknown = counts.unknown,
            "compared with the provider's list"
        );
        Ok(())
    }

    /// Notes that a piece of a cycle is done, with what was found in it; nothing, where another process has ended the cycle.
    pub(super) async fn done(&self, number: i64, done_to: Timestamp, counts: &CycleCounts) -> Result<(), StoreError> {
        metrics::found(&self.key, counts);
        self.change(|state| {
            let Some(cycle) = open(state, number) else { return };
            cycle.done_to = cycle.done_to.max(done_to);
            cycle.counts = add(cycle.counts, counts);
        })
        .await?;
        Ok(())
    }

    /// Makes a call that is to succeed, if the budget has one left. It is counted before it is made.
    pub(super) async fn ask(&self, call: &Call) -> Result<Response, Stop> {
        let (now, budget) = (self.tools.clock.now(), self.settings.call_budget);
        let state = self.state().await?;
        let (since, used) = calls_until(now, &state);
        if used >= budget {
            return Err(Stop::Budget { until: end_of_budget(since) });
        }
        self.count(since, used, 1).await?;
        let before = self.api.calls();
        let response = self.api.read(call).await;
        // Where a login had run out, it was two.
        let more = self.api.calls().wrapping_sub(before).saturating_sub(1);
        if more > 0 {
            self.count(since, used + 1, more).await?;
        }
        Ok(response?)
    }

    async fn count(&self, since: Timestamp, used: u32, calls: u32) -> Result<(), StoreError> {
        metrics::called(&self.key, calls);
        self.change(|state| {
            (state.calls, state.calls_since) = (used.saturating_add(calls), Some(since));
            if let Some(cycle) = state.cycle.as_mut().filter(|cycle| cycle.ended_at.is_none()) {
                cycle.calls = cycle.calls.saturating_add(calls);
            }
        })
        .await?;
        Ok(())
    }
}

/// The cycle of this number, if it is under way.
fn open(state: &mut ReconcileState, number: i64) -> Option<&mut Cycle> {
    state.cycle.as_mut().filter(|cycle| cycle.number == number && cycle.ended_at.is_none())
}

/// Since when calls are counted, and how many there were.
pub(super) fn calls_until(now: Timestamp, state: &ReconcileState) -> (Timestamp, u32) {
    match state.calls_since.filter(|since| now < end_of_budget(*since) && *since <= now) {
        Some(since) => (since, state.calls),
        None => (now, 0),
    }
}

fn end_of_budget(since: Timestamp) -> Timestamp {
    since.saturating_add(BUDGET_PERIOD).unwrap_or(Timestamp::MAX)
}

fn add(one: CycleCounts, other: &CycleCounts) -> CycleCounts {
    CycleCounts {
        listed: one.listed + other.listed,
        known: one.known + other.known,
        missing: one.missing + other.missing,
        repaired: one.repaired + other.repaired,
        different: one.different + other.different,
        unknown: one.unknown + other.unknown,
    }
}

#[cfg(test)]
#[path = "tests/overtaken.rs"]
mod tests;
