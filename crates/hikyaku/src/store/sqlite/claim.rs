//! Taking due deliveries.
//!
//! What is due is looked for beside the thread that writes, webhook by webhook: [`Queues`] leads from one of which something
//! is due to the next, so that neither a queue of any length nor webhooks that wait for later cost the others anything; of
//! one without a free slot nothing is read at all. The thread that writes then takes what is still due.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hikyaku_core::delivery::History;
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;
use rusqlite::{CachedStatement, Connection, params};

use super::columns::{self, after, millis};
use super::queues::{Queues, WebhookKey};
use super::undelivered::FIRST_RUN;
use super::webhooks::WebhookCache;
use super::writer::Transaction;
use crate::store::{ClaimedDelivery, DeliveryClaim, DeliveryClaims, StoreError};

const DUE: &str = "SELECT event, created_at FROM waiting
    WHERE organization = ?1 AND webhook = ?2 AND due_at <= ?3 ORDER BY due_at, event LIMIT ?4";
const EVENT: &str = "SELECT type, body FROM events WHERE organization = ?1 AND id = ?2";
const LOOK: &str = "SELECT run, attempt, spoiled, attempt_started_at, due_at FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4 AND due_at <= ?5";
const TAKE: &str = "UPDATE waiting SET owner = ?5, due_at = ?6, attempt = ?7, attempt_started_at = ?8
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4";
const FIRST_ATTEMPT: &str = "SELECT started_at FROM attempts
    WHERE organization = ?1 AND event = ?2 AND webhook = ?3 AND run = ?4 AND number = 1";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[DUE, EVENT, LOOK, TAKE, FIRST_ATTEMPT];

/// Deliveries that were due when they were looked for, and the rest of the claim's answer.
pub(super) struct Found {
    due: Vec<Due>,
    claims: DeliveryClaims,
}

struct Due {
    key: DeliveryKey,
    created_at: Timestamp,
    event_type: EventType,
    body: Bytes,
}

impl Found {
    /// Whether nothing is to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The answer when nothing is to be taken.
    pub(super) fn into_claims(self) -> DeliveryClaims {
        self.claims
    }
}

/// Looks for due deliveries, and takes none.
pub(super) fn find(
    db: &Connection,
    webhooks: &WebhookCache,
    queues: &Queues,
    claim: &DeliveryClaim,
) -> Result<Found, StoreError> {
    let mut walk = Walk::new(db, webhooks, claim)?;
    // Those after the one at which the last claim stopped, then from the first up to that one.
    for (mut from, until) in [(claim.after.clone().map(Arc::new), None), (None, claim.after.as_ref())] {
        while let Some(webhook) = queues.next_due(from.as_deref(), claim.now) {
            if until.is_some_and(|until| *webhook > *until) {
                break;
            }
            if walk.visit(&webhook)? == Visit::NoMoreRoom {
                return Ok(walk.found);
            }
            from = Some(webhook);
        }
        if claim.after.is_none() {
            break;
        }
    }
    Ok(walk.found)
}

#[derive(PartialEq, Eq)]
enum Visit {
    GoOn,
    NoMoreRoom,
}

/// The way along the webhooks of which something is due.
struct Walk<'a> {
    db: &'a Connection,
    webhooks: &'a WebhookCache,
    claim: &'a DeliveryClaim,
    /// The shares of webhooks that have a cap or a rate of their own, by organization.
    shares: HashMap<OrganizationId, HashMap<WebhookId, u32>>,
    due: CachedStatement<'a>,
    event: CachedStatement<'a>,
    found: Found,
}

impl<'a> Walk<'a> {
    fn new(db: &'a Connection, webhooks: &'a WebhookCache, claim: &'a DeliveryClaim) -> Result<Self, StoreError> {
        Ok(Self {
            db,
            webhooks,
            claim,
            shares: HashMap::new(),
            due: db.prepare_cached(DUE)?,
            event: db.prepare_cached(EVENT)?,
            found: Found { due: Vec::new(), claims: DeliveryClaims::default() },
        })
    }

    fn visit(&mut self, webhook: &WebhookKey) -> Result<Visit, StoreError> {
        let left = self.claim.limit as usize - self.found.due.len();
        if left == 0 {
            return Ok(Visit::NoMoreRoom);
        }
        let slots = self.slots(webhook)? as usize;
        if slots == 0 {
            self.found.claims.saturated.push(webhook.clone());
            return Ok(Visit::GoOn);
        }
        let mut events = self.due_events(webhook, slots.saturating_add(1))?;
        if events.len() > slots {
            self.found.claims.saturated.push(webhook.clone());
        }
        events.truncate(slots.min(left));
        for (event, created_at) in events {
            self.keep(webhook, event, created_at)?;
        }
        if self.found.due.len() == self.claim.limit as usize {
            self.found.claims.stopped_at = Some(webhook.clone());
        }
        Ok(Visit::GoOn)
    }

