//! A provider that does as it is told, over a store in memory and a door that keeps what goes in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, Method};
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::shop::{answer, key, organization, start};
use crate::clock::{self, SharedClock, SystemClock};
use crate::outbound::{Exchange, Request, Response};
use crate::reconcile::adapter::{Item, Kind, Lister, What};
use crate::reconcile::{Door, Entered, Reconciler, Seen, Settings, Tools, Watch};
use crate::store::memory::MemoryStore;
use crate::store::{Cycle, Group, NewRow, Store, StoreError};

/// What the provider does with a page that is asked for.
pub(super) type Trick = Box<dyn FnMut(&mut BTreeMap<String, Timestamp>, &str) -> Option<Response> + Send>;

/// A provider of sales.
pub(super) struct Provider {
    pub(super) sales: Mutex<BTreeMap<String, Timestamp>>,
    pub(super) trick: Mutex<Trick>,
    pub(super) asked: Mutex<Vec<String>>,
    pub(super) active: Mutex<bool>,
}

#[async_trait]
impl Exchange for Provider {
    async fn exchange(&self, method: Method, request: Request, _: usize) -> Response {
        let query = request.url.query().unwrap_or_default().to_owned();
        self.asked.lock().unwrap().push(format!("{method} {}?{query}", request.url.path()));
        let ok = |body: serde_json::Value| answer(200, HeaderMap::new(), body.to_string());
        if request.url.path().ends_with("/webhooks") {
            let is_active = *self.active.lock().unwrap();
            return ok(json!({"items": [
                {"id": "wh-1", "url": "https://here.example/in/shop", "active": is_active},
                {"id": "wh-2", "url": "https://elsewhere.example/hook", "active": false},
            ]}));
        }
        if request.url.path().ends_with("/webhook/update") {
            assert_eq!(request.body, r#"{"active":true,"id":"wh-1"}"#);
            *self.active.lock().unwrap() = true;
            return ok(json!({}));
        }
        let mut sales = self.sales.lock().unwrap();
        if let Some(answer) = (self.trick.lock().unwrap())(&mut sales, &query) {
            return answer;
        }
        let of = |name: &str| request.url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        let number = |name: &str| of(name).parse::<usize>().unwrap();
        let (from, to) = (timestamp::parse(&of("from")).unwrap(), timestamp::parse(&of("to")).unwrap());
        let (page, size) = (number("currentPage"), number("itemsPerPage"));
        let mut listed: Vec<_> = sales.iter().filter(|(_, at)| from <= **at && **at < to).collect();
        listed.sort_by_key(|(_, at)| **at);
        let item =
            |(id, at): &(&String, &Timestamp)| json!({"id": id, "timestamp": timestamp::format(**at), "total": 5});
        let items: Vec<_> = listed.iter().skip((page - 1) * size).take(size).map(item).collect();
        ok(json!({
            "items": items, "currentPage": page, "itemsPerPage": size,
            "totalItems": listed.len(), "totalPages": listed.len().div_ceil(size),
        }))
    }
}

/// Keeps what goes in, and records it as the inbox would.
pub(super) struct Kept {
    store: Arc<MemoryStore>,
    pub(super) entered: Mutex<Vec<(String, Entry)>>,
    pub(super) told: Mutex<Vec<Seen>>,
    pub(super) fails: Mutex<VecDeque<StoreError>>,
}

pub(super) fn row(key: &str, at: Timestamp, body: String) -> NewRow {
    NewRow {
        organization: organization(),
        provider: "receiptroller".into(),
        source: "shop".into(),
        delivery: format!("d-{key}"),
        event_type: "sale.created".into(),
        version: Version::new(at, "sale.created", format!("d-{key}")),
        key: key.into(),
        body: body.into(),
        received_at: at,
        due_at: at,
        routes: vec!["books".into()],
        park_reason: String::new(),
    }
}

#[async_trait]
impl Door for Kept {
    async fn enter(&self, _: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError> {
        if let Some(error) = self.fails.lock().unwrap().pop_front() {
            return Err(error);
        }
        self.entered.lock().unwrap().push((item.key.clone(), entry));
        let mut row = row(&item.key, item.changed_at, format!(r#"{{"data":{}}}"#, item.data));
        if let Entry::After(micros) = entry {
            row.delivery.push_str("-after");
            row.version = Version { micros: micros + 1, ..row.version };
        }
        self.store.commit(Group { record: vec![row], ..Group::default() }).await?;
        Ok(Entered::Stored)
    }

    async fn is_healthy(&self, _: &str) -> bool {
        true
    }

    async fn switched_off(&self, _: &OrganizationId, seen: &Seen) -> Result<(), StoreError> {
        self.told.lock().unwrap().push(seen.clone());
        Ok(())
    }
}

/// A reconciliation of scripted sales, by pages of three.
pub(super) struct Rig {
    pub(super) provider: Arc<Provider>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) door: Arc<Kept>,
    pub(super) clock: SharedClock,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) stop: CancellationToken,
}

pub(super) fn settings() -> Settings {
    Settings {
        name: "sales".into(),
        organization: organization(),
        source: "shop".into(),
        provider: "receiptroller".into(),
        list: Kind::ReceiptRoller(Lister {
            base: Url::parse("https://shop.example").unwrap(),
            organization: "org".into(),
            what: What::Transactions,
            page_items: 3,
        }),
        credential: None,
        timeout: Settings::DEFAULT_TIMEOUT,
        every: Settings::DEFAULT_EVERY,
        daily: None,
        overlap: Settings::DEFAULT_OVERLAP,
        lookback: Settings::DEFAULT_LOOKBACK,
        call_budget: Settings::DEFAULT_CALL_BUDGET,
        watch: None,
    }
}

pub(super) fn watched() -> Settings {
    let at = |path: &str| Url::parse(&format!("https://shop.example/org/{path}")).unwrap();
    let watch = Watch {
        list: at("webhooks"),
        update: at("webhook/update"),
        webhook: None,
        every: Watch::DEFAULT_EVERY,
        reenable: true,
    };
    Settings { watch: Some(watch), ..settings() }
}

/// So many minutes before the start of a test.
pub(super) fn before(minutes: u64) -> Timestamp {
    start().checked_sub(Duration::from_secs(60 * minutes)).unwrap()
}

pub(super) fn no_trick() -> Trick {
    Box::new(|_, _| None)
}

impl Rig {
    /// With sales so many minutes before the start.
    pub(super) fn new(sales: &[(&str, u64)], settings: Settings) -> Self {
        let provider = Arc::new(Provider {
            sales: Mutex::new(sales.iter().map(|(id, minutes)| ((*id).to_owned(), before(*minutes))).collect()),
            trick: Mutex::new(no_trick()),
            asked: Mutex::default(),
            active: Mutex::new(true),
        });
        let store = Arc::new(MemoryStore::new());
        let clock = clock::fast(Arc::new(SystemClock::start()), 1, start());
        let (entered, told, fails) = Default::default();
        let door = Arc::new(Kept { store: store.clone(), entered, told, fails });
        let tools =
            Tools { store: store.clone(), clock: clock.clone(), exchange: provider.clone(), door: door.clone() };
        let reconciler = Reconciler::new(vec![settings], &tools);
        Self { provider, store, door, clock, reconciler, stop: CancellationToken::new() }
    }

