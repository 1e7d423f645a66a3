//! The sender against the memory store, a scripted endpoint and virtual time.

mod faults;
mod flow;
mod isolation;
mod ledger;
mod misbehaviour;
mod notices;
mod rules;
mod settings;
mod signatures;
mod slots;
mod trial;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use hikyaku_core::delivery::{FailureKind, Outcome};
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{self, Webhook, WebhookUrl};
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Sender, Settings};
use crate::clock::{Clock, SystemClock};
use crate::outbound::{Request, Response, Transport};
use crate::store::memory::MemoryStore;
use crate::store::{
    Committer, DeliveryView, NewEvent, PublishOutcome, PublishedEvent, Store, StoreError, WebhookChange,
};

const SECRET: &str = "whsec_of_the_tests_0123456789";

/// Both clocks follow tokio's virtual time, and both can be set.
struct TestClock {
    real: SystemClock,
    started: Timestamp,
    wall_off_by_s: AtomicI64,
    schedule_off_by_s: AtomicI64,
}

impl TestClock {
    fn start() -> Arc<Self> {
        let real = SystemClock::start();
        let started = real.schedule();
        Arc::new(Self { real, started, wall_off_by_s: AtomicI64::new(0), schedule_off_by_s: AtomicI64::new(0) })
    }

    /// Virtual time since the start, whatever the clocks say.
    fn elapsed(&self) -> Duration {
        Duration::try_from(self.real.schedule().duration_since(self.started)).unwrap()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        self.real.schedule() + SignedDuration::from_secs(self.wall_off_by_s.load(Ordering::SeqCst))
    }

    fn schedule(&self) -> Timestamp {
        self.real.schedule() + SignedDuration::from_secs(self.schedule_off_by_s.load(Ordering::SeqCst))
    }
}

/// A request as it was sent.
#[derive(Debug, Clone)]
struct Sent {
    at: Duration,
    /// The first label of the host, by which the tests name their endpoints.
    endpoint: String,
    event: String,
    /// Which request of this event to this endpoint, from 1.
    nth: usize,
    headers: HeaderMap,
    body: Bytes,
}

/// What an endpoint does with a request.
#[derive(Debug, Clone, Copy)]
struct Answer {
    after: Duration,
    outcome: Outcome,
    retry_after: Option<&'static str>,
}

fn status(status: u16) -> Answer {
    Answer { after: Duration::ZERO, outcome: Outcome::Answered(status), retry_after: None }
}

fn hangs() -> Answer {
    Answer { after: secs(10), outcome: Outcome::Failed(FailureKind::Timeout), retry_after: None }
}

impl Answer {
    fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

type Script = Box<dyn Fn(&Sent) -> Answer + Send + Sync>;

/// All endpoints of the world: answers by a script, and keeps the ledger of the wire.
struct Wire {
    clock: Arc<TestClock>,
    script: Script,
    sent: Mutex<Vec<Sent>>,
    /// Requests under way per endpoint: now, and the most there ever were.
    under_way: Mutex<HashMap<String, (u32, u32)>>,
    /// The last request's timeout per endpoint.
    timeouts: Mutex<HashMap<String, Duration>>,
}

impl Wire {
    fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// When the requests to an endpoint were sent, in whole seconds since the start.
    fn seconds(&self, endpoint: &str) -> Vec<u64> {
        self.sent().iter().filter(|sent| sent.endpoint == endpoint).map(|sent| sent.at.as_secs()).collect()
    }

    fn most_under_way(&self, endpoint: &str) -> u32 {
        self.under_way.lock().unwrap().get(endpoint).map_or(0, |(_, most)| *most)
    }

