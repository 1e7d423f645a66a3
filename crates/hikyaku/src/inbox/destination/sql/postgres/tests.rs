use std::collections::BTreeMap;

use bytes::Bytes;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tokio_postgres::Client;

use super::*;
use crate::inbox::destination::testing::{Scripted, tools};
use crate::test_postgres::TestDatabase;

/// A database of the user's, with the destination on it.
struct Rig {
    database: TestDatabase,
    /// The user's own program.
    user: Client,
    destination: PostgresDestination,
}

/// Columns and pointers.
type Pairs<'a> = &'a [(&'a str, &'a str)];

const SALES: Pairs<'_> = &[("id", "/data/id"), ("total", "/data/total")];

fn open(url: &str, table: &str, pairs: Pairs<'_>, create: bool) -> Result<PostgresDestination, String> {
    let columns: BTreeMap<_, _> = pairs.iter().map(|(name, at)| ((*name).to_owned(), (*at).to_owned())).collect();
    let mapping = Mapping { table: table.into(), key: "id".into(), columns, create };
    mapping.check()?;
    let transport = Scripted::new(|_| unreachable!("SQL needs no HTTP"));
    PostgresDestination::new(url, mapping, &tools(transport, Duration::from_secs(20)))
}

impl Rig {
    /// With a schema of the user's; an empty one lets the destination create its table.
    async fn new(schema: &str, table: &str, pairs: Pairs<'_>) -> Self {
        let database = TestDatabase::create().await;
        let user = database.client().await;
        user.batch_execute(schema).await.unwrap();
        let destination = open(&database.url(), table, pairs, schema.is_empty()).unwrap();
        destination.ready().await.unwrap();
        Self { database, user, destination }
    }

    /// Another table in the same database, and nothing written before.
    async fn renewed(&mut self, schema: &str, pairs: Pairs<'_>) {
        let clear = "DROP TABLE IF EXISTS sales; TRUNCATE hikyaku_versions, hikyaku_processed";
        self.user.batch_execute(&format!("{clear}; {schema}")).await.unwrap();
        self.destination = open(&self.database.url(), "sales", pairs, false).unwrap();
        self.destination.ready().await.unwrap();
    }

    /// Another process with the same destination.
    async fn another(&self, table: &str, pairs: Pairs<'_>) -> PostgresDestination {
        open(&self.database.url(), table, pairs, false).unwrap()
    }

    async fn apply(&self, delivery: &str, second: i64, data: &str) -> Effect {
        self.destination.apply(&row(delivery, second, data)).await
    }

    /// What the user's own program sees.
    async fn seen(&self, query: &str) -> Vec<String> {
        let rows = self.user.query(query, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_else(|| "NULL".into())).collect()
    }

    async fn totals(&self) -> Vec<String> {
        self.seen("SELECT id::text || '=' || coalesce(total::text, 'NULL') FROM sales ORDER BY id").await
    }
}

