use std::sync::{Arc, Mutex};

use hikyaku_core::delivery::Decision;
use hikyaku_core::ids::DeliveryKey;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::store::conformance::fixture::{OK, acme, event_id, finish_of, publish_of, row, webhook, webhook_id};
use crate::store::memory::{Fault, MemoryStore, Operation};
use crate::store::{ClaimedDelivery, Store};

/// A store whose commits wait at a gate, and how many parts each group had.
struct Gated {
    store: MemoryStore,
    gate: Semaphore,
    /// One permit per commit that has come to the gate.
    arrived: Semaphore,
    groups: Mutex<Vec<usize>>,
    /// How many of them were finishes, and how many were not.
    shares: Mutex<Vec<[usize; 2]>>,
}

impl Gated {
    fn closed() -> Arc<Self> {
        let (gate, arrived) = (Semaphore::new(0), Semaphore::new(0));
        Arc::new(Self { store: MemoryStore::new(), gate, arrived, groups: Mutex::default(), shares: Mutex::default() })
    }

    fn start(max_queued_parts: usize) -> (Arc<Self>, Committer) {
        let gated = Self::closed();
        let inner = gated.clone();
        let committer = Committer::over(move |group| inner.clone().commit(group), max_queued_parts, 1);
        (gated, committer)
    }

    async fn commit(self: Arc<Self>, group: Group) -> Result<GroupOutcome, StoreError> {
        let Group { finish_attempts, finish_lanes, publish, record } = &group;
        let parts = finish_attempts.len() + finish_lanes.len() + publish.len() + record.len();
        self.groups.lock().unwrap().push(parts);
        let finishes = finish_attempts.len() + finish_lanes.len();
        self.shares.lock().unwrap().push([finishes, parts - finishes]);
        self.arrived.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        self.store.commit(group).await
    }

