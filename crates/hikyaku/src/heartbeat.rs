//! Signs of life, and the memory of their absence (T4): what providers sent while nobody was there, for longer than they
//! repeat it, comes by no push any more. Such a time is written down with its bounds, for people and for reconciliation.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hikyaku_core::timestamp;
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::store::{Beat, Outage, SharedStore, StoreError};

/// From one sign of life to the next, and so how exactly the beginning of an outage is known after a crash.
pub const BEAT_EVERY: Duration = Duration::from_secs(30);

/// By how much clocks may differ without harm: one that is kept right is seldom off by a second.
const MAX_CLOCK_ERROR: Duration = Duration::from_secs(60);

/// When an absence counts as an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// When it was longer than this: as long as a provider repeats a delivery (R8).
    pub outage_after: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { outage_after: Duration::from_secs(71 * 60) }
    }
}

/// Gives signs of life. A store that does not take them is an outage too: nothing could be received.
pub struct Heartbeat {
    store: SharedStore,
    clock: SharedClock,
    settings: Settings,
    /// The last one of this process, by the schedule clock.
    last: Mutex<Option<Timestamp>>,
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Heartbeat {
    /// A heart that does not beat before [`Heartbeat::beat`] or [`Heartbeat::run`].
    pub fn new(store: SharedStore, clock: SharedClock, settings: Settings) -> Arc<Self> {
        Arc::new(Self { store, clock, settings, last: Mutex::default() })
    }

    /// Gives one sign of life; the outage that ends with it, if one does.
    ///
    /// # Errors
    /// The store's; then the next one looks back as far.
    pub async fn beat(&self) -> Result<Option<Outage>, StoreError> {
        let schedule = self.clock.schedule();
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let absent = last.map(|last| schedule.duration_since(last).unsigned_abs());
        let at = time_of_beat(self.clock.now(), schedule);
        let outage = match absent {
            // As nearly always: there is nothing to look back on.
            Some(absent) if absent <= self.settings.outage_after => None,
            _ => self.look_back(at, absent).await?,
        };
        self.store.beat(Beat { at, outage }).await?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(schedule);
        if let Some(Outage { from, to }) = outage {
            tracing::warn!(
                from = timestamp::format(from),
                to = timestamp::format(to),
                "nothing could be received for longer than providers repeat their deliveries: what they sent in this \
                 time may be lost here; compare with their APIs (\"hikyaku inbox outages\" lists such times)"
            );
        }
        Ok(outage)
    }

    /// The outage between the last sign of life and `at`. The first look of a process also sees whether the clock stands
    /// before what another has written: due times are of that clock.
    async fn look_back(&self, at: Timestamp, absent: Option<Duration>) -> Result<Option<Outage>, StoreError> {
        let Some(before) = self.store.last_beat().await? else { return Ok(None) };
        if let Some(back) = set_back(before, at).filter(|_| absent.is_none()) {
            tracing::warn!(
                last = timestamp::format(before),
                seconds = back.as_secs(),
                "the clock stands before the store's last sign of life: what waits will be late by so much; stop, set the \
                 clock right and start again"
            );
        }
        Ok(outage(before, at, absent, self.settings))
    }

    /// Gives signs of life until `stop`, and a last one then.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            if let Err(error) = self.beat().await {
                tracing::warn!(%error, "a sign of life could not be written");
            }
            if stop.is_cancelled() {
                return;
            }
            stop.run_until_cancelled(sleep(BEAT_EVERY)).await;
        }
    }
}

/// The time of a sign of life: the wall clock's, but not earlier than the process knows by itself that it is. Somebody who
/// sets the clock back while it runs makes no gap by setting it right later.
fn time_of_beat(now: Timestamp, schedule: Timestamp) -> Timestamp {
    let at = now.max(schedule);
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// By how much the clock was set back since the last sign of life, if by more than clocks differ among themselves.
fn set_back(before: Timestamp, now: Timestamp) -> Option<Duration> {
    let back = Duration::try_from(before.duration_since(now)).ok()?;
    (back > MAX_CLOCK_ERROR).then_some(back)
}

/// The outage between two signs of life. `absent` is how long this process knows that it gave none: a clock that was set
/// forward makes the time between the two longer, but not that. Where the second is the process's first, the wall clock
/// is all there is to know, and one that stands before the last sign of life tells nothing.
fn outage(before: Timestamp, at: Timestamp, absent: Option<Duration>, settings: Settings) -> Option<Outage> {
    let gap = Duration::try_from(at.duration_since(before)).ok()?;
    let gap = absent.map_or(gap, |absent| gap.min(absent));
    let from = at.checked_sub(gap).ok()?;
    (gap > settings.outage_after).then_some(Outage { from: from.max(before), to: at })
}
