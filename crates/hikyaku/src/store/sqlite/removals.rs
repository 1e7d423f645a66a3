//! Removing a webhook. What waits for it is cancelled in the same commit as far as it is little; the rest is cancelled in
//! steps of bounded size that take their turn with all other writes. It cannot be claimed from the first commit on:
//! `queues` passes over what stands in `removals`, also after a restart.

use hikyaku_core::ids::{OrganizationId, WebhookId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::columns::{self, millis};
use super::queues::WebhookKey;
use super::undelivered::FIRST_RUN;
use super::writer::Transaction;
use crate::store::{MAX_REMOVED_AT_ONCE, StoreError, UndeliveredKind};

const DELETE: &str = "DELETE FROM webhooks WHERE organization = ?1 AND id = ?2";
const FORGET_RECOVERIES: &str = "DELETE FROM recoveries WHERE organization = ?1 AND webhook = ?2";
const NOTE: &str = "INSERT INTO removals (organization, webhook, removed_at) VALUES (?1, ?2, ?3)";
const FIRST: &str = "SELECT organization, webhook, removed_at FROM removals
    WHERE organization > '' ORDER BY organization, webhook LIMIT 1";
const FORGET: &str = "DELETE FROM removals WHERE organization = ?1 AND webhook = ?2";
const WAITING: &str = "SELECT created_at, event FROM waiting
    WHERE organization = ?1 AND webhook = ?2 ORDER BY due_at LIMIT ?3";
const STOP_WAITING: &str = "DELETE FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4 RETURNING run, created_at";
/// Left to itself, SQLite would read all that the organization's webhooks did not get.
const UNDELIVERED: &str = "SELECT event, kind = ?3 FROM undelivered INDEXED BY undelivered_oldest
    WHERE organization = ?1 AND webhook = ?2 LIMIT ?4";
const FORGET_UNDELIVERED: &str = "DELETE FROM undelivered WHERE organization = ?1 AND event = ?2 AND webhook = ?3
    RETURNING ?4, created_at";
const CANCEL: &str = "INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at, run, created_at)
    VALUES (?1, ?2, ?3, 'cancelled', 'webhookDeleted', ?4, ?5, ?6)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[DELETE, FORGET_RECOVERIES, NOTE, FIRST, FORGET, WAITING, STOP_WAITING, UNDELIVERED, FORGET_UNDELIVERED, CANCEL];

/// Removes a webhook and cancels what waits for it, or begins to; how many deliveries it has cancelled, or `None` where
/// there was no such webhook.
pub(super) fn remove(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    at: Timestamp,
) -> Result<Option<u32>, StoreError> {
    let Transaction { db, webhooks, queues, .. } = transaction;
    if webhooks.find(db, organization, id)?.is_none() {
        return Ok(None);
    }
    webhooks.remove(db, organization, id)?;
    queues.touch(organization, id);
    let key = [organization.as_str(), id.as_str()];
    db.prepare_cached(DELETE)?.execute(key)?;
    db.prepare_cached(FORGET_RECOVERIES)?.execute(key)?;
    let gone = cancel(db, key, at, MAX_REMOVED_AT_ONCE)?;
    if gone.rows == MAX_REMOVED_AT_ONCE {
        db.prepare_cached(NOTE)?.execute(params![key[0], key[1], millis(at)])?;
    }
    Ok(Some(gone.cancelled))
}

/// The webhook of which something is to be cancelled next, and when it was removed.
pub(super) fn next(db: &Connection) -> Result<Option<(WebhookKey, Timestamp)>, StoreError> {
    let mut statement = db.prepare_cached(FIRST)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let key = (columns::organization(row, 0)?, columns::webhook_id(row, 1)?);
    Ok(Some((key, columns::time(row, 2)?)))
}

/// Cancels more of what waits for a removed webhook; how many deliveries, or `None` where there is none.
pub(super) fn step(db: &Connection, max_rows: u32) -> Result<Option<u32>, StoreError> {
    let Some(((organization, webhook), at)) = next(db)? else { return Ok(None) };
    let key = [organization.as_str(), webhook.as_str()];
    let gone = cancel(db, key, at, max_rows)?;
    if gone.rows < max_rows {
        db.prepare_cached(FORGET)?.execute(key)?;
    }
    Ok(Some(gone.cancelled))
}

/// What was taken from a removed webhook.
#[derive(Default)]
struct Gone {
    /// Deliveries that are cancelled.
    cancelled: u32,
    /// Those, and what it missed and is forgotten.
    rows: u32,
}

/// Cancels up to so many of the deliveries that wait for a webhook or are held for it, and forgets what it missed.
fn cancel(db: &Connection, [organization, webhook]: [&str; 2], at: Timestamp, limit: u32) -> Result<Gone, StoreError> {
    let mut statement = db.prepare_cached(WAITING)?;
    let waiting = statement.query_map(params![organization, webhook, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let waiting = waiting.collect::<Result<Vec<(i64, String)>, _>>()?;
    let left = limit.saturating_sub(u32::try_from(waiting.len()).unwrap_or(u32::MAX));
    let mut statement = db.prepare_cached(UNDELIVERED)?;
    let undelivered = params![organization, webhook, UndeliveredKind::Held.as_str(), left];
    let undelivered = statement.query_map(undelivered, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let undelivered = undelivered.collect::<Result<Vec<(String, bool)>, _>>()?;

    let mut gone = Gone::default();
    for (created_at, event) in &waiting {
        let mut statement = db.prepare_cached(STOP_WAITING)?;
        let key = params![organization, created_at, event, webhook];
        let stopped = statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?)));
        gone.cancelled += end(db, [organization, event, webhook], at, stopped.optional()?)?;
    }
    for (event, is_held) in &undelivered {
        let mut statement = db.prepare_cached(FORGET_UNDELIVERED)?;
        let key = params![organization, event, webhook, FIRST_RUN];
        let forgotten = statement.query_row(key, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        gone.cancelled += end(db, [organization, event, webhook], at, forgotten.filter(|_| *is_held))?;
    }
    gone.rows = u32::try_from(waiting.len() + undelivered.len()).unwrap_or(u32::MAX);
    Ok(gone)
}

/// Writes down that a delivery is cancelled: in which run, and when its event was published. How many that are.
fn end(db: &Connection, key: [&str; 3], at: Timestamp, ended: Option<(u32, Option<i64>)>) -> Result<u32, StoreError> {
    let Some((run, created_at)) = ended else { return Ok(0) };
    db.prepare_cached(CANCEL)?.execute(params![key[0], key[1], key[2], millis(at), run, created_at])?;
    Ok(1)
}
