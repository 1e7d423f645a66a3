//! What is sent again because somebody asked: one delivery at once, or a webhook's past piece by piece.
//!
//! A recovery is a note in the store, and this loop works such notes off: it keeps a webhook's queue of due deliveries
//! filled up to a bound, so that the webhook's limits apply to them as to any other, and new events never stand behind
//! thousands of old ones. It remembers nothing, so that any process can go on where another one stopped.

use std::time::Duration;

use hikyaku_core::ids::DeliveryKey;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Sender;
use crate::crash;
use crate::store::{
    NewRecovery, RecoverOutcome, RecoveryKey, RecoveryStep, RecoveryStepped, ResendOutcome, StoreError,
};

/// A webhook with so many due deliveries gets no more of a recovery's.
const MAX_DUE_DELIVERIES: u32 = 100;
/// Most recoveries of one step, which is one transaction.
const MAX_STEP_RECOVERIES: u32 = 8;
/// The pause between steps while there is more to make due.
const STEP_PAUSE: Duration = Duration::from_millis(100);

impl Sender {
    /// Begins a new run of a delivery that does not wait (R13), and tells the loop.
    ///
    /// # Errors
    /// Those of the store: after [`StoreError::Unknown`] it may have begun.
    pub async fn resend(&self, key: &DeliveryKey) -> Result<ResendOutcome, StoreError> {
        let outcome = self.store.resend(key, self.clock.schedule()).await;
        self.announce();
        outcome
    }

    /// Begins a recovery, and tells the loop that works recoveries off.
    ///
    /// # Errors
    /// Those of the store: after [`StoreError::Unknown`] it may have begun.
    pub async fn recover(&self, recovery: NewRecovery) -> Result<RecoverOutcome, StoreError> {
        let outcome = self.store.recover(recovery).await;
        self.wake_recoveries();
        outcome
    }

    /// Tells the loop that works recoveries off to look into the store now.
    pub fn wake_recoveries(&self) {
        self.wake_recoveries.notify_one();
    }

    /// Works recoveries off until `stop` is cancelled.
    pub(super) async fn work_recoveries_off(&self, stop: &CancellationToken) {
        let mut is_failing = false;
        while !stop.is_cancelled() {
            let stepped = self.step_all(stop).await;
            let pause = match &stepped {
                Ok(true) => STEP_PAUSE,
                Ok(false) | Err(_) => self.settings.look_every,
            };
            if let (Err(error), false) = (&stepped, is_failing) {
                tracing::error!(%error, "recoveries cannot go on; trying again until the store answers");
            }
            is_failing = stepped.is_err();
            tokio::select! {
                biased; // the order is no matter, but a simulation must be able to repeat itself
                () = stop.cancelled() => return,
                () = self.wake_recoveries.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// One step of every recovery that runs; whether there is more to do soon.
    async fn step_all(&self, stop: &CancellationToken) -> Result<bool, StoreError> {
        let (mut after, mut more): (Option<RecoveryKey>, bool) = (None, false);
        loop {
            let step = RecoveryStep {
                now: self.clock.schedule(),
                most_due: MAX_DUE_DELIVERIES,
                limit: MAX_STEP_RECOVERIES,
                after: after.take(),
            };
            let RecoveryStepped { made_due, running, stopped_at } = self.store.step_recoveries(step).await?;
            if made_due > 0 {
                crash::point("recovery.stepped");
                self.announce();
            }
            more |= running > 0;
            after = stopped_at;
            if after.is_none() || stop.is_cancelled() {
                return Ok(more);
            }
        }
    }
}
