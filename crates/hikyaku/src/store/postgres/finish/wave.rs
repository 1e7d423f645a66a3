//! The rows of attempts of different deliveries.

use std::collections::HashSet;

use hikyaku_core::delivery::{Decision, DeliveryState};
use tokio_postgres::Row;

use super::ended_at;
use crate::store::postgres::columns::{self, micros, millis, outcome_columns, text};
use crate::store::postgres::transaction::Transaction;
use crate::store::postgres::undelivered::{self, Exhausted};
use crate::store::{FinishAttempt, StoreError};

/// In the order of their keys, which is everybody's.
const LOCK: &str = "SELECT k.place, w.created_at, w.owner, w.run, w.attempt
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY k (organization, event, webhook, place),
        LATERAL (SELECT created_at, owner, run, attempt FROM waiting w
            WHERE w.organization = k.organization AND w.event = k.event AND w.webhook = k.webhook
            LIMIT 1 FOR UPDATE) w";
const ENDED: &str = "SELECT k.place, d.created_at
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY k (organization, event, webhook, place),
        LATERAL (SELECT created_at FROM event_ids i
            WHERE i.organization = k.organization AND i.id = k.event LIMIT 1) i,
        LATERAL (SELECT created_at FROM deliveries d
            WHERE d.organization = k.organization AND d.created_at = i.created_at AND d.event = k.event
                AND d.webhook = k.webhook LIMIT 1) d";
const STOP_WAITING: &str = "DELETE FROM waiting w
    USING UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) k (organization, event, webhook),
        LATERAL (SELECT ctid AS tuple FROM waiting w
            WHERE w.organization = k.organization AND w.event = k.event AND w.webhook = k.webhook LIMIT 1) found
    WHERE w.ctid = found.tuple";
const RETRY: &str = "UPDATE waiting w
    SET due_at = k.due_at, spoiled = w.spoiled + k.spoiled, owner = NULL, attempt_started_at = NULL
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[])
            k (organization, event, webhook, due_at, spoiled),
        LATERAL (SELECT ctid AS tuple FROM waiting w
            WHERE w.organization = k.organization AND w.event = k.event AND w.webhook = k.webhook LIMIT 1) found
    WHERE w.ctid = found.tuple";
const END: &str = "INSERT INTO deliveries (organization, event, webhook, created_at, state, reason, ended_at, run)
    SELECT k.organization, k.event, k.webhook, k.created_at, k.state, '', k.ended_at, k.run
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::TEXT[], $6::BIGINT[], $7::BIGINT[])
        k (organization, event, webhook, created_at, state, ended_at, run)";
/// An attempt that was under way when its webhook was deleted, or when somebody else gave its delivery up, and was answered
/// 2xx.
const ARRIVED_AFTER_ALL: &str = "UPDATE deliveries SET state = 'delivered', reason = '', ended_at = $6
    WHERE organization = $1 AND event = $2 AND webhook = $3 AND created_at = $4 AND run = $5
        AND state IN ('cancelled', 'exhausted')";
/// Before that, as whoever sends it again does, so that neither waits for the other in turn.
const FORGET_EXHAUSTED: &str = "DELETE FROM undelivered WHERE organization = $1 AND event = $2 AND webhook = $3
    AND kind = 'exhausted' AND (SELECT TRUE FROM deliveries d
        WHERE d.organization = $1 AND d.created_at = $4 AND d.event = $2 AND d.webhook = $3 AND d.run = $5
            AND d.state = 'exhausted' LIMIT 1)";
/// Of which of these runs an attempt was answered 2xx, which a late finish may have told.
const ANSWERED: &str = "SELECT k.place
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[])
            WITH ORDINALITY k (organization, event, webhook, created_at, run, place),
        LATERAL (SELECT 1 FROM attempts a
            WHERE a.organization = k.organization AND a.created_at = k.created_at AND a.event = k.event
                AND a.webhook = k.webhook AND a.run = k.run AND a.http_status BETWEEN 200 AND 299 LIMIT 1) a";
/// One line per run and attempt number. The first word on it stays, but "interrupted" gives way to what a late finish tells.
const LOG: &str = "INSERT INTO attempts (organization, event, webhook, created_at, run, number, started_at,
        duration_micros, http_status, failure, error, response_body)
    SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[],
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

