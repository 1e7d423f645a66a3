//! What a list costs does not grow with what is stored: the steps of SQLite's machine are counted over a small store and
//! over one that is ten times as large.

use hikyaku_core::delivery::{DeliveryState, FailureKind};
use hikyaku_core::event::EventPattern;
use rusqlite::{Connection, StatementStatus};

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::{DeliveryQuery, InboxQuery, LogQuery, MissedQuery, OutcomeFilter, RowState, StatusFilter};

/// Events and received rows of the small store.
const SMALL: i64 = 600;
/// How many times as large the other one is.
const TIMES: i64 = 10;
/// What a search may look at.
const LOOK_AT: u32 = 100;

/// Events and received rows, straight into the tables: one delivery and one attempt each, of which some failed and some
/// wait, and one effect each, of which some wait and some are dead. The oldest few are another webhook's and another source's.
const FILL: &str = "
CREATE TEMP TABLE n AS
    WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < $N) SELECT i FROM c;
INSERT INTO events (organization, id, type, timestamp, content_hash, deliveries, body, created_at, key)
    SELECT 'acme', printf('e%08d', i), iif(i % 2, 'sale.created', 'stock.changed'), i, x'00', 1, x'7b7d', i,
        iif(i % 3, NULL, 'k' || (i / 30)) FROM n;
INSERT INTO waiting (organization, event, webhook, due_at, attempt, spoiled, run, created_at)
    SELECT 'acme', printf('e%08d', i), iif(i > 20, 'w', 'rare'), i, 1, 0, 1, i FROM n WHERE i % 5 = 1;
INSERT INTO deliveries (organization, event, webhook, state, reason, ended_at, run, created_at)
    SELECT 'acme', printf('e%08d', i), iif(i > 20, 'w', 'rare'),
        CASE i % 5 WHEN 2 THEN 'exhausted' WHEN 3 THEN 'cancelled' ELSE 'delivered' END, '', i, 1, i
    FROM n WHERE i % 5 <> 1;
INSERT INTO attempts (organization, event, webhook, run, number, started_at, duration_micros, http_status, error, response_body)
    SELECT 'acme', printf('e%08d', i), iif(i > 20, 'w', 'rare'), 1, 1, i, 1, iif(i % 5 IN (1, 2, 3), 500, 200), '', x''
    FROM n;
INSERT INTO undelivered (organization, event, webhook, kind, timestamp, created_at)
    SELECT 'acme', printf('e%08d', i), 'off', iif(i % 2, 'missed', 'held'), i, i FROM n;
INSERT INTO inbox_rows (position, organization, provider, delivery, source, type, key, micros, rank, event, received_at,
        due_since, state, reason)
    SELECT i, 'acme', 'receiptroller', 'd' || i, iif(i > 20, 'shop', 'rare'), 'sale.created', 'k' || (i / 30), i, 0,
        'd' || i, i, i, CASE i % 5 WHEN 1 THEN 'waiting' WHEN 2 THEN 'dead' WHEN 3 THEN 'parked' ELSE 'done' END, '' FROM n;
INSERT INTO effects (organization, provider, delivery, route, state, failures, detail, ended_at)
    SELECT 'acme', 'receiptroller', 'd' || i, 'books', iif(i % 5 = 2, 'dead', 'done'), 0, '', i
    FROM n WHERE i % 5 NOT IN (1, 3);
INSERT INTO work (organization, route, provider, lane, micros, rank, event, delivery, failures, error, due_since)
    SELECT 'acme', 'books', 'receiptroller', 'k' || (i / 30), i, 0, 'd' || i, 'd' || i, 0, '', i FROM n WHERE i % 5 = 1;
DROP TABLE n;";

fn filled(rows: i64) -> Fresh {
    let fresh = Fresh::new();
    let db = Connection::open(fresh.path()).unwrap();
    db.execute_batch(&FILL.replace("$N", &rows.to_string())).unwrap();
    fresh
}

