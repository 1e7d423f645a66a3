//! Group commit: concurrent writes share one transaction, in this one place in front of the trait.

use tokio::sync::mpsc::error::{TryRecvError, TrySendError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};

use super::{
    FinishAttempt, FinishLane, FinishOutcome, Group, GroupOutcome, NewRow, Publish, PublishOutcome, RecordOutcome,
    SharedStore, StoreError, metrics,
};
use crate::clock::Stopwatch;

/// Most writes in one transaction; each event of a publish counts as one, and each delivery that comes of it. The last part
/// that is taken may exceed it.
const MAX_GROUP_WRITES: usize = 1024;
/// Most parts of each queue that wait for their transaction; beyond it new events and deliveries are refused.
const MAX_QUEUED_PARTS: usize = 4096;

/// Hands writes to the store in groups: while transactions are being committed, as many as the store takes at a time
/// ([`Store::commits_at_once`](super::Store::commits_at_once)), what is asked for meanwhile gathers for the next, so that
/// the cost of a commit is shared by all who wait for it.
///
/// What has been handed over is written even if the caller's future is dropped before it hears of it. The task behind
/// it ends when the last clone is dropped and everything handed over is written.
#[derive(Debug, Clone)]
pub struct Committer {
    /// New events and deliveries.
    new: mpsc::Sender<Part>,
    /// What came of those before. In a queue of their own, so that no number of them has new ones refused.
    finishes: mpsc::Sender<Part>,
}

/// Something to write, and who waits for the answer.
#[derive(Debug)]
enum Part {
    FinishAttempt(FinishAttempt, Caller<FinishOutcome>),
    FinishLane(FinishLane, Caller<FinishOutcome>),
    /// With the deliveries that are expected to come of it.
    Publish(Publish, usize, Caller<PublishOutcome>),
    Record(NewRow, Caller<RecordOutcome>),
}

/// One commit under way.
trait Commit: Future<Output = Result<GroupOutcome, StoreError>> + Send + 'static {}
impl<F: Future<Output = Result<GroupOutcome, StoreError>> + Send + 'static> Commit for F {}

type Caller<A> = oneshot::Sender<Result<A, StoreError>>;

impl Committer {
    /// Starts the task that commits; must be called within a tokio runtime.
    pub fn start(store: SharedStore) -> Self {
        let at_once = store.commits_at_once();
        let commit = move |group| {
            let store = store.clone();
            async move { store.commit(group).await }
        };
        Self::over(commit, MAX_QUEUED_PARTS, at_once)
    }

    fn over<C: Commit>(
        commit: impl Fn(Group) -> C + Send + Sync + 'static,
        max_queued_parts: usize,
        at_once: usize,
    ) -> Self {
        metrics::describe();
        let ((new, new_parts), (finishes, finish_parts)) =
            (mpsc::channel(max_queued_parts), mpsc::channel(max_queued_parts));
        tokio::spawn(run(commit, Queued { new: new_parts, finishes: finish_parts }, at_once));
        Self { new, finishes }
    }

    /// Stores events, of which about so many `deliveries` come. Refused as [`StoreError::Unavailable`] when too much waits
    /// already; [`super::Store::commit`] tells the rest.
    pub async fn publish(&self, publish: Publish, deliveries: usize) -> Result<PublishOutcome, StoreError> {
        self.offer(|caller| Part::Publish(publish, deliveries, caller)).await
    }

    /// Stores a received delivery. Refused as [`StoreError::Unavailable`] when too much waits already.
    pub async fn record(&self, row: NewRow) -> Result<RecordOutcome, StoreError> {
        self.offer(|caller| Part::Record(row, caller)).await
    }

    /// Writes what an attempt came to. Waits for its place in the queue: what is under way must be able to end.
    pub async fn finish_attempt(&self, finish: FinishAttempt) -> Result<FinishOutcome, StoreError> {
        self.put(|caller| Part::FinishAttempt(finish, caller)).await
    }

    /// Writes what was done with a lane. Waits for its place in the queue.
    pub async fn finish_lane(&self, finish: FinishLane) -> Result<FinishOutcome, StoreError> {
        self.put(|caller| Part::FinishLane(finish, caller)).await
    }

    async fn offer<A>(&self, part: impl FnOnce(Caller<A>) -> Part) -> Result<A, StoreError> {
        let (caller, answer) = oneshot::channel();
        self.new.try_send(part(caller)).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Unavailable("too many writes are waiting for it".into()),
            TrySendError::Closed(_) => ended(),
        })?;
        heard(answer).await
    }

    async fn put<A>(&self, part: impl FnOnce(Caller<A>) -> Part) -> Result<A, StoreError> {
        let (caller, answer) = oneshot::channel();
        self.finishes.send(part(caller)).await.map_err(|_| ended())?;
        heard(answer).await
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("the task that writes to it has ended".into())
}

