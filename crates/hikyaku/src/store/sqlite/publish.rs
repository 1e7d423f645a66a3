//! Storing events with their deliveries.

use std::collections::HashMap;
use std::sync::Arc;

use hikyaku_core::delivery::History;
use hikyaku_core::event::CONTENT_HASH_BYTES;
use hikyaku_core::ids::{DeliveryKey, WebhookId};
use hikyaku_core::webhook::Webhook;
use rusqlite::{Connection, params};

use super::columns::{self, after, millis};
use super::queues::QueueView;
use super::undelivered::{self, FIRST_RUN};
use super::webhooks::Webhooks;
use super::writer::Transaction;
use crate::store::{ClaimedDelivery, NewEvent, Publish, PublishOutcome, PublishedEvent, StoreError, UndeliveredKind};

const FIND: &str = "SELECT type, timestamp, deliveries, content_hash FROM events WHERE organization = ?1 AND id = ?2";
const INSERT_EVENT: &str = "INSERT INTO events (organization, id, type, timestamp, content_hash, deliveries, body,
        created_at, key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (organization, id) DO NOTHING";
const INSERT_WAITING: &str = "INSERT INTO waiting
    (organization, created_at, event, webhook, due_at, run, attempt, spoiled, owner, attempt_started_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[FIND, INSERT_EVENT, INSERT_WAITING];

/// Stores all events of a publish, or none where one conflicts.
pub(super) fn publish(transaction: &mut Transaction<'_>, publish: &Publish) -> Result<PublishOutcome, StoreError> {
    let mut known = Vec::with_capacity(publish.events.len());
    let mut hashes = HashMap::with_capacity(publish.events.len());
    for event in &publish.events {
        let first = *hashes.entry(&event.id).or_insert(event.content_hash);
        match find(transaction.db, publish, event)? {
            Some(stored) if stored.content_hash == event.content_hash => known.push(Some(stored.event)),
            None if first == event.content_hash => known.push(None),
            _ => return Ok(PublishOutcome::Conflict(event.id.clone())),
        }
    }
    let mut webhooks = transaction.webhooks.of(transaction.db, &publish.organization)?;
    if let Some(about) = &publish.about {
        webhooks = webhooks.iter().filter(|webhook| webhook.id != *about).cloned().collect();
    }
    let room = publish.room.clone();
    let mut insertion = Insertion { db: transaction.db, queues: transaction.queues, publish, webhooks, room };
    let events = publish.events.iter().zip(known);
    let stored = events.map(|(event, known)| known.map_or_else(|| insertion.insert(event), Ok));
    Ok(PublishOutcome::Stored(stored.collect::<Result<_, _>>()?))
}

struct Stored {
    event: PublishedEvent,
    content_hash: [u8; CONTENT_HASH_BYTES],
}

/// What the store has under the id of an event that is published.
fn find(db: &Connection, publish: &Publish, event: &NewEvent) -> Result<Option<Stored>, StoreError> {
    let mut statement = db.prepare_cached(FIND)?;
    let mut rows = statement.query([publish.organization.as_str(), event.id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let stored = PublishedEvent {
        id: event.id.clone(),
        event_type: columns::event_type(row, 0)?,
        timestamp: columns::time(row, 1)?,
        deliveries: row.get(2)?,
        repeated: true,
        leased: Vec::new(),
    };
    Ok(Some(Stored { event: stored, content_hash: row.get(3)? }))
}

struct Insertion<'a> {
    db: &'a Connection,
    queues: &'a mut QueueView,
    publish: &'a Publish,
    webhooks: Webhooks,
    room: HashMap<WebhookId, u32>,
}

impl Insertion<'_> {
    fn insert(&mut self, event: &NewEvent) -> Result<PublishedEvent, StoreError> {
        let webhooks = self.webhooks.clone();
        let takers: Vec<_> = webhooks.iter().filter(|webhook| webhook.takes(event.event_type.as_str())).collect();
        let absent = webhooks.iter().filter(|webhook| webhook.misses(event.event_type.as_str()));
        let absent: Vec<_> = absent.map(|webhook| (webhook, UndeliveredKind::of_absence(webhook))).collect();
        let held = absent.iter().filter(|(_, kind)| *kind == UndeliveredKind::Held).count();
        let deliveries = u32::try_from(takers.len() + held).unwrap_or(u32::MAX);
        let inserted = self.db.prepare_cached(INSERT_EVENT)?.execute(params![
            self.publish.organization.as_str(),
            event.id.as_str(),
            event.event_type.as_str(),
            millis(event.timestamp),
            event.content_hash,
            deliveries,
            &event.body[..],
            millis(event.created_at),
            event.key,
        ])?;
        if inserted == 0 {
            // It stands in this publish twice.
            let stored = find(self.db, self.publish, event)?.map(|stored| stored.event);
            return stored.ok_or_else(|| StoreError::Damaged(format!("the event {} is there and is not", event.id)));
        }
        for (webhook, kind) in absent {
            undelivered::note_off(self.db, event, webhook, kind)?;
        }
        let mut leased = Vec::new();
        for webhook in takers {
            leased.extend(self.deliver(event, webhook)?);
        }
        Ok(PublishedEvent {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            deliveries,
            repeated: false,
            leased,
        })
    }

    /// Writes one delivery, and takes the lease on its first attempt where there is room.
    fn deliver(&mut self, event: &NewEvent, webhook: &Arc<Webhook>) -> Result<Option<ClaimedDelivery>, StoreError> {
        let Publish { organization, due_at, lease, .. } = self.publish;
        let room = self.room.get_mut(&webhook.id).filter(|room| **room > 0);
        let due = if room.is_some() { after(*due_at, lease.duration_for(webhook)) } else { *due_at };
        let owner = room.is_some().then_some(&*lease.owner);
        let started_at = room.is_some().then(|| millis(*due_at));
        self.db.prepare_cached(INSERT_WAITING)?.execute(params![
            organization.as_str(),
            millis(event.created_at),
            event.id.as_str(),
            webhook.id.as_str(),
            millis(due),
            FIRST_RUN,
            u32::from(room.is_some()),
            owner,
            started_at,
        ])?;
        self.queues.touch(organization, &webhook.id);
        let Some(room) = room else { return Ok(None) };
        *room -= 1;
        let key =
            DeliveryKey { organization: organization.clone(), event: event.id.clone(), webhook: webhook.id.clone() };
        Ok(Some(ClaimedDelivery {
            key,
            created_at: event.created_at,
            run: FIRST_RUN,
            attempt: 1,
            history: History::default(),
            interrupted: None,
            due_at: *due_at,
            first_attempt_at: None,
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            webhook: webhook.clone(),
        }))
    }
}
