//! What is copied is all there, a copy that is not whole is never opened, and whoever is in use is left alone.

mod refusals;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::clock::SystemClock;
use crate::store::Store;
use crate::store::conformance::{self, fixture::at, model};
use crate::store::postgres::{Options, PostgresStore};
use crate::store::seal::Seal;
use crate::store::sqlite::SqliteStore;
use crate::test_postgres::TestDatabase;

/// Random lists of operations: each is copied twice.
const CASES: u32 = 6;

fn clock() -> SharedClock {
    Arc::new(SystemClock::start())
}

/// Files of a test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self, name: &str) -> SqliteStore {
        SqliteStore::open(&self.path(name), Seal::default(), &*clock()).unwrap()
    }

    async fn side(&self, name: &str) -> Side {
        Side::sqlite(&self.path(name), true, clock()).await.unwrap()
    }
}

async fn side_of(database: &TestDatabase) -> Side {
    Side::postgres(&database.url(), clock()).await.unwrap()
}

async fn open(database: &TestDatabase) -> Result<PostgresStore, postgres::OpenError> {
    let options = Options { connections: 2, ..Options::default() };
    PostgresStore::open(&database.url(), Seal::default(), &*clock(), options).await
}

async fn copy_all(from: Side, to: Side) -> Vec<Compared> {
    let compared = copy(&from, &to, |_| {}).await.unwrap();
    for of_table in &compared {
        assert!(of_table.is_same(), "{of_table:?}");
    }
    compared
}

/// Copies a file to a database and that to another file; what was counted and summed up on each way.
async fn there_and_back(files: &Files, database: &TestDatabase) -> [Vec<Compared>; 2] {
    let there = copy_all(files.side("first.db").await, side_of(database).await).await;
    let back = copy_all(side_of(database).await, files.side("second.db").await).await;
    for (there, back) in there.iter().zip(&back) {
        assert_eq!((there.table, there.from), (back.table, back.to));
    }
    [there, back]
}

/// A row whose values are all different from those of the rows of other numbers, and as odd as its column allows.
fn odd_row(table: &'static Table, number: i64) -> Row {
    let value = |column: &Column| match (column.kind, column.name) {
        _ if column.may_be_null && number == 0 => Value::Null,
        // What rows are found by in other tables, and what the days are told by.
        (_, "organization" | "event" | "webhook" | "provider" | "delivery") => Value::Text(format!("x{number}")),
        (Kind::Text, "id") => Value::Text(format!("x{number}")),
        (_, "position" | "id") => Value::Number(number + 1),
        (_, "created_at" | "due_since") => Value::Number(at(number * 20 * 3600).as_millisecond()),
        (_, "kind") => Value::Text(["held", "missed", "exhausted"][number.unsigned_abs() as usize % 3].to_owned()),
        (Kind::Number, _) => Value::Number(i64::MAX - number),
        (Kind::Text, _) => Value::Text(format!("\0\u{1}\u{2}\0\0 領収書 {number} {}", column.name)),
        (Kind::Bytes, name) => Value::Bytes([b"\0\xff\x01", name.as_bytes(), &[number.to_be_bytes()[7]]].concat()),
    };
    let mut row: Row = table.columns.iter().map(value).collect();
    if let Some(place) = table.columns.iter().position(|column| column.name == "type") {
        // An event's type stands with it and with what was not delivered of it.
        row[place] = Value::Text(format!("type.x{number}"));
    }
    row
}

#[tokio::test]
async fn every_column_of_every_table_comes_through_with_whatever_is_in_it() {
    let (files, database) = (Files::new(), TestDatabase::create().await);
    let filled = files.side("first.db").await;
    for table in TABLES {
        let rows = if table.name == "heartbeat" { 1 } else { 3 };
        let mut rows: Vec<Row> = (0..rows).map(|number| odd_row(table, number)).collect();
        if table.name == "known_ids" {
            // Their rows are gone.
            rows.iter_mut().for_each(|row| row[2] = Value::Text("gone".into()));
        }
        filled.store.write(table, rows).await.unwrap();
    }
    drop(filled);
    let [there, _] = there_and_back(&files, &database).await;
    for of_table in there {
        let rows = if of_table.table == "heartbeat" { 1 } else { 3 };
        assert_eq!(of_table.from.rows(), rows, "{}", of_table.table);
    }
}

/// The columns of a schema that a copy writes, each as table and name.
fn copied(layouts: Layouts) -> BTreeSet<(String, String)> {
    let written = TABLES.iter().flat_map(|table| layouts.into(table).into_iter().map(move |into| (table, into)));
    let named = written.flat_map(|(table, (into, part))| {
        part.of(table).into_iter().map(move |(_, column)| (into.to_owned(), column.name.to_owned()))
    });
    named.collect()
}

