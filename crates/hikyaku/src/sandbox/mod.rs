//! `hikyaku sandbox`: plays the provider, its weaknesses included, on a clock of its own, against any receiver.
//!
//! It knows nothing of the sender or the inbox: it sends HTTP and answers HTTP like the provider would. What happens and
//! when is decided in [`engine`], which has no clock and no socket; here both are connected to it.

mod api;
pub mod engine;
pub mod faults;
pub mod provider;
mod send;
#[cfg(test)]
mod tests;
pub mod view;
pub mod world;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use data_encoding::HEXLOWER;
use hikyaku_core::event::EventPattern;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::clock::{self, SharedClock};
use engine::{Engine, Outgoing, Told};
use faults::Plan;
use provider::{Provider, Webhook};
pub(crate) use send::delivery_headers;
pub use send::{Courier, Network, message};
use world::World;

/// Requests under way at a time; more wait.
const MAX_IN_FLIGHT: usize = 256;
/// The shortest real time a receiver gets to answer, however fast the clock runs: it does not run faster itself.
pub const MIN_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a receiver gets to answer by the contract (R4).
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The sandbox looks at its clock at least this often, in real time.
const LOOK_CAP: Duration = Duration::from_secs(15);
/// Lines that a slow watcher may be behind; it loses those before.
const TOLD_LINES: usize = 4096;
/// Most logins that are remembered; the oldest goes first.
const MAX_LOGINS: usize = 1000;
/// Random bytes of a login's token.
const TOKEN_BYTES: usize = 24;

/// How the sandbox is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The shops.
    pub world: world::Settings,
    /// What goes wrong.
    pub plan: Plan,
    /// The pauses between attempts (R8).
    pub retries: RetrySchedule,
    /// How long a receiver gets to answer (R4), by the sandbox's clock; in real time at least [`MIN_ATTEMPT_TIMEOUT`].
    pub attempt_timeout: Duration,
    /// How much faster than in the world time passes; at least 1.
    pub time_scale: u32,
    /// What its clock shows at the start.
    pub start: Timestamp,
    /// Who may log in.
    pub user_name: String,
    /// With which password.
    pub password: Secret,
    /// Webhooks that are registered from the start.
    pub receivers: Vec<Receiver>,
}

/// A webhook that is registered from the start.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Where it is sent to.
    pub url: Url,
    /// Signs its deliveries.
    pub secret: Secret,
    /// Which events it gets.
    pub events: Vec<EventPattern>,
}

/// A provider at work.
pub struct Sandbox {
    engine: Mutex<Engine>,
    clock: SharedClock,
    time_scale: u32,
    attempt_timeout: Duration,
    courier: Arc<dyn Courier>,
    user_name: String,
    password: Secret,
    /// Tokens and when they end.
    logins: Mutex<BTreeMap<String, Timestamp>>,
    calls: AtomicU64,
    in_flight: Semaphore,
    wake: Notify,
    told: broadcast::Sender<Told>,
}

impl Sandbox {
    /// Sets it up; nothing happens before [`Sandbox::run`].
    pub fn new(settings: Settings, clock: SharedClock, courier: Arc<dyn Courier>) -> Arc<Self> {
        let clock = clock::fast(clock, settings.time_scale, settings.start);
        let mut provider = Provider::new(settings.retries, settings.world.seed);
        for Receiver { url, secret, events } in settings.receivers {
            let id = provider.new_webhook_id();
            provider.put(Webhook { id, url, secret, events, active: true, memo: "registered at the start".to_owned() });
        }
        let world = World::open(settings.world, settings.start);
        Arc::new(Self {
            engine: Mutex::new(Engine::new(world, provider, settings.plan, settings.start)),
            clock,
            time_scale: settings.time_scale,
            attempt_timeout: settings.attempt_timeout,
            courier,
            user_name: settings.user_name,
            password: settings.password,
            logins: Mutex::default(),
            calls: AtomicU64::new(0),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            wake: Notify::new(),
            told: broadcast::channel(TOLD_LINES).0,
        })
    }

