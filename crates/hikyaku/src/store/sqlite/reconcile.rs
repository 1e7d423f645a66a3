//! How far reconciliations have come, and what is known of business keys.

use bytes::Bytes;
use hikyaku_core::gap::Period;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{millis, optional_time, time, version};
use crate::store::{
    Cycle, CycleCounts, KnownKey, KnownKeysQuery, ReconcileKey, ReconcileState, StoreError, TimedKey, TimedKeysQuery,
};

const STATE: &str = "SELECT mark, wanted_from, wanted_to, calls, calls_since, active_at
    FROM reconciles WHERE organization = ?1 AND name = ?2";
const SAVE_STATE: &str =
    "INSERT INTO reconciles (organization, name, mark, wanted_from, wanted_to, calls, calls_since, active_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (organization, name) DO UPDATE SET mark = excluded.mark, wanted_from = excluded.wanted_from,
        wanted_to = excluded.wanted_to, calls = excluded.calls, calls_since = excluded.calls_since,
        active_at = excluded.active_at";
const CYCLES: &str = "SELECT number, from_at, to_at, done_to, started_at, ended_at, listed, known, missing, repaired,
        different, unknown, calls, problem
    FROM reconcile_cycles WHERE organization = ?1 AND name = ?2 AND number < ?3 ORDER BY number DESC LIMIT ?4";
const SAVE_CYCLE: &str = "INSERT OR REPLACE INTO reconcile_cycles (organization, name, number, from_at, to_at, done_to,
        started_at, ended_at, listed, known, missing, repaired, different, unknown, calls, problem)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
/// A key has few rows.
const ROWS_OF_KEY: &str = "SELECT micros, rank, event, position FROM inbox_rows
    WHERE organization = ?1 AND key = ?2 AND provider = ?3 AND state NOT IN ('parked', 'quarantined')";
const SMALL_BODY: &str = "SELECT body FROM inbox_bodies WHERE position = ?1 AND length(body) <= ?2";
const HAD_EFFECT: &str = "SELECT EXISTS (SELECT 1 FROM applied INDEXED BY applied_key
    WHERE organization = ?1 AND provider = ?2 AND lane = ?3)";
const TIMED_KEYS: &str = "SELECT micros, position, key, type FROM inbox_rows INDEXED BY inbox_rows_time
    WHERE organization = ?1 AND provider = ?2 AND (micros, position) > (?3, ?4) AND micros < ?5
        AND key <> '' AND state NOT IN ('parked', 'quarantined')
    ORDER BY micros, position LIMIT ?6";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[STATE, SAVE_STATE, CYCLES, SAVE_CYCLE, ROWS_OF_KEY, SMALL_BODY, HAD_EFFECT, TIMED_KEYS];

/// How far a reconciliation has come.
pub(super) fn state(db: &Connection, key: &ReconcileKey) -> Result<ReconcileState, StoreError> {
    let mut statement = db.prepare_cached(STATE)?;
    let mut rows = statement.query([key.organization.as_str(), &key.name])?;
    let Some(row) = rows.next()? else { return Ok(ReconcileState::default()) };
    let wanted = optional_time(row, 1)?.zip(optional_time(row, 2)?);
    Ok(ReconcileState {
        mark: optional_time(row, 0)?,
        wanted: wanted.map(|(from, to)| Period { from, to }),
        calls: row.get(3)?,
        calls_since: optional_time(row, 4)?,
        active_at: optional_time(row, 5)?,
        cycle: cycles(db, key, None, 1)?.pop(),
    })
}

