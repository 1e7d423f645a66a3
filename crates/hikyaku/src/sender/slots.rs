//! How much may be under way at a time, per webhook and in all, and how fast it may follow (the webhook's rate limit),
//! so that one webhook that hangs, or that wants little, costs the others nothing.
//!
//! Publishes and claims draw from the same slots, and both go on at the same time. A claim does not know beforehand
//! what it will bring, so it is *promised* slots when it begins: half of a webhook's free ones, which leaves the other
//! half to publishes while it runs. A webhook with a backlog in the store is filled by claims alone, so that its newest
//! events do not starve its oldest.
//!
//! While fewer than half of all slots are free, every webhook's cap shrinks with them (see [`Pool::share`]): however many
//! webhooks hang, some slots stay free for the others.
//!
//! A webhook's own cap and rate are known here while it has anything under way or its bucket is not full; of all others
//! the store itself takes [`Settings::claim_share`].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hikyaku_core::ids::{OrganizationId, WebhookId};
use hikyaku_core::webhook::{Settings, Webhook};
use jiff::Timestamp;
use tokio::sync::Notify;

use super::rate::Bucket;
use crate::clock::SharedClock;

/// Most deliveries that one claim takes: a bound on the bodies that it reads at once.
const MAX_CLAIMED: u32 = 256;

/// Which webhook, of whom.
pub(super) type WebhookKey = (OrganizationId, WebhookId);

/// The slots of this process.
pub(super) struct Slots {
    per_webhook: u32,
    in_all: u32,
    /// Told when a slot is freed that a claim could fill.
    wake: Arc<Notify>,
    /// By which the rates are kept.
    clock: SharedClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// The webhooks that have something under way, or a bucket that is not full.
    known: HashMap<Arc<WebhookKey>, Known>,
    /// Attempts under way, those included whose result is being written.
    used_in_all: u32,
    /// What the claim under way may still take.
    promise: Option<Promise>,
    /// Webhooks of which the last claims had to leave due deliveries behind.
    backlog: HashSet<Arc<WebhookKey>>,
    /// Whether the last claim left due deliveries behind for want of slots in all.
    stopped: bool,
}

/// The slots in all.
#[derive(Debug, Clone, Copy)]
struct Pool {
    free: u32,
    in_all: u32,
}

impl Pool {
    /// Whether fewer than half of the slots are free.
    fn is_scarce(self) -> bool {
        self.free < self.in_all.div_ceil(2)
    }

    /// What a webhook's cap comes to: all of it, but in proportion less where slots are scarce, and never nothing while
    /// one is free. Those that hold many slots reach it first, and leave what remains to those that hold few.
    fn share(self, cap: u32) -> u32 {
        if !self.is_scarce() {
            return cap;
        }
        let share = (u64::from(cap) * u64::from(self.free)).div_ceil(u64::from(self.in_all.div_ceil(2)));
        u32::try_from(share).unwrap_or(cap)
    }
}

#[derive(Debug)]
struct Known {
    /// Requests that may be under way.
    cap: u32,
    /// Requests that are.
    used: u32,
    bucket: Option<Bucket>,
}

impl Known {
    fn new(settings: &Settings, per_webhook: u32) -> Self {
        let mut known = Self { cap: 0, used: 0, bucket: None };
        known.set(settings, per_webhook);
        known
    }

    /// Takes over what is set now.
    fn set(&mut self, settings: &Settings, per_webhook: u32) {
        self.cap = settings.max_in_flight.map_or(per_webhook, |most| most.get());
        match (&mut self.bucket, settings.rate_limit) {
            (Some(bucket), Some(limit)) => bucket.set(limit),
            (bucket, limit) => *bucket = limit.map(Bucket::new),
        }
    }

    fn tokens(&self, now: Timestamp) -> u32 {
        self.bucket.map_or(u32::MAX, |bucket| bucket.tokens(now))
    }

    fn free(&self, pool: Pool, now: Timestamp) -> u32 {
        pool.share(self.cap).saturating_sub(self.used).min(self.tokens(now))
    }

    /// Whether nothing would be lost by forgetting it.
    fn is_idle(&self, now: Timestamp) -> bool {
        self.used == 0 && self.bucket.is_none_or(|bucket| bucket.is_full(now))
    }
}

