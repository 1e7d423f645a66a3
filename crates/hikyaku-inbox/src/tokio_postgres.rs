//! The table of ids in a transaction of `tokio_postgres`.

use ::tokio_postgres::{Error, GenericClient, Transaction};

use crate::table::sql::postgres;
use crate::{DeliveryId, Insertion, Keep};

/// Makes the table where it is missing. Call it at the start, or put [`CREATE_TABLE`](postgres::CREATE_TABLE) into your
/// migrations.
///
/// # Errors
/// The database's; also if two programs do this at the same instant.
pub async fn create_table(client: &impl GenericClient) -> Result<(), Error> {
    client.batch_execute(postgres::CREATE_TABLE).await
}

/// Records the id if it is absent, in one step (C6), as part of your transaction: what you save in it and the record are
/// there together or not at all (C8, T1).
///
/// While another transaction has just recorded the same id, this waits until that ends, and is right about how.
///
/// # Errors
/// The database's. Roll back and answer 503: the provider repeats.
pub async fn insert_if_absent<'a>(
    transaction: &Transaction<'_>,
    id: impl Into<DeliveryId<'a>>,
) -> Result<Insertion, Error> {
    let id = id.into();
    let parameters: [&(dyn ::tokio_postgres::types::ToSql + Sync); 3] = [&id.organization, &id.provider, &id.delivery];
    transaction.execute(postgres::INSERT_IF_ABSENT, &parameters).await.map(Insertion::of)
}

/// Removes ids that are older than `keep`, at most [`PRUNE_ROWS`](crate::PRUNE_ROWS) of them, and says how many: call it now and then, and
/// again at once while it removes that many.
///
/// # Errors
/// The database's.
pub async fn prune(client: &impl GenericClient, keep: Keep) -> Result<u64, Error> {
    client.execute(postgres::PRUNE, &[&keep.seconds()]).await
}
