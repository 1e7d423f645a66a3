//! The inbox's work: taking lanes and writing what was done with them.

use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::columns::{self, after, millis};
use super::writer::Transaction;
use crate::store::{
    ClaimedLane, EFFECT_INTERRUPTED, EndedRow, FinishLane, FinishOutcome, LaneClaim, LaneClaims, LaneKey, RetryRow,
    RowState, StoreError, WorkRow,
};

const DUE: &str = "SELECT provider, lane FROM lanes
    WHERE organization = ?1 AND route = ?2 AND due_at <= ?3 ORDER BY due_at, provider, lane LIMIT ?4";
const DUE_LATER: &str = "SELECT due_at FROM lanes
    WHERE organization = ?1 AND route = ?2 AND due_at > ?3 ORDER BY due_at LIMIT 1";
/// Before a lane is taken: the row that was first when it was taken before, and that was left without an end.
const INTERRUPT: &str = "UPDATE work SET failures = failures + 1, error = ?6
    WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4 AND delivery = (SELECT l.begun FROM lanes l
        WHERE l.organization = ?1 AND l.route = ?2 AND l.provider = ?3 AND l.lane = ?4 AND l.due_at <= ?5)
    RETURNING delivery";
/// The claim takes the lane's first row up to the one at its number, or all where there are not so many.
const TAKE: &str = "UPDATE lanes SET owner = ?6, due_at = ?7, claim = MAX(claim, ?8) + 1,
        begun = (SELECT w.delivery FROM work w
            WHERE w.organization = ?1 AND w.route = ?2 AND w.provider = ?3 AND w.lane = ?4
            ORDER BY w.micros, w.rank, w.event, w.delivery LIMIT 1),
        taken_to = COALESCE(
            (SELECT w.delivery FROM work w
                WHERE w.organization = ?1 AND w.route = ?2 AND w.provider = ?3 AND w.lane = ?4
                ORDER BY w.micros, w.rank, w.event, w.delivery LIMIT 1 OFFSET ?9 - 1),
            (SELECT w.delivery FROM work w
                WHERE w.organization = ?1 AND w.route = ?2 AND w.provider = ?3 AND w.lane = ?4
                ORDER BY w.micros DESC, w.rank DESC, w.event DESC, w.delivery DESC LIMIT 1))
    WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4 AND due_at <= ?5 RETURNING claim";
const APPLIED: &str = "SELECT micros, rank, event FROM applied
    WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4";
/// The rows that the claim took, and none that came before them since.
const ROWS: &str = "SELECT w.delivery, r.source, r.type, r.key, w.micros, w.rank, w.event, w.failures, r.received_at,
        r.due_since, CASE WHEN ?6 THEN x'' ELSE b.body END
    FROM work w
    JOIN inbox_rows r ON r.organization = w.organization AND r.provider = w.provider AND r.delivery = w.delivery
    JOIN inbox_bodies b ON b.position = r.position
    WHERE w.organization = ?1 AND w.route = ?2 AND w.provider = ?3 AND w.lane = ?4
        AND (w.micros, w.rank, w.event, w.delivery) >= (SELECT f.micros, f.rank, f.event, f.delivery
            FROM lanes l JOIN work f INDEXED BY work_row ON f.organization = l.organization AND f.provider = l.provider
                AND f.delivery = l.begun AND f.route = l.route
            WHERE l.organization = ?1 AND l.route = ?2 AND l.provider = ?3 AND l.lane = ?4)
        AND (w.micros, w.rank, w.event, w.delivery) <= (SELECT t.micros, t.rank, t.event, t.delivery
            FROM lanes l JOIN work t INDEXED BY work_row ON t.organization = l.organization AND t.provider = l.provider
                AND t.delivery = l.taken_to AND t.route = l.route
            WHERE l.organization = ?1 AND l.route = ?2 AND l.provider = ?3 AND l.lane = ?4)
    ORDER BY w.micros, w.rank, w.event, w.delivery LIMIT ?5";
