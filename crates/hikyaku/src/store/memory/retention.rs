//! Dropping what is old.

use std::collections::BTreeMap;
use std::sync::Arc;

use hikyaku_core::ids::DeliveryKey;
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use super::deliveries::Deliveries;
use super::{State, WebhookKey};
use crate::store::{Aged, DropStep, Dropped, EventPlace, UndeliveredKind};

impl State {
    pub(super) fn drop_aged(&mut self, step: &DropStep) -> Dropped {
        let mut dropped = Dropped::default();
        match &step.what {
            Aged::Events(from) => {
                for place in self.deliveries.aged(step.before, from.as_ref()) {
                    if touched(&dropped) >= u64::from(step.max_rows) {
                        dropped.next = Some(Aged::Events(Some(place)));
                        break;
                    }
                    self.deliveries.forget(&place, &mut dropped);
                }
            }
            Aged::InboxRows(from) => {
                for (place, key) in self.inbox.aged(step.before) {
                    if touched(&dropped) >= u64::from(step.max_rows) {
                        dropped.next = Some(Aged::InboxRows(Some(place)));
                        break;
                    }
                    if from.is_none_or(|from| place >= from) {
                        self.inbox.forget(&key, step.ids_before);
                        dropped.inbox_rows += 1;
                    }
                }
            }
            Aged::Ids => {
                let aged = self.inbox.aged_ids(step.before);
                aged.iter().take(step.max_rows as usize).for_each(|key| self.inbox.forget_id(key));
                dropped.ids = (aged.len() as u64).min(u64::from(step.max_rows));
                dropped.next = (aged.len() >= step.max_rows as usize).then_some(Aged::Ids);
            }
            Aged::Versions(from) => {
                for place in self.inbox.aged_versions(step.before) {
                    if dropped.versions >= u64::from(step.max_rows) {
                        dropped.next = Some(Aged::Versions(Some(place)));
                        break;
                    }
                    if from.as_ref().is_none_or(|from| place >= *from) {
                        self.inbox.forget_version(&place.lane);
                        dropped.versions += 1;
                    }
                }
            }
        }
        dropped
    }
}

fn touched(dropped: &Dropped) -> u64 {
    dropped.events + dropped.deliveries + dropped.attempts + dropped.inbox_rows
}

impl Deliveries {
    /// The events from a place on that were published before `before` and of which nothing waits.
    fn aged(&self, before: Timestamp, from: Option<&EventPlace>) -> Vec<EventPlace> {
        let kept = |place: &EventPlace| {
            let of_event = |key: &DeliveryKey| key.organization == place.organization && key.event == place.event;
            self.waiting.keys().any(of_event)
                || self.undelivered.iter().any(|(key, one)| of_event(key) && one.kind == UndeliveredKind::Held)
        };
        let place = |(organization, id): &(_, _), created_at| EventPlace {
            organization: Clone::clone(organization),
            created_at,
            event: Clone::clone(id),
        };
        let order = |place: &EventPlace| (place.organization.clone(), place.created_at, place.event.clone());
        let events = self.events.iter().map(|(key, stored)| place(key, stored.event.created_at));
        let mut aged: Vec<_> = events
            .filter(|place| place.created_at < before)
            .filter(|place| from.is_none_or(|from| order(place) >= order(from)) && !kept(place))
            .collect();
        aged.sort_by_key(order);
        aged
    }

    fn forget(&mut self, place: &EventPlace, dropped: &mut Dropped) {
        let other = |key: &DeliveryKey| key.organization != place.organization || key.event != place.event;
        let of_event = self.attempts.iter().filter(|(key, _)| !other(key));
        dropped.attempts += of_event.map(|(_, lines)| lines.len() as u64).sum::<u64>();
        dropped.deliveries += self.ended.keys().filter(|key| !other(key)).count() as u64;
        dropped.events += 1;
        self.attempts.retain(|key, _| other(key));
        self.ended.retain(|key, _| other(key));
        self.undelivered.retain(|key, _| other(key));
        self.events.remove(&(place.organization.clone(), place.event.clone()));
    }
}

/// Forgets the previous secrets of webhooks whose time is over.
pub(super) fn forget_secrets(webhooks: &mut BTreeMap<WebhookKey, Arc<Webhook>>, now: Timestamp, max_rows: u32) -> u32 {
    let is_over = |webhook: &Webhook| webhook.previous_secret.as_ref().is_some_and(|previous| previous.until <= now);
    let over = webhooks.values_mut().filter(|webhook| is_over(webhook)).take(max_rows as usize);
    over.map(|webhook| Arc::make_mut(webhook).forget_secrets(now)).count() as u32
}
