//! A state of the protocol: the store, what each node believes to hold, and what an onlooker knows of the leases.
mod reach;
use std::time::Duration;

use bytes::Bytes;
use hikyaku::store::memory::MemoryStore;
use hikyaku::store::{
    AttemptRecord, ClaimedDelivery, DeliveryClaim, DeliveryView, FinishAttempt, FinishOutcome, Group, Lease, NewEvent,
    Publish, Store, WebhookChange,
};
use hikyaku_core::delivery::DeliveryState::{Cancelled, Delivered, Exhausted};
use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, Outcome, Policy, decide};
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{DeliveryKey, EventId, WebhookId};
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Settings, Webhook, WebhookUrl};
use jiff::{SignedDuration, Timestamp};

use super::{Action, Answer, Bounds, Mutation, Promise};
use crate::node::organization;
use crate::witness::ready;

const NODES: [&str; 2] = ["a", "b"];
const LEASE: Duration = Duration::from_secs(20);

/// What a node believes to hold.
#[derive(Debug, Clone)]
struct Held {
    node: usize,
    delivery: usize,
    claimed: ClaimedDelivery,
    /// What it has told the store already, without hearing an answer.
    told: Option<Answer>,
}

/// What the onlooker knows of a delivery.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Who has the lease, for which attempt, and until when.
    lease: Option<(usize, u32, i64)>,
    /// The highest number that was sent.
    sent: u32,
}

/// A state.
pub(super) struct State {
    store: MemoryStore,
    left: Bounds,
    now: i64,
    held: Vec<Held>,
    seen: Vec<Seen>,
    switched_off: u32,
    is_deleted: bool,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

fn webhook_id() -> WebhookId {
    WebhookId::parse("w").expect("a good id")
}

fn event_id(delivery: usize) -> EventId {
    EventId::parse(format!("e{delivery}")).expect("a good id")
}

fn lease(node: usize) -> Lease {
    Lease { owner: NODES[node].into(), duration: LEASE }
}

/// A schedule of so many attempts, without pauses.
fn policy(attempts: u32) -> Policy {
    let schedule = RetrySchedule::new(vec![Duration::ZERO; attempts as usize - 1]).expect("few enough");
    Policy { schedule, respect_retry_after: false }
}

impl State {
    /// The events are published, and nobody holds anything.
    pub(super) fn new(bounds: Bounds) -> Self {
        let store = MemoryStore::new();
        let webhook = Webhook {
            organization: organization(),
            id: webhook_id(),
            url: WebhookUrl::parse("https://w.example/").expect("a good address"),
            events: vec![EventPattern::All],
            description: String::new(),
            secret: Secret::new("secret"),
            previous_secret: None,
            off: None,
            exhausted: 0,
            settings: Settings::default(),
            created_at: at(0),
        };
        let event = |delivery| NewEvent {
            id: event_id(delivery),
            event_type: EventType::parse("sale.created").expect("a good type"),
            timestamp: at(0),
            created_at: at(0),
            key: None,
            content_hash: [0; 32],
            body: Bytes::from_static(b"{}"),
        };
        let publish = Publish {
            organization: organization(),
            events: (0..bounds.deliveries).map(event).collect(),
            due_at: at(0),
            lease: lease(0),
            room: Default::default(),
            about: None,
        };
        ready(store.create_webhook(webhook)).expect("the store is empty");
        ready(store.commit(Group { publish: vec![publish], ..Group::default() })).expect("nothing is planted");
        let seen = vec![Seen::default(); bounds.deliveries];
        Self { store, left: bounds, now: 0, held: Vec::new(), seen, switched_off: 0, is_deleted: false }
    }

    fn fork(&self) -> Self {
        let (held, seen) = (self.held.clone(), self.seen.clone());
        Self { store: self.store.fork(), held, seen, ..*self }
    }

