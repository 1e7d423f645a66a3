//! The table of ids in a PostgreSQL transaction of `sqlx`.
//!
//! For SQLite by way of `sqlx`, run the statements of [`sql::sqlite`](crate::sql::sqlite) yourself: `rows_affected()` of
//! [`INSERT_IF_ABSENT`](crate::sql::sqlite::INSERT_IF_ABSENT) is 1 for a new id and 0 for a known one.

use ::sqlx::{Error, PgConnection, Postgres, Transaction};

use crate::table::sql::postgres;
use crate::{DeliveryId, Insertion, Keep};

/// Makes the table where it is missing. Call it at the start, or put [`CREATE_TABLE`](postgres::CREATE_TABLE) into your
/// migrations.
///
/// # Errors
/// The database's; also if two programs do this at the same instant.
pub async fn create_table(connection: &mut PgConnection) -> Result<(), Error> {
    ::sqlx::raw_sql(postgres::CREATE_TABLE).execute(connection).await.map(drop)
}

/// Records the id if it is absent, in one step (C6), as part of your transaction: what you save in it and the record are
/// there together or not at all (C8, T1).
///
/// While another transaction has just recorded the same id, this waits until that ends, and is right about how.
///
/// # Errors
/// The database's. Roll back and answer 503: the provider repeats.
pub async fn insert_if_absent<'a>(
    transaction: &mut Transaction<'_, Postgres>,
    id: impl Into<DeliveryId<'a>>,
) -> Result<Insertion, Error> {
    let id = id.into();
    let insert = ::sqlx::query(postgres::INSERT_IF_ABSENT).bind(id.organization).bind(id.provider).bind(id.delivery);
    let done = insert.execute(&mut **transaction).await?;
    Ok(Insertion::of(done.rows_affected()))
}

/// Removes ids that are older than `keep`, at most [`PRUNE_ROWS`](crate::PRUNE_ROWS) of them, and says how many: call it now and then, and
/// again at once while it removes that many.
///
/// # Errors
/// The database's.
pub async fn prune(connection: &mut PgConnection, keep: Keep) -> Result<u64, Error> {
    let done = ::sqlx::query(postgres::PRUNE).bind(keep.seconds()).execute(connection).await?;
    Ok(done.rows_affected())
}
