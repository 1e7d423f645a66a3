//! `hikyaku demo`: the whole path in under a minute, in two acts at once.
//!
//! A shop's sales and orders are published, delivered to a receiver that fails in many ways and to one that never accepts,
//! received by the inbox, and end in an SQLite file. And a provider, played by the sandbox, sends its own: it restarts and loses
//! retries, switches its webhook off, is noticed, switched on, and asked for what never came. Then the demo compares the
//! file with what was published and with what the provider lists.

mod api;
mod endpoints;
mod provider;
mod report;
mod say;
mod shop;

use std::fs::create_dir_all;
use std::io::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::ordering::Version;
use hyper::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::client::ClientError;
use crate::clock::{SharedClock, SystemClock};
use crate::config::Config;
use crate::log;
use api::Api;
use endpoints::{Character, Endpoint};
use provider::Provider;
use report::Report;
use say::Say;
use shop::{Happening, Published};

/// How much faster than in the world time passes for retries: 71 minutes in 20 seconds.
const FASTER: u32 = 213;
/// Events published before the webhook that never accepts is off; the rest shows that it then gets nothing (R12).
const PUBLISHED_FIRST: usize = 160;
/// How often the demo looks whether something has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the provider's webhook is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// The demo gives up when something has not ended after so many looks: two minutes.
const MOST_LOOKS: u32 = 1200;
/// Signs the demo's deliveries. It is printed into the demo's configuration, so it protects nothing.
const SECRET: &str = "whsec_demo_demo_demo_demo_demo";

