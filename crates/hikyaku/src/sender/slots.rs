//! How much may be under way at a time, per webhook and in all, so that one webhook that hangs costs the others
//! nothing.
//!
//! Publishes and claims draw from the same slots, and both go on at the same time. A claim does not know beforehand
//! what it will bring, so it is *promised* slots when it begins: half of a webhook's free ones, which leaves the other
//! half to publishes while it runs. A webhook with a backlog in the store is filled by claims alone, so that its newest
//! events do not starve its oldest.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hikyaku_core::ids::{OrganizationId, WebhookId};
use tokio::sync::Notify;

/// Most deliveries that one claim takes: a bound on the bodies that it reads at once.
const MAX_CLAIMED: u32 = 256;

/// Which webhook, of whom.
pub(super) type WebhookKey = (OrganizationId, WebhookId);

/// The slots of this process.
#[derive(Debug)]
pub(super) struct Slots {
    per_webhook: u32,
    in_all: u32,
    /// Told when a slot is freed that a claim could fill.
    wake: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Requests under way, of the webhooks that have some.
    used: HashMap<Arc<WebhookKey>, u32>,
    /// Attempts under way, those included whose result is being written.
    used_in_all: u32,
    /// What the claim under way may still take.
    promise: Option<Promise>,
    /// Webhooks of which the last claims had to leave due deliveries behind.
    backlog: HashSet<Arc<WebhookKey>>,
    /// Whether the last claim left due deliveries behind for want of slots in all.
    stopped: bool,
}

#[derive(Debug)]
struct Promise {
    each: u32,
    listed: HashMap<Arc<WebhookKey>, u32>,
    limit: u32,
}

impl Promise {
    fn of(&self, webhook: &WebhookKey) -> u32 {
        self.listed.get(webhook).copied().unwrap_or(self.each)
    }
}

impl State {
    fn used(&self, webhook: &WebhookKey) -> u32 {
        self.used.get(webhook).copied().unwrap_or(0)
    }

    fn occupy(&mut self, webhook: &Arc<WebhookKey>) {
        *self.used.entry(Arc::clone(webhook)).or_default() += 1;
        self.used_in_all += 1;
    }

    fn vacate(&mut self, webhook: &WebhookKey) {
        match self.used.get_mut(webhook) {
            Some(used) if *used > 1 => *used -= 1,
            _ => drop(self.used.remove(webhook)),
        }
    }
}

impl Slots {
    /// All slots free. `wake` is told when one is freed that a claim could fill.
    pub(super) fn new(per_webhook: u32, in_all: u32, wake: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { per_webhook, in_all, wake, state: Mutex::default() })
    }

    /// From now on nothing more can be reserved.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Takes up to `wanted` slots of a webhook for deliveries that are about to be stored; none if it has a backlog.
    pub(super) fn reserve(self: &Arc<Self>, webhook: WebhookKey, wanted: u32) -> Vec<Permit> {
        let mut state = self.lock();
        if state.closed || state.backlog.contains(&webhook) {
            return Vec::new();
        }
        let (promised, limit) = state.promise.as_ref().map_or((0, 0), |promise| (promise.of(&webhook), promise.limit));
        let free = self.per_webhook.saturating_sub(state.used(&webhook) + promised);
        let free_in_all = self.in_all.saturating_sub(state.used_in_all + limit);
        let webhook = Arc::new(webhook);
        (0..wanted.min(free).min(free_in_all)).map(|_| self.permit(&mut state, &webhook)).collect()
    }

    /// Begins a claim, of which there is one at a time. `None` when there is no slot left in all; then the next one
    /// that is freed wakes the loop.
    pub(super) fn begin_claim(self: &Arc<Self>) -> Option<Claim> {
        let mut state = self.lock();
        let limit = self.in_all.saturating_sub(state.used_in_all).div_ceil(2).min(MAX_CLAIMED);
        if limit == 0 {
            state.stopped = true;
            return None;
        }
        let webhooks = state.used.keys().chain(&state.backlog);
        let listed = webhooks.map(|webhook| (Arc::clone(webhook), self.promised(&state, webhook))).collect();
        state.promise = Some(Promise { each: self.per_webhook.div_ceil(2), listed, limit });
        Some(Claim(Arc::clone(self)))
    }

    fn promised(&self, state: &State, webhook: &WebhookKey) -> u32 {
        let free = self.per_webhook.saturating_sub(state.used(webhook));
        if state.backlog.contains(webhook) { free } else { free.div_ceil(2) }
    }

    fn permit(self: &Arc<Self>, state: &mut State, webhook: &Arc<WebhookKey>) -> Permit {
        state.occupy(webhook);
        Permit { slots: Arc::clone(self), webhook: Some(Arc::clone(webhook)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave the numbers half changed, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slots promised to a claim; what it did not take is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Claim(Arc<Slots>);

impl Claim {
    /// What may be taken: of a webhook that is not listed, of the listed ones, and in all.
    pub(super) fn offer(&self) -> (u32, HashMap<WebhookKey, u32>, u32) {
        let state = self.0.lock();
        state.promise.as_ref().map_or_else(Default::default, |promise| {
            let listed = promise.listed.iter().map(|(webhook, slots)| (WebhookKey::clone(webhook), *slots));
            (promise.each, listed.collect(), promise.limit)
        })
    }

    /// The slot for one delivery that the claim brought.
    pub(super) fn take(&self, webhook: WebhookKey) -> Permit {
        let mut state = self.0.lock();
        let webhook = Arc::new(webhook);
        if let Some(promise) = &mut state.promise {
            let left = promise.of(&webhook).saturating_sub(1);
            promise.listed.insert(Arc::clone(&webhook), left);
            promise.limit = promise.limit.saturating_sub(1);
        }
        self.0.permit(&mut state, &webhook)
    }

    /// Ends the claim, with the webhooks of which more is due and whether more is due in all. Says whether another
    /// claim at once could take some of that: whether there are free slots that this one was not offered.
    pub(super) fn end(self, saturated: Vec<WebhookKey>, stopped: bool) -> bool {
        let slots = &self.0;
        let mut state = slots.lock();
        if !stopped {
            state.backlog.clear();
        }
        state.backlog.extend(saturated.into_iter().map(Arc::new));
        state.stopped = stopped;
        let Some(promise) = state.promise.take() else { return false };
        let free_in_all = slots.in_all.saturating_sub(state.used_in_all);
        let unoffered = |webhook: &Arc<WebhookKey>| slots.per_webhook > state.used(webhook) + promise.of(webhook);
        (stopped && free_in_all > promise.limit) || (free_in_all > 0 && state.backlog.iter().any(unoffered))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.lock().promise = None;
    }
}

/// One slot of a webhook and one in all; both are freed when this is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    slots: Arc<Slots>,
    webhook: Option<Arc<WebhookKey>>,
}

impl Permit {
    /// Frees the webhook's slot early: no request is under way any more, though its result is not yet written.
    pub(super) fn request_ended(&mut self) {
        let Some(webhook) = self.webhook.take() else { return };
        let mut state = self.slots.lock();
        state.vacate(&webhook);
        let claimable = state.backlog.contains(&webhook);
        drop(state);
        if claimable {
            self.slots.wake.notify_one();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.request_ended();
        let mut state = self.slots.lock();
        state.used_in_all = state.used_in_all.saturating_sub(1);
        let claimable = state.stopped;
        drop(state);
        if claimable {
            self.slots.wake.notify_one();
        }
    }
}
