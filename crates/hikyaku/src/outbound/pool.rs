//! Connections kept between attempts, so that a busy webhook does not pay for a handshake each time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::connector::{Connection, Target};
use crate::clock::SharedClock;

/// How long a connection is kept: below the 5 s after which many servers close theirs, so that the two rarely cross.
const MAX_IDLE: Duration = Duration::from_secs(4);
/// Most connections kept at once, to all targets.
const MAX_KEPT_CONNECTIONS: usize = 512;

/// A connection that nobody uses.
struct Kept {
    since: Timestamp,
    origin: String,
    connection: Connection,
}

/// The connections kept, the one kept longest first.
pub(super) struct Pool {
    kept: Mutex<VecDeque<Kept>>,
    clock: SharedClock,
}

impl Pool {
    /// An empty pool, and a task that clears it while nobody uses it; the task ends with the pool.
    pub(super) fn start(clock: SharedClock) -> Arc<Self> {
        let pool = Arc::new(Self { kept: Mutex::default(), clock });
        let weak = Arc::downgrade(&pool);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(MAX_IDLE / 2).await;
                let Some(pool) = weak.upgrade() else { return };
                drop(pool.fresh());
            }
        });
        pool
    }

    /// A kept connection to the target that leads to one of its addresses as they have just been vetted (S4).
    pub(super) fn take(&self, target: &Target) -> Option<Connection> {
        let mut kept = self.fresh();
        let leads_there =
            |kept: &Kept| kept.origin == target.origin && target.addresses.contains(&kept.connection.peer);
        while let Some(position) = kept.iter().rposition(leads_there) {
            let connection = kept.remove(position)?.connection;
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection that has answered in full.
    pub(super) fn put(&self, target: Target, connection: Connection) {
        let mut kept = self.fresh();
        if kept.len() >= MAX_KEPT_CONNECTIONS {
            kept.pop_front();
        }
        kept.push_back(Kept { since: self.clock.schedule(), origin: target.origin, connection });
    }

    /// The connections, those closed that have been kept for too long.
    fn fresh(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        // No code that holds the lock leaves the queue half changed, so a panic in it has broken nothing.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.schedule();
        let is_old = |kept: &Kept| now.duration_since(kept.since).unsigned_abs() >= MAX_IDLE;
        while kept.front().is_some_and(is_old) {
            kept.pop_front();
        }
        kept
    }
}
