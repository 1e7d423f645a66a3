//! Taking the leases.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use hikyaku_core::delivery::History;
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::Turn;
use crate::store::postgres::columns::{self, after, millis};
use crate::store::postgres::transaction::Transaction;
use crate::store::postgres::undelivered::FIRST_RUN;
use crate::store::{ClaimedDelivery, DeliveryClaim, StoreError};

/// What others are just taking is passed over. An attempt that was left behind goes on to be the present one: it may have
/// arrived.
const TAKE: &str = "WITH taken AS (
        SELECT k.place, k.until, w.* FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[], $4::BIGINT[], $8::BIGINT[])
                WITH ORDINALITY k (its_organization, its_webhook, most, until, since, place),
            LATERAL (SELECT w.ctid AS tuple, w.due_at, w.attempt_started_at FROM waiting w
                WHERE w.organization COLLATE \"POSIX\" = k.its_organization AND w.webhook COLLATE \"POSIX\" = k.its_webhook
                    AND w.due_at >= k.since AND w.due_at <= $5
                ORDER BY w.due_at, w.event COLLATE \"POSIX\" LIMIT k.most FOR UPDATE SKIP LOCKED) w)
    UPDATE waiting w SET owner = $6, due_at = taken.until,
        attempt = w.attempt + CASE WHEN taken.attempt_started_at IS NULL THEN 1 ELSE 0 END,
        attempt_started_at = COALESCE(taken.attempt_started_at, $7)
    FROM taken
    WHERE w.ctid = taken.tuple
    RETURNING taken.place, w.event, w.created_at, w.run, w.attempt, w.spoiled, taken.attempt_started_at, taken.due_at";
const EVENTS: &str = "SELECT k.place, e.type, e.body
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[]) WITH ORDINALITY k (organization, created_at, event, place),
        LATERAL (SELECT type, body FROM events e
            WHERE e.organization = k.organization AND e.created_at = k.created_at AND e.id = k.event LIMIT 1) e";
const FIRST_ATTEMPTS: &str = "SELECT k.place, a.started_at
    FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[])
            WITH ORDINALITY k (organization, created_at, event, webhook, run, place),
        LATERAL (SELECT started_at FROM attempts a
            WHERE a.organization = k.organization AND a.created_at = k.created_at AND a.event = k.event
                AND a.webhook = k.webhook AND a.run = k.run AND a.number = 1 LIMIT 1) a";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[TAKE, EVENTS, FIRST_ATTEMPTS];

/// A delivery that is taken.
struct Taken<'a> {
    turn: &'a Turn,
    place: usize,
    event: EventId,
    created_at: Timestamp,
    run: u32,
    attempt: u32,
    spoiled_by_us: u32,
    /// When the attempt began that was left behind, if one was.
    interrupted: Option<Timestamp>,
    due_at: Timestamp,
}

/// Takes up to so many of what is due of each webhook.
pub(super) async fn take(
    transaction: &Transaction<'_>,
    claim: &DeliveryClaim,
    turns: &[Turn],
    most: &[u32],
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    let organizations: Vec<_> = turns.iter().map(|turn| turn.webhook.organization.as_str()).collect();
    let webhooks: Vec<_> = turns.iter().map(|turn| turn.webhook.id.as_str()).collect();
    let most: Vec<_> = most.iter().map(|most| i64::from(*most)).collect();
    let until = |turn: &Turn| millis(after(claim.now, claim.lease.duration_for(&turn.webhook)));
    let until: Vec<_> = turns.iter().map(until).collect();
    let (now, owner, at) = (millis(claim.now), &*claim.lease.owner, millis(claim.at));
    let since: Vec<_> = turns.iter().map(|turn| turn.since).collect();
    let rows = transaction.query(TAKE, &[&organizations, &webhooks, &most, &until, &now, &owner, &at, &since]).await?;
    let mut taken = rows.iter().map(|row| read(row, turns)).collect::<Result<Vec<_>, _>>()?;
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    taken.sort_by(|a, b| (a.place, a.due_at, &a.event).cmp(&(b.place, b.due_at, &b.event)));
    let (events, first_attempts) = tokio::join!(events(transaction, &taken), first_attempts(transaction, &taken));
    let (events, mut first_attempts) = (events?, first_attempts?);
    let claimed = taken.into_iter().enumerate().map(|(place, taken)| {
        let of_event = events.get(&(&taken.turn.webhook.organization, taken.event.clone()));
        let missing = || StoreError::Damaged(format!("a delivery's event {} is missing", taken.event));
        let event = of_event.cloned().ok_or_else(missing)?;
        Ok(claimed(taken, event, first_attempts.remove(&place)))
    });
    claimed.collect()
}