async fn heard<A>(answer: oneshot::Receiver<Result<A, StoreError>>) -> Result<A, StoreError> {
    // The task drops a caller unanswered only if it panics, in the midst of a commit or before it.
    answer.await.unwrap_or_else(|_| Err(StoreError::Unknown("the task that writes to it ended without a word".into())))
}

async fn run<C: Commit>(commit: impl Fn(Group) -> C, mut queued: Queued, at_once: usize) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            biased; // the order is no matter, but a simulation must be able to repeat itself
            Some(ended) = under_way.join_next() => pass_on_panic(ended),
            gathered = queued.gather(), if under_way.len() < at_once => {
                let Some(mut gathered) = gathered else { break };
                let committed = commit(std::mem::take(&mut gathered.group));
                under_way.spawn(async move {
                    let watch = Stopwatch::start();
                    let outcome = committed.await;
                    metrics::committed(&outcome, watch.elapsed(), gathered.writes);
                    gathered.answer(outcome);
                });
            }
        }
    }
    while let Some(ended) = under_way.join_next().await {
        pass_on_panic(ended);
    }
}

/// Whoever waits for a later commit must hear that there is nobody to make it.
fn pass_on_panic(ended: Result<(), JoinError>) {
    if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
        std::panic::resume_unwind(panic);
    }
}

/// What waits for its transaction.
struct Queued {
    new: mpsc::Receiver<Part>,
    finishes: mpsc::Receiver<Part>,
}

impl Queued {
    /// Waits for something, and takes along what is there; of both queues alike, where both have enough. Nothing is taken
    /// by one that is dropped while it waits.
    async fn gather(&mut self) -> Option<Gathered> {
        let first = tokio::select! {
            biased;
            Some(part) = self.finishes.recv() => part,
            Some(part) = self.new.recv() => part,
            else => return None,
        };
        let mut gathered = Gathered::default();
        gathered.add(first);
        while gathered.writes < MAX_GROUP_WRITES
            && let Ok(next) = self.next(gathered.finishes > gathered.writes / 2)
        {
            gathered.add(next);
        }
        Some(gathered)
    }

    fn next(&mut self, new_first: bool) -> Result<Part, TryRecvError> {
        let (first, second) =
            if new_first { (&mut self.new, &mut self.finishes) } else { (&mut self.finishes, &mut self.new) };
        first.try_recv().or_else(|_| second.try_recv())
    }
}

/// A group, and its callers position by position.
#[derive(Default)]
struct Gathered {
    group: Group,
    writes: usize,
    /// Those of the writes that are finishes.
    finishes: usize,
    finish_attempts: Vec<Caller<FinishOutcome>>,
    finish_lanes: Vec<Caller<FinishOutcome>>,
    publish: Vec<Caller<PublishOutcome>>,
    record: Vec<Caller<RecordOutcome>>,
}

impl Gathered {
    fn add(&mut self, part: Part) {
        let (writes, finishes) = match &part {
            Part::Publish(publish, deliveries, _) => ((publish.events.len() + deliveries).max(1), 0),
            Part::Record(..) => (1, 0),
            Part::FinishAttempt(..) | Part::FinishLane(..) => (1, 1),
        };
        self.writes += writes;
        self.finishes += finishes;
        match part {
            Part::FinishAttempt(finish, caller) => {
                self.group.finish_attempts.push(finish);
                self.finish_attempts.push(caller);
            }
            Part::FinishLane(finish, caller) => {
                self.group.finish_lanes.push(finish);
                self.finish_lanes.push(caller);
            }
            Part::Publish(publish, _, caller) => {
                self.group.publish.push(publish);
                self.publish.push(caller);
            }
            Part::Record(row, caller) => {
                self.group.record.push(row);
                self.record.push(caller);
            }
        }
    }

    fn answer(self, outcome: Result<GroupOutcome, StoreError>) {
        match outcome {
            Ok(outcome) => {
                answer(self.finish_attempts, outcome.finish_attempts);
                answer(self.finish_lanes, outcome.finish_lanes);
                answer(self.publish, outcome.publish);
                answer(self.record, outcome.record);
            }
            Err(error) => {
                refuse(self.finish_attempts, &error);
                refuse(self.finish_lanes, &error);
                refuse(self.publish, &error);
                refuse(self.record, &error);
            }
        }
    }
}

/// Tells every caller its own answer; one that has gone away does not need it.
fn answer<A>(callers: Vec<Caller<A>>, answers: Vec<A>) {
    debug_assert_eq!(callers.len(), answers.len(), "a store answers every part of a group");
    for (caller, answer) in callers.into_iter().zip(answers) {
        let _ = caller.send(Ok(answer));
    }
}

fn refuse<A>(callers: Vec<Caller<A>>, error: &StoreError) {
    for caller in callers {
        let _ = caller.send(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests;
