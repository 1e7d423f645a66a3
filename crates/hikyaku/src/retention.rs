//! Retention: what is old is dropped, in small steps, each a short transaction of its own that takes its turn with the
//! group commits of the traffic. Between two steps there is a pause at least as long as the step took, so that at most
//! half of the store's time goes into it.
//!
//! It takes no input and keeps no state: every round begins with the oldest there is, and a round that is cut off by a
//! shutdown is begun again after the next start.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use metrics::{counter, describe_counter};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::clock::SharedClock;
use crate::crash;
use crate::store::{Aged, DropStep, Dropped, SharedStore, StoreError};

/// Shortest time for which anything may be kept. What is dropped is no longer known as a duplicate, and the contract's
/// attempts at one event are spread over 71 minutes (C7, R8).
pub const MIN_AGE: Duration = Duration::from_secs(2 * 3600);
/// How long events and received deliveries are kept if nothing else is said.
pub const DEFAULT_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long an id is known: a week, far longer than the 71 minutes for which the contract's sender repeats it.
pub const DEFAULT_ID_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the version of a key is known. Ids protect from repeated deliveries only; what is imported or replayed comes
/// under other ids or later, and reaches back as far as somebody compares with a provider's lists: a quarter of a year.
pub const DEFAULT_VERSION_AGE: Duration = Duration::from_secs(90 * 24 * 3600);

/// From this age on the store may be given up to a day more, where that makes it cheap to drop what is old.
const MIN_AGE_BY_DAY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Rows that one step may touch: a few milliseconds of the store's time.
const MAX_STEP_ROWS: u32 = 500;
/// Shortest and longest pause between two steps.
const STEP_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// From the end of a round to the start of the next.
const ROUND_PAUSE: Duration = Duration::from_secs(60);

/// Counts what was dropped, by what it was.
const DROPPED: &str = "hikyaku_retention_dropped_total";

/// How long things are kept; `None`: for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Events, from their publish, with their bodies, deliveries and attempts. An event of which anything waits is kept
    /// however old it is.
    pub events: Option<Duration>,
    /// Received deliveries, from their arrival, with their bodies and effects. One that has work left is kept however old
    /// it is.
    pub inbox: Option<Duration>,
    /// Ids of received deliveries, from their arrival; no shorter than their rows are kept (C7).
    pub ids: Option<Duration>,
    /// The newest version of each key that took effect, from that effect: for so long nothing older takes effect after it
    /// (C4), and a key's one effect is not repeated (T5).
    pub versions: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            events: Some(DEFAULT_AGE),
            inbox: Some(DEFAULT_AGE),
            ids: Some(DEFAULT_ID_AGE),
            versions: Some(DEFAULT_VERSION_AGE),
        }
    }
}

/// Drops what is old.
pub struct Retention {
    store: SharedStore,
    clock: SharedClock,
    settings: Settings,
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Retention {
    /// Retention over a store. It does nothing before [`Retention::run`].
    pub fn new(store: SharedStore, clock: SharedClock, settings: Settings) -> Arc<Self> {
        describe_counter!(DROPPED, "Old rows that were dropped, by what they were.");
        for what in ["events", "deliveries", "attempts", "inbox_rows", "ids", "versions"] {
            counter!(DROPPED, "what" => what).increment(0);
        }
        Arc::new(Self { store, clock, settings })
    }

    /// Drops round after round until it is told to stop. A step that has begun is ended.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            if let Err(error) = self.store.prepare(self.clock.schedule()).await {
                tracing::warn!(%error, "the store could not be prepared for the next day; it is tried again in a minute");
            }
            let Settings { events, inbox, ids, versions } = self.settings;
            for (what, age) in [
                (Aged::Events(None), events),
                (Aged::InboxRows(None), inbox),
                (Aged::Ids, ids),
                (Aged::Versions(None), versions),
            ] {
                let Some(age) = age else { continue };
                if let Err(error) = self.round(what, age, &stop).await {
                    tracing::warn!(%error, "old rows could not be dropped; it is tried again in a minute");
                }
            }
            self.forget_secrets(&stop).await;
            if stop.run_until_cancelled(sleep(ROUND_PAUSE)).await.is_none() {
                return;
            }
        }
    }

    /// Forgets the webhooks' secrets whose overlap has ended (S15).
    async fn forget_secrets(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            match self.store.forget_secrets(self.clock.now(), MAX_STEP_ROWS).await {
                Ok(forgotten) if forgotten == MAX_STEP_ROWS => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "secrets whose overlap has ended could not be forgotten; it is tried again in a minute");
                    return;
                }
            }
        }
    }

    /// Drops all of one kind that is older than `age`.
    async fn round(&self, what: Aged, age: Duration, stop: &CancellationToken) -> Result<(), StoreError> {
        let mut next = Some(what);
        while let Some(what) = next
            && !stop.is_cancelled()
        {
            let began = self.clock.schedule();
            // An age that reaches back beyond all time makes nothing old.
            let Ok(mut before) = began.checked_sub(age) else { return Ok(()) };
            if age >= MIN_AGE_BY_DAY && matches!(what, Aged::Events(_) | Aged::InboxRows(_)) {
                before = self.store.whole_before(before);
            }
            let ids_before = self.settings.ids.and_then(|age| began.checked_sub(age).ok()).unwrap_or(Timestamp::MIN);
            let dropped = self.store.drop_aged(DropStep { what, before, ids_before, max_rows: MAX_STEP_ROWS }).await?;
            crash::point("retention.stepped");
            count(&dropped);
            next = dropped.next;
            let took = Duration::try_from(self.clock.schedule().duration_since(began)).unwrap_or_default();
            stop.run_until_cancelled(sleep(took.clamp(STEP_PAUSE.0, STEP_PAUSE.1))).await;
        }
        Ok(())
    }
}

fn count(dropped: &Dropped) {
    for (what, rows) in [
        ("events", dropped.events),
        ("deliveries", dropped.deliveries),
        ("attempts", dropped.attempts),
        ("inbox_rows", dropped.inbox_rows),
        ("ids", dropped.ids),
        ("versions", dropped.versions),
    ] {
        counter!(DROPPED, "what" => what).increment(rows);
    }
}