const BODY: &str = "SELECT b.body FROM inbox_rows r JOIN inbox_bodies b ON b.position = r.position
    WHERE r.organization = ?1 AND r.provider = ?2 AND r.delivery = ?3";
const RELEASE: &str = "UPDATE lanes SET owner = NULL, begun = NULL, taken_to = NULL, due_at = ?7
    WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4 AND owner = ?5 AND claim = ?6";
const FIND_WORK: &str = "SELECT micros, rank, event, failures FROM work
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3 AND route = ?4 AND lane = ?5";
const DELETE_WORK: &str = "DELETE FROM work WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4
    AND micros = ?5 AND rank = ?6 AND event = ?7 AND delivery = ?8";
const INSERT_EFFECT: &str = "INSERT INTO effects
    (organization, provider, delivery, route, state, failures, detail, ended_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const RETRY: &str = "UPDATE work SET failures = ?6, error = CASE ?7 WHEN '' THEN error ELSE ?7 END
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3 AND route = ?4 AND lane = ?5";
const CLOSE: &str = "DELETE FROM lanes WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4
    AND NOT EXISTS (SELECT 1 FROM work w
        WHERE w.organization = ?1 AND w.route = ?2 AND w.provider = ?3 AND w.lane = ?4)";
const APPLY: &str = "INSERT INTO applied (organization, route, provider, lane, micros, rank, event, applied_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT (organization, route, provider, lane) DO UPDATE
    SET micros = excluded.micros, rank = excluded.rank, event = excluded.event, applied_at = excluded.applied_at
    WHERE (excluded.micros, excluded.rank, excluded.event) > (applied.micros, applied.rank, applied.event)";
const WAITS: &str = "SELECT EXISTS
    (SELECT 1 FROM work WHERE organization = ?1 AND provider = ?2 AND delivery = ?3)";
const EFFECT_STATES: &str = "SELECT state FROM effects WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
const SET_STATE: &str = "UPDATE inbox_rows SET state = ?4
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    DUE,
    DUE_LATER,
    INTERRUPT,
    TAKE,
    APPLIED,
    ROWS,
    BODY,
    RELEASE,
    FIND_WORK,
    DELETE_WORK,
    INSERT_EFFECT,
    RETRY,
    CLOSE,
    APPLY,
    WAITS,
    EFFECT_STATES,
    SET_STATE,
];

/// Looks for due lanes, and takes none: their claims and rows are still to come.
pub(super) fn find(db: &Connection, claim: &LaneClaim) -> Result<LaneClaims, StoreError> {
    let mut found = LaneClaims::default();
    let now = millis(claim.now);
    for (organization, route, slots) in &claim.slots {
        let mut statement = db.prepare_cached(DUE)?;
        let mut rows = statement.query(params![organization.as_str(), route, now, slots])?;
        while let Some(row) = rows.next()? {
            let (organization, route) = (organization.clone(), route.clone());
            let key = LaneKey { organization, route, provider: row.get(0)?, lane: row.get(1)? };
            found.lanes.push(ClaimedLane { key, claim: 0, applied: None, interrupted: None, rows: Vec::new() });
        }
        let mut statement = db.prepare_cached(DUE_LATER)?;
        let mut rows = statement.query(params![organization.as_str(), route, now])?;
        let later = rows.next()?.map(|row| columns::time(row, 0)).transpose()?;
        found.next_due = found.next_due.into_iter().chain(later).min();
    }
    Ok(found)
}

