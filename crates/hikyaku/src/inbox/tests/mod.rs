//! The inbox over the memory store, with destinations that do as they are told, on tokio's paused time.

mod fetch;
mod fold;
mod import;
mod interventions;
mod notices;
mod outage;
mod process;
mod quarantine;
mod receive;
mod turns;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::Preset;
use hikyaku_core::retry::Backoff;
use hikyaku_core::signature::Secret;
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER, sign};
use tokio_util::sync::CancellationToken;

use super::destination::{Destination, Effect};
use super::fetch::Fetcher;
use super::{Inbox, OnBadSignature, Once, Order, Received, Route, Settings, Source};
use crate::clock::{self, SharedClock, SystemClock};
use crate::store::memory::MemoryStore;
use crate::store::{Committer, EffectView, InboxQuery, InboxRowDetail, InboxRowView, RowState, Store, WorkRow};

/// The provider of every source unless a test says otherwise.
const PROVIDER: &str = "receiptroller";
const SECRET: &str = "a secret of the tests";
/// Longer in virtual time than any retry of any test.
const LONG: Duration = Duration::from_secs(30 * 24 * 3600);

fn organization() -> OrganizationId {
    OrganizationId::parse("default").unwrap()
}

fn source(name: &str) -> Source {
    Source {
        notify: None,
        name: name.into(),
        provider: PROVIDER.into(),
        organization: organization(),
        secrets: vec![Secret::new("the old secret"), Secret::new(SECRET)],
        fetch: None,
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
    }
}

/// A route of the same name as its destination, from the source `shop`.
fn route(destination: &str, events: &str, order: Order, once: Once) -> Route {
    Route {
        name: destination.into(),
        sources: vec!["shop".into()],
        events: vec![EventPattern::parse(events).unwrap()],
        destination: destination.into(),
        order,
        once,
        backoff: None,
    }
}

fn settings() -> Settings {
    Settings {
        backoff: Backoff { give_up_after: Duration::from_secs(3600), ..Backoff::default() },
        effect_timeout: Duration::from_secs(20),
        in_flight_per_route: 4,
        ..Settings::default()
    }
}

/// Gets the row and how often this row was tried before.
type Script = Box<dyn Fn(&WorkRow, usize) -> Answer + Send + Sync>;

/// A destination that answers what a function says, and keeps what it was called with.
struct Scripted {
    answer: Script,
    calls: Mutex<Vec<WorkRow>>,
    busy: Mutex<Vec<String>>,
    most_busy: Mutex<usize>,
}

/// What a scripted destination does.
enum Answer {
    Now(Effect),
    After(Duration, Effect),
    Never,
    Panic,
}

fn done() -> Effect {
    Effect::Done("done".into())
}

fn failed(error: &str) -> Effect {
    Effect::Failed { error: error.into(), retry_after: None }
}

impl Scripted {
    fn new(answer: impl Fn(&WorkRow, usize) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            answer: Box::new(answer),
            calls: Mutex::default(),
            busy: Mutex::default(),
            most_busy: Mutex::default(),
        })
    }

    fn deliveries(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|row| row.delivery.clone()).collect()
    }

    fn begin(&self, row: &WorkRow) -> Answer {
        let tried = self.deliveries().iter().filter(|d| **d == row.delivery).count();
        self.calls.lock().unwrap().push(row.clone());
        (self.answer)(row, tried)
    }
}

/// A call under way, however it ends.
struct Busy<'a>(&'a Scripted, String);

impl<'a> Busy<'a> {
    fn begin(scripted: &'a Scripted, key: &str) -> Self {
        let mut busy = scripted.busy.lock().unwrap();
        assert!(key.is_empty() || !busy.iter().any(|other| other == key), "two rows of key {key} at once");
        busy.push(key.to_owned());
        let mut most = scripted.most_busy.lock().unwrap();
        *most = busy.len().max(*most);
        Self(scripted, key.to_owned())
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unwrap().retain(|key| *key != self.1);
    }
}

#[async_trait]
impl Destination for Scripted {
    async fn apply(&self, row: &WorkRow) -> Effect {
        let _busy = Busy::begin(self, &row.key);
        match self.begin(row) {
            Answer::Now(effect) => effect,
            Answer::After(pause, effect) => {
                tokio::time::sleep(pause).await;
                effect
            }
            Answer::Never => std::future::pending().await,
            Answer::Panic => panic!("a planted panic"),
        }
    }
}