/// Saves how far it has come, if it stands as in `before`.
pub(super) fn save(
    db: &Connection,
    key: &ReconcileKey,
    before: &ReconcileState,
    state: &ReconcileState,
) -> Result<bool, StoreError> {
    if self::state(db, key)? != *before {
        return Ok(false);
    }
    let at = |time: Option<Timestamp>| time.map(millis);
    let (organization, name) = (key.organization.as_str(), &key.name);
    db.prepare_cached(SAVE_STATE)?.execute(params![
        organization,
        name,
        at(state.mark),
        at(state.wanted.map(|period| period.from)),
        at(state.wanted.map(|period| period.to)),
        state.calls,
        at(state.calls_since),
        at(state.active_at),
    ])?;
    let Some(Cycle { number, period, done_to, started_at, ended_at, counts, calls, problem }) = &state.cycle else {
        return Ok(true);
    };
    db.prepare_cached(SAVE_CYCLE)?.execute(params![
        organization,
        name,
        number,
        millis(period.from),
        millis(period.to),
        millis(*done_to),
        millis(*started_at),
        at(*ended_at),
        counts.listed.cast_signed(),
        counts.known.cast_signed(),
        counts.missing.cast_signed(),
        counts.repaired.cast_signed(),
        counts.different.cast_signed(),
        counts.unknown.cast_signed(),
        calls,
        problem,
    ])?;
    Ok(true)
}

/// A page of cycles, newest first.
pub(super) fn cycles(
    db: &Connection,
    key: &ReconcileKey,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<Cycle>, StoreError> {
    let mut statement = db.prepare_cached(CYCLES)?;
    let before = before.unwrap_or(i64::MAX);
    let mut rows = statement.query(params![key.organization.as_str(), key.name, before, limit])?;
    let mut cycles = Vec::new();
    while let Some(row) = rows.next()? {
        cycles.push(cycle(row)?);
    }
    Ok(cycles)
}

fn cycle(row: &Row<'_>) -> Result<Cycle, StoreError> {
    let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    Ok(Cycle {
        number: row.get(0)?,
        period: Period { from: time(row, 1)?, to: time(row, 2)? },
        done_to: time(row, 3)?,
        started_at: time(row, 4)?,
        ended_at: optional_time(row, 5)?,
        counts: CycleCounts {
            listed: count(6)?,
            known: count(7)?,
            missing: count(8)?,
            repaired: count(9)?,
            different: count(10)?,
            unknown: count(11)?,
        },
        calls: row.get(12)?,
        problem: row.get(13)?,
    })
}

/// What is known of each key.
pub(super) fn known_keys(db: &Connection, query: &KnownKeysQuery) -> Result<Vec<Option<KnownKey>>, StoreError> {
    query.keys.iter().map(|key| known_key(db, query, key)).collect()
}

fn known_key(db: &Connection, query: &KnownKeysQuery, key: &str) -> Result<Option<KnownKey>, StoreError> {
    if key.is_empty() {
        return Ok(None);
    }
    let organization = query.organization.as_str();
    let of_key = [organization, key, &query.provider];
    if let Some((Version { micros, .. }, position)) = newest(db, of_key)? {
        let mut statement = db.prepare_cached(SMALL_BODY)?;
        let body = statement.query_row(params![position, query.max_body_bytes], |row| row.get::<_, Vec<u8>>(0));
        return Ok(Some(KnownKey { micros: Some(micros), body: body.optional()?.map(Bytes::from) }));
    }
    let lane = format!("k:{key}");
    let had_effect = db.prepare_cached(HAD_EFFECT)?.query_row([organization, &query.provider, &lane], |r| r.get(0))?;
    Ok(Some(KnownKey::default()).filter(|_| had_effect))
}

/// The newest version of a key's rows, and where it is.
fn newest(db: &Connection, of_key: [&str; 3]) -> Result<Option<(Version, i64)>, StoreError> {
    let mut statement = db.prepare_cached(ROWS_OF_KEY)?;
    let mut rows = statement.query(of_key)?;
    let mut newest = None;
    while let Some(row) = rows.next()? {
        newest = newest.max(Some((version(row, 0)?, row.get(3)?)));
    }
    Ok(newest)
}

/// A page of received rows by their own time.
pub(super) fn timed_keys(db: &Connection, query: &TimedKeysQuery) -> Result<Vec<TimedKey>, StoreError> {
    let (micros, position) = query.after.unwrap_or((query.from_micros, i64::MIN));
    let mut statement = db.prepare_cached(TIMED_KEYS)?;
    let mut rows = statement.query(params![
        query.organization.as_str(),
        query.provider,
        micros,
        position,
        query.to_micros,
        query.limit,
    ])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(TimedKey { place: (row.get(0)?, row.get(1)?), key: row.get(2)?, event_type: row.get(3)? });
    }
    Ok(keys)
}
