//! What only one node does at a time: the duty is a lease in the store. Whoever holds it works; when it ends without being
//! renewed, another node takes over.
//!
//! The lease makes two nodes at the same work rare, not impossible: one that was stopped and goes on notices only then
//! that its lease has ended. So nothing depends on it but economy: what is done twice is done once, by the store's keys.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::store::{DutyClaim, Lease, SharedStore};

/// How long a duty is held without being renewed.
pub const LEASE: Duration = Duration::from_secs(20);
/// From one renewal, or one try to take it, to the next. With [`LEASE`] another node has taken over within 25 seconds.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// So long before the end of a lease that could not be renewed the work stops.
const MARGIN: Duration = Duration::from_secs(5);

/// A duty, and who asks for it.
#[derive(Clone)]
pub struct Duty {
    store: SharedStore,
    clock: SharedClock,
    owner: Arc<str>,
    name: &'static str,
}

impl fmt::Debug for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duty").field("name", &self.name).field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Duty {
    /// The duty of a name, for a process.
    pub fn new(store: SharedStore, clock: SharedClock, owner: Arc<str>, name: &'static str) -> Self {
        Self { store, clock, owner, name }
    }

    /// Until `stop`, has the work done whenever this process holds the duty. `work` is given a token by which it is told
    /// to end: at the stop, or when the duty is lost. What it has begun it may end.
    pub async fn run<W: Future<Output = ()>>(self, stop: CancellationToken, work: impl Fn(CancellationToken) -> W) {
        while !stop.is_cancelled() {
            if let Some(until) = self.take().await {
                tracing::info!(duty = self.name, "this node does it from now on");
                let told = stop.child_token();
                tokio::join!(self.hold(until, &told), async {
                    work(told.clone()).await;
                    // Whether it was told to end or ended by itself, the duty is no longer needed.
                    told.cancel();
                });
                self.leave().await;
            }
            stop.run_until_cancelled(sleep(RENEW_EVERY)).await;
        }
    }

    /// Renews the lease until the work is told to end, and tells it when the lease is lost.
    async fn hold(&self, mut until: Timestamp, told: &CancellationToken) {
        while told.run_until_cancelled(sleep(RENEW_EVERY)).await.is_some() {
            match self.take().await {
                Some(renewed) => until = renewed,
                None if self.is_over(until) => {
                    tracing::warn!(duty = self.name, "the duty is lost; another node takes it over");
                    told.cancel();
                }
                None => {}
            }
        }
    }

    fn is_over(&self, until: Timestamp) -> bool {
        self.clock.schedule().saturating_add(MARGIN).is_ok_and(|soon| soon >= until)
    }

    /// Takes or renews the duty; until when it is this process's, or `None` where it is another's, or nobody can tell.
    async fn take(&self) -> Option<Timestamp> {
        let now = self.clock.schedule();
        let lease = Lease { owner: Arc::clone(&self.owner), duration: LEASE };
        match self.store.take_duty(DutyClaim { name: self.name, lease, now }).await {
            Ok(taken) => taken.then(|| now.saturating_add(LEASE).unwrap_or(Timestamp::MAX)),
            Err(error) => {
                tracing::warn!(duty = self.name, %error, "it is not known which node does it");
                None
            }
        }
    }

    /// Lets another node begin at once.
    async fn leave(&self) {
        if let Err(error) = self.store.leave_duty(self.name, &self.owner).await {
            tracing::warn!(duty = self.name, %error, "another node takes it over only when its lease has ended");
        }
    }
}
