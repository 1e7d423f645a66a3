//! What each index of a search costs on the path that every event takes: published, attempted once, delivered.
//!
//! Writes events into a fresh SQLite store in groups, as the program does under load, once with all indexes and once
//! without each, and prints the processor time per event, which the disk and other programs disturb least (Linux). The figures in `docs/adr/0008-search.md` come from here.

#![allow(clippy::unwrap_used, reason = "a measurement stops at what it did not expect")]

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use hikyaku::clock::{Clock, SystemClock};
use hikyaku::store::seal::Seal;
use hikyaku::store::sqlite::SqliteStore;
use hikyaku::store::{AttemptRecord, FinishAttempt, Group, Lease, NewEvent, Publish, PublishOutcome, Store};
use hikyaku_core::delivery::{Decision, Outcome};
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, WebhookId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Settings, Webhook, WebhookUrl};
use jiff::Timestamp;
use rusqlite::Connection;

/// Events of one run.
const EVENTS: usize = 20_000;
/// Events of one commit.
const GROUP_EVENTS: usize = 200;
/// How often each variant runs; the median counts.
const ROUNDS: usize = 15;

/// A variant: its name, and what is done to the schema before the run.
const VARIANTS: &[(&str, &str)] = &[
    ("all indexes", ""),
    ("without events_time", "DROP INDEX events_time"),
    ("without events_key", "DROP INDEX events_key"),
    ("without deliveries_failed", "DROP INDEX deliveries_failed"),
    ("without attempts_failed", "DROP INDEX attempts_failed"),
    (
        "with deliveries_webhook, which there is not",
        "CREATE INDEX deliveries_webhook ON deliveries (organization, webhook, created_at, event)",
    ),
];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut micros = vec![Vec::new(); VARIANTS.len()];
    for round in 0..ROUNDS {
        // Each round begins with another variant, so that none always comes first.
        for place in 0..VARIANTS.len() {
            let variant = (place + round) % VARIANTS.len();
            micros[variant].push(run(VARIANTS[variant].1).await.as_secs_f64() * 1e6 / EVENTS as f64);
        }
    }
    for ((name, _), runs) in VARIANTS.iter().zip(&micros) {
        let beside: Vec<_> = runs.iter().zip(&micros[0]).map(|(this, all)| this - all).collect();
        println!("{name:45} {:6.2} µs per event, {:+.2} in the same round", median(runs), median(&beside));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

async fn run(change: &str) -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("h.db");
    let clock = SystemClock::start();
    drop(SqliteStore::open(&path, Seal::default(), &clock).unwrap());
    Connection::open(&path).unwrap().execute_batch(change).unwrap();
    work(&path, &clock).await
}

async fn work(path: &Path, clock: &SystemClock) -> Duration {
    let store = SqliteStore::open(path, Seal::default(), clock).unwrap();
    let organization = OrganizationId::parse("acme").unwrap();
    let webhook = WebhookId::parse("wh_01a22dd320787b799a1a1d8a9345b35b").unwrap();
    store.create_webhook(taker(&organization, &webhook, clock)).await.unwrap();
    let mut finished = Vec::new();
    let began = processor_time();
    for first in (0..EVENTS).step_by(GROUP_EVENTS) {
        let events = (first..first + GROUP_EVENTS).map(|number| event(number, clock)).collect();
        let room = HashMap::from([(webhook.clone(), GROUP_EVENTS as u32)]);
        let lease = Lease { owner: "measure".into(), duration: Duration::from_secs(20) };
        let publish =
            Publish { organization: organization.clone(), events, due_at: clock.schedule(), lease, room, about: None };
        let group = Group { publish: vec![publish], finish_attempts: finished, ..Group::default() };
        let outcome = store.commit(group).await.unwrap().publish.remove(0);
        let PublishOutcome::Stored(stored) = outcome else { panic!("{outcome:?}") };
        let leased = stored.into_iter().flat_map(|event| event.leased);
        finished = leased.map(|claimed| finish(clock, claimed.key, claimed.created_at)).collect();
    }
    processor_time() - began
}

/// What all threads of this process have used so far.
fn processor_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = |folder: std::path::PathBuf| -> u64 {
        let text = std::fs::read_to_string(folder.join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    Duration::from_nanos(threads.map(|thread| of_thread(thread.unwrap().path())).sum())
}

fn taker(organization: &OrganizationId, id: &WebhookId, clock: &SystemClock) -> Webhook {
    Webhook {
        organization: organization.clone(),
        id: id.clone(),
        url: WebhookUrl::parse("https://example.com/hook").unwrap(),
        events: vec![EventPattern::All],
        description: String::new(),
        secret: Secret::new("whsec_0123456789abcdef"),
        off: None,
        created_at: clock.now(),
        settings: Settings::default(),
        exhausted: 0,
        previous_secret: None,
    }
}

/// An event with a business key, under a time-ordered id as the program makes them.
fn event(number: usize, clock: &SystemClock) -> NewEvent {
    let id = EventId::generate(clock.now(), hikyaku::clock::random());
    let body =
        format!(r#"{{"id":"{id}","data":{{"id":"t1|2026-11|{number}","total":{number},"memo":"{:0>200}"}}}}"#, 0);
    NewEvent {
        id,
        event_type: EventType::parse("sale.created").unwrap(),
        timestamp: clock.now(),
        created_at: clock.now(),
        key: Some(format!("t1|2026-11|{number}")),
        content_hash: [1; 32],
        body: body.into(),
    }
}

fn finish(clock: &SystemClock, key: DeliveryKey, created_at: Timestamp) -> FinishAttempt {
    let attempt = AttemptRecord {
        run: 1,
        number: 1,
        started_at: clock.now(),
        duration: Duration::from_millis(12),
        outcome: Outcome::Answered(200),
        error: String::new(),
        response_body: "ok".into(),
    };
    FinishAttempt { key, created_at, owner: "measure".into(), attempt, decision: Decision::Delivered, notices: None }
}
