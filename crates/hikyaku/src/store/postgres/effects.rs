//! What was done with lanes: rows that have ended or are tried again, and how their deliveries stand after it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis, text};
use super::lanes::{self, LaneColumns, nth};
use super::transaction::Transaction;
use crate::store::{EffectState, EndedRow, FinishLane, FinishOutcome, LaneKey, RetryRow, RowState, StoreError};

const RELEASE: &str = "UPDATE lanes l SET owner = NULL, begun = NULL, taken_to = NULL, due_at = a.due_at
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::BIGINT[], $7::BIGINT[]) WITH ORDINALITY
            a (organization, route, provider, lane, owner, claim, due_at, n),
        LATERAL (SELECT ctid AS tuple FROM lanes l
            WHERE l.organization = a.organization AND l.route = a.route AND l.provider = a.provider AND l.lane = a.lane LIMIT 1) found
    WHERE l.ctid = found.tuple
        AND l.owner = a.owner AND l.claim = a.claim
    RETURNING a.n";
/// Two lanes that hold work of one delivery end it one after the other, so that the second sees what the first did.
const LOCK_ROWS: &str = "SELECT
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[]) a (organization, route, provider, lane, delivery)
    CROSS JOIN LATERAL (SELECT w.organization, w.due_since, w.position FROM work w
            WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                AND w.delivery COLLATE \"POSIX\" = a.delivery AND w.route COLLATE \"POSIX\" = a.route AND w.lane = a.lane LIMIT 1) w
    JOIN inbox_rows r ON r.organization = w.organization AND r.due_since = w.due_since AND r.position = w.position
    ORDER BY r.organization, r.due_since, r.position FOR UPDATE OF r";
/// A row that does not wait in this lane is left as it is.
const END: &str = "WITH gone AS (
        DELETE FROM work w
        USING UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::TEXT[], $7::BIGINT[], $8::TEXT[],
                $9::BIGINT[]) a (organization, route, provider, lane, delivery, state, failures, detail, ended_at),
            LATERAL (SELECT ctid AS tuple FROM work w
                WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                    AND w.delivery COLLATE \"POSIX\" = a.delivery AND w.route COLLATE \"POSIX\" = a.route AND w.lane = a.lane LIMIT 1) found
        WHERE w.ctid = found.tuple
        RETURNING w.organization, w.provider, w.delivery, w.due_since, w.position, w.route, a.state, a.failures,
            a.detail, a.ended_at),
    kept AS (
        INSERT INTO effects (organization, position, due_since, route, state, failures, detail, ended_at)
        SELECT organization, position, due_since, route, state, failures, detail, ended_at FROM gone)
    SELECT DISTINCT organization, provider, delivery, due_since, position FROM gone";
const RETRY: &str =
    "UPDATE work w SET failures = a.failures, error = CASE a.error WHEN '' THEN w.error ELSE a.error END
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::BIGINT[], $7::TEXT[])
            a (organization, route, provider, lane, delivery, failures, error),
        LATERAL (SELECT ctid AS tuple FROM work w
            WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                AND w.delivery COLLATE \"POSIX\" = a.delivery AND w.route COLLATE \"POSIX\" = a.route AND w.lane = a.lane LIMIT 1) found
    WHERE w.ctid = found.tuple";
/// An older version than is remembered changes nothing (C4).
const APPLY: &str = "INSERT INTO applied (organization, route, provider, lane, micros, rank, event, applied_at)
    SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], $7::TEXT[], $8::BIGINT[])
    ON CONFLICT (organization, route, provider, lane) DO UPDATE
    SET micros = excluded.micros, rank = excluded.rank, event = excluded.event, applied_at = excluded.applied_at
    WHERE (excluded.micros, excluded.rank, excluded.event) > (applied.micros, applied.rank, applied.event)";
