//! Webhooks: their table, and the copy in memory that publishing and claiming read.
//!
//! Every change of an organization's webhooks raises its version in the same commit. A transaction that depends on the
//! webhooks asks for the version first, so that it never goes by an old copy; whoever else reads may get one that was
//! good [`FRESH_FOR`] ago.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use super::columns::{self, millis};
use super::transaction::Transaction;
use super::{publish, recoveries, webhook_row};
use crate::clock::Stopwatch;
use crate::store::seal::Seal;
use crate::store::{StoreError, WebhookChange};

/// Organizations whose webhooks are kept in memory; when there are more, all are forgotten and read again.
const MAX_CACHED_ORGANIZATIONS: usize = 10_000;
/// How long a copy is taken for good without asking: what is changed through another node is known everywhere after it.
const FRESH_FOR: Duration = Duration::from_millis(500);

const VERSIONS: &str = "SELECT organization, version FROM organizations WHERE organization = ANY($1)";
const RAISE: &str = "INSERT INTO organizations (organization, version) VALUES ($1, 1)
    ON CONFLICT (organization) DO UPDATE SET version = organizations.version + 1";
/// Taken one after another, in the order in which they were asked for.
const LOCK: &str = "SELECT version FROM organizations WHERE organization = $1 FOR NO KEY UPDATE";
pub(super) const LOAD: &str = "SELECT id, url, events, description, secret, off_since, off_event, created_at, settings,
        exhausted, previous_secret, rotated_at, previous_until
    FROM webhooks WHERE organization = $1";
const CREATE: &str = "INSERT INTO webhooks
    (organization, id, url, events, description, secret, off_since, off_event, created_at, settings, exhausted,
        previous_secret, rotated_at, previous_until)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
const CHANGE: &str = "UPDATE webhooks
    SET url = $3, events = $4, description = $5, secret = $6, off_since = $7, off_event = $8, created_at = $9,
        settings = $10, exhausted = $11, previous_secret = $12, rotated_at = $13, previous_until = $14
    WHERE organization = $1 AND id = $2";
const FORGET_FAILURES: &str =
    "UPDATE webhooks SET exhausted = 0 WHERE organization = $1 AND id = ANY($2) AND exhausted > 0";
const OLD_SECRETS: &str = "SELECT organization, id FROM webhooks
    WHERE previous_until <= $1 ORDER BY previous_until LIMIT $2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[VERSIONS, RAISE, LOCK, LOAD, CREATE, CHANGE, FORGET_FAILURES, OLD_SECRETS];

/// An organization's webhooks, oldest first.
pub(super) type Webhooks = Arc<[Arc<Webhook>]>;

/// A copy of an organization's webhooks.
#[derive(Clone)]
struct Copy {
    webhooks: Webhooks,
    version: i64,
    /// When it was last known to be the present version.
    asked: Stopwatch,
}

/// A version, and when it was asked for: it was the present one then or later.
#[derive(Clone, Copy)]
struct Version {
    version: i64,
    asked: Stopwatch,
}

/// What is being read of an organization, for all who wait for it.
type Reading = OnceCell<Result<Webhooks, StoreError>>;

/// The webhooks of some organizations. One without webhooks is never kept: names cost nothing to invent.
pub(super) struct WebhookCache {
    known: RwLock<HashMap<OrganizationId, Copy>>,
    readings: Mutex<HashMap<OrganizationId, Arc<Reading>>>,
    /// What opens a row that is not in memory, and seals what is written.
    pub(super) seal: Seal,
}

impl WebhookCache {
    /// Nothing in memory yet.
    pub(super) fn new(seal: Seal) -> Self {
        Self { known: RwLock::default(), readings: Mutex::default(), seal }
    }

