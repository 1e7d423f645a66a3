//! `hikyaku check`, as somebody meets it who has a receiver: ours passes, a naive one fails where it should, and the report
//! is one that a browser shows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hikyaku_core::signature::{Secret, receiptroller};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{NOBODY, Receiver, Reply, SOURCE_SECRET, eventually, source};

/// Runs the check beside the test's own tasks. The limit on answers is the provider's: no test is about our speed.
async fn check(url: &str, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.args(["check", url, "--secret", SOURCE_SECRET, "--p99", "10s", "--settle", "60s"]).args(arguments);
    command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn rules<'a>(report: &'a Value, verdict: &str) -> Vec<&'a str> {
    let rules = report["rules"].as_array().unwrap().iter();
    rules.filter(|rule| rule["verdict"] == verdict).map(|rule| rule["rule"].as_str().unwrap()).collect()
}

/// Our own program as somebody else's receiver: started and killed by a script, its sales in a table of its own.
struct Ours {
    dir: TempDir,
    addr: SocketAddr,
}

const SECOND_SECRET: &str = "the-secret-of-the-second-webhook";
const TABLES: &str = r#"
[[source]]
name = "second"
provider = "receiptroller"
organization = "acme"
secrets = ["the-secret-of-the-second-webhook"]

[[destination]]
name = "books"
kind = "sql"
url = "sqlite:books.db"
table = "orders"
key = "order_id"
columns = { order_id = "/data/order_id", total = "/data/total" }

[[route]]
source = "receiptroller"
events = ["order.*"]
destination = "books"
order = "latest"

[[route]]
source = "second"
events = ["order.*"]
destination = "books"
order = "latest"
"#;
/// Kills what runs and starts it again.
const RESTART: &str = "cd \"$(dirname \"$0\")\"
test -f pid && kill -9 $(cat pid)
\"$1\" serve --config hikyaku.toml >>log 2>&1 &
echo $! >pid
";

