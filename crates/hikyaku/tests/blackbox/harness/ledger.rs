//! The ledgers, kept outside the program: what publishers were answered (P), what was on the wire (W), what took
//! effect (E); and the comparer, which knows the promise and none of the program's code.

use std::collections::{BTreeMap, BTreeSet};

use hikyaku_core::signature::{Secret, receiptroller};

/// Most requests that one delivery may ever be (R7).
const MAX_REQUESTS: usize = 4;

/// What can be wrong. Each names the event or the key it is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// It was answered 2xx, and is neither where it should be nor on its way.
    Lost(String),
    /// Its bytes or its signature are not the ones that were published.
    Corrupted(String),
    /// Nobody ever published it.
    Phantom(String),
    /// It came again, and no log says why.
    Duplicated(String),
    /// It came more often than the contract allows.
    TooOften(String),
    /// Something older took effect after something newer.
    Misordered(String),
}

/// P: a publish, or a delivery to the inbox.
#[derive(Debug, Clone)]
pub(crate) struct Published {
    /// The event's id.
    pub(crate) id: String,
    /// The event's type.
    pub(crate) event_type: String,
    /// When it was sent out, in UTC with milliseconds.
    pub(crate) timestamp: String,
    /// Its data as it was written.
    pub(crate) data: String,
    /// The business key, where the ledger is about effects.
    pub(crate) key: String,
    /// To how many webhooks the answer said that it goes; `None` if no answer came.
    pub(crate) answered: Option<usize>,
}

/// W: a request that an endpoint got.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    /// The webhook it was for.
    pub(crate) webhook: String,
    /// Its `X-RR-Delivery`.
    pub(crate) event: String,
    /// Its body.
    pub(crate) body: Vec<u8>,
    /// Its signature.
    pub(crate) signature: String,
    /// Whether the endpoint answered 2xx.
    pub(crate) accepted: bool,
}

/// A line of the program's own log of attempts: what it knows of the causes of duplicates.
#[derive(Debug, Clone)]
pub(crate) struct LoggedAttempt {
    /// The webhook.
    pub(crate) webhook: String,
    /// The event.
    pub(crate) event: String,
    /// The status it wrote down, 0 for none.
    pub(crate) http_status: u64,
}

/// E: a write on the business side.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    /// The business key.
    pub(crate) key: String,
    /// The event that wrote it.
    pub(crate) event: String,
}

/// Everything that is compared. A delivery's key is webhook and event.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledgers {
    /// P.
    pub(crate) published: Vec<Published>,
    /// W.
    pub(crate) wire: Vec<Wire>,
    /// The program's attempts, in their order within each delivery.
    pub(crate) log: Vec<LoggedAttempt>,
    /// The program's word on each delivery: webhook, event, state.
    pub(crate) states: Vec<(String, String, String)>,
    /// The secret of each webhook.
    pub(crate) secrets: BTreeMap<String, String>,
    /// E, in its order.
    pub(crate) effects: Vec<Effect>,
}