    /// Its API, to be served on any listener.
    pub fn router(self: &Arc<Self>) -> Router {
        api::router(Arc::clone(self))
    }

    /// Follows what happens.
    pub fn watch(&self) -> broadcast::Receiver<Told> {
        self.told.subscribe()
    }

    /// What its clock shows.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How much faster than in the world time passes.
    pub fn time_scale(&self) -> u32 {
        self.time_scale
    }

    /// Its state. Nothing is awaited while it is held.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restarts the provider: what waits is lost (R15-R18). Returns how many retries that were.
    pub fn restart(&self) -> usize {
        let lost = self.engine().provider.restart();
        let _ = self.told.send(Told::Fault(
            self.now(),
            faults::TimedFault::Restart,
            format!("{lost} retries that waited are lost"),
        ));
        lost
    }

    /// Lets the world go on until `stop`, then waits for the requests under way.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let requests = TaskTracker::new();
        while !stop.is_cancelled() {
            let (out, next) = {
                let mut engine = self.engine();
                let out = engine.step(self.now());
                (out, engine.next_at())
            };
            self.tell();
            for outgoing in out {
                requests.spawn(Arc::clone(&self).deliver(outgoing));
            }
            tokio::select! {
                biased; // the order is no matter, but a simulation must be able to repeat itself
                () = stop.cancelled() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(self.real_wait(next)) => {}
            }
        }
        requests.close();
        requests.wait().await;
    }

    /// Serves the API and runs, until `stop`.
    ///
    /// # Errors
    /// If the server itself breaks.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) -> io::Result<()> {
        let served = axum::serve(listener, self.router()).with_graceful_shutdown(stop.clone().cancelled_owned());
        let (served, ()) = tokio::join!(async move { served.await }, Arc::clone(&self).run(stop));
        served
    }

    async fn deliver(self: Arc<Self>, outgoing: Outgoing) {
        // It is closed never.
        let Ok(_place) = self.in_flight.acquire().await else { return };
        let began = self.now();
        let timeout = (self.attempt_timeout / self.time_scale).max(MIN_ATTEMPT_TIMEOUT);
        let outcome = self.courier.send(&outgoing, timeout).await;
        let ended = self.now();
        self.engine().ended(outgoing, outcome, began, ended);
        self.tell();
        self.wake.notify_one();
    }

    fn tell(&self) {
        for told in self.engine().told() {
            // Nobody may be watching.
            let _ = self.told.send(told);
        }
    }

    /// How long it is, in real time, until the sandbox's clock shows `at`.
    fn real_wait(&self, at: Timestamp) -> Duration {
        let wait = Duration::try_from(at.duration_since(self.now())).unwrap_or(Duration::ZERO) / self.time_scale;
        wait.clamp(Duration::from_millis(1), LOOK_CAP)
    }

    fn log_in(&self, user_name: &str, password: &str, until: Timestamp) -> Option<(String, Timestamp)> {
        if user_name != self.user_name || password != self.password.reveal() {
            return None;
        }
        let token = HEXLOWER.encode(&clock::random::<TOKEN_BYTES>());
        let mut logins = self.logins.lock().unwrap_or_else(PoisonError::into_inner);
        if logins.len() >= MAX_LOGINS {
            let oldest = logins.iter().min_by_key(|(_, until)| **until).map(|(token, _)| token.clone());
            oldest.map(|oldest| logins.remove(&oldest));
        }
        logins.insert(token.clone(), until);
        Some((token, until))
    }

    fn is_logged_in(&self, token: &str, now: Timestamp) -> bool {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner).get(token).is_some_and(|until| now < *until)
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls of the API so far, refused ones included: what the provider's quota counts.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Real seconds until then, for `Retry-After`.
    fn seconds_until(&self, at: Timestamp) -> HeaderValue {
        let real = at.duration_since(self.now()).as_secs().unsigned_abs() / u64::from(self.time_scale);
        api::seconds(real.max(1))
    }
}