/// Why a demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Its directory or its receivers could not be set up.
    #[error("the demo could not be set up: {0}")]
    Setup(#[from] std::io::Error),
    /// The program did not start or stop.
    #[error("the demo's server failed: {0}")]
    Server(String),
    /// A call failed.
    #[error(transparent)]
    Call(#[from] ClientError),
    /// The destination's file could not be read.
    #[error("the demo's books.db could not be read: {0}")]
    Books(#[from] rusqlite::Error),
    /// Something should have ended long ago.
    #[error("{0} had not ended after two minutes")]
    TooLong(&'static str),
}

/// Runs the demo in `dir` (or in a fresh directory) and says whether both sides were equal in the end.
pub async fn run(dir: Option<PathBuf>) -> Result<bool, DemoError> {
    let clock: SharedClock = Arc::new(SystemClock::start());
    let dir = fresh_directory(dir, &clock)?;
    let say = Say::new(Arc::clone(&clock));
    let provider = Provider::start(&clock, &say).await?;
    std::fs::write(dir.join("hikyaku.toml"), configuration(&dir, provider.address))?;
    let config = Config::from_toml(&configuration(&dir, provider.address));
    let mut config = config.map_err(|error| DemoError::Server(error.to_string()))?;
    // Faster than anybody may set it: the demo has less than a minute.
    config
        .reconciles
        .iter_mut()
        .filter_map(|reconcile| reconcile.watch.as_mut())
        .for_each(|watch| watch.every = WATCH_EVERY);
    let app = App::start(config, clock.clone()).await.map_err(|error| DemoError::Server(error.to_string()))?;
    let api = Api::new(app.addr())?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(app.run_until(stop.clone().cancelled_owned()));

    let report = show(&api, say, &dir, provider).await;

    stop.cancel();
    serving
        .await
        .map_err(|error| error.to_string())
        .and_then(|ended| ended.map_err(|error| error.to_string()))
        .map_err(DemoError::Server)?;
    let report = report?;
    log::print(format_args!("{report}\nLook around: {} (books.db, hikyaku.db, hikyaku.toml)\n", dir.display()))?;
    Ok(report.both_sides_are_equal())
}

fn fresh_directory(dir: Option<PathBuf>, clock: &SharedClock) -> Result<PathBuf, Error> {
    let stamp = clock.now().as_millisecond();
    let dir = dir.unwrap_or_else(|| std::env::temp_dir().join(format!("hikyaku-demo-{stamp}")));
    let refuse = |reason: &str| Error::other(format!("{} {reason}; name a fresh directory with --dir", dir.display()));
    let is_empty = create_dir_all(&dir).and_then(|()| Ok(dir.read_dir()?.next().is_none()));
    match is_empty {
        Ok(true) => Ok(dir),
        Ok(false) => Err(refuse("is not empty")),
        Err(error) => Err(refuse(&format!("cannot be used: {error}"))),
    }
}

fn configuration(dir: &Path, provider: SocketAddr) -> String {
    let delays = [60, 600, 3600].map(|seconds| format!("\"{}ms\"", seconds * 1000 / FASTER)).join(", ");
    let file = |name: &str| Value::from(format!("sqlite:{}", dir.join(name).display()));
    format!(
        r#"# Written by `hikyaku demo`: 71 minutes of retries in 20 seconds.
listen = "127.0.0.1:0"
store = {store}

[sender]
retry_delays = [{delays}]
attempt_timeout = "1s"
[sender.targets]
allow = ["127.0.0.0/8"]
allow_http = true

[[source]]
name = "receiptroller"
provider = "receiptroller"
secrets = ["{SECRET}"]

[[destination]]
name = "sales"
kind = "sql"
url = {books}
table = "sales"
key = "id"
columns = {{ id = "/data/id", total = "/data/paymentSummary/grandTotal", sold_at = "/data/terminalTransactionDateTime" }}
create = true

[[destination]]
name = "orders"
kind = "sql"
url = {books}
table = "orders"
key = "id"
columns = {{ id = "/data/order_id", total = "/data/total", status = "/data/status" }}
create = true

[[route]]
source = "receiptroller"
events = ["sale.*"]
destination = "sales"
order = "latest"

[[route]]
source = "receiptroller"
events = ["order.*"]
destination = "orders"
order = "latest"
{shop}"#,
        store = file("hikyaku.db"),
        books = file("books.db"),
        shop = provider::configuration(provider, &file("books.db")),
    )
}

/// The show itself: everything between a server that runs and a report.
async fn show(api: &Api, say: Say, dir: &Path, provider: Provider) -> Result<Report, DemoError> {
    let file = dir.join("books.db");
    let (sent, shop) = tokio::try_join!(send(api, &say), provider.show(api, &say, &file))?;
    let webhooks = [sent.books_hook.as_str(), sent.old_hook.as_str()];
    Report::gather(api, dir, &sent.published, webhooks, &sent.books, shop).await
}

/// What the first act leaves behind.
struct Sent {
    published: Vec<Published>,
    books: Endpoint,
    books_hook: String,
    old_hook: String,
}

/// The first act: the sender's.
async fn send(api: &Api, say: &Say) -> Result<Sent, DemoError> {
    let books = Endpoint::start(Character::Moody(api.clone()), say.clone()).await?;
    let old_system = Endpoint::start(Character::Closed, say.clone()).await?;
    let books_hook = register(api, &books, "books").await?;
    let old_hook = register(api, &old_system, "old system").await?;

    let happenings = shop::happenings();
    say.line(&format!("publishing {} sales and orders to two webhooks: books, old system", happenings.len()));
    let (first, rest) = happenings.split_at(PUBLISHED_FIRST.min(happenings.len()));
    let mut published = publish(api, say, first, 0).await?;
    say.line(&format!("{} are published; now four attempts at most, 71 minutes in 20 seconds", first.len()));
    wait("the old system's webhook", || is_off(api, &old_hook)).await?;
    say.line("old system  is switched off: one event failed four times");
    published.extend(publish(api, say, rest, first.len()).await?);
    say.line(&format!("{} more are published; the old system gets none of them", rest.len()));
    for event in &published {
        wait("a delivery", || has_ended(api, event.version.event.clone())).await?;
    }
    wait("the inbox's work", || is_worked_off(api)).await?;
    Ok(Sent { published, books, books_hook, old_hook })
}

async fn register(api: &Api, endpoint: &Endpoint, description: &str) -> Result<String, DemoError> {
    let url = format!("http://{}/{}", endpoint.address, description.replace(' ', "-"));
    let webhook = json!({"url": url, "description": description, "secret": SECRET});
    let created = api.call(Method::POST, "webhooks", Some(&webhook)).await?;
    Ok(created["id"].as_str().unwrap_or_default().to_owned())
}

async fn publish(api: &Api, say: &Say, happenings: &[Happening], already: usize) -> Result<Vec<Published>, DemoError> {
    let mut published = Vec::with_capacity(happenings.len());
    for (n, happening) in happenings.iter().enumerate() {
        let id = format!("demo-{:04}", already + n);
        say.introduce(&id, already + n, &happening.label);
        let event = json!({"id": id, "type": happening.event_type, "data": happening.data});
        let stored = api.call(Method::POST, "events", Some(&event)).await?;
        let timestamp = stored["timestamp"].as_str().and_then(hikyaku_core::timestamp::parse).unwrap_or_default();
        let version = Version::new(timestamp, happening.event_type, id);
        published.push(Published { happening: happening.clone(), version });
    }
    Ok(published)
}

/// Looks again and again until something is so.
async fn wait<F>(what: &'static str, look: impl Fn() -> F) -> Result<(), DemoError>
where
    F: Future<Output = Result<bool, DemoError>>,
{
    for _ in 0..MOST_LOOKS {
        if look().await? {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(DemoError::TooLong(what))
}

async fn is_off(api: &Api, webhook: &str) -> Result<bool, DemoError> {
    let webhook = api.call(Method::GET, &format!("webhooks/{webhook}"), None).await?;
    Ok(webhook["active"] == json!(false))
}

async fn has_ended(api: &Api, event: String) -> Result<bool, DemoError> {
    let event = api.call(Method::GET, &format!("events/{event}"), None).await?;
    let deliveries = event["deliveries"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(deliveries.iter().all(|delivery| delivery["state"] != json!("waiting")))
}

async fn is_worked_off(api: &Api) -> Result<bool, DemoError> {
    let waiting = api.call(Method::GET, "inbox?state=waiting&limit=1", None).await?;
    Ok(waiting["items"].as_array().is_some_and(Vec::is_empty))
}
