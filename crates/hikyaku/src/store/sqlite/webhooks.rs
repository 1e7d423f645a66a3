//! Webhooks: their table, and the copy in memory that publishing and claiming read.
//!
//! Only the thread that writes fills the copy, and only with what is committed: a transaction keeps what it has read
//! and changed to itself, and hands it over when it is committed.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::columns::{self, millis};
use super::writer::Transaction;
use super::{publish, recoveries, webhook_row};
use crate::store::seal::Seal;
use crate::store::{StoreError, WebhookChange};

/// Organizations whose webhooks are kept in memory; when there are more, all are forgotten and read again.
const MAX_CACHED_ORGANIZATIONS: usize = 10_000;

pub(super) const LOAD: &str = "SELECT id, url, events, description, secret, off_since, off_event, created_at, settings,
        exhausted, previous_secret, rotated_at, previous_until
    FROM webhooks WHERE organization = ?1";
const CREATE: &str = "INSERT INTO webhooks
    (organization, id, url, events, description, secret, off_since, off_event, created_at, settings, exhausted,
        previous_secret, rotated_at, previous_until)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
const CHANGE: &str = "UPDATE webhooks
    SET url = ?3, events = ?4, description = ?5, secret = ?6, off_since = ?7, off_event = ?8, created_at = ?9,
        settings = ?10, exhausted = ?11, previous_secret = ?12, rotated_at = ?13, previous_until = ?14
    WHERE organization = ?1 AND id = ?2";

const OLD_SECRETS: &str = "SELECT organization, id FROM webhooks
    WHERE previous_until <= ?1 ORDER BY previous_until LIMIT ?2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LOAD, CREATE, CHANGE, OLD_SECRETS];

/// An organization's webhooks, oldest first.
pub(super) type Webhooks = Arc<[Arc<Webhook>]>;

/// The webhooks that are committed, by organization. One without webhooks is never kept: names cost nothing to invent.
pub(super) struct WebhookCache {
    known: RwLock<HashMap<OrganizationId, Webhooks>>,
    /// What opens a row that is not in memory, and seals what is written.
    seal: Seal,
}

impl WebhookCache {
    /// Nothing in memory yet.
    pub(super) fn new(seal: Seal) -> Self {
        Self { known: RwLock::default(), seal }
    }

    /// An organization's webhooks, if they are in memory.
    pub(super) fn get(&self, organization: &OrganizationId) -> Option<Webhooks> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(organization).cloned()
    }

    /// Reads an organization's webhooks, oldest first, past what is in memory.
    pub(super) fn load(&self, db: &Connection, organization: &OrganizationId) -> Result<Webhooks, StoreError> {
        let mut statement = db.prepare_cached(LOAD)?;
        let mut rows = statement.query([organization.as_str()])?;
        let mut webhooks = Vec::new();
        while let Some(row) = rows.next()? {
            webhooks.push(Arc::new(webhook_row::read(&self.seal, organization, row)?));
        }
        webhooks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(webhooks.into())
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<OrganizationId, Webhooks>)) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut known);
        if known.len() > MAX_CACHED_ORGANIZATIONS {
            known.clear();
        }
    }
}

/// The webhooks as one transaction sees them; what it has read and changed becomes visible to others by its commit.
pub(super) struct WebhookView {
    committed: Arc<WebhookCache>,
    own: HashMap<OrganizationId, Webhooks>,
}

impl WebhookView {
    pub(super) fn new(committed: Arc<WebhookCache>) -> Self {
        Self { committed, own: HashMap::new() }
    }

    /// An organization's webhooks, oldest first.
    pub(super) fn of(&mut self, db: &Connection, organization: &OrganizationId) -> Result<Webhooks, StoreError> {
        if let Some(known) = self.own.get(organization).cloned().or_else(|| self.committed.get(organization)) {
            return Ok(known);
        }
        let loaded = self.committed.load(db, organization)?;
        self.own.insert(organization.clone(), loaded.clone());
        Ok(loaded)
    }

    /// One webhook.
    pub(super) fn find(
        &mut self,
        db: &Connection,
        organization: &OrganizationId,
        id: &WebhookId,
    ) -> Result<Option<Arc<Webhook>>, StoreError> {
        Ok(self.of(db, organization)?.iter().find(|webhook| webhook.id == *id).cloned())
    }

    /// Notes that a webhook was written, new or changed.
    fn put(&mut self, db: &Connection, webhook: Webhook) -> Result<(), StoreError> {
        let organization = webhook.organization.clone();
        let mut webhooks = self.without(db, &organization, &webhook.id)?;
        webhooks.push(Arc::new(webhook));
        webhooks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        self.own.insert(organization, webhooks.into());
        Ok(())
    }

