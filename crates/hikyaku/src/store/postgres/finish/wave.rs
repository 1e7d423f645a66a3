//! The rows of attempts of different deliveries.

use std::collections::HashSet;

use hikyaku_core::delivery::{Decision, DeliveryState};
use tokio_postgres::Row;

use super::ended_at;
use crate::store::postgres::columns::{self, micros, millis, outcome_columns, text};
use crate::store::postgres::transaction::Transaction;
use crate::store::postgres::undelivered;
use crate::store::{FinishAttempt, StoreError};

/// In the order of their keys, which is everybody's. Nobody moves a row that is locked, so its place holds until the end.
const LOCK: &str = "SELECT k.place, w.owner, w.run, w.attempt, w.tuple
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[])
            WITH ORDINALITY k (organization, created_at, event, webhook, place),
        LATERAL (SELECT owner, run, attempt, w.ctid::TEXT AS tuple FROM waiting w
            WHERE w.organization = k.organization AND w.created_at = k.created_at AND w.event = k.event
                AND w.webhook = k.webhook LIMIT 1 FOR UPDATE) w";
const ENDED: &str = "SELECT k.place
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[])
            WITH ORDINALITY k (organization, created_at, event, webhook, place),
        LATERAL (SELECT 1 FROM deliveries d
            WHERE d.organization = k.organization AND d.created_at = k.created_at AND d.event = k.event
                AND d.webhook = k.webhook LIMIT 1) d";
const STOP_WAITING: &str = "DELETE FROM waiting w WHERE w.ctid = ANY($1::TEXT[]::TID[])";
const RETRY: &str = "UPDATE waiting w
    SET due_at = k.due_at, spoiled = w.spoiled + k.spoiled, owner = NULL, attempt_started_at = NULL
    FROM UNNEST($1::TEXT[]::TID[], $2::BIGINT[], $3::BIGINT[]) k (tuple, due_at, spoiled)
    WHERE w.ctid = k.tuple";
const END: &str = "INSERT INTO deliveries (organization, created_at, event, webhook, state, reason, ended_at, run)
    SELECT k.organization, k.created_at, k.event, k.webhook, k.state, '', k.ended_at, k.run
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[], $5::TEXT[], $6::BIGINT[], $7::BIGINT[])
        k (organization, created_at, event, webhook, state, ended_at, run)";
/// An attempt that was under way when its webhook was deleted, or when somebody else gave its delivery up, and was answered
/// 2xx.
const ARRIVED_AFTER_ALL: &str = "UPDATE deliveries SET state = 'delivered', reason = '', ended_at = $6
    WHERE organization = $1 AND created_at = $2 AND event = $3 AND webhook = $4 AND run = $5
        AND state IN ('cancelled', 'exhausted')";
/// Before that, as whoever sends it again does, so that neither waits for the other in turn.
const FORGET_EXHAUSTED: &str = "DELETE FROM undelivered WHERE organization = $1 AND event = $3 AND webhook = $4
    AND kind = 'exhausted' AND (SELECT TRUE FROM deliveries d
        WHERE d.organization = $1 AND d.created_at = $2 AND d.event = $3 AND d.webhook = $4 AND d.run = $5
            AND d.state = 'exhausted' LIMIT 1)";
/// Of which of these runs an attempt was answered 2xx, which a late finish may have told.
const ANSWERED: &str = "SELECT k.place
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[])
            WITH ORDINALITY k (organization, created_at, event, webhook, run, place),
        LATERAL (SELECT 1 FROM attempts a
            WHERE a.organization = k.organization AND a.created_at = k.created_at AND a.event = k.event
                AND a.webhook = k.webhook AND a.run = k.run AND a.http_status BETWEEN 200 AND 299 LIMIT 1) a";
/// One line per run and attempt number. The first word on it stays, but "interrupted" gives way to what a late finish tells.
const LOG: &str = "INSERT INTO attempts (organization, created_at, event, webhook, run, number, started_at,
        duration_micros, http_status, failure, error, response_body)
    SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[],
        $8::BIGINT[], $9::BIGINT[], $10::TEXT[], $11::TEXT[], $12::BYTEA[])
    ON CONFLICT (organization, created_at, event, webhook, run, number) DO UPDATE
    SET started_at = excluded.started_at, duration_micros = excluded.duration_micros,
        http_status = excluded.http_status, failure = excluded.failure, error = excluded.error,
        response_body = excluded.response_body
    WHERE attempts.failure = 'interrupted'";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] =
    &[LOCK, ENDED, STOP_WAITING, RETRY, END, ARRIVED_AFTER_ALL, FORGET_EXHAUSTED, ANSWERED, LOG];

/// What became of a finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The lease was held, and what was decided is so.
    Held,
    /// The lease was held for the last attempt, and of one before it is known now that it was answered 2xx.
    Answered,
    /// The delivery had been cancelled or given up under its attempt, and ends as what the endpoint knows it is.
    ArrivedAfterAll,
    /// The lease was lost.
    Lost,
}

