//! The second act: somebody else's webhooks. A sandbox plays the provider; its webhook leads through a gate to the inbox.
//! While the gate is closed the provider restarts and loses its retries, and in the end switches its webhook off. The
//! program switches it on again and fetches what never came.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hikyaku_core::event::EventPattern;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use hyper::Method;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::api::Api;
use super::endpoints::{Character, Endpoint};
use super::report::Shop;
use super::say::Say;
use super::{DemoError, FASTER, SECRET, is_worked_off, wait};
use crate::clock::SharedClock;
use crate::sandbox::faults::Plan;
use crate::sandbox::{Network, Receiver, Sandbox, Settings, world};

/// Sales and orders of the shops in an hour: a few every second.
const SALES_PER_HOUR: f64 = 9_000.0;
const ORDERS_PER_HOUR: f64 = 2_400.0;
/// From an order's arrival to each of its steps, in seconds.
const ORDER_STEPS: Range<u64> = 1..4;
/// Deliveries that come before the gate closes, and after it is open again.
const DELIVERED_BEFORE: usize = 40;
const DELIVERED_AFTER: usize = 20;
/// Retries that wait before the provider restarts.
const WAITING_BEFORE_RESTART: usize = 8;
/// The reconciliations of the demo's configuration.
const RECONCILIATIONS: [&str; 2] = ["shop-sales", "shop-orders"];

/// A provider that serves its API, and whose shops are not open yet.
pub(super) struct Provider {
    sandbox: Arc<Sandbox>,
    /// Its API's address.
    pub(super) address: SocketAddr,
    gate: Arc<AtomicBool>,
    endpoint: Endpoint,
    to_inbox: Arc<OnceLock<Api>>,
    _serving: JoinHandle<()>,
}