/// What a schema has and no copy writes, but for these tables.
fn forgotten(schema: Vec<(String, String)>, layouts: Layouts, not_copied: &[&str]) -> Vec<(String, String)> {
    let copied = copied(layouts);
    let tables: BTreeSet<_> = schema.iter().map(|(table, _)| table.clone()).collect();
    assert!(not_copied.iter().all(|table| tables.contains(*table)), "not all of {not_copied:?} are in {tables:?}");
    let is_forgotten = |column: &(String, String)| !not_copied.contains(&column.0.as_str()) && !copied.contains(column);
    schema.into_iter().filter(is_forgotten).collect()
}

#[tokio::test]
async fn no_column_of_either_schema_is_forgotten() {
    let (files, database) = (Files::new(), TestDatabase::create().await);
    drop((files.open("a.db"), open(&database).await.unwrap()));
    let file = rusqlite::Connection::open(files.path("a.db")).unwrap();
    let sql = "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'";
    let mut columns = file.prepare(sql).unwrap();
    let columns = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    // That a commit would succeed, and the numbers that claims have.
    assert_eq!(forgotten(columns, sqlite::COPY_LAYOUTS, &["pings"]), []);

    let sql = "SELECT c.relname::TEXT, a.attname::TEXT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
            AND a.attnum > 0 AND NOT a.attisdropped";
    let columns = database.client().await.query(sql, &[]).await.unwrap();
    let columns = columns.iter().map(|row| (row.get(0), row.get(1))).collect();
    // Versions of what is cached, leases of what one node does, the nodes themselves, and how old the schema is.
    let not_copied = ["organizations", "duties", "commits", "schema_steps"];
    assert_eq!(forgotten(columns, postgres::COPY_LAYOUTS, &not_copied), []);
}

#[test]
fn what_random_operations_left_is_shown_by_the_copy_as_by_the_model() {
    model::check(CASES, async |operations| {
        let (files, database) = (Files::new(), TestDatabase::create().await);
        let store = files.open("first.db");
        let model = model::apply(&store, operations).await?;
        drop(store);
        there_and_back(&files, &database).await;
        model::compare_all(&model, &open(&database).await.unwrap()).await?;
        model::compare_all(&model, &files.open("second.db")).await
    });
}

/// Copies what these cases leave behind.
macro_rules! after {
    ($($topic:ident: $case:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $case() {
                let (files, database) = (Files::new(), TestDatabase::create().await);
                let store = files.open("first.db");
                conformance::$topic::$case(&store).await;
                drop(store);
                let [there, _] = there_and_back(&files, &database).await;
                assert!(there.iter().any(|of_table| of_table.from.rows() > 0), "nothing was left to copy");
            }
        )+
    };
}

after! {
    publish: ids_of_any_allowed_form_are_kept_as_given,
    claim: a_lease_keeps_everyone_else_out_until_it_ends,
    finish: case4_case19_every_outcome_error_and_response_is_kept_as_it_was,
    settings: settings_are_kept_as_they_were_given,
    settings: s15_a_rotation_keeps_two_secrets_for_its_overlap,
    held: what_a_cancelled_release_left_is_released_by_switching_on_once_more,
    recovery: a_recovery_rests_while_its_webhook_is_off,
    lanes: c15_an_effect_left_without_an_end_is_told_and_counted,
    interventions: t2_an_admitted_row_is_stored_under_its_own_id_once,
    interventions: a_row_that_was_given_another_beginning_ages_from_it,
    retention: c7_t5_an_id_is_known_longer_than_its_row_where_it_should_be,
    retention: t5_versions_are_dropped_by_the_time_of_their_effect_in_steps,
}

/// A database of which a day was dropped has left what is not dropped in one piece.
#[tokio::test]
async fn what_is_dropped_but_still_in_its_day_is_not_copied() {
    let (files, database) = (Files::new(), TestDatabase::create().await);
    let store = open(&database).await.unwrap();
    conformance::retention::old_events_go_with_all_that_is_theirs(&store).await;
    store.close().await.unwrap();
    let client = database.client().await;
    client.execute("DELETE FROM event_ids", &[]).await.unwrap();
    let back = copy_all(side_of(&database).await, files.side("second.db").await).await;
    let rows = |name| back.iter().find(|of_table| of_table.table == name).unwrap().from.rows();
    assert_eq!([rows("events"), rows("deliveries"), rows("attempts")], [0, 0, 0]);
}

fn is_unfinished(path: &Path) -> bool {
    let opened = SqliteStore::open(path, Seal::default(), &*clock());
    matches!(opened, Err(sqlite::OpenError::UnfinishedCopy { .. }))
}