/// The body that an event must have on every wire, rendered without the program's help.
pub(crate) fn expected_body(event: &Published) -> String {
    let Published { id, event_type, timestamp, data, .. } = event;
    format!(r#"{{"id":"{id}","type":"{event_type}","timestamp":"{timestamp}","data":{data}}}"#)
}

impl Ledgers {
    /// Compares what was sent: P against W, with the program's log as the cause of every duplicate.
    pub(crate) fn outgoing_faults(&self) -> Vec<Fault> {
        let mut faults = BTreeSet::new();
        for wire in &self.wire {
            self.judge_request(wire, &mut faults);
        }
        let pairs: BTreeSet<_> = self.wire.iter().map(|wire| (&wire.webhook, &wire.event)).collect();
        for (webhook, event) in pairs {
            self.judge_count(webhook, event, &mut faults);
        }
        for event in self.published.iter().filter(|event| event.answered.is_some()) {
            if !self.is_kept(event) {
                faults.insert(Fault::Lost(event.id.clone()));
            }
        }
        faults.into_iter().collect()
    }

    fn judge_request(&self, wire: &Wire, faults: &mut BTreeSet<Fault>) {
        let Some(event) = self.published.iter().find(|event| event.id == wire.event) else {
            faults.insert(Fault::Phantom(wire.event.clone()));
            return;
        };
        let secret = self.secrets.get(&wire.webhook).cloned().unwrap_or_default();
        let signature = receiptroller::sign(&Secret::new(secret), &wire.body);
        if wire.body != expected_body(event).as_bytes() || wire.signature != signature {
            faults.insert(Fault::Corrupted(wire.event.clone()));
        }
    }

    fn judge_count(&self, webhook: &str, event: &str, faults: &mut BTreeSet<Fault>) {
        let requests = self.wire.iter().filter(|wire| wire.webhook == webhook && wire.event == event).count();
        let log: Vec<_> = self.log.iter().filter(|line| line.webhook == webhook && line.event == event).collect();
        if requests > MAX_REQUESTS || log.len() > MAX_REQUESTS {
            faults.insert(Fault::TooOften(event.to_owned()));
        }
        // Every request is an attempt in the log, save the one that may be under way; and whatever came before another
        // attempt has failed.
        let waiting = self.states.iter().any(|(w, e, state)| w == webhook && e == event && state == "waiting");
        let without_cause = log.iter().rev().skip(1).any(|line| is_2xx(line.http_status));
        if requests > log.len() + usize::from(waiting) || without_cause {
            faults.insert(Fault::Duplicated(event.to_owned()));
        }
    }

    /// Whether the event has all of its deliveries, and what is called delivered was accepted by its endpoint.
    fn is_kept(&self, event: &Published) -> bool {
        let mine: Vec<_> = self.states.iter().filter(|(_, id, _)| *id == event.id).collect();
        let holds = mine.iter().all(|(webhook, id, state)| {
            let requests = || self.wire.iter().filter(|wire| wire.webhook == *webhook && wire.event == *id);
            let attempts = self.log.iter().filter(|line| line.webhook == *webhook && line.event == *id).count();
            match state.as_str() {
                "delivered" => requests().any(|wire| wire.accepted),
                "exhausted" => attempts == MAX_REQUESTS,
                "waiting" | "cancelled" => true,
                _ => false,
            }
        });
        holds && Some(mine.len()) == event.answered
    }

    /// Compares what took effect: P against E.
    pub(crate) fn incoming_faults(&self) -> Vec<Fault> {
        let mut faults = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<&str, Version<'_>> = BTreeMap::new();
        for effect in &self.effects {
            let known = self.published.iter().find(|event| event.id == effect.event && event.key == effect.key);
            let Some(event) = known else {
                faults.insert(Fault::Phantom(effect.event.clone()));
                continue;
            };
            if !seen.insert(&effect.event) {
                faults.insert(Fault::Duplicated(effect.event.clone()));
            } else if last.insert(&effect.key, version(event)).is_some_and(|before| before > version(event)) {
                faults.insert(Fault::Misordered(effect.event.clone()));
            }
        }
        for event in self.published.iter().filter(|event| event.answered.is_some()) {
            if last.get(event.key.as_str()).is_none_or(|newest| *newest < version(event)) {
                faults.insert(Fault::Lost(event.id.clone()));
            }
        }
        faults.into_iter().collect()
    }
}

type Version<'a> = (&'a str, u8, &'a str);

/// The tie rule: timestamp, then created before updated before the end, then the id.
fn version(event: &Published) -> Version<'_> {
    let rank = match event.event_type.rsplit('.').next() {
        Some("created") => 0,
        Some("updated") => 1,
        _ => 2,
    };
    (&event.timestamp, rank, &event.id)
}

fn is_2xx(status: u64) -> bool {
    (200..300).contains(&status)
}
