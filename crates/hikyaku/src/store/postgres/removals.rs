//! Removing a webhook. What waits for it is cancelled in the same commit as far as it is little; the rest is cancelled in
//! steps of bounded size. It cannot be claimed from the first commit on: a claim passes over what has no webhook. A publish
//! that knew the webhook may commit after its removal; what it made wait is found by a claim, and is noted then.

use hikyaku_core::ids::{OrganizationId, WebhookId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis};
use super::transaction::Transaction;
use super::webhooks;
use crate::store::{MAX_REMOVED_AT_ONCE, StoreError};

const DELETE: &str = "DELETE FROM webhooks WHERE organization = $1 AND id = $2";
const FORGET_RECOVERIES: &str = "DELETE FROM recoveries WHERE organization = $1 AND webhook = $2";
const NOTE: &str = "INSERT INTO removals (organization, webhook, removed_at)
    SELECT k.organization, k.webhook, $3::BIGINT FROM UNNEST($1::TEXT[], $2::TEXT[]) k (organization, webhook)
    ON CONFLICT DO NOTHING";
const FIRST: &str = "SELECT organization, webhook, removed_at FROM removals ORDER BY organization, webhook LIMIT 1";
/// Two nodes cancel what is left of two webhooks.
const TAKE_FIRST: &str = "SELECT organization, webhook, removed_at FROM removals
    ORDER BY organization, webhook LIMIT 1 FOR UPDATE SKIP LOCKED";
const FORGET: &str = "DELETE FROM removals WHERE organization = $1 AND webhook = $2";
const CANCEL_WAITING: &str = "WITH stopped AS (
        DELETE FROM waiting w USING (
            SELECT ctid AS tuple FROM waiting WHERE organization COLLATE \"POSIX\" = $1 AND webhook COLLATE \"POSIX\" = $2
            ORDER BY due_at LIMIT $4 FOR UPDATE) k
        WHERE w.ctid = k.tuple
        RETURNING w.event, w.created_at, w.run)
    INSERT INTO deliveries (organization, event, webhook, created_at, state, reason, ended_at, run)
    SELECT $1::TEXT, event, $2::TEXT, created_at, 'cancelled', 'webhookDeleted', $3::BIGINT, run FROM stopped";
const CANCEL_UNDELIVERED: &str = "WITH forgotten AS (
        DELETE FROM undelivered u USING (
            SELECT event FROM undelivered WHERE organization = $1 AND webhook = $2
            ORDER BY kind, timestamp, event LIMIT $4 FOR UPDATE) k
        WHERE u.organization = $1 AND u.event = k.event AND u.webhook = $2
        RETURNING u.event, u.created_at, u.kind),
    ended AS (
        INSERT INTO deliveries (organization, event, webhook, created_at, state, reason, ended_at, run)
        SELECT $1::TEXT, event, $2::TEXT, created_at, 'cancelled', 'webhookDeleted', $3::BIGINT, 1 FROM forgotten WHERE kind = 'held')
    SELECT COUNT(*), COUNT(*) FILTER (WHERE kind = 'held') FROM forgotten";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] =
    &[DELETE, FORGET_RECOVERIES, NOTE, FIRST, TAKE_FIRST, FORGET, CANCEL_WAITING, CANCEL_UNDELIVERED];

/// Which webhook, of whom.
pub(super) type WebhookKey = (OrganizationId, WebhookId);

/// Removes a webhook and cancels what waits for it, or begins to: how many deliveries; `None` where there was none.
pub(super) async fn remove(
    transaction: &Transaction<'_>,
    (organization, id, at): &(OrganizationId, WebhookId, Timestamp),
) -> Result<Option<u32>, StoreError> {
    if webhooks::find(transaction, organization, id).await?.is_none() {
        return Ok(None);
    }
    webhooks::raise_version(transaction, organization).await?;
    let key = [organization.as_str(), id.as_str()];
    if transaction.execute(DELETE, &[&key[0], &key[1]]).await? == 0 {
        // Somebody else was first.
        return Ok(None);
    }
    transaction.execute(FORGET_RECOVERIES, &[&key[0], &key[1]]).await?;
    let done = cancel(transaction, key, *at, MAX_REMOVED_AT_ONCE).await?;
    if done.rows == u64::from(MAX_REMOVED_AT_ONCE) {
        note(transaction, &[(organization.clone(), id.clone())], *at).await?;
    }
    Ok(Some(done.deliveries))
}

/// Notes that what waits for webhooks that are gone is to be cancelled.
pub(super) async fn note(transaction: &Transaction<'_>, gone: &[WebhookKey], at: Timestamp) -> Result<(), StoreError> {
    let (organizations, webhooks): (Vec<_>, Vec<_>) =
        gone.iter().map(|(organization, webhook)| (organization.as_str(), webhook.as_str())).unzip();
    transaction.execute(NOTE, &[&organizations, &webhooks, &millis(at)]).await?;
    Ok(())
}

/// The webhook of which something is to be cancelled next, and when it was removed.
pub(super) async fn next(transaction: &Transaction<'_>) -> Result<Option<(WebhookKey, Timestamp)>, StoreError> {
    transaction.optional(FIRST, &[]).await?.as_ref().map(removal).transpose()
}

fn removal(row: &Row) -> Result<(WebhookKey, Timestamp), StoreError> {
    let key = (columns::organization(row, 0)?, columns::webhook_id(row, 1)?);
    Ok((key, columns::time(row, 2)?))
}

/// Cancels more of what waits for a removed webhook: how many deliveries; `None` where nothing is left.
pub(super) async fn step(transaction: &Transaction<'_>, max_rows: u32) -> Result<Option<u32>, StoreError> {
    let Some(first) = transaction.optional(TAKE_FIRST, &[]).await? else { return Ok(None) };
    let ((organization, webhook), at) = removal(&first)?;
    let key = [organization.as_str(), webhook.as_str()];
    let done = cancel(transaction, key, at, max_rows).await?;
    if done.rows < u64::from(max_rows) {
        transaction.execute(FORGET, &[&key[0], &key[1]]).await?;
    }
    Ok(Some(done.deliveries))
}

/// What one step has done.
struct Cancelled {
    /// Rows that it took away.
    rows: u64,
    /// Deliveries among them: what was missed never was one.
    deliveries: u32,
}

/// Cancels up to so many of the deliveries that wait for a webhook or are held for it, and forgets what it missed.
async fn cancel(
    transaction: &Transaction<'_>,
    [organization, webhook]: [&str; 2],
    at: Timestamp,
    limit: u32,
) -> Result<Cancelled, StoreError> {
    let (at, most) = (millis(at), i64::from(limit));
    let waiting = transaction.execute(CANCEL_WAITING, &[&organization, &webhook, &at, &most]).await?;
    let left = i64::from(limit).saturating_sub(i64::try_from(waiting).unwrap_or(i64::MAX));
    let undelivered = transaction.one(CANCEL_UNDELIVERED, &[&organization, &webhook, &at, &left]).await?;
    let held: u64 = columns::number(&undelivered, 1)?;
    let deliveries = u32::try_from(waiting + held).unwrap_or(u32::MAX);
    Ok(Cancelled { rows: waiting + columns::number::<u64>(&undelivered, 0)?, deliveries })
}