/// The steps that a read takes.
fn steps(db: &Connection, read: impl FnOnce(&Connection)) -> i32 {
    let all = [search::STATEMENTS, log::STATEMENTS, inbox::STATEMENTS, undelivered::STATEMENTS];
    let taken = || {
        let of = |sql: &&str| db.prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep);
        all.iter().copied().flatten().map(of).sum::<i32>()
    };
    taken();
    read(db);
    taken()
}

fn given<T>(bits: u32, bit: u32, value: T) -> Option<T> {
    (bits >> bit & 1 == 1).then_some(value)
}

fn inbox_queries() -> impl Iterator<Item = InboxQuery> {
    let states = [None, Some(RowState::Done), Some(RowState::Parked), Some(RowState::Waiting), Some(RowState::Stale)];
    let with = |state| {
        (0..1_u32 << 4).map(move |bits| InboxQuery {
            state,
            source: given(bits, 0, "rare".to_owned()),
            key: given(bits, 1, "k3".to_owned()),
            route: given(bits, 2, if bits >> 3 == 1 { "none" } else { "books" }.to_owned()),
            look_at: LOOK_AT,
            ..InboxQuery::newest(acme(), 10)
        })
    };
    states.into_iter().flat_map(with)
}

fn delivery_queries() -> impl Iterator<Item = DeliveryQuery> {
    let states = [None, Some(DeliveryState::Delivered), Some(DeliveryState::Exhausted), Some(DeliveryState::Held)];
    let with = |state| {
        (0..1_u32 << 6).map(move |bits| DeliveryQuery {
            state,
            webhook: given(bits, 0, webhook_id("rare")),
            event_type: given(bits, 1, EventPattern::parse("other.*").unwrap()),
            last: OutcomeFilter {
                status: given(bits, 2, StatusFilter::parse("404").unwrap()),
                failure: given(bits, 3, FailureKind::Dns),
            },
            key: given(bits, 4, "k3".to_owned()),
            event: given(bits, 5, event_id("e00000090")),
            look_at: LOOK_AT,
            limit: 10,
            ..delivery_query()
        })
    };
    states.into_iter().flat_map(with)
}

fn log_queries() -> impl Iterator<Item = LogQuery> {
    (0..1_u32 << 3).map(|bits| LogQuery {
        outcome: OutcomeFilter {
            status: given(bits, 0, StatusFilter::parse(if bits >> 2 == 1 { "404" } else { "204" }).unwrap()),
            failure: None,
        },
        event_type: given(bits, 1, EventPattern::parse("other.*").unwrap()),
        look_at: LOOK_AT,
        ..log_query("w", None, 10)
    })
}

/// Every list with every filter, and the steps that it takes.
fn lists(db: &Connection) -> Vec<(String, i32)> {
    let mut taken = Vec::new();
    for query in inbox_queries() {
        let steps = steps(db, |db| drop(inbox::list(db, &query).unwrap()));
        taken.push((format!("{query:?}"), steps));
    }
    for query in delivery_queries() {
        let steps = steps(db, |db| drop(search::deliveries(db, &query).unwrap()));
        taken.push((format!("{query:?}"), steps));
    }
    for query in log_queries() {
        let steps = steps(db, |db| drop(log::log(db, &query).unwrap()));
        taken.push((format!("{query:?}"), steps));
    }
    let (organization, webhook) = (acme(), webhook_id("off"));
    let query = MissedQuery { organization, webhook, from: None, to: None, after: None, limit: 10, count_to: LOOK_AT };
    let missed = steps(db, |db| drop(undelivered::missed(db, &query).unwrap()));
    taken.push((format!("{query:?}"), missed));
    taken
}

#[tokio::test]
async fn no_list_costs_more_over_a_larger_store() {
    let [small, large] = [SMALL, SMALL * TIMES].map(filled);
    let few = small.readers.run(|db| Ok(lists(db))).await.unwrap();
    let many = large.readers.run(|db| Ok(lists(db))).await.unwrap();
    // What cannot be is found to be nothing without a look; everything else is looked for.
    assert!(few.iter().filter(|(_, few)| *few > 0).count() > few.len() / 2);
    for ((list, few), (_, many)) in few.into_iter().zip(many) {
        assert!(many <= few + few / 2 + 200, "{few} steps, and {many} where ten times as much is stored: {list}");
    }
}
