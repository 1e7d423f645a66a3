//! Transactions.
//!
//! A transaction runs in a task of its own, so that no caller who goes away cuts it in two. Every call ends within its
//! deadline. Where the answer to a COMMIT is lost, the table `commits` tells what became of it: every transaction that
//! writes raises its writer's number there, and a new connection waits for the old one's end and reads it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::OpenError;
use super::connections::{Connections, DEADLINE, Lent, MAX_WAIT};
use super::days::Days;
use super::errors::After;
use super::transaction::{Parameters, Transaction};
use super::webhooks::WebhookCache;
use crate::clock::{self, Stopwatch};
use crate::crash;
use crate::postgres::Target;
use crate::store::StoreError;

/// For how long it is asked what became of a COMMIT whose answer was lost. Who waits for it gets no answer meanwhile.
const RESOLVE_FOR: Duration = Duration::from_secs(10);
/// The pause between two of these questions.
const RESOLVE_PAUSE: Duration = Duration::from_millis(200);
/// How often a transaction is begun again that others stood in the way of.
const MAX_TRIES: u32 = 5;
/// After how many transactions a writer goes to a line under another key. What its line was before stays until it is
/// cleaned up, which a transaction that is open for long prevents, and whoever asks for a key walks past all of it.
pub(super) const LINE_TRANSACTIONS: i64 = 200;

const BEGIN_READING: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
const NUMBER: &str = "UPDATE commits SET number = $3 WHERE node = $1 AND writer = $2";
/// Twice is the same as once.
const MOVE: &str = "UPDATE commits SET writer = $3 WHERE node = $1 AND writer IN ($2, $3)";
const ENROL: &str = "INSERT INTO commits (node, writer, number, at) SELECT $1, writer, 0, $3
    FROM generate_series(0, $2::BIGINT - 1) writer";
/// Waits until a transaction that is still under way there has ended.
const WHAT_BECAME: &str = "SELECT number FROM commits WHERE node = $1 AND writer = $2 FOR UPDATE";
const FORGET_NODES: &str = "DELETE FROM commits WHERE at < $1";
const FORGET_NODE: &str = "DELETE FROM commits WHERE node = $1";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[NUMBER, MOVE, ENROL, WHAT_BECAME, FORGET_NODES, FORGET_NODE];

/// What a piece of work will have done.
pub(super) type Work<'t, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 't>>;

/// The database, shared by all calls of this node.
#[derive(Clone)]
pub(super) struct Database(Arc<Shared>);

struct Shared {
    connections: Connections,
    /// This process, in `commits`.
    node: String,
    writers: Mutex<Vec<Writer>>,
    free_writers: Semaphore,
    webhooks: Arc<WebhookCache>,
    days: Arc<Days>,
}

/// One of this node's lines in `commits`.
struct Writer {
    line: i64,
    /// Of its last transaction.
    number: i64,
    /// The first number under which it wrote to this line.
    since: i64,
}

/// How a transaction failed.
struct Failure {
    error: StoreError,
    after: After,
}

impl Failure {
    fn may_succeed_at_once(&self) -> bool {
        matches!(self.after, After::TryAgain | After::Broken)
    }
}

impl Database {
    /// Prepares to connect; nothing is connected yet.
    pub(super) fn new(
        target: &Target,
        connections: usize,
        webhooks: Arc<WebhookCache>,
        days: Arc<Days>,
    ) -> Result<Self, OpenError> {
        let pool = Connections::new(target, connections)
            .map_err(|reason| OpenError::Setup { url: target.shown.clone(), reason })?;
        let node = data_encoding::HEXLOWER.encode(&clock::random::<16>());
        let writers = (0..connections).filter_map(|line| i64::try_from(line).ok());
        let writers: Vec<_> = writers.map(|line| Writer { line, number: 0, since: 0 }).collect();
        let free_writers = Semaphore::new(writers.len());
        let writers = Mutex::new(writers);
        Ok(Self(Arc::new(Shared { connections: pool, node, writers, free_writers, webhooks, days })))
    }

    /// Enters this node's writers into `commits`, and forgets those of nodes that began before `old`; both by the schedule
    /// clock, in milliseconds.
    pub(super) async fn enrol(&self, now: i64, old: i64) -> Result<(), StoreError> {
        let connection = self.0.connections.get().await?;
        connection.execute(FORGET_NODES, &[&old]).await?;
        connection.execute(ENROL, &[&self.0.node, &self.0.lines(), &now]).await?;
        Ok(())
    }

