//! Recoveries: notes of what is to be made due again, worked off in small steps. A step is one transaction, so that a
//! crash leaves it undone or done, and any node can make the next. Whoever makes one keeps the recoveries that take part
//! to himself; other nodes pass them over.

use std::time::Duration;

use hikyaku_core::ids::{OrganizationId, RecoveryId, WebhookId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis, sound};
use super::transaction::Transaction;
use super::undelivered::{FIRST_RUN, Undelivered, begin_runs, count, oldest, start};
use super::webhooks;
use crate::store::{
    NewRecovery, RecoverOutcome, Recovery, RecoveryKey, RecoveryState, RecoveryStep, RecoveryStepped, StoreError, Which,
};

const UNENDED: &str = "SELECT id FROM recoveries
    WHERE organization = $1 AND webhook = $2 AND state = 'running' AND which <> 'held' ORDER BY id LIMIT 1";
/// The release of what is held has the same id every time.
const PUT: &str = "INSERT INTO recoveries (organization, webhook, id, which, from_at, to_at, total, recovered,
        position_at, position_event, state, created_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, '', 'running', $9)
    ON CONFLICT (organization, webhook, id) DO UPDATE
    SET which = excluded.which, from_at = excluded.from_at, to_at = excluded.to_at, total = excluded.total,
        recovered = 0, position_at = excluded.position_at, position_event = '', state = 'running',
        created_at = excluded.created_at";
const READ: &str = "SELECT id, which, from_at, to_at, total, recovered, state, created_at FROM recoveries
    WHERE organization = $1 AND webhook = $2 AND id = $3";
const CANCEL: &str = "UPDATE recoveries SET state = 'cancelled'
    WHERE organization = $1 AND webhook = $2 AND id = $3 AND state = 'running'";
const ANY: &str = "SELECT TRUE FROM recoveries
    WHERE state = 'running' AND (organization, webhook, id) > ($1, $2, $3) LIMIT 1";
/// Locked, so that a recovery which begins anew meanwhile does so after the step, and not under it.
const RUNNING: &str = "SELECT organization, webhook, id, which, to_at, position_at, position_event FROM recoveries
    WHERE state = 'running' AND (organization, webhook, id) > ($1, $2, $3)
    ORDER BY organization, webhook, id LIMIT $4 FOR UPDATE SKIP LOCKED";
const DUE: &str = "SELECT COUNT(*) FROM
    (SELECT 1 FROM waiting WHERE organization COLLATE \"POSIX\" = $1 AND webhook COLLATE \"POSIX\" = $2 AND due_at <= $3
        ORDER BY due_at LIMIT $4) due";
const ADVANCE: &str = "UPDATE recoveries
    SET recovered = recovered + $4, total = GREATEST(total, recovered + $4), position_at = $5, position_event = $6,
        state = $7
    WHERE organization = $1 AND webhook = $2 AND id = $3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[UNENDED, PUT, READ, CANCEL, ANY, RUNNING, DUE, ADVANCE];

/// Begins a recovery that somebody asked for.
pub(super) async fn begin(transaction: &Transaction<'_>, new: &NewRecovery) -> Result<RecoverOutcome, StoreError> {
    // Two who ask at the same time are answered one after the other.
    let webhooks = webhooks::locked(transaction, &new.organization).await?;
    let Some(webhook) = webhooks.iter().find(|webhook| webhook.id == new.webhook) else {
        return Ok(RecoverOutcome::NoSuchWebhook);
    };
    if let Some(off) = &webhook.off {
        return Ok(RecoverOutcome::Off(off.clone()));
    }
    let running = transaction.optional(UNENDED, &[&new.organization.as_str(), &new.webhook.as_str()]).await?;
    if let Some(running) = running {
        return Ok(RecoverOutcome::Running(recovery_id(&running, 0)?));
    }
    let key = (new.organization.clone(), new.webhook.clone(), new.id.clone());
    put(transaction, &key, new.which, (Some(new.from), Some(new.to)), new.at).await.map(RecoverOutcome::Begun)
}