#[derive(Debug)]
struct Promise {
    each: u32,
    /// The most of a webhook that is not listed, whatever it has set.
    most_each: u32,
    listed: HashMap<Arc<WebhookKey>, u32>,
    limit: u32,
}

impl Promise {
    fn of(&self, webhook: &WebhookKey, settings: &Settings) -> u32 {
        let unlisted = || settings.claim_share(self.each).min(self.most_each);
        self.listed.get(webhook).copied().unwrap_or_else(unlisted)
    }
}

impl State {
    fn known(&mut self, key: &Arc<WebhookKey>, settings: &Settings, per_webhook: u32) -> &mut Known {
        let known = self.known.entry(Arc::clone(key)).or_insert_with(|| Known::new(settings, per_webhook));
        known.set(settings, per_webhook);
        known
    }

    fn vacate(&mut self, webhook: &WebhookKey, now: Timestamp) {
        let Some(known) = self.known.get_mut(webhook) else { return };
        known.used = known.used.saturating_sub(1);
        if known.is_idle(now) && !self.backlog.contains(webhook) {
            self.known.remove(webhook);
        }
    }

    fn forget_idle(&mut self, now: Timestamp) {
        let backlog = &self.backlog;
        self.known.retain(|webhook, known| !known.is_idle(now) || backlog.contains(webhook));
    }

    /// Half of what is free; all of it where only claims fill it.
    fn promised(&self, webhook: &WebhookKey, known: &Known, pool: Pool, now: Timestamp) -> u32 {
        let free = known.free(pool, now);
        if self.backlog.contains(webhook) { free } else { free.div_ceil(2) }
    }
}

impl Slots {
    /// All slots free. `wake` is told when one is freed that a claim could fill.
    pub(super) fn new(per_webhook: u32, in_all: u32, wake: Arc<Notify>, clock: SharedClock) -> Arc<Self> {
        Arc::new(Self { per_webhook, in_all, wake, clock, state: Mutex::default() })
    }

    /// From now on nothing more can be reserved.
    pub(super) fn close(&self) {
        self.lock().closed = true;
    }

    /// Takes up to `wanted` slots of a webhook for deliveries that are about to be stored; none if it has a backlog.
    pub(super) fn reserve(self: &Arc<Self>, webhook: &Webhook, wanted: u32) -> Vec<Permit> {
        let key = Arc::new(key(webhook));
        let mut state = self.lock();
        if wanted == 0 || state.closed || state.backlog.contains(&key) {
            return Vec::new();
        }
        let promise = state.promise.as_ref();
        let (promised, limit) = promise.map_or((0, 0), |promise| (promise.of(&key, &webhook.settings), promise.limit));
        let pool = self.pool(&state);
        let free_in_all = pool.free.saturating_sub(limit);
        let free = state.known(&key, &webhook.settings, self.per_webhook).free(pool, self.clock.schedule());
        let free = free.saturating_sub(promised).min(free_in_all).min(wanted);
        (0..free).map(|_| self.permit(&mut state, &key, &webhook.settings)).collect()
    }

    /// Begins a claim, of which there is one at a time. `None` when there is no slot left in all; then the next one
    /// that is freed wakes the loop.
    pub(super) fn begin_claim(self: &Arc<Self>) -> Option<Claim> {
        let now = self.clock.schedule();
        let mut state = self.lock();
        let pool = self.pool(&state);
        let limit = pool.free.div_ceil(2).min(MAX_CLAIMED);
        if limit == 0 {
            state.stopped = true;
            return None;
        }
        state.forget_idle(now);
        let listed = state.known.iter().map(|(key, known)| (Arc::clone(key), state.promised(key, known, pool, now)));
        let listed = listed.collect();
        let each = pool.share(self.per_webhook).div_ceil(2);
        let most_each = if pool.is_scarce() { each } else { u32::MAX };
        state.promise = Some(Promise { each, most_each, listed, limit });
        Some(Claim(Arc::clone(self)))
    }

    fn pool(&self, state: &State) -> Pool {
        Pool { free: self.in_all.saturating_sub(state.used_in_all), in_all: self.in_all }
    }

    fn permit(self: &Arc<Self>, state: &mut State, key: &Arc<WebhookKey>, settings: &Settings) -> Permit {
        let known = state.known(key, settings, self.per_webhook);
        known.used += 1;
        if let Some(bucket) = &mut known.bucket {
            bucket.take(self.clock.schedule());
        }
        state.used_in_all += 1;
        Permit { slots: Arc::clone(self), webhook: Arc::clone(key), under_way: true, unused: true }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave the numbers half changed, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("in_all", &self.in_all).field("state", &self.state).finish_non_exhaustive()
    }
}