    /// Notes that a webhook was removed.
    pub(super) fn remove(
        &mut self,
        db: &Connection,
        organization: &OrganizationId,
        id: &WebhookId,
    ) -> Result<(), StoreError> {
        let webhooks = self.without(db, organization, id)?;
        self.own.insert(organization.clone(), webhooks.into());
        Ok(())
    }

    fn without(
        &mut self,
        db: &Connection,
        organization: &OrganizationId,
        id: &WebhookId,
    ) -> Result<Vec<Arc<Webhook>>, StoreError> {
        Ok(self.of(db, organization)?.iter().filter(|webhook| webhook.id != *id).cloned().collect())
    }

    /// The transaction is committed: what it saw is what all see.
    pub(super) fn committed(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let own = self.own.drain();
        self.committed.change(|known| {
            for (organization, webhooks) in own {
                if webhooks.is_empty() {
                    known.remove(&organization);
                } else {
                    known.insert(organization, webhooks);
                }
            }
        });
    }

    /// The transaction never was.
    pub(super) fn rolled_back(&mut self) {
        self.own.clear();
    }

    /// Nobody knows whether it is committed: what it touched is read again.
    pub(super) fn unknown(&mut self) {
        let own = self.own.drain();
        self.committed.change(|known| own.for_each(|(organization, _)| drop(known.remove(&organization))));
    }
}

/// Registers a webhook.
pub(super) fn create(transaction: &mut Transaction<'_>, webhook: Webhook) -> Result<(), StoreError> {
    write(transaction, CREATE, webhook)
}

/// Changes a webhook and gives it back, or `None` where there is none.
pub(super) fn update(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    mut change: WebhookChange,
    at: Timestamp,
) -> Result<Option<Webhook>, StoreError> {
    let notice = change.notice.take();
    let Some(found) = transaction.webhooks.find(transaction.db, organization, id)? else { return Ok(None) };
    // Also of one that is on: it is the way on for what a cancelled release left held.
    let is_asked_on = change.active == Some(true);
    let webhook = change.apply(Webhook::clone(&found), at);
    if is_asked_on {
        recoveries::release(transaction.db, organization, id, at)?;
    }
    write(transaction, CHANGE, webhook.clone())?;
    if let Some(notice) = notice.filter(|_| found.off.is_some() != webhook.off.is_some()) {
        publish::publish(transaction, &notice.into_publish(organization.clone(), id.clone()))?;
    }
    Ok(Some(webhook))
}

/// Webhooks whose previous secret's time is over.
pub(super) fn with_old_secrets(
    db: &Connection,
    now: Timestamp,
    max_rows: u32,
) -> Result<Vec<(OrganizationId, WebhookId)>, StoreError> {
    let mut statement = db.prepare_cached(OLD_SECRETS)?;
    let mut rows = statement.query(params![millis(now), max_rows])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((columns::organization(row, 0)?, columns::webhook_id(row, 1)?));
    }
    Ok(found)
}

/// Forgets previous secrets whose time is over; how many.
pub(super) fn forget_secrets(
    transaction: &mut Transaction<'_>,
    now: Timestamp,
    max_rows: u32,
) -> Result<u32, StoreError> {
    let old = with_old_secrets(transaction.db, now, max_rows)?;
    for (organization, id) in &old {
        if let Some(found) = transaction.webhooks.find(transaction.db, organization, id)? {
            let mut webhook = Webhook::clone(&found);
            webhook.forget_secrets(now);
            write(transaction, CHANGE, webhook)?;
        }
    }
    Ok(u32::try_from(old.len()).unwrap_or(u32::MAX))
}

/// Notes that a delivery of `event` is exhausted (R10). Whether this switched its webhook off; one that is off already
/// keeps the older reason, and one that was removed has none.
pub(super) fn note_exhausted(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    event: &EventId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let found = transaction.webhooks.find(transaction.db, organization, id)?;
    let Some(active) = found.filter(|webhook| webhook.off.is_none()) else { return Ok(false) };
    let mut webhook = Webhook::clone(&active);
    let switched_off = webhook.note_exhausted(event, at);
    write(transaction, CHANGE, webhook)?;
    Ok(switched_off)
}

/// Notes a success. It writes only where there is something to forget, which is seldom.
pub(super) fn note_success(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
) -> Result<(), StoreError> {
    let found = transaction.webhooks.find(transaction.db, organization, id)?;
    match found.filter(|webhook| webhook.exhausted > 0) {
        Some(webhook) => write(transaction, CHANGE, Webhook { exhausted: 0, ..Webhook::clone(&webhook) }),
        None => Ok(()),
    }
}

fn write(transaction: &mut Transaction<'_>, sql: &'static str, webhook: Webhook) -> Result<(), StoreError> {
    let seal = &transaction.webhooks.committed.seal;
    webhook_row::write(&mut *transaction.db.prepare_cached(sql)?, seal, &webhook)?;
    transaction.webhooks.put(transaction.db, webhook)
}
