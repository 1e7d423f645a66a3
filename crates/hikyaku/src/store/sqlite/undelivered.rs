//! What a webhook did not get: the notes of it, and the new run that brings it after all.

use hikyaku_core::ids::DeliveryKey;
use hikyaku_core::webhook::{Off, Webhook};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{self, millis, undelivered_kind};
use super::webhook_row::{off_columns, off_reason};
use super::writer::Transaction;
use crate::store::{
    Missed, MissedEntry, MissedEvents, MissedPosition, MissedQuery, NewEvent, ResendOutcome, StoreError,
    UndeliveredKind, Which,
};

const NOTE_OFF: &str = "INSERT INTO undelivered (organization, event, webhook, kind, timestamp, off_since, off_event,
        created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const NOTE_EXHAUSTED: &str = "INSERT INTO undelivered (organization, event, webhook, kind, timestamp)
    SELECT ?1, ?2, ?3, 'exhausted', timestamp FROM events WHERE organization = ?1 AND id = ?2
        AND NOT EXISTS (SELECT 1 FROM attempts
            WHERE organization = ?1 AND event = ?2 AND webhook = ?3 AND run < ?4 AND http_status BETWEEN 200 AND 299)";
const FORGET: &str = "DELETE FROM undelivered WHERE organization = ?1 AND event = ?2 AND webhook = ?3";
const LAST_RUN: &str = "DELETE FROM deliveries WHERE organization = ?1 AND event = ?2 AND webhook = ?3 RETURNING run";
const WAIT: &str = "INSERT INTO waiting (organization, event, webhook, due_at, run, attempt, spoiled, created_at)
    SELECT ?1, ?2, ?3, ?4, ?5, 0, 0, created_at FROM events WHERE organization = ?1 AND id = ?2";
const WAITS: &str = "SELECT EXISTS
    (SELECT 1 FROM waiting WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4)";
const EVENT_TIME: &str = "SELECT created_at FROM events WHERE organization = ?1 AND id = ?2";
const OF_EVENT: &str = "SELECT webhook, kind, off_since, off_event FROM undelivered
    WHERE organization = ?1 AND event = ?2 ORDER BY webhook";
const OLDEST: &str = "SELECT u.event, u.timestamp, u.kind, e.type
    FROM undelivered u JOIN events e ON e.organization = u.organization AND e.id = u.event
    WHERE u.organization = ?1 AND u.webhook = ?2 AND u.kind = ?3
        AND (u.timestamp, u.event) > (?4, ?5) AND u.timestamp < ?6
    ORDER BY u.timestamp, u.event LIMIT ?7";
const COUNT: &str = "SELECT COUNT(*) FROM (SELECT 1 FROM undelivered
    WHERE organization = ?1 AND webhook = ?2 AND kind = ?3 AND timestamp >= ?4 AND timestamp < ?5 LIMIT ?6)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[NOTE_OFF, NOTE_EXHAUSTED, FORGET, LAST_RUN, WAIT, WAITS, EVENT_TIME, OF_EVENT, OLDEST, COUNT];

/// The run of a delivery that a publish begins.
pub(super) const FIRST_RUN: u32 = 1;

/// Notes that a webhook which is off missed an event, or has it held.
pub(super) fn note_off(
    db: &Connection,
    event: &NewEvent,
    webhook: &Webhook,
    kind: UndeliveredKind,
) -> Result<(), StoreError> {
    let (off_since, off_event) = off_columns(webhook.off.as_ref());
    db.prepare_cached(NOTE_OFF)?.execute(params![
        webhook.organization.as_str(),
        event.id.as_str(),
        webhook.id.as_str(),
        kind.as_str(),
        millis(event.timestamp),
        off_since,
        off_event,
        (kind == UndeliveredKind::Held).then(|| millis(event.created_at)),
    ])?;
    Ok(())
}

/// Notes that a delivery is exhausted in this run, unless an earlier run of it was delivered: then the webhook has the event.
pub(super) fn note_exhausted(db: &Connection, key: &DeliveryKey, run: u32) -> Result<(), StoreError> {
    let [organization, event, webhook] = names(key);
    db.prepare_cached(NOTE_EXHAUSTED)?.execute(params![organization, event, webhook, run])?;
    Ok(())
}

/// The webhook has the event.
pub(super) fn forget(db: &Connection, key: &DeliveryKey) -> Result<(), StoreError> {
    db.prepare_cached(FORGET)?.execute(names(key))?;
    Ok(())
}

fn names(key: &DeliveryKey) -> [&str; 3] {
    [key.organization.as_str(), key.event.as_str(), key.webhook.as_str()]
}

