//! Deliveries whose signature did not verify, kept aside within bounds.

use hikyaku_core::ids::OrganizationId;
use rusqlite::{Connection, params};

use super::inbox::{find_id, put};
use crate::store::{QuarantineOutcome, Quarantined, RowState, StoreError};

const USAGE: &str = "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM quarantine
    WHERE organization = ?1 AND source = ?2";
const INSERT: &str = "INSERT INTO quarantine (organization, source, position, bytes, headers)
    VALUES (?1, ?2, ?3, ?4, ?5)";
const HEADERS: &str = "SELECT headers FROM quarantine WHERE position = ?1";
const FORGET: &str = "DELETE FROM quarantine WHERE position = ?1";
const DROP_BODY: &str = "DELETE FROM inbox_bodies WHERE position = ?1";
const DROP_ROW: &str = "DELETE FROM inbox_rows WHERE position = ?1";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[USAGE, INSERT, HEADERS, FORGET, DROP_BODY, DROP_ROW];

/// Why a delivery is not to be kept, if it is not.
pub(super) fn objection(db: &Connection, new: &Quarantined) -> Result<Option<QuarantineOutcome>, StoreError> {
    let row = &new.row;
    if find_id(db, [row.organization.as_str(), &row.provider, &row.delivery])? {
        return Ok(Some(QuarantineOutcome::Duplicate));
    }
    let (rows, bytes) = usage(db, &row.organization, &row.source)?;
    let fits = rows < u64::from(new.max_rows) && bytes.saturating_add(new.bytes()) <= new.max_bytes;
    Ok((!fits).then_some(QuarantineOutcome::Full))
}

fn usage(db: &Connection, organization: &OrganizationId, source: &str) -> Result<(u64, u64), StoreError> {
    let mut statement = db.prepare_cached(USAGE)?;
    let (rows, bytes): (i64, i64) =
        statement.query_row([organization.as_str(), source], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((rows.unsigned_abs(), bytes.unsigned_abs()))
}

/// Keeps a delivery, if there is room for it.
pub(super) fn keep(db: &Connection, new: &Quarantined) -> Result<QuarantineOutcome, StoreError> {
    if let Some(objection) = objection(db, new)? {
        return Ok(objection);
    }
    put(db, &new.row, RowState::Quarantined)?;
    let position = db.last_insert_rowid();
    let (organization, source) = (new.row.organization.as_str(), &new.row.source);
    let bytes = i64::try_from(new.bytes()).unwrap_or(i64::MAX);
    db.prepare_cached(INSERT)?.execute(params![organization, source, position, bytes, &new.headers[..]])?;
    Ok(QuarantineOutcome::Kept)
}

/// The headers that are kept with a row; empty of one that is not quarantined.
pub(super) fn headers(db: &Connection, position: i64) -> Result<Vec<u8>, StoreError> {
    let mut statement = db.prepare_cached(HEADERS)?;
    let mut rows = statement.query([position])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?.unwrap_or_default())
}

/// Gives back the room that a row takes.
pub(super) fn forget(db: &Connection, position: i64) -> Result<(), StoreError> {
    db.prepare_cached(FORGET)?.execute([position])?;
    Ok(())
}

/// Drops a quarantined row with all that is kept of it.
pub(super) fn drop_row(db: &Connection, position: i64) -> Result<(), StoreError> {
    forget(db, position)?;
    db.prepare_cached(DROP_BODY)?.execute([position])?;
    db.prepare_cached(DROP_ROW)?.execute([position])?;
    Ok(())
}
