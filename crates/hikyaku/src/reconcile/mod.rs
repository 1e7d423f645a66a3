//! Reconciliation: compares what came with the provider's list, lets in what did not (T4, T5), and watches whether the
//! provider's webhook is still on.
//!
//! It knows neither sender nor inbox. What is missing goes in through a [`Door`], which the program's wiring opens into the
//! inbox; how far a list was compared is in the store, so that a crash in the middle costs a piece of a period at most.

pub mod adapter;
mod cycle;
mod metrics;
mod pass;
mod request;
mod stop;
#[cfg(test)]
pub(crate) mod tests;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::daily::Daily;
use hikyaku_core::gap::{Entry, Period};
use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::SharedClock;
use crate::crash;
use crate::outbound::Exchange;
use crate::provider_api::{Credential, Failure, ProviderApi};
use crate::store::{Cycle, ReconcileKey, ReconcileState, SharedStore, StoreError};
use adapter::{Adapter, Item};
pub use request::Requested;
use stop::Stop;
pub use watch::Watch;

/// A worker looks at least this often whether something is due: what was asked for through another node is found by
/// then, and no wrong time can park it.
const LOOK_CAP: Duration = Duration::from_secs(15);
/// How often a change is tried that other nodes' changes come before.
const MAX_CHANGES: u32 = 8;
/// The pause after the first failure; it doubles, up to [`Settings::every`].
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest wait that a provider may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Largest answer of a provider's list that is taken, in bytes.
pub const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;
/// How long the call budget's period is.
pub const BUDGET_PERIOD: Duration = Duration::from_secs(30 * 24 * 3600);

/// A reconciliation as configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name; unique.
    pub name: String,
    /// For whom: the source's organization.
    pub organization: OrganizationId,
    /// The source whose deliveries it completes.
    pub source: String,
    /// From whom: the source's provider.
    pub provider: String,
    /// What is listed, and how.
    pub list: adapter::Kind,
    /// What opens the provider's API.
    pub credential: Option<Credential>,
    /// How long one call may take.
    pub timeout: Duration,
    /// From the beginning of a cycle to that of the next.
    pub every: Duration,
    /// At which times of day a cycle begins, in place of `every`.
    pub daily: Option<Daily>,
    /// How far a cycle reaches back before the end of the one before: lists may get their items late.
    pub overlap: Duration,
    /// How far the first one reaches back.
    pub lookback: Duration,
    /// Most calls of the provider's API within [`BUDGET_PERIOD`].
    pub call_budget: u32,
    /// Whether and how the provider's webhook is watched.
    pub watch: Option<Watch>,
}

impl Settings {
    /// [`Settings::every`] unless something else is said: with one page each, 720 calls in 30 days.
    pub const DEFAULT_EVERY: Duration = Duration::from_secs(3600);
    /// [`Settings::overlap`] unless something else is said.
    pub const DEFAULT_OVERLAP: Duration = Duration::from_secs(2 * 3600);
    /// [`Settings::lookback`] unless something else is said.
    pub const DEFAULT_LOOKBACK: Duration = Duration::from_secs(24 * 3600);
    /// [`Settings::call_budget`] unless something else is said: what ReceiptRoller gives for nothing.
    pub const DEFAULT_CALL_BUDGET: u32 = 1000;
    /// [`Settings::timeout`] unless something else is said.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

    /// When the next cycle is due after one at this time, both by the wall clock.
    fn next_after(&self, at: Timestamp) -> Timestamp {
        match &self.daily {
            Some(daily) => daily.next(at),
            None => at.saturating_add(self.every).unwrap_or(Timestamp::MAX),
        }
    }

    fn key(&self) -> ReconcileKey {
        ReconcileKey { organization: self.organization.clone(), name: self.name.clone() }
    }
}

/// What became of an item that was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It is stored, and takes effect.
    Stored,
    /// It is stored, and nobody takes it.
    Parked,
    /// It had come in before.
    Known,
}

/// What the watch saw of a provider's webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The reconciliation that watches.
    pub reconcile: String,
    /// The source that the webhook sends to.
    pub source: String,
    /// The webhook's id at the provider.
    pub webhook: String,
    /// When it was last seen to be on, if it ever was.
    pub active_at: Option<Timestamp>,
    /// Whether it was switched on again.
    pub is_reenabled: bool,
}

