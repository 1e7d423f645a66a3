//! Webhooks: their table, and the copy in memory that publishing and claiming read.
//!
//! Only the thread that writes fills the copy, and only with what is committed: a transaction keeps what it has read
//! and changed to itself, and hands it over when it is committed.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Off, OffReason, Webhook, WebhookUrl};
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::columns::{self, millis, sound};
use super::writer::Transaction;
use crate::store::{StoreError, WebhookChange};

/// Organizations whose webhooks are kept in memory; when there are more, all are forgotten and read again.
const MAX_CACHED_ORGANIZATIONS: usize = 10_000;

pub(super) const LOAD: &str = "SELECT id, url, events, description, secret, off_since, off_event, created_at
    FROM webhooks WHERE organization = ?1";
const CREATE: &str = "INSERT INTO webhooks
    (organization, id, url, events, description, secret, off_since, off_event, created_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const CHANGE: &str = "UPDATE webhooks
    SET url = ?3, events = ?4, description = ?5, off_since = ?6, off_event = ?7
    WHERE organization = ?1 AND id = ?2";
const DELETE: &str = "DELETE FROM webhooks WHERE organization = ?1 AND id = ?2";
const CANCEL: &str = "INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at)
    SELECT organization, event, webhook, 'cancelled', ?3, ?4 FROM waiting WHERE organization = ?1 AND webhook = ?2";
/// Left to itself, SQLite would read all that waits in the organization.
const STOP_WAITING: &str = "DELETE FROM waiting INDEXED BY waiting_due
    WHERE organization = ?1 AND webhook = ?2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LOAD, CREATE, CHANGE, DELETE, CANCEL, STOP_WAITING];

/// An organization's webhooks, oldest first.
pub(super) type Webhooks = Arc<[Arc<Webhook>]>;

/// The webhooks that are committed, by organization. One without webhooks is never kept: names cost nothing to invent.
#[derive(Default)]
pub(super) struct WebhookCache(RwLock<HashMap<OrganizationId, Webhooks>>);

impl WebhookCache {
    /// An organization's webhooks, if they are in memory.
    pub(super) fn get(&self, organization: &OrganizationId) -> Option<Webhooks> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(organization).cloned()
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<OrganizationId, Webhooks>)) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
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
        let loaded: Webhooks = load(db, organization)?.into();
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
    fn remove(&mut self, db: &Connection, organization: &OrganizationId, id: &WebhookId) -> Result<(), StoreError> {
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
    let (off_since, off_event) = off_columns(webhook.off.as_ref());
    transaction.db.prepare_cached(CREATE)?.execute(params![
        webhook.organization.as_str(),
        webhook.id.as_str(),
        webhook.url.as_str(),
        patterns(&webhook.events)?,
        webhook.description,
        webhook.secret.reveal(),
        off_since,
        off_event,
        millis(webhook.created_at),
    ])?;
    transaction.webhooks.put(transaction.db, webhook)
}

/// Changes a webhook and gives it back, or `None` where there is none.
pub(super) fn update(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    change: WebhookChange,
    at: Timestamp,
) -> Result<Option<Webhook>, StoreError> {
    let Some(found) = transaction.webhooks.find(transaction.db, organization, id)? else { return Ok(None) };
    let webhook = change.apply(Webhook::clone(&found), at);
    write(transaction, webhook.clone())?;
    Ok(Some(webhook))
}

/// Switches a webhook off because the deliveries of `event` are exhausted (R10). Whether this did it: one that is off
/// already keeps the older reason, and one that was removed has none.
pub(super) fn switch_off(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    event: &EventId,
    since: Timestamp,
) -> Result<bool, StoreError> {
    let found = transaction.webhooks.find(transaction.db, organization, id)?;
    let Some(active) = found.filter(|webhook| webhook.off.is_none()) else { return Ok(false) };
    let off = Off { since, reason: OffReason::Exhausted(event.clone()) };
    write(transaction, Webhook { off: Some(off), ..Webhook::clone(&active) })?;
    Ok(true)
}

/// Removes a webhook and cancels what waits for it; `false` where there was none.
pub(super) fn delete(
    transaction: &mut Transaction<'_>,
    organization: &OrganizationId,
    id: &WebhookId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let Transaction { db, webhooks, .. } = transaction;
    if webhooks.find(db, organization, id)?.is_none() {
        return Ok(false);
    }
    webhooks.remove(db, organization, id)?;
    let key = params![organization.as_str(), id.as_str()];
    db.prepare_cached(DELETE)?.execute(key)?;
    let reason = "webhookDeleted";
    db.prepare_cached(CANCEL)?.execute(params![organization.as_str(), id.as_str(), reason, millis(at)])?;
    db.prepare_cached(STOP_WAITING)?.execute(key)?;
    Ok(true)
}

fn write(transaction: &mut Transaction<'_>, webhook: Webhook) -> Result<(), StoreError> {
    let (off_since, off_event) = off_columns(webhook.off.as_ref());
    transaction.db.prepare_cached(CHANGE)?.execute(params![
        webhook.organization.as_str(),
        webhook.id.as_str(),
        webhook.url.as_str(),
        patterns(&webhook.events)?,
        webhook.description,
        off_since,
        off_event,
    ])?;
    transaction.webhooks.put(transaction.db, webhook)
}

fn load(db: &Connection, organization: &OrganizationId) -> Result<Vec<Arc<Webhook>>, StoreError> {
    let mut statement = db.prepare_cached(LOAD)?;
    let mut rows = statement.query([organization.as_str()])?;
    let mut webhooks = Vec::new();
    while let Some(row) = rows.next()? {
        webhooks.push(Arc::new(webhook(organization, row)?));
    }
    webhooks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(webhooks)
}

fn webhook(organization: &OrganizationId, row: &Row<'_>) -> Result<Webhook, StoreError> {
    let url: String = row.get(1)?;
    let events: String = row.get(2)?;
    let off_event: Option<String> = row.get(6)?;
    let reason = match off_event {
        None => OffReason::Paused,
        Some(event) => OffReason::Exhausted(sound("webhooks.off_event", EventId::parse(event))?),
    };
    Ok(Webhook {
        organization: organization.clone(),
        id: columns::webhook_id(row, 0)?,
        url: sound("webhooks.url", WebhookUrl::parse(&url))?,
        events: sound("webhooks.events", serde_json::from_str(&events))?,
        description: row.get(3)?,
        secret: Secret::new(row.get::<_, String>(4)?),
        off: columns::optional_time(row, 5)?.map(|since| Off { since, reason }),
        created_at: columns::time(row, 7)?,
    })
}

fn patterns(events: &[EventPattern]) -> Result<String, StoreError> {
    sound("webhooks.events", serde_json::to_string(events))
}

fn off_columns(off: Option<&Off>) -> (Option<i64>, Option<&str>) {
    let event = off.and_then(|off| match &off.reason {
        OffReason::Paused => None,
        OffReason::Exhausted(event) => Some(event.as_str()),
    });
    (off.map(|off| millis(off.since)), event)
}