fn key(webhook: &Webhook) -> WebhookKey {
    (webhook.organization.clone(), webhook.id.clone())
}

/// The slots promised to a claim; what it did not take is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Claim(Arc<Slots>);

/// What a claim may take.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// Of a webhook that is not listed and has nothing set.
    pub(super) each: u32,
    /// Of one that is not listed and has.
    pub(super) most_each: u32,
    /// Of the listed ones.
    pub(super) listed: HashMap<WebhookKey, u32>,
    /// In all.
    pub(super) limit: u32,
}

/// When to claim again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again {
    /// Whether another claim at once could bring more.
    pub(super) at_once: bool,
    /// When a rate lets something go that is due; by the schedule clock.
    pub(super) later: Option<Timestamp>,
}

impl Claim {
    /// What may be taken.
    pub(super) fn offer(&self) -> Offer {
        let state = self.0.lock();
        state.promise.as_ref().map_or_else(Default::default, |promise| {
            let listed = promise.listed.iter().map(|(webhook, slots)| (WebhookKey::clone(webhook), *slots));
            Offer { each: promise.each, most_each: promise.most_each, listed: listed.collect(), limit: promise.limit }
        })
    }

    /// The slot for one delivery that the claim brought.
    pub(super) fn take(&self, webhook: &Webhook) -> Permit {
        let key = Arc::new(key(webhook));
        let mut state = self.0.lock();
        if let Some(promise) = &mut state.promise {
            let left = promise.of(&key, &webhook.settings).saturating_sub(1);
            promise.listed.insert(Arc::clone(&key), left);
            promise.limit = promise.limit.saturating_sub(1);
        }
        self.0.permit(&mut state, &key, &webhook.settings)
    }

    /// Ends the claim, with the webhooks of which more is due and whether more is due in all. Another claim at once
    /// could bring more where there are free slots that this one was not offered.
    pub(super) fn end(self, saturated: Vec<WebhookKey>, stopped: bool) -> Again {
        let slots = &self.0;
        let now = slots.clock.schedule();
        let mut state = slots.lock();
        if !stopped {
            state.backlog.clear();
        }
        state.backlog.extend(saturated.into_iter().map(Arc::new));
        state.stopped = stopped;
        let Some(promise) = state.promise.take() else { return Again { at_once: false, later: None } };
        let pool = slots.pool(&state);
        let backlog = state.backlog.iter().filter_map(|key| Some((key, state.known.get(key)?)));
        let mut at_once = stopped && pool.free > promise.limit;
        let mut later = None;
        for (key, known) in backlog {
            let offered = promise.listed.get(key).copied().unwrap_or_default();
            at_once |= pool.free > 0 && known.free(pool, now) > offered;
            let next = known.bucket.filter(|bucket| bucket.tokens(now) == 0).map(|bucket| bucket.next());
            later = later.into_iter().chain(next).min();
        }
        Again { at_once, later }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.lock().promise = None;
    }
}

/// One slot of a webhook and one in all, and a token of its rate; the slots are freed when this is dropped, and the token
/// is given back if no request was made.
#[derive(Debug)]
pub(super) struct Permit {
    slots: Arc<Slots>,
    webhook: Arc<WebhookKey>,
    under_way: bool,
    unused: bool,
}

impl Permit {
    /// A request is being made: the token is used.
    pub(super) fn use_token(&mut self) {
        self.unused = false;
    }

    /// Frees the webhook's slot early: no request is under way any more, though its result is not yet written.
    pub(super) fn request_ended(&mut self) {
        if !std::mem::take(&mut self.under_way) {
            return;
        }
        let now = self.slots.clock.schedule();
        let mut state = self.slots.lock();
        let bucket = state.known.get_mut(&self.webhook).and_then(|known| known.bucket.as_mut());
        if let Some(bucket) = bucket.filter(|_| self.unused) {
            bucket.give_back();
        }
        state.vacate(&self.webhook, now);
        let may_go = state.known.get(&self.webhook).is_none_or(|known| known.tokens(now) > 0);
        let claimable = may_go && state.backlog.contains(&self.webhook);
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
