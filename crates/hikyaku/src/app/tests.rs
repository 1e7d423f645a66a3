use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::routing::post;
use hikyaku_core::token::{ApiToken, Scope};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::clock::SystemClock;
use crate::store::Store;
use crate::store::seal::Seal;

/// Longer than anything here takes on a slow machine: a test that waits as long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program at work, and the means to stop it.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Result<(), PartEnded>>,
}

impl Running {
    async fn start(settings: &str) -> Self {
        Self::start_on("memory:", settings).await
    }

    async fn start_on(store: &str, settings: &str) -> Self {
        let config = format!("listen = '127.0.0.1:0'\nstore = '{store}'\n{settings}");
        let app = App::start(Config::from_toml(&config).unwrap(), Arc::new(SystemClock::start())).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let address = app.addr();
        let ended = tokio::spawn(app.run_until(async { stopped.await.unwrap() }));
        Self { address, stop, ended }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    async fn post(&self, path: &str, body: &Value) -> StatusCode {
        Client::new().post(self.url(path)).json(body).send().await.unwrap().status()
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes too long")
}

/// Waits until nobody listens at an address any more.
async fn refused(address: SocketAddr) {
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn it_starts_on_a_free_port_answers_and_stops() {
    let (one, two) = (Running::start("").await, Running::start("").await);
    assert_ne!(one.address, two.address);
    for running in [one, two] {
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(reqwest::get(running.url(path)).await.unwrap().status(), 200, "{path}");
        }
        running.stop.send(()).unwrap();
        within(running.ended).await.unwrap().unwrap();
        refused(running.address).await;
    }
}

#[tokio::test]
async fn the_token_of_the_configuration_guards_the_api() {
    let running = Running::start("[api]\ntoken = '0123456789abcdef'\nmax_event_bytes = 50").await;
    let url = running.url("/v1/organizations/acme/events");
    let event = json!({"type": "sale.created", "data": "x".repeat(50)});
    assert_eq!(running.post("/v1/organizations/acme/events", &event).await, 401);
    let too_large = Client::new().post(url).bearer_auth("0123456789abcdef").json(&event).send().await.unwrap();
    assert_eq!(too_large.status(), 413);
}

#[tokio::test]
async fn beyond_this_machine_it_listens_only_when_there_is_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.db");
    let start = async || {
        let key = "5ea1".repeat(16);
        let text = format!("listen = '0.0.0.0:0'\nstore = 'sqlite:{}'\nsealing_key = '{key}'", file.display());
        App::start(Config::from_toml(&text).unwrap(), Arc::new(SystemClock::start())).await
    };
    let error = start().await.unwrap_err().to_string();
    assert!(error.contains("0.0.0.0:0") && error.contains("hikyaku token create --admin"), "{error}");
    let keep = async |number: u8, revoked: bool| {
        let store = SqliteStore::open(&file, Seal::default(), &SystemClock::start()).unwrap();
        let now = jiff::Timestamp::UNIX_EPOCH;
        let (token, _) = ApiToken::issue(Scope::Admin, String::new(), now, [number; 10], [number; 32]);
        store.create_token(token.clone()).await.unwrap();
        if revoked {
            store.revoke_token(None, &token.id, now).await.unwrap();
        }
    };
    keep(1, true).await;
    assert!(matches!(start().await, Err(StartError::OpenToOthers(_))));
    keep(2, false).await;
    assert!(start().await.is_ok());
    let text = "listen = '0.0.0.0:0'\nstore = 'memory:'\n[api]\ntoken = '0123456789abcdef'";
    assert!(App::start(Config::from_toml(text).unwrap(), Arc::new(SystemClock::start())).await.is_ok());
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_that_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config { listen: taken.local_addr().unwrap(), store: StoreLocation::Memory, ..Config::default() };
    let error = App::start(config, Arc::new(SystemClock::start())).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot listen on 127.0.0.1:") && error.contains("--listen"), "{error}");
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no/such/folder/h.db");
    let config = Config { store: StoreLocation::Sqlite(file), ..Config::default() };
    let error = App::start(config, Arc::new(SystemClock::start())).await.unwrap_err().to_string();
    assert!(error.contains("cannot open the store") && error.contains("h.db"), "{error}");
}

/// An endpoint that tells when a request has come, and answers when it is told to.
async fn slow_endpoint() -> (SocketAddr, mpsc::Receiver<oneshot::Sender<()>>) {
    let (came, requests) = mpsc::channel(1);
    let handler = move || {
        let came = came.clone();
        async move {
            let (answer, told) = oneshot::channel();
            came.send(answer).await.unwrap();
            told.await.unwrap();
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, Router::new().route("/", post(handler))).await });
    (address, requests)
}

#[tokio::test]
async fn a_shutdown_lets_an_attempt_under_way_end() {
    let (endpoint, mut requests) = slow_endpoint().await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("h.db").display());
    let targets = "[sender.targets]\nallow = ['127.0.0.0/8']\nallow_http = true";
    let running = Running::start_on(&store, targets).await;
    let webhook = json!({"url": format!("http://{endpoint}/")});
    assert_eq!(running.post("/v1/organizations/acme/webhooks", &webhook).await, 201);
    let event = json!({"id": "e1", "type": "sale.created", "data": 1});
    assert_eq!(running.post("/v1/organizations/acme/events", &event).await, 202);
    let answer = within(requests.recv()).await.unwrap();
    running.stop.send(()).unwrap();
    within(refused(running.address)).await;
    assert!(!running.ended.is_finished());
    answer.send(()).unwrap();
    within(running.ended).await.unwrap().unwrap();

    let again = Running::start_on(&store, targets).await;
    let event = reqwest::get(again.url("/v1/organizations/acme/events/e1")).await.unwrap();
    let event: Value = event.json().await.unwrap();
    assert_eq!(event["deliveries"][0]["state"], "delivered", "{event}");
    again.stop.send(()).unwrap();
    within(again.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_shutdown_answers_a_request_that_has_begun_to_come() {
    let running = Running::start("").await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let body = r#"{"type":"sale.created","data":1}"#;
    let head = format!(
        "POST /v1/organizations/acme/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: \
         100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    within(stream.read_exact(&mut interim)).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");

    running.stop.send(()).unwrap();
    within(refused(running.address)).await;
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 202 Accepted"), "{answer}");
    within(running.ended).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_end_is_cut_off() {
    let mut tasks = JoinSet::new();
    tasks.spawn(std::future::pending());
    drain("things", &mut tasks, DRAIN_WORK).await;
    assert!(tasks.is_empty());
}

#[test]
fn a_shutdown_is_over_within_15_seconds() {
    assert!(DRAIN_REQUESTS + DRAIN_WORK + DRAIN_TRACES < Duration::from_secs(15));
}