fn recovery_id(row: &Row, index: usize) -> Result<RecoveryId, StoreError> {
    sound("recoveries.id", RecoveryId::parse(row.try_get::<_, String>(index)?))
}

/// Begins the release of what is held for a webhook, if anything is.
pub(super) async fn release(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    webhook: &WebhookId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let key = (organization.clone(), webhook.clone(), RecoveryId::of_held());
    if total(transaction, &key, Which::Held, (None, None)).await? > 0 {
        put(transaction, &key, Which::Held, (None, None), at).await?;
    }
    Ok(())
}

type Period = (Option<Timestamp>, Option<Timestamp>);

async fn total(
    transaction: &Transaction<'_>,
    (organization, webhook, _): &RecoveryKey,
    which: Which,
    period: Period,
) -> Result<u64, StoreError> {
    let mut total = 0;
    for kind in which.kinds() {
        let whose = [organization.as_str(), webhook.as_str()];
        total += count(transaction, whose, *kind, period, i64::MAX).await?;
    }
    Ok(total)
}

async fn put(
    transaction: &Transaction<'_>,
    key: &RecoveryKey,
    which: Which,
    (from, to): Period,
    at: Timestamp,
) -> Result<Recovery, StoreError> {
    let total = total(transaction, key, which, (from, to)).await?;
    let ([organization, webhook, name], id) = (names(key), &key.2);
    let (from_at, to_at, stored) = (from.map(millis), to.map(millis), i64::try_from(total).unwrap_or(i64::MAX));
    transaction
        .execute(
            PUT,
            &[&organization, &webhook, &name, &which.as_str(), &from_at, &to_at, &stored, &start(from), &millis(at)],
        )
        .await?;
    let state = RecoveryState::Running;
    Ok(Recovery { id: id.clone(), which, from, to, total, recovered: 0, state, created_at: at })
}

fn names((organization, webhook, id): &RecoveryKey) -> [&str; 3] {
    [organization.as_str(), webhook.as_str(), id.as_str()]
}

/// A recovery as it stands, or `None`.
pub(super) async fn read(transaction: &Transaction<'_>, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
    let [organization, webhook, id] = names(key);
    let row = transaction.optional(READ, &[&organization, &webhook, &id]).await?;
    row.as_ref().map(recovery).transpose()
}

fn recovery(row: &Row) -> Result<Recovery, StoreError> {
    Ok(Recovery {
        id: recovery_id(row, 0)?,
        which: columns::which(row, 1)?,
        from: columns::optional_time(row, 2)?,
        to: columns::optional_time(row, 3)?,
        total: columns::number(row, 4)?,
        recovered: columns::number(row, 5)?,
        state: columns::recovery_state(row, 6)?,
        created_at: columns::time(row, 7)?,
    })
}

/// Stops a recovery that runs, and gives it as it stands.
pub(super) async fn cancel(transaction: &Transaction<'_>, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
    let [organization, webhook, id] = names(key);
    transaction.execute(CANCEL, &[&organization, &webhook, &id]).await?;
    read(transaction, key).await
}

/// Whether a step may have something to do.
pub(super) async fn any_runs(transaction: &Transaction<'_>, step: &RecoveryStep) -> Result<bool, StoreError> {
    let [organization, webhook, id] = step.after.as_ref().map_or(["", "", ""], names);
    Ok(transaction.optional(ANY, &[&organization, &webhook, &id]).await?.is_some())
}

/// A recovery that runs, and how far it is.
struct Running {
    key: RecoveryKey,
    which: Which,
    to: Option<Timestamp>,
    position: (i64, String),
}

