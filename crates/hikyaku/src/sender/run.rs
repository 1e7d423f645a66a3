//! The one loop: looks for due deliveries, starts their attempts, and rests until there may be more.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Sender;
use super::slots::{Offer, WebhookKey};
use crate::clock;
use crate::crash;
use crate::store::{DeliveryClaim, StoreError};

/// The pause after a first failed claim; it doubles with each further one.
const FIRST_CLAIM_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between failed claims.
const LONGEST_CLAIM_PAUSE: Duration = Duration::from_secs(5);

/// When the loop must look again, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    due: Mutex<Option<Timestamp>>,
    sooner: Notify,
}

impl Agenda {
    /// Something is due at `at`, by the schedule clock.
    pub(super) fn note(&self, at: Timestamp) {
        let earlier = self.with(|due| {
            let earlier = due.is_none_or(|due| at < due);
            if earlier {
                *due = Some(at);
            }
            earlier
        });
        if earlier {
            self.sooner.notify_one();
        }
    }

    fn with<A>(&self, act: impl FnOnce(&mut Option<Timestamp>) -> A) -> A {
        act(&mut self.due.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Claims that failed in a row.
#[derive(Debug, Default)]
struct Streak(Option<Duration>);

impl Streak {
    /// One more failed; says for how long to pause.
    fn failed(&mut self, error: &StoreError) -> Duration {
        if self.0.is_none() {
            tracing::error!(%error, "no deliveries can be claimed; trying again until the store answers");
        }
        let pause = self.0.map_or(FIRST_CLAIM_PAUSE, |pause| (pause * 2).min(LONGEST_CLAIM_PAUSE));
        self.0 = Some(pause);
        pause
    }

    fn ended(&mut self) {
        if self.0.take().is_some() {
            tracing::info!("the store answers again; deliveries go on");
        }
    }
}

impl Sender {
    /// Delivers what is due until `stop` is cancelled, then waits for the attempts and publishes under way. What has
    /// not been attempted by then stays due for the next start; the caller bounds the wait.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::join!(self.deliver(&stop), self.work_recoveries_off(&stop), self.work_removals_off(&stop));
        self.end().await;
    }

    /// Leaves what is due to other processes until `stop` is cancelled, then waits for the publishes and test deliveries
    /// under way.
    pub async fn stand_by(self: Arc<Self>, stop: CancellationToken) {
        stop.cancelled().await;
        self.end().await;
    }

    async fn end(&self) {
        self.slots.close();
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn deliver(self: &Arc<Self>, stop: &CancellationToken) {
        let (mut after, mut streak) = (None, Streak::default());
        while !stop.is_cancelled() {
            match self.claim(&mut after).await {
                Ok(again) => {
                    streak.ended();
                    if !again {
                        self.rest(stop).await;
                    }
                }
                Err(error) => {
                    let pause = sleep(streak.failed(&error));
                    tokio::select! { biased; () = stop.cancelled() => {} () = pause => {} }
                }
            }
        }
    }

    /// Claims due deliveries and starts their attempts. Says whether another claim could bring more at once.
    ///
    /// It is never dropped half-way, because the leases it takes are for attempts that this process then has to make.
    async fn claim(self: &Arc<Self>, after: &mut Option<WebhookKey>) -> Result<bool, StoreError> {
        // Before the claim reads: a retry that is written while it runs must not be forgotten.
        self.agenda.with(|due| *due = None);
        let Some(claim) = self.slots.begin_claim() else { return Ok(false) };
        let Offer { each: slots_each, most_each, listed: slots, limit } = claim.offer();
        let (now, at, lease, after_last) = (self.clock.schedule(), self.clock.now(), self.lease(), after.take());
        let until = now.saturating_add(self.settings.look_every).unwrap_or(Timestamp::MAX);
        let wanted = DeliveryClaim { lease, now, until, at, slots_each, most_each, slots, limit, after: after_last };
        let claimed = self.store.claim_deliveries(wanted).await?;
        if !claimed.deliveries.is_empty() {
            crash::point("claim.committed");
        }
        for delivery in claimed.deliveries {
            let permit = claim.take(&delivery.webhook);
            self.start(delivery, permit, now);
        }
        after.clone_from(&claimed.stopped_at);
        let again = claim.end(claimed.saturated, claimed.stopped_at.is_some());
        claimed.next_due.into_iter().chain(again.later).for_each(|at| self.agenda.note(at));
        Ok(again.at_once)
    }

    /// Waits until there may be something to claim, or `stop` is cancelled, or [`Settings::look_every`](super::Settings::look_every) has passed.
    async fn rest(&self, stop: &CancellationToken) {
        let cap = sleep(self.settings.look_every);
        tokio::pin!(cap);
        loop {
            let until_due = clock::wait_until(&*self.clock, self.agenda.with(|due| *due), self.settings.look_every);
            tokio::select! {
                biased; // the order is no matter, but a simulation must be able to repeat itself
                () = stop.cancelled() => return,
                () = self.wake.notified() => return,
                () = &mut cap => return,
                () = sleep(until_due) => return,
                () = self.agenda.sooner.notified() => {}
            }
        }
    }
}