    fn view(&self, delivery: usize) -> DeliveryView {
        let event = ready(self.store.event(&organization(), &event_id(delivery))).expect("nothing is planted");
        let mut deliveries = event.map(|event| event.deliveries).unwrap_or_default();
        deliveries.pop().expect("each event has its delivery")
    }

    fn webhook(&self) -> Option<Webhook> {
        let webhooks = ready(self.store.webhooks(&organization())).expect("nothing is planted");
        webhooks.first().map(|webhook| Webhook::clone(webhook))
    }

    fn is_on(&self) -> bool {
        self.webhook().is_some_and(|webhook| webhook.off.is_none())
    }

    /// What makes this state another one than others; times count only as whether they have come.
    pub(super) fn fingerprint(&self) -> String {
        let mut text = format!(
            "{} {} {} {}{}{}|",
            self.switched_off,
            self.is_deleted,
            self.is_on(),
            self.left.lease_ends,
            self.left.crashes,
            self.left.lost_answers
        );
        for (delivery, seen) in self.seen.iter().enumerate() {
            let view = self.view(delivery);
            let log: Vec<_> = view.attempts.iter().map(|line| (line.number, line.outcome.http_status())).collect();
            let lease = seen.lease.map(|(node, attempt, until)| (node, attempt, until > self.now));
            text += &format!("{} {} {log:?} {lease:?} {};", view.state.as_str(), view.run, seen.sent);
        }
        let mut held: Vec<_> = self.held.iter().map(held_text).collect();
        held.sort();
        text + &held.join(",")
    }

    /// What can happen now.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::Claim(0), Action::Claim(1)];
        for (place, held) in self.held.iter().enumerate() {
            let answers = match held.told {
                Some(told) => vec![told],
                // What was interrupted is written so, whatever a receiver might have said.
                None if held.claimed.interrupted.is_some() => vec![Answer::Bad],
                None => vec![Answer::Good, Answer::Bad],
            };
            for answer in answers {
                actions.push(Action::Finish(place, answer));
                if self.left.lost_answers > 0 && held.told.is_none() {
                    actions.push(Action::FinishUnheard(place, answer));
                }
            }
        }
        let is_leased = self.seen.iter().any(|seen| seen.lease.is_some_and(|(_, _, until)| until > self.now));
        if self.left.lease_ends > 0 && is_leased {
            actions.push(Action::LeasesEnd);
        }
        for node in 0..NODES.len() {
            if self.left.crashes > 0 && self.held.iter().any(|held| held.node == node) {
                actions.push(Action::Crash(node));
            }
        }
        if self.left.people && !self.is_deleted {
            actions.push(Action::Delete);
            actions.extend(self.is_on().then_some(Action::SwitchOff));
        }
        actions
    }

    /// The state after a step, or the promise that it breaks.
    pub(super) fn after(&self, action: Action, mutation: Option<Mutation>) -> Result<Self, Promise> {
        let mut next = self.fork();
        match action {
            Action::Claim(node) => next.claim(node, mutation)?,
            Action::Finish(place, answer) => next.finish(place, answer, mutation)?,
            Action::FinishUnheard(place, answer) => {
                next.left.lost_answers -= 1;
                let mut held = next.held[place].clone();
                next.finish(place, answer, mutation)?;
                held.told = Some(answer);
                next.held.push(held);
            }
            Action::LeasesEnd => {
                next.left.lease_ends -= 1;
                next.now += LEASE.as_secs() as i64;
                next.begin_again(mutation);
            }
            Action::Crash(node) => {
                next.left.crashes -= 1;
                next.held.retain(|held| held.node != node);
            }
            Action::SwitchOff => next.switch(false),
            Action::Delete => next.delete(mutation),
        }
        for delivery in 0..self.seen.len() {
            self.judge(&next, delivery)?;
        }
        Ok(next)
    }

