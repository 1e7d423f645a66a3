//! Group commit: concurrent writes share one transaction, in this one place in front of the trait.

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::{
    FinishAttempt, FinishLane, FinishOutcome, Group, GroupOutcome, NewRow, Publish, PublishOutcome, RecordOutcome,
    SharedStore, StoreError, metrics,
};
use crate::clock::Stopwatch;

/// Most writes in one transaction; an event of a batch counts as one write. The last part that is taken may exceed it.
const MAX_GROUP_WRITES: usize = 512;
/// Most parts that wait for their transaction; beyond it new events and deliveries are refused.
const MAX_QUEUED_PARTS: usize = 4096;

/// Hands writes to the store in groups: while one transaction is being committed, what is asked for meanwhile gathers
/// for the next, so that the cost of a commit is shared by all who wait for it.
///
/// What has been handed over is written even if the caller's future is dropped before it hears of it. The task behind
/// it ends when the last clone is dropped and everything handed over is written.
#[derive(Debug, Clone)]
pub struct Committer {
    queue: mpsc::Sender<Part>,
}

/// Something to write, and who waits for the answer.
#[derive(Debug)]
enum Part {
    FinishAttempt(FinishAttempt, Caller<FinishOutcome>),
    FinishLane(FinishLane, Caller<FinishOutcome>),
    Publish(Publish, Caller<PublishOutcome>),
    Record(NewRow, Caller<RecordOutcome>),
}

/// One commit under way.
trait Commit: Future<Output = Result<GroupOutcome, StoreError>> + Send + 'static {}
impl<F: Future<Output = Result<GroupOutcome, StoreError>> + Send + 'static> Commit for F {}

type Caller<A> = oneshot::Sender<Result<A, StoreError>>;

impl Committer {
    /// Starts the task that commits; must be called within a tokio runtime.
    pub fn start(store: SharedStore) -> Self {
        let commit = move |group| {
            let store = store.clone();
            async move { store.commit(group).await }
        };
        Self::over(commit, MAX_QUEUED_PARTS)
    }

    fn over<C: Commit>(commit: impl Fn(Group) -> C + Send + Sync + 'static, max_queued_parts: usize) -> Self {
        metrics::describe();
        let (queue, parts) = mpsc::channel(max_queued_parts);
        tokio::spawn(run(commit, parts));
        Self { queue }
    }

    /// Stores events. Refused as [`StoreError::Unavailable`] when too much waits already; [`super::Store::commit`]
    /// tells the rest.
    pub async fn publish(&self, publish: Publish) -> Result<PublishOutcome, StoreError> {
        self.offer(|caller| Part::Publish(publish, caller)).await
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
        self.queue.try_send(part(caller)).map_err(|error| match error {
            TrySendError::Full(_) => StoreError::Unavailable("too many writes are waiting for it".into()),
            TrySendError::Closed(_) => ended(),
        })?;
        heard(answer).await
    }

    async fn put<A>(&self, part: impl FnOnce(Caller<A>) -> Part) -> Result<A, StoreError> {
        let (caller, answer) = oneshot::channel();
        self.queue.send(part(caller)).await.map_err(|_| ended())?;
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

async fn run<C: Commit>(commit: impl Fn(Group) -> C, mut parts: mpsc::Receiver<Part>) {
    while let Some(first) = parts.recv().await {
        let mut gathered = Gathered::default();
        gathered.add(first);
        while gathered.writes < MAX_GROUP_WRITES
            && let Ok(next) = parts.try_recv()
        {
            gathered.add(next);
        }
        let watch = Stopwatch::start();
        let outcome = commit(std::mem::take(&mut gathered.group)).await;
        metrics::committed(&outcome, watch.elapsed(), gathered.writes);
        gathered.answer(outcome);
    }
}

/// A group, and its callers position by position.
#[derive(Default)]
struct Gathered {
    group: Group,
    writes: usize,
    finish_attempts: Vec<Caller<FinishOutcome>>,
    finish_lanes: Vec<Caller<FinishOutcome>>,
    publish: Vec<Caller<PublishOutcome>>,
    record: Vec<Caller<RecordOutcome>>,
}

impl Gathered {
    fn add(&mut self, part: Part) {
        self.writes += match &part {
            Part::Publish(publish, _) => publish.events.len().max(1),
            Part::FinishAttempt(..) | Part::FinishLane(..) | Part::Record(..) => 1,
        };
        match part {
            Part::FinishAttempt(finish, caller) => {
                self.group.finish_attempts.push(finish);
                self.finish_attempts.push(caller);
            }
            Part::FinishLane(finish, caller) => {
                self.group.finish_lanes.push(finish);
                self.finish_lanes.push(caller);
            }
            Part::Publish(publish, caller) => {
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
