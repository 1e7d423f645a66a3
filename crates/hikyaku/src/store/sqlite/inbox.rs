//! Received deliveries: storing them once, and showing them.

use std::collections::BTreeMap;

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, Row, params};

use super::columns::{self, millis, sound};
use super::quarantine;
use super::writer::Transaction;
use crate::store::{
    EffectState, EffectView, Found, InboxQuery, InboxRowDetail, InboxRowView, LaneKey, NewRow, RecordOutcome, RowPlace,
    RowPosition, RowState, StoreError,
};

const INSERT_ROW: &str = "INSERT INTO inbox_rows (organization, provider, delivery, source, type, key, micros, rank,
        event, received_at, due_since, state, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (organization, provider, delivery) DO NOTHING";
/// Of a row that is gone.
const IS_KNOWN: &str = "SELECT EXISTS
    (SELECT 1 FROM known_ids WHERE organization = ?1 AND provider = ?2 AND delivery = ?3)";
const INSERT_BODY: &str = "INSERT INTO inbox_bodies (position, body) VALUES (?1, ?2)";
const INSERT_WORK: &str = "INSERT INTO work
    (organization, route, provider, lane, micros, rank, event, delivery, failures, error, due_since)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, '', ?9)";
/// A lane that is leased or backs off keeps its time.
const OPEN_LANE: &str = "INSERT INTO lanes (organization, route, provider, lane, due_at, owner, claim)
    VALUES (?1, ?2, ?3, ?4, ?5, NULL, 0) ON CONFLICT (organization, route, provider, lane) DO NOTHING";

/// The list by each of its indexes, and of each row whether it is all that is asked for. No more rows are looked at than
/// are taken out of the statement.
macro_rules! list {
    ($filter:literal) => {
        concat!(
            "SELECT position, provider, source, delivery, type, key, micros, received_at, state, reason,
        (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR source = ?4) AND (?6 IS NULL
            OR EXISTS (SELECT 1 FROM effects e WHERE e.organization = ?1 AND e.provider = inbox_rows.provider
                AND e.delivery = inbox_rows.delivery AND e.route = ?6 AND (?3 IS NULL OR e.state = ?3))
            OR ((?3 IS NULL OR ?3 = 'waiting') AND EXISTS (SELECT 1 FROM work w INDEXED BY work_row
                WHERE w.organization = ?1 AND w.provider = inbox_rows.provider AND w.delivery = inbox_rows.delivery
                AND w.route = ?6)))
    FROM inbox_rows WHERE organization = ?1",
            $filter,
            " AND position < ?5 ORDER BY position DESC"
        )
    };
}
const LIST_OF_KEY: &str = list!(" AND key = ?2");
const LIST_OF_STATE: &str = list!(" AND state = ?3");
const LIST_OF_SOURCE: &str = list!(" AND source = ?4");
const LIST: &str = list!("");
const ROW: &str = "SELECT position, provider, source, delivery, type, key, micros, received_at, state, reason
    FROM inbox_rows WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
const BODY: &str = "SELECT body FROM inbox_bodies WHERE position = ?1";
const EFFECTS: &str = "SELECT route, state, failures, detail, ended_at FROM effects
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
/// The lane's time stands only while nobody holds it. Left to itself, SQLite would read all work of the organization.
const WAITING_EFFECTS: &str = "SELECT w.route, w.failures, w.error,
        (SELECT l.due_at FROM lanes l WHERE l.organization = w.organization AND l.route = w.route
            AND l.provider = w.provider AND l.lane = w.lane AND l.owner IS NULL)
    FROM work w INDEXED BY work_row WHERE w.organization = ?1 AND w.provider = ?2 AND w.delivery = ?3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    INSERT_ROW,
    IS_KNOWN,
    INSERT_BODY,
    INSERT_WORK,
    OPEN_LANE,
    LIST_OF_KEY,
    LIST_OF_STATE,
    LIST_OF_SOURCE,
    LIST,
    ROW,
    BODY,
    EFFECTS,
    WAITING_EFFECTS,
];

/// Stores a received delivery with its work, unless its id is known (C6, T1).
pub(super) fn record(transaction: &mut Transaction<'_>, row: &NewRow) -> Result<RecordOutcome, StoreError> {
    let db = transaction.db;
    let id = [row.organization.as_str(), &row.provider, &row.delivery];
    if db.prepare_cached(IS_KNOWN)?.query_row(id, |row| row.get(0))? {
        return Ok(RecordOutcome::Duplicate);
    }
    let state = if row.routes.is_empty() { RowState::Parked } else { RowState::Waiting };
    let outcome = put(db, row, state)?;
    if outcome == RecordOutcome::Stored {
        for route in &row.routes {
            add_work(db, &LaneKey::of(row, route), &row.delivery, &row.version, row.due_at)?;
        }
    }
    Ok(outcome)
}

/// Stores a received delivery without work, unless its id is known.
pub(super) fn put(db: &Connection, row: &NewRow, state: RowState) -> Result<RecordOutcome, StoreError> {
    let inserted = db.prepare_cached(INSERT_ROW)?.execute(params![
        row.organization.as_str(),
        row.provider,
        row.delivery,
        row.source,
        row.event_type,
        row.key,
        row.version.micros,
        row.version.rank as i64,
        row.version.event,
        millis(row.received_at),
        millis(row.due_at),
        state.as_str(),
        row.park_reason,
    ])?;
    if inserted == 0 {
        return Ok(RecordOutcome::Duplicate);
    }
    db.prepare_cached(INSERT_BODY)?.execute(params![db.last_insert_rowid(), &row.body[..]])?;
    Ok(RecordOutcome::Stored)
}

