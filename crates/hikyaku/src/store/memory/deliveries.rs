//! Events, their deliveries and the attempts at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, History, Outcome};
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId};
use hikyaku_core::webhook::{OffReason, Webhook};
use jiff::Timestamp;

use super::{State, WebhookKey, switch_off};
use crate::store::{
    AttemptRecord, ClaimedDelivery, DeliveryClaim, DeliveryClaims, DeliveryView, EventView, FinishAttempt,
    FinishOutcome, Lease, LogEntry, LogPosition, LogQuery, NewEvent, Publish, PublishOutcome, PublishedEvent,
};

#[derive(Debug, Default)]
pub(super) struct Deliveries {
    events: BTreeMap<(OrganizationId, EventId), StoredEvent>,
    waiting: BTreeMap<DeliveryKey, Waiting>,
    ended: BTreeMap<DeliveryKey, Ended>,
    attempts: BTreeMap<DeliveryKey, BTreeMap<u32, AttemptRecord>>,
}

#[derive(Debug)]
struct StoredEvent {
    event: NewEvent,
    deliveries: u32,
}

#[derive(Debug)]
struct Waiting {
    /// From when anyone may act on it: the next attempt's time or, while leased, the lease's end.
    due_at: Timestamp,
    history: History,
    leased: Option<Leased>,
}

#[derive(Debug)]
struct Leased {
    owner: Arc<str>,
    started_at: Timestamp,
}

#[derive(Debug)]
struct Ended {
    state: DeliveryState,
    reason: &'static str,
}

impl Waiting {
    fn attempt(&self) -> u32 {
        self.history.attempts + 1
    }

    fn is_leased_for(&self, owner: &str, attempt: u32) -> bool {
        self.attempt() == attempt && self.leased.as_ref().is_some_and(|leased| *leased.owner == *owner)
    }

    /// Takes the lease. Where another lease has ended without a word, its attempt goes on to be the present one, since
    /// it may have arrived, and its start is given back.
    fn lease(&mut self, lease: &Lease, now: Timestamp, at: Timestamp) -> Option<Timestamp> {
        let interrupted = self.leased.take().map(|leased| leased.started_at);
        self.leased = Some(Leased { owner: lease.owner.clone(), started_at: interrupted.unwrap_or(at) });
        self.due_at = now.saturating_add(lease.duration).unwrap_or(Timestamp::MAX);
        interrupted
    }

    fn claimed(
        &self,
        key: DeliveryKey,
        interrupted: Option<Timestamp>,
        event: &NewEvent,
        to: &Arc<Webhook>,
    ) -> ClaimedDelivery {
        ClaimedDelivery {
            key,
            attempt: self.attempt(),
            history: self.history,
            interrupted,
            event_type: event.event_type.clone(),
            body: event.body.clone(),
            webhook: to.clone(),
        }
    }
}

impl State {
    pub(super) fn publish(&mut self, publish: Publish) -> PublishOutcome {
        if let Some(conflict) = publish.events.iter().find(|event| self.deliveries.conflicts(&publish, event)) {
            return PublishOutcome::Conflict(conflict.id.clone());
        }
        let Publish { organization, events, due_at, lease, mut room } = publish;
        let webhooks = self.webhooks(&organization);
        let mut stored = Vec::new();
        for event in events {
            if let Some(known) = self.deliveries.events.get(&(organization.clone(), event.id.clone())) {
                stored.push(published(&known.event, known.deliveries, true, Vec::new()));
                continue;
            }
            let mut leased = Vec::new();
            let takers: Vec<_> = webhooks.iter().filter(|webhook| webhook.takes(event.event_type.as_str())).collect();
            for to in &takers {
                let key =
                    DeliveryKey { organization: organization.clone(), event: event.id.clone(), webhook: to.id.clone() };
                let mut waiting = Waiting { due_at, history: History::default(), leased: None };
                if let Some(free) = room.get_mut(&to.id).filter(|free| **free > 0) {
                    *free -= 1;
                    waiting.lease(&lease, due_at, due_at);
                    leased.push(waiting.claimed(key.clone(), None, &event, to));
                }
                self.deliveries.waiting.insert(key, waiting);
            }
            let deliveries = takers.len() as u32;
            stored.push(published(&event, deliveries, false, leased));
            let key = (organization.clone(), event.id.clone());
            self.deliveries.events.insert(key, StoredEvent { event, deliveries });
        }
        PublishOutcome::Stored(stored)
    }

