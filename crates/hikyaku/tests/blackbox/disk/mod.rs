//! A disk that fails under the real program: errors and a full disk at the n-th write, half a write, a sync that fails.
//! What was answered 2xx is there afterwards; everything else was refused, loudly.
//!
//! A start that cannot write must say so and end; one that can write goes on, also after the disk has come back to itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{
    Config, Published, Receiver, Server, Webhook, eventually, expected_body, fresh_sales_table, on_postgres,
    sales_to_sql,
};

/// How a disk fails.
const KINDS: [&str; 4] = ["write", "full", "short", "sync"];
/// Starts whose n-th call fails, unless `HIKYAKU_TEST_DISK_CALLS` says up to which n each call is to fail once. A start on an
/// empty directory writes some three hundred times and syncs five times.
const CALLS: [usize; 6] = [1, 2, 3, 5, 40, 200];
/// Lives in which every so many calls one fails: in the midst of ever other commits.
const EVERY: [usize; 2] = [5, 13];
/// Events and deliveries of a life.
const EVENTS: usize = 40;

/// The library with the disk's faults, built once.
fn faults() -> &'static Path {
    static LIBRARY: OnceLock<(PathBuf, TempDir)> = OnceLock::new();
    let (library, _) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (library, source) = (dir.path().join("faults.so"), "tests/blackbox/disk/faults.c");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl");
        assert!(compiler.status().unwrap().success(), "the tests need a C compiler");
        (library, dir)
    });
    library
}

/// The configuration with a disk on which so many calls fail from the first one on.
fn failing(config: &Config, kind: &str, first: usize, every: usize, count: usize) -> Config {
    let plan = format!("{kind} {first} {every} {count}");
    config.clone().env("LD_PRELOAD", faults().to_str().unwrap()).env("HIKYAKU_TEST_DISK", &plan)
}

/// A directory with the user's table.
fn directory() -> Arc<TempDir> {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    dir
}

