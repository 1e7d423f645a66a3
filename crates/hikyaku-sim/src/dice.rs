//! The one source of chance, and the trace of what happened.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use hikyaku::clock::SharedClock;
use jiff::Timestamp;

/// FNV-1a's start and factor.
const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0100_0000_01b3);

/// Draws by the seed.
pub(crate) struct Dice(Mutex<Rng>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::with_seed(seed)))
    }

    /// True in a share of the draws.
    pub(crate) fn hits(&self, share: f64) -> bool {
        lock(&self.0).f64() < share
    }

    /// A number below `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        lock(&self.0).usize(0..end.max(1))
    }

    /// A time between these two, in whole milliseconds.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> Duration {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(lock(&self.0).u64(millis(from)..=millis(to)))
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}

/// What happened, as a hash that grows line by line.
pub(crate) struct Trace {
    clock: SharedClock,
    start: Timestamp,
    show: bool,
    hash: Mutex<u64>,
}

impl Trace {
    pub(crate) fn new(clock: SharedClock, show: bool) -> Self {
        Self { start: clock.schedule(), clock, show, hash: Mutex::new(FNV.0) }
    }

    /// One more thing happened, now.
    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let line = format!("{} {what}", self.millis());
        let mut hash = lock(&self.hash);
        for byte in line.bytes() {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(FNV.1);
        }
        if self.show {
            println!("{line}");
        }
    }

    /// Virtual milliseconds since the start.
    pub(crate) fn millis(&self) -> i64 {
        i64::try_from(self.clock.schedule().duration_since(self.start).as_millis()).unwrap_or(i64::MAX)
    }

    pub(crate) fn hash(&self) -> u64 {
        *lock(&self.hash)
    }
}

/// Nothing here panics while it holds a lock, and the whole runs in one thread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
