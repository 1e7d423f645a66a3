//! The sandbox, the real inbox and reconciliation in one process and on one virtual clock, without a socket.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::event::EventPattern;
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::Preset;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::wire::{Direct, Inbound, NoTransport, Outages};
use crate::app::door;
use crate::clock::{self, SharedClock, SystemClock};
use crate::inbox::destination::{self, Destination, Tools as DestinationTools};
use crate::inbox::fetch::{self, Fetcher, UrlTemplate};
use crate::inbox::{Inbox, OnBadSignature, Once, Order, Route, Source};
use crate::outbound::Response;
use crate::provider_api::Credential;
use crate::reconcile::adapter::{Item, Kind, Lister, What};
use crate::reconcile::{Door, Entered, Reconciler, Requested, Seen, Settings, Tools, Watch};
use crate::sandbox::faults::Plan;
use crate::sandbox::{self, Receiver, Sandbox, world};
use crate::store::memory::MemoryStore;
use crate::store::{Committer, ReconcileKey, Store, StoreError};

pub(super) const SHOP: &str = "https://shop.example";
const SECRET: &str = "a secret of the tests";

pub(super) fn organization() -> OrganizationId {
    OrganizationId::parse("default").unwrap()
}

pub(super) fn key(name: &str) -> ReconcileKey {
    ReconcileKey { organization: organization(), name: name.into() }
}

/// A door into an inbox alone.
pub(super) struct ToInbox(pub(super) Arc<Inbox>);

#[async_trait]
impl Door for ToInbox {
    async fn enter(&self, source: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError> {
        door::enter(&self.0, source, item, entry).await
    }

    async fn is_healthy(&self, source: &str) -> bool {
        self.0.has_source(source)
    }

    async fn switched_off(&self, _: &OrganizationId, _: &Seen) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What a shop is like.
pub(super) struct Wanted {
    pub(super) seed: u64,
    pub(super) sales_per_hour: f64,
    pub(super) orders_per_hour: f64,
    pub(super) plan: Plan,
    pub(super) outages: Outages,
    pub(super) page_items: usize,
}

/// A shop with its provider, and us.
pub(super) struct Shop {
    pub(super) sandbox: Arc<Sandbox>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) clock: SharedClock,
    stop: CancellationToken,
    stop_world: CancellationToken,
    folder: TempDir,
}

pub(super) fn start() -> Timestamp {
    "2026-11-27T00:00:00Z".parse().unwrap()
}

impl Shop {
    /// Opens everything and lets it run.
    pub(super) fn open(wanted: &Wanted) -> Self {
        let real: SharedClock = Arc::new(SystemClock::start());
        let clock = clock::fast(real.clone(), 1, start());
        let folder = fast_folder();
        let courier =
            Arc::new(Inbound { inbox: OnceLock::new(), clock: clock.clone(), start: start(), outages: wanted.outages });
        let sandbox = Sandbox::new(sandbox_settings(wanted), real, courier.clone());
        let exchange = Arc::new(Direct::default());
        assert!(exchange.0.set(sandbox.router()).is_ok());
        let store = Arc::new(MemoryStore::new());
        let inbox = inbox(&store, &clock, &exchange, folder.path());
        assert!(courier.inbox.set(inbox.clone()).is_ok());
        let door = Arc::new(ToInbox(inbox.clone()));
        let tools = Tools { store: store.clone(), clock: clock.clone(), exchange, door };
        let reconciler = Reconciler::new(vec![settings("sales", wanted), settings("orders", wanted)], &tools);
        let (stop, stop_world) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(sandbox.clone().run(stop_world.clone()));
        tokio::spawn(inbox.run(stop.clone()));
        tokio::spawn(reconciler.clone().run(stop.clone()));
        Self { sandbox, store, reconciler, clock, stop, stop_world, folder }
    }

    /// Nothing happens in the world any more; what is under way goes on.
    pub(super) fn close_the_shops(&self) {
        self.stop_world.cancel();
    }