/// Takes those of the lanes found that are still due.
pub(super) fn take(
    transaction: &mut Transaction<'_>,
    claim: &LaneClaim,
    mut found: LaneClaims,
) -> Result<LaneClaims, StoreError> {
    let lease_end = after(claim.now, claim.lease.duration);
    let mut statement = transaction.db.prepare_cached(TAKE)?;
    let mut interrupt = transaction.db.prepare_cached(INTERRUPT)?;
    let mut taken = Vec::with_capacity(found.lanes.len());
    for mut lane in found.lanes {
        let [organization, route, provider, name] = parts(&lane.key);
        let lapsed = params![organization, route, provider, name, millis(claim.now), EFFECT_INTERRUPTED];
        lane.interrupted = interrupt.query_map(lapsed, |row| row.get(0))?.next().transpose()?;
        let owner = &claim.lease.owner;
        let last = *transaction.lane_claims;
        let parameters = params![
            organization,
            route,
            provider,
            name,
            millis(claim.now),
            owner,
            millis(lease_end),
            last,
            claim.rows_each
        ];
        // The number rises over all lanes: a lane that ended and began anew gives out no old token again.
        let claimed: Option<i64> = statement.query_map(parameters, |row| row.get(0))?.next().transpose()?;
        let Some(claimed) = claimed else { continue };
        *transaction.lane_claims = claimed;
        lane.claim = claimed.unsigned_abs();
        taken.push(lane);
    }
    if !taken.is_empty() {
        found.next_due = found.next_due.into_iter().chain([lease_end]).min();
    }
    found.lanes = taken;
    Ok(found)
}

/// Reads the first rows of the lanes taken, and the versions that took effect.
pub(super) fn fill(
    db: &Connection,
    mut claims: LaneClaims,
    rows_each: u32,
    last_body_only: bool,
) -> Result<LaneClaims, StoreError> {
    for lane in &mut claims.lanes {
        lane.applied = applied(db, &lane.key)?;
        lane.rows = work_rows(db, &lane.key, rows_each, last_body_only)?;
        if let Some(last) = lane.rows.last_mut().filter(|_| last_body_only) {
            let id = [lane.key.organization.as_str(), &lane.key.provider, &last.delivery];
            last.body = db.prepare_cached(BODY)?.query_row(id, |row| row.get::<_, Vec<u8>>(0))?.into();
        }
    }
    Ok(claims)
}

fn applied(db: &Connection, lane: &LaneKey) -> Result<Option<Version>, StoreError> {
    let mut statement = db.prepare_cached(APPLIED)?;
    let mut rows = statement.query(parts(lane))?;
    rows.next()?.map(|row| columns::version(row, 0)).transpose()
}

fn work_rows(db: &Connection, lane: &LaneKey, most: u32, without_bodies: bool) -> Result<Vec<WorkRow>, StoreError> {
    let mut statement = db.prepare_cached(ROWS)?;
    let [organization, route, provider, name] = parts(lane);
    let mut rows = statement.query(params![organization, route, provider, name, most, without_bodies])?;
    let mut work = Vec::new();
    while let Some(row) = rows.next()? {
        work.push(work_row(row)?);
    }
    Ok(work)
}

fn work_row(row: &Row<'_>) -> Result<WorkRow, StoreError> {
    Ok(WorkRow {
        delivery: row.get(0)?,
        source: row.get(1)?,
        event_type: row.get(2)?,
        key: row.get(3)?,
        version: columns::version(row, 4)?,
        failures: row.get(7)?,
        received_at: columns::time(row, 8)?,
        due_since: columns::time(row, 9)?,
        body: columns::body(row, 10)?,
    })
}

/// Writes what was done with a lane, if the lease on it is held.
pub(super) fn finish_lane(transaction: &mut Transaction<'_>, finish: &FinishLane) -> Result<FinishOutcome, StoreError> {
    let db = transaction.db;
    if !release(db, finish)? {
        return Ok(FinishOutcome::LeaseLost);
    }
    for row in &finish.ended {
        end_row(db, &finish.key, row, finish.at)?;
    }
    if let Some(row) = &finish.retry {
        retry_row(db, &finish.key, row)?;
    }
    close_lane(db, &finish.key)?;
    if let Some(version) = &finish.applied {
        apply(db, &finish.key, version, finish.now)?;
    }
    Ok(FinishOutcome::Applied { switched_off: false })
}