    pub(super) fn claim_deliveries(&mut self, claim: &DeliveryClaim) -> DeliveryClaims {
        let mut claims = DeliveryClaims::default();
        for (key, due) in in_turn(self.deliveries.due(claim.now), claim.after.as_ref()) {
            let left = claim.limit as usize - claims.deliveries.len();
            if left == 0 {
                break;
            }
            let slots = *claim.slots.get(&key).unwrap_or(&claim.slots_each) as usize;
            if due.len() > slots {
                claims.saturated.push(key.clone());
            }
            let Some(webhook) = self.webhooks.get(&key) else { continue };
            for delivery in due.into_iter().take(slots.min(left)) {
                claims.deliveries.extend(self.deliveries.lease(delivery, claim, webhook));
            }
            if claims.deliveries.len() == claim.limit as usize {
                claims.stopped_at = Some(key);
            }
        }
        claims.next_due = self.deliveries.waiting.values().map(|w| w.due_at).filter(|due| *due > claim.now).min();
        claims
    }

    pub(super) fn finish_attempt(&mut self, finish: FinishAttempt) -> FinishOutcome {
        let FinishAttempt { key, owner, attempt, decision } = finish;
        let ended_at = attempt.started_at.saturating_add(attempt.duration).unwrap_or(Timestamp::MAX);
        let (number, outcome) = (attempt.number, attempt.outcome);
        self.deliveries.write_attempt(&key, attempt);
        let waiting = self.deliveries.waiting.get_mut(&key).filter(|waiting| waiting.is_leased_for(&owner, number));
        let Some(waiting) = waiting else { return FinishOutcome::LeaseLost };
        let mut switched_off = false;
        match decision {
            Decision::Retry { at } => {
                *waiting = Waiting { due_at: at, history: waiting.history.after(outcome), leased: None };
            }
            Decision::Delivered => self.deliveries.end(&key, DeliveryState::Delivered, ""),
            Decision::Exhausted { switch_off: false } => self.deliveries.end(&key, DeliveryState::Exhausted, ""),
            Decision::Exhausted { switch_off: true } => {
                self.deliveries.end(&key, DeliveryState::Exhausted, "");
                if let Some(webhook) = self.webhooks.get_mut(&(key.organization, key.webhook)) {
                    switched_off = webhook.off.is_none();
                    switch_off(Arc::make_mut(webhook), ended_at, OffReason::Exhausted(key.event));
                }
            }
        }
        FinishOutcome::Applied { switched_off }
    }
}

impl Deliveries {
    /// Whether the event's id is taken by another content, in the store or earlier in the same publish.
    fn conflicts(&self, publish: &Publish, event: &NewEvent) -> bool {
        let stored = self.events.get(&(publish.organization.clone(), event.id.clone())).map(|known| &known.event);
        let first = stored.or_else(|| publish.events.iter().find(|other| other.id == event.id));
        first.is_some_and(|first| first.content_hash != event.content_hash)
    }

