//! What only one node does at a time, and the clock that all of them go by.

use jiff::Timestamp;

use super::columns::{self, after, millis};
use super::transaction::Transaction;
use crate::store::{DutyClaim, StoreError};

const TAKE: &str = "INSERT INTO duties (name, owner, until) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE duties.owner = excluded.owner OR duties.until <= $4";
const LEAVE: &str = "DELETE FROM duties WHERE name = $1 AND owner = $2";
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[TAKE, LEAVE, TIME];

/// Takes or renews a duty, if nobody else holds it.
pub(super) async fn take(transaction: &Transaction<'_>, claim: &DutyClaim) -> Result<bool, StoreError> {
    let until = millis(after(claim.now, claim.lease.duration));
    let taken = transaction.execute(TAKE, &[&claim.name, &&*claim.lease.owner, &until, &millis(claim.now)]).await?;
    Ok(taken > 0)
}

/// Gives a duty up.
pub(super) async fn leave(transaction: &Transaction<'_>, (name, owner): &(String, String)) -> Result<(), StoreError> {
    transaction.execute(LEAVE, &[name, owner]).await?;
    Ok(())
}

/// The database's clock.
pub(super) async fn time(transaction: &Transaction<'_>) -> Result<Timestamp, StoreError> {
    columns::time(&transaction.one(TIME, &[]).await?, 0)
}
