//! Recoveries: notes of what is to be made due again, worked off in small steps. A step is one transaction, so that a
//! crash leaves it undone or done, and any process can make the next.

use hikyaku_core::ids::{DeliveryKey, OrganizationId, RecoveryId, WebhookId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{self, millis, sound};
use super::undelivered::{FIRST_RUN, begin_run, count, oldest, start};
use super::writer::Transaction;
use crate::store::{
    MissedEntry, NewRecovery, RecoverOutcome, Recovery, RecoveryKey, RecoveryState, RecoveryStep, RecoveryStepped,
    StoreError, Which,
};

const UNENDED: &str = "SELECT id FROM recoveries
    WHERE organization = ?1 AND webhook = ?2 AND state = 'running' AND which <> 'held' LIMIT 1";
/// The release of what is held has the same id every time.
const PUT: &str = "INSERT OR REPLACE INTO recoveries (organization, webhook, id, which, from_at, to_at, total,
        recovered, position_at, position_event, state, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, '', 'running', ?9)";
const READ: &str = "SELECT id, which, from_at, to_at, total, recovered, state, created_at FROM recoveries
    WHERE organization = ?1 AND webhook = ?2 AND id = ?3";
const CANCEL: &str = "UPDATE recoveries SET state = 'cancelled'
    WHERE organization = ?1 AND webhook = ?2 AND id = ?3 AND state = 'running'";
const RUNNING: &str = "SELECT organization, webhook, id, which, to_at, position_at, position_event FROM recoveries
    WHERE state = 'running' AND (organization, webhook, id) > (?1, ?2, ?3)
    ORDER BY organization, webhook, id LIMIT ?4";
const DUE: &str = "SELECT COUNT(*) FROM
    (SELECT 1 FROM waiting WHERE organization = ?1 AND webhook = ?2 AND due_at <= ?3 LIMIT ?4)";
const ADVANCE: &str = "UPDATE recoveries
    SET recovered = recovered + ?4, total = MAX(total, recovered + ?4), position_at = ?5, position_event = ?6,
        state = ?7
    WHERE organization = ?1 AND webhook = ?2 AND id = ?3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[UNENDED, PUT, READ, CANCEL, RUNNING, DUE, ADVANCE];

/// Begins a recovery that somebody asked for.
pub(super) fn begin(transaction: &mut Transaction<'_>, new: &NewRecovery) -> Result<RecoverOutcome, StoreError> {
    let db = transaction.db;
    let Some(webhook) = transaction.webhooks.find(db, &new.organization, &new.webhook)? else {
        return Ok(RecoverOutcome::NoSuchWebhook);
    };
    if let Some(off) = &webhook.off {
        return Ok(RecoverOutcome::Off(off.clone()));
    }
    let whose = [new.organization.as_str(), new.webhook.as_str()];
    let running: Option<String> = db.prepare_cached(UNENDED)?.query_row(whose, |row| row.get(0)).optional()?;
    if let Some(id) = running {
        return Ok(RecoverOutcome::Running(sound("recoveries.id", RecoveryId::parse(id))?));
    }
    let key = (new.organization.clone(), new.webhook.clone(), new.id.clone());
    put(db, &key, new.which, (Some(new.from), Some(new.to)), new.at).map(RecoverOutcome::Begun)
}

/// Begins the release of what is held for a webhook, if anything is.
pub(super) fn release(
    db: &Connection,
    organization: &OrganizationId,
    webhook: &WebhookId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let key = (organization.clone(), webhook.clone(), RecoveryId::of_held());
    if total(db, &key, Which::Held, (None, None))? > 0 {
        put(db, &key, Which::Held, (None, None), at)?;
    }
    Ok(())
}

type Period = (Option<Timestamp>, Option<Timestamp>);

fn total(
    db: &Connection,
    (organization, webhook, _): &RecoveryKey,
    which: Which,
    period: Period,
) -> Result<u64, StoreError> {
    let mut total = 0;
    for kind in which.kinds() {
        total += count(db, [organization.as_str(), webhook.as_str()], *kind, period, i64::MAX)?;
    }
    Ok(total)
}

fn put(
    db: &Connection,
    key: &RecoveryKey,
    which: Which,
    (from, to): Period,
    at: Timestamp,
) -> Result<Recovery, StoreError> {
    let total = total(db, key, which, (from, to))?;
    let (organization, webhook, id) = key;
    db.prepare_cached(PUT)?.execute(params![
        organization.as_str(),
        webhook.as_str(),
        id.as_str(),
        which.as_str(),
        from.map(millis),
        to.map(millis),
        i64::try_from(total).unwrap_or(i64::MAX),
        start(from),
        millis(at),
    ])?;
    let state = RecoveryState::Running;
    Ok(Recovery { id: id.clone(), which, from, to, total, recovered: 0, state, created_at: at })
}

fn names((organization, webhook, id): &RecoveryKey) -> [&str; 3] {
    [organization.as_str(), webhook.as_str(), id.as_str()]
}

/// A recovery as it stands, or `None`.
pub(super) fn read(db: &Connection, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
    let mut statement = db.prepare_cached(READ)?;
    let mut rows = statement.query(names(key))?;
    rows.next()?.map(recovery).transpose()
}