impl Ours {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Below the ports that connections are given, so that nobody takes it between two lives.
        let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
        let addr = (first..first + 1000)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .find(|addr| TcpListener::bind(addr).is_ok())
            .unwrap();
        let config = format!("listen = \"{addr}\"\nstore = \"sqlite:hikyaku.db\"\n\n{}{TABLES}", source());
        std::fs::write(dir.path().join("hikyaku.toml"), config).unwrap();
        std::fs::write(dir.path().join("restart"), RESTART).unwrap();
        let books = Connection::open(dir.path().join("books.db")).unwrap();
        books.execute_batch("CREATE TABLE orders (order_id TEXT PRIMARY KEY, total INTEGER)").unwrap();
        let ours = Self { dir, addr };
        assert!(Command::new("sh").args(["-c", &ours.restart()]).status().unwrap().success());
        eventually("the program to listen", async || TcpStream::connect(addr).ok()).await;
        ours
    }

    fn restart(&self) -> String {
        format!("sh '{}' '{}'", self.dir.path().join("restart").display(), env!("CARGO_BIN_EXE_hikyaku"))
    }

    /// A command that speaks to the books.
    fn books(&self, python: &str) -> String {
        let books = self.dir.path().join("books.db");
        format!("python3 -c 'import json, sqlite3; b = sqlite3.connect(\"{}\", 30); {python}'", books.display())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).unwrap_or_default();
        // Fails when it has ended already, which is as good.
        let _ = Command::new("kill").args(["-9", pid.trim()]).status();
        if std::thread::panicking() {
            eprintln!("{}", std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_own_inbox_passes_crash_and_outage_included() {
    let ours = Ours::start().await;
    let second = format!("http://{}/in/second", ours.addr);
    let output = check(
        &format!("http://{}/in/receiptroller", ours.addr),
        &[
            "--probe",
            &ours.books("print(json.dumps(dict(b.execute(\"SELECT order_id, total FROM orders\"))))"),
            "--restart-command",
            &ours.restart(),
            "--break-command",
            &ours.books("b.execute(\"ALTER TABLE orders RENAME TO away\")"),
            "--mend-command",
            &ours.books("b.execute(\"ALTER TABLE away RENAME TO orders\")"),
            "--second-url",
            &second,
            "--second-secret",
            SECOND_SECRET,
            "--load-seconds",
            "2",
            "--json",
        ],
    )
    .await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    // Nobody waits 71 minutes for a test.
    assert_eq!(rules(&report, "cannotTell"), ["C7"], "{report:#}");
    assert_eq!(report["pass"], 12, "{report:#}");
}

/// A receiver that does all but one thing: it upserts whatever comes last, without a look at its timestamp.
async fn without_a_guard() -> Receiver {
    let (mut ids, mut rows) = (BTreeSet::new(), BTreeMap::new());
    Receiver::start(move |seen| {
        if seen.method() == "GET" {
            return Reply::Answer(200, json!(rows).to_string().into_bytes());
        }
        let secret = [Secret::new(SOURCE_SECRET)];
        if receiptroller::verify(&secret, Some(seen.signature().as_bytes()), &seen.body).is_err() {
            return Reply::Answer(401, b"<script>alert(1)</script>".to_vec());
        }
        if ids.insert(seen.delivery().to_owned()) {
            let event: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
            if let Some(key) = event["data"]["order_id"].as_str() {
                rows.insert(key.to_owned(), event["data"]["total"].clone());
            }
        }
        Reply::status(200)
    })
    .await
}

#[tokio::test]
async fn c4_a_receiver_without_a_guard_is_told_so_on_a_page_that_a_browser_shows() {
    let receiver = without_a_guard().await;
    let dir = tempfile::tempdir().unwrap();
    for (language, sentence) in [("en", "The receiver breaks 1 of 13 rules"), ("ja", "13 件中 1 件の規則に違反")]
    {
        let (html, junit) = (dir.path().join("report.html"), dir.path().join("report.xml"));
        let (html, junit) = (html.to_str().unwrap(), junit.to_str().unwrap());
        let url = receiver.url("/hook");
        let probe = receiver.url("/orders");
        let files = ["--html", html, "--junit", junit, "--language", language, "--load-seconds", "0", "--json"];
        let output = check(&url, &[&["--probe", &probe][..], &files].concat()).await;
        let report = report(&output);
        assert_eq!(output.status.code(), Some(1), "{report:#}");
        assert_eq!(rules(&report, "fail"), ["C4"], "{report:#}");
        assert_eq!(rules(&report, "cannotTell"), ["C7", "C9", "C16", "T1"], "{report:#}");
        let xml = std::fs::read_to_string(junit).unwrap();
        assert!(xml.contains("failures=\"1\" errors=\"0\" skipped=\"4\""), "{xml}");

        let page = in_browser(Path::new(html), dir.path());
        assert!(page.contains(sentence), "{page}");
        let rows: Vec<_> = page.split("<tr class=\"").skip(1).map(row).collect();
        assert_eq!(rows.len(), 13, "{page}");
        let shown = |class: &str| rows.iter().filter(|(c, _)| *c == class).map(|(_, rule)| *rule).collect::<Vec<_>>();
        assert_eq!((shown("fail"), shown("open")), (vec!["C4"], vec!["C7", "C9", "C16", "T1"]));
    }
}

/// The class of a row of the report's table, and its rule.
fn row(html: &str) -> (&str, &str) {
    let between = |from: &str, to: &str| html.split(from).nth(1).unwrap().split(to).next().unwrap();
    (html.split('"').next().unwrap(), between("<span>", "</span>"))
}

/// The page as a browser has understood it.
fn in_browser(file: &Path, profile: &Path) -> String {
    let profile = format!("--user-data-dir={}", profile.join("browser").display());
    let page = format!("file://{}", file.display());
    let options =
        ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", &profile, "--dump-dom", &page];
    let output = Command::new("chromium").args(options).stdin(Stdio::null()).output();
    let output = output.expect("chromium, which ./test installs; on Debian: apt-get install chromium");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn what_cannot_be_checked_has_an_exit_code_of_its_own() {
    let refuses = Receiver::always(401).await;
    let (gone, refuses) = (format!("http://{NOBODY}/"), refuses.url("/"));
    for (url, arguments, code, reason) in [
        (&gone, &[][..], 3, "no answer from"),
        (&refuses, &["--probe", "echo nonsense"], 2, "the probe failed"),
        (&refuses, &["--probe", "exit 7"], 2, "exit status: 7"),
        (&refuses, &["--break-command", "true"], 2, "--mend-command"),
        (&refuses, &["--html", "/no/such/folder/report.html"], 2, "cannot write /no/such/folder"),
        (&refuses, &["--rate", "0"], 2, "--rate"),
    ] {
        let output = check(url, arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
    let output = check(&refuses, &[]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("T2   FAIL") && said.contains("how to fix it") && !said.contains('\u{1b}'), "{said}");
}