/// A finish of a delivery that is there, and when its event was published.
type Found<'a> = (&'a FinishAttempt, i64);

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
        let (finish, created_at) = (sorted[place], row.try_get(1)?);
        waits.insert(place);
        logged.push((finish, created_at));
        if is_token(finish, &row)? {
            ends[places[place]] = End::Held;
            held.push((finish, created_at));
            places_of_held.push(places[place]);
        }
    }
    let answered = answered(transaction, &held).await?;
    for (place, finish) in &answered {
        held[*place].0 = finish;
        ends[places_of_held[*place]] = End::Answered;
    }
    let others: Vec<_> = (0..sorted.len()).filter(|place| !waits.contains(place)).collect();
    for (place, created_at) in ended(transaction, &sorted, others).await? {
        let found = (sorted[place], created_at);
        logged.push(found);
        if arrived_after_all(transaction, found).await? {
            ends[places[place]] = End::ArrivedAfterAll;
        }
    }
    write_all(transaction, &held, &logged).await?;
    Ok(ends)
}

/// Locks what waits of these deliveries.
async fn lock(transaction: &Transaction<'_>, finishes: &[&FinishAttempt]) -> Result<Vec<Row>, StoreError> {
    let [organizations, events, webhooks] = names(finishes.iter().copied());
    transaction.query(LOCK, &[&organizations, &events, &webhooks]).await
}

fn names<'a>(finishes: impl Iterator<Item = &'a FinishAttempt> + Clone) -> [Vec<&'a str>; 3] {
    [
        finishes.clone().map(|finish| finish.key.organization.as_str()).collect(),
        finishes.clone().map(|finish| finish.key.event.as_str()).collect(),
        finishes.map(|finish| finish.key.webhook.as_str()).collect(),
    ]
}

/// Whether the row is leased for the very attempt that has ended.
fn is_token(finish: &FinishAttempt, row: &Row) -> Result<bool, StoreError> {
    let (owner, run, attempt): (Option<&str>, u32, u32) =
        (row.try_get(2)?, columns::number(row, 3)?, columns::number(row, 4)?);
    Ok(owner == Some(&*finish.owner) && (run, attempt) == (finish.attempt.run, finish.attempt.number))
}

/// Which of the deliveries at these places have ended, and when their events were published.
async fn ended(
    transaction: &Transaction<'_>,
    finishes: &[&FinishAttempt],
    places: Vec<usize>,
) -> Result<Vec<(usize, i64)>, StoreError> {
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let [organizations, events, webhooks] = names(places.iter().map(|place| finishes[*place]));
    let rows = transaction.query(ENDED, &[&organizations, &events, &webhooks]).await?;
    rows.iter().map(|row| Ok((places[columns::place(row, 0)?], row.try_get(1)?))).collect()
}