/// The way into the rest of the program.
#[async_trait]
pub trait Door: Send + Sync + 'static {
    /// Lets an item in, as if it had been delivered to `source`.
    async fn enter(&self, source: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError>;
    /// Whether deliveries to `source` could be taken now.
    async fn is_healthy(&self, source: &str) -> bool;
    /// Tells the organization that a provider's webhook is off.
    async fn switched_off(&self, organization: &OrganizationId, seen: &Seen) -> Result<(), StoreError>;
}

/// What reconciliations work with.
#[derive(Clone)]
pub struct Tools {
    /// Where progress is kept.
    pub store: SharedStore,
    /// Tells the time.
    pub clock: SharedClock,
    /// Makes the calls; it refuses no address that an operator may have chosen, but those of S7.
    pub exchange: Arc<dyn Exchange>,
    /// Where missing items go.
    pub door: Arc<dyn Door>,
}

/// How a reconciliation stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// What is configured.
    pub settings: Settings,
    /// How far it has come.
    pub state: ReconcileState,
}

impl Status {
    /// Since when the provider's webhook has not been seen to be on, where it is watched; `None` while it was at the last looks.
    pub fn not_active_since(&self, now: Timestamp) -> Option<Timestamp> {
        let (watch, seen_at) = (self.settings.watch.as_ref()?, self.state.active_at?);
        // A look may be late by as long as a call takes.
        let missed_a_look = watch.every.saturating_add(watch.every / 2);
        let since = u128::try_from(now.duration_since(seen_at).as_millis()).unwrap_or_default();
        (since > missed_a_look.as_millis()).then_some(seen_at)
    }
}

/// All reconciliations of one process.
pub struct Reconciler {
    store: SharedStore,
    workers: BTreeMap<ReconcileKey, Arc<Worker>>,
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconciler").field("workers", &self.workers.keys()).finish_non_exhaustive()
    }
}

impl Reconciler {
    /// Puts them together. They do nothing before [`Reconciler::run`].
    pub fn new(all: Vec<Settings>, tools: &Tools) -> Arc<Self> {
        metrics::describe();
        all.iter().for_each(|settings| metrics::begin(&settings.key()));
        let worker = |settings: Settings| (settings.key(), Arc::new(Worker::new(settings, tools.clone())));
        Arc::new(Self { store: tools.store.clone(), workers: all.into_iter().map(worker).collect() })
    }

    /// Works until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let workers = TaskTracker::new();
        for worker in self.workers.values() {
            workers.spawn(Arc::clone(worker).run(stop.clone()));
        }
        workers.close();
        stop.cancelled().await;
        workers.wait().await;
    }

    /// The reconciliations of an organization, by name, as they stand.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self, organization: &OrganizationId) -> Result<Vec<Status>, StoreError> {
        let mut all = Vec::new();
        for worker in self.workers.values().filter(|worker| worker.key.organization == *organization) {
            all.push(worker.status().await?);
        }
        Ok(all)
    }

    /// One of them, or `None`.
    ///
    /// # Errors
    /// The store's.
    pub async fn status(&self, key: &ReconcileKey) -> Result<Option<Status>, StoreError> {
        match self.workers.get(key) {
            Some(worker) => worker.status().await.map(Some),
            None => Ok(None),
        }
    }

    /// Has a period compared as soon as possible, or (`None`) the next cycle begin now. Periods that wait become one.
    ///
    /// # Errors
    /// The store's; then nothing is noted.
    pub async fn request(&self, key: &ReconcileKey, period: Option<Period>) -> Result<Requested, StoreError> {
        match self.workers.get(key) {
            Some(worker) => worker.request(period).await,
            None => Ok(Requested::Nowhere),
        }
    }

    /// A reconciliation's cycles, newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn cycles(&self, key: &ReconcileKey, before: Option<i64>, limit: u32) -> Result<Vec<Cycle>, StoreError> {
        self.store.reconcile_cycles(key, before, limit).await
    }
}

