//! The partitions of days that are wholly old, dropped when nothing is kept of them.

use jiff::Timestamp;

use crate::store::postgres::PostgresStore;
use crate::store::postgres::columns::millis;
use crate::store::postgres::days::{BY_ARRIVAL, BY_EVENT, Day, ONE_AT_A_TIME};
use crate::store::postgres::transaction::Transaction;
use crate::store::{Aged, StoreError};

/// How long others may have to wait behind a drop that waits itself for who reads or writes the table. When it is over, the
/// day stays until the next round.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '200ms'";

const PARTITIONS: &str = "SELECT parent.relname::TEXT, partition.relname::TEXT
    FROM pg_inherits JOIN pg_class AS parent ON parent.oid = inhparent JOIN pg_class AS partition ON partition.oid = inhrelid
    WHERE inhparent IN (SELECT to_regclass(name) FROM UNNEST($1::TEXT[]) AS name) ORDER BY 2";
const HAS_EVENTS: &str = "SELECT EXISTS (SELECT 1 FROM event_ids WHERE created_at >= $1 AND created_at < $2)";
const HAS_ROWS: &str = "SELECT EXISTS
    (SELECT 1 FROM inbox_ids WHERE position IS NOT NULL AND due_since >= $1 AND due_since < $2)";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[PARTITIONS, HAS_EVENTS, HAS_ROWS];

/// A day's partition of a table.
struct Partition {
    table: &'static str,
    day: Day,
    /// Asks whether the day has any id left.
    has_ids: &'static str,
}

impl PostgresStore {
    /// Drops the partitions of days that ended before `before` and of which nothing is left. One that somebody uses is left
    /// to the next round.
    pub(in crate::store::postgres) async fn drop_days(&self, what: &Aged, before: Timestamp) -> Result<(), StoreError> {
        let (tables, has_ids) = match what {
            Aged::Events(_) => (BY_EVENT, HAS_EVENTS),
            Aged::InboxRows(_) => (BY_ARRIVAL, HAS_ROWS),
            Aged::Ids | Aged::Versions(_) => return Ok(()),
        };
        let found = self.db.look(tables, |transaction, tables| Box::pin(partitions(transaction, tables))).await?;
        for (table, day) in found.into_iter().filter(|(_, day)| day.end() <= millis(before)) {
            let partition = Partition { table, day, has_ids };
            let dropped = self.db.write(partition, |transaction, partition| Box::pin(drop(transaction, partition)));
            match dropped.await {
                Ok(true) => self.days.forget(day),
                Ok(false) => {}
                Err(StoreError::Unavailable(reason)) => {
                    tracing::debug!(table, day = day.0, reason, "an old day could not be dropped yet");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The partitions of these tables, the oldest days first.
async fn partitions(
    transaction: &Transaction<'_>,
    tables: &[&'static str],
) -> Result<Vec<(&'static str, Day)>, StoreError> {
    let mut found = Vec::new();
    for row in transaction.query(PARTITIONS, &[&tables]).await? {
        let (parent, name): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let day = name.rsplit_once('_').and_then(|(_, day)| day.parse().ok()).map(Day);
        let table = tables.iter().find(|table| **table == parent);
        // Whatever has another name is somebody else's.
        found.extend(table.copied().zip(day).filter(|(table, day)| day.partition(table) == name));
    }
    Ok(found)
}

/// Drops a partition; `false` where the day has ids. Each has a transaction of its own, so that it waits for one table only.
async fn drop(transaction: &Transaction<'_>, partition: &Partition) -> Result<bool, StoreError> {
    let Partition { table, day, .. } = partition;
    if has_ids(transaction, partition).await? {
        return Ok(false);
    }
    transaction
        .batch(&format!("{LOCK_TIMEOUT}; {ONE_AT_A_TIME}; LOCK TABLE ONLY {table} IN ACCESS EXCLUSIVE MODE"))
        .await?;
    // Whoever has written a row of that day by now has committed its id.
    if has_ids(transaction, partition).await? {
        return Ok(false);
    }
    transaction.batch(&format!("DROP TABLE IF EXISTS {}", day.partition(table))).await?;
    Ok(true)
}

async fn has_ids(transaction: &Transaction<'_>, partition: &Partition) -> Result<bool, StoreError> {
    let day = partition.day;
    Ok(transaction.one(partition.has_ids, &[&day.start(), &day.end()]).await?.try_get(0)?)
}