    pub(super) fn trick(
        self,
        trick: impl FnMut(&mut BTreeMap<String, Timestamp>, &str) -> Option<Response> + Send + 'static,
    ) -> Self {
        *self.provider.trick.lock().unwrap() = Box::new(trick);
        self
    }

    pub(super) fn run(&self) {
        tokio::spawn(self.reconciler.clone().run(self.stop.clone()));
    }

    /// Waits in virtual time for a cycle to end.
    pub(super) async fn ended(&self, number: i64) -> Cycle {
        let deadline = self.clock.schedule().checked_add(Duration::from_secs(40 * 24 * 3600)).unwrap();
        loop {
            let cycles = self.cycles().await;
            if let Some(cycle) = cycles.into_iter().find(|cycle| cycle.number == number && cycle.ended_at.is_some()) {
                return cycle;
            }
            assert!(self.clock.schedule() < deadline, "cycle {number} never ends");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    pub(super) async fn cycles(&self) -> Vec<Cycle> {
        self.reconciler.cycles(&key("sales"), None, 100).await.unwrap()
    }

    pub(super) fn entered(&self) -> Vec<String> {
        let mut entered: Vec<_> = self.door.entered.lock().unwrap().iter().map(|(key, _)| key.clone()).collect();
        entered.sort();
        entered
    }

    pub(super) async fn know(&self, key: &str, minutes: u64, body: &str) {
        let record = vec![row(key, before(minutes), body.to_owned())];
        self.store.commit(Group { record, ..Group::default() }).await.unwrap();
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.clock.schedule().duration_since(start()).unsigned_abs()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