const STATES: &str = "SELECT a.n, e.state
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[]) WITH ORDINALITY a (organization, due_since, position, n)
    JOIN effects e ON e.organization = a.organization AND e.due_since = a.due_since AND e.position = a.position
    UNION ALL
    SELECT a.n, 'waiting' FROM UNNEST($1::TEXT[], $4::TEXT[], $5::TEXT[]) WITH ORDINALITY
            a (organization, provider, delivery, n),
        LATERAL (SELECT FROM work w
            WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                AND w.delivery COLLATE \"POSIX\" = a.delivery LIMIT 1) w";
const SET_STATES: &str = "UPDATE inbox_rows r SET state = a.state
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[]) a (organization, due_since, position, state)
    WHERE r.organization = a.organization AND r.due_since = a.due_since AND r.position = a.position";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[RELEASE, LOCK_ROWS, END, RETRY, APPLY, STATES, SET_STATES];

/// Writes what was done with lanes whose leases are held. All of the lanes are locked.
pub(super) async fn finish_lanes(
    transaction: &Transaction<'_>,
    finishes: &[FinishLane],
) -> Result<Vec<FinishOutcome>, StoreError> {
    let held = release(transaction, finishes).await?;
    let outcome = |n| match held.contains(&n) {
        true => FinishOutcome::Applied { switched_off: false },
        false => FinishOutcome::LeaseLost,
    };
    let outcomes = (0..finishes.len()).map(outcome).collect();
    let held: Vec<_> = held.into_iter().filter_map(|n| finishes.get(n)).collect();
    let ended = held.iter().flat_map(|finish| finish.ended.iter().map(|row| Ending::of(&finish.key, row, finish.at)));
    let ended = end_rows(transaction, &ended.collect::<Vec<_>>()).await?;
    if !held.is_empty() {
        tokio::try_join!(
            set_states(transaction, &ended),
            retry_rows(transaction, &held),
            lanes::close(transaction, held.iter().map(|finish| &finish.key)),
            apply(transaction, &held),
        )?;
    }
    Ok(outcomes)
}

/// Gives lanes back, due when there is something to do; the places of those whose lease is held.
async fn release(transaction: &Transaction<'_>, finishes: &[FinishLane]) -> Result<BTreeSet<usize>, StoreError> {
    let mut leases = BTreeMap::new();
    for (n, finish) in finishes.iter().enumerate() {
        // Whoever finishes the same lease again comes too late.
        leases.entry((&finish.key, &finish.owner, finish.claim)).or_insert(n);
    }
    if leases.is_empty() {
        return Ok(BTreeSet::new());
    }
    let lanes: LaneColumns<'_> = leases.keys().map(|(key, ..)| *key).collect();
    let owners: Vec<&str> = leases.keys().map(|(_, owner, _)| &***owner).collect();
    // A number that was never given out belongs to no lease.
    let claims: Vec<_> = leases.keys().map(|(.., claim)| i64::try_from(*claim).unwrap_or(-1)).collect();
    let places: Vec<_> = leases.into_values().collect();
    let due = |finish: &FinishLane| millis(finish.retry.as_ref().map_or(finish.now, |retry| retry.due_at));
    let due: Vec<_> = places.iter().filter_map(|n| finishes.get(*n)).map(due).collect();
    let held = transaction.query(RELEASE, &lanes.and([&owners, &claims, &due])).await?;
    let mut released = BTreeSet::new();
    for row in held {
        released.extend(places.get(nth(&row)?));
    }
    Ok(released)
}

/// A row whose work in a lane is to end.
pub(super) struct Ending<'a> {
    pub(super) lane: &'a LaneKey,
    pub(super) delivery: &'a str,
    pub(super) state: EffectState,
    pub(super) failures: u32,
    pub(super) detail: &'a str,
    pub(super) at: Timestamp,
}

impl<'a> Ending<'a> {
    fn of(lane: &'a LaneKey, row: &'a EndedRow, at: Timestamp) -> Self {
        let EndedRow { delivery, state, failures, detail } = row;
        Self { lane, delivery, state: *state, failures: *failures, detail, at }
    }
}

/// Where an inbox row is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) organization: String,
    /// Provider and delivery as they are stored.
    pub(super) id: [String; 2],
    pub(super) due_since: i64,
    pub(super) position: i64,
}