    /// An organization's webhooks, if what is in memory is fresh.
    pub(super) fn fresh(&self, organization: &OrganizationId) -> Option<Webhooks> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(organization).filter(|copy| copy.asked.elapsed() < FRESH_FOR).map(|copy| copy.webhooks.clone())
    }

    fn of_version(&self, organization: &OrganizationId, Version { version, asked }: Version) -> Option<Webhooks> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let copy = known.get_mut(organization).filter(|copy| copy.version == version)?;
        // Another answer may have overtaken this one.
        copy.asked = if asked.elapsed() < copy.asked.elapsed() { asked } else { copy.asked };
        Some(copy.webhooks.clone())
    }

    fn keep(&self, organization: &OrganizationId, Version { version, asked }: Version, webhooks: &Webhooks) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_ORGANIZATIONS {
            known.clear();
        }
        if known.get(organization).is_none_or(|copy| copy.version < version) {
            known.insert(organization.clone(), Copy { webhooks: webhooks.clone(), version, asked });
        }
    }

    /// Has `read` read an organization's webhooks, once for all who ask for them meanwhile.
    pub(super) async fn read_once<R: Future<Output = Result<Webhooks, StoreError>>>(
        &self,
        organization: &OrganizationId,
        read: impl FnOnce() -> R,
    ) -> Result<Webhooks, StoreError> {
        let reading = {
            let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(readings.entry(organization.clone()).or_default())
        };
        let answer = reading.get_or_init(read).await.clone();
        let mut readings = self.readings.lock().unwrap_or_else(PoisonError::into_inner);
        if readings.get(organization).is_some_and(|present| Arc::ptr_eq(present, &reading)) {
            readings.remove(organization);
        }
        answer
    }

    /// What is in memory of an organization is no longer good, nor what is just being read.
    pub(super) fn forget(&self, organization: &OrganizationId) {
        self.readings.lock().unwrap_or_else(PoisonError::into_inner).remove(organization);
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(organization);
    }
}

/// The webhooks of several organizations, oldest first, as this transaction sees them.
pub(super) async fn of_each(
    transaction: &Transaction<'_>,
    organizations: &BTreeSet<OrganizationId>,
) -> Result<HashMap<OrganizationId, Webhooks>, StoreError> {
    let names: Vec<_> = organizations.iter().map(OrganizationId::as_str).collect();
    let mut versions = HashMap::new();
    let asked = Stopwatch::start();
    for row in transaction.query(VERSIONS, &[&names]).await? {
        versions.insert(columns::organization(&row, 0)?, Version { version: row.try_get(1)?, asked });
    }
    let mut found = HashMap::new();
    for organization in organizations {
        let version = versions.get(organization).copied();
        found.insert(organization.clone(), of_version(transaction, organization, version).await?);
    }
    Ok(found)
}

/// An organization's webhooks, oldest first, as this transaction sees them.
pub(super) async fn of(transaction: &Transaction<'_>, organization: &OrganizationId) -> Result<Webhooks, StoreError> {
    let one = BTreeSet::from([organization.clone()]);
    Ok(of_each(transaction, &one).await?.remove(organization).unwrap_or_default())
}

/// One webhook, as this transaction sees it.
pub(super) async fn find(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
) -> Result<Option<Arc<Webhook>>, StoreError> {
    Ok(of(transaction, organization).await?.iter().find(|webhook| webhook.id == *id).cloned())
}

/// Keeps an organization's webhooks as they are until the end of this transaction, and gives them.
pub(super) async fn locked(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
) -> Result<Webhooks, StoreError> {
    let asked = Stopwatch::start();
    let version = transaction.optional(LOCK, &[&organization.as_str()]).await?;
    let version = version.map(|row| row.try_get(0)).transpose()?.map(|version| Version { version, asked });
    of_version(transaction, organization, version).await
}

async fn of_version(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    version: Option<Version>,
) -> Result<Webhooks, StoreError> {
    // Every change raises a version, so where there is none there never was a webhook.
    let Some(version) = version else { return Ok(Webhooks::default()) };
    let cache = transaction.webhooks;
    let is_changed = transaction.has_changed(organization);
    if let Some(known) = cache.of_version(organization, version).filter(|_| !is_changed) {
        return Ok(known);
    }
    // These may be newer than the version, and then they are read once more; they are never older.
    let rows = transaction.query(LOAD, &[&organization.as_str()]).await?;
    let webhooks = rows.iter().map(|row| webhook_row::read(&cache.seal, organization, row).map(Arc::new));
    let mut webhooks = webhooks.collect::<Result<Vec<_>, _>>()?;
    webhooks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let webhooks: Webhooks = webhooks.into();
    if !is_changed && !webhooks.is_empty() {
        cache.keep(organization, version, &webhooks);
    }
    Ok(webhooks)
}