    /// Has each list compared once more, and waits until that is done and nothing waits in the inbox.
    pub(super) async fn one_cycle(&self) {
        for name in ["sales", "orders"] {
            let before = self.last_ended(name).await;
            assert_eq!(self.reconciler.request(&key(name), None).await.unwrap(), Requested::Noted);
            let deadline = self.clock.schedule().checked_add(Duration::from_secs(24 * 3600)).unwrap();
            while self.last_ended(name).await == before {
                assert!(self.clock.schedule() < deadline, "the cycle of {name} never ends");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        self.settle().await;
    }

    async fn last_ended(&self, name: &str) -> Option<i64> {
        let cycles = self.reconciler.cycles(&key(name), None, 2).await.unwrap();
        cycles.iter().find(|cycle| cycle.ended_at.is_some()).map(|cycle| cycle.number)
    }

    pub(super) async fn settle(&self) {
        let deadline = self.clock.schedule().checked_add(Duration::from_secs(4 * 24 * 3600)).unwrap();
        while self.store.backlog().await.unwrap().effects > 0 {
            assert!(self.clock.schedule() < deadline, "some effect never ends");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The user's own table of sales or orders: a line for each.
    pub(super) fn table(&self, sql: &str) -> BTreeMap<String, String> {
        let books = Connection::open(self.folder.path().join("books.db")).unwrap();
        let mut statement = books.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Both tables beside the provider's lists.
    pub(super) fn assert_equal(&self) {
        let engine = self.sandbox.engine();
        let sales = engine.world.sales_between(Timestamp::MIN, Timestamp::MAX, Timestamp::MAX);
        let sales: BTreeMap<_, _> = sales
            .into_iter()
            .map(|sale| sale.data.value())
            .map(|sale| (sale["id"].as_str().unwrap().to_owned(), sale["paymentSummary"]["grandTotal"].to_string()))
            .collect();
        let orders = engine.world.orders_between(Timestamp::MIN, Timestamp::MAX);
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let orders = orders.into_iter().map(|order| order.data.value());
        let orders: BTreeMap<_, _> = orders.map(|order| (text(&order["order_id"]), text(&order["status"]))).collect();
        drop(engine);
        compare("sales", &sales, &self.table("SELECT id, CAST(total AS TEXT) FROM sales"));
        compare("orders", &orders, &self.table("SELECT id, status FROM orders"));
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.stop.cancel();
        self.stop_world.cancel();
    }
}

fn compare(what: &str, theirs: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) {
    let lost: Vec<_> = theirs.keys().filter(|key| !ours.contains_key(*key)).take(9).collect();
    let phantom: Vec<_> = ours.keys().filter(|key| !theirs.contains_key(*key)).take(9).collect();
    let wrong: Vec<_> =
        theirs.iter().filter(|(key, value)| ours.get(*key).is_some_and(|ours| ours != *value)).take(9).collect();
    assert!(theirs.len() > 10, "{what}: there is too little to compare");
    assert!(
        lost.is_empty() && phantom.is_empty() && wrong.is_empty(),
        "{what}: lost {lost:?}, phantom {phantom:?}, wrong {wrong:?}"
    );
}

/// A folder in memory where there is one: the tests are about what is written, not about the disk.
fn fast_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn sandbox_settings(wanted: &Wanted) -> sandbox::Settings {
    sandbox::Settings {
        world: world::Settings {
            seed: wanted.seed,
            sales_per_hour: wanted.sales_per_hour,
            orders_per_hour: wanted.orders_per_hour,
            ..world::Settings::default()
        },
        plan: wanted.plan.clone(),
        retries: RetrySchedule::default(),
        attempt_timeout: Duration::from_secs(10),
        time_scale: 1,
        start: start(),
        user_name: "sandbox".into(),
        password: Secret::new("sandbox"),
        receivers: vec![Receiver {
            url: Url::parse("https://here.example/in/shop").unwrap(),
            secret: Secret::new(SECRET),
            events: vec![EventPattern::All],
        }],
    }
}

pub(super) fn login() -> Option<Credential> {
    let url = Url::parse(&format!("{SHOP}/account/login")).unwrap();
    Some(Credential::Login { url, user: "sandbox".into(), password: Secret::new("sandbox") })
}

pub(super) fn settings(name: &str, wanted: &Wanted) -> Settings {
    let what = if name == "orders" { What::Orders } else { What::Transactions };
    let base = Url::parse(SHOP).unwrap();
    let at = |path: &str| base.join(path).unwrap();
    Settings {
        name: name.into(),
        organization: organization(),
        source: "shop".into(),
        provider: "receiptroller".into(),
        list: Kind::ReceiptRoller(Lister {
            base: base.clone(),
            organization: "org-sandbox".into(),
            what,
            page_items: wanted.page_items,
        }),
        credential: login(),
        timeout: Settings::DEFAULT_TIMEOUT,
        every: Duration::from_secs(6 * 3600),
        // The plan's sales are listed up to three hours late.
        daily: None,
        overlap: Duration::from_secs(4 * 3600),
        lookback: Settings::DEFAULT_LOOKBACK,
        call_budget: 1_000_000,
        watch: (name == "sales").then(|| Watch {
            list: at("/org-sandbox/webhooks"),
            update: at("/org-sandbox/webhook/update"),
            webhook: None,
            every: Watch::DEFAULT_EVERY,
            reenable: true,
        }),
    }
}

fn source() -> Source {
    Source {
        notify: None,
        name: "shop".into(),
        provider: "receiptroller".into(),
        organization: organization(),
        secrets: vec![Secret::new(SECRET)],
        fetch: Some(fetch::Settings {
            url: UrlTemplate::parse(&format!("{SHOP}/org-sandbox/orders/{{key}}")).unwrap(),
            credential: login(),
            timeout: Duration::from_secs(10),
            max_body_bytes: 1024 * 1024,
        }),
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
    }
}

fn inbox(
    store: &Arc<MemoryStore>,
    clock: &SharedClock,
    exchange: &Arc<Direct>,
    folder: &std::path::Path,
) -> Arc<Inbox> {
    let route = |name: &str, order, once| Route {
        name: name.into(),
        sources: vec!["shop".into()],
        events: vec![EventPattern::parse(if name == "sales" { "sale.*" } else { "order.*" }).unwrap()],
        destination: name.into(),
        order,
        once,
        backoff: None,
    };
    let routes = vec![route("sales", Order::Every, Once::Key), route("orders", Order::Fetch, Once::Delivery)];
    let sales = table(folder, clock, "sales", &[("id", "/data/id"), ("total", "/data/paymentSummary/grandTotal")]);
    let orders = table(folder, clock, "orders", &[("id", "/order_id"), ("status", "/status")]);
    let destinations: HashMap<String, Arc<dyn Destination>> =
        HashMap::from([("sales".to_owned(), sales), ("orders".to_owned(), orders)]);
    let source = source();
    let fetcher = Fetcher::of(&source, exchange.clone(), clock.clone()).unwrap();
    Inbox::new(
        store.clone(),
        Committer::start(store.clone()),
        clock.clone(),
        "one".into(),
        crate::inbox::Settings::default(),
        vec![source],
        routes,
        destinations,
        HashMap::from([("shop".to_owned(), Arc::new(fetcher))]),
    )
}

/// The user's own table.
fn table(folder: &std::path::Path, clock: &SharedClock, name: &str, columns: &[(&str, &str)]) -> Arc<dyn Destination> {
    let kind = destination::Kind::Sql {
        url: Secret::new(format!("sqlite:{}", folder.join("books.db").display())),
        table: name.into(),
        key: "id".into(),
        columns: columns.iter().map(|(column, pointer)| ((*column).to_owned(), (*pointer).to_owned())).collect(),
        create: true,
    };
    let tools = DestinationTools {
        transport: Arc::new(NoTransport),
        clock: clock.clone(),
        effect_timeout: Duration::from_secs(30),
        origins: Arc::default(),
    };
    destination::build(destination::Settings { name: name.into(), kind }, &tools).unwrap()
}

/// An answer of a scripted provider.
pub(super) fn answer(status: u16, headers: HeaderMap, body: impl Into<Bytes>) -> Response {
    let (error, duration) = Default::default();
    Response { outcome: Outcome::Answered(status), error, headers, body: body.into(), duration }
}
