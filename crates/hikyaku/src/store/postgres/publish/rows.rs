//! The rows of new events: the events themselves, what waits, and what was missed or is held.

use std::collections::HashMap;
use std::sync::Arc;

use hikyaku_core::delivery::History;
use hikyaku_core::ids::{DeliveryKey, WebhookId};
use hikyaku_core::webhook::Webhook;

use crate::store::postgres::columns::{after, millis, text};
use crate::store::postgres::transaction::Transaction;
use crate::store::postgres::undelivered::{self, FIRST_RUN};
use crate::store::{ClaimedDelivery, NewEvent, Publish, PublishedEvent, StoreError, UndeliveredKind};

const INSERT_EVENTS: &str = "INSERT INTO events
        (organization, id, created_at, type, timestamp, key, content_hash, deliveries, body)
    SELECT * FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[], $4::TEXT[], $5::BIGINT[], $6::TEXT[], $7::BYTEA[],
        $8::BIGINT[], $9::BYTEA[])";
const INSERT_WAITING: &str = "INSERT INTO waiting
        (organization, webhook, event, created_at, due_at, run, attempt, spoiled, owner, attempt_started_at)
    SELECT k.organization, k.webhook, k.event, k.created_at, k.due_at, 1,
        CASE WHEN k.owner IS NULL THEN 0 ELSE 1 END, 0, k.owner, k.started_at
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[], $6::TEXT[], $7::BIGINT[])
        k (organization, webhook, event, created_at, due_at, owner, started_at)";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[INSERT_EVENTS, INSERT_WAITING];

/// Rows to be written together.
#[derive(Default)]
pub(super) struct NewRows<'a> {
    events: Vec<(&'a Publish, &'a NewEvent, u32)>,
    waiting: Vec<NewWaiting<'a>>,
    absent: Vec<(&'a NewEvent, Arc<Webhook>, UndeliveredKind)>,
}

struct NewWaiting<'a> {
    publish: &'a Publish,
    event: &'a NewEvent,
    webhook: Arc<Webhook>,
    due_at: i64,
    /// Whether the publisher has taken the lease on its first attempt.
    leased: bool,
}

impl<'a> NewRows<'a> {
    /// Adds an event with its deliveries to these webhooks, and gives it as it will be stored.
    pub(super) fn add(
        &mut self,
        publish: &'a Publish,
        event: &'a NewEvent,
        webhooks: &[Arc<Webhook>],
        room: &mut HashMap<WebhookId, u32>,
    ) -> PublishedEvent {
        let (mut deliveries, mut leased) = (0, Vec::new());
        for webhook in webhooks {
            if webhook.takes(event.event_type.as_str()) {
                deliveries += 1;
                leased.extend(self.deliver(publish, event, webhook, room));
            } else if webhook.misses(event.event_type.as_str()) {
                let kind = UndeliveredKind::of_absence(webhook);
                deliveries += u32::from(kind == UndeliveredKind::Held);
                self.absent.push((event, Arc::clone(webhook), kind));
            }
        }
        self.events.push((publish, event, deliveries));
        PublishedEvent {
            id: event.id.clone(),
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            deliveries,
            repeated: false,
            leased,
        }
    }

    /// Adds one delivery, and takes the lease on its first attempt where there is room.
    fn deliver(
        &mut self,
        publish: &'a Publish,
        event: &'a NewEvent,
        webhook: &Arc<Webhook>,
        room: &mut HashMap<WebhookId, u32>,
    ) -> Option<ClaimedDelivery> {
        let Publish { organization, due_at, lease, .. } = publish;
        let room = room.get_mut(&webhook.id).filter(|room| **room > 0);
        let due = if room.is_some() { after(*due_at, lease.duration_for(webhook)) } else { *due_at };
        let (due_at_millis, leased) = (millis(due), room.is_some());
        self.waiting.push(NewWaiting { publish, event, webhook: Arc::clone(webhook), due_at: due_at_millis, leased });
        *room? -= 1;
        let (event_id, webhook_id) = (event.id.clone(), webhook.id.clone());
        Some(ClaimedDelivery {
            key: DeliveryKey { organization: organization.clone(), event: event_id, webhook: webhook_id },
            created_at: event.created_at,
            run: FIRST_RUN,
            attempt: 1,
            history: History::default(),
            interrupted: None,
            due_at: *due_at,
            first_attempt_at: None,
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            webhook: Arc::clone(webhook),
        })
    }

    /// Writes them; all statements go out together.
    pub(super) async fn write(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        let (events, waiting, absent) = tokio::join!(
            self.write_events(transaction),
            self.write_waiting(transaction),
            undelivered::note_off(transaction, &self.absent),
        );
        events.and(waiting).and(absent)
    }

    async fn write_events(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let events = || self.events.iter().map(|(_, event, _)| *event);
        let organizations: Vec<_> = self.events.iter().map(|(publish, ..)| publish.organization.as_str()).collect();
        let ids: Vec<_> = events().map(|event| event.id.as_str()).collect();
        let created: Vec<_> = events().map(|event| millis(event.created_at)).collect();
        let types: Vec<_> = events().map(|event| event.event_type.as_str()).collect();
        let timestamps: Vec<_> = events().map(|event| millis(event.timestamp)).collect();
        let keys: Vec<_> = events().map(|event| event.key.as_deref().map(text)).collect();
        let hashes: Vec<_> = events().map(|event| &event.content_hash[..]).collect();
        let deliveries: Vec<_> = self.events.iter().map(|(.., deliveries)| i64::from(*deliveries)).collect();
        let bodies: Vec<_> = events().map(|event| &event.body[..]).collect();
        transaction
            .execute(
                INSERT_EVENTS,
                &[&organizations, &ids, &created, &types, &timestamps, &keys, &hashes, &deliveries, &bodies],
            )
            .await?;
        Ok(())
    }

    async fn write_waiting(&self, transaction: &Transaction<'_>) -> Result<(), StoreError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let rows = || self.waiting.iter();
        let organizations: Vec<_> = rows().map(|row| row.publish.organization.as_str()).collect();
        let webhooks: Vec<_> = rows().map(|row| row.webhook.id.as_str()).collect();
        let events: Vec<_> = rows().map(|row| row.event.id.as_str()).collect();
        let created: Vec<_> = rows().map(|row| millis(row.event.created_at)).collect();
        let due: Vec<_> = rows().map(|row| row.due_at).collect();
        let owners: Vec<_> = rows().map(|row| row.leased.then_some(&*row.publish.lease.owner)).collect();
        let started: Vec<_> = rows().map(|row| row.leased.then(|| millis(row.publish.due_at))).collect();
        transaction
            .execute(INSERT_WAITING, &[&organizations, &webhooks, &events, &created, &due, &owners, &started])
            .await?;
        Ok(())
    }
}