/// When a worker acts next, by the schedule clock.
#[derive(Debug, Clone, Copy, Default)]
struct Plan {
    /// When the next cycle begins; unknown before the first look.
    next_at: Option<Timestamp>,
    /// When the provider's webhook is looked at next.
    watch_at: Option<Timestamp>,
    /// Nothing is tried before this.
    not_before: Option<Timestamp>,
    /// Failures since the last success.
    failures: u32,
}

/// One reconciliation at work.
struct Worker {
    key: ReconcileKey,
    settings: Settings,
    tools: Tools,
    adapter: Box<dyn Adapter>,
    api: ProviderApi,
    plan: Mutex<Plan>,
    wake: Notify,
}

impl Worker {
    fn new(settings: Settings, tools: Tools) -> Self {
        let (exchange, clock) = (tools.exchange.clone(), tools.clock.clone());
        let credential = settings.credential.clone();
        let api = ProviderApi::new(credential, settings.timeout, MAX_PAGE_BYTES, exchange, clock);
        let (key, adapter) = (settings.key(), settings.list.adapter());
        let (plan, wake) = Default::default();
        Self { key, settings, tools, adapter, api, plan, wake }
    }

    async fn run(self: Arc<Self>, stop: CancellationToken) {
        while let Some(pause) = stop.run_until_cancelled(self.look()).await {
            tokio::select! {
                biased; // the order is no matter, but a simulation must be able to repeat itself
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what is due, and returns how long to wait for more.
    async fn look(&self) -> Duration {
        let now = self.tools.clock.schedule();
        if let Some(not_before) = self.plan().not_before.filter(|not_before| *not_before > now) {
            return until(now, not_before);
        }
        match self.work().await {
            Ok(next_at) => {
                let mut plan = self.plan();
                (plan.failures, plan.not_before) = (0, None);
                until(self.tools.clock.schedule(), next_at)
            }
            Err(stopped) => self.stopped(stopped).await,
        }
    }

    /// Notes why it does not go on, and returns how long it pauses.
    async fn stopped(&self, stop: Stop) -> Duration {
        let now = self.tools.clock.schedule();
        let (every, problem) = (self.settings.every.max(FIRST_PAUSE), stop.to_string());
        let pause = {
            let mut plan = self.plan();
            plan.failures = plan.failures.saturating_add(1);
            let growing = FIRST_PAUSE.saturating_mul(1 << (plan.failures - 1).min(16)).min(every);
            let pause = match stop {
                Stop::Provider(Failure { retry_after: Some(asked), .. }) => growing.max(asked.min(MAX_RETRY_AFTER)),
                Stop::Budget { .. } => every,
                _ => growing,
            };
            plan.not_before = now.checked_add(pause).ok();
            pause
        };
        metrics::stopped(&self.key);
        tracing::warn!(
            reconcile = self.key.name,
            problem,
            "reconciliation does not go on; it is tried again in {pause:?}"
        );
        let noted = self.change(|state| {
            if let Some(cycle) = state.cycle.as_mut().filter(|cycle| cycle.ended_at.is_none()) {
                cycle.problem.clone_from(&problem);
            }
        });
        if let Err(error) = noted.await {
            tracing::warn!(reconcile = self.key.name, %error, "that could not be noted");
        }
        pause.min(LOOK_CAP)
    }

    async fn status(&self) -> Result<Status, StoreError> {
        Ok(Status { settings: self.settings.clone(), state: self.state().await? })
    }

    /// The state as it stands.
    async fn state(&self) -> Result<ReconcileState, StoreError> {
        self.tools.store.reconcile_state(&self.key).await
    }

    /// Changes the state, and gives it as it is now. Another node may change it at the same time: then `change` is applied
    /// to what that one has made of it.
    async fn change(&self, change: impl Fn(&mut ReconcileState)) -> Result<ReconcileState, StoreError> {
        for _ in 0..MAX_CHANGES {
            let before = self.state().await?;
            let mut state = before.clone();
            change(&mut state);
            if state == before || self.tools.store.save_reconcile(&self.key, &before, state.clone()).await? {
                crash::point("reconcile.saved");
                return Ok(state);
            }
        }
        Err(StoreError::Unavailable("other nodes change how far this reconciliation has come all the time".to_owned()))
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LOOK_CAP)
}