    /// What must hold of a delivery whatever the step was.
    fn judge(&self, next: &Self, delivery: usize) -> Result<(), Promise> {
        let (before, after) = (self.view(delivery), next.view(delivery));
        let arrived_after_all = matches!(before.state, Cancelled | Exhausted) && after.state == Delivered;
        if before.state != DeliveryState::Waiting && before.state != after.state && !arrived_after_all {
            return Err(Promise::EndsOnce);
        }
        if after.attempts.len() > self.left.attempts as usize {
            return Err(Promise::AttemptsBounded);
        }
        if next.is_deleted && after.state == DeliveryState::Waiting {
            return Err(Promise::DeletedIsCancelled);
        }
        Ok(())
    }

    fn claim(&mut self, node: usize, mutation: Option<Mutation>) -> Result<(), Promise> {
        let early = if mutation == Some(Mutation::ClaimIgnoresLeases) { LEASE.as_secs() as i64 } else { 0 };
        let claim = DeliveryClaim {
            lease: lease(node),
            now: at(self.now + early),
            until: Timestamp::MAX,
            at: at(self.now),
            slots_each: 1,
            most_each: 1,
            slots: Default::default(),
            limit: 1,
            after: None,
        };
        for mut claimed in ready(self.store.claim_deliveries(claim)).expect("nothing is planted").deliveries {
            if mutation == Some(Mutation::InterruptedIsResent) {
                claimed.interrupted = None;
            }
            let delivery = (0..self.seen.len()).find(|one| event_id(*one) == claimed.key.event).unwrap_or_default();
            let seen = &mut self.seen[delivery];
            if seen.lease.is_some_and(|(_, _, until)| until > self.now) {
                return Err(Promise::OneLease);
            }
            if claimed.attempt > self.left.attempts {
                return Err(Promise::AttemptsBounded);
            }
            if claimed.interrupted.is_none() {
                if claimed.attempt <= seen.sent {
                    return Err(Promise::NumberSentOnce);
                }
                seen.sent = claimed.attempt;
            }
            seen.lease = Some((node, claimed.attempt, self.now + early + LEASE.as_secs() as i64));
            self.held.push(Held { node, delivery, claimed, told: None });
        }
        Ok(())
    }

    fn finish(&mut self, place: usize, answer: Answer, mutation: Option<Mutation>) -> Result<(), Promise> {
        let Held { node, delivery, claimed, .. } = self.held.remove(place);
        let holds = self.seen[delivery].lease.is_some_and(|(by, attempt, _)| (by, attempt) == (node, claimed.attempt));
        let (before, was_on) = (self.state_of_all(), self.is_on());
        let finish = self.end_of(&claimed, node, answer, mutation);
        let arrived = finish.decision == Decision::Delivered && matches!(before[delivery].0, Cancelled | Exhausted);
        let outcome = self.write(finish);
        let after = self.state_of_all();
        if !holds && before != after && !arrived {
            return Err(Promise::LeaseNeededToFinish);
        }
        if holds && matches!(outcome, FinishOutcome::Applied { .. }) {
            self.seen[delivery].lease = None;
        }
        self.switched(&claimed, answer, outcome, was_on, self.attempts(mutation))?;
        if mutation == Some(Mutation::ComesOnAgain) && was_on && !self.is_on() {
            self.switch(true);
        }
        Ok(())
    }

    /// Whether the webhook is off as it must be: by this finish, if it used up the attempts on the receiver's account.
    fn switched(
        &mut self,
        claimed: &ClaimedDelivery,
        answer: Answer,
        outcome: FinishOutcome,
        was_on: bool,
        attempts: u32,
    ) -> Result<(), Promise> {
        let FinishOutcome::Applied { switched_off } = outcome else { return Ok(()) };
        self.switched_off += u32::from(switched_off);
        let used_up = answer == Answer::Bad && claimed.attempt == attempts;
        let is_theirs = claimed.interrupted.is_none() && claimed.history.spoiled_by_us == 0;
        let must = used_up && is_theirs && was_on;
        if switched_off != must || self.switched_off > 1 || (must && self.is_on()) {
            return Err(Promise::SwitchedOffOnce);
        }
        Ok(())
    }

