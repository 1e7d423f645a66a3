//! The table of ids in a transaction of `rusqlite`.

use ::rusqlite::{Connection, Result, Transaction};

use crate::table::sql::sqlite;
use crate::{DeliveryId, Insertion, Keep};

/// Makes the table where it is missing. Call it at the start, or put [`CREATE_TABLE`](sqlite::CREATE_TABLE) into your
/// migrations.
///
/// # Errors
/// SQLite's.
pub fn create_table(connection: &Connection) -> Result<()> {
    connection.execute_batch(sqlite::CREATE_TABLE)
}

/// Records the id if it is absent, in one step (C6), as part of your transaction: what you save in it and the record are
/// there together or not at all (C8, T1).
///
/// Begin the transaction with `TransactionBehavior::Immediate`: one that reads first and writes later can fail as busy
/// without a chance to wait.
///
/// # Errors
/// SQLite's. Roll back and answer 503: the provider repeats.
pub fn insert_if_absent<'a>(transaction: &Transaction<'_>, id: impl Into<DeliveryId<'a>>) -> Result<Insertion> {
    let id = id.into();
    let rows = transaction.execute(sqlite::INSERT_IF_ABSENT, [id.organization, id.provider, id.delivery])?;
    Ok(Insertion::of(rows as u64))
}

/// Removes ids that are older than `keep`, at most [`PRUNE_ROWS`](crate::PRUNE_ROWS) of them, and says how many: call it now and then, and
/// again at once while it removes that many.
///
/// # Errors
/// SQLite's.
pub fn prune(connection: &Connection, keep: Keep) -> Result<u64> {
    connection.execute(sqlite::PRUNE, [keep.seconds()]).map(|rows| rows as u64)
}
