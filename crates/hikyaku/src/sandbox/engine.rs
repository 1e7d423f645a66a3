//! All of the sandbox that needs neither a socket nor a clock: the shops, the provider, the plan of faults, and what
//! they make of each other as time goes by.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use hikyaku_core::delivery::Outcome;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::faults::{Agenda, Detail, Drawn, EventFault, Plan, TimedFault};
use super::provider::{Attempt, Event, Followed, Provider, Webhook};
use super::world::{Data, Happening, World};

/// How many events a reordered one lets go first, at most.
const REORDERED_BEHIND: u64 = 3;
/// Most events that are held back at a time; beyond it they go out in time.
const MAX_HELD_BACK: usize = 100_000;
/// Most objects of which the last event's timestamp is remembered.
const MAX_REMEMBERED: usize = 100_000;

/// How a request goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As it is.
    Plain,
    /// Piece by piece.
    Drip,
    /// A second time, beside the first.
    Copy,
    /// By a stranger: another body under the same signature.
    Tampered,
    /// By a stranger: without a signature.
    Unsigned,
    /// By a stranger: signed with a secret that is not the webhook's.
    WrongSignature,
}

impl Manner {
    /// Whether the provider itself sends it and reads the answer.
    pub fn counts(self) -> bool {
        matches!(self, Self::Plain | Self::Drip)
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "attempt",
            Self::Drip => "slow-drip",
            Self::Copy => "duplicate",
            Self::Tampered => "tampered",
            Self::Unsigned => "unsigned",
            Self::WrongSignature => "wrong-signature",
        }
    }
}

/// A request to be sent.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The attempt.
    pub attempt: Attempt,
    /// How.
    pub manner: Manner,
}

/// What happened, for whoever watches.
#[derive(Debug, Clone)]
pub enum Told {
    /// An event went out, or would have, but for the fault.
    Event(Timestamp, Arc<Event>, Vec<EventFault>),
    /// A fault came that has its time.
    Fault(Timestamp, TimedFault, String),
    /// A request was answered, or not.
    Attempt {
        /// When it ended.
        at: Timestamp,
        /// What was sent.
        sent: Outgoing,
        /// What came of it.
        outcome: Outcome,
        /// What follows; nothing does from a request that does not count.
        followed: Option<Followed>,
    },
}

/// What is the matter with the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// 503.
    Errors,
    /// 429, until then.
    Limit(Timestamp),
}

/// An event with the manners in which its first attempts go out.
type Held = (Arc<Event>, Vec<Manner>);

/// The sandbox's whole state.
pub struct Engine {
    /// The shops.
    pub world: World,
    /// The webhooks.
    pub provider: Provider,
    plan: Plan,
    agenda: Agenda,
    rng: Rng,
    /// Events that go out later, by time; the number keeps two of one instant apart.
    held_back: BTreeMap<(Timestamp, u64), Held>,
    /// Events that let others go first, and how many still.
    reordered: Vec<(u64, Held)>,
    count: u64,
    last_timestamp: BTreeMap<String, Timestamp>,
    errors_until: Timestamp,
    limit_until: Timestamp,
    shifting_until: Timestamp,
    told: Vec<Told>,
}

impl Engine {
    /// Puts it together; everything begins at `start`.
    pub fn new(world: World, provider: Provider, plan: Plan, start: Timestamp) -> Self {
        let rng = Rng::with_seed(world.settings().seed ^ 0x0f_a0_17);
        let agenda = plan.agenda(start);
        Self {
            world,
            provider,
            plan,
            agenda,
            rng,
            held_back: BTreeMap::new(),
            reordered: Vec::new(),
            count: 0,
            last_timestamp: BTreeMap::new(),
            errors_until: start,
            limit_until: start,
            shifting_until: start,
            told: Vec::new(),
        }
    }

    /// When there is something to do next.
    pub fn next_at(&self) -> Timestamp {
        let held = self.held_back.keys().next().map(|(at, _)| *at);
        let others = [held, self.agenda.next_at(), self.provider.next_due()];
        others.into_iter().flatten().fold(self.world.next_at(), Timestamp::min)
    }