async fn running(transaction: &Transaction<'_>, step: &RecoveryStep) -> Result<Vec<Running>, StoreError> {
    let [organization, webhook, id] = step.after.as_ref().map_or(["", "", ""], names);
    let mut found = Vec::new();
    for row in transaction.query(RUNNING, &[&organization, &webhook, &id, &i64::from(step.limit)]).await? {
        found.push(Running {
            key: (columns::organization(&row, 0)?, columns::webhook_id(&row, 1)?, recovery_id(&row, 2)?),
            which: columns::which(&row, 3)?,
            to: columns::optional_time(&row, 4)?,
            position: (row.try_get(5)?, row.try_get(6)?),
        });
    }
    Ok(found)
}

/// Makes one step of the recoveries that run.
pub(super) async fn step(transaction: &Transaction<'_>, step: &RecoveryStep) -> Result<RecoveryStepped, StoreError> {
    let mut stepped = RecoveryStepped::default();
    let running = running(transaction, step).await?;
    if running.len() == step.limit as usize {
        stepped.stopped_at = running.last().map(|last| last.key.clone());
    }
    for recovery in &running {
        let (organization, webhook, _) = &recovery.key;
        let to = webhooks::find(transaction, organization, webhook).await?;
        let is_on = to.is_some_and(|webhook| webhook.off.is_none());
        let (made_due, rests) = if is_on { make_due(transaction, step, recovery).await? } else { (0, true) };
        stepped.made_due += made_due;
        stepped.running += u32::from(!rests);
    }
    Ok(stepped)
}

/// Makes the next events of a recovery due, as far as their webhook has room; how many, and whether none are left.
async fn make_due(
    transaction: &Transaction<'_>,
    step: &RecoveryStep,
    recovery: &Running,
) -> Result<(u32, bool), StoreError> {
    let (organization, webhook, _) = &recovery.key;
    let whose = [organization.as_str(), webhook.as_str()];
    let (now, most_due) = (millis(step.now), i64::from(step.most_due));
    let due: u32 = columns::number(&transaction.one(DUE, &[&whose[0], &whose[1], &now, &most_due]).await?, 0)?;
    let room = step.most_due.saturating_sub(due);
    if room == 0 {
        return Ok((0, false));
    }
    let position = (recovery.position.0, recovery.position.1.as_str());
    let next = oldest(transaction, whose, recovery.which, position, recovery.to, room).await?;
    let before = if recovery.which == Which::Held { FIRST_RUN - 1 } else { FIRST_RUN };
    let due = next.iter().zip(due_times(now, next.len()));
    let runs: Vec<_> = due.map(|(undelivered, due_at)| undelivered.begin(due_at)).collect();
    begin_runs(transaction, whose, before, &runs).await?;
    let ended = next.len() < room as usize;
    advance(transaction, recovery, &next, ended).await?;
    Ok((u32::try_from(next.len()).unwrap_or(u32::MAX), ended))
}

/// When the first of the events is due that a step makes due.
pub(super) fn earliest(step: &RecoveryStep) -> Timestamp {
    step.now.saturating_sub(Duration::from_millis(u64::from(step.most_due))).unwrap_or(Timestamp::MIN)
}

/// Due times up to `now`, a millisecond apart: what is due first is attempted first.
fn due_times(now: i64, count: usize) -> impl Iterator<Item = i64> {
    (0..i64::try_from(count).unwrap_or(i64::MAX)).rev().map(move |back| now.saturating_sub(back))
}

async fn advance(
    transaction: &Transaction<'_>,
    recovery: &Running,
    next: &[Undelivered],
    ended: bool,
) -> Result<(), StoreError> {
    let [organization, webhook, id] = names(&recovery.key);
    let last = next.last().map(|last| &last.entry.position);
    let last = last.map(|last| (millis(last.timestamp), last.event.as_str()));
    let (at, event) = last.unwrap_or((recovery.position.0, recovery.position.1.as_str()));
    let state = if ended { RecoveryState::Done } else { RecoveryState::Running };
    let made_due = i64::try_from(next.len()).unwrap_or(i64::MAX);
    transaction.execute(ADVANCE, &[&organization, &webhook, &id, &made_due, &at, &event, &state.as_str()]).await?;
    Ok(())
}
