//! Events, their deliveries and the attempts at them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, History, Outcome};
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use super::undelivered::Undelivered;
use super::{State, WebhookKey};
use crate::store::{
    AttemptRecord, Backlog, ClaimedDelivery, DeliveryClaim, DeliveryClaims, DeliveryView, EventView, FinishAttempt,
    FinishOutcome, Lease, NewEvent, Publish, PublishOutcome, PublishedEvent, UndeliveredKind,
};

/// The run of a delivery that a publish begins.
pub(super) const FIRST_RUN: u32 = 1;

#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries {
    pub(super) events: BTreeMap<(OrganizationId, EventId), StoredEvent>,
    pub(super) waiting: BTreeMap<DeliveryKey, Waiting>,
    pub(super) ended: BTreeMap<DeliveryKey, Ended>,
    pub(super) undelivered: BTreeMap<DeliveryKey, Undelivered>,
    pub(super) attempts: BTreeMap<DeliveryKey, BTreeMap<(u32, u32), AttemptRecord>>,
}

#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    pub(super) event: NewEvent,
    deliveries: u32,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    /// From when anyone may act on it: the next attempt's time or, while leased, the lease's end.
    due_at: Timestamp,
    run: u32,
    history: History,
    leased: Option<Leased>,
}

#[derive(Debug, Clone)]
struct Leased {
    owner: Arc<str>,
    started_at: Timestamp,
}

#[derive(Debug, Clone)]
pub(super) struct Ended {
    run: u32,
    pub(super) state: DeliveryState,
    reason: &'static str,
}

impl Waiting {
    /// A run's beginning.
    fn begun(run: u32, due_at: Timestamp) -> Self {
        let history = History { on_request: run > FIRST_RUN, ..History::default() };
        Self { due_at, run, history, leased: None }
    }

    fn attempt(&self) -> u32 {
        self.history.attempts + 1
    }

    fn is_leased_for(&self, owner: &str, run: u32, attempt: u32) -> bool {
        (self.run, self.attempt()) == (run, attempt)
            && self.leased.as_ref().is_some_and(|leased| *leased.owner == *owner)
    }

    /// Takes the lease. Where another lease has ended without a word, its attempt goes on to be the present one, since
    /// it may have arrived, and its start is given back.
    fn lease(&mut self, lease: &Lease, to: &Webhook, now: Timestamp, at: Timestamp) -> Option<Timestamp> {
        let interrupted = self.leased.take().map(|leased| leased.started_at);
        self.leased = Some(Leased { owner: lease.owner.clone(), started_at: interrupted.unwrap_or(at) });
        self.due_at = now.saturating_add(lease.duration_for(to)).unwrap_or(Timestamp::MAX);
        interrupted
    }