    fn end_of(
        &self,
        claimed: &ClaimedDelivery,
        node: usize,
        answer: Answer,
        mutation: Option<Mutation>,
    ) -> FinishAttempt {
        let outcome = match (claimed.interrupted, answer) {
            (Some(_), _) => Outcome::Failed(FailureKind::Interrupted),
            (None, Answer::Good) => Outcome::Answered(200),
            (None, Answer::Bad) => Outcome::Answered(500),
        };
        let mut decision = decide(&policy(self.attempts(mutation)), claimed.history, outcome, None, at(self.now));
        if let (Some(Mutation::StaysOn), Decision::Exhausted { switch_off }) = (mutation, &mut decision) {
            *switch_off = false;
        }
        let mut owner = NODES[node];
        let delivery = (0..self.seen.len()).find(|one| event_id(*one) == claimed.key.event).unwrap_or_default();
        if let (Some(Mutation::FinishByAnybody), Some((by, ..))) = (mutation, self.seen[delivery].lease) {
            owner = NODES[by];
        }
        let attempt = AttemptRecord {
            run: claimed.run,
            number: claimed.attempt,
            started_at: at(self.now),
            duration: Duration::ZERO,
            outcome,
            error: String::new(),
            response_body: Bytes::new(),
        };
        let (key, created_at) = (claimed.key.clone(), claimed.created_at);
        FinishAttempt { key, created_at, owner: owner.into(), attempt, decision, notices: None }
    }

    /// How many attempts a run gets.
    fn attempts(&self, mutation: Option<Mutation>) -> u32 {
        self.left.attempts + u32::from(mutation == Some(Mutation::OneAttemptMore))
    }

    fn begin_again(&self, mutation: Option<Mutation>) {
        let is_meant = |one: &usize| {
            self.view(*one).state == DeliveryState::Delivered && mutation == Some(Mutation::EndedBeginsAgain)
        };
        for delivery in (0..self.seen.len()).filter(is_meant) {
            let (event, webhook) = (event_id(delivery), webhook_id());
            let key = DeliveryKey { organization: organization(), event, webhook };
            ready(self.store.resend(&key, at(self.now))).expect("nothing is planted");
        }
    }

    fn write(&self, finish: FinishAttempt) -> FinishOutcome {
        let group = Group { finish_attempts: vec![finish], ..Group::default() };
        let mut outcome = ready(self.store.commit(group)).expect("nothing is planted");
        outcome.finish_attempts.pop().expect("a store answers every part")
    }

    /// Where everything stands, but for the log; a lease and an end of a lease are states, too.
    fn state_of_all(&self) -> Vec<(DeliveryState, u32, Option<Timestamp>, bool, bool)> {
        let is_on = self.is_on();
        let views = (0..self.seen.len()).map(|delivery| self.view(delivery));
        views.map(|view| (view.state, view.run, view.next_attempt_at, view.in_flight, is_on)).collect()
    }

    fn switch(&self, active: bool) {
        let change = WebhookChange { active: Some(active), ..WebhookChange::default() };
        let (organization, id) = (organization(), webhook_id());
        ready(self.store.update_webhook(&organization, &id, change, at(self.now))).expect("nothing is planted");
    }

    fn delete(&mut self, mutation: Option<Mutation>) {
        self.is_deleted = true;
        if mutation == Some(Mutation::DeleteForgets) {
            return self.switch(false);
        }
        ready(self.store.delete_webhook(&organization(), &webhook_id(), at(self.now))).expect("nothing is planted");
    }
}

fn held_text(held: &Held) -> String {
    let Held { node, delivery, claimed, told } = held;
    format!("{node}{delivery}{}{}{told:?}", claimed.attempt, claimed.interrupted.is_some())
}