    /// Lets everything happen that happens by `now`, in its order, and gives what is to be sent.
    pub fn step(&mut self, now: Timestamp) -> Vec<Outgoing> {
        let mut out = Vec::new();
        loop {
            let at = self.next_at();
            if at > now || at == Timestamp::MAX {
                return out;
            }
            if let Some((at, fault, detail)) = self.agenda.next(at) {
                self.strike(at, fault, &detail, &mut out);
            } else if let Some(attempt) = self.provider.take_due(at) {
                out.push(Outgoing { attempt, manner: Manner::Plain });
            } else if self.held_back.keys().next().is_some_and(|(due, _)| *due <= at) {
                if let Some((_, held)) = self.held_back.pop_first() {
                    self.send(held, &mut out);
                }
            } else if let Some(happening) = self.world.next(at) {
                self.emit(&happening, &mut out);
            }
        }
    }

    /// What the watchers have not been told yet.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told)
    }

    /// Writes down what a request came to.
    pub fn ended(&mut self, sent: Outgoing, outcome: Outcome, began: Timestamp, ended: Timestamp) {
        let followed = sent.manner.counts().then(|| self.provider.ended(&sent.attempt, outcome, began, ended));
        self.told.push(Told::Attempt { at: ended, sent, outcome, followed });
    }

    /// Makes an event of something that happened, with the faults that are drawn for it.
    fn emit(&mut self, happening: &Happening, out: &mut Vec<Outgoing>) {
        let drawn = self.plan.draw(&mut self.rng);
        self.emit_with(happening, &drawn, out);
    }

    fn emit_with(&mut self, happening: &Happening, drawn: &[Drawn], out: &mut Vec<Outgoing>) {
        let by = |fault| drawn.iter().find(|drawn| drawn.fault == fault).map(|drawn| drawn.by);
        if let Some(by) = by(EventFault::LateSale).filter(|_| happening.event_type == "sale.created") {
            self.world.list_last_sale_late(by);
        }
        let before = self.remember(&happening.key, happening.at);
        let timestamp = before.filter(|_| by(EventFault::EqualTimestamps).is_some()).unwrap_or(happening.at);
        let odd = by(EventFault::OddJson).and_then(|_| odd(&happening.data));
        let data = odd.as_deref().unwrap_or(happening.data.raw());
        let Some(event) = self.provider.event(happening.event_type, &happening.key, data, timestamp) else { return };
        let faults = drawn.iter().map(|drawn| drawn.fault).collect();
        self.told.push(Told::Event(happening.at, Arc::clone(&event), faults));
        if by(EventFault::Drop).is_some() {
            return;
        }
        let held = (event, manners(drawn));
        if let Some(by) = by(EventFault::Delay).filter(|_| self.held_back.len() < MAX_HELD_BACK) {
            self.count += 1;
            let at = happening.at.checked_add(by).unwrap_or(happening.at);
            self.held_back.insert((at, self.count), held);
        } else if by(EventFault::Reorder).is_some() {
            self.reordered.push((self.rng.u64(1..=REORDERED_BEHIND), held));
        } else {
            self.send(held, out);
            self.let_reordered_go(out);
        }
    }

    fn send(&mut self, (event, manners): Held, out: &mut Vec<Outgoing>) {
        for attempt in self.provider.send(&event) {
            out.extend(manners.iter().map(|manner| Outgoing { attempt: attempt.clone(), manner: *manner }));
        }
    }

    /// Lets events go that have let enough others go first.
    fn let_reordered_go(&mut self, out: &mut Vec<Outgoing>) {
        let (go, stay) = std::mem::take(&mut self.reordered).into_iter().partition::<Vec<_>, _>(|(left, _)| *left <= 1);
        self.reordered = stay.into_iter().map(|(left, held)| (left - 1, held)).collect();
        for (_, held) in go {
            self.send(held, out);
        }
    }

    /// Remembers an object's newest event, and gives the timestamp of the one before.
    fn remember(&mut self, key: &str, at: Timestamp) -> Option<Timestamp> {
        if self.last_timestamp.len() >= MAX_REMEMBERED {
            self.last_timestamp.pop_first();
        }
        self.last_timestamp.insert(key.to_owned(), at)
    }

    fn strike(&mut self, at: Timestamp, fault: TimedFault, detail: &Detail, out: &mut Vec<Outgoing>) {
        let until = at.checked_add(detail.by).unwrap_or(at);
        let told = match fault {
            TimedFault::Restart => format!("{} retries that waited are lost", self.provider.restart()),
            TimedFault::RotatedSecret => {
                let webhooks: Vec<_> = self.provider.webhooks().cloned().collect();
                for webhook in webhooks {
                    let secret = hikyaku_core::signature::Secret::new(detail.secret.as_str());
                    self.provider.put(Webhook { secret, ..webhook });
                }
                "every webhook signs with the plan's secret from now on".to_owned()
            }
            TimedFault::Burst => {
                self.sell(at, detail.count, out);
                format!("{} sales at one instant", detail.count)
            }
            TimedFault::MonthBoundary => {
                self.sell(at, 1, out);
                self.sell(at.checked_add(std::time::Duration::from_millis(1)).unwrap_or(at), 1, out);
                "a sale in the month's last millisecond and one in the next one's first".to_owned()
            }
            TimedFault::ApiErrors => {
                self.errors_until = until;
                format!("the API answers 503 until {until}")
            }
            TimedFault::ApiLimit => {
                self.limit_until = until;
                format!("the API answers 429 until {until}")
            }
            TimedFault::ShiftingPages => {
                self.shifting_until = until;
                format!("late sales slip into lists that are being read, until {until}")
            }
        };
        self.told.push(Told::Fault(at, fault, told));
    }

    fn sell(&mut self, at: Timestamp, count: u32, out: &mut Vec<Outgoing>) {
        for _ in 0..count {
            let happening = self.world.sell(at);
            self.emit(&happening, out);
        }
    }

    /// What is the matter with the API at `now`.
    pub fn trouble(&self, now: Timestamp) -> Option<Trouble> {
        if now < self.errors_until {
            return Some(Trouble::Errors);
        }
        (now < self.limit_until).then_some(Trouble::Limit(self.limit_until))
    }

    /// Called before a page after the first of a sales list is given: while pages shift, a sale slips in at the list's
    /// beginning. No event tells of it.
    pub fn shift_pages(&mut self, from: Timestamp, now: Timestamp) {
        if now < self.shifting_until {
            let happening = self.world.sell(from);
            self.told.push(Told::Fault(now, TimedFault::ShiftingPages, format!("{} slipped in", happening.key)));
        }
    }
}