    /// A connection beside the others on which statements may take as long as they take.
    pub(super) async fn patient(&self) -> Result<ClientWrapper, StoreError> {
        let connection = Object::take(self.0.connections.get().await?);
        connection.batch_execute("SET statement_timeout = 0").await?;
        Ok(connection)
    }

    /// Takes this node's writers out of `commits`.
    pub(super) async fn leave(&self) -> Result<(), StoreError> {
        self.0.connections.get().await?.execute(FORGET_NODE, &[&self.0.node]).await?;
        self.0.connections.close();
        Ok(())
    }

    /// Runs statements outside of any transaction: for one statement, or several that may see different states.
    pub(super) async fn look<A, T>(
        &self,
        asked: A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        self.0.reading(None, &asked, work).await
    }

    /// Reads one state with several statements.
    pub(super) async fn read<A, T>(
        &self,
        asked: A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        self.0.reading(Some(BEGIN_READING), &asked, work).await
    }

    /// Runs `work` as one transaction and answers after its commit. Once begun it is run to its end, even if the caller no
    /// longer waits. It may be run more than once, each time anew from nothing.
    pub(super) async fn write<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        asked: A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.0);
        #[cfg(test)]
        let _held = clock::hold_time();
        let task = tokio::spawn(async move { shared.write(&asked, work).await });
        let lost = |error| Err(StoreError::Unknown(format!("the task that writes to it broke off: {error}")));
        task.await.unwrap_or_else(lost)
    }
}

impl Database {
    /// Runs `work` as one transaction of which nobody can tell what became of it if its answer is lost: for the schema, by
    /// which `commits` comes to be.
    pub(super) async fn write_unnumbered<A, T>(
        &self,
        asked: A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        self.0.reading(Some("BEGIN"), &asked, work).await
    }
}

impl Shared {
    async fn reading<A, T>(
        &self,
        begin: Option<&str>,
        asked: &A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        #[cfg(test)]
        let _held = clock::hold_time();
        let mut tries = 0;
        loop {
            tries += 1;
            let connection = self.connections.lend().await?;
            let transaction = Transaction::new(&connection, &self.webhooks);
            let all = async {
                if let Some(begin) = begin {
                    transaction.batch(begin).await?;
                }
                let answer = work(&transaction, asked).await?;
                if begin.is_some() {
                    transaction.batch("COMMIT").await?;
                }
                Ok(answer)
            };
            let failure = match within_deadline(all).await {
                Ok(answer) => {
                    drop(transaction);
                    connection.give_back();
                    return Ok(answer);
                }
                Err(error) => Failure { error: transaction.cause(error), after: transaction.after() },
            };
            drop(transaction);
            self.put_back(connection, failure.after, begin.is_some()).await;
            if !failure.may_succeed_at_once() || tries == MAX_TRIES {
                return Err(failure.error);
            }
        }
    }

    /// Gives a connection back after a failure, without a transaction on it; one that is broken is closed.
    async fn put_back(&self, connection: Lent, after: After, in_transaction: bool) {
        let is_usable = matches!(after, After::Usable | After::TryAgain | After::NoPlace)
            && (!in_transaction || within_deadline(rolled_back(&connection)).await.is_ok());
        if is_usable {
            connection.give_back();
        }
    }

    async fn write<A, T>(
        &self,
        asked: &A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        let busy = || StoreError::Unavailable("too much is being written to the database".to_owned());
        let _permit = timeout(MAX_WAIT, self.free_writers.acquire()).await.map_err(|_| busy())?.map_err(|_| busy())?;
        let taken = self.writers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut writer = taken.ok_or_else(busy)?;
        let result = self.write_as(&mut writer, asked, work).await;
        self.writers.lock().unwrap_or_else(PoisonError::into_inner).push(writer);
        result
    }

