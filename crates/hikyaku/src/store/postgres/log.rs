//! The log of a webhook: its attempts, newest first.

use tokio_postgres::Row;

use super::columns::{self, ceil_millis, millis};
use super::read;
use super::transaction::Transaction;
use crate::store::{Found, LogEntry, LogPosition, LogQuery, StoreError};

/// Lines that are looked at with one statement.
const PIECE_LINES: u32 = 128;

/// The lines in their order. What a query asks for beside the webhook is looked for among them, and only what is shown
/// is read in full.
macro_rules! lines {
    ($filter:literal) => {
        concat!(
            "SELECT a.started_at, a.event, a.run, a.number, a.http_status, a.failure, a.created_at,
        (SELECT e.type FROM events e
            WHERE e.organization = a.organization AND e.created_at = a.created_at AND e.id = a.event)
    FROM attempts a
    WHERE a.organization = $1 AND a.webhook = $2 AND (a.started_at, a.event, a.run, a.number) < ($3, $4, $5, $6)",
            $filter,
            "
    ORDER BY a.started_at DESC, a.event DESC, a.run DESC, a.number DESC LIMIT $7"
        )
    };
}
pub(super) const LINES: &str = lines!("");
pub(super) const FAILED_LINES: &str = lines!(" AND a.http_status NOT BETWEEN 200 AND 299");
const IN_FULL: &str =
    "SELECT k.place, a.run, a.number, a.started_at, a.duration_micros, a.http_status, a.failure, a.error,
        a.response_body
    FROM UNNEST($3::BIGINT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[])
            WITH ORDINALITY k (created_at, event, run, number, place),
        LATERAL (SELECT * FROM attempts a
            WHERE a.organization = $1 AND a.created_at = k.created_at AND a.event = k.event AND a.webhook = $2
                AND a.run = k.run AND a.number = k.number LIMIT 1) a
    ORDER BY k.place";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LINES, FAILED_LINES, IN_FULL];

/// A page of a webhook's log.
pub(super) async fn log(
    transaction: &Transaction<'_>,
    query: &LogQuery,
) -> Result<Found<LogEntry, LogPosition>, StoreError> {
    let sql = if query.outcome.takes_failures_only() { FAILED_LINES } else { LINES };
    let (organization, webhook) = (query.organization.as_str(), query.webhook.as_str());
    let oldest = query.from.map_or(i64::MIN, ceil_millis);
    let (mut place, mut looked_at) = (first(query), 0);
    let (mut taken, mut searched_to) = (Vec::new(), None);
    'search: while searched_to.is_none() {
        let most = PIECE_LINES.min(query.look_at - looked_at);
        let (started_at, event, run, number) = &place;
        let lines = transaction
            .query(sql, &[&organization, &webhook, started_at, event, run, number, &i64::from(most)])
            .await?;
        for line in &lines {
            if taken.len() == query.limit as usize || line.try_get::<_, i64>(0)? < oldest {
                break 'search;
            }
            if takes(query, line)? {
                taken.push(Line::read(line)?);
            }
            looked_at += 1;
            if looked_at == query.look_at {
                searched_to = Some(position(line)?);
            }
        }
        match lines.last().filter(|_| lines.len() == most as usize) {
            Some(last) => place = (last.try_get(0)?, last.try_get(1)?, last.try_get(2)?, last.try_get(3)?),
            None => break,
        }
    }
    Ok(Found { rows: in_full(transaction, query, taken).await?, searched_to })
}

/// The place before which the lines begin.
fn first(query: &LogQuery) -> (i64, String, i64, i64) {
    let to = (query.to.map_or(i64::MAX, ceil_millis), String::new(), 0, 0);
    let before = query.before.as_ref().map(|place| {
        let (run, number) = (i64::from(place.run), i64::from(place.number));
        (millis(place.started_at), place.event.to_string(), run, number)
    });
    before.map_or(to.clone(), |before| before.min(to))
}

fn takes(query: &LogQuery, line: &Row) -> Result<bool, StoreError> {
    let by_type = match &query.event_type {
        Some(pattern) => pattern.matches(line.try_get(7)?),
        None => true,
    };
    Ok(by_type && (query.outcome.is_empty() || query.outcome.takes(columns::outcome(line, 4)?)))
}

/// A line that is shown.
struct Line {
    position: LogPosition,
    created_at: i64,
    event_type: hikyaku_core::event::EventType,
}

impl Line {
    fn read(line: &Row) -> Result<Self, StoreError> {
        let (created_at, event_type) = (line.try_get(6)?, columns::event_type(line, 7)?);
        Ok(Self { position: position(line)?, created_at, event_type })
    }
}

async fn in_full(
    transaction: &Transaction<'_>,
    query: &LogQuery,
    lines: Vec<Line>,
) -> Result<Vec<LogEntry>, StoreError> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let (organization, webhook) = (query.organization.as_str(), query.webhook.as_str());
    let created: Vec<_> = lines.iter().map(|line| line.created_at).collect();
    let events: Vec<_> = lines.iter().map(|line| line.position.event.as_str()).collect();
    let runs: Vec<_> = lines.iter().map(|line| i64::from(line.position.run)).collect();
    let numbers: Vec<_> = lines.iter().map(|line| i64::from(line.position.number)).collect();
    let rows = transaction.query(IN_FULL, &[&organization, &webhook, &created, &events, &runs, &numbers]).await?;
    if rows.len() != lines.len() {
        return Err(StoreError::Damaged("an attempt is in an index only".to_owned()));
    }
    let entry = |(line, row): (Line, &Row)| {
        Ok(LogEntry { event: line.position.event, event_type: line.event_type, attempt: read::attempt(row, 1)? })
    };
    lines.into_iter().zip(&rows).map(entry).collect()
}

fn position(line: &Row) -> Result<LogPosition, StoreError> {
    Ok(LogPosition {
        started_at: columns::time(line, 0)?,
        event: columns::event_id(line, 1)?,
        run: columns::number(line, 2)?,
        number: columns::number(line, 3)?,
    })
}