impl Provider {
    /// Starts it on free loopback ports.
    pub(super) async fn start(clock: &SharedClock, say: &Say) -> Result<Self, DemoError> {
        let gate = Arc::new(AtomicBool::new(true));
        let to_inbox = Arc::new(OnceLock::new());
        let character = Character::Gate { open: Arc::clone(&gate), inbox: Arc::clone(&to_inbox) };
        let endpoint = Endpoint::start(character, say.clone()).await?;
        let sandbox = Sandbox::new(settings(&endpoint, clock), Arc::clone(clock), Arc::new(Network::open(clock)?));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let router = sandbox.router();
        let serving = tokio::spawn(async move {
            // It lives as long as the process.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { sandbox, address, gate, endpoint, to_inbox, _serving: serving })
    }

    /// The act. It ends with both sides equal, or it says what is not.
    pub(super) async fn show(self, api: &Api, say: &Say, books: &Path) -> Result<Shop, DemoError> {
        let _ = self.to_inbox.set(api.clone());
        let closing_time = CancellationToken::new();
        let shops = tokio::spawn(Arc::clone(&self.sandbox).run(closing_time.clone()));
        say.line("provider    its shops are open; their sales and orders come to the inbox");
        wait("the shops' first deliveries", async || Ok(self.delivered() >= DELIVERED_BEFORE)).await?;

        self.gate.store(false, Ordering::Release);
        say.line("gate        closed: every delivery is answered 503");
        wait("retries", async || Ok(self.sandbox.engine().provider.waiting() >= WAITING_BEFORE_RESTART)).await?;
        let lost = self.sandbox.restart();
        say.line(&format!("provider    restarts: {lost} retries that waited are lost, and nobody is told"));
        wait("the provider's webhook", async || Ok(!self.is_on())).await?;
        say.line("provider    switches its webhook off: one event failed four times");

        self.gate.store(true, Ordering::Release);
        say.line("gate        open again");
        wait("the watch", async || Ok(self.is_on())).await?;
        say.line("hikyaku     saw that the webhook was off, and switched it on");
        let enough = self.delivered() + DELIVERED_AFTER;
        wait("the shops' last deliveries", async || Ok(self.delivered() >= enough)).await?;
        closing_time.cancel();
        // What is under way is sent to its end.
        let _ = shops.await;

        let mut repaired = 0;
        for name in RECONCILIATIONS {
            repaired += reconcile(api, say, name).await?;
        }
        wait("the shops' work", || is_worked_off(api)).await?;
        let delivered = self.delivered();
        let engine = self.sandbox.engine();
        Shop::read(&engine.world, books, lost, delivered, repaired)
    }

    fn delivered(&self) -> usize {
        self.endpoint.seen(|seen| seen.taken.len())
    }

    fn is_on(&self) -> bool {
        self.sandbox.engine().provider.webhooks().all(|webhook| webhook.active)
    }
}

fn settings(endpoint: &Endpoint, clock: &SharedClock) -> Settings {
    let delays = [60, 600, 3600].map(|seconds| Duration::from_secs(seconds) / FASTER);
    Settings {
        world: world::Settings {
            sales_per_hour: SALES_PER_HOUR,
            orders_per_hour: ORDERS_PER_HOUR,
            order_steps: ORDER_STEPS,
            ..world::Settings::default()
        },
        plan: Plan::default(),
        // Three delays are a schedule.
        retries: RetrySchedule::new(delays.to_vec()).unwrap_or_default(),
        attempt_timeout: Duration::from_secs(1),
        // Its clock is the demo's, or its sales would lie in the future.
        time_scale: 1,
        start: clock.now(),
        user_name: "demo".to_owned(),
        password: Secret::new("demo"),
        receivers: Url::parse(&format!("http://{}/in/shop", endpoint.address))
            .map(|url| Receiver { url, secret: Secret::new(SECRET), events: vec![EventPattern::All] })
            .into_iter()
            .collect(),
    }
}

/// Compares the provider's list with the inbox once, and says how much was missing.
async fn reconcile(api: &Api, say: &Say, name: &str) -> Result<u64, DemoError> {
    let status = async || api.call(Method::GET, "reconcile", None).await;
    let find = |all: &Value| {
        let items = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().find(|item| item["name"] == name).cloned().unwrap_or_default()
    };
    let before = find(&status().await?)["cycle"]["number"].as_i64().unwrap_or(0);
    api.call(Method::POST, &format!("reconcile/{name}/run"), Some(&json!({}))).await?;
    let has_ended = |cycle: &Value| cycle["number"].as_i64() > Some(before) && cycle["endedAt"].is_string();
    wait("a reconciliation", async || Ok(has_ended(&find(&status().await?)["cycle"]))).await?;
    let cycles = api.call(Method::GET, &format!("reconcile/{name}/cycles?limit=200"), None).await?;
    let cycles = cycles["items"].as_array().cloned().unwrap_or_default();
    let sum = |what: &str| cycles.iter().filter_map(|cycle| cycle[what].as_u64()).sum::<u64>();
    let listed = cycles.first().and_then(|cycle| cycle["listed"].as_u64()).unwrap_or(0);
    say.line(&format!(
        "hikyaku     {name}: the provider lists {listed}, {} had never come and are here now",
        sum("missing")
    ));
    Ok(sum("repaired"))
}

/// The part of the demo's configuration that is about the provider.
pub(super) fn configuration(provider: SocketAddr, books: &Value) -> String {
    let base = format!("http://{provider}");
    let reconcile = |name: &str, adapter: &str| {
        format!(
            r#"
[[reconcile]]
name = "{name}"
source = "shop"
adapter = "{adapter}"
url = "{base}"
provider_organization = "org-sandbox"
login = "{base}/account/login"
user = "demo"
password = "demo"
"#
        )
    };
    format!(
        r#"
[[source]]
name = "shop"
provider = "receiptroller"
provider_name = "shop"
secrets = ["{SECRET}"]
[source.fetch]
url = "{base}/org-sandbox/orders/{{key}}"
login = "{base}/account/login"
user = "demo"
password = "demo"

[[destination]]
name = "shop-sales"
kind = "sql"
url = {books}
table = "shop_sales"
key = "id"
columns = {{ id = "/data/id", total = "/data/paymentSummary/grandTotal", sold_at = "/data/terminalTransactionDateTime" }}
create = true

[[destination]]
name = "shop-orders"
kind = "sql"
url = {books}
table = "shop_orders"
key = "id"
columns = {{ id = "/order_id", total = "/total", status = "/status" }}
create = true

[[route]]
source = "shop"
events = ["sale.*"]
destination = "shop-sales"
order = "latest"
once = "key"

[[route]]
source = "shop"
events = ["order.*"]
destination = "shop-orders"
order = "fetch"
{sales}[reconcile.watch]
reenable = true
{orders}"#,
        sales = reconcile(RECONCILIATIONS[0], "receiptroller-transactions"),
        orders = reconcile(RECONCILIATIONS[1], "receiptroller-orders"),
    )
}