/// A finish whose lease is held, and where its row lies.
struct Held<'a> {
    finish: &'a FinishAttempt,
    tuple: String,
}

/// Writes attempts of different deliveries, and what was decided where the lease is held.
pub(super) async fn write(transaction: &Transaction<'_>, finishes: &[&FinishAttempt]) -> Result<Vec<End>, StoreError> {
    let mut places: Vec<_> = (0..finishes.len()).collect();
    places.sort_by_key(|place| &finishes[*place].key);
    let sorted: Vec<_> = places.iter().map(|place| finishes[*place]).collect();
    let mut ends = vec![End::Lost; finishes.len()];
    let (mut held, mut places_of_held) = (Vec::new(), Vec::new());
    let (mut logged, mut waits) = (Vec::new(), HashSet::new());
    for row in lock(transaction, &sorted).await? {
        let place = columns::place(&row, 0)?;
        let finish = sorted[place];
        waits.insert(place);
        logged.push(finish);
        if is_token(finish, &row)? {
            ends[places[place]] = End::Held;
            held.push(Held { finish, tuple: row.try_get(4)? });
            places_of_held.push(places[place]);
        }
    }
    let answered = answered(transaction, &held).await?;
    for (place, finish) in &answered {
        held[*place].finish = finish;
        ends[places_of_held[*place]] = End::Answered;
    }
    let others: Vec<_> = (0..sorted.len()).filter(|place| !waits.contains(place)).collect();
    for place in ended(transaction, &sorted, others).await? {
        logged.push(sorted[place]);
        if arrived_after_all(transaction, sorted[place]).await? {
            ends[places[place]] = End::ArrivedAfterAll;
        }
    }
    write_all(transaction, &held, &logged).await?;
    Ok(ends)
}

/// Locks what waits of these deliveries.
async fn lock(transaction: &Transaction<'_>, finishes: &[&FinishAttempt]) -> Result<Vec<Row>, StoreError> {
    let (organizations, created, events, webhooks) = keys(finishes.iter().copied());
    transaction.query(LOCK, &[&organizations, &created, &events, &webhooks]).await
}

/// What the deliveries are found by: organizations, times of events, events and webhooks.
type Keys<'a> = (Vec<&'a str>, Vec<i64>, Vec<&'a str>, Vec<&'a str>);

fn keys<'a>(finishes: impl Iterator<Item = &'a FinishAttempt>) -> Keys<'a> {
    let key = |FinishAttempt { key, created_at, .. }: &'a FinishAttempt| {
        (key.organization.as_str(), millis(*created_at), key.event.as_str(), key.webhook.as_str())
    };
    finishes.map(key).collect()
}

/// Whether the row is leased for the very attempt that has ended.
fn is_token(finish: &FinishAttempt, row: &Row) -> Result<bool, StoreError> {
    let (owner, run, attempt): (Option<&str>, u32, u32) =
        (row.try_get(1)?, columns::number(row, 2)?, columns::number(row, 3)?);
    Ok(owner == Some(&*finish.owner) && (run, attempt) == (finish.attempt.run, finish.attempt.number))
}

/// Which of the deliveries at these places have ended.
async fn ended(
    transaction: &Transaction<'_>,
    finishes: &[&FinishAttempt],
    places: Vec<usize>,
) -> Result<Vec<usize>, StoreError> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let (organizations, created, events, webhooks) = keys(places.iter().map(|place| finishes[*place]));
    let rows = transaction.query(ENDED, &[&organizations, &created, &events, &webhooks]).await?;
    rows.iter().map(|row| Ok(places[columns::place(row, 0)?])).collect()
}

/// Those that used up their attempts although one was answered, by their places: as finishes of what was delivered.
async fn answered(transaction: &Transaction<'_>, held: &[Held<'_>]) -> Result<Vec<(usize, FinishAttempt)>, StoreError> {
    let is_exhausted = |place: &usize| matches!(held[*place].finish.decision, Decision::Exhausted { .. });
    let places: Vec<_> = (0..held.len()).filter(is_exhausted).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let finishes = || places.iter().map(|place| held[*place].finish);
    let (organizations, created, events, webhooks) = keys(finishes());
    let runs: Vec<_> = finishes().map(|finish| i64::from(finish.attempt.run)).collect();
    let rows = transaction.query(ANSWERED, &[&organizations, &created, &events, &webhooks, &runs]).await?;
    let delivered = |row: &Row| {
        let place = places[columns::place(row, 0)?];
        Ok((place, FinishAttempt { decision: Decision::Delivered, ..held[place].finish.clone() }))
    };
    rows.iter().map(delivered).collect()
}

