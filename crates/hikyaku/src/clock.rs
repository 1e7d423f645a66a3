//! The only place that reads a clock or draws randomness. Everything else is given one of these.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

/// Time, in its two kinds.
///
/// The wall clock can be set, and jumps when it is; what people read is stamped with it. The schedule clock only ever
/// moves forward, as fast as time passes, so that an attempt never comes early and never waits for a day because
/// somebody corrected a clock. Both start equal when the process starts.
pub trait Clock: Send + Sync + 'static {
    /// The wall clock, to the millisecond: for event timestamps, logs, `created_at`.
    fn now(&self) -> Timestamp;
    /// The schedule clock: for due times and leases, and for nothing that a person compares with
    /// a watch.
    fn schedule(&self) -> Timestamp;
}

/// Shared handle to a clock.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks. Under tokio's paused time the schedule clock follows the virtual time.
#[derive(Debug)]
pub struct SystemClock {
    started_wall: Timestamp,
    started: Instant,
}

impl SystemClock {
    /// Starts both clocks at the present wall time.
    #[expect(clippy::disallowed_methods, reason = "this is the one module that reads the clocks")]
    pub fn start() -> Self {
        Self { started_wall: to_millis(Timestamp::now()), started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one module that reads the clocks")]
    fn now(&self) -> Timestamp {
        to_millis(Timestamp::now())
    }

    fn schedule(&self) -> Timestamp {
        self.started_wall.checked_add(self.started.elapsed()).unwrap_or(Timestamp::MAX)
    }
}

/// A clock that shows `start` now and from then on runs `factor` times as fast as `real`'s schedule clock.
pub fn fast(real: SharedClock, factor: u32, start: Timestamp) -> SharedClock {
    let began = real.schedule();
    Arc::new(FastClock { real, factor: factor.max(1), start, began })
}

struct FastClock {
    real: SharedClock,
    factor: u32,
    start: Timestamp,
    began: Timestamp,
}

impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        to_millis(self.schedule())
    }

    fn schedule(&self) -> Timestamp {
        let passed = self.real.schedule().duration_since(self.began).unsigned_abs();
        self.start.checked_add(passed.saturating_mul(self.factor)).unwrap_or(Timestamp::MAX)
    }
}

/// A clock whose schedule goes by somebody else's clock: that of the store which several nodes share, so that what one of
/// them makes due is due for all at the same moment, and a lease ends for all at the same moment.
pub struct SharedSchedule {
    real: SharedClock,
    /// By how many microseconds the other clock is ahead of the real schedule clock.
    ahead_micros: AtomicI64,
    /// What was shown last, in microseconds since 1970: it never goes back.
    shown_micros: AtomicI64,
}

impl SharedSchedule {
    /// Goes by the real clock until it is [`set`](Self::set).
    pub fn new(real: SharedClock) -> Arc<Self> {
        Arc::new(Self { real, ahead_micros: AtomicI64::new(0), shown_micros: AtomicI64::new(i64::MIN) })
    }

    /// Asks the other clock for its time, and goes by it from now on. The answer is taken to be of the middle of the time
    /// that it took to come.
    ///
    /// # Errors
    /// That of the question; then it goes on as before.
    pub async fn set<E>(&self, ask: impl Future<Output = Result<Timestamp, E>>) -> Result<(), E> {
        let asked = self.real.schedule().as_microsecond();
        let theirs = ask.await?.as_microsecond();
        let answered = self.real.schedule().as_microsecond();
        let middle = asked + (answered - asked) / 2;
        self.ahead_micros.store(theirs.saturating_sub(middle), Ordering::Relaxed);
        Ok(())
    }

    /// By how much the other clock is ahead of this process's own.
    pub fn ahead(&self) -> SignedDuration {
        SignedDuration::from_micros(self.ahead_micros.load(Ordering::Relaxed))
    }
}

impl Clock for SharedSchedule {
    fn now(&self) -> Timestamp {
        self.real.now()
    }

    fn schedule(&self) -> Timestamp {
        let real = self.real.schedule().as_microsecond();
        let now = real.saturating_add(self.ahead_micros.load(Ordering::Relaxed));
        let shown = self.shown_micros.fetch_max(now, Ordering::Relaxed).max(now);
        Timestamp::from_microsecond(shown).unwrap_or(Timestamp::MAX)
    }
}

/// Measures how long something takes, for the metrics; no rule depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one module that reads the clocks")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Until when a wait may last, as an instant of tokio's clock: never longer than `cap`, so that no wrong time can park
/// a loop.
pub fn wait_until(clock: &dyn Clock, due: Option<Timestamp>, cap: Duration) -> Duration {
    let until_due = due.map(|due| Duration::try_from(due.duration_since(clock.schedule())).unwrap_or(Duration::ZERO));
    until_due.map_or(cap, |wait| wait.min(cap))
}

fn to_millis(at: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at)
}

/// While it lives, tokio's paused time does not pass by itself: for tests that wait for a thread of which the runtime does
/// not know. Needs a runtime.
#[cfg(test)]
pub(crate) fn hold_time() -> std::sync::mpsc::Sender<()> {
    let (held, released) = std::sync::mpsc::channel::<()>();
    // The runtime lets no time pass while one of its own threads is busy; this one ends when the sender is dropped.
    tokio::task::spawn_blocking(move || released.recv().is_err());
    held
}

/// Random bytes from the operating system.
#[expect(clippy::disallowed_methods, reason = "this is the one module that draws randomness")]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(feature = "sim")]
    if repeatable::fill(&mut bytes) {
        return bytes;
    }
    // The operating system's generator fails only where no secret could be made at all; going on would be worse.
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives no random bytes");
    bytes
}

/// Randomness that can be repeated, for simulations: nothing that is built for use has it.
#[cfg(feature = "sim")]
pub mod repeatable {
    use std::cell::RefCell;

    thread_local! {
        static GENERATOR: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
    }

    /// From now on this thread's random bytes follow from `seed`; with `None` they are the operating system's again.
    pub fn seed(seed: Option<u64>) {
        GENERATOR.set(seed.map(fastrand::Rng::with_seed));
    }

    /// Whether they do; then they are in `bytes`.
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        GENERATOR.with_borrow_mut(|generator| generator.as_mut().map(|generator| generator.fill(bytes)).is_some())
    }
}

/// A random draw in `0.0..1.0`, for jitter.
pub fn draw() -> f64 {
    f64::from(u32::from_le_bytes(random())) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_shared_schedule_goes_by_the_other_clock_and_never_back() {
        let real: SharedClock = Arc::new(SystemClock::start());
        let shared = SharedSchedule::new(Arc::clone(&real));
        let hour = SignedDuration::from_hours(1);
        let theirs = real.schedule() + hour;
        // The answer takes two seconds: it was read in the middle of them.
        let ask = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, ()>(theirs)
        };
        shared.set(ask).await.unwrap();
        assert_eq!(shared.schedule().duration_since(theirs), SignedDuration::from_secs(1));
        let before = shared.schedule();
        shared.set(async { Ok::<_, ()>(theirs - hour) }).await.unwrap();
        assert_eq!(shared.schedule(), before, "it waits until the other clock is there");
        tokio::time::sleep(Duration::from_secs(7200)).await;
        assert!(shared.schedule() > before);
        assert!(shared.set(async { Err::<Timestamp, _>("away") }).await.is_err());
    }
}
