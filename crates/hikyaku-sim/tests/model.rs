//! The protocol of leases in every order of its steps.

use hikyaku_sim::model::{Bounds, Mutation, explore};

/// Two nodes and three deliveries.
const THREE: Bounds = Bounds { deliveries: 3, attempts: 2, lease_ends: 1, crashes: 0, lost_answers: 0, people: false };
/// One delivery with the whole schedule, and everything that can happen to it.
const WHOLE: Bounds = Bounds { deliveries: 1, attempts: 4, lease_ends: 1, crashes: 0, lost_answers: 1, people: true };
/// One delivery, of which a node forgets that it held it.
const CRASHED: Bounds = Bounds { deliveries: 1, attempts: 3, lease_ends: 2, crashes: 1, lost_answers: 0, people: true };

fn holds(bounds: Bounds, least_states: usize) {
    let explored = explore(bounds, None);
    println!("{bounds:?}: {} states, {} steps", explored.states, explored.steps);
    if let Some(broken) = explored.broken {
        panic!("{broken}");
    }
    assert!(explored.states > least_states, "too little was explored: {} states", explored.states);
}

#[test]
fn two_nodes_and_three_deliveries_keep_every_promise() {
    holds(Bounds { attempts: 1, ..THREE }, 100);
}

#[test]
fn r7_one_delivery_keeps_every_promise_over_its_whole_schedule() {
    holds(WHOLE, 1_000);
}

#[test]
fn one_delivery_keeps_every_promise_over_a_crash() {
    holds(CRASHED, 1_000);
}

#[test]
fn every_promise_is_looked_at() {
    for (mutation, promise) in Mutation::ALL {
        let broken = explore(Bounds { people: true, ..THREE }, Some(mutation)).broken;
        let broken = broken.unwrap_or_else(|| panic!("{mutation:?} is not noticed"));
        println!("{mutation:?}: {broken}");
        assert_eq!(broken.promise, promise, "{mutation:?}: {broken}");
    }
}
