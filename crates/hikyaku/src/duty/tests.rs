//! Two nodes and one duty, on virtual time.

use tokio::sync::watch;

use super::*;
use crate::clock::SystemClock;
use crate::store::memory::{MemoryStore, Operation};

struct Nodes {
    store: Arc<MemoryStore>,
    clock: SharedClock,
    /// Which nodes work now.
    working: watch::Sender<Vec<&'static str>>,
}

impl Nodes {
    fn new() -> Self {
        let (working, _) = watch::channel(Vec::new());
        Self { store: Arc::new(MemoryStore::new()), clock: Arc::new(SystemClock::start()), working }
    }

    /// A node that is always ready to work; what stops it, and its task.
    fn start(&self, name: &'static str) -> (CancellationToken, tokio::task::JoinHandle<()>) {
        let stop = CancellationToken::new();
        let duty = Duty::new(self.store.clone(), Arc::clone(&self.clock), name.into(), "retention");
        let working = self.working.clone();
        let work = move |told: CancellationToken| {
            let working = working.clone();
            async move {
                working.send_modify(|nodes| nodes.push(name));
                told.cancelled().await;
                working.send_modify(|nodes| nodes.retain(|node| *node != name));
            }
        };
        (stop.clone(), tokio::spawn(duty.run(stop, work)))
    }

    /// Waits until exactly these nodes work; how long it took.
    async fn until(&self, expected: &[&str]) -> Duration {
        let begun = self.clock.schedule();
        self.working.subscribe().wait_for(|nodes| nodes == expected).await.unwrap();
        self.clock.schedule().duration_since(begun).unsigned_abs()
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_works_and_another_takes_over_within_30_seconds_of_its_death() {
    let nodes = Nodes::new();
    let (_stop, first) = nodes.start("a");
    nodes.until(&["a"]).await;
    let (_stop, _second) = nodes.start("b");
    sleep(LEASE * 10).await;
    assert_eq!(*nodes.working.borrow(), ["a"], "it renews its lease, and works alone");
    first.abort();
    nodes.working.send_modify(Vec::clear);
    assert!(nodes.until(&["b"]).await <= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_stopped_hands_over_at_once() {
    let nodes = Nodes::new();
    let (stop, first) = nodes.start("a");
    nodes.until(&["a"]).await;
    let (_stop, _second) = nodes.start("b");
    stop.cancel();
    first.await.unwrap();
    assert!(nodes.until(&["b"]).await <= RENEW_EVERY);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_renew_its_lease_ends_its_work_before_another_begins() {
    let nodes = Nodes::new();
    let (_stop, _first) = nodes.start("a");
    nodes.until(&["a"]).await;
    nodes.store.set_down(Operation::Duty, true);
    assert!(nodes.until(&[]).await < LEASE, "it ends before its lease does");
    nodes.store.set_down(Operation::Duty, false);
    nodes.until(&["a"]).await;
}