/// An inbox with its store, running or not.
struct Rig {
    store: Arc<MemoryStore>,
    clock: SharedClock,
    inbox: Arc<Inbox>,
    stop: CancellationToken,
    running: Option<tokio::task::JoinHandle<()>>,
}

/// Destinations by name.
type Destinations<'a> = &'a [(&'a str, Arc<dyn Destination>)];

impl Rig {
    fn new(routes: Vec<Route>, destinations: Destinations<'_>) -> Self {
        Self::over(Arc::new(MemoryStore::new()), "one", vec![source("shop")], routes, destinations)
    }

    /// An inbox as process `owner` over a store that others may use too.
    fn over(
        store: Arc<MemoryStore>,
        owner: &str,
        sources: Vec<Source>,
        routes: Vec<Route>,
        destinations: Destinations<'_>,
    ) -> Self {
        Self::with(store, owner, sources, routes, destinations, HashMap::new())
    }

    /// The same, which can read present states.
    fn with(
        store: Arc<MemoryStore>,
        owner: &str,
        sources: Vec<Source>,
        routes: Vec<Route>,
        destinations: Destinations<'_>,
        fetchers: HashMap<String, Arc<Fetcher>>,
    ) -> Self {
        // The wall clock goes with tokio's time, too.
        let system: SharedClock = Arc::new(SystemClock::start());
        let clock = clock::fast(system.clone(), 1, system.now());
        let committer = Committer::start(store.clone());
        let destinations: HashMap<_, _> = destinations.iter().map(|(n, d)| ((*n).to_owned(), d.clone())).collect();
        let inbox = Inbox::new(
            store.clone(),
            committer,
            clock.clone(),
            owner.into(),
            settings(),
            sources,
            routes,
            destinations,
            fetchers,
        );
        Self { store, clock, inbox, stop: CancellationToken::new(), running: None }
    }

    fn run(&mut self) {
        self.running = Some(tokio::spawn(self.inbox.clone().run(self.stop.clone())));
    }

    /// Stops and waits until nothing is under way.
    async fn stop(&mut self) {
        self.stop.cancel();
        self.running.take().unwrap().await.unwrap();
    }

    /// A signed delivery to `shop`.
    async fn send(&self, delivery: &str, body: impl Into<Bytes>) -> Received {
        self.send_to("shop", delivery, body).await
    }

    async fn send_to(&self, source: &str, delivery: &str, body: impl Into<Bytes>) -> Received {
        let body = body.into();
        self.inbox.receive(source, &headers(delivery, &body), body).await.unwrap()
    }

    /// Waits in virtual time until no effect waits any more.
    async fn settle(&self) {
        let began = self.clock.schedule();
        while self.store.backlog().await.unwrap().effects > 0 {
            let waited = self.clock.schedule().duration_since(began).unsigned_abs();
            assert!(waited < LONG, "some effect never ends");
            // The longer it takes, the less a look more or less matters.
            tokio::time::sleep((waited / 4096).max(Duration::from_millis(50))).await;
        }
    }

    async fn row(&self, delivery: &str) -> InboxRowDetail {
        self.store.inbox_row(&organization(), PROVIDER, delivery).await.unwrap().expect("the row is stored")
    }

    /// The parked rows, newest first.
    async fn parked(&self) -> Vec<InboxRowView> {
        let (organization, state) = (organization(), Some(RowState::Parked));
        let query = InboxQuery { state, ..InboxQuery::newest(organization, 10) };
        self.store.inbox(query).await.unwrap().rows
    }

    /// How a row stands with its one route.
    async fn effect(&self, delivery: &str) -> EffectView {
        let mut effects = self.row(delivery).await.effects;
        assert_eq!(effects.len(), 1);
        effects.remove(0)
    }
}

/// The headers of a good delivery.
fn headers(delivery: &str, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(SIGNATURE_HEADER, sign(&Secret::new(SECRET), body).parse().unwrap());
    headers.insert(DELIVERY_HEADER, delivery.parse().unwrap());
    headers
}

/// A sale's event, sent out at `second`.
fn sale(delivery: &str, key: &str, second: i64) -> String {
    event(delivery, "sale.created", key, second)
}

fn event(delivery: &str, event_type: &str, key: &str, second: i64) -> String {
    format!(
        r#"{{"id":"{delivery}","type":"{event_type}","timestamp":{second},"data":{{"id":"{key}","total":{second}}}}}"#
    )
}
