//! The provider's webhooks, to the letter and with their weaknesses (R1-R22): retries wait in memory and nowhere else
//! (R15), a restart loses them (R16) and switches nothing off (R17), nothing is sent again by hand (R13), nothing is held
//! for a webhook that is off (R12).
//!
//! A state machine without a clock: it is told what happened and when, and says what to send.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fastrand::Rng;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::event::{EventPattern, EventType, render_body};
use hikyaku_core::ids::EventId;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::{Secret, receiptroller};
use jiff::Timestamp;
use serde_json::value::RawValue;
use url::Url;

/// Most webhooks.
pub const MAX_WEBHOOKS: usize = 100;
/// Most retries that wait; where a provider's memory would end, the oldest webhook's newest events are not retried.
pub const MAX_WAITING: usize = 100_000;
/// Most lines of a webhook's delivery log that are kept; older ones go first.
pub const MAX_LOG_LINES: usize = 10_000;

/// A registered webhook.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Its id.
    pub id: String,
    /// Where it is sent to.
    pub url: Url,
    /// Which events it gets.
    pub events: Vec<EventPattern>,
    /// Whether it gets events (R10).
    pub active: bool,
    /// What its deliveries are signed with.
    pub secret: Secret,
    /// Somebody's note.
    pub memo: String,
}

/// An event as it goes out: the same for every webhook and every retry (R9, R22).
#[derive(Debug)]
pub struct Event {
    /// Its id, which is also the deliveries' (R21).
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// What it is about.
    pub key: String,
    /// When it was sent out (R20).
    pub timestamp: Timestamp,
    /// The body's bytes.
    pub body: Bytes,
}

/// One attempt to be made.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// For which webhook.
    pub webhook: String,
    /// Of which event.
    pub event: Arc<Event>,
    /// The signature of the first attempt, whatever became of the secret since (R9).
    pub signature: String,
    /// Its number, from 1.
    pub number: u32,
    /// Where to: the webhook's present address.
    pub url: Url,
    /// Whose memory it is in; a restart begins another.
    life: u32,
}

/// A line of a webhook's delivery log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The delivery's id.
    pub delivery: String,
    /// The event's type.
    pub event_type: String,
    /// The attempt's number, from 1.
    pub attempt: u32,
    /// When the attempt began.
    pub at: Timestamp,
    /// The status, or 0 where none came (R6).
    pub http_status: u16,
}

/// What followed from an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// It was accepted (R2).
    Delivered,
    /// It is tried again then (R8).
    RetryAt(Timestamp),
    /// It was the last one, and the webhook is off (R10, R11).
    SwitchedOff,
    /// It was the last one; the webhook was off already.
    Exhausted,
    /// A restart had forgotten it meanwhile: logged, and nothing else (R16, R17, R18).
    Forgotten,
}

/// The provider's memory.
pub struct Provider {
    schedule: RetrySchedule,
    rng: Rng,
    webhooks: BTreeMap<String, Webhook>,
    logs: BTreeMap<String, VecDeque<LogLine>>,
    /// Retries that wait, by time; the number keeps two of one instant apart.
    waiting: BTreeMap<(Timestamp, u64), Attempt>,
    count: u64,
    life: u32,
}

impl Provider {
    /// A provider without webhooks. The contract's schedule is [`RetrySchedule::default`].
    pub fn new(schedule: RetrySchedule, seed: u64) -> Self {
        Self {
            schedule,
            rng: Rng::with_seed(seed),
            webhooks: BTreeMap::new(),
            logs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            count: 0,
            life: 0,
        }
    }

    /// Makes an event of something that happened, with the bytes that will go out.
    ///
    /// `event_type` that is no type, or an id of ours that is none, would be a defect; then the event is `None`.
    pub fn event(&mut self, event_type: &str, key: &str, data: &RawValue, at: Timestamp) -> Option<Arc<Event>> {
        let id = format!("{:016x}{:016x}", self.rng.u64(..), self.rng.u64(..));
        let typed = EventType::parse(event_type).ok()?;
        let body = render_body(&EventId::parse(id.as_str()).ok()?, &typed, at, data);
        Some(Arc::new(Event { id, event_type: event_type.to_owned(), key: key.to_owned(), timestamp: at, body }))
    }

