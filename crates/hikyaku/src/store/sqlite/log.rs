//! The log of a webhook: its attempts, newest first.

use rusqlite::{Connection, Row, params};

use super::columns::{self, ceil_millis, millis};
use super::read;
use crate::store::{Found, LogEntry, LogPosition, LogQuery, StoreError};

/// The lines in their order. What a query asks for beside the webhook is looked for among them, and only what is shown
/// is read in full.
macro_rules! lines {
    ($index:literal, $filter:literal) => {
        concat!(
            "SELECT a.started_at, a.event, a.run, a.number, a.http_status, a.failure, e.type
    FROM attempts a INDEXED BY ",
            $index,
            " JOIN events e ON e.organization = a.organization AND e.id = a.event
    WHERE a.organization = ?1 AND a.webhook = ?2 AND (a.started_at, a.event, a.run, a.number)
        < (?3, ?4, ?5, ?6)",
            $filter,
            "
    ORDER BY a.started_at DESC, a.event DESC, a.run DESC, a.number DESC LIMIT ?7"
        )
    };
}
const LINES: &str = lines!("attempts_log", "");
const FAILED_LINES: &str = lines!("attempts_failed", " AND a.http_status NOT BETWEEN 200 AND 299");
const LINE: &str = "SELECT run, number, started_at, duration_micros, http_status, failure, error, response_body
    FROM attempts WHERE organization = ?1 AND event = ?2 AND webhook = ?3 AND run = ?4 AND number = ?5";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LINES, FAILED_LINES, LINE];

/// A page of a webhook's log.
pub(super) fn log(db: &Connection, query: &LogQuery) -> Result<Found<LogEntry, LogPosition>, StoreError> {
    let mut found = Found { rows: Vec::new(), searched_to: None };
    let sql = if query.outcome.takes_failures_only() { FAILED_LINES } else { LINES };
    let (started_at, event, run, number) = first(query);
    let mut statement = db.prepare_cached(sql)?;
    let place =
        params![query.organization.as_str(), query.webhook.as_str(), started_at, event, run, number, query.look_at];
    let mut lines = statement.query(place)?;
    let mut looked_at = 0;
    let oldest = query.from.map_or(i64::MIN, ceil_millis);
    while found.rows.len() < query.limit as usize
        && let Some(line) = lines.next()?
    {
        if line.get::<_, i64>(0)? < oldest {
            return Ok(found);
        }
        if takes(query, line)? {
            found.rows.push(entry(db, query, line)?);
        }
        looked_at += 1;
        if looked_at == query.look_at {
            found.searched_to = Some(position(line)?);
        }
    }
    Ok(found)
}

/// The place before which the lines begin.
fn first(query: &LogQuery) -> (i64, &str, u32, u32) {
    let to = (query.to.map_or(i64::MAX, ceil_millis), "", 0, 0);
    let before = query.before.as_ref();
    let before = before.map(|place| (millis(place.started_at), place.event.as_str(), place.run, place.number));
    before.map_or(to, |before| before.min(to))
}

fn takes(query: &LogQuery, line: &Row<'_>) -> Result<bool, StoreError> {
    let by_type = match &query.event_type {
        Some(pattern) => pattern.matches(line.get_ref(6)?.as_str().unwrap_or_default()),
        None => true,
    };
    Ok(by_type && (query.outcome.is_empty() || query.outcome.takes(columns::outcome(line, 4)?)))
}

fn entry(db: &Connection, query: &LogQuery, line: &Row<'_>) -> Result<LogEntry, StoreError> {
    let event = columns::event_id(line, 1)?;
    let (run, number): (u32, u32) = (line.get(2)?, line.get(3)?);
    let key = params![query.organization.as_str(), event.as_str(), query.webhook.as_str(), run, number];
    let mut statement = db.prepare_cached(LINE)?;
    let mut rows = statement.query(key)?;
    let missing = || StoreError::Damaged(format!("an attempt of the event {event} is in an index only"));
    let attempt = read::attempt(rows.next()?.ok_or_else(missing)?)?;
    Ok(LogEntry { event_type: columns::event_type(line, 6)?, event, attempt })
}

fn position(line: &Row<'_>) -> Result<LogPosition, StoreError> {
    let (started_at, event) = (columns::time(line, 0)?, columns::event_id(line, 1)?);
    Ok(LogPosition { started_at, event, run: line.get(2)?, number: line.get(3)? })
}
