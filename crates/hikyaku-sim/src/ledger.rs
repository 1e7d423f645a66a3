//! What happened, written down outside of the program: what publishers were answered (P), what was on the wire (W), what we
//! answered to the provider (R), what took effect (E); and, read back at the end, what the program itself says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bytes::Bytes;
use hikyaku_core::delivery::{DeliveryState, Outcome};
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

/// The route on which each key takes effect once.
pub const SALES: &str = "sales";
/// The route on which the newest event of a key wins.
pub const ORDERS: &str = "orders";
/// The route to which every event is a call, which no transaction makes one.
pub const CALLS: &str = "calls";
/// Begins the ids of the rows that reconciliation let in.
pub const LISTED: &str = "listed:";

/// P: an event that somebody wanted to publish.
#[derive(Debug, Clone)]
pub struct Published {
    /// Its id.
    pub id: String,
    /// The body that it must have everywhere, rendered without the program's help.
    pub body: Bytes,
    /// To how many webhooks the answer said that it goes; `None` if there was no answer.
    pub answered: Option<u32>,
}

/// W: a request as an endpoint got it.
#[derive(Debug, Clone)]
pub struct Request {
    /// When it came, in virtual milliseconds.
    pub at: i64,
    /// When it was over, on the wire.
    pub ended: i64,
    /// What the sender's wall clock showed at `at`.
    pub wall: Timestamp,
    /// To which webhook.
    pub webhook: String,
    /// About which event.
    pub event: String,
    /// The body.
    pub body: Bytes,
    /// The signature.
    pub signature: String,
    /// The status that it was answered with, if it was.
    pub status: Option<u16>,
}

/// The program's word on a delivery.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Of which event.
    pub event: String,
    /// To which webhook.
    pub webhook: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// The last run.
    pub run: u32,
    /// Its log, in its order.
    pub log: Vec<Line>,
}

/// A line of a delivery's log.
#[derive(Debug, Clone)]
pub struct Line {
    /// Of which run.
    pub run: u32,
    /// Which attempt of the run.
    pub number: u32,
    /// When it began, by the wall clock.
    pub started_at: Timestamp,
    /// What it came to.
    pub outcome: Outcome,
}

/// R: a delivery of the provider that we answered 200.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its id.
    pub id: String,
    /// Its business key.
    pub key: String,
    /// Its place in the history of its key, by what the provider knows of it.
    pub version: Version,
    /// Its type.
    pub event_type: String,
    /// Its bytes.
    pub body: Bytes,
}

/// The program's word on a row of the inbox.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its bytes.
    pub body: Bytes,
    /// How it stands with each route, and how often its effect failed: the word of the API.
    pub effects: BTreeMap<String, (String, u32)>,
}

/// E: something took effect.
#[derive(Debug, Clone)]
pub struct Effect {
    /// By which route.
    pub route: &'static str,
    /// On which business key.
    pub key: String,
    /// Of which delivery.
    pub delivery: String,
    /// Its place in the key's history.
    pub version: Version,
}

/// What people did of which a trace must be expected.
#[derive(Debug, Clone, Default)]
pub struct People {
    /// Webhooks that were deleted, or of which nobody heard whether they were.
    pub deleted: BTreeSet<String>,
    /// Deliveries (event, webhook) that somebody had sent again.
    pub resent: BTreeSet<(String, String)>,
    /// Webhooks whose past somebody recovered.
    pub recovered: BTreeSet<String>,
    /// Rows that somebody had take effect again.
    pub replayed: BTreeSet<String>,
    /// Every secret that a webhook had.
    pub secrets: BTreeMap<String, Vec<String>>,
    /// Whether somebody set the wall clock.
    pub clock_was_set: bool,
}

/// Everything that is compared.
#[derive(Debug, Clone, Default)]
pub struct Ledgers {
    /// P.
    pub published: Vec<Published>,
    /// To which webhooks each stored event must go, as seen at its commit.
    pub takers: BTreeMap<String, BTreeSet<String>>,
    /// W, in its order.
    pub wire: Vec<Request>,
    /// R, each id once.
    pub received: Vec<Received>,
    /// Deliveries of strangers that we answered 200.
    pub forged: u64,
    /// E, in its order.
    pub effects: Vec<Effect>,
    /// The sales that the provider has.
    pub listed: BTreeSet<String>,
    /// What people did.
    pub people: People,
    /// The stored bodies, by event.
    pub bodies: BTreeMap<String, Bytes>,
    /// The deliveries as they stand at the end.
    pub deliveries: Vec<Delivery>,
    /// The inbox's rows as they stand at the end, by id; of R's ids.
    pub rows: BTreeMap<String, Row>,
    /// What did not come to an end in the time that it had.
    pub unended: Vec<String>,
    /// How often what happened.
    pub happened: BTreeMap<&'static str, u64>,
}

/// How much happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

impl Counts {
    /// How often this happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Those of another run, too.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|(what, count)| format!("{what} {count}")).collect();
        f.write_str(&words.join(", "))
    }
}

impl Ledgers {
    /// How much happened.
    pub fn counts(&self) -> Counts {
        let mut counts = self.happened.clone();
        let lines = || self.deliveries.iter().flat_map(|delivery| &delivery.log);
        let interrupted = |line: &&Line| line.outcome.spoiled_by_us();
        let in_state = |state| self.deliveries.iter().filter(|delivery| delivery.state == state).count();
        let rows =
            |state: &str| self.rows.values().flat_map(|row| row.effects.values()).filter(|e| e.0 == state).count();
        for (what, count) in [
            ("events", self.takers.len()),
            ("requests", self.wire.len()),
            ("interrupted", lines().filter(interrupted).count()),
            ("delivered", in_state(DeliveryState::Delivered)),
            ("exhausted", in_state(DeliveryState::Exhausted)),
            ("cancelled", in_state(DeliveryState::Cancelled)),
            ("again", self.deliveries.iter().filter(|delivery| delivery.run > 1).count()),
            ("received", self.received.len()),
            ("effects", self.effects.len()),
            ("stale", rows("stale")),
            ("fetched", self.effects.iter().filter(|effect| effect.delivery.starts_with(LISTED)).count()),
        ] {
            counts.insert(what, count as u64);
        }
        Counts(counts)
    }
}
