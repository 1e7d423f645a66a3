//! What an older version of the program wrote is there after the change of the schema.

use hikyaku_core::delivery::DeliveryState;
use rusqlite::Connection;
use rusqlite_migration::Migrations;

use super::*;
use crate::store::conformance::fixture::{acme, claim_lane, claim_one, log, view, webhook_id};
use crate::store::{Aged, MissedQuery, ResendOutcome, RouteBacklog, UndeliveredKind};

/// How many changes of the schema there were before deliveries had runs.
const BEFORE_RUNS: usize = 2;
const CONTENT: &str = "
    INSERT INTO webhooks (organization, id, url, events, description, secret, created_at)
        VALUES ('acme', 'w', 'https://example.com/', '[\"*\"]', '', 'a-secret-of-24-bytes-or-more', 0);
    INSERT INTO events (organization, id, type, timestamp, content_hash, deliveries, body)
        SELECT 'acme', column1, 'sale.created', column2, zeroblob(32), 1, x'7b7d' FROM (VALUES ('failed', 5), ('waits', 6));
    INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at)
        VALUES ('acme', 'failed', 'w', 'exhausted', '', 9);
    INSERT INTO waiting (organization, event, webhook, due_at, attempt, spoiled)
        VALUES ('acme', 'waits', 'w', 0, 1, 0);
    INSERT INTO attempts (organization, event, webhook, number, started_at, duration_micros, http_status, error, response_body)
        SELECT 'acme', column1, 'w', column2, column3, 1, 500, '', x'' FROM (VALUES ('failed', 1, 7), ('failed', 2, 8), ('waits', 1, 6));";

#[tokio::test]
async fn deliveries_from_before_runs_go_on_as_their_first_run_and_can_be_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let mut old = Connection::open(&path).unwrap();
    Migrations::from_slice(&open::SCHEMA[..BEFORE_RUNS]).to_latest(&mut old).unwrap();
    old.execute_batch(CONTENT).unwrap();
    drop(old);

    let store = open(&path).unwrap();
    let failed = view(&store, "failed", "w").await;
    assert_eq!((failed.state, failed.run, failed.attempts.len()), (DeliveryState::Exhausted, 1, 2));
    let lines: Vec<_> = log(&store, "w").await.iter().map(|line| (line.attempt.run, line.attempt.number)).collect();
    assert_eq!(lines, [(1, 2), (1, 1), (1, 1)]);
    let waits = claim_one(&store, "a", 1).await;
    assert_eq!((waits.key.event.as_str(), waits.run, waits.attempt), ("waits", 1, 2));
    let (organization, webhook) = (acme(), webhook_id("w"));
    let query = MissedQuery { organization, webhook, from: None, to: None, after: None, limit: 9, count_to: 9 };
    let missed = store.missed(query).await.unwrap();
    assert_eq!((missed.exhausted, missed.entries[0].kind), (1, UndeliveredKind::Exhausted));
    let key = DeliveryKey { event: missed.entries[0].position.event.clone(), ..waits.key };
    assert_eq!(store.resend(&key, Timestamp::UNIX_EPOCH).await.unwrap(), ResendOutcome::Begun);
    assert_eq!(view(&store, "failed", "w").await.run, 2);
}

/// How many changes of the schema there were before the inbox remembered more than its rows.
const BEFORE_MEMORY: usize = 7;
const INBOX: &str = "
    INSERT INTO inbox_rows (position, organization, provider, delivery, source, type, key, micros, rank, event, received_at,
            due_since, state, reason)
        VALUES (1, 'acme', 'receiptroller', 'd', 'shop', 'order.updated', 'k', 5, 1, 'd', 7, 7000, 'waiting', '');
    INSERT INTO inbox_bodies VALUES (1, x'7b7d');
    INSERT INTO work VALUES ('acme', 'books', 'receiptroller', 'k:k', 5, 1, 'd', 'd', 2, 'away');
    INSERT INTO lanes VALUES ('acme', 'books', 'receiptroller', 'k:k', 9000, NULL, 3);
    INSERT INTO applied VALUES ('acme', 'books', 'receiptroller', 'k:k', 6, 1, 'e'), ('acme', 'books', 'receiptroller', 'k:x', 6, 1, 'e');";

#[tokio::test]
async fn what_the_inbox_held_before_it_remembered_more_is_there_and_its_versions_are_young() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let mut old = Connection::open(&path).unwrap();
    Migrations::from_slice(&open::SCHEMA[..BEFORE_MEMORY]).to_latest(&mut old).unwrap();
    old.execute_batch(INBOX).unwrap();
    drop(old);

    let store = open(&path).unwrap();
    let backlog = store.backlog().await.unwrap();
    let oldest = Timestamp::from_millisecond(7000).ok();
    let waiting = RouteBacklog { effects: 1, failing: 1, oldest };
    assert_eq!(backlog.routes, [((acme(), "books".to_owned()), waiting)].into());
    let before = Timestamp::from_second(1_767_225_600).unwrap();
    let step = DropStep { what: Aged::Versions(None), before, ids_before: before, max_rows: 100 };
    assert_eq!(store.drop_aged(step).await.unwrap().versions, 0, "nobody knows their age");
    let lane = claim_lane(&store, "a", 0).await;
    assert_eq!((lane.rows.len(), lane.applied.is_some()), (1, true));
}