fn recovery(row: &Row<'_>) -> Result<Recovery, StoreError> {
    Ok(Recovery {
        id: sound("recoveries.id", RecoveryId::parse(row.get::<_, String>(0)?))?,
        which: columns::which(row, 1)?,
        from: columns::optional_time(row, 2)?,
        to: columns::optional_time(row, 3)?,
        total: row.get::<_, i64>(4)?.unsigned_abs(),
        recovered: row.get::<_, i64>(5)?.unsigned_abs(),
        state: columns::recovery_state(row, 6)?,
        created_at: columns::time(row, 7)?,
    })
}

/// Stops a recovery that runs, and gives it as it stands.
pub(super) fn cancel(db: &Connection, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
    db.prepare_cached(CANCEL)?.execute(names(key))?;
    read(db, key)
}

/// Whether a step may have something to do; to be asked beside the thread that writes.
pub(super) fn any_runs(db: &Connection, step: &RecoveryStep) -> Result<bool, StoreError> {
    Ok(!running(db, &RecoveryStep { limit: 1, ..step.clone() })?.is_empty())
}

/// A recovery that runs, and how far it is.
struct Running {
    key: RecoveryKey,
    which: Which,
    to: Option<Timestamp>,
    position: (i64, String),
}

fn running(db: &Connection, step: &RecoveryStep) -> Result<Vec<Running>, StoreError> {
    let after = step.after.as_ref().map_or(["", "", ""], names);
    let mut statement = db.prepare_cached(RUNNING)?;
    let mut rows = statement.query(params![after[0], after[1], after[2], step.limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = sound("recoveries.id", RecoveryId::parse(row.get::<_, String>(2)?))?;
        found.push(Running {
            key: (columns::organization(row, 0)?, columns::webhook_id(row, 1)?, id),
            which: columns::which(row, 3)?,
            to: columns::optional_time(row, 4)?,
            position: (row.get(5)?, row.get(6)?),
        });
    }
    Ok(found)
}

/// Makes one step of the recoveries that run.
pub(super) fn step(transaction: &mut Transaction<'_>, step: &RecoveryStep) -> Result<RecoveryStepped, StoreError> {
    let mut stepped = RecoveryStepped::default();
    let running = running(transaction.db, step)?;
    if running.len() == step.limit as usize {
        stepped.stopped_at = running.last().map(|last| last.key.clone());
    }
    for recovery in &running {
        let (organization, webhook, _) = &recovery.key;
        let to = transaction.webhooks.find(transaction.db, organization, webhook)?;
        let is_on = to.is_some_and(|webhook| webhook.off.is_none());
        let (made_due, rests) = if is_on { make_due(transaction, step, recovery)? } else { (0, true) };
        stepped.made_due += made_due;
        stepped.running += u32::from(!rests);
    }
    Ok(stepped)
}

/// Makes the next events of a recovery due, as far as their webhook has room; how many, and whether none are left.
fn make_due(
    transaction: &mut Transaction<'_>,
    step: &RecoveryStep,
    recovery: &Running,
) -> Result<(u32, bool), StoreError> {
    let db = transaction.db;
    let (organization, webhook, _) = &recovery.key;
    let whose = [organization.as_str(), webhook.as_str()];
    let due = params![whose[0], whose[1], millis(step.now), step.most_due];
    let room = step.most_due - db.prepare_cached(DUE)?.query_row(due, |row| row.get::<_, u32>(0))?;
    if room == 0 {
        return Ok((0, false));
    }
    let position = (recovery.position.0, recovery.position.1.as_str());
    let next = oldest(db, whose, recovery.which, position, recovery.to, room)?;
    let before = if recovery.which == Which::Held { FIRST_RUN - 1 } else { FIRST_RUN };
    for (entry, due_at) in next.iter().zip(due_times(step.now, next.len())) {
        let event = entry.position.event.clone();
        let key = DeliveryKey { organization: organization.clone(), event, webhook: webhook.clone() };
        begin_run(transaction, &key, before, due_at)?;
    }
    let ended = next.len() < room as usize;
    advance(db, recovery, &next, ended)?;
    Ok((u32::try_from(next.len()).unwrap_or(u32::MAX), ended))
}

/// Due times up to `now`, a millisecond apart: what is due first is attempted first.
fn due_times(now: Timestamp, count: usize) -> impl Iterator<Item = Timestamp> {
    let back = (0..i64::try_from(count).unwrap_or(i64::MAX)).rev();
    back.map(move |millis| now.checked_sub(jiff::SignedDuration::from_millis(millis)).unwrap_or(now))
}

fn advance(db: &Connection, recovery: &Running, next: &[MissedEntry], ended: bool) -> Result<(), StoreError> {
    let [organization, webhook, id] = names(&recovery.key);
    let last = next.last().map(|entry| (millis(entry.position.timestamp), entry.position.event.as_str()));
    let (at, event) = last.unwrap_or((recovery.position.0, recovery.position.1.as_str()));
    let state = if ended { RecoveryState::Done } else { RecoveryState::Running };
    let made_due = i64::try_from(next.len()).unwrap_or(i64::MAX);
    db.prepare_cached(ADVANCE)?.execute(params![organization, webhook, id, made_due, at, event, state.as_str()])?;
    Ok(())
}