/// Ends work that waits in these lanes, and gives the inbox rows whose states may have changed; they are locked.
pub(super) async fn end_rows(transaction: &Transaction<'_>, rows: &[Ending<'_>]) -> Result<Vec<Place>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let lanes: LaneColumns<'_> = rows.iter().map(|row| row.lane).collect();
    let deliveries: Vec<_> = rows.iter().map(|row| text(row.delivery)).collect();
    let states: Vec<_> = rows.iter().map(|row| row.state.as_str()).collect();
    let failures: Vec<_> = rows.iter().map(|row| i64::from(row.failures)).collect();
    let details: Vec<Cow<'_, str>> = rows.iter().map(|row| text(row.detail)).collect();
    let ended_at: Vec<_> = rows.iter().map(|row| millis(row.at)).collect();
    transaction.execute(LOCK_ROWS, &lanes.and([&deliveries])).await?;
    let ended = lanes.and([&deliveries, &states, &failures, &details, &ended_at]);
    let ended = transaction.query(END, &ended).await?;
    let place = |row: &Row| {
        let id = [row.try_get(1)?, row.try_get(2)?];
        Ok(Place { organization: row.try_get(0)?, id, due_since: row.try_get(3)?, position: row.try_get(4)? })
    };
    ended.iter().map(place).collect()
}

/// Brings the states of inbox rows, locked before, up to date when effects of theirs have ended.
pub(super) async fn set_states(transaction: &Transaction<'_>, rows: &[Place]) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let organizations: Vec<_> = rows.iter().map(|row| row.organization.as_str()).collect();
    let due_since: Vec<_> = rows.iter().map(|row| row.due_since).collect();
    let positions: Vec<_> = rows.iter().map(|row| row.position).collect();
    let (providers, deliveries): (Vec<_>, Vec<_>) = rows.iter().map(|row| (&*row.id[0], &*row.id[1])).unzip();
    let found = transaction.query(STATES, &[&organizations, &due_since, &positions, &providers, &deliveries]).await?;
    let mut effects = vec![Vec::new(); rows.len()];
    for row in found {
        if let Some(of_row) = effects.get_mut(nth(&row)?) {
            of_row.push(columns::effect_state(&row, 1)?);
        }
    }
    let states: Vec<_> = effects.into_iter().map(|effects| RowState::of(effects).as_str()).collect();
    transaction.execute(SET_STATES, &[&organizations, &due_since, &positions, &states]).await?;
    Ok(())
}

async fn retry_rows(transaction: &Transaction<'_>, finishes: &[&FinishLane]) -> Result<(), StoreError> {
    let retries = finishes.iter().filter_map(|finish| Some((&finish.key, finish.retry.as_ref()?)));
    let retries: Vec<(&LaneKey, &RetryRow)> = retries.collect();
    if retries.is_empty() {
        return Ok(());
    }
    let lanes: LaneColumns<'_> = retries.iter().map(|(key, _)| *key).collect();
    let deliveries: Vec<_> = retries.iter().map(|(_, row)| text(&row.delivery)).collect();
    let failures: Vec<_> = retries.iter().map(|(_, row)| i64::from(row.failures)).collect();
    let errors: Vec<_> = retries.iter().map(|(_, row)| text(&row.error)).collect();
    transaction.execute(RETRY, &lanes.and([&deliveries, &failures, &errors])).await?;
    Ok(())
}

/// Remembers the newest versions that took effect.
async fn apply(transaction: &Transaction<'_>, finishes: &[&FinishLane]) -> Result<(), StoreError> {
    let applied = finishes.iter().filter_map(|finish| Some((&finish.key, (finish.applied.as_ref()?, finish.now))));
    // In the order of their keys: whoever drops versions locks them, too.
    let applied: BTreeMap<&LaneKey, (&Version, Timestamp)> = applied.collect();
    if applied.is_empty() {
        return Ok(());
    }
    let lanes: LaneColumns<'_> = applied.keys().copied().collect();
    let micros: Vec<_> = applied.values().map(|(version, _)| version.micros).collect();
    let ranks: Vec<_> = applied.values().map(|(version, _)| version.rank as i64).collect();
    let events: Vec<_> = applied.values().map(|(version, _)| text(&version.event)).collect();
    let applied_at: Vec<_> = applied.values().map(|(_, now)| millis(*now)).collect();
    transaction.execute(APPLY, &lanes.and([&micros, &ranks, &events, &applied_at])).await?;
    Ok(())
}
