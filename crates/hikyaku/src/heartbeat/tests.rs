use super::*;
use crate::clock::{Clock, SystemClock};
use crate::store::memory::{MemoryStore, Operation};
use crate::store::{OutageQuery, Store};

const MINUTE: Duration = Duration::from_secs(60);
/// The second at which the first process starts.
const ZERO: i64 = 1_800_000_000;
const WINDOW: Duration = Duration::from_secs(71 * 60);

/// The clocks of one process, beside its virtual time: the wall clock can be set.
struct SetClock {
    process: SystemClock,
    began: Timestamp,
    zero: Timestamp,
    ahead: Mutex<i64>,
}

impl SetClock {
    /// The clocks of a process that starts when the wall clock stands at `zero`.
    fn start(zero: Timestamp) -> Arc<Self> {
        let process = SystemClock::start();
        Arc::new(Self { began: process.schedule(), process, zero, ahead: Mutex::new(0) })
    }

    fn first() -> Arc<Self> {
        Self::start(Timestamp::from_second(ZERO).unwrap())
    }

    /// The clocks of a process that starts now, and believes what the wall clock says.
    fn restart(&self) -> Arc<Self> {
        Self::start(self.now())
    }

    /// Sets the wall clock forward or back.
    fn set(&self, seconds: i64) {
        *self.ahead.lock().unwrap() += seconds;
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        let ahead = jiff::SignedDuration::from_secs(*self.ahead.lock().unwrap());
        self.schedule().checked_add(ahead).unwrap()
    }

    fn schedule(&self) -> Timestamp {
        self.zero.checked_add(self.process.schedule().duration_since(self.began)).unwrap()
    }
}

/// One process after another over the same store.
struct Rig {
    store: Arc<MemoryStore>,
}

impl Rig {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()) }
    }

    fn process(&self, clock: &Arc<SetClock>) -> Arc<Heartbeat> {
        Heartbeat::new(self.store.clone(), clock.clone(), Settings::default())
    }

    /// When the outages began and ended, in seconds after [`ZERO`], oldest first.
    async fn outages(&self) -> Vec<(i64, i64)> {
        let found = self.store.outages(OutageQuery { before: None, limit: 10 }).await.unwrap();
        let second = |at: Timestamp| at.as_second() - ZERO;
        found.iter().rev().map(|outage| (second(outage.from), second(outage.to))).collect()
    }

    /// Lets a process live for a while and stop, or be killed.
    async fn live(&self, heart: &Arc<Heartbeat>, time: Duration, is_killed: bool) {
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(heart).run(stop.clone()));
        sleep(time).await;
        if is_killed {
            running.abort();
        } else {
            stop.cancel();
        }
        drop(running.await);
    }
}

#[tokio::test(start_paused = true)]
async fn t4_an_absence_longer_than_the_retry_window_is_written_down_with_its_bounds() {
    let (rig, clock) = (Rig::new(), SetClock::first());
    for (absent, outages) in [(WINDOW - MINUTE, 0), (WINDOW + MINUTE, 1)] {
        rig.live(&rig.process(&clock), Duration::from_secs(605), false).await;
        sleep(absent).await;
        let outage = rig.process(&clock).beat().await.unwrap();
        assert_eq!((outage.is_some(), rig.outages().await.len()), (outages == 1, outages));
    }
    // The last sign of life before was that of the clean stop.
    let stopped_at = 2 * 605 + 70 * 60;
    assert_eq!(rig.outages().await, [(stopped_at, stopped_at + 72 * 60)]);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_beginning_is_known_to_half_a_minute() {
    let (rig, clock) = (Rig::new(), SetClock::first());
    rig.live(&rig.process(&clock), Duration::from_secs(605), true).await;
    sleep(2 * WINDOW).await;
    rig.process(&clock).beat().await.unwrap();
    let [(from, to)] = rig.outages().await[..] else { panic!("one outage") };
    assert_eq!((from, to), (600, 605 + 2 * 71 * 60));
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_makes_no_outage() {
    for seconds in [-86_400, 86_400, -71 * 60, -i64::from(i32::MAX) / 2] {
        // Set while it runs, and right again.
        let (rig, clock) = (Rig::new(), SetClock::first());
        let heart = rig.process(&clock);
        rig.live(&heart, 2 * MINUTE, true).await;
        clock.set(seconds);
        rig.live(&heart, 2 * MINUTE, true).await;
        clock.set(-seconds);
        rig.live(&heart, 2 * MINUTE, true).await;
        assert_eq!(rig.outages().await, [], "{seconds}");
        // Set back between two processes.
        clock.set(-seconds.abs());
        rig.live(&rig.process(&clock.restart()), MINUTE, true).await;
        assert_eq!(rig.outages().await, [], "{seconds}");
    }
}

/// Set back while it runs, and right again between two processes: the first one knew better.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_right_after_a_stop_makes_no_outage() {
    let (rig, clock) = (Rig::new(), SetClock::first());
    let heart = rig.process(&clock);
    rig.live(&heart, 2 * MINUTE, true).await;
    clock.set(-86_400);
    rig.live(&heart, 2 * MINUTE, false).await;
    clock.set(86_400);
    rig.live(&rig.process(&clock.restart()), MINUTE, true).await;
    assert_eq!(rig.outages().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_long_is_an_outage_too() {
    let (rig, clock) = (Rig::new(), SetClock::first());
    let heart = rig.process(&clock);
    rig.live(&heart, 10 * MINUTE, true).await;
    for (away, outages) in [(WINDOW / 2, 0), (WINDOW + 2 * MINUTE, 1)] {
        rig.store.set_down(Operation::Beat, true);
        rig.live(&heart, away, true).await;
        rig.store.set_down(Operation::Beat, false);
        rig.live(&heart, MINUTE, true).await;
        assert_eq!(rig.outages().await.len(), outages);
    }
}

/// Of several processes on one store, one that was cut off knows from the others' signs that nothing was missed.
#[tokio::test(start_paused = true)]
async fn another_process_that_was_there_makes_it_no_outage() {
    let (rig, clock) = (Rig::new(), SetClock::first());
    let (one, other) = (rig.process(&clock), rig.process(&clock));
    one.beat().await.unwrap();
    rig.live(&other, 2 * WINDOW, true).await;
    assert_eq!(one.beat().await.unwrap(), None);
}

#[test]
fn a_clock_that_stands_before_the_last_sign_of_life_was_set_back() {
    let at = |seconds| Timestamp::from_second(ZERO + seconds).unwrap();
    assert_eq!(set_back(at(86_400), at(0)), Some(Duration::from_secs(86_400)));
    assert_eq!(set_back(at(61), at(0)), Some(Duration::from_secs(61)));
    for now in [0, 60, 61, 1000] {
        assert_eq!(set_back(at(60), at(now)), None, "{now}: no more than clocks differ, or ahead");
    }
}
