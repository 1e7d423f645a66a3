//! How far reconciliations have come, and what is known of business keys.
//!
//! A key may have come on any day, and so may a timestamp of its provider: these statements look into every day's index.

use bytes::Bytes;
use hikyaku_core::gap::Period;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{millis, number, optional_time, read_text, text, time};
use super::transaction::Transaction;
use crate::store::{
    Cycle, CycleCounts, KnownKey, KnownKeysQuery, ReconcileKey, ReconcileState, StoreError, TimedKey, TimedKeysQuery,
};

const STATE: &str = "SELECT mark, wanted_from, wanted_to, calls, calls_since, active_at
    FROM reconciles WHERE organization = $1 AND name = $2";
const BEGIN: &str = "INSERT INTO reconciles (organization, name, calls) VALUES ($1, $2, 0)
    ON CONFLICT (organization, name) DO UPDATE SET name = excluded.name";
const SAVE_STATE: &str =
    "INSERT INTO reconciles (organization, name, mark, wanted_from, wanted_to, calls, calls_since, active_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
    ON CONFLICT (organization, name) DO UPDATE SET mark = excluded.mark, wanted_from = excluded.wanted_from,
        wanted_to = excluded.wanted_to, calls = excluded.calls, calls_since = excluded.calls_since,
        active_at = excluded.active_at";
const CYCLES: &str = "SELECT number, from_at, to_at, done_to, started_at, ended_at, listed, known, missing, repaired,
        different, unknown, calls, problem
    FROM reconcile_cycles WHERE organization = $1 AND name = $2 AND number < $3 ORDER BY number DESC LIMIT $4";
const SAVE_CYCLE: &str = "INSERT INTO reconcile_cycles (organization, name, number, from_at, to_at, done_to,
        started_at, ended_at, listed, known, missing, repaired, different, unknown, calls, problem)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
    ON CONFLICT (organization, name, number) DO UPDATE SET from_at = excluded.from_at, to_at = excluded.to_at,
        done_to = excluded.done_to, started_at = excluded.started_at, ended_at = excluded.ended_at,
        listed = excluded.listed, known = excluded.known, missing = excluded.missing, repaired = excluded.repaired,
        different = excluded.different, unknown = excluded.unknown, calls = excluded.calls, problem = excluded.problem";
/// Per key the row of the newest version, its body where it is small enough, and whether the key had an effect.
/// A key has few rows.
pub(super) const KNOWN_KEYS: &str = "SELECT newest.micros,
        (SELECT body FROM inbox_bodies AS b WHERE b.organization = $1 AND b.due_since = newest.due_since
            AND b.position = newest.position AND octet_length(b.body) <= $4::BIGINT),
        (SELECT 1 FROM applied AS a WHERE a.organization = $1 AND a.provider = $2 AND a.lane = 'k:' || asked.key
            LIMIT 1) IS NOT NULL
    FROM UNNEST($3::TEXT[]) WITH ORDINALITY AS asked (key, place)
    LEFT JOIN LATERAL (SELECT micros, due_since, position FROM inbox_rows AS r
        WHERE r.organization = $1 AND r.key = asked.key AND r.provider = $2 AND r.key <> ''
            AND r.state NOT IN ('parked', 'quarantined')
        ORDER BY micros DESC, rank DESC, event DESC LIMIT 1) AS newest ON TRUE
    ORDER BY asked.place";
pub(super) const TIMED_KEYS: &str = "SELECT micros, position, key, type FROM inbox_rows
    WHERE organization = $1 AND provider = $2 AND (micros, position) > ($3, $4) AND micros < $5
        AND key <> '' AND state NOT IN ('parked', 'quarantined')
    ORDER BY micros, position LIMIT $6";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[STATE, BEGIN, SAVE_STATE, CYCLES, SAVE_CYCLE, KNOWN_KEYS, TIMED_KEYS];

/// How far a reconciliation has come.
pub(super) async fn state(transaction: &Transaction<'_>, key: &ReconcileKey) -> Result<ReconcileState, StoreError> {
    let found = transaction.optional(STATE, &[&key.organization.as_str(), &key.name]).await?;
    let Some(row) = found else { return Ok(ReconcileState::default()) };
    let wanted = optional_time(&row, 1)?.zip(optional_time(&row, 2)?);
    Ok(ReconcileState {
        mark: optional_time(&row, 0)?,
        wanted: wanted.map(|(from, to)| Period { from, to }),
        calls: number(&row, 3)?,
        calls_since: optional_time(&row, 4)?,
        active_at: optional_time(&row, 5)?,
        cycle: cycles(transaction, key, None, 1).await?.pop(),
    })
}