    async fn at_the_gate(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    fn open(&self) {
        self.gate.add_permits(1000);
    }
}

/// Asks, in a task of its own, for a row to be recorded.
fn record(committer: &Committer, delivery: &str) -> JoinHandle<Result<RecordOutcome, StoreError>> {
    let (committer, row) = (committer.clone(), row(delivery, "k", 0));
    tokio::spawn(async move { committer.record(row).await })
}

fn publish(committer: &Committer, ids: &[&str]) -> JoinHandle<Result<PublishOutcome, StoreError>> {
    let (committer, publish) = (committer.clone(), publish_of(ids));
    tokio::spawn(async move { committer.publish(publish, 0).await })
}

fn finish(committer: &Committer) -> JoinHandle<Result<FinishOutcome, StoreError>> {
    let committer = committer.clone();
    tokio::spawn(async move { committer.finish_attempt(lost_finish()).await })
}

/// Waits until so many parts are queued. The tests run on one thread, so that a yield lets every other task go on.
async fn queued(committer: &Committer, parts: usize) {
    let in_queue = |queue: &mpsc::Sender<Part>| queue.max_capacity() - queue.capacity();
    while in_queue(&committer.new) + in_queue(&committer.finishes) < parts {
        yield_now().await;
    }
}

fn lost_finish() -> FinishAttempt {
    let key = DeliveryKey { organization: acme(), event: event_id("nothing"), webhook: webhook_id("w") };
    let claimed = ClaimedDelivery {
        key,
        created_at: Timestamp::UNIX_EPOCH,
        run: 1,
        attempt: 1,
        history: Default::default(),
        interrupted: None,
        due_at: Timestamp::UNIX_EPOCH,
        first_attempt_at: None,
        event_type: publish_of(&["x"]).events[0].event_type.clone(),
        body: Default::default(),
        webhook: Arc::new(webhook("w")),
    };
    finish_of(&claimed, "a", 0, OK, Decision::Delivered)
}

#[tokio::test]
async fn what_gathers_during_a_commit_shares_the_next() {
    let (gated, committer) = Gated::start(1000);
    let first = record(&committer, "first");
    gated.at_the_gate().await;
    let rest: Vec<_> = (0..100).map(|number| record(&committer, &format!("d{number}"))).collect();
    queued(&committer, 100).await;
    gated.open();
    for call in [first].into_iter().chain(rest) {
        assert_eq!(call.await.unwrap().unwrap(), RecordOutcome::Stored);
    }
    assert_eq!(*gated.groups.lock().unwrap(), [1, 100]);
}

#[tokio::test]
async fn a_group_is_bounded_and_a_batch_counts_its_events() {
    let (gated, committer) = Gated::start(MAX_QUEUED_PARTS);
    let mut calls = vec![record(&committer, "first")];
    gated.at_the_gate().await;
    let ids: Vec<_> = (0..MAX_GROUP_WRITES).map(|number| format!("e{number}")).collect();
    let batch = publish(&committer, &ids.iter().map(String::as_str).collect::<Vec<_>>());
    queued(&committer, 1).await;
    calls.extend((0..MAX_GROUP_WRITES + 3).map(|number| record(&committer, &format!("d{number}"))));
    queued(&committer, MAX_GROUP_WRITES + 4).await;
    gated.open();
    batch.await.unwrap().unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(*gated.groups.lock().unwrap(), [1, 1, MAX_GROUP_WRITES, 3]);
}

#[tokio::test]
async fn every_caller_gets_its_own_answer() {
    let (gated, committer) = Gated::start(1000);
    let first = record(&committer, "d");
    gated.at_the_gate().await;
    let (again, other) = (record(&committer, "d"), record(&committer, "other"));
    let events = publish(&committer, &["e1", "e2"]);
    let finish = finish(&committer);
    queued(&committer, 4).await;
    gated.open();
    assert_eq!(first.await.unwrap().unwrap(), RecordOutcome::Stored);
    assert_eq!(again.await.unwrap().unwrap(), RecordOutcome::Duplicate);
    assert_eq!(other.await.unwrap().unwrap(), RecordOutcome::Stored);
    assert_eq!(finish.await.unwrap().unwrap(), FinishOutcome::LeaseLost);
    let PublishOutcome::Stored(events) = events.await.unwrap().unwrap() else { panic!("a conflict") };
    assert_eq!(events.iter().map(|event| event.id.as_str()).collect::<Vec<_>>(), ["e1", "e2"]);
    assert_eq!(*gated.groups.lock().unwrap(), [1, 4]);
}

#[tokio::test]
async fn as_many_groups_are_committed_at_once_as_the_store_takes() {
    let gated = Gated::closed();
    let inner = gated.clone();
    let committer = Committer::over(move |group| inner.clone().commit(group), 10, 2);
    let mut calls = Vec::new();
    for delivery in ["first", "second"] {
        calls.push(record(&committer, delivery));
        gated.at_the_gate().await;
    }
    calls.extend([record(&committer, "third"), record(&committer, "fourth")]);
    queued(&committer, 2).await;
    gated.open();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), RecordOutcome::Stored);
    }
    assert_eq!(*gated.groups.lock().unwrap(), [1, 1, 2]);
}