    async fn write_as<A, T>(
        &self,
        writer: &mut Writer,
        asked: &A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T>,
    ) -> Result<T, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            writer.number += 1;
            let connection = self.connections.lend().await?;
            let transaction = Transaction::new(&connection, &self.webhooks);
            let moves = writer.number - writer.since >= LINE_TRANSACTIONS;
            let line = if moves { writer.line + self.lines() } else { writer.line };
            let (from, number): (Parameters<'_>, Parameters<'_>) =
                (&[&self.node, &writer.line, &line], &[&self.node, &line, &writer.number]);
            let begun = async {
                if moves {
                    transaction.execute(MOVE, from).await?;
                }
                // Both go out together.
                let (begun, numbered) = tokio::join!(transaction.batch("BEGIN"), transaction.execute(NUMBER, number));
                begun?;
                enrolled(numbered?)?;
                work(&transaction, asked).await
            };
            let begun = within_deadline(begun).await;
            if moves && begun.is_ok() {
                (writer.line, writer.since) = (line, writer.number);
            }
            let failure = match begun {
                Ok(answer) => match commit(&transaction).await {
                    Ok(()) => {
                        transaction.committed();
                        drop(transaction);
                        connection.give_back();
                        return Ok(answer);
                    }
                    Err(Failure { error: StoreError::Unknown(reason), .. }) => {
                        transaction.committed();
                        drop(transaction);
                        drop(connection);
                        return self.resolve(writer, reason).await.map(|()| answer);
                    }
                    Err(failure) => failure,
                },
                Err(error) => Failure { error: transaction.cause(error), after: transaction.after() },
            };
            drop(transaction);
            self.put_back(connection, failure.after, true).await;
            if failure.after == After::NoPlace {
                self.days.note_loss();
            }
            if !failure.may_succeed_at_once() || tries == MAX_TRIES {
                return Err(failure.error);
            }
        }
    }

    /// How many lines this node has in `commits`.
    fn lines(&self) -> i64 {
        i64::try_from(self.connections.most()).unwrap_or(i64::MAX)
    }

    /// What became of a COMMIT whose answer was lost: an error where it was not written, or nobody can tell.
    async fn resolve(&self, writer: &Writer, reason: String) -> Result<(), StoreError> {
        let watch = Stopwatch::start();
        loop {
            match within_deadline(self.last_number(writer.line)).await {
                Ok(Some(number)) if number == writer.number => return Ok(()),
                Ok(Some(_)) => return Err(StoreError::Unavailable(format!("{reason}; nothing was written"))),
                Ok(None) => return Err(StoreError::Unknown(reason)),
                Err(_) if watch.elapsed() < RESOLVE_FOR => tokio::time::sleep(RESOLVE_PAUSE).await,
                Err(error) => return Err(StoreError::Unknown(format!("{reason}; then: {error}"))),
            }
        }
    }

    async fn last_number(&self, line: i64) -> Result<Option<i64>, StoreError> {
        let connection = self.connections.get().await?;
        let found = connection.query_opt(WHAT_BECAME, &[&self.node, &line]).await?;
        Ok(found.map(|row| row.try_get(0)).transpose()?)
    }
}

/// A node whose lines in `commits` are gone cannot tell what becomes of its commits; a new start enters them again.
fn enrolled(lines: u64) -> Result<(), StoreError> {
    let gone = || StoreError::Unavailable("this node is no longer known to the database; restart it".to_owned());
    (lines == 1).then_some(()).ok_or_else(gone)
}

async fn rolled_back(connection: &Object) -> Result<(), StoreError> {
    Ok(connection.batch_execute("ROLLBACK").await?)
}

async fn commit(transaction: &Transaction<'_>) -> Result<(), Failure> {
    crash::point("postgres.uncommitted");
    match timeout(DEADLINE, transaction.batch("COMMIT")).await {
        Ok(Ok(())) => {
            crash::point("postgres.committed");
            Ok(())
        }
        // The server says that it did not.
        Ok(Err(error)) if transaction.after() != After::Broken => Err(Failure { error, after: transaction.after() }),
        Ok(Err(error)) => Err(Failure { error: StoreError::Unknown(error.to_string()), after: After::Broken }),
        Err(_) => {
            let reason = format!("no answer to a commit within {DEADLINE:?}");
            Err(Failure { error: StoreError::Unknown(reason), after: After::Late })
        }
    }
}

async fn within_deadline<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let late = |_| Err(StoreError::Unavailable(format!("the database did not answer within {DEADLINE:?}")));
    timeout(DEADLINE, work).await.unwrap_or_else(late)
}
