//! The examples as they are copied: real processes, killed and started again.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::post;
use hikyaku_inbox::sign;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

const SECRET: &str = "a secret";
/// How long anything may take before a test gives up; nothing depends on how long it does take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running example; it ends with the test.
struct Example(Child);

impl Drop for Example {
    /// As a crash would.
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The example as `cargo test` has built it beside this test, if no target was named.
fn example(name: &str, directory: &Path) -> Command {
    let binary = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples").join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(format!("{name}.rs"));
    let changed = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    let is_fresh = changed(&binary) >= changed(&source);
    assert!(
        is_fresh,
        "{} is not built from its source: `cargo build -p hikyaku-inbox --all-features --examples`",
        binary.display()
    );
    let mut command = Command::new(binary);
    command.current_dir(directory).env("DATABASE", "sales.db");
    command
}

struct Shop {
    directory: TempDir,
}

impl Shop {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Starts the receiver, and gives the URL that it takes deliveries at.
    fn start(&self) -> (Example, String) {
        let mut command = example("receiver", self.directory.path());
        command.env("LISTEN", "127.0.0.1:0").env("RR_SECRETS", format!("{SECRET},another"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        (Example(child), format!("http://{address}/webhook"))
    }

    fn database(&self) -> Connection {
        let database = Connection::open(self.directory.path().join("sales.db")).unwrap();
        database.busy_timeout(PATIENCE).unwrap();
        database
    }

    /// The sales as they stand, once nothing waits any more.
    async fn sales(&self) -> BTreeMap<String, i64> {
        let database = self.database();
        until(|| count(&database, "inbox WHERE parked IS NULL") == 0).await;
        let mut sales = database.prepare("SELECT id, total FROM sales").unwrap();
        sales.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }
}

fn count(database: &Connection, what: &str) -> i64 {
    database.query_row(&format!("SELECT count(*) FROM {what}"), [], |row| row.get(0)).unwrap()
}

/// Looks until something holds: another process brings it about.
async fn until(holds: impl Fn() -> bool) {
    let looking = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("what was waited for did not happen");
}

/// The nth state of a sale as the provider sends it out.
fn event(sale: usize, nth: usize) -> Value {
    let data = json!({"id": format!("t1|2026-11|{sale}"), "paymentSummary": {"grandTotal": 1000 * sale + nth}});
    let timestamp = format!("2026-11-30T09:15:{nth:02}.000Z");
    json!({"id": format!("e{sale}-{nth}"), "type": "sale.updated", "timestamp": timestamp, "data": data})
}

/// One attempt; `None` if no answer came.
async fn send(url: &str, secret: &str, body: &str) -> Option<u16> {
    let request = reqwest::Client::new().post(url).header("x-rr-signature", sign(secret, body.as_bytes()));
    let id = serde_json::from_str::<Value>(body).ok().and_then(|body| Some(body.get("id")?.as_str()?.to_owned()));
    let request = request.header("x-rr-delivery", id.unwrap_or_else(|| "e0".to_owned()));
    request.body(body.to_owned()).send().await.ok().map(|answer| answer.status().as_u16())
}

#[tokio::test]
async fn c11_c12_t6_the_receiver_answers_as_the_rules_say() {
    let shop = Shop::new();
    let (_receiver, url) = shop.start();
    let body = event(1, 1).to_string();
    assert_eq!(send(&url, SECRET, &body).await, Some(200));
    assert_eq!(send(&url, SECRET, &body).await, Some(200), "a duplicate");
    assert_eq!(send(&url, "another", &event(1, 2).to_string()).await, Some(200), "the secret is being changed (T8)");
    assert_eq!(send(&url, "wrong", &event(1, 3).to_string()).await, Some(401));
    let unsigned = reqwest::Client::new().post(&url).body(event(1, 3).to_string()).send().await.unwrap();
    assert_eq!(unsigned.status(), 401);
    let tampered = reqwest::Client::new().post(&url).header("x-rr-signature", sign(SECRET, body.as_bytes()));
    assert_eq!(tampered.body(body.replace("1001", "1")).send().await.unwrap().status(), 401);
    for odd in ["", "null", r#"{"type":"order.created"}"#, r#"{"type":"sale.created","data":{"id":"s"}}"#] {
        assert_eq!(send(&url, SECRET, odd).await, Some(200), "{odd}");
    }
    assert_eq!(shop.sales().await, BTreeMap::from([("t1|2026-11|1".to_owned(), 1002)]));
    assert_eq!(count(&shop.database(), "inbox"), 1, "of the four under one id the first is kept, parked");
}

#[tokio::test]
async fn t1_whatever_was_answered_200_takes_effect_once_although_the_receiver_is_killed() {
    let shop = Shop::new();
    let mut events: Vec<_> = (0..10).flat_map(|sale| [2, 0, 3, 1].map(|nth| event(sale, nth).to_string())).collect();
    events.extend_from_within(5..15); // duplicates
    let (mut receiver, mut url) = shop.start();
    for (number, body) in events.iter().enumerate() {
        if number % 7 == 3 {
            let first_attempt = {
                let (url, body) = (url.clone(), body.clone());
                tokio::spawn(async move { send(&url, SECRET, &body).await })
            };
            tokio::task::yield_now().await;
            drop(receiver); // perhaps before the commit, perhaps after it, perhaps while it works
            let _ = first_attempt.await;
            (receiver, url) = shop.start();
        }
        // The provider repeats what was not answered 200.
        assert_eq!(send(&url, SECRET, body).await, Some(200), "{body}");
    }
    drop(receiver);
    let (_receiver, _) = shop.start();
    let expected: BTreeMap<_, _> = (0..10).map(|sale| (format!("t1|2026-11|{sale}"), 1000 * sale + 3)).collect();
    assert_eq!(shop.sales().await, expected);
    assert_eq!(count(&shop.database(), "hikyaku_received"), 40);
}

#[tokio::test]
async fn t1_a_delivery_that_cannot_be_saved_is_503_and_its_repeat_is_not_taken_for_done() {
    let shop = Shop::new();
    let (_receiver, url) = shop.start();
    shop.database()
        .execute_batch("CREATE TRIGGER full BEFORE INSERT ON inbox BEGIN SELECT RAISE(ABORT, 'full'); END")
        .unwrap();
    let body = event(1, 1).to_string();
    assert_eq!(send(&url, SECRET, &body).await, Some(503));
    shop.database().execute_batch("DROP TRIGGER full").unwrap();
    assert_eq!(send(&url, SECRET, &body).await, Some(200));
    assert_eq!(shop.sales().await.len(), 1);
}

#[tokio::test]
async fn c15_c16_work_that_fails_fails_no_delivery_and_happens_after_a_crash() {
    let shop = Shop::new();
    let (receiver, url) = shop.start();
    shop.database()
        .execute_batch("CREATE TRIGGER broken BEFORE INSERT ON sales BEGIN SELECT RAISE(ABORT, 'down'); END")
        .unwrap();
    for sale in 0..3 {
        assert_eq!(send(&url, SECRET, &event(sale, 1).to_string()).await, Some(200));
    }
    until(|| count(&shop.database(), "inbox WHERE tries > 0") > 0).await;
    drop(receiver);
    assert_eq!((count(&shop.database(), "inbox"), count(&shop.database(), "sales")), (3, 0));
    shop.database().execute_batch("DROP TRIGGER broken").unwrap();
    let (_receiver, _) = shop.start();
    assert_eq!(shop.sales().await.len(), 3);
}

/// Slack as it answers; what it was sent with which answer.
#[derive(Clone, Default)]
struct FakeSlack(Arc<Mutex<Vec<(String, u16)>>>);

impl FakeSlack {
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/services/T0/B0/x", listener.local_addr().unwrap());
        let router = Router::new().route("/services/T0/B0/x", post(Self::take)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// Refuses the second message, breaks at the third, and takes all others.
    async fn take(State(slack): State<Self>, body: String) -> (StatusCode, HeaderMap) {
        let mut seen = slack.0.lock().unwrap();
        let status = [200, 429, 500].get(seen.len()).copied().unwrap_or(200);
        let text = serde_json::from_str::<Value>(&body).unwrap()["text"].as_str().unwrap().to_owned();
        seen.push((text, status));
        let pause = HeaderMap::from_iter([("retry-after".parse().unwrap(), HeaderValue::from_static("1"))]);
        (StatusCode::from_u16(status).unwrap(), pause)
    }

    fn taken(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|(_, status)| *status == 200).map(|(text, _)| text.clone()).collect()
    }
}

#[tokio::test]
async fn c15_new_sales_are_announced_once_each_through_slack_s_troubles_and_a_crash() {
    let shop = Shop::new();
    let (_receiver, url) = shop.start();
    for (sale, nth) in [(1, 1), (1, 2), (1234, 567)] {
        let mut event = event(sale, nth % 60);
        if sale == 1234 {
            event["data"]["id"] = json!("<&>");
        }
        assert_eq!(send(&url, SECRET, &event.to_string()).await, Some(200));
    }
    shop.sales().await;
    let slack = FakeSlack::default();
    let slack_url = slack.start().await;
    let start = || {
        let mut command = example("slack", shop.directory.path());
        Example(command.env("SLACK_WEBHOOK_URL", &slack_url).env("NO_PROXY", "127.0.0.1").spawn().unwrap())
    };
    let database = shop.database();
    let first = start();
    until(|| count(&database, "sales WHERE announced = 1") == 1).await;
    drop(first);
    let _second = start();
    until(|| count(&database, "sales WHERE announced = 0") == 0).await;
    // A changed sale is not a new one; a new one comes behind it.
    assert_eq!(send(&url, SECRET, &event(1, 3).to_string()).await, Some(200));
    assert_eq!(send(&url, SECRET, &event(2, 0).to_string()).await, Some(200));
    shop.sales().await;
    until(|| count(&database, "sales WHERE announced = 1") == 3).await;
    let expected = ["¥1,002 (t1|2026-11|1)", "¥1,234,027 (&lt;&amp;&gt;)", "¥2,000 (t1|2026-11|2)"];
    assert_eq!(slack.taken(), expected.map(|end| format!("新しい売上 New sale: {end}")));
}
