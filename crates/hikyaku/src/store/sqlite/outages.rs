//! Signs of life, and the times without any.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::columns::{self, millis, sound};
use crate::store::{Beat, Outage, OutageQuery, StoreError};

const LAST_BEAT: &str = "SELECT at FROM heartbeat WHERE id = 1";
const BEAT: &str = "INSERT INTO heartbeat (id, at) VALUES (1, ?1) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
const INSERT_OUTAGE: &str = "INSERT INTO outages (from_at, to_at) VALUES (?1, ?2)
    ON CONFLICT (from_at) DO UPDATE SET to_at = excluded.to_at";
const OUTAGES: &str = "SELECT from_at, to_at FROM outages WHERE from_at < ?1 ORDER BY from_at DESC LIMIT ?2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LAST_BEAT, BEAT, INSERT_OUTAGE, OUTAGES];

/// The last sign of life, if there ever was one.
pub(super) fn last_beat(db: &Connection) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<i64> = db.prepare_cached(LAST_BEAT)?.query_row([], |row| row.get(0)).optional()?;
    at.map(|at| sound("heartbeat.at", Timestamp::from_millisecond(at))).transpose()
}

/// Gives a sign of life.
pub(super) fn beat(db: &Connection, beat: &Beat) -> Result<(), StoreError> {
    if let Some(Outage { from, to }) = beat.outage {
        db.prepare_cached(INSERT_OUTAGE)?.execute(params![millis(from), millis(to)])?;
    }
    db.prepare_cached(BEAT)?.execute([millis(beat.at)])?;
    Ok(())
}

/// A page of outages, newest first.
pub(super) fn list(db: &Connection, query: &OutageQuery) -> Result<Vec<Outage>, StoreError> {
    let mut statement = db.prepare_cached(OUTAGES)?;
    let mut rows = statement.query(params![query.before.map_or(i64::MAX, millis), query.limit])?;
    let mut outages = Vec::new();
    while let Some(row) = rows.next()? {
        outages.push(Outage { from: columns::time(row, 0)?, to: columns::time(row, 1)? });
    }
    Ok(outages)
}