    fn slots(&mut self, webhook: &WebhookKey) -> Result<u32, StoreError> {
        if let Some(slots) = self.claim.slots.get(webhook) {
            return Ok(*slots);
        }
        let (organization, id) = webhook;
        if !self.shares.contains_key(organization) {
            let webhooks = match self.webhooks.get(organization) {
                Some(known) => known,
                None => self.webhooks.load(self.db, organization)?,
            };
            let share =
                |webhook: &Arc<Webhook>| webhook.settings.claim_share(self.claim.slots_each).min(self.claim.most_each);
            let own = webhooks.iter().filter(|webhook| share(webhook) != self.claim.slots_each);
            let own = own.map(|webhook| (webhook.id.clone(), share(webhook))).collect();
            self.shares.insert(organization.clone(), own);
        }
        let own = self.shares.get(organization).and_then(|shares| shares.get(id));
        Ok(own.copied().unwrap_or(self.claim.slots_each))
    }

    /// Of which events something is due, and when they were published.
    fn due_events(
        &mut self,
        (organization, webhook): &WebhookKey,
        most: usize,
    ) -> Result<Vec<(EventId, Timestamp)>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let parameters = params![organization.as_str(), webhook.as_str(), millis(self.claim.now), most];
        let mut rows = self.due.query(parameters)?;
        let mut events = Vec::new();
        while let Some(row) = rows.next()? {
            events.push((columns::event_id(row, 0)?, columns::time(row, 1)?));
        }
        Ok(events)
    }

    /// Keeps a due delivery with its event. An event never changes, so that it can be read before the delivery is taken.
    fn keep(
        &mut self,
        (organization, webhook): &WebhookKey,
        event: EventId,
        created_at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut rows = self.event.query([organization.as_str(), event.as_str()])?;
        let row = rows.next()?.ok_or_else(|| StoreError::Damaged(format!("a delivery's event {event} is missing")))?;
        let (event_type, body) = (columns::event_type(row, 0)?, columns::body(row, 1)?);
        let key = DeliveryKey { organization: organization.clone(), event, webhook: webhook.clone() };
        self.found.due.push(Due { key, created_at, event_type, body });
        Ok(())
    }
}

/// Takes those of the deliveries found that are still due.
pub(super) fn take(
    transaction: &mut Transaction<'_>,
    claim: &DeliveryClaim,
    found: Found,
) -> Result<DeliveryClaims, StoreError> {
    let Found { due, mut claims } = found;
    for due in due {
        claims.deliveries.extend(take_one(transaction, claim, due)?);
    }
    Ok(claims)
}

fn take_one(
    transaction: &mut Transaction<'_>,
    claim: &DeliveryClaim,
    due: Due,
) -> Result<Option<ClaimedDelivery>, StoreError> {
    let Due { key, created_at, event_type, body } = due;
    let Some(begun) = begun(transaction.db, &key, created_at, claim.now)? else { return Ok(None) };
    let Begun { run, attempt, spoiled_by_us, interrupted, due_at } = begun;
    // An attempt that was left behind goes on to be the present one: it may have arrived.
    let attempt = if interrupted.is_some() { attempt } else { attempt + 1 };
    // Without its webhook it is being cancelled.
    let to = transaction.webhooks.find(transaction.db, &key.organization, &key.webhook)?;
    let Some(to) = to else { return Ok(None) };
    transaction.db.prepare_cached(TAKE)?.execute(params![
        key.organization.as_str(),
        millis(created_at),
        key.event.as_str(),
        key.webhook.as_str(),
        claim.lease.owner,
        millis(after(claim.now, claim.lease.duration_for(&to))),
        attempt,
        millis(interrupted.unwrap_or(claim.at)),
    ])?;
    transaction.queues.touch(&key.organization, &key.webhook);
    let asks = attempt > 1 && to.previous_secret.is_some();
    let first_attempt_at = if asks { first_attempt_at(transaction.db, &key, run)? } else { None };
    let history = History { attempts: attempt.saturating_sub(1), spoiled_by_us, on_request: run > FIRST_RUN };
    Ok(Some(ClaimedDelivery {
        key,
        created_at,
        run,
        attempt,
        history,
        interrupted,
        due_at,
        first_attempt_at,
        event_type,
        body,
        webhook: to,
    }))
}

fn first_attempt_at(db: &Connection, key: &DeliveryKey, run: u32) -> Result<Option<Timestamp>, StoreError> {
    let mut statement = db.prepare_cached(FIRST_ATTEMPT)?;
    let (organization, event, webhook) = (key.organization.as_str(), key.event.as_str(), key.webhook.as_str());
    let mut rows = statement.query(params![organization, event, webhook, run])?;
    rows.next()?.map(|row| columns::time(row, 0)).transpose()
}

/// How far a delivery has come.
struct Begun {
    run: u32,
    attempt: u32,
    spoiled_by_us: u32,
    /// When the attempt began that was left behind, if one was.
    interrupted: Option<Timestamp>,
    due_at: Timestamp,
}

/// How far a delivery has come, if it is still due.
fn begun(
    db: &Connection,
    key: &DeliveryKey,
    created_at: Timestamp,
    now: Timestamp,
) -> Result<Option<Begun>, StoreError> {
    let mut statement = db.prepare_cached(LOOK)?;
    let (organization, event, webhook) = (key.organization.as_str(), key.event.as_str(), key.webhook.as_str());
    let mut rows = statement.query(params![organization, millis(created_at), event, webhook, millis(now)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (run, attempt, spoiled_by_us) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let interrupted = columns::optional_time(row, 3)?;
    Ok(Some(Begun { run, attempt, spoiled_by_us, interrupted, due_at: columns::time(row, 4)? }))
}