    fn note(&self, request: &Request) -> Sent {
        let endpoint = request.url.host_str().unwrap().split('.').next().unwrap().to_owned();
        let event = request.headers["x-rr-delivery"].to_str().unwrap().to_owned();
        let mut all = self.sent.lock().unwrap();
        let nth = 1 + all.iter().filter(|sent| sent.endpoint == endpoint && sent.event == event).count();
        let (headers, body) = (request.headers.clone(), request.body.clone());
        let sent = Sent { at: self.clock.elapsed(), endpoint, event, nth, headers, body };
        all.push(sent.clone());
        sent
    }
}

#[async_trait]
impl Transport for Wire {
    async fn post(&self, request: Request) -> Response {
        let sent = self.note(&request);
        self.timeouts.lock().unwrap().insert(sent.endpoint.clone(), request.timeout);
        {
            let mut under_way = self.under_way.lock().unwrap();
            let (now, most) = under_way.entry(sent.endpoint.clone()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
        let Answer { after, outcome, retry_after } = (self.script)(&sent);
        let headers = retry_after.map(|value| (RETRY_AFTER, HeaderValue::from_static(value))).into_iter().collect();
        sleep(after).await;
        self.under_way.lock().unwrap().get_mut(&sent.endpoint).unwrap().0 -= 1;
        Response { outcome, error: String::new(), headers, body: Bytes::new(), duration: after }
    }
}

/// A store, a sender that runs on it, and the wire.
struct World {
    store: Arc<MemoryStore>,
    clock: Arc<TestClock>,
    wire: Arc<Wire>,
    sender: Arc<Sender>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl World {
    fn start(script: impl Fn(&Sent) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_with(Settings::default(), script)
    }

    fn start_with(settings: Settings, script: impl Fn(&Sent) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_on(Arc::new(MemoryStore::new()), TestClock::start(), settings, script)
    }

    fn start_on(
        store: Arc<MemoryStore>,
        clock: Arc<TestClock>,
        settings: Settings,
        script: impl Fn(&Sent) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let (sent, under_way, timeouts) = Default::default();
        let wire = Arc::new(Wire { clock: clock.clone(), script: Box::new(script), sent, under_way, timeouts });
        let committer = Committer::start(store.clone());
        let owner = format!("owner-{:?}", clock.elapsed()).into();
        let sender = Sender::new(store.clone(), committer, clock.clone(), wire.clone(), owner, settings);
        let stop = CancellationToken::new();
        let running = tokio::spawn(sender.clone().run(stop.clone()));
        Self { store, clock, wire, sender, stop, running }
    }

    async fn webhook(&self, name: &str) {
        self.webhook_with(name, webhook::Settings::default()).await;
    }

    async fn webhook_with(&self, name: &str, settings: webhook::Settings) {
        let webhook = Webhook { created_at: self.clock.now(), ..webhook(name, settings) };
        self.store.create_webhook(webhook).await.unwrap();
    }

    async fn change(&self, webhook: &str, change: WebhookChange) {
        let id = WebhookId::parse(webhook).unwrap();
        self.store.update_webhook(&organization(), &id, change, self.clock.now()).await.unwrap().unwrap();
    }

    async fn try_publish(&self, ids: &[String]) -> Result<PublishOutcome, StoreError> {
        self.sender.publish(organization(), ids.iter().map(|id| event(id)).collect()).await
    }

    /// Publishes one event.
    async fn publish(&self, id: &str) -> PublishedEvent {
        match self.try_publish(&[id.to_owned()]).await.unwrap() {
            PublishOutcome::Stored(mut events) => events.remove(0),
            conflict => panic!("{conflict:?}"),
        }
    }

    async fn delivery(&self, event: &str, webhook: &str) -> DeliveryView {
        let id = EventId::parse(event).unwrap();
        let view = self.store.event(&organization(), &id).await.unwrap().unwrap();
        view.deliveries.into_iter().find(|delivery| delivery.webhook.as_str() == webhook).unwrap()
    }

    async fn is_on(&self, webhook: &str) -> bool {
        let webhooks = self.store.webhooks(&organization()).await.unwrap();
        webhooks.iter().find(|known| known.id.as_str() == webhook).unwrap().off.is_none()
    }

    /// Asks the sender to end, and waits until it has.
    async fn end(self) -> Arc<MemoryStore> {
        self.stop.cancel();
        self.running.await.unwrap();
        self.store
    }
}

fn organization() -> OrganizationId {
    OrganizationId::parse("shop").unwrap()
}

/// One that takes sales, or everything if its name begins with `any`.
fn webhook(name: &str, settings: webhook::Settings) -> Webhook {
    Webhook {
        organization: organization(),
        id: WebhookId::parse(name).unwrap(),
        url: WebhookUrl::parse(&format!("https://{name}.example.com/hook")).unwrap(),
        events: vec![EventPattern::parse(if name.starts_with("any") { "*" } else { "sale.*" }).unwrap()],
        description: String::new(),
        secret: Secret::new(SECRET),
        previous_secret: None,
        off: None,
        exhausted: 0,
        settings,
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn event(id: &str) -> NewEvent {
    NewEvent {
        id: EventId::parse(id).unwrap(),
        event_type: EventType::parse("sale.created").unwrap(),
        timestamp: Timestamp::UNIX_EPOCH,
        created_at: Timestamp::UNIX_EPOCH,
        key: None,
        content_hash: [0; 32],
        body: Bytes::from(format!("{{\"id\" : \"{id}\",  \"z\":1, \"a\":2.0, \"z\":3}}\n")),
    }
}

/// The outcomes in the log, as `httpStatus` or the failure's word.
fn log(delivery: &DeliveryView) -> Vec<String> {
    let word = |outcome: Outcome| match outcome {
        Outcome::Answered(status) => status.to_string(),
        Outcome::Failed(kind) => kind.to_string(),
    };
    delivery.attempts.iter().map(|attempt| word(attempt.outcome)).collect()
}
