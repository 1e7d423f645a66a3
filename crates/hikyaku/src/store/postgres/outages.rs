//! Signs of life, and the times without any.

use jiff::Timestamp;

use super::columns::{millis, time};
use super::transaction::Transaction;
use crate::store::{Beat, Outage, OutageQuery, StoreError};

const LAST_BEAT: &str = "SELECT at FROM heartbeat WHERE id = 1";
const BEAT: &str = "INSERT INTO heartbeat (id, at) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
const INSERT_OUTAGE: &str = "INSERT INTO outages (from_at, to_at) VALUES ($1, $2)
    ON CONFLICT (from_at) DO UPDATE SET to_at = excluded.to_at";
const OUTAGES: &str = "SELECT from_at, to_at FROM outages WHERE from_at < $1 ORDER BY from_at DESC LIMIT $2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LAST_BEAT, BEAT, INSERT_OUTAGE, OUTAGES];

/// The last sign of life, if there ever was one.
pub(super) async fn last_beat(transaction: &Transaction<'_>) -> Result<Option<Timestamp>, StoreError> {
    let found = transaction.optional(LAST_BEAT, &[]).await?;
    found.map(|row| time(&row, 0)).transpose()
}

/// Gives a sign of life.
pub(super) async fn beat(transaction: &Transaction<'_>, beat: &Beat) -> Result<(), StoreError> {
    if let Some(Outage { from, to }) = beat.outage {
        transaction.execute(INSERT_OUTAGE, &[&millis(from), &millis(to)]).await?;
    }
    transaction.execute(BEAT, &[&millis(beat.at)]).await?;
    Ok(())
}

/// A page of outages, newest first.
pub(super) async fn list(transaction: &Transaction<'_>, query: &OutageQuery) -> Result<Vec<Outage>, StoreError> {
    let before = query.before.map_or(i64::MAX, millis);
    let rows = transaction.query(OUTAGES, &[&before, &i64::from(query.limit)]).await?;
    rows.iter().map(|row| Ok(Outage { from: time(row, 0)?, to: time(row, 1)? })).collect()
}