/// Saves how far it has come, if it stands as in `before`.
pub(super) async fn save(
    transaction: &Transaction<'_>,
    (key, before, state): &(ReconcileKey, ReconcileState, ReconcileState),
) -> Result<bool, StoreError> {
    // Of two that save, the second waits here, and then sees what the first has saved.
    transaction.execute(BEGIN, &[&key.organization.as_str(), &key.name]).await?;
    if self::state(transaction, key).await? != *before {
        return Ok(false);
    }
    let at = |time: Option<Timestamp>| time.map(millis);
    transaction
        .execute(
            SAVE_STATE,
            &[
                &key.organization.as_str(),
                &key.name,
                &at(state.mark),
                &at(state.wanted.map(|period| period.from)),
                &at(state.wanted.map(|period| period.to)),
                &i64::from(state.calls),
                &at(state.calls_since),
                &at(state.active_at),
            ],
        )
        .await?;
    if let Some(cycle) = &state.cycle {
        save_cycle(transaction, key, cycle).await?;
    }
    Ok(true)
}

async fn save_cycle(transaction: &Transaction<'_>, key: &ReconcileKey, cycle: &Cycle) -> Result<(), StoreError> {
    let Cycle { number, period, done_to, started_at, ended_at, counts, calls, problem } = cycle;
    transaction
        .execute(
            SAVE_CYCLE,
            &[
                &key.organization.as_str(),
                &key.name,
                number,
                &millis(period.from),
                &millis(period.to),
                &millis(*done_to),
                &millis(*started_at),
                &ended_at.map(millis),
                &counts.listed.cast_signed(),
                &counts.known.cast_signed(),
                &counts.missing.cast_signed(),
                &counts.repaired.cast_signed(),
                &counts.different.cast_signed(),
                &counts.unknown.cast_signed(),
                &i64::from(*calls),
                &text(problem),
            ],
        )
        .await?;
    Ok(())
}

/// A page of cycles, newest first.
pub(super) async fn cycles(
    transaction: &Transaction<'_>,
    key: &ReconcileKey,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<Cycle>, StoreError> {
    let (organization, before) = (key.organization.as_str(), before.unwrap_or(i64::MAX));
    let rows = transaction.query(CYCLES, &[&organization, &key.name, &before, &i64::from(limit)]).await?;
    rows.iter().map(cycle).collect()
}

fn cycle(row: &Row) -> Result<Cycle, StoreError> {
    let count = |index| row.try_get::<_, i64>(index).map(i64::cast_unsigned);
    Ok(Cycle {
        number: row.try_get(0)?,
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
        calls: number(row, 12)?,
        problem: read_text(row, 13)?,
    })
}

/// What is known of each key.
pub(super) async fn known_keys(
    transaction: &Transaction<'_>,
    query: &KnownKeysQuery,
) -> Result<Vec<Option<KnownKey>>, StoreError> {
    let (organization, most) = (query.organization.as_str(), i64::from(query.max_body_bytes));
    let keys: Vec<_> = query.keys.iter().map(|key| text(key)).collect();
    let rows = transaction.query(KNOWN_KEYS, &[&organization, &query.provider, &keys, &most]).await?;
    query.keys.iter().zip(&rows).map(|(key, row)| known_key(key, row)).collect()
}

fn known_key(key: &str, row: &Row) -> Result<Option<KnownKey>, StoreError> {
    let micros: Option<i64> = row.try_get(0)?;
    let body: Option<Vec<u8>> = row.try_get(1)?;
    let is_known = !key.is_empty() && (micros.is_some() || row.try_get(2)?);
    Ok(is_known.then(|| KnownKey { micros, body: body.map(Bytes::from) }))
}

/// A page of received rows by their own time.
pub(super) async fn timed_keys(
    transaction: &Transaction<'_>,
    query: &TimedKeysQuery,
) -> Result<Vec<TimedKey>, StoreError> {
    let (micros, position) = query.after.unwrap_or((query.from_micros, i64::MIN));
    let (organization, limit) = (query.organization.as_str(), i64::from(query.limit));
    let rows = transaction
        .query(TIMED_KEYS, &[&organization, &query.provider, &micros, &position, &query.to_micros, &limit])
        .await?;
    let read = |row: &Row| {
        let place = (row.try_get(0)?, row.try_get(1)?);
        Ok(TimedKey { place, key: read_text(row, 2)?, event_type: read_text(row, 3)? })
    };
    rows.iter().map(read).collect()
}