/// Whether an id is known.
pub(super) fn find_id(db: &Connection, id: [&str; 3]) -> Result<bool, StoreError> {
    Ok(db.prepare_cached(ROW)?.exists(id)?)
}

/// Adds a delivery to a lane, due at `due_at` unless the lane has its own time.
pub(super) fn add_work(
    db: &Connection,
    lane: &LaneKey,
    delivery: &str,
    version: &Version,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let organization = lane.organization.as_str();
    db.prepare_cached(INSERT_WORK)?.execute(params![
        organization,
        lane.route,
        lane.provider,
        lane.lane,
        version.micros,
        version.rank as i64,
        version.event,
        delivery,
        millis(due_at),
    ])?;
    let lane = params![organization, lane.route, lane.provider, lane.lane, millis(due_at)];
    db.prepare_cached(OPEN_LANE)?.execute(lane)?;
    Ok(())
}

/// A page of the inbox, newest first.
pub(super) fn list(db: &Connection, query: &InboxQuery) -> Result<Found<InboxRowView, RowPlace>, StoreError> {
    let mut statement = statement(db, query)?;
    let before = query.before.map_or(i64::MAX, |before| before.0);
    let state = query.state.map(RowState::as_str);
    let organization = query.organization.as_str();
    let InboxQuery { key, source, route, .. } = query;
    let mut rows = statement.query(params![organization, key, state, source, before, route])?;
    let mut found = Found { rows: Vec::new(), searched_to: None };
    let mut looked_at = 0;
    while found.rows.len() < query.limit as usize
        && let Some(row) = rows.next()?
    {
        if row.get(10)? {
            found.rows.push(view(row)?);
        }
        looked_at += 1;
        if looked_at == query.look_at {
            found.searched_to = Some(place(row)?);
            break;
        }
    }
    Ok(found)
}

fn place(row: &Row<'_>) -> Result<RowPlace, StoreError> {
    Ok(RowPlace { position: RowPosition(row.get(0)?), received_at: columns::time(row, 7)? })
}

/// The statement whose index leaves the fewest rows to look at: a key has few, and nearly all rows end as done.
fn statement<'a>(db: &'a Connection, query: &InboxQuery) -> Result<CachedStatement<'a>, StoreError> {
    let sql = match query {
        InboxQuery { key: Some(_), .. } => LIST_OF_KEY,
        InboxQuery { state: Some(RowState::Done), source: Some(_), .. } => LIST_OF_SOURCE,
        InboxQuery { state: Some(_), .. } => LIST_OF_STATE,
        InboxQuery { source: Some(_), .. } => LIST_OF_SOURCE,
        _ => LIST,
    };
    Ok(db.prepare_cached(sql)?)
}

/// One row with its body and its effects, or `None`.
pub(super) fn detail(
    db: &Connection,
    organization: &OrganizationId,
    provider: &str,
    delivery: &str,
) -> Result<Option<InboxRowDetail>, StoreError> {
    let id = [organization.as_str(), provider, delivery];
    let mut statement = db.prepare_cached(ROW)?;
    let mut rows = statement.query(id)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let row = view(row)?;
    let body = db.prepare_cached(BODY)?.query_row([row.position.0], |row| row.get::<_, Vec<u8>>(0))?;
    let headers = quarantine::headers(db, row.position.0)?;
    Ok(Some(InboxRowDetail { row, body: body.into(), headers: headers.into(), effects: effects(db, id)? }))
}

fn effects(db: &Connection, id: [&str; 3]) -> Result<Vec<EffectView>, StoreError> {
    let mut by_route = BTreeMap::new();
    let mut statement = db.prepare_cached(EFFECTS)?;
    let mut rows = statement.query(id)?;
    while let Some(row) = rows.next()? {
        by_route.insert(row.get::<_, String>(0)?, ended_effect(row)?);
    }
    let mut statement = db.prepare_cached(WAITING_EFFECTS)?;
    let mut rows = statement.query(id)?;
    while let Some(row) = rows.next()? {
        by_route.insert(row.get::<_, String>(0)?, waiting_effect(row)?);
    }
    Ok(by_route.into_values().collect())
}

fn ended_effect(row: &Row<'_>) -> Result<EffectView, StoreError> {
    Ok(EffectView {
        route: row.get(0)?,
        state: columns::effect_state(row, 1)?,
        failures: row.get(2)?,
        next_attempt_at: None,
        detail: row.get(3)?,
        ended_at: columns::optional_time(row, 4)?,
    })
}

fn waiting_effect(row: &Row<'_>) -> Result<EffectView, StoreError> {
    Ok(EffectView {
        route: row.get(0)?,
        state: EffectState::Waiting,
        failures: row.get(1)?,
        next_attempt_at: columns::optional_time(row, 3)?,
        detail: row.get(2)?,
        ended_at: None,
    })
}

fn view(row: &Row<'_>) -> Result<InboxRowView, StoreError> {
    let state: String = row.get(8)?;
    Ok(InboxRowView {
        position: RowPosition(row.get(0)?),
        provider: row.get(1)?,
        source: row.get(2)?,
        delivery: row.get(3)?,
        event_type: row.get(4)?,
        key: row.get(5)?,
        timestamp: sound("inbox_rows.micros", Timestamp::from_microsecond(row.get(6)?))?,
        received_at: columns::time(row, 7)?,
        state: sound("inbox_rows.state", RowState::parse(&state).ok_or("holds a word that has no meaning"))?,
        reason: row.get(9)?,
    })
}