/// Those that used up their attempts although one was answered, by their places: as finishes of what was delivered.
async fn answered(
    transaction: &Transaction<'_>,
    held: &[Found<'_>],
) -> Result<Vec<(usize, FinishAttempt)>, StoreError> {
    let is_exhausted = |place: &usize| matches!(held[*place].0.decision, Decision::Exhausted { .. });
    let places: Vec<_> = (0..held.len()).filter(is_exhausted).collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let [organizations, events, webhooks] = names(places.iter().map(|place| held[*place].0));
    let created: Vec<_> = places.iter().map(|place| held[*place].1).collect();
    let runs: Vec<_> = places.iter().map(|place| i64::from(held[*place].0.attempt.run)).collect();
    let rows = transaction.query(ANSWERED, &[&organizations, &events, &webhooks, &created, &runs]).await?;
    let delivered = |row: &Row| {
        let place = places[columns::place(row, 0)?];
        Ok((place, FinishAttempt { decision: Decision::Delivered, ..held[place].0.clone() }))
    };
    rows.iter().map(delivered).collect()
}

async fn arrived_after_all(transaction: &Transaction<'_>, (finish, created_at): Found<'_>) -> Result<bool, StoreError> {
    if finish.decision != Decision::Delivered {
        return Ok(false);
    }
    let (organization, event, webhook) =
        (finish.key.organization.as_str(), finish.key.event.as_str(), finish.key.webhook.as_str());
    let (run, ended_at) = (i64::from(finish.attempt.run), millis(ended_at(finish)));
    transaction.execute(FORGET_EXHAUSTED, &[&organization, &event, &webhook, &created_at, &run]).await?;
    let changed = transaction
        .execute(ARRIVED_AFTER_ALL, &[&organization, &event, &webhook, &created_at, &run, &ended_at])
        .await?;
    Ok(changed == 1)
}

/// Writes the log of `logged`, and what was decided for `held`; all statements go out together.
async fn write_all(transaction: &Transaction<'_>, held: &[Found<'_>], logged: &[Found<'_>]) -> Result<(), StoreError> {
    let has_ended = |(finish, _): &&Found<'_>| !matches!(finish.decision, Decision::Retry { .. });
    let ended: Vec<Found<'_>> = held.iter().filter(has_ended).copied().collect();
    let is_exhausted = |(finish, _): &&Found<'_>| matches!(finish.decision, Decision::Exhausted { .. });
    let exhausted = ended.iter().filter(is_exhausted);
    let exhausted: Vec<Exhausted<'_>> =
        exhausted.map(|(finish, created_at)| (&finish.key, *created_at, finish.attempt.run)).collect();
    let (logged, stopped, retried, ended, noted) = tokio::join!(
        log(transaction, logged),
        stop_waiting(transaction, &ended),
        retry(transaction, held),
        end(transaction, &ended),
        undelivered::note_exhausted(transaction, &exhausted),
    );
    logged.and(stopped).and(retried).and(ended).and(noted)
}

async fn stop_waiting(transaction: &Transaction<'_>, ended: &[Found<'_>]) -> Result<(), StoreError> {
    if ended.is_empty() {
        return Ok(());
    }
    let [organizations, events, webhooks] = names(ended.iter().map(|(finish, _)| *finish));
    transaction.execute(STOP_WAITING, &[&organizations, &events, &webhooks]).await?;
    Ok(())
}

async fn retry(transaction: &Transaction<'_>, held: &[Found<'_>]) -> Result<(), StoreError> {
    let retry = |(finish, _): &Found<'_>| match finish.decision {
        Decision::Retry { at } => Some(millis(at)),
        Decision::Delivered | Decision::Exhausted { .. } => None,
    };
    let due: Vec<_> = held.iter().filter_map(retry).collect();
    if due.is_empty() {
        return Ok(());
    }
    let retried = held.iter().filter(|found| retry(found).is_some()).map(|(finish, _)| *finish);
    let [organizations, events, webhooks] = names(retried.clone());
    let spoiled: Vec<_> = retried.map(|finish| i64::from(finish.attempt.outcome.spoiled_by_us())).collect();
    transaction.execute(RETRY, &[&organizations, &events, &webhooks, &due, &spoiled]).await?;
    Ok(())
}

async fn end(transaction: &Transaction<'_>, ended: &[Found<'_>]) -> Result<(), StoreError> {
    if ended.is_empty() {
        return Ok(());
    }
    let state = |(finish, _): &Found<'_>| match finish.decision {
        Decision::Exhausted { .. } => DeliveryState::Exhausted.as_str(),
        Decision::Delivered | Decision::Retry { .. } => DeliveryState::Delivered.as_str(),
    };
    let [organizations, events, webhooks] = names(ended.iter().map(|(finish, _)| *finish));
    let created: Vec<_> = ended.iter().map(|(_, created_at)| *created_at).collect();
    let states: Vec<_> = ended.iter().map(state).collect();
    let ended_at: Vec<_> = ended.iter().map(|(finish, _)| millis(ended_at(finish))).collect();
    let runs: Vec<_> = ended.iter().map(|(finish, _)| i64::from(finish.attempt.run)).collect();
    transaction.execute(END, &[&organizations, &events, &webhooks, &created, &states, &ended_at, &runs]).await?;
    Ok(())
}

async fn log(transaction: &Transaction<'_>, logged: &[Found<'_>]) -> Result<(), StoreError> {
    if logged.is_empty() {
        return Ok(());
    }
    let attempts = || logged.iter().map(|(finish, _)| &finish.attempt);
    let [organizations, events, webhooks] = names(logged.iter().map(|(finish, _)| *finish));
    let created: Vec<_> = logged.iter().map(|(_, created_at)| *created_at).collect();
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
                &events,
                &webhooks,
                &created,
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