/// Ends a lane that has no more work.
pub(super) fn close_lane(db: &Connection, lane: &LaneKey) -> Result<(), StoreError> {
    db.prepare_cached(CLOSE)?.execute(parts(lane))?;
    Ok(())
}

/// Gives the lane back, due when there is something to do; `false` where the lease is not held.
fn release(db: &Connection, finish: &FinishLane) -> Result<bool, StoreError> {
    let [organization, route, provider, name] = parts(&finish.key);
    let due = finish.retry.as_ref().map_or(finish.now, |retry| retry.due_at);
    // A number that was never given out belongs to no lease.
    let claim = i64::try_from(finish.claim).unwrap_or(-1);
    let parameters = params![organization, route, provider, name, finish.owner, claim, millis(due)];
    Ok(db.prepare_cached(RELEASE)?.execute(parameters)? == 1)
}

/// Ends a row that waits in this lane; one that does not is left as it is.
pub(super) fn end_row(db: &Connection, lane: &LaneKey, ended: &EndedRow, at: Timestamp) -> Result<(), StoreError> {
    let [organization, route, provider, name] = parts(lane);
    let Some((version, _)) = find_work(db, lane, &ended.delivery)? else { return Ok(()) };
    let Version { micros, rank, event } = version;
    let work = params![organization, route, provider, name, micros, rank as i64, event, ended.delivery];
    db.prepare_cached(DELETE_WORK)?.execute(work)?;
    let state = ended.state.as_str();
    let effect =
        params![organization, provider, ended.delivery, route, state, ended.failures, ended.detail, millis(at)];
    db.prepare_cached(INSERT_EFFECT)?.execute(effect)?;
    set_state(db, [organization, provider, &ended.delivery])
}

/// The version of a row that waits in this lane, and its failures so far.
pub(super) fn find_work(db: &Connection, lane: &LaneKey, delivery: &str) -> Result<Option<(Version, u32)>, StoreError> {
    let [organization, route, provider, name] = parts(lane);
    let mut statement = db.prepare_cached(FIND_WORK)?;
    let mut rows = statement.query([organization, provider, delivery, route, name])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((columns::version(row, 0)?, row.get(3)?)))
}

/// Brings the state of an inbox row up to date when one of its effects has ended.
pub(super) fn set_state(db: &Connection, id: [&str; 3]) -> Result<(), StoreError> {
    if db.prepare_cached(WAITS)?.query_row(id, |row| row.get(0))? {
        return Ok(());
    }
    let mut statement = db.prepare_cached(EFFECT_STATES)?;
    let mut rows = statement.query(id)?;
    let mut effects = Vec::new();
    while let Some(row) = rows.next()? {
        effects.push(columns::effect_state(row, 0)?);
    }
    let [organization, provider, delivery] = id;
    let state = RowState::of(effects).as_str();
    db.prepare_cached(SET_STATE)?.execute(params![organization, provider, delivery, state])?;
    Ok(())
}

fn retry_row(db: &Connection, lane: &LaneKey, retry: &RetryRow) -> Result<(), StoreError> {
    let [organization, route, provider, name] = parts(lane);
    let RetryRow { delivery, failures, error, .. } = retry;
    db.prepare_cached(RETRY)?.execute(params![organization, provider, delivery, route, name, failures, error])?;
    Ok(())
}

/// Remembers the newest version that took effect; an older one than is remembered changes nothing (C4).
fn apply(db: &Connection, lane: &LaneKey, version: &Version, now: Timestamp) -> Result<(), StoreError> {
    let [organization, route, provider, name] = parts(lane);
    let Version { micros, rank, event } = version;
    let parameters = params![organization, route, provider, name, micros, *rank as i64, event, millis(now)];
    db.prepare_cached(APPLY)?.execute(parameters)?;
    Ok(())
}

pub(super) fn parts(lane: &LaneKey) -> [&str; 4] {
    [lane.organization.as_str(), &lane.route, &lane.provider, &lane.lane]
}
