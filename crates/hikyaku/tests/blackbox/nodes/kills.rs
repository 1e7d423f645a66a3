//! Three nodes under load, killed and stopped in turn.

use tokio::time::Instant;

use super::*;
use crate::crash::seed;
use crate::harness::{TestDatabase, XorShift};

/// Events, unless `HIKYAKU_TEST_NODES_EVENTS` says otherwise.
const EVENTS: usize = 20_000;
const WEBHOOKS: usize = 50;
/// How often a node is killed or stopped.
const FAULTS: usize = 20;
/// Every third time it is stopped beyond its leases and goes on afterwards.
const STOP_EVERY: usize = 3;

fn events() -> usize {
    std::env::var("HIKYAKU_TEST_NODES_EVENTS").map_or(EVENTS, |events| events.parse().expect("it is a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_killed_and_stopped_beyond_their_leases_lose_nothing_and_never_send_at_the_same_time() {
    let database = TestDatabase::create().await;
    let mut fleet = Fleet::start(&[database.url(), database.url(), database.url()], &config()).await;
    let endpoints = Endpoints::register(&fleet.api(), WEBHOOKS).await;
    let (load, publishers) = Load::start(&fleet.balancer, endpoints.events(events()), PUBLISHERS);
    let mut trouble = Trouble { random: XorShift::new(seed()), stopped: Vec::new() };
    for fault in 0..FAULTS {
        // So much is let through before each fault that it comes in the midst of it.
        load.allow(events() * (fault + 1) / (FAULTS + 1));
        trouble.pass(&fleet, fleet.servers.len() - 2).await;
        load.allow(events() * (fault + 2) / (FAULTS + 1));
        load.answered((2 * fault + 3) * events() / (2 * (FAULTS + 1))).await;
        trouble.come(&mut fleet, fault % STOP_EVERY == STOP_EVERY - 1).await;
    }
    load.allow(usize::MAX);
    trouble.pass(&fleet, 0).await;
    endpoints.judge(&fleet, &load, publishers).await;
    // Otherwise the run has shown nothing: each takeover of a stopped node's work, and each late result of such a node.
    assert!(!fleet.late_results().is_empty(), "no stopped node came back with a result: {:#?}", fleet.messages());
    let again = endpoints.receiver.count() - load.published().len();
    let failed = load.published().iter().filter(|event| failures(&event.id) > 0).count();
    assert!(again > failed, "nothing was interrupted: {again} came again, {failed} failed");
}

/// What happens to the nodes.
struct Trouble {
    random: XorShift,
    /// Nodes that stand still, and until when.
    stopped: Vec<(usize, Instant)>,
}

impl Trouble {
    /// Kills a node that runs, or stops it.
    async fn come(&mut self, fleet: &mut Fleet, stops: bool) {
        let running: Vec<_> =
            (0..fleet.servers.len()).filter(|node| self.stopped.iter().all(|(stopped, _)| stopped != node)).collect();
        let node = running[self.random.below(running.len())];
        if stops {
            fleet.stop(node);
            self.stopped.push((node, Instant::now() + BEYOND_THE_LEASE));
        } else {
            fleet.crash(node).await;
        }
    }

    /// Lets nodes go on that have stood still for long enough, and waits until no more than `left` do.
    async fn pass(&mut self, fleet: &Fleet, left: usize) {
        while let Some((node, until)) = self.stopped.first().copied() {
            if Instant::now() < until && self.stopped.len() <= left {
                return;
            }
            tokio::time::sleep_until(until).await;
            fleet.go_on(node);
            self.stopped.remove(0);
        }
    }
}
