//! What webhooks did not get, and the recoveries that bring it after all.

use std::collections::BTreeMap;

use hikyaku_core::ids::{DeliveryKey, EventId, RecoveryId};
use hikyaku_core::webhook::Off;
use jiff::{SignedDuration, Timestamp};

use super::deliveries::{Deliveries, FIRST_RUN};
use super::{State, WebhookKey};
use crate::store::{
    Missed, MissedEntry, MissedEvents, MissedPosition, MissedQuery, NewRecovery, RecoverOutcome, Recovery, RecoveryKey,
    RecoveryState, RecoveryStep, RecoveryStepped, ResendOutcome, UndeliveredKind, Which,
};

/// An event that a webhook did not get.
#[derive(Debug, Clone)]
pub(super) struct Undelivered {
    pub(super) kind: UndeliveredKind,
    /// Why the webhook was off; `None` of an exhausted one.
    pub(super) off: Option<Off>,
}

/// The recoveries, each with the last event that it made due.
#[derive(Debug, Clone, Default)]
pub(super) struct Recoveries(BTreeMap<RecoveryKey, (Recovery, Option<MissedPosition>)>);

impl Deliveries {
    /// What a webhook did not get, of these kinds and of this period, oldest first.
    fn undelivered(
        &self,
        webhook: &WebhookKey,
        which: Which,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Vec<MissedEntry> {
        let of_webhook = |key: &DeliveryKey| key.organization == webhook.0 && key.webhook == webhook.1;
        let all = self.undelivered.iter().filter(|(key, _)| of_webhook(key));
        let mut entries: Vec<_> = all
            .filter(|(_, undelivered)| which.kinds().contains(&undelivered.kind))
            .filter_map(|(key, undelivered)| self.entry(key, undelivered.kind))
            .filter(|entry| from.is_none_or(|from| entry.position.timestamp >= from))
            .filter(|entry| to.is_none_or(|to| entry.position.timestamp < to))
            .collect();
        entries.sort_by(|a, b| a.position.cmp(&b.position));
        entries
    }

    fn entry(&self, key: &DeliveryKey, kind: UndeliveredKind) -> Option<MissedEntry> {
        let event = self.event_of(key)?;
        let position = MissedPosition { timestamp: event.timestamp, event: event.id.clone() };
        Some(MissedEntry { position, event_type: event.event_type.clone(), kind })
    }

    pub(super) fn missed(&self, query: MissedQuery) -> MissedEvents {
        let webhook = (query.organization, query.webhook);
        let entries = self.undelivered(&webhook, Which::All, query.from, query.to);
        let count = |kind| {
            let count = entries.iter().filter(|entry| entry.kind == kind).count() as u64;
            count.min(query.count_to.into())
        };
        let (missed, exhausted) = (count(UndeliveredKind::Missed), count(UndeliveredKind::Exhausted));
        let page = entries.into_iter().filter(|entry| query.after.as_ref().is_none_or(|after| entry.position > *after));
        MissedEvents { entries: page.take(query.limit as usize).collect(), missed, exhausted }
    }

    /// The webhooks that missed an event.
    pub(super) fn missed_by(&self, event: &(hikyaku_core::ids::OrganizationId, EventId)) -> Vec<Missed> {
        let of_event = self.undelivered.iter().filter(|(key, _)| key.organization == event.0 && key.event == event.1);
        let missed = of_event.filter(|(_, undelivered)| undelivered.kind == UndeliveredKind::Missed);
        missed.filter_map(|(key, one)| Some(Missed { webhook: key.webhook.clone(), off: one.off.clone()? })).collect()
    }
}

impl State {
    pub(super) fn resend(&mut self, key: &DeliveryKey, due_at: Timestamp) -> ResendOutcome {
        if self.deliveries.event_of(key).is_none() {
            return ResendOutcome::NoSuchEvent;
        }
        if !self.webhooks.contains_key(&(key.organization.clone(), key.webhook.clone())) {
            return ResendOutcome::NoSuchWebhook;
        }
        if self.deliveries.waits(key) {
            return ResendOutcome::StillWaiting;
        }
        self.deliveries.begin_run(key.clone(), FIRST_RUN, due_at);
        ResendOutcome::Begun
    }

