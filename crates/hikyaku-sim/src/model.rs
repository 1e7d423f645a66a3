//! The protocol by which two nodes share deliveries (claim, lease, finish, switch off, delete), explored exhaustively within
//! bounds: every order in which the steps can come, on the real store in memory, forked at every step.

mod action;
mod step;

use std::collections::{HashSet, VecDeque};
use std::fmt;

pub use action::{Action, Answer, Mutation};
use step::State;

/// How far is explored.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Events to the one webhook.
    pub deliveries: usize,
    /// Attempts of a run.
    pub attempts: u32,
    /// How often all leases that are held come to their end.
    pub lease_ends: u32,
    /// How often a node crashes.
    pub crashes: u32,
    /// How often the answer to a finish is lost, so that it is written again.
    pub lost_answers: u32,
    /// Whether somebody may switch the webhook off, and delete it.
    pub people: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// A broken promise, and how it comes to it.
    pub broken: Option<Broken>,
}

/// A promise that does not hold, and the steps that show it.
#[derive(Debug, Clone)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// One of the shortest ways there.
    pub way: Vec<Action>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {:?}", self.promise, self.way)
    }
}

/// What must hold at every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// A delivery has one live lease at most.
    OneLease,
    /// A run has no more attempts than its schedule.
    AttemptsBounded,
    /// No attempt is sent under a number that was sent before.
    NumberSentOnce,
    /// A finish without the lease changes nothing but the log.
    LeaseNeededToFinish,
    /// What has ended stays as it ended.
    EndsOnce,
    /// A delivery that used up its attempts on the receiver's account switches its webhook off, once.
    SwitchedOffOnce,
    /// What waits for a deleted webhook ends as cancelled.
    DeletedIsCancelled,
    /// What waits for a webhook that is on, and is nobody's any more, can be claimed.
    NothingIsStuck,
}

/// Explores everything within the bounds, breadth first, up to the first broken promise.
pub fn explore(bounds: Bounds, mutation: Option<Mutation>) -> Explored {
    let first = State::new(bounds);
    let mut known = HashSet::from([first.fingerprint()]);
    // How each state was come to: the number of the state before, and the step.
    let mut ways: Vec<Option<(usize, Action)>> = vec![None];
    let mut open = VecDeque::from([(0, first)]);
    let mut steps = 0;
    while let Some((number, state)) = open.pop_front() {
        for action in state.actions() {
            steps += 1;
            let next = match state.after(action, mutation) {
                Ok(next) => next,
                Err(promise) => {
                    let way = way_to(&ways, number).into_iter().chain([action]).collect();
                    return Explored { states: known.len(), steps, broken: Some(Broken { promise, way }) };
                }
            };
            if known.insert(next.fingerprint()) {
                ways.push(Some((number, action)));
                if let Err(promise) = next.nothing_is_stuck(mutation) {
                    let way = way_to(&ways, ways.len() - 1);
                    return Explored { states: known.len(), steps, broken: Some(Broken { promise, way }) };
                }
                open.push_back((ways.len() - 1, next));
            }
        }
    }
    Explored { states: known.len(), steps, broken: None }
}

fn way_to(ways: &[Option<(usize, Action)>], mut number: usize) -> Vec<Action> {
    let mut way = Vec::new();
    while let Some((before, action)) = ways[number] {
        way.push(action);
        number = before;
    }
    way.reverse();
    way
}