/// How an event's first attempts go out.
fn manners(drawn: &[Drawn]) -> Vec<Manner> {
    let has = |fault| drawn.iter().any(|drawn| drawn.fault == fault);
    let strangers = [
        (EventFault::Tampered, Manner::Tampered),
        (EventFault::Unsigned, Manner::Unsigned),
        (EventFault::WrongSignature, Manner::WrongSignature),
    ];
    let mut manners: Vec<_> =
        strangers.into_iter().filter(|(fault, _)| has(*fault)).map(|(_, manner)| manner).collect();
    manners.push(if has(EventFault::SlowDrip) { Manner::Drip } else { Manner::Plain });
    if has(EventFault::Duplicate) {
        manners.push(Manner::Copy);
    }
    manners
}

/// What the odd kind of JSON has beside the data: everything that a program may read in another way than it was written.
const ODD: &str = "\"odd\" :\t{\"z\":1,\"a\":2.0,\"z\":3, \"huge\":29383937493038367292,\"tiny\":1e-400,\"text\":\"\\u0000<b>&amp;</b>\\ud83c\\udf75\",\
                   \"deep\":[[[[[[[[{}]]]]]]]]}";

/// The odd kind of an event's `data`.
fn odd(data: &Data) -> Option<Box<RawValue>> {
    RawValue::from_string(format!("{{ {ODD} ,\n{}", data.raw().get().strip_prefix('{')?)).ok()
}

#[cfg(test)]
mod tests;