    pub(super) fn recover(&mut self, new: NewRecovery) -> RecoverOutcome {
        let webhook = (new.organization, new.webhook);
        let Some(known) = self.webhooks.get(&webhook) else { return RecoverOutcome::NoSuchWebhook };
        if let Some(off) = &known.off {
            return RecoverOutcome::Off(off.clone());
        }
        let asked = self.recoveries.0.iter().filter(|(key, _)| (&key.0, &key.1) == (&webhook.0, &webhook.1));
        let unended = |recovery: &Recovery| recovery.state == RecoveryState::Running && recovery.which != Which::Held;
        if let Some((key, _)) = asked.into_iter().find(|(_, (recovery, _))| unended(recovery)) {
            return RecoverOutcome::Running(key.2.clone());
        }
        RecoverOutcome::Begun(self.begin_recovery(webhook, new.id, new.which, (Some(new.from), Some(new.to)), new.at))
    }

    /// Begins the release of what is held for a webhook, if anything is.
    pub(super) fn release(&mut self, webhook: &WebhookKey, at: Timestamp) {
        if !self.deliveries.undelivered(webhook, Which::Held, None, None).is_empty() {
            self.begin_recovery(webhook.clone(), RecoveryId::of_held(), Which::Held, (None, None), at);
        }
    }

    fn begin_recovery(
        &mut self,
        webhook: WebhookKey,
        id: RecoveryId,
        which: Which,
        (from, to): (Option<Timestamp>, Option<Timestamp>),
        created_at: Timestamp,
    ) -> Recovery {
        let total = self.deliveries.undelivered(&webhook, which, from, to).len() as u64;
        let state = RecoveryState::Running;
        let recovery = Recovery { id: id.clone(), which, from, to, total, recovered: 0, state, created_at };
        self.recoveries.0.insert((webhook.0, webhook.1, id), (recovery.clone(), None));
        recovery
    }

    pub(super) fn step_recoveries(&mut self, step: &RecoveryStep) -> RecoveryStepped {
        let running = self.recoveries.0.iter().filter(|(key, _)| step.after.as_ref().is_none_or(|after| *key > after));
        let running = running.filter(|(_, (recovery, _))| recovery.state == RecoveryState::Running);
        let keys: Vec<_> = running.map(|(key, _)| key.clone()).take(step.limit as usize).collect();
        let mut stepped = RecoveryStepped::default();
        for key in &keys {
            let webhook = (key.0.clone(), key.1.clone());
            let is_on = self.webhooks.get(&webhook).is_some_and(|webhook| webhook.off.is_none());
            let Some((recovery, position)) = self.recoveries.0.get_mut(key) else { continue };
            if is_on {
                stepped.made_due += self.deliveries.make_due(step, &webhook, recovery, position);
                stepped.running += u32::from(recovery.state == RecoveryState::Running);
            }
        }
        stepped.stopped_at = keys.last().filter(|_| keys.len() == step.limit as usize).cloned();
        stepped
    }
}

impl Deliveries {
    fn make_due(
        &mut self,
        step: &RecoveryStep,
        webhook: &WebhookKey,
        recovery: &mut Recovery,
        position: &mut Option<MissedPosition>,
    ) -> u32 {
        let room = (step.most_due as usize).saturating_sub(self.count_due(webhook, step.now));
        if room == 0 {
            return 0;
        }
        let all = self.undelivered(webhook, recovery.which, recovery.from, recovery.to);
        let next = all.into_iter().filter(|entry| position.as_ref().is_none_or(|last| entry.position > *last));
        let next: Vec<_> = next.take(room).collect();
        let before = if recovery.which == Which::Held { FIRST_RUN - 1 } else { FIRST_RUN };
        for (place, entry) in next.iter().enumerate() {
            let event = entry.position.event.clone();
            let key = DeliveryKey { organization: webhook.0.clone(), event, webhook: webhook.1.clone() };
            let back = SignedDuration::from_millis((next.len() - 1 - place) as i64);
            self.begin_run(key, before, step.now.checked_sub(back).unwrap_or(step.now));
        }
        recovery.recovered += next.len() as u64;
        recovery.total = recovery.total.max(recovery.recovered);
        if next.len() < room {
            recovery.state = RecoveryState::Done;
        }
        if let Some(last) = next.last() {
            *position = Some(last.position.clone());
        }
        next.len() as u32
    }
}

impl Recoveries {
    pub(super) fn get(&self, key: &RecoveryKey) -> Option<Recovery> {
        self.0.get(key).map(|(recovery, _)| recovery.clone())
    }

    pub(super) fn cancel(&mut self, key: &RecoveryKey) -> Option<Recovery> {
        let (recovery, _) = self.0.get_mut(key)?;
        if recovery.state == RecoveryState::Running {
            recovery.state = RecoveryState::Cancelled;
        }
        Some(recovery.clone())
    }

    /// Forgets those of a webhook.
    pub(super) fn forget(&mut self, webhook: &WebhookKey) {
        self.0.retain(|key, _| (&key.0, &key.1) != (&webhook.0, &webhook.1));
    }
}
