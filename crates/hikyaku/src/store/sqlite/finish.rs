//! Writing what an attempt came to, under its lease.

use hikyaku_core::delivery::{Decision, DeliveryState};
use hikyaku_core::ids::DeliveryKey;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{after, micros, millis, outcome_columns};
use super::writer::Transaction;
use super::{publish, undelivered, webhooks};
use crate::store::{AttemptRecord, FinishAttempt, FinishNotices, FinishOutcome, StoreError};

const STOP_WAITING: &str = "DELETE FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4
        AND owner = ?5 AND run = ?6 AND attempt = ?7";
const END: &str = "INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at, run, created_at)
    VALUES (?1, ?2, ?3, ?4, '', ?5, ?6, ?7)";
const RETRY: &str = "UPDATE waiting
    SET due_at = ?8, spoiled = spoiled + ?9, owner = NULL, attempt_started_at = NULL
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4
        AND owner = ?5 AND run = ?6 AND attempt = ?7";
/// An attempt that was under way when its webhook was deleted, or when somebody else gave its delivery up, and was answered
/// 2xx.
const ARRIVED_AFTER_ALL: &str = "UPDATE deliveries SET state = 'delivered', reason = '', ended_at = ?5
    WHERE organization = ?1 AND event = ?2 AND webhook = ?3 AND run = ?4 AND state IN ('cancelled', 'exhausted')";
/// Whether an attempt of the run was answered 2xx, which a late finish may have told.
const IS_ANSWERED: &str = "SELECT EXISTS (SELECT 1 FROM attempts
    WHERE organization = ?1 AND event = ?2 AND webhook = ?3 AND run = ?4 AND http_status BETWEEN 200 AND 299)";
/// One line per run and attempt number. The first word on it stays, but "interrupted" gives way to what a late finish tells.
const LOG: &str = "INSERT INTO attempts (organization, event, webhook, run, number, started_at, duration_micros,
        http_status, failure, error, response_body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (organization, event, webhook, run, number) DO UPDATE
    SET started_at = excluded.started_at, duration_micros = excluded.duration_micros,
        http_status = excluded.http_status, failure = excluded.failure, error = excluded.error,
        response_body = excluded.response_body
    WHERE attempts.failure = 'interrupted'";
const EXISTS: &str = "SELECT EXISTS
        (SELECT 1 FROM waiting WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4)
    OR EXISTS (SELECT 1 FROM deliveries WHERE organization = ?1 AND event = ?3 AND webhook = ?4 AND created_at = ?2)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[STOP_WAITING, END, RETRY, ARRIVED_AFTER_ALL, IS_ANSWERED, LOG, EXISTS];

/// Writes an attempt and what follows from it; without the lease, the attempt only.
pub(super) fn finish_attempt(
    transaction: &mut Transaction<'_>,
    finish: &FinishAttempt,
) -> Result<FinishOutcome, StoreError> {
    let FinishAttempt { key, created_at, attempt, .. } = finish;
    let ended_at = after(attempt.started_at, attempt.duration);
    let decision = &match finish.decision {
        Decision::Exhausted { .. } if is_answered(transaction.db, finish)? => Decision::Delivered,
        decision => decision,
    };
    let held = match decision {
        Decision::Retry { at } => retry(transaction.db, finish, *at)?,
        Decision::Delivered => end(transaction.db, finish, DeliveryState::Delivered, ended_at)?,
        Decision::Exhausted { .. } => end(transaction.db, finish, DeliveryState::Exhausted, ended_at)?,
    };
    if !held && !exists(transaction.db, key, *created_at)? {
        return Ok(FinishOutcome::LeaseLost);
    }
    log(transaction.db, key, attempt)?;
    if !held {
        let arrived = finish.decision == Decision::Delivered && arrived_after_all(transaction.db, finish, ended_at)?;
        return Ok(if arrived { FinishOutcome::Applied { switched_off: false } } else { FinishOutcome::LeaseLost });
    }
    transaction.queues.touch(&key.organization, &key.webhook);
    let switched_off = match decision {
        Decision::Exhausted { switch_off: true } => {
            webhooks::note_exhausted(transaction, &key.organization, &key.webhook, &key.event, ended_at)?
        }
        Decision::Delivered => {
            webhooks::note_success(transaction, &key.organization, &key.webhook)?;
            false
        }
        _ => false,
    };
    if let (Decision::Exhausted { .. }, Some(notices)) = (decision, &finish.notices) {
        let notices = FinishNotices::clone(notices).into_publish(key.clone(), switched_off);
        publish::publish(transaction, &notices)?;
    }
    Ok(FinishOutcome::Applied { switched_off })
}