async fn arrived_after_all(transaction: &Transaction<'_>, finish: &FinishAttempt) -> Result<bool, StoreError> {
    let FinishAttempt { key, created_at, attempt, decision, .. } = finish;
    if *decision != Decision::Delivered {
        return Ok(false);
    }
    let (organization, event, webhook) = (key.organization.as_str(), key.event.as_str(), key.webhook.as_str());
    let (created_at, run, ended_at) = (millis(*created_at), i64::from(attempt.run), millis(ended_at(finish)));
    transaction.execute(FORGET_EXHAUSTED, &[&organization, &created_at, &event, &webhook, &run]).await?;
    let changed = transaction
        .execute(ARRIVED_AFTER_ALL, &[&organization, &created_at, &event, &webhook, &run, &ended_at])
        .await?;
    Ok(changed == 1)
}

/// Writes the log of `logged`, and what was decided for `held`; all statements go out together.
async fn write_all(
    transaction: &Transaction<'_>,
    held: &[Held<'_>],
    logged: &[&FinishAttempt],
) -> Result<(), StoreError> {
    let has_ended = |held: &&Held<'_>| !matches!(held.finish.decision, Decision::Retry { .. });
    let (tuples, ended): (Vec<_>, Vec<_>) =
        held.iter().filter(has_ended).map(|held| (held.tuple.as_str(), held.finish)).unzip();
    let is_exhausted = |finish: &&&FinishAttempt| matches!(finish.decision, Decision::Exhausted { .. });
    let exhausted: Vec<_> = ended.iter().filter(is_exhausted).copied().collect();
    let (logged, stopped, retried, ended, noted) = tokio::join!(
        log(transaction, logged),
        stop_waiting(transaction, &tuples),
        retry(transaction, held),
        end(transaction, &ended),
        undelivered::note_exhausted(transaction, &exhausted),
    );
    logged.and(stopped).and(retried).and(ended).and(noted)
}

async fn stop_waiting(transaction: &Transaction<'_>, tuples: &[&str]) -> Result<(), StoreError> {
    if !tuples.is_empty() {
        transaction.execute(STOP_WAITING, &[&tuples]).await?;
    }
    Ok(())
}

async fn retry(transaction: &Transaction<'_>, held: &[Held<'_>]) -> Result<(), StoreError> {
    let (mut tuples, mut due, mut spoiled) = (Vec::new(), Vec::new(), Vec::new());
    for Held { finish, tuple } in held {
        if let Decision::Retry { at } = finish.decision {
            tuples.push(tuple.as_str());
            due.push(millis(at));
            spoiled.push(i64::from(finish.attempt.outcome.spoiled_by_us()));
        }
    }
    if !tuples.is_empty() {
        transaction.execute(RETRY, &[&tuples, &due, &spoiled]).await?;
    }
    Ok(())
}

async fn end(transaction: &Transaction<'_>, ended: &[&FinishAttempt]) -> Result<(), StoreError> {
    if ended.is_empty() {
        return Ok(());
    }
    let state = |finish: &&FinishAttempt| match finish.decision {
        Decision::Exhausted { .. } => DeliveryState::Exhausted.as_str(),
        Decision::Delivered | Decision::Retry { .. } => DeliveryState::Delivered.as_str(),
    };
    let (organizations, created, events, webhooks) = keys(ended.iter().copied());
    let states: Vec<_> = ended.iter().map(state).collect();
    let ended_at: Vec<_> = ended.iter().map(|finish| millis(ended_at(finish))).collect();
    let runs: Vec<_> = ended.iter().map(|finish| i64::from(finish.attempt.run)).collect();
    transaction.execute(END, &[&organizations, &created, &events, &webhooks, &states, &ended_at, &runs]).await?;
    Ok(())
}

async fn log(transaction: &Transaction<'_>, logged: &[&FinishAttempt]) -> Result<(), StoreError> {
    if logged.is_empty() {
        return Ok(());
    }
    let attempts = || logged.iter().map(|finish| &finish.attempt);
    let (organizations, created, events, webhooks) = keys(logged.iter().copied());
    let runs: Vec<_> = attempts().map(|attempt| i64::from(attempt.run)).collect();
    let numbers: Vec<_> = attempts().map(|attempt| i64::from(attempt.number)).collect();
    let started: Vec<_> = attempts().map(|attempt| millis(attempt.started_at)).collect();
    let durations: Vec<_> = attempts().map(|attempt| micros(attempt.duration)).collect();
    let (statuses, failures): (Vec<_>, Vec<_>) = attempts().map(|attempt| outcome_columns(attempt.outcome)).unzip();
    let errors: Vec<_> = attempts().map(|attempt| text(&attempt.error)).collect();
    let bodies: Vec<_> = attempts().map(|attempt| &attempt.response_body[..]).collect();
    transaction
        .execute(
            LOG,
            &[
                &organizations,
                &created,
                &events,
                &webhooks,
                &runs,
                &numbers,
                &started,
                &durations,
                &statuses,
                &failures,
                &errors,
                &bodies,
            ],
        )
        .await?;
    Ok(())
}