    fn claimed(
        &self,
        key: DeliveryKey,
        interrupted: Option<Timestamp>,
        due_at: Timestamp,
        event: &NewEvent,
        to: &Arc<Webhook>,
    ) -> ClaimedDelivery {
        ClaimedDelivery {
            key,
            created_at: event.created_at,
            run: self.run,
            attempt: self.attempt(),
            history: self.history,
            interrupted,
            due_at,
            first_attempt_at: None,
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
        let Publish { organization, events, due_at, lease, mut room, about } = publish;
        let mut webhooks = self.webhooks(&organization);
        if let Some(about) = about {
            webhooks = webhooks.iter().filter(|webhook| webhook.id != about).cloned().collect();
        }
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
                let mut waiting = Waiting::begun(FIRST_RUN, due_at);
                if let Some(free) = room.get_mut(&to.id).filter(|free| **free > 0) {
                    *free -= 1;
                    waiting.lease(&lease, to, due_at, due_at);
                    leased.push(waiting.claimed(key.clone(), None, due_at, &event, to));
                }
                self.deliveries.waiting.insert(key, waiting);
            }
            let held = self.deliveries.note_absences(&webhooks, &event);
            let deliveries = takers.len() as u32 + held;
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
            let Some(webhook) = self.webhooks.get(&key) else { continue };
            let own_share = webhook.settings.claim_share(claim.slots_each).min(claim.most_each);
            let slots = *claim.slots.get(&key).unwrap_or(&own_share) as usize;
            if due.len() > slots {
                claims.saturated.push(key.clone());
            }
            for delivery in due.into_iter().take(slots.min(left)) {
                claims.deliveries.extend(self.deliveries.lease(delivery, claim, webhook));
            }
            if claims.deliveries.len() == claim.limit as usize {
                claims.stopped_at = Some(key);
            }
        }
        claims.next_due = self.deliveries.first_due().into_values().filter(|due| *due > claim.now).min();
        claims
    }

    pub(super) fn finish_attempt(&mut self, finish: FinishAttempt) -> FinishOutcome {
        let FinishAttempt { key, created_at, owner, attempt, decision, notices } = finish;
        if self.deliveries.event_of(&key).is_none_or(|event| event.created_at != created_at) {
            return FinishOutcome::LeaseLost;
        }
        let ended_at = attempt.started_at.saturating_add(attempt.duration).unwrap_or(Timestamp::MAX);
        let (run, number, outcome) = (attempt.run, attempt.number, attempt.outcome);
        let is_answered =
            matches!(decision, Decision::Exhausted { .. }) && self.deliveries.is_answered(&key, run..=run);
        self.deliveries.write_attempt(&key, attempt);
        let waiting =
            self.deliveries.waiting.get_mut(&key).filter(|waiting| waiting.is_leased_for(&owner, run, number));
        let Some(waiting) = waiting else {
            let arrived = decision == Decision::Delivered && self.deliveries.arrived_after_all(&key, run);
            return if arrived { FinishOutcome::Applied { switched_off: false } } else { FinishOutcome::LeaseLost };
        };
        let decision = if is_answered { Decision::Delivered } else { decision };
        let mut switched_off = false;
        match decision {
            Decision::Retry { at } => {
                *waiting = Waiting { due_at: at, run, history: waiting.history.after(outcome), leased: None };
            }
            Decision::Delivered => {
                self.deliveries.end(&key, DeliveryState::Delivered, "");
                let webhook = self.webhooks.get_mut(&(key.organization.clone(), key.webhook.clone()));
                if let Some(webhook) = webhook.filter(|webhook| webhook.exhausted > 0) {
                    Arc::make_mut(webhook).exhausted = 0;
                }
            }
            Decision::Exhausted { switch_off: false } => self.deliveries.end(&key, DeliveryState::Exhausted, ""),
            Decision::Exhausted { switch_off: true } => {
                self.deliveries.end(&key, DeliveryState::Exhausted, "");
                if let Some(webhook) = self.webhooks.get_mut(&(key.organization.clone(), key.webhook.clone())) {
                    switched_off = Arc::make_mut(webhook).note_exhausted(&key.event, ended_at);
                }
            }
        }
        if let (Decision::Exhausted { .. }, Some(notices)) = (decision, notices) {
            self.publish(notices.into_publish(key, switched_off));
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

    /// When the first of each webhook's deliveries is due.
    fn first_due(&self) -> BTreeMap<(&OrganizationId, &WebhookId), Timestamp> {
        let mut first = BTreeMap::new();
        for (key, waiting) in &self.waiting {
            let due = first.entry((&key.organization, &key.webhook)).or_insert(waiting.due_at);
            *due = waiting.due_at.min(*due);
        }
        first
    }

    fn lease(&mut self, key: DeliveryKey, claim: &DeliveryClaim, to: &Arc<Webhook>) -> Option<ClaimedDelivery> {
        let waiting = self.waiting.get_mut(&key)?;
        let event = &self.events.get(&(key.organization.clone(), key.event.clone()))?.event;
        let due_at = waiting.due_at;
        let interrupted = waiting.lease(&claim.lease, to, claim.now, claim.at);
        let lines = self.attempts.get(&key);
        let first = lines.and_then(|lines| lines.get(&(waiting.run, 1))).map(|line| line.started_at);
        let first_attempt_at = first.filter(|_| waiting.attempt() > 1 && to.previous_secret.is_some());
        Some(ClaimedDelivery { first_attempt_at, ..waiting.claimed(key, interrupted, due_at, event, to) })
    }

    /// Writes a line of the log. Each attempt number of a run has one line, and the first word on it stays, but that "we do not
    /// know" gives way to what a late finish tells.
    fn write_attempt(&mut self, key: &DeliveryKey, attempt: AttemptRecord) {
        if !self.waiting.contains_key(key) && !self.ended.contains_key(key) {
            return;
        }
        let lines = self.attempts.entry(key.clone()).or_default();
        let line = lines.entry((attempt.run, attempt.number)).or_insert_with(|| attempt.clone());
        if line.outcome == Outcome::Failed(FailureKind::Interrupted) {
            *line = attempt;
        }
    }

    /// Whether an attempt of these runs was answered 2xx, as far as it has been written.
    fn is_answered(&self, key: &DeliveryKey, runs: RangeInclusive<u32>) -> bool {
        let mut attempts = self.attempts.get(key).into_iter().flat_map(BTreeMap::values);
        attempts.any(|attempt| runs.contains(&attempt.run) && attempt.outcome.is_success())
    }

    /// Lets a delivery that was cancelled or given up under its attempt end as what the endpoint knows it is.
    fn arrived_after_all(&mut self, key: &DeliveryKey, run: u32) -> bool {
        let Some(ended) = self.ended.get_mut(key).filter(|ended| ended.run == run) else { return false };
        let is_open_to_it = matches!(ended.state, DeliveryState::Cancelled | DeliveryState::Exhausted);
        if is_open_to_it {
            *ended = Ended { run, state: DeliveryState::Delivered, reason: "" };
            self.undelivered.remove(key);
        }
        is_open_to_it
    }

    fn end(&mut self, key: &DeliveryKey, state: DeliveryState, reason: &'static str) {
        let run = self.waiting.remove(key).map_or(FIRST_RUN, |waiting| waiting.run);
        self.undelivered.remove(key);
        self.ended.insert(key.clone(), Ended { run, state, reason });
        // What an earlier run delivered the webhook has.
        if state == DeliveryState::Exhausted && !self.is_answered(key, 0..=run.saturating_sub(1)) {
            self.undelivered.insert(key.clone(), Undelivered { kind: UndeliveredKind::Exhausted, off: None });
        }
    }

    /// Notes for which webhooks that are off the event is held or missed; gives how many hold it.
    fn note_absences(&mut self, webhooks: &[Arc<Webhook>], event: &NewEvent) -> u32 {
        let mut held = 0;
        for webhook in webhooks.iter().filter(|webhook| webhook.misses(event.event_type.as_str())) {
            let kind = UndeliveredKind::of_absence(webhook);
            held += u32::from(kind == UndeliveredKind::Held);
            let (organization, id) = (webhook.organization.clone(), webhook.id.clone());
            let key = DeliveryKey { organization, event: event.id.clone(), webhook: id };
            self.undelivered.insert(key, Undelivered { kind, off: webhook.off.clone() });
        }
        held
    }

    /// Makes a delivery that does not wait wait again, in the run after its last one; `before` stands for that where it
    /// never had one.
    pub(super) fn begin_run(&mut self, key: DeliveryKey, before: u32, due_at: Timestamp) {
        self.undelivered.remove(&key);
        let run = self.ended.remove(&key).map_or(before, |ended| ended.run) + 1;
        self.waiting.insert(key, Waiting::begun(run, due_at));
    }

    /// Whether a delivery waits, or is under way.
    pub(super) fn waits(&self, key: &DeliveryKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// How many of a webhook's deliveries are due.
    pub(super) fn count_due(&self, webhook: &WebhookKey, now: Timestamp) -> usize {
        let of_webhook = |key: &DeliveryKey| key.organization == webhook.0 && key.webhook == webhook.1;
        self.waiting.iter().filter(|(key, waiting)| of_webhook(key) && waiting.due_at <= now).count()
    }

    /// The event of a delivery.
    pub(super) fn event_of(&self, key: &DeliveryKey) -> Option<&NewEvent> {
        self.events.get(&(key.organization.clone(), key.event.clone())).map(|stored| &stored.event)
    }

    /// Cancels what waits or is held for a webhook, and forgets what it missed; how many are cancelled.
    pub(super) fn cancel(&mut self, webhook: &WebhookKey, reason: &'static str) -> u32 {
        let of_webhook = |key: &&DeliveryKey| key.organization == webhook.0 && key.webhook == webhook.1;
        let held = self.undelivered.iter().filter(|(_, one)| one.kind == UndeliveredKind::Held).map(|(key, _)| key);
        let keys: Vec<_> = self.waiting.keys().chain(held).filter(of_webhook).cloned().collect();
        for key in &keys {
            self.end(key, DeliveryState::Cancelled, reason);
        }
        self.undelivered.retain(|key, _| !of_webhook(&key));
        u32::try_from(keys.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn event(&self, organization: &OrganizationId, id: &EventId) -> Option<EventView> {
        let NewEvent { id, event_type, timestamp, created_at, body, .. } =
            self.events.get(&(organization.clone(), id.clone()))?.event.clone();
        let of_event = |key: &&DeliveryKey| key.organization == *organization && key.event == id;
        let held = self.undelivered.iter().filter(|(_, one)| one.kind == UndeliveredKind::Held).map(|(key, _)| key);
        let keys = self.waiting.keys().chain(self.ended.keys()).chain(held);
        let mut deliveries: Vec<_> = keys.filter(of_event).map(|key| self.view(key)).collect();
        deliveries.sort_by(|a, b| a.webhook.cmp(&b.webhook));
        let missed = self.missed_by(&(organization.clone(), id.clone()));
        Some(EventView { id, event_type, timestamp, created_at, body, deliveries, missed })
    }

    pub(super) fn view(&self, key: &DeliveryKey) -> DeliveryView {
        let (waiting, ended) = (self.waiting.get(key), self.ended.get(key));
        let (run, state) = match (waiting, ended) {
            (Some(waiting), _) => (waiting.run, DeliveryState::Waiting),
            (None, Some(ended)) => (ended.run, ended.state),
            (None, None) => (FIRST_RUN, DeliveryState::Held),
        };
        DeliveryView {
            webhook: key.webhook.clone(),
            state,
            run,
            next_attempt_at: waiting.filter(|waiting| waiting.leased.is_none()).map(|waiting| waiting.due_at),
            in_flight: waiting.is_some_and(|waiting| waiting.leased.is_some()),
            reason: ended.map_or("", |ended| ended.reason).to_owned(),
            attempts: self.attempts.get(key).map(|lines| lines.values().cloned().collect()).unwrap_or_default(),
        }
    }

    /// How many deliveries wait, how many of them are leased, when the oldest is or was due, and how many are held.
    pub(super) fn backlog(&self) -> Backlog {
        Backlog {
            deliveries: self.waiting.len() as u64,
            deliveries_leased: self.waiting.values().filter(|waiting| waiting.leased.is_some()).count() as u64,
            oldest_delivery_due: self.waiting.values().map(|waiting| waiting.due_at).min(),
            deliveries_held: self.undelivered.values().filter(|one| one.kind == UndeliveredKind::Held).count() as u64,
            ..Backlog::default()
        }
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