/// Makes the delivery wait for its next attempt; `false` where the lease is not held.
fn retry(db: &Connection, finish: &FinishAttempt, at: Timestamp) -> Result<bool, StoreError> {
    let FinishAttempt { key, created_at, owner, attempt, .. } = finish;
    let changed = db.prepare_cached(RETRY)?.execute(params![
        key.organization.as_str(),
        millis(*created_at),
        key.event.as_str(),
        key.webhook.as_str(),
        owner,
        attempt.run,
        attempt.number,
        millis(at),
        attempt.outcome.spoiled_by_us(),
    ])?;
    Ok(changed == 1)
}

/// Moves the delivery from what waits to what has ended; `false` where the lease is not held.
fn end(db: &Connection, finish: &FinishAttempt, state: DeliveryState, ended_at: Timestamp) -> Result<bool, StoreError> {
    let FinishAttempt { key, created_at, owner, attempt, .. } = finish;
    let (organization, event, webhook) = (key.organization.as_str(), key.event.as_str(), key.webhook.as_str());
    let created_at = millis(*created_at);
    let token = params![organization, created_at, event, webhook, owner, attempt.run, attempt.number];
    if db.prepare_cached(STOP_WAITING)?.execute(token)? == 0 {
        return Ok(false);
    }
    db.prepare_cached(END)?.execute(params![
        organization,
        event,
        webhook,
        state.as_str(),
        millis(ended_at),
        attempt.run,
        created_at,
    ])?;
    if state == DeliveryState::Exhausted {
        undelivered::note_exhausted(db, key, attempt.run)?;
    }
    Ok(true)
}

fn is_answered(db: &Connection, finish: &FinishAttempt) -> Result<bool, StoreError> {
    let FinishAttempt { key, attempt, .. } = finish;
    let run = params![key.organization.as_str(), key.event.as_str(), key.webhook.as_str(), attempt.run];
    Ok(db.prepare_cached(IS_ANSWERED)?.query_row(run, |row| row.get(0))?)
}

/// Lets a delivery that was cancelled or given up under its attempt end as what the endpoint knows it is; `false` where it was
/// not.
fn arrived_after_all(db: &Connection, finish: &FinishAttempt, ended_at: Timestamp) -> Result<bool, StoreError> {
    let FinishAttempt { key, attempt, .. } = finish;
    let (organization, event, webhook) = (key.organization.as_str(), key.event.as_str(), key.webhook.as_str());
    let row = params![organization, event, webhook, attempt.run, millis(ended_at)];
    let arrived = db.prepare_cached(ARRIVED_AFTER_ALL)?.execute(row)? == 1;
    if arrived {
        undelivered::forget(db, key)?;
    }
    Ok(arrived)
}

fn log(db: &Connection, key: &DeliveryKey, attempt: &AttemptRecord) -> Result<(), StoreError> {
    let (http_status, failure) = outcome_columns(attempt.outcome);
    db.prepare_cached(LOG)?.execute(params![
        key.organization.as_str(),
        key.event.as_str(),
        key.webhook.as_str(),
        attempt.run,
        attempt.number,
        millis(attempt.started_at),
        micros(attempt.duration),
        http_status,
        failure,
        attempt.error,
        &attempt.response_body[..],
    ])?;
    Ok(())
}

fn exists(db: &Connection, key: &DeliveryKey, created_at: Timestamp) -> Result<bool, StoreError> {
    let key = params![key.organization.as_str(), millis(created_at), key.event.as_str(), key.webhook.as_str()];
    Ok(db.prepare_cached(EXISTS)?.query_row(key, |row| row.get(0))?)
}