    /// Sends an event out: the first attempts, one for each webhook that is on and subscribes (R12, R22).
    pub fn send(&self, event: &Arc<Event>) -> Vec<Attempt> {
        let takes = |webhook: &&Webhook| {
            webhook.active && webhook.events.iter().any(|pattern| pattern.matches(&event.event_type))
        };
        let attempt = |webhook: &Webhook| Attempt {
            webhook: webhook.id.clone(),
            event: Arc::clone(event),
            signature: receiptroller::sign(&webhook.secret, &event.body),
            number: 1,
            url: webhook.url.clone(),
            life: self.life,
        };
        self.webhooks.values().filter(takes).map(attempt).collect()
    }

    /// When the next retry is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Takes a retry that is due. A webhook that is off meanwhile is tried like any other (R14).
    pub fn take_due(&mut self, now: Timestamp) -> Option<Attempt> {
        let due = self.waiting.first_entry().filter(|first| first.key().0 <= now)?;
        let attempt = due.remove();
        let url = self.webhooks.get(&attempt.webhook)?.url.clone();
        Some(Attempt { url, ..attempt })
    }

    /// Writes down what an attempt came to and says what follows. `began` and `ended` bound it in time: a pause counts
    /// from its end (R8).
    pub fn ended(&mut self, attempt: &Attempt, outcome: Outcome, began: Timestamp, ended: Timestamp) -> Followed {
        self.log(attempt, outcome, began);
        if attempt.life != self.life {
            return Followed::Forgotten;
        }
        if outcome.is_success() {
            return Followed::Delivered;
        }
        if let Some(pause) = self.schedule.delay_after(attempt.number) {
            let at = ended.checked_add(pause).unwrap_or(Timestamp::MAX);
            self.count += 1;
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.pop_last();
            }
            self.waiting.insert((at, self.count), Attempt { number: attempt.number + 1, ..attempt.clone() });
            return Followed::RetryAt(at);
        }
        match self.webhooks.get_mut(&attempt.webhook) {
            Some(webhook) if webhook.active => {
                webhook.active = false;
                Followed::SwitchedOff
            }
            _ => Followed::Exhausted,
        }
    }

    /// Loses every retry that waits and every attempt under way (R15-R18). Returns how many waited.
    pub fn restart(&mut self) -> usize {
        self.life += 1;
        std::mem::take(&mut self.waiting).len()
    }

    /// Registers a webhook under a new id, or changes the one that has it. `false` where there are too many.
    pub fn put(&mut self, webhook: Webhook) -> bool {
        if !self.webhooks.contains_key(&webhook.id) && self.webhooks.len() >= MAX_WEBHOOKS {
            return false;
        }
        self.webhooks.insert(webhook.id.clone(), webhook);
        true
    }

    /// An id for a new webhook.
    pub fn new_webhook_id(&mut self) -> String {
        format!("wh-{:08x}", self.rng.u32(..))
    }

    /// A new secret.
    pub fn new_secret(&mut self) -> Secret {
        Secret::new(format!("rrsec_{:032x}{:016x}", self.rng.u128(..), self.rng.u64(..)))
    }

    /// The webhooks, by id.
    pub fn webhooks(&self) -> impl Iterator<Item = &Webhook> {
        self.webhooks.values()
    }

    /// One webhook.
    pub fn webhook(&self, id: &str) -> Option<&Webhook> {
        self.webhooks.get(id)
    }

    /// A webhook's delivery log, newest first.
    pub fn log_of(&self, webhook: &str) -> impl Iterator<Item = &LogLine> {
        self.logs.get(webhook).into_iter().flatten().rev()
    }

    /// Retries that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn log(&mut self, attempt: &Attempt, outcome: Outcome, at: Timestamp) {
        let lines = self.logs.entry(attempt.webhook.clone()).or_default();
        if lines.len() == MAX_LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(LogLine {
            delivery: attempt.event.id.clone(),
            event_type: attempt.event.event_type.clone(),
            attempt: attempt.number,
            at,
            http_status: outcome.http_status(),
        });
    }
}

#[cfg(test)]
mod tests;
