//! What a webhook did not get: the notes of it, and the new run that brings it after all.

use std::sync::Arc;

use hikyaku_core::ids::DeliveryKey;
use hikyaku_core::webhook::{Off, Webhook};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis, undelivered_kind};
use super::transaction::Transaction;
use super::webhook_row::{off_columns, off_reason};
use super::webhooks;
use crate::store::{
    FinishAttempt, Missed, MissedEntry, MissedEvents, MissedPosition, MissedQuery, NewEvent, ResendOutcome, StoreError,
    UndeliveredKind, Which,
};

const NOTE_OFF: &str = "INSERT INTO undelivered
        (organization, event, webhook, kind, timestamp, created_at, type, off_since, off_event)
    SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], $7::TEXT[],
        $8::BIGINT[], $9::TEXT[])";
const NOTE_EXHAUSTED: &str = "INSERT INTO undelivered (organization, event, webhook, kind, timestamp, created_at, type)
    SELECT k.organization, k.event, k.webhook, 'exhausted', e.timestamp, k.created_at, e.type
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[])
            k (organization, event, webhook, created_at, run),
        LATERAL (SELECT timestamp, type FROM events e
            WHERE e.organization = k.organization AND e.created_at = k.created_at AND e.id = k.event LIMIT 1) e
    WHERE (SELECT TRUE FROM attempts a
        WHERE a.organization = k.organization AND a.created_at = k.created_at AND a.event = k.event
            AND a.webhook = k.webhook AND a.run < k.run AND a.http_status BETWEEN 200 AND 299 LIMIT 1) IS NULL";
/// Locked, as in the next one, so that an old event is not dropped while it is made to wait.
const EVENT_TIME: &str = "SELECT created_at FROM event_ids WHERE organization = $1 AND id = $2 FOR KEY SHARE";
/// Of two who begin a run of one delivery the second finds it waiting, and changes nothing.
const WAIT: &str = "INSERT INTO waiting (organization, webhook, event, created_at, due_at, run, attempt, spoiled)
    SELECT $1::TEXT, $2::TEXT, k.event, k.created_at, k.due_at, $6::BIGINT + 1, 0, 0
    FROM UNNEST($3::TEXT[], $4::BIGINT[], $5::BIGINT[]) k (event, created_at, due_at)
    CROSS JOIN LATERAL (SELECT 1 FROM event_ids i WHERE i.organization = $1 AND i.id = k.event
        AND i.created_at = k.created_at OFFSET 0 FOR KEY SHARE) i
    ON CONFLICT DO NOTHING RETURNING event, created_at";
const FORGET: &str = "DELETE FROM undelivered WHERE organization = $1 AND webhook = $2 AND event = ANY($3)";
/// A run goes on after the last one, whose end is forgotten. The first and the last day keep the others out.
const GO_ON: &str = "WITH last AS (
        DELETE FROM deliveries WHERE organization = $1 AND webhook = $2 AND event = ANY($3)
            AND created_at = ANY($4) AND created_at BETWEEN $5 AND $6
        RETURNING created_at, event, run)
    UPDATE waiting w SET run = last.run + 1 FROM last,
        LATERAL (SELECT ctid AS tuple FROM waiting w
            WHERE w.organization = $1 AND w.created_at = last.created_at AND w.event = last.event AND w.webhook = $2
            LIMIT 1) found
    WHERE w.ctid = found.tuple";
const OF_EVENT: &str = "SELECT webhook, kind, off_since, off_event FROM undelivered
    WHERE organization = $1 AND event = $2 ORDER BY webhook";
const OLDEST: &str = "SELECT event, timestamp, type, kind, created_at FROM undelivered
    WHERE organization = $1 AND webhook = $2 AND kind = $3
        AND (timestamp, event) > ($4, $5) AND timestamp < $6
    ORDER BY timestamp, event LIMIT $7";
const COUNT: &str = "SELECT COUNT(*) FROM (SELECT FROM undelivered
    WHERE organization = $1 AND webhook = $2 AND kind = $3 AND timestamp >= $4 AND timestamp < $5 LIMIT $6) u";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[NOTE_OFF, NOTE_EXHAUSTED, EVENT_TIME, WAIT, FORGET, GO_ON, OF_EVENT, OLDEST, COUNT];

/// The run of a delivery that a publish begins.
pub(super) const FIRST_RUN: u32 = 1;

