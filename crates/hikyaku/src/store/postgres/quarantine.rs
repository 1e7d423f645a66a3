//! Deliveries whose signature did not verify, kept aside within bounds.

use jiff::Timestamp;

use super::columns::{millis, number, text};
use super::inbox::{Placed, put};
use super::transaction::Transaction;
use crate::store::{QuarantineOutcome, Quarantined, RowState, StoreError};

/// Whatever two nodes keep at the same time stays within the bounds together. Readers are not kept waiting.
const ONE_AT_A_TIME: &str = "LOCK TABLE quarantine IN SHARE ROW EXCLUSIVE MODE";
const HAS_ROW: &str = "SELECT EXISTS (SELECT FROM inbox_ids
    WHERE organization = $1 AND provider = $2 AND delivery = $3 AND position IS NOT NULL)";
const USAGE: &str = "SELECT COUNT(*), COALESCE(SUM(bytes), 0)::BIGINT FROM quarantine
    WHERE organization = $1 AND source = $2";
/// An id whose row was dropped may come again: it is none that a provider gives.
const TAKE_ID: &str = "INSERT INTO inbox_ids (organization, provider, delivery, due_since, position)
    VALUES ($1, $2, $3, $4, NEXTVAL('inbox_positions'))
    ON CONFLICT (organization, provider, delivery) DO UPDATE
    SET due_since = excluded.due_since, position = excluded.position WHERE inbox_ids.position IS NULL
    RETURNING position";
const INSERT: &str = "INSERT INTO quarantine (organization, source, position, bytes, headers)
    VALUES ($1, $2, $3, $4, $5)";
const HEADERS: &str = "SELECT headers FROM quarantine WHERE organization = $1 AND position = $2";
const FORGET: &str = "DELETE FROM quarantine WHERE organization = $1 AND position = $2";
const DROP_BODY: &str = "DELETE FROM inbox_bodies WHERE organization = $1 AND due_since = $2 AND position = $3";
const DROP_ROW: &str = "DELETE FROM inbox_rows WHERE organization = $1 AND due_since = $2 AND position = $3";
const DROP_ID: &str = "DELETE FROM inbox_ids WHERE organization = $1 AND provider = $2 AND delivery = $3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[ONE_AT_A_TIME, HAS_ROW, USAGE, TAKE_ID, INSERT, HEADERS, FORGET, DROP_BODY, DROP_ROW, DROP_ID];

/// Why a delivery is not to be kept, if it is not.
pub(super) async fn objection(
    transaction: &Transaction<'_>,
    new: &Quarantined,
) -> Result<Option<QuarantineOutcome>, StoreError> {
    let row = &new.row;
    let (organization, source) = (row.organization.as_str(), text(&row.source));
    let id = (text(&row.provider), text(&row.delivery));
    if transaction.one(HAS_ROW, &[&organization, &id.0, &id.1]).await?.try_get(0)? {
        return Ok(Some(QuarantineOutcome::Duplicate));
    }
    let usage = transaction.one(USAGE, &[&organization, &source]).await?;
    let (rows, bytes): (u64, u64) = (number(&usage, 0)?, number(&usage, 1)?);
    let fits = rows < u64::from(new.max_rows) && bytes.saturating_add(new.bytes()) <= new.max_bytes;
    Ok((!fits).then_some(QuarantineOutcome::Full))
}

/// Keeps a delivery, if there is room for it.
pub(super) async fn keep(transaction: &Transaction<'_>, new: &Quarantined) -> Result<QuarantineOutcome, StoreError> {
    transaction.batch(ONE_AT_A_TIME).await?;
    if let Some(objection) = objection(transaction, new).await? {
        return Ok(objection);
    }
    let row = &new.row;
    let organization = row.organization.as_str();
    let (id, due_since) = ((text(&row.provider), text(&row.delivery)), millis(row.due_at));
    let taken = transaction.optional(TAKE_ID, &[&organization, &id.0, &id.1, &due_since]).await?;
    let Some(taken) = taken else { return Ok(QuarantineOutcome::Duplicate) };
    let position = taken.try_get(0)?;
    put(transaction, &[Placed { row, position, state: RowState::Quarantined }]).await?;
    let bytes = i64::try_from(new.bytes()).unwrap_or(i64::MAX);
    transaction.execute(INSERT, &[&organization, &text(&row.source), &position, &bytes, &&new.headers[..]]).await?;
    Ok(QuarantineOutcome::Kept)
}

/// Of which time the row will be.
pub(super) fn time(new: &Quarantined) -> Timestamp {
    new.row.due_at
}

/// The headers that are kept with a row; empty of one that is not quarantined.
pub(super) async fn headers(
    transaction: &Transaction<'_>,
    organization: &str,
    position: i64,
) -> Result<Vec<u8>, StoreError> {
    let found = transaction.optional(HEADERS, &[&organization, &position]).await?;
    Ok(found.map(|row| row.try_get(0)).transpose()?.unwrap_or_default())
}

/// Gives back the room that a row takes.
pub(super) async fn forget(transaction: &Transaction<'_>, organization: &str, position: i64) -> Result<(), StoreError> {
    transaction.execute(FORGET, &[&organization, &position]).await?;
    Ok(())
}

/// Drops a quarantined row with all that is kept of it, its id included.
pub(super) async fn drop_row(
    transaction: &Transaction<'_>,
    [organization, provider, delivery]: [&str; 3],
    due_since: i64,
    position: i64,
) -> Result<(), StoreError> {
    forget(transaction, organization, position).await?;
    transaction.execute(DROP_BODY, &[&organization, &due_since, &position]).await?;
    transaction.execute(DROP_ROW, &[&organization, &due_since, &position]).await?;
    transaction.execute(DROP_ID, &[&organization, &text(provider), &text(delivery)]).await?;
    Ok(())
}
