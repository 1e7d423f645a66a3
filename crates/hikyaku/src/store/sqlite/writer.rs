//! The thread that writes.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::errors;
use super::queues::{QueueView, Queues};
use super::webhooks::{WebhookCache, WebhookView};
use crate::crash;
use crate::file::FileInUse;
use crate::store::StoreError;

/// Most writes that wait for the thread; whoever comes then waits to be let in.
const MAX_QUEUED_JOBS: usize = 256;
/// When the write-ahead log is longer than this, in bytes, everything is made to wait until it is folded back.
pub(super) const MAX_WAL_BYTES: u64 = 64 * 1024 * 1024;

type Job = Box<dyn FnOnce(&mut State) + Send>;

/// Hands jobs to the thread that writes.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// What a job works with: one open transaction.
pub(super) struct Transaction<'w> {
    /// Where its statements run.
    pub(super) db: &'w Connection,
    /// The webhooks as this transaction sees them.
    pub(super) webhooks: &'w mut WebhookView,
    /// What waits for whom: to be told of every change of `waiting`.
    pub(super) queues: &'w mut QueueView,
    /// The last number that was given to a claim of a lane.
    pub(super) lane_claims: &'w mut i64,
}

/// What the thread owns.
struct State {
    connection: Connection,
    webhooks: WebhookView,
    queues: QueueView,
    lane_claims: i64,
    file: FileInUse,
    wal: Wal,
    /// Held for as long as anything may be written.
    _lock: File,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        connection: Connection,
        lock: File,
        file: FileInUse,
        wal_path: PathBuf,
        webhooks: Arc<WebhookCache>,
        queues: Arc<Queues>,
    ) -> io::Result<Self> {
        let wal = Wal { path: wal_path, fold_at_bytes: MAX_WAL_BYTES };
        let (webhooks, queues) = (WebhookView::new(webhooks), QueueView::new(queues));
        let mut state = State { connection, webhooks, queues, lane_claims: 0, file, wal, _lock: lock };
        let (jobs, mut queue) = mpsc::channel::<Job>(MAX_QUEUED_JOBS);
        let thread = thread::Builder::new().name("sqlite-writer".into()).spawn(move || {
            while let Some(job) = queue.blocking_recv() {
                job(&mut state);
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `work` as one transaction and answers after its commit. Once handed over it is run to its end, even if the
    /// caller no longer waits.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.queue(move |state, caller| {
            // A caller that has gone does not need the answer.
            let _ = caller.send(state.transact(work));
            state.wal.bound(&state.connection);
        })
        .await
    }

    /// Folds the write-ahead log back into the file, after everything that was handed over before.
    pub(super) async fn fold(&self) -> Result<(), StoreError> {
        self.queue(|state, caller| {
            let busy = || StoreError::Unavailable("somebody still reads from the write-ahead log".into());
            let folded = fold(&state.connection).map_err(StoreError::from);
            let _ = caller.send(folded.and_then(|outcome| (outcome == 0).then_some(()).ok_or_else(busy)));
        })
        .await
    }

    async fn queue<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut State, oneshot::Sender<Result<T, StoreError>>) + Send + 'static,
    ) -> Result<T, StoreError> {
        let (caller, answered) = oneshot::channel();
        let job: Job = Box::new(move |state| work(state, caller));
        #[cfg(test)]
        let _held = crate::clock::hold_time();
        let stopped = || StoreError::Unavailable("the thread that writes has stopped; restart the program".into());
        self.jobs.as_ref().ok_or_else(stopped)?.send(job).await.map_err(|_| stopped())?;
        let lost = |_| Err(StoreError::Unknown("the thread that writes stopped during this write".into()));
        answered.await.unwrap_or_else(lost)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // It panicked or it ended; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl State {
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let result = self.attempt(work);
        match &result {
            Ok(_) => {
                self.webhooks.committed();
                self.queues.committed();
            }
            Err(StoreError::Unknown(_)) => {
                self.webhooks.unknown();
                self.queues.unknown();
            }
            Err(StoreError::Unavailable(_) | StoreError::Damaged(_)) => {
                self.webhooks.rolled_back();
                self.queues.rolled_back();
            }
        }
        result
    }

    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if !self.connection.is_autocommit() {
            // The last rollback failed with its transaction.
            self.connection.execute_batch("ROLLBACK")?;
        }
        if !self.file.is_in_place() {
            return Err(StoreError::Unavailable("its file was moved or deleted; put it back and restart".into()));
        }
        let open = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut transaction = Transaction {
            db: &open,
            webhooks: &mut self.webhooks,
            queues: &mut self.queues,
            lane_claims: &mut self.lane_claims,
        };
        // An error drops the transaction, which rolls it back.
        let answer = work(&mut transaction)?;
        self.queues.settle(&open)?;
        crash::point("sqlite.uncommitted");
        open.commit().map_err(|error| errors::of_commit(&error))?;
        crash::point("sqlite.committed");
        Ok(answer)
    }
}

/// Folds the write-ahead log back and empties it; 0 if that could be done.
fn fold(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
}

/// Keeps the write-ahead log bounded. SQLite folds it back by itself every so many pages, but starts it anew only
/// when nobody happens to read from it; under steady reading that may never be.
struct Wal {
    path: PathBuf,
    fold_at_bytes: u64,
}

impl Wal {
    fn bound(&mut self, connection: &Connection) {
        let bytes = fs::metadata(&self.path).map_or(0, |file| file.len());
        if bytes <= self.fold_at_bytes {
            return;
        }
        // Waits for the readers that are in it, for as long as the busy timeout; new ones no longer need it by then.
        let folded = fold(connection);
        if matches!(folded, Ok(0)) {
            self.fold_at_bytes = MAX_WAL_BYTES;
        } else {
            // Somebody reads for very long: try again later, not after every write.
            self.fold_at_bytes = bytes.saturating_add(MAX_WAL_BYTES / 4);
            tracing::warn!(bytes, outcome = ?folded, "the write-ahead log could not be folded back; a reader holds it");
        }
    }
}
