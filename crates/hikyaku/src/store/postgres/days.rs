//! The partitions of history: one of each table for every day. A day's are made before the first row that belongs there,
//! and dropped whole when the day is old.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::PostgresStore;
use super::columns::millis;
use super::database::Work;
use super::transaction::Transaction;
use crate::store::StoreError;

/// Milliseconds of a day.
pub(super) const DAY_MILLIS: i64 = 24 * 60 * 60 * 1000;
/// Most days that are kept in mind as made; when there are more, all are asked for again.
const MAX_KNOWN_DAYS: usize = 4_000;

/// History that goes with the day of an event's publish.
pub(super) const BY_EVENT: [&str; 3] = ["events", "deliveries", "attempts"];
/// History that goes with the day of a delivery's arrival.
pub(super) const BY_ARRIVAL: [&str; 3] = ["inbox_rows", "inbox_bodies", "effects"];

/// Keeps other nodes from making or dropping partitions until the end of the transaction.
pub(super) const ONE_AT_A_TIME: &str = "LOCK TABLE schema_steps IN SHARE ROW EXCLUSIVE MODE";
/// Those tables of these names that are not there, in the schema that is written to.
const NOT_THERE: &str = "SELECT name FROM UNNEST($1::TEXT[]) AS name WHERE to_regclass(name) IS NULL";

/// A partition is attached by whoever owns the table.
const MAY_BE_MADE: &str = "SELECT has_schema_privilege(relnamespace, 'CREATE') AND pg_has_role(relowner, 'USAGE')
    FROM pg_class WHERE oid = 'events'::regclass";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[ONE_AT_A_TIME, NOT_THERE, MAY_BE_MADE];

/// A day, as a number since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Day(pub(super) i64);

impl Day {
    /// The day of a point in time.
    pub(super) fn of(at: Timestamp) -> Self {
        Self(millis(at).div_euclid(DAY_MILLIS))
    }

    /// Its first millisecond.
    pub(super) fn start(self) -> i64 {
        self.0.saturating_mul(DAY_MILLIS)
    }

    /// The first millisecond that is no longer of it.
    pub(super) fn end(self) -> i64 {
        self.start().saturating_add(DAY_MILLIS)
    }

    /// The name of a table's partition: the day's number behind it, so that names sort as days do for the next 270 years.
    pub(super) fn partition(self, table: &str) -> String {
        format!("{table}_{:05}", self.0)
    }
}

/// The days whose partitions are known to be there.
#[derive(Default)]
pub(super) struct Days {
    known: Mutex<BTreeSet<Day>>,
    /// How often one of them was found to be gone.
    losses: AtomicU64,
    /// Whether the last one that was to be made could not be.
    is_failing: AtomicBool,
}

impl Days {
    fn known(&self) -> std::sync::MutexGuard<'_, BTreeSet<Day>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_made(&self, day: Day) {
        let mut known = self.known();
        if known.len() >= MAX_KNOWN_DAYS {
            known.clear();
        }
        known.insert(day);
    }

    /// Whether the last day that was to be made could not be, so that nothing of it can be written.
    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Ordering::SeqCst)
    }

    /// Forgets a day whose partitions are dropped.
    pub(super) fn forget(&self, day: Day) {
        self.known().remove(&day);
    }

    /// A row found no partition: another node has dropped one that was known here.
    pub(super) fn note_loss(&self) {
        self.known().clear();
        self.losses.fetch_add(1, Ordering::SeqCst);
    }
}

impl PostgresStore {
    /// Makes sure that there is a place for rows of these points in time.
    pub(super) async fn make_days(&self, times: impl IntoIterator<Item = Timestamp>) -> Result<(), StoreError> {
        self.make(&times.into_iter().map(Day::of).collect()).await
    }

    async fn make(&self, days: &BTreeSet<Day>) -> Result<(), StoreError> {
        let unknown: Vec<Day> = days.difference(&self.days.known()).copied().collect();
        for day in unknown {
            let absent = self.db.look(day, |transaction, day| Box::pin(absent(transaction, *day))).await?;
            if !absent.is_empty() {
                let made = self.db.write(day, |transaction, day| Box::pin(make(transaction, *day))).await;
                self.days.is_failing.store(made.is_err(), Ordering::SeqCst);
                made?;
            }
            self.days.note_made(day);
        }
        Ok(())
    }

    /// Writes rows that may belong to these points in time. Where a day is gone that this node had in mind, its place is
    /// made again, once.
    pub(super) async fn write_dated<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        times: impl IntoIterator<Item = Timestamp>,
        asked: A,
        work: impl for<'t> Fn(&'t Transaction<'t>, &'t A) -> Work<'t, T> + Copy + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let (days, asked) = (times.into_iter().map(Day::of).collect(), Arc::new(asked));
        let mut is_again = false;
        loop {
            self.make(&days).await?;
            let losses = self.days.losses.load(Ordering::SeqCst);
            let asked = Arc::clone(&asked);
            let written = self.db.write(asked, move |transaction, asked: &Arc<A>| work(transaction, asked)).await;
            if written.is_ok() || is_again || self.days.losses.load(Ordering::SeqCst) == losses {
                return written;
            }
            is_again = true;
        }
    }
}

/// Whether this user may make partitions.
pub(super) async fn may_be_made(transaction: &Transaction<'_>) -> Result<bool, StoreError> {
    Ok(transaction.one(MAY_BE_MADE, &[]).await?.try_get(0)?)
}

/// The partitions of a day that are not there.
async fn absent(transaction: &Transaction<'_>, day: Day) -> Result<BTreeSet<String>, StoreError> {
    let names: Vec<_> = BY_EVENT.iter().chain(&BY_ARRIVAL).map(|table| day.partition(table)).collect();
    let rows = transaction.query(NOT_THERE, &[&names]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Makes a day's partitions where they are not there. Attached rather than created in place, which keeps nobody from
/// writing to the other days meanwhile.
async fn make(transaction: &Transaction<'_>, day: Day) -> Result<(), StoreError> {
    transaction.batch(ONE_AT_A_TIME).await?;
    let absent = absent(transaction, day).await?;
    for (tables, column) in [(BY_EVENT, "created_at"), (BY_ARRIVAL, "due_since")] {
        for (table, partition) in tables.map(|table| (table, day.partition(table))) {
            if !absent.contains(&partition) {
                continue;
            }
            let (start, end) = (day.start(), day.end());
            let statements = format!(
                "CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS INCLUDING INDEXES INCLUDING STORAGE,
                     CHECK ({column} >= {start} AND {column} < {end}));
                 ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({start}) TO ({end});"
            );
            transaction.batch(&statements).await?;
        }
    }
    Ok(())
}
