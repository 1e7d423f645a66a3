//! What makes several processes over one store one system: what each of them does, what only one does at a time, and the
//! time that all of them schedule by.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hikyaku_core::delivery::Policy;
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{App, StartError};
use crate::clock::{SharedClock, SharedSchedule};
use crate::config::Config;
use crate::duty::Duty;
use crate::role::Role;
use crate::store::{Due, SharedStore, StoreError};
use crate::{console, http, inbox, sender};

/// How often the time is asked for that all nodes over one store schedule by. Clocks drift apart by far less than a
/// second in between.
const ASK_TIME_EVERY: Duration = Duration::from_secs(10);
/// How often each of several nodes looks for inbox work: what one of them receives, another may have to find.
const LOOK_FOR_OTHERS_EVERY: Duration = Duration::from_secs(1);

/// What only one node does at a time.
pub(super) struct Duties {
    pub(super) reconcile: Duty,
    pub(super) retention: Duty,
}

impl Duties {
    /// Those of the process that is called `owner` in its leases.
    pub(super) fn new(store: &SharedStore, clock: &SharedClock, owner: &Arc<str>) -> Self {
        let duty = |name| Duty::new(Arc::clone(store), Arc::clone(clock), Arc::clone(owner), name);
        Self { reconcile: duty("reconcile"), retention: duty("retention") }
    }
}

impl App {
    /// Starts what this node does until `stop`, by its roles.
    pub(super) fn spawn_workers(&self, workers: &mut JoinSet<()>, stop: &CancellationToken) {
        let (sender, inbox) = (Arc::clone(&self.sender), Arc::clone(&self.inbox));
        match self.roles.has(Role::Sender) {
            true => workers.spawn(sender.run(stop.clone())),
            false => workers.spawn(sender.stand_by(stop.clone())),
        };
        match self.roles.has(Role::Worker) {
            true => workers.spawn(inbox.run(stop.clone())),
            false => workers.spawn(stop.clone().cancelled_owned()),
        };
        if self.roles.has(Role::Reconcile) {
            let reconciler = Arc::clone(&self.reconciler);
            let work = move |told| Arc::clone(&reconciler).run(told);
            workers.spawn(self.duties.reconcile.clone().run(stop.clone(), work));
        }
        let retention = Arc::clone(&self.retention);
        let work = move |told| Arc::clone(&retention).run(told);
        workers.spawn(self.duties.retention.clone().run(stop.clone(), work));
        // An outage is a time in which nobody could receive.
        if self.roles.has(Role::Inbox) {
            workers.spawn(Arc::clone(&self.heartbeat).run(stop.clone()));
        }
        if self.roles.has(Role::Sender) {
            let sender = Arc::clone(&self.sender);
            workers.spawn(hear(Arc::clone(&self.store), Due::Deliveries, stop.clone(), move || sender.wake()));
        }
        if self.roles.has(Role::Worker) {
            let inbox = Arc::clone(&self.inbox);
            workers.spawn(hear(Arc::clone(&self.store), Due::Lanes, stop.clone(), move || inbox.wake()));
        }
        if let Some(schedule) = &self.shared_schedule {
            workers.spawn(keep_time(Arc::clone(schedule), Arc::clone(&self.store), stop.clone()));
        }
    }
}

/// Passes on what other nodes say.
async fn hear(store: SharedStore, what: Due, stop: CancellationToken, tell: impl Fn() + Send) {
    while stop.run_until_cancelled(store.nudged(what)).await.is_some() {
        tell();
    }
}

/// The schedule that goes by the store's clock, where several nodes share one.
pub(super) async fn shared_schedule(
    store: &SharedStore,
    clock: &SharedClock,
) -> Result<Option<Arc<SharedSchedule>>, StartError> {
    if store.shared_time().await.map_err(StartError::SharedTime)?.is_none() {
        return Ok(None);
    }
    let schedule = SharedSchedule::new(Arc::clone(clock));
    schedule.set(shared_time(store)).await.map_err(StartError::SharedTime)?;
    Ok(Some(schedule))
}

async fn shared_time(store: &SharedStore) -> Result<Timestamp, StoreError> {
    let none = || StoreError::Damaged("the store no longer tells its time".to_owned());
    store.shared_time().await?.ok_or_else(none)
}

/// Goes on asking for the time. While the store does not answer, this process's own clock goes on from the last answer.
async fn keep_time(schedule: Arc<SharedSchedule>, store: SharedStore, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(ASK_TIME_EVERY)).await.is_some() {
        if let Err(error) = schedule.set(shared_time(&store)).await {
            tracing::debug!(%error, "the store's time is not known; the last answer holds");
        }
    }
}

/// First attempts are made where they are published, if that node is a sender.
pub(super) fn sender_settings(config: &Config, in_flight: u32) -> sender::Settings {
    let attempts_first = config.roles.has(Role::Sender);
    sender::Settings { in_flight, attempts_first, ..config.sender.clone() }
}

/// Received deliveries are worked off by nodes that are workers.
pub(super) fn inbox_settings(config: &Config, is_shared: bool) -> inbox::Settings {
    let settings = config.inbox.clone();
    let look_every = if is_shared { settings.look_every.min(LOOK_FOR_OTHERS_EVERY) } else { settings.look_every };
    inbox::Settings { works: config.roles.has(Role::Worker), look_every, ..settings }
}

/// The console beside the API that it calls, where this node has one.
pub(super) fn with_console(state: http::State, policy: &Policy) -> Router {
    let (has_console, clock) = (state.roles.has(Role::Api), Arc::clone(&state.clock));
    let api = http::router(state);
    if !has_console {
        return api;
    }
    let retry_delays: Vec<_> =
        (1..policy.schedule.max_attempts()).filter_map(|ended| policy.schedule.delay_after(ended)).collect();
    let console = console::router(api.clone(), clock, &retry_delays);
    api.merge(http::guard(console))
}