fn row(delivery: &str, second: i64, data: &str) -> WorkRow {
    let at = Timestamp::from_second(second).unwrap();
    WorkRow {
        delivery: delivery.into(),
        source: "shop".into(),
        event_type: "sale.created".into(),
        key: String::new(),
        version: Version::new(at, "sale.created", delivery),
        failures: 0,
        received_at: at,
        due_since: at,
        body: Bytes::from(format!(r#"{{"data":{data}}}"#)),
    }
}

fn written() -> Effect {
    Effect::Done("written".into())
}

fn is_stale(effect: &Effect) -> bool {
    matches!(effect, Effect::Stale(_))
}

fn failure(effect: Effect) -> String {
    match effect {
        Effect::Failed { error, .. } => error,
        other => panic!("not failed but {other:?}"),
    }
}

fn refusal(effect: Effect) -> String {
    match effect {
        Effect::Refused(reason) => reason,
        other => panic!("not refused but {other:?}"),
    }
}

mod concurrency;
mod schema;
mod values;

#[tokio::test]
async fn c4_c8_c10_one_row_per_key_the_newest_and_each_delivery_once() {
    let rig = Rig::new("", "sales", SALES).await;
    assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":20}"#).await, written());
    assert!(is_stale(&rig.apply("d1", 1, r#"{"id":"a","total":10}"#).await));
    assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":99}"#).await, Effect::Done(BEFORE.into()));
    // What was stale before a crash is no less stale after it.
    assert!(is_stale(&rig.apply("d1", 1, r#"{"id":"a","total":10}"#).await));
    assert_eq!(rig.apply("d3", 3, r#"{"id":"b"}"#).await, written());
    assert_eq!(rig.totals().await, ["a=20", "b=NULL"]);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed ORDER BY 1").await, ["d2", "d3"]);
    assert_eq!(rig.seen("SELECT key || micros FROM hikyaku_versions ORDER BY 1").await, ["a2000000", "b3000000"]);
}

/// C8: what is refused or fails leaves neither the row nor the record of the delivery.
#[tokio::test]
async fn c8_no_record_stays_without_its_row_and_no_row_without_its_record() {
    let schema = "CREATE TABLE sales (id text PRIMARY KEY, total integer CHECK (total > 0))";
    let rig = Rig::new(schema, "sales", SALES).await;
    assert!(refusal(rig.apply("d1", 1, r#"{"id":"a","total":0}"#).await).contains("sales_total_check"));
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed").await, [""; 0]);
    assert_eq!(rig.seen("SELECT key FROM hikyaku_versions").await, [""; 0]);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, written());
    assert_eq!(rig.totals().await, ["a=5"]);
}

/// C4, T3: the column says which keys are one; the newest event of each wins in whatever spelling it comes.
#[tokio::test]
async fn c4_t3_a_key_in_another_spelling_has_the_history_of_its_row() {
    let mut rig = Rig::new("", "sales", SALES).await;
    let collation = "CREATE COLLATION lax (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    rig.user.batch_execute(collation).await.unwrap();
    for (declared, spellings) in [
        ("text COLLATE lax", [r#""Ab""#, r#""aB""#, r#""ab""#]),
        ("char(4)", [r#""a""#, r#""a ""#, r#""a  ""#]),
        ("bigint", ["7", r#""7.0""#, r#""70e-1""#]),
        ("numeric", ["7", r#""7.0""#, r#""70e-1""#]),
        ("double precision", ["7", r#""7.0""#, r#""70e-1""#]),
        ("text", ["7", r#""7""#, "7"]),
    ] {
        let schema = format!("CREATE TABLE sales (id {declared} PRIMARY KEY, total integer)");
        rig.renewed(&schema, SALES).await;
        let sale = |key: &str, total: u32| format!(r#"{{"id":{key},"total":{total}}}"#);
        let [one, two, three] = spellings;
        assert_eq!(rig.apply("d2", 2, &sale(one, 20)).await, written(), "{declared}");
        let effect = rig.apply("d1", 1, &sale(two, 10)).await;
        assert!(is_stale(&effect), "{declared}: {effect:?}");
        assert_eq!(rig.apply("d4", 4, &sale(two, 40)).await, written(), "{declared}");
        assert!(is_stale(&rig.apply("d3", 3, &sale(three, 30)).await), "{declared}");
        assert!(is_stale(&rig.apply("d0", 3, &sale(one, 30)).await), "{declared}");
        assert_eq!(rig.seen("SELECT total::text FROM sales").await, ["40"], "{declared}");
    }
}

/// R19: what the table's other rows forbid now they may allow later.
#[tokio::test]
async fn r19_a_value_or_a_parent_row_that_another_event_brings_is_waited_for() {
    let rig = Rig::new("CREATE TABLE sales (id text PRIMARY KEY, total integer UNIQUE)", "sales", SALES).await;
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, written());
    failure(rig.apply("d3", 3, r#"{"id":"b","total":5}"#).await);
    assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":6}"#).await, written());
    assert_eq!(rig.apply("d3", 3, r#"{"id":"b","total":5}"#).await, written());
    assert_eq!(rig.totals().await, ["a=6", "b=5"]);
    let schema = "CREATE TABLE shops (id text PRIMARY KEY);
                  CREATE TABLE sales (id text PRIMARY KEY, shop text REFERENCES shops (id))";
    let rig = Rig::new(schema, "sales", &[("id", "/data/id"), ("shop", "/data/shop")]).await;
    failure(rig.apply("d1", 1, r#"{"id":"a","shop":"s"}"#).await);
    rig.user.batch_execute("INSERT INTO shops VALUES ('s')").await.unwrap();
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","shop":"s"}"#).await, written());
}

#[tokio::test]
async fn a_row_that_the_table_passes_over_is_refused_with_the_reason() {
    let schema = "CREATE TABLE sales (id text PRIMARY KEY, total integer);
                  CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
                  CREATE TRIGGER t BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION nothing()";
    let rig = Rig::new(schema, "sales", SALES).await;
    assert!(refusal(rig.apply("d1", 1, r#"{"id":"a"}"#).await).contains("passed the row over"));
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed").await, [""; 0]);
}

#[tokio::test]
async fn ids_of_two_sources_do_not_meet() {
    let rig = Rig::new("", "sales", SALES).await;
    rig.apply("d1", 1, r#"{"id":"a"}"#).await;
    let other = WorkRow { source: "other".into(), ..row("d1", 1, r#"{"id":"b"}"#) };
    assert_eq!(rig.destination.apply(&other).await, written());
}

/// C7: records are dropped when nothing can ask for them any more, a few at a time; the versions stay and keep out what
/// somebody replays after that.
#[tokio::test]
async fn c7_old_records_of_deliveries_are_dropped_and_their_events_stay_known() {
    let rig = Rig::new("", "sales", SALES).await;
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, written());
    let age = "UPDATE hikyaku_processed SET processed_at = now() - interval '46 days';
               INSERT INTO hikyaku_processed SELECT 'sales', 'shop', 'old' || n, now() - interval '46 days'
               FROM generate_series(1, 300) n;
               INSERT INTO hikyaku_processed VALUES ('sales', 'shop', 'young', now() - interval '44 days')";
    rig.user.batch_execute(age).await.unwrap();
    let count = "SELECT count(*)::text FROM hikyaku_processed";
    for n in 1..i64::from(EFFECTS_PER_PRUNING) {
        rig.apply(&format!("n{n}"), n, &format!(r#"{{"id":"k{n}"}}"#)).await;
    }
    assert_eq!(rig.seen(count).await, ["365"], "nothing is dropped before its turn");
    rig.apply("next", 1, r#"{"id":"next"}"#).await;
    assert_eq!(rig.seen(count).await, [(366 - MAX_PRUNED_ROWS).to_string()]);
    let session = rig.destination.pool.take().await.unwrap();
    assert_eq!(prune(&session.session).await.unwrap(), 301 - 256);
    assert_eq!(prune(&session.session).await.unwrap(), 0);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed WHERE delivery = 'young'").await, ["young"]);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":9}"#).await, Effect::Done(BEFORE.into()));
    assert_eq!(rig.seen("SELECT total FROM sales WHERE id = 'a'").await, ["1"]);
}
