//! The table of ids in SQLite, in transactions of the caller's own.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use hikyaku_inbox::rusqlite::{create_table, insert_if_absent, prune};
use hikyaku_inbox::{DeliveryId, Insertion, Keep, PRUNE_ROWS, Timestamp, Version, is_newer, sql};
use proptest::prelude::*;
use rusqlite::{Connection, TransactionBehavior};

fn database() -> Connection {
    let database = Connection::open_in_memory().unwrap();
    create_table(&database).unwrap();
    create_table(&database).unwrap(); // a second start finds it there
    database.execute_batch("CREATE TABLE work (body TEXT NOT NULL)").unwrap();
    database
}

fn insert<'a>(database: &mut Connection, id: impl Into<DeliveryId<'a>>) -> Insertion {
    let transaction = database.transaction().unwrap();
    let insertion = insert_if_absent(&transaction, id).unwrap();
    transaction.commit().unwrap();
    insertion
}

fn count(database: &Connection, table: &str) -> i64 {
    database.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn c6_an_id_is_inserted_once_for_each_organization_and_provider() {
    let mut database = database();
    let of = |organization, provider| DeliveryId { organization, provider, delivery: "e1" };
    for id in [DeliveryId::from("e1"), of("a", ""), of("", "a"), of("a", "b"), "E1".into(), "t1|2026-13||".into()] {
        assert_eq!(insert(&mut database, id), Insertion::Inserted, "{id:?}");
        assert_eq!(insert(&mut database, id), Insertion::Present, "{id:?}");
    }
}

#[test]
fn t1_c8_the_id_and_the_work_are_there_together_or_not_at_all() {
    let mut database = database();
    let transaction = database.transaction().unwrap();
    assert_eq!(insert_if_absent(&transaction, "e1").unwrap(), Insertion::Inserted);
    transaction.execute("INSERT INTO work VALUES ('sale')", []).unwrap();
    drop(transaction); // as a crash would
    assert_eq!((count(&database, "hikyaku_received"), count(&database, "work")), (0, 0));
    assert_eq!(insert(&mut database, "e1"), Insertion::Inserted, "the retry is not taken for done");
}

#[test]
fn case5_of_parallel_deliveries_of_one_id_one_is_new() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ids.db");
    let open = || {
        let database = Connection::open(&path).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        database
    };
    create_table(&open()).unwrap();
    let start = Barrier::new(16);
    let inserted = thread::scope(|scope| {
        let tries: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let mut database = open();
                    start.wait();
                    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                    let insertion = insert_if_absent(&transaction, "e1").unwrap();
                    transaction.commit().unwrap();
                    insertion
                })
            })
            .collect();
        tries.into_iter().map(|one| one.join().unwrap()).filter(|i| *i == Insertion::Inserted).count()
    });
    assert_eq!(inserted, 1);
}

#[test]
fn c7_only_ids_that_are_older_are_forgotten() {
    let mut database = database();
    let seconds = Keep::SHORTEST.seconds();
    for (id, age) in [("old", seconds + 60), ("young", seconds - 60)] {
        let _ = insert(&mut database, id);
        let sql = "UPDATE hikyaku_received SET received_at = unixepoch() - ?2 WHERE delivery_id = ?1";
        database.execute(sql, (id, age)).unwrap();
    }
    assert_eq!(prune(&database, Keep::default()).unwrap(), 0);
    assert_eq!(prune(&database, Keep::SHORTEST).unwrap(), 1);
    assert_eq!(insert(&mut database, "young"), Insertion::Present);
    assert_eq!(insert(&mut database, "old"), Insertion::Inserted);
}

#[test]
fn ids_are_removed_in_bounded_steps() {
    let database = database();
    let many = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                INSERT INTO hikyaku_received SELECT '', '', 'e' || i, 0 FROM n";
    database.execute(many, [PRUNE_ROWS as i64]).unwrap();
    let steps: Vec<_> = (0..3).map(|_| prune(&database, Keep::default()).unwrap()).collect();
    assert_eq!(steps, [PRUNE_ROWS, 1, 0]);
}

#[test]
fn no_statement_reads_the_whole_table() {
    let database = database();
    for statement in [sql::sqlite::INSERT_IF_ABSENT, sql::sqlite::PRUNE] {
        let mut plan = database.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let parameters = vec![1; plan.parameter_count()];
        let lines = plan.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).unwrap();
        let lines: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(!lines.iter().any(|line| line.starts_with("SCAN hikyaku_received")), "{lines:#?}");
    }
}

/// The statement that the documentation of [`Version`] gives.
const UPSERT: &str = "
    INSERT INTO sales (id, total, version) VALUES (?1, ?2, ?3)
    ON CONFLICT (id) DO UPDATE SET total = excluded.total, version = excluded.version
    WHERE excluded.version > sales.version";

proptest! {
    /// Events of one sale in any order, each any number of times; every one has its own total.
    #[test]
    fn c4_c10_t3_the_table_ends_with_the_newest_in_whatever_order_events_come(
        seconds in proptest::collection::vec(0i64..4, 1..8), order in proptest::collection::vec(any::<usize>(), 0..16),
    ) {
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch("CREATE TABLE sales (id TEXT PRIMARY KEY, total INTEGER, version TEXT NOT NULL)").unwrap();
        let version = |total: usize| {
            let name = ["sale.created", "sale.updated", "sale.voided"][total % 3];
            Version::new(Timestamp::from_second(seconds[total]).unwrap(), name, &format!("e{total}"))
        };
        let mut newest: Option<(usize, Version)> = None;
        for total in order.iter().map(|any| any % seconds.len()).chain(0..seconds.len()) {
            database.execute(UPSERT, ("s1", total as i64, version(total).as_str())).unwrap();
            if is_newer(newest.as_ref().map(|(_, version)| version.as_str()), &version(total)) {
                newest = Some((total, version(total)));
            }
        }
        let last = (0..seconds.len()).max_by_key(|total| version(*total));
        let stored: i64 = database.query_row("SELECT total FROM sales", [], |row| row.get(0)).unwrap();
        prop_assert_eq!((newest.map(|(total, _)| total), Some(stored as usize)), (last, last));
    }
}