/// Notes that an organization's webhooks are changed by this transaction; nobody else changes them before its end.
pub(super) async fn raise_version(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
) -> Result<(), StoreError> {
    transaction.execute(RAISE, &[&organization.as_str()]).await?;
    transaction.note_changed(organization);
    Ok(())
}

/// Registers a webhook.
pub(super) async fn create(transaction: &Transaction<'_>, webhook: &Webhook) -> Result<(), StoreError> {
    raise_version(transaction, &webhook.organization).await?;
    webhook_row::write(transaction, CREATE, &transaction.webhooks.seal, webhook).await?;
    Ok(())
}

/// What is to be changed of which webhook, when.
pub(super) type Update = (OrganizationId, WebhookId, WebhookChange, Timestamp);

/// Changes a webhook and gives it back, or `None` where there is none.
pub(super) async fn update(
    transaction: &Transaction<'_>,
    (organization, id, change, at): &Update,
) -> Result<Option<Webhook>, StoreError> {
    raise_version(transaction, organization).await?;
    let mut change = change.clone();
    let notice = change.notice.take();
    let Some(found) = find(transaction, organization, id).await? else { return Ok(None) };
    // Also of one that is on: it is the way on for what a cancelled release left held.
    let is_asked_on = change.active == Some(true);
    let webhook = change.apply(Webhook::clone(&found), *at);
    if is_asked_on {
        recoveries::release(transaction, organization, id, *at).await?;
    }
    webhook_row::write(transaction, CHANGE, &transaction.webhooks.seal, &webhook).await?;
    if let Some(notice) = notice.filter(|_| found.off.is_some() != webhook.off.is_some()) {
        publish::publish(transaction, &notice.into_publish(organization.clone(), id.clone())).await?;
    }
    Ok(Some(webhook))
}

/// Forgets previous secrets whose time is over; how many.
pub(super) async fn forget_secrets(
    transaction: &Transaction<'_>,
    (now, max_rows): &(Timestamp, u32),
) -> Result<u32, StoreError> {
    let old = transaction.query(OLD_SECRETS, &[&millis(*now), &i64::from(*max_rows)]).await?;
    let mut forgotten = 0;
    for row in old {
        let (organization, id) = (columns::organization(&row, 0)?, columns::webhook_id(&row, 1)?);
        raise_version(transaction, &organization).await?;
        if let Some(found) = find(transaction, &organization, &id).await? {
            let mut webhook = Webhook::clone(&found);
            webhook.forget_secrets(*now);
            webhook_row::write(transaction, CHANGE, &transaction.webhooks.seal, &webhook).await?;
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// Notes that a delivery of `event` is exhausted (R10). Whether this switched its webhook off; one that is off already
/// keeps the older reason, and one that was removed has none.
pub(super) async fn note_exhausted(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    event: &EventId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    raise_version(transaction, organization).await?;
    let found = find(transaction, organization, id).await?;
    let Some(active) = found.filter(|webhook| webhook.off.is_none()) else { return Ok(false) };
    let mut webhook = Webhook::clone(&active);
    let switched_off = webhook.note_exhausted(event, at);
    webhook_row::write(transaction, CHANGE, &transaction.webhooks.seal, &webhook).await?;
    Ok(switched_off)
}

/// Notes that deliveries to these webhooks succeeded.
pub(super) async fn note_successes(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    webhooks: &[&str],
) -> Result<(), StoreError> {
    if transaction.execute(FORGET_FAILURES, &[&organization.as_str(), &webhooks]).await? > 0 {
        raise_version(transaction, organization).await?;
    }
    Ok(())
}