/// Notes that webhooks which are off missed an event, or have it held.
pub(super) async fn note_off(
    transaction: &Transaction<'_>,
    absent: &[(&NewEvent, Arc<Webhook>, UndeliveredKind)],
) -> Result<(), StoreError> {
    if absent.is_empty() {
        return Ok(());
    }
    let (events, webhooks) =
        (|| absent.iter().map(|(event, ..)| event), || absent.iter().map(|(_, webhook, _)| webhook));
    let organizations: Vec<_> = webhooks().map(|webhook| webhook.organization.as_str()).collect();
    let ids: Vec<_> = events().map(|event| event.id.as_str()).collect();
    let webhook_ids: Vec<_> = webhooks().map(|webhook| webhook.id.as_str()).collect();
    let kinds: Vec<_> = absent.iter().map(|(.., kind)| kind.as_str()).collect();
    let timestamps: Vec<_> = events().map(|event| millis(event.timestamp)).collect();
    let created: Vec<_> = events().map(|event| millis(event.created_at)).collect();
    let types: Vec<_> = events().map(|event| event.event_type.as_str()).collect();
    let (since, reasons): (Vec<_>, Vec<_>) = webhooks().map(|webhook| off_columns(webhook.off.as_ref())).unzip();
    transaction
        .execute(
            NOTE_OFF,
            &[&organizations, &ids, &webhook_ids, &kinds, &timestamps, &created, &types, &since, &reasons],
        )
        .await?;
    Ok(())
}

/// Notes which deliveries are exhausted by these attempts, but for those of which an earlier run was delivered: there the
/// webhook has the event.
pub(super) async fn note_exhausted(
    transaction: &Transaction<'_>,
    exhausted: &[&FinishAttempt],
) -> Result<(), StoreError> {
    if exhausted.is_empty() {
        return Ok(());
    }
    let keys = || exhausted.iter().map(|finish| &finish.key);
    let organizations: Vec<_> = keys().map(|key| key.organization.as_str()).collect();
    let events: Vec<_> = keys().map(|key| key.event.as_str()).collect();
    let webhooks: Vec<_> = keys().map(|key| key.webhook.as_str()).collect();
    let created: Vec<_> = exhausted.iter().map(|finish| millis(finish.created_at)).collect();
    let runs: Vec<_> = exhausted.iter().map(|finish| i64::from(finish.attempt.run)).collect();
    transaction.execute(NOTE_EXHAUSTED, &[&organizations, &events, &webhooks, &created, &runs]).await?;
    Ok(())
}

/// Begins a new run of a delivery, unless it waits.
pub(super) async fn resend(
    transaction: &Transaction<'_>,
    (key, due_at): &(DeliveryKey, Timestamp),
) -> Result<ResendOutcome, StoreError> {
    let event = transaction.optional(EVENT_TIME, &[&key.organization.as_str(), &key.event.as_str()]).await?;
    let Some(event) = event else { return Ok(ResendOutcome::NoSuchEvent) };
    if webhooks::find(transaction, &key.organization, &key.webhook).await?.is_none() {
        return Ok(ResendOutcome::NoSuchWebhook);
    }
    let begin = Begin { event: key.event.as_str(), created_at: event.try_get(0)?, due_at: millis(*due_at) };
    let webhook = [key.organization.as_str(), key.webhook.as_str()];
    let begun = begin_runs(transaction, webhook, FIRST_RUN, &[begin]).await?;
    Ok(if begun == 0 { ResendOutcome::StillWaiting } else { ResendOutcome::Begun })
}

/// A run to begin.
pub(super) struct Begin<'a> {
    pub(super) event: &'a str,
    pub(super) created_at: i64,
    pub(super) due_at: i64,
}