/// Begins a new run of a delivery, unless it waits.
pub(super) fn resend(
    transaction: &mut Transaction<'_>,
    key: &DeliveryKey,
    due_at: Timestamp,
) -> Result<ResendOutcome, StoreError> {
    let db = transaction.db;
    let [organization, event, webhook] = names(key);
    let created_at: Option<i64> =
        db.prepare_cached(EVENT_TIME)?.query_row([organization, event], |row| row.get(0)).optional()?;
    let Some(created_at) = created_at else { return Ok(ResendOutcome::NoSuchEvent) };
    if transaction.webhooks.find(db, &key.organization, &key.webhook)?.is_none() {
        return Ok(ResendOutcome::NoSuchWebhook);
    }
    let delivery = params![organization, created_at, event, webhook];
    if db.prepare_cached(WAITS)?.query_row(delivery, |row| row.get::<_, bool>(0))? {
        return Ok(ResendOutcome::StillWaiting);
    }
    begin_run(transaction, key, FIRST_RUN, due_at)?;
    Ok(ResendOutcome::Begun)
}

/// Makes a delivery that does not wait wait again, in the run after its last one; `before` stands for that where it
/// never had one.
pub(super) fn begin_run(
    transaction: &mut Transaction<'_>,
    key: &DeliveryKey,
    before: u32,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let db = transaction.db;
    forget(db, key)?;
    let last: Option<u32> = db.prepare_cached(LAST_RUN)?.query_row(names(key), |row| row.get(0)).optional()?;
    let run = last.unwrap_or(before) + 1;
    let [organization, event, webhook] = names(key);
    db.prepare_cached(WAIT)?.execute(params![organization, event, webhook, millis(due_at), run])?;
    transaction.queues.touch(&key.organization, &key.webhook);
    Ok(())
}

/// What the webhooks did not get of one event: those that have it held, and those that missed it.
pub(super) fn of_event(db: &Connection, event: [&str; 2]) -> Result<(Vec<Missed>, Vec<Missed>), StoreError> {
    let (mut held, mut missed) = (Vec::new(), Vec::new());
    let mut statement = db.prepare_cached(OF_EVENT)?;
    let mut rows = statement.query(event)?;
    while let Some(row) = rows.next()? {
        match undelivered_kind(row, 1)? {
            UndeliveredKind::Held => held.push(missed_by(row)?),
            UndeliveredKind::Missed => missed.push(missed_by(row)?),
            UndeliveredKind::Exhausted => (),
        }
    }
    Ok((held, missed))
}

fn missed_by(row: &Row<'_>) -> Result<Missed, StoreError> {
    let off = Off { since: columns::time(row, 2)?, reason: off_reason(row, 3)? };
    Ok(Missed { webhook: columns::webhook_id(row, 0)?, off })
}

/// A page of what a webhook missed and what was exhausted, with the counts of the period.
pub(super) fn missed(db: &Connection, query: &MissedQuery) -> Result<MissedEvents, StoreError> {
    let MissedQuery { from, to, after, limit, count_to, .. } = query;
    let webhook = [query.organization.as_str(), query.webhook.as_str()];
    let entries = oldest(db, webhook, Which::All, after.as_ref().map_or((start(*from), ""), position), *to, *limit)?;
    let count = |kind| count(db, webhook, kind, (*from, *to), (*count_to).into());
    let (missed, exhausted) = (count(UndeliveredKind::Missed)?, count(UndeliveredKind::Exhausted)?);
    Ok(MissedEvents { entries, missed, exhausted })
}

fn position(at: &MissedPosition) -> (i64, &str) {
    (millis(at.timestamp), at.event.as_str())
}

/// The first point in time of a period, as it is stored.
pub(super) fn start(from: Option<Timestamp>) -> i64 {
    from.map_or(i64::MIN, millis)
}

/// The oldest events after a position, before `to`, of all kinds that are meant.
pub(super) fn oldest(
    db: &Connection,
    [organization, webhook]: [&str; 2],
    which: Which,
    (after_at, after_event): (i64, &str),
    to: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<MissedEntry>, StoreError> {
    let before = to.map_or(i64::MAX, millis);
    let mut statement = db.prepare_cached(OLDEST)?;
    let mut found = Vec::new();
    for kind in which.kinds() {
        let kind = kind.as_str();
        let mut rows = statement.query(params![organization, webhook, kind, after_at, after_event, before, limit])?;
        while let Some(row) = rows.next()? {
            found.push(entry(row)?);
        }
    }
    found.sort_by(|a, b| a.position.cmp(&b.position));
    found.truncate(limit as usize);
    Ok(found)
}

fn entry(row: &Row<'_>) -> Result<MissedEntry, StoreError> {
    Ok(MissedEntry {
        position: MissedPosition { timestamp: columns::time(row, 1)?, event: columns::event_id(row, 0)? },
        event_type: columns::event_type(row, 3)?,
        kind: undelivered_kind(row, 2)?,
    })
}

/// How many events of a kind there are in a period; counting stops at `most`.
pub(super) fn count(
    db: &Connection,
    [organization, webhook]: [&str; 2],
    kind: UndeliveredKind,
    (from, to): (Option<Timestamp>, Option<Timestamp>),
    most: i64,
) -> Result<u64, StoreError> {
    let period = params![organization, webhook, kind.as_str(), start(from), to.map_or(i64::MAX, millis), most];
    let count: i64 = db.prepare_cached(COUNT)?.query_row(period, |row| row.get(0))?;
    Ok(count.unsigned_abs())
}