fn read<'a>(row: &Row, turns: &'a [Turn]) -> Result<Taken<'a>, StoreError> {
    let place = columns::place(row, 0)?;
    Ok(Taken {
        turn: &turns[place],
        place,
        event: columns::event_id(row, 1)?,
        created_at: columns::time(row, 2)?,
        run: columns::number(row, 3)?,
        attempt: columns::number(row, 4)?,
        spoiled_by_us: columns::number(row, 5)?,
        interrupted: columns::optional_time(row, 6)?,
        due_at: columns::time(row, 7)?,
    })
}

/// Types and bodies of the events.
async fn events<'a>(
    transaction: &Transaction<'_>,
    taken: &[Taken<'a>],
) -> Result<HashMap<(&'a OrganizationId, EventId), (EventType, Bytes)>, StoreError> {
    let wanted: BTreeSet<_> =
        taken.iter().map(|taken| (&taken.turn.webhook.organization, taken.created_at, &taken.event)).collect();
    let wanted: Vec<_> = wanted.into_iter().collect();
    let organizations: Vec<_> = wanted.iter().map(|(organization, ..)| organization.as_str()).collect();
    let created: Vec<_> = wanted.iter().map(|(_, created_at, _)| millis(*created_at)).collect();
    let ids: Vec<_> = wanted.iter().map(|(.., event)| event.as_str()).collect();
    let mut events = HashMap::with_capacity(wanted.len());
    for row in transaction.query(EVENTS, &[&organizations, &created, &ids]).await? {
        let (organization, _, event) = wanted[columns::place(&row, 0)?];
        events.insert((organization, event.clone()), (columns::event_type(&row, 1)?, columns::body(&row, 2)?));
    }
    Ok(events)
}

/// When the first attempts of those runs began of which it matters, by place in the list.
async fn first_attempts(
    transaction: &Transaction<'_>,
    taken: &[Taken<'_>],
) -> Result<HashMap<usize, Timestamp>, StoreError> {
    let asks = |taken: &Taken<'_>| taken.attempt > 1 && taken.turn.webhook.previous_secret.is_some();
    let asking: Vec<_> = taken.iter().enumerate().filter(|(_, taken)| asks(taken)).collect();
    if asking.is_empty() {
        return Ok(HashMap::new());
    }
    let each = || asking.iter().map(|(_, taken)| taken);
    let organizations: Vec<_> = each().map(|taken| taken.turn.webhook.organization.as_str()).collect();
    let created: Vec<_> = each().map(|taken| millis(taken.created_at)).collect();
    let events: Vec<_> = each().map(|taken| taken.event.as_str()).collect();
    let webhooks: Vec<_> = each().map(|taken| taken.turn.webhook.id.as_str()).collect();
    let runs: Vec<_> = each().map(|taken| i64::from(taken.run)).collect();
    let mut found = HashMap::new();
    for row in transaction.query(FIRST_ATTEMPTS, &[&organizations, &created, &events, &webhooks, &runs]).await? {
        found.insert(asking[columns::place(&row, 0)?].0, columns::time(&row, 1)?);
    }
    Ok(found)
}

fn claimed(taken: Taken<'_>, (event_type, body): (EventType, Bytes), first: Option<Timestamp>) -> ClaimedDelivery {
    let Taken { turn, event, created_at, run, attempt, spoiled_by_us, interrupted, due_at, .. } = taken;
    let webhook = turn.webhook.clone();
    ClaimedDelivery {
        key: DeliveryKey { organization: webhook.organization.clone(), event, webhook: webhook.id.clone() },
        created_at,
        run,
        attempt,
        history: History { attempts: attempt.saturating_sub(1), spoiled_by_us, on_request: run > FIRST_RUN },
        interrupted,
        due_at,
        first_attempt_at: first,
        event_type,
        body,
        webhook,
    }
}
