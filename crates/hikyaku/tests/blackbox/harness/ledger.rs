//! The ledgers, kept outside the program: what publishers were answered (P), what was on the wire (W), what took
//! effect (E); and the comparer, which knows the promise and none of the program's code.

use std::collections::{BTreeMap, BTreeSet, HashMap};

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

/// What there is about one delivery.
#[derive(Default)]
struct Delivery<'a> {
    requests: usize,
    is_accepted: bool,
    log: Vec<u64>,
    state: Option<&'a str>,
}

/// The ledgers by event, and by webhook and event.
struct Index<'a> {
    published: HashMap<&'a str, &'a Published>,
    deliveries: BTreeMap<(&'a str, &'a str), Delivery<'a>>,
    /// The keys of the deliveries that the program knows of an event.
    known: HashMap<&'a str, Vec<(&'a str, &'a str)>>,
}

impl<'a> Index<'a> {
    fn of(ledgers: &'a Ledgers) -> Self {
        let published = ledgers.published.iter().rev().map(|event| (event.id.as_str(), event)).collect();
        let mut deliveries: BTreeMap<_, Delivery<'_>> = BTreeMap::new();
        for wire in &ledgers.wire {
            let delivery = deliveries.entry((wire.webhook.as_str(), wire.event.as_str())).or_default();
            delivery.requests += 1;
            delivery.is_accepted |= wire.accepted;
        }
        for line in &ledgers.log {
            deliveries.entry((&line.webhook, &line.event)).or_default().log.push(line.http_status);
        }
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for (webhook, event, state) in &ledgers.states {
            deliveries.entry((webhook, event)).or_default().state = Some(state);
            known.entry(event.as_str()).or_default().push((webhook.as_str(), event.as_str()));
        }
        Self { published, deliveries, known }
    }

    /// Whether the event has all of its deliveries, and what is called delivered was accepted by its endpoint.
    fn is_kept(&self, event: &Published) -> bool {
        let keys = self.known.get(event.id.as_str()).map_or(&[][..], Vec::as_slice);
        let holds = keys.iter().all(|key| {
            let delivery = &self.deliveries[key];
            match delivery.state {
                Some("delivered") => delivery.is_accepted,
                Some("exhausted") => delivery.log.len() == MAX_REQUESTS,
                Some("waiting" | "cancelled") => true,
                _ => false,
            }
        });
        holds && Some(keys.len()) == event.answered
    }
}

impl Delivery<'_> {
    fn comes_too_often(&self) -> bool {
        self.requests > MAX_REQUESTS || self.log.len() > MAX_REQUESTS
    }

    /// Every request is an attempt in the log, save the one that may be under way; and whatever came before another
    /// attempt has failed.
    fn has_cause(&self) -> bool {
        let under_way = usize::from(self.state == Some("waiting"));
        self.requests <= self.log.len() + under_way && !self.log.iter().rev().skip(1).any(|status| is_2xx(*status))
    }
}

impl Ledgers {
    /// Compares what was sent: P against W, with the program's log as the cause of every duplicate.
    pub(crate) fn outgoing_faults(&self) -> Vec<Fault> {
        let (index, mut faults) = (Index::of(self), BTreeSet::new());
        for wire in &self.wire {
            faults.extend(self.fault_of(wire, &index));
        }
        for ((_, event), delivery) in index.deliveries.iter().filter(|(_, delivery)| delivery.requests > 0) {
            if delivery.comes_too_often() {
                faults.insert(Fault::TooOften((*event).to_owned()));
            }
            if !delivery.has_cause() {
                faults.insert(Fault::Duplicated((*event).to_owned()));
            }
        }
        let answered = self.published.iter().filter(|event| event.answered.is_some());
        faults.extend(answered.filter(|event| !index.is_kept(event)).map(|event| Fault::Lost(event.id.clone())));
        faults.into_iter().collect()
    }

    fn fault_of(&self, wire: &Wire, index: &Index<'_>) -> Option<Fault> {
        let Some(event) = index.published.get(wire.event.as_str()) else {
            return Some(Fault::Phantom(wire.event.clone()));
        };
        let secret = self.secrets.get(&wire.webhook).cloned().unwrap_or_default();
        let signature = receiptroller::sign(&Secret::new(secret), &wire.body);
        let is_intact = wire.body == expected_body(event).as_bytes() && wire.signature == signature;
        (!is_intact).then(|| Fault::Corrupted(wire.event.clone()))
    }

    /// Compares what took effect: P against E.
    pub(crate) fn incoming_faults(&self) -> Vec<Fault> {
        let published: HashMap<_, _> =
            self.published.iter().rev().map(|event| ((event.id.as_str(), event.key.as_str()), event)).collect();
        let mut faults = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<&str, Version<'_>> = BTreeMap::new();
        for effect in &self.effects {
            let Some(event) = published.get(&(effect.event.as_str(), effect.key.as_str())) else {
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