/// Makes deliveries to a webhook wait again, in the run after their last one; `before` stands for that where there never
/// was one. Those that wait already are left alone; how many were not.
pub(super) async fn begin_runs(
    transaction: &Transaction<'_>,
    [organization, webhook]: [&str; 2],
    before: u32,
    runs: &[Begin<'_>],
) -> Result<usize, StoreError> {
    let mut runs: Vec<_> = runs.iter().collect();
    runs.sort_by_key(|run| run.event);
    let events: Vec<_> = runs.iter().map(|run| run.event).collect();
    let created: Vec<_> = runs.iter().map(|run| run.created_at).collect();
    let due: Vec<_> = runs.iter().map(|run| run.due_at).collect();
    let begun =
        transaction.query(WAIT, &[&organization, &webhook, &events, &created, &due, &i64::from(before)]).await?;
    let events = begun.iter().map(|row| row.try_get(0)).collect::<Result<Vec<&str>, _>>()?;
    let created = begun.iter().map(|row| row.try_get(1)).collect::<Result<Vec<i64>, _>>()?;
    transaction.execute(FORGET, &[&organization, &webhook, &events]).await?;
    if let (Some(first), Some(last)) = (created.iter().min(), created.iter().max()) {
        transaction.execute(GO_ON, &[&organization, &webhook, &events, &created, first, last]).await?;
    }
    Ok(events.len())
}

/// What the webhooks did not get of one event: those that have it held, and those that missed it.
pub(super) async fn of_event(
    transaction: &Transaction<'_>,
    [organization, event]: [&str; 2],
) -> Result<(Vec<Missed>, Vec<Missed>), StoreError> {
    let (mut held, mut missed) = (Vec::new(), Vec::new());
    for row in transaction.query(OF_EVENT, &[&organization, &event]).await? {
        match undelivered_kind(&row, 1)? {
            UndeliveredKind::Held => held.push(missed_by(&row)?),
            UndeliveredKind::Missed => missed.push(missed_by(&row)?),
            UndeliveredKind::Exhausted => (),
        }
    }
    Ok((held, missed))
}

fn missed_by(row: &Row) -> Result<Missed, StoreError> {
    let off = Off { since: columns::time(row, 2)?, reason: off_reason(row, 3)? };
    Ok(Missed { webhook: columns::webhook_id(row, 0)?, off })
}

/// A page of what a webhook missed and what was exhausted, with the counts of the period.
pub(super) async fn missed(transaction: &Transaction<'_>, query: &MissedQuery) -> Result<MissedEvents, StoreError> {
    let MissedQuery { from, to, after, limit, count_to, .. } = query;
    let webhook = [query.organization.as_str(), query.webhook.as_str()];
    let position = after.as_ref().map_or((start(*from), ""), position);
    let found = oldest(transaction, webhook, Which::All, position, *to, *limit).await?;
    let count = |kind| count(transaction, webhook, kind, (*from, *to), (*count_to).into());
    let (missed, exhausted) = (count(UndeliveredKind::Missed).await?, count(UndeliveredKind::Exhausted).await?);
    Ok(MissedEvents { entries: found.into_iter().map(|found| found.entry).collect(), missed, exhausted })
}

fn position(at: &MissedPosition) -> (i64, &str) {
    (millis(at.timestamp), at.event.as_str())
}

/// The first point in time of a period, as it is stored.
pub(super) fn start(from: Option<Timestamp>) -> i64 {
    from.map_or(i64::MIN, millis)
}

/// An event that a webhook did not get, and when it was published.
pub(super) struct Undelivered {
    pub(super) entry: MissedEntry,
    pub(super) created_at: i64,
}

impl Undelivered {
    /// The run that brings it after all.
    pub(super) fn begin(&self, due_at: i64) -> Begin<'_> {
        Begin { event: self.entry.position.event.as_str(), created_at: self.created_at, due_at }
    }
}

/// The oldest events after a position, before `to`, of all kinds that are meant.
pub(super) async fn oldest(
    transaction: &Transaction<'_>,
    [organization, webhook]: [&str; 2],
    which: Which,
    (after_at, after_event): (i64, &str),
    to: Option<Timestamp>,
    limit: u32,
) -> Result<Vec<Undelivered>, StoreError> {
    let (before, most) = (to.map_or(i64::MAX, millis), i64::from(limit));
    let mut found = Vec::new();
    for kind in which.kinds() {
        let kind = kind.as_str();
        let rows = transaction
            .query(OLDEST, &[&organization, &webhook, &kind, &after_at, &after_event, &before, &most])
            .await?;
        for row in rows {
            found.push(undelivered(&row)?);
        }
    }
    found.sort_by(|a, b| a.entry.position.cmp(&b.entry.position));
    found.truncate(limit as usize);
    Ok(found)
}

fn undelivered(row: &Row) -> Result<Undelivered, StoreError> {
    let position = MissedPosition { timestamp: columns::time(row, 1)?, event: columns::event_id(row, 0)? };
    let (event_type, kind) = (columns::event_type(row, 2)?, undelivered_kind(row, 3)?);
    Ok(Undelivered { entry: MissedEntry { position, event_type, kind }, created_at: row.try_get(4)? })
}

/// How many events of a kind there are in a period; counting stops at `most`.
pub(super) async fn count(
    transaction: &Transaction<'_>,
    [organization, webhook]: [&str; 2],
    kind: UndeliveredKind,
    (from, to): (Option<Timestamp>, Option<Timestamp>),
    most: i64,
) -> Result<u64, StoreError> {
    let (from, to) = (start(from), to.map_or(i64::MAX, millis));
    let row = transaction.one(COUNT, &[&organization, &webhook, &kind.as_str(), &from, &to, &most]).await?;
    columns::number(&row, 0)
}