fn event(id: &str) -> Published {
    Published {
        id: id.into(),
        event_type: "sale.created".into(),
        timestamp: "2026-11-30T09:15:00.000Z".into(),
        data: format!(r#"{{ "id": "{id}", "padding": "{}" }}"#, "x".repeat(3000)),
        key: id.into(),
        answered: None,
    }
}

/// What was answered 2xx.
#[derive(Default)]
struct Taken {
    published: Vec<String>,
    delivered: Vec<String>,
    refused: usize,
}

impl Taken {
    /// Publishes an event and delivers one, and notes what was taken. Nothing else than that or a refusal of the server's
    /// own making may come.
    async fn add(&mut self, server: &Server, id: &str) -> bool {
        let (api, event) = (server.api(), event(id));
        let published = api.publish_raw(expected_body(&event)).await.status;
        let delivered = api.deliver_signed(&event.id, expected_body(&event)).await;
        assert!(matches!(published, 202 | 500 | 503), "{id}: {published}");
        assert!(matches!(delivered, 200 | 500 | 503), "{id}: {delivered}");
        self.refused += usize::from(published != 202) + usize::from(delivered != 200);
        self.published.extend((published == 202).then(|| event.id.clone()));
        self.delivered.extend((delivered == 200).then_some(event.id));
        published == 202 && delivered == 200
    }

    /// On a sound disk, all of it is there, and ends as it should.
    async fn assert_kept(&self, server: &Server, receiver: &Receiver, told: &str) {
        let api = server.api();
        for id in &self.published {
            let delivery = api.ended_one(id).await;
            assert_eq!(delivery["state"], "delivered", "{told}: {delivery}");
        }
        for id in &self.delivered {
            assert_eq!(api.settled("receiptroller", id).await["state"], "done", "{told}: {id}");
            assert_eq!(api.inbox_body("receiptroller", id).await, expected_body(&event(id)).as_bytes(), "{told}");
        }
        let sales = server.sales();
        assert!(self.delivered.iter().all(|id| sales.iter().any(|sale| sale.id == *id)), "{told}");
        let bodies = receiver.seen();
        assert!(bodies.iter().all(|seen| seen.body == expected_body(&event(seen.delivery())).as_bytes()), "{told}");
    }
}

fn assert_sound(dir: &TempDir, told: &str) {
    let db = Connection::open(dir.path().join("hikyaku.db")).unwrap();
    let answer: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(answer, "ok", "{told}");
}

async fn webhook(server: &Server, receiver: &Receiver) -> Webhook {
    server.api().webhook_with(json!({ "url": receiver.url("/"), "events": ["sale.*"] })).await
}

/// A life on a failing disk, then one on a sound one.
async fn lives(kind: &str, every: usize) {
    let told = format!("{kind}, every {every}th");
    let (dir, receiver) = (directory(), Receiver::always(200).await);
    let config = Config::default().with(&sales_to_sql());
    let mut server = Server::start_in(dir.clone(), config.clone()).await;
    webhook(&server, &receiver).await;
    // A start reads much and writes little: the first few calls are its own.
    assert!(server.restart_as(failing(&config, kind, 20, every, 40)).await, "{told}:\n{}", server.log());
    let mut taken = Taken::default();
    for n in 0..EVENTS {
        taken.add(&server, &format!("e{n:03}")).await;
    }
    assert!(taken.refused > 0, "{told}: nothing has failed");
    let mut more = 0;
    eventually("the program to take events again, without a restart", async || {
        more += 1;
        taken.add(&server, &format!("f{more:03}")).await.then_some(())
    })
    .await;
    server.kill9().await;
    assert!(server.restart_as(config).await, "{told}:\n{}", server.log());
    taken.assert_kept(&server, &receiver, &told).await;
    assert!(server.sigterm().await.success());
    assert_sound(&dir, &told);
}

/// A start on an empty directory whose n-th call fails goes on or ends and says why, and the next start on a sound disk
/// goes on from there. Whether it ended.
async fn start(kind: &str, n: usize) -> bool {
    let (dir, receiver, told) = (directory(), Receiver::always(200).await, format!("{kind} at {n}"));
    let config = Config::default().with(&sales_to_sql());
    let mut server = Server::start_or_not(dir.clone(), failing(&config, kind, n, 1, 1)).await;
    let (mut taken, listens) = (Taken::default(), server.listens());
    if listens {
        taken.add(&server, "e").await;
        server.kill9().await;
        assert_eq!(journal_mode(&dir), "wal", "{told}: it has gone on in another mode than it needs");
    } else {
        let (status, log) = (server.exit().await, server.log());
        assert!(!status.success() && log.contains("hikyaku.db"), "{told}: {status}\n{log}");
    }
    assert!(server.restart_as(config).await, "{told}:\n{}", server.log());
    webhook(&server, &receiver).await;
    assert!(taken.add(&server, "f").await, "{told}");
    // The first event had nobody to go to.
    taken.published.retain(|id| id == "f");
    taken.assert_kept(&server, &receiver, &told).await;
    assert!(server.sigterm().await.success());
    assert_sound(&dir, &told);
    !listens
}

fn journal_mode(dir: &TempDir) -> String {
    let db = Connection::open(dir.path().join("hikyaku.db")).unwrap();
    db.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_answered_is_lost_whatever_write_fails() {
    if on_postgres() {
        return; // the database's disk is not ours
    }
    for (kind, every) in KINDS.iter().flat_map(|kind| EVERY.map(|every| (*kind, every))) {
        lives(kind, every).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_cannot_write_says_so_and_the_next_one_goes_on() {
    if on_postgres() {
        return; // the database's disk is not ours
    }
    let calls: Vec<_> = match std::env::var("HIKYAKU_TEST_DISK_CALLS") {
        Ok(most) => (1..=most.parse().expect("it is a number")).collect(),
        Err(_) => CALLS.to_vec(),
    };
    let mut refused = 0;
    for kind in KINDS {
        for n in &calls {
            refused += usize::from(start(kind, *n).await);
        }
    }
    assert!(refused > KINDS.len(), "the run has shown nothing: {refused} starts were refused");
}