#[tokio::test]
async fn a_caller_that_went_away_drops_no_write() {
    let (gated, committer) = Gated::start(1000);
    let committing = publish(&committer, &["committing"]);
    gated.at_the_gate().await;
    let waiting = publish(&committer, &["waiting"]);
    queued(&committer, 1).await;
    for call in [committing, waiting] {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    gated.open();
    record(&committer, "d").await.unwrap().unwrap();
    for id in ["committing", "waiting"] {
        assert!(gated.store.event(&acme(), &event_id(id)).await.unwrap().is_some(), "{id}");
    }
}

#[tokio::test]
async fn finishes_and_what_is_new_take_turns_however_many_wait() {
    let (gated, committer) = Gated::start(MAX_GROUP_WRITES);
    let first = record(&committer, "first");
    gated.at_the_gate().await;
    let finishes: Vec<_> = (0..2 * MAX_GROUP_WRITES).map(|_| finish(&committer)).collect();
    queued(&committer, MAX_GROUP_WRITES).await;
    let new: Vec<_> = (0..MAX_GROUP_WRITES).map(|number| record(&committer, &format!("d{number}"))).collect();
    queued(&committer, 2 * MAX_GROUP_WRITES).await;
    gated.gate.add_permits(1);
    assert!(first.await.unwrap().is_ok());
    gated.at_the_gate().await;
    assert_eq!(gated.shares.lock().unwrap()[1], [MAX_GROUP_WRITES / 2; 2]);
    gated.open();
    for call in new {
        assert_eq!(call.await.unwrap().unwrap(), RecordOutcome::Stored);
    }
    for call in finishes {
        assert_eq!(call.await.unwrap().unwrap(), FinishOutcome::LeaseLost);
    }
}

#[tokio::test]
async fn a_full_queue_refuses_what_is_new_and_lets_finishes_wait() {
    let (gated, committer) = Gated::start(2);
    let mut calls = vec![record(&committer, "first")];
    gated.at_the_gate().await;
    calls.extend([record(&committer, "d1"), record(&committer, "d2")]);
    queued(&committer, 2).await;
    let refused = committer.record(row("d3", "k", 0)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let refused = committer.publish(publish_of(&["e"]), 0).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");

    let finish = finish(&committer);
    yield_now().await;
    assert!(!finish.is_finished());
    gated.open();
    assert_eq!(finish.await.unwrap().unwrap(), FinishOutcome::LeaseLost);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), RecordOutcome::Stored);
    }
}

#[tokio::test]
async fn an_error_reaches_everyone_of_its_group_and_nobody_else() {
    let (gated, committer) = Gated::start(1000);
    let first = record(&committer, "first");
    gated.at_the_gate().await;
    let (row, event) = (record(&committer, "d"), publish(&committer, &["e"]));
    queued(&committer, 2).await;
    gated.gate.add_permits(1);
    assert!(first.await.unwrap().is_ok());
    gated.at_the_gate().await;
    gated.store.fail_next(Operation::Commit, Fault::After(StoreError::Unknown("cut off".into())));
    gated.open();
    assert!(matches!(row.await.unwrap(), Err(StoreError::Unknown(text)) if text == "cut off"));
    assert!(matches!(event.await.unwrap(), Err(StoreError::Unknown(text)) if text == "cut off"));
    assert_eq!(record(&committer, "d").await.unwrap().unwrap(), RecordOutcome::Duplicate);
}

#[tokio::test]
async fn a_store_that_panics_leaves_an_unknown_outcome_and_no_one_waiting() {
    let committer = Committer::over(|_| async { panic!("a defect of the store") }, 10, 2);
    let unknown = committer.record(row("d", "k", 0)).await;
    assert!(matches!(unknown, Err(StoreError::Unknown(_))), "{unknown:?}");
    let ended = committer.record(row("d", "k", 0)).await;
    assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{ended:?}");
}

#[tokio::test]
async fn the_task_ends_with_the_last_handle_and_after_the_last_write() {
    let (gated, committer) = Gated::start(1000);
    let first = record(&committer, "first");
    gated.at_the_gate().await;
    let second = record(&committer, "second");
    queued(&committer, 1).await;
    let queue = committer.new.downgrade();
    for call in [first, second] {
        call.abort();
        let _ = call.await;
    }
    drop(committer);
    assert!(queue.upgrade().is_none(), "no handle is left");
    gated.open();
    // The task holds the other handle to the store until it ends.
    while Arc::strong_count(&gated) > 1 {
        yield_now().await;
    }
    assert_eq!(gated.store.backlog().await.unwrap().effects, 2);
}