    /// What is due, by webhook; of one webhook the earliest first.
    fn due(&self, now: Timestamp) -> BTreeMap<WebhookKey, Vec<DeliveryKey>> {
        let mut due: Vec<_> = self.waiting.iter().filter(|(_, waiting)| waiting.due_at <= now).collect();
        due.sort_by_key(|(key, waiting)| (waiting.due_at, *key));
        let mut by_webhook: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, _) in due {
            let webhook = (key.organization.clone(), key.webhook.clone());
            by_webhook.entry(webhook).or_default().push(key.clone());
        }
        by_webhook
    }

    fn lease(&mut self, key: DeliveryKey, claim: &DeliveryClaim, to: &Arc<Webhook>) -> Option<ClaimedDelivery> {
        let waiting = self.waiting.get_mut(&key)?;
        let event = &self.events.get(&(key.organization.clone(), key.event.clone()))?.event;
        let interrupted = waiting.lease(&claim.lease, claim.now, claim.at);
        Some(waiting.claimed(key, interrupted, event, to))
    }

    /// Writes a line of the log. Each attempt number has one line, and the first word on it stays, but that "we do not
    /// know" gives way to what a late finish tells.
    fn write_attempt(&mut self, key: &DeliveryKey, attempt: AttemptRecord) {
        if !self.waiting.contains_key(key) && !self.ended.contains_key(key) {
            return;
        }
        let lines = self.attempts.entry(key.clone()).or_default();
        let line = lines.entry(attempt.number).or_insert_with(|| attempt.clone());
        if line.outcome == Outcome::Failed(FailureKind::Interrupted) {
            *line = attempt;
        }
    }

    fn end(&mut self, key: &DeliveryKey, state: DeliveryState, reason: &'static str) {
        self.waiting.remove(key);
        self.ended.insert(key.clone(), Ended { state, reason });
    }

    /// Cancels what waits for a webhook.
    pub(super) fn cancel(&mut self, webhook: &WebhookKey, reason: &'static str) {
        let of_webhook = |key: &&DeliveryKey| key.organization == webhook.0 && key.webhook == webhook.1;
        let keys: Vec<_> = self.waiting.keys().filter(of_webhook).cloned().collect();
        for key in keys {
            self.end(&key, DeliveryState::Cancelled, reason);
        }
    }

    pub(super) fn event(&self, organization: &OrganizationId, id: &EventId) -> Option<EventView> {
        let NewEvent { id, event_type, timestamp, body, .. } =
            self.events.get(&(organization.clone(), id.clone()))?.event.clone();
        let of_event = |key: &&DeliveryKey| key.organization == *organization && key.event == id;
        let waiting = self.waiting.iter().map(|(key, waiting)| (key, Some(waiting), None));
        let ended = self.ended.iter().map(|(key, ended)| (key, None, Some(ended)));
        let mut deliveries: Vec<_> = waiting
            .chain(ended)
            .filter(|(key, ..)| of_event(key))
            .map(|(key, waiting, ended)| self.view(key, waiting, ended))
            .collect();
        deliveries.sort_by(|a, b| a.webhook.cmp(&b.webhook));
        Some(EventView { id, event_type, timestamp, body, deliveries })
    }

    fn view(&self, key: &DeliveryKey, waiting: Option<&Waiting>, ended: Option<&Ended>) -> DeliveryView {
        DeliveryView {
            webhook: key.webhook.clone(),
            state: ended.map_or(DeliveryState::Waiting, |ended| ended.state),
            next_attempt_at: waiting.filter(|waiting| waiting.leased.is_none()).map(|waiting| waiting.due_at),
            in_flight: waiting.is_some_and(|waiting| waiting.leased.is_some()),
            reason: ended.map_or("", |ended| ended.reason).to_owned(),
            attempts: self.attempts.get(key).map(|lines| lines.values().cloned().collect()).unwrap_or_default(),
        }
    }

    pub(super) fn log(&self, query: &LogQuery) -> Vec<LogEntry> {
        let of_webhook = |key: &DeliveryKey| key.organization == query.organization && key.webhook == query.webhook;
        let place = |event: &EventId, attempt: &AttemptRecord| (attempt.started_at, event.clone(), attempt.number);
        let before = query
            .before
            .as_ref()
            .map(|LogPosition { started_at, event, number }| (*started_at, event.clone(), *number));
        let mut lines: Vec<_> = self
            .attempts
            .iter()
            .filter(|(key, _)| of_webhook(key))
            .flat_map(|(key, lines)| lines.values().map(|attempt| (place(&key.event, attempt), attempt)))
            .filter(|(place, _)| before.as_ref().is_none_or(|before| place < before))
            .collect();
        lines.sort_by(|(a, _), (b, _)| b.cmp(a));
        let entry = |((_, event, _), attempt): (_, &AttemptRecord)| {
            let known = self.events.get(&(query.organization.clone(), event))?;
            let NewEvent { id, event_type, .. } = known.event.clone();
            Some(LogEntry { event: id, event_type, attempt: attempt.clone() })
        };
        lines.into_iter().filter_map(entry).take(query.limit as usize).collect()
    }

    /// How many deliveries wait, and when the oldest is or was due.
    pub(super) fn backlog(&self) -> (u64, Option<Timestamp>) {
        (self.waiting.len() as u64, self.waiting.values().map(|waiting| waiting.due_at).min())
    }
}

fn published(event: &NewEvent, deliveries: u32, repeated: bool, leased: Vec<ClaimedDelivery>) -> PublishedEvent {
    let NewEvent { id, event_type, timestamp, .. } = event.clone();
    PublishedEvent { id, event_type, timestamp, deliveries, repeated, leased }
}

/// The webhooks in their order, those after `after` first.
fn in_turn<T>(
    mut due: BTreeMap<WebhookKey, T>,
    after: Option<&WebhookKey>,
) -> impl Iterator<Item = (WebhookKey, T)> + use<T> {
    let mut later = after.map_or_else(BTreeMap::new, |after| due.split_off(after));
    let last = after.and_then(|after| later.remove_entry(after));
    later.into_iter().chain(due).chain(last)
}
