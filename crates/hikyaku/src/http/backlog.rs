//! How much waits, for lists that people look at.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::store::{Backlog, Store, StoreError};

/// Counting that takes no longer than this is done anew every time.
const QUICK: SignedDuration = SignedDuration::from_millis(50);
/// How many times as long as counting took its result stands.
const STANDS_TIMES: i32 = 20;

/// What was counted last. Counting takes the longer the more waits, so where that is much, its result stands for a while, and
/// whoever asks meanwhile is given the same.
#[derive(Debug, Default)]
pub struct LastBacklog(Mutex<Option<(Timestamp, Arc<Backlog>)>>);

impl LastBacklog {
    /// How much waits, or waited a short while ago.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn read(&self, store: &dyn Store, clock: &dyn Clock) -> Result<Arc<Backlog>, StoreError> {
        let mut last = self.0.lock().await;
        let begun = clock.schedule();
        if let Some((until, backlog)) = &*last
            && begun < *until
        {
            return Ok(Arc::clone(backlog));
        }
        let backlog = Arc::new(store.backlog().await?);
        let ended = clock.schedule();
        let took = ended.duration_since(begun);
        let stands = if took > QUICK { took * STANDS_TIMES } else { SignedDuration::ZERO };
        *last = Some((ended.saturating_add(stands).unwrap_or(ended), Arc::clone(&backlog)));
        Ok(backlog)
    }
}
