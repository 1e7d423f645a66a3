use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tempfile::TempDir;

use super::*;
use crate::clock::SystemClock;

mod absence;
mod keys;
mod pruning;
mod together;

/// A database of the user's, with the destination on it.
struct Rig {
    _folder: TempDir,
    path: PathBuf,
    destination: SqliteDestination,
}

/// Columns and pointers.
type Pairs<'a> = &'a [(&'a str, &'a str)];

fn columns(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(column, pointer)| ((*column).to_owned(), (*pointer).to_owned())).collect()
}

const SALES: Pairs<'_> = &[("id", "/data/id"), ("total", "/data/total")];

fn open(
    path: &std::path::Path,
    table: &str,
    key: &str,
    pairs: Pairs<'_>,
    create: bool,
) -> Result<SqliteDestination, String> {
    open_url(&format!("sqlite:{}", path.display()), table, key, pairs, create)
}

fn open_url(url: &str, table: &str, key: &str, pairs: Pairs<'_>, create: bool) -> Result<SqliteDestination, String> {
    let mapping = Mapping { table: table.into(), key: key.into(), columns: columns(pairs), create };
    mapping.check()?;
    SqliteDestination::open(url, &mapping, Arc::new(SystemClock::start()))
}

impl Rig {
    /// With a schema of the user's; an empty one lets the destination create its table.
    fn new(schema: &str, table: &str, pairs: Pairs<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        Connection::open(&path).unwrap().execute_batch(schema).unwrap();
        let destination = open(&path, table, "id", pairs, schema.is_empty()).unwrap();
        Self { _folder: folder, path, destination }
    }

    async fn apply(&self, delivery: &str, second: i64, data: &str) -> Effect {
        self.destination.apply(&row(delivery, second, data)).await
    }

    /// What the user's own program sees, each value as SQL would write it.
    fn seen(&self, query: &str) -> Vec<String> {
        let connection = Connection::open(&self.path).unwrap();
        let mut statement = connection.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn totals(&self) -> Vec<String> {
        self.seen("SELECT id || '=' || quote(total) FROM sales ORDER BY id")
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

fn is_failed(effect: &Effect) -> bool {
    matches!(effect, Effect::Failed { .. })
}

fn refusal(effect: Effect) -> String {
    match effect {
        Effect::Refused(reason) => reason,
        other => panic!("not refused but {other:?}"),
    }
}

#[tokio::test]
async fn c4_c8_c10_one_row_per_key_the_newest_and_each_delivery_once() {
    let rig = Rig::new("", "sales", SALES);
    let done = |text: &str| Effect::Done(text.into());
    assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":20}"#).await, done("written"));
    assert!(matches!(rig.apply("d1", 1, r#"{"id":"a","total":10}"#).await, Effect::Stale(_)));
    assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":99}"#).await, done("it was written before"));
    // What was stale before a crash is no less stale after it.
    assert!(matches!(rig.apply("d1", 1, r#"{"id":"a","total":10}"#).await, Effect::Stale(_)));
    assert_eq!(rig.apply("d3", 3, r#"{"id":"b"}"#).await, done("written"));
    assert_eq!(rig.totals(), ["a=20", "b=NULL"]);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed ORDER BY 1"), ["d2", "d3"]);
    assert_eq!(rig.seen("SELECT key || micros FROM hikyaku_versions ORDER BY 1"), ["a2000000", "b3000000"]);
}

/// C8: what is refused or fails leaves neither the row nor the record of the delivery.
#[tokio::test]
async fn c8_no_record_stays_without_its_row_and_no_row_without_its_record() {
    let rig = Rig::new("CREATE TABLE sales (id TEXT PRIMARY KEY, total INTEGER CHECK (total > 0))", "sales", SALES);
    assert!(refusal(rig.apply("d1", 1, r#"{"id":"a","total":0}"#).await).contains("CHECK constraint failed"));
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed"), [""; 0]);
    assert_eq!(rig.seen("SELECT key FROM hikyaku_versions"), [""; 0]);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, Effect::Done("written".into()));
    assert_eq!(rig.totals(), ["a=5"]);
}

#[tokio::test]
async fn a_table_that_another_program_holds_is_a_failure_that_passes() {
    let rig = Rig::new("", "sales", SALES);
    rig.destination.place.lock().await.ready().unwrap().connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    let other = Connection::open(&rig.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(is_failed(&rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await));
    other.execute_batch("ROLLBACK; ALTER TABLE sales RENAME TO away").unwrap();
    assert!(is_failed(&rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await));
    other.execute_batch("ALTER TABLE away RENAME TO sales").unwrap();
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, Effect::Done("written".into()));
}

/// C4, T3: the column says which keys are one; the newest event of each wins in whatever spelling it comes.
#[tokio::test]
async fn c4_t3_a_key_in_another_spelling_has_the_history_of_its_row() {
    for (declared, spellings) in [
        ("TEXT COLLATE NOCASE", [r#""Ab""#, r#""aB""#, r#""ab""#]),
        ("TEXT COLLATE RTRIM", [r#""a""#, r#""a ""#, r#""a  ""#]),
        ("INTEGER", ["7", r#""7.0""#, r#""70e-1""#]),
        ("NUMERIC", ["7", r#""7.0""#, r#""70e-1""#]),
        ("REAL", ["7", r#""7.0""#, r#""70e-1""#]),
        ("TEXT", ["7", r#""7""#, "7"]),
    ] {
        let rig = Rig::new(&format!("CREATE TABLE sales (id {declared} PRIMARY KEY, total)"), "sales", SALES);
        let sale = |key: &str, total: u32| format!(r#"{{"id":{key},"total":{total}}}"#);
        let [one, two, three] = spellings;
        assert_eq!(rig.apply("d2", 2, &sale(one, 20)).await, Effect::Done("written".into()), "{declared}");
        assert!(matches!(rig.apply("d1", 1, &sale(two, 10)).await, Effect::Stale(_)), "{declared}");
        assert_eq!(rig.apply("d4", 4, &sale(two, 40)).await, Effect::Done("written".into()), "{declared}");
        assert!(matches!(rig.apply("d3", 3, &sale(three, 30)).await, Effect::Stale(_)), "{declared}");
        assert!(matches!(rig.apply("d0", 3, &sale(one, 30)).await, Effect::Stale(_)), "{declared}");
        assert_eq!(rig.seen("SELECT quote(total) FROM sales"), ["40"], "{declared}");
    }
}

/// C8: what is reported as written is in the file that the user finds at the path.
#[tokio::test]
#[cfg(unix)]
async fn c8_a_file_that_was_deleted_or_replaced_gets_no_rows_that_nobody_finds() {
    let rig = Rig::new("", "sales", SALES);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, Effect::Done("written".into()));
    std::fs::rename(&rig.path, rig.path.with_extension("away")).unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", rig.path.display())).unwrap();
    }
    for _ in 0..2 {
        let Effect::Failed { error, .. } = rig.apply("d2", 2, r#"{"id":"b","total":2}"#).await else { panic!() };
        assert!(error.contains("put it back") && error.contains("books.db"), "{error}");
    }
    assert!(!rig.path.exists(), "whoever moved it may be about to put another in its place");
    let schema = "CREATE TABLE sales (id TEXT PRIMARY KEY, total); INSERT INTO sales VALUES ('other', 0)";
    Connection::open(&rig.path).unwrap().execute_batch(schema).unwrap();
    assert_eq!(rig.apply("d2", 2, r#"{"id":"b","total":2}"#).await, Effect::Done("written".into()));
    assert_eq!(rig.totals(), ["b=2", "other=0"]);
}

/// R19: what the table's other rows forbid now they may allow later.
#[tokio::test]
async fn r19_a_value_that_another_row_still_has_is_waited_for() {
    for schema in ["id TEXT PRIMARY KEY, total UNIQUE", "id TEXT UNIQUE, total PRIMARY KEY"] {
        let rig = Rig::new(&format!("CREATE TABLE sales ({schema})"), "sales", SALES);
        assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, Effect::Done("written".into()));
        assert!(is_failed(&rig.apply("d3", 3, r#"{"id":"b","total":5}"#).await), "{schema}");
        assert_eq!(rig.apply("d2", 2, r#"{"id":"a","total":6}"#).await, Effect::Done("written".into()));
        assert_eq!(rig.apply("d3", 3, r#"{"id":"b","total":5}"#).await, Effect::Done("written".into()));
        assert_eq!(rig.totals(), ["a=6", "b=5"], "{schema}");
    }
}

/// A row that the table drops without an error is no row that was written, nor one to try again.
#[tokio::test]
async fn a_row_that_the_table_passes_over_is_refused_with_the_reason() {
    for schema in [
        "CREATE TABLE sales (id TEXT PRIMARY KEY, total);
         CREATE TRIGGER t BEFORE INSERT ON sales BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TABLE sales (id TEXT PRIMARY KEY, total NOT NULL ON CONFLICT IGNORE)",
    ] {
        let rig = Rig::new(schema, "sales", SALES);
        let reason = refusal(rig.apply("d1", 1, r#"{"id":"a","total":null}"#).await);
        assert!(reason.contains("passed the row over"), "{schema}: {reason}");
        assert_eq!(rig.totals(), [""; 0], "{schema}");
        assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed"), [""; 0], "{schema}");
    }
}

/// R19: the row that this one refers to may come later.
#[tokio::test]
async fn r19_a_missing_parent_row_is_waited_for() {
    let schema = "CREATE TABLE shops (id TEXT PRIMARY KEY);
                  CREATE TABLE sales (id TEXT PRIMARY KEY, total, shop TEXT REFERENCES shops (id))";
    let rig = Rig::new(schema, "sales", &[("id", "/data/id"), ("shop", "/data/shop")]);
    assert!(is_failed(&rig.apply("d1", 1, r#"{"id":"a","shop":"s"}"#).await));
    Connection::open(&rig.path).unwrap().execute_batch("INSERT INTO shops VALUES ('s')").unwrap();
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","shop":"s"}"#).await, Effect::Done("written".into()));
}

/// Case 3: every value of JSON arrives as it was written, in a column without a type and in a TEXT column.
#[tokio::test]
async fn case3_no_value_is_changed_on_the_way() {
    let schema = "CREATE TABLE sales (id PRIMARY KEY, total, words TEXT)";
    let rig = Rig::new(schema, "sales", &[("id", "/data/id"), ("total", "/data/total"), ("words", "/data/total")]);
    for (json, bare, text) in [
        ("29383937493038367292", "'29383937493038367292'", "'29383937493038367292'"),
        ("9223372036854775807", "9223372036854775807", "'9223372036854775807'"),
        ("-9223372036854775809", "'-9223372036854775809'", "'-9223372036854775809'"),
        ("1980", "1980", "'1980'"),
        ("0.1", "0.1", "'0.1'"),
        ("0.10000000000000000555", "'0.10000000000000000555'", "'0.10000000000000000555'"),
        ("1e400", "'1e400'", "'1e400'"),
        ("-0.5E1", "-5.0", "'-0.5E1'"),
        (r#""007""#, "'007'", "'007'"),
        (r#""O'Brien \"領\"""#, "'O''Brien \"領\"'", "'O''Brien \"領\"'"),
        (r#""\ud800""#, "'\"\\ud800\"'", "'\"\\ud800\"'"),
        ("true", "1", "'1'"),
        ("false", "0", "'0'"),
        ("null", "NULL", "NULL"),
        (r#"{"a": [1,2.0]}"#, "'{\"a\": [1,2.0]}'", "'{\"a\": [1,2.0]}'"),
        ("[]", "'[]'", "'[]'"),
    ] {
        let data = format!(r#"{{"id":{json:?},"total":{json}}}"#);
        assert_eq!(rig.apply(json, 1, &data).await, Effect::Done("written".into()), "{json}");
        let query =
            format!("SELECT quote(total) || ' ' || quote(words) FROM sales WHERE id = '{}'", json.replace('\'', "''"));
        assert_eq!(rig.seen(&query), [format!("{bare} {text}")], "{json}");
    }
    let data = r#"{"id":"precise","total":0.1234567890123456}"#;
    assert_eq!(rig.apply("precise", 1, data).await, Effect::Done("written".into()));
    let precise = "SELECT CAST(total = 0.1234567890123456 AS TEXT) || words FROM sales WHERE id = 'precise'";
    assert_eq!(rig.seen(precise), ["10.1234567890123456"], "SQLite prints it otherwise, but holds it");
    let nul = r#"{"id":"nul","total":"a\u0000b"}"#;
    assert_eq!(rig.apply("nul", 1, nul).await, Effect::Done("written".into()));
    assert_eq!(rig.seen("SELECT hex(total) FROM sales WHERE id = 'nul'"), ["610062"]);
}

#[tokio::test]
async fn case3_a_column_whose_type_would_change_a_value_refuses_it() {
    for (declared, json, kept) in [
        ("INTEGER", "29383937493038367292", None),
        ("NUMERIC", "29383937493038367292", None),
        ("REAL", "9007199254740993", None),
        ("INTEGER", r#""007""#, None),
        ("REAL", r#""0.10000000000000000555""#, None),
        ("INTEGER", r#""12""#, Some("12")),
        ("NUMERIC", r#""12.50""#, Some("12.5")),
        ("REAL", "1980", Some("1980.0")),
        ("INTEGER", "5.0", Some("5")),
        ("INTEGER", r#""twelve""#, Some("'twelve'")),
        ("VARCHAR(20)", "29383937493038367292", Some("'29383937493038367292'")),
    ] {
        let rig = Rig::new(&format!("CREATE TABLE sales (id TEXT PRIMARY KEY, total {declared})"), "sales", SALES);
        let effect = rig.apply("d1", 1, &format!(r#"{{"id":"a","total":{json}}}"#)).await;
        match kept {
            Some(kept) => {
                assert_eq!(effect, Effect::Done("written".into()), "{declared} {json}");
                assert_eq!(rig.totals(), [format!("a={kept}")], "{declared} {json}");
            }
            None => {
                let reason = refusal(effect);
                assert!(reason.contains("column \"total\"") && reason.contains("TEXT"), "{reason}");
                assert_eq!(rig.totals(), [""; 0], "{declared} {json}");
            }
        }
    }
}

#[tokio::test]
async fn a_row_whose_key_is_missing_or_odd_is_refused_with_the_reason() {
    let rig = Rig::new("", "sales", SALES);
    for data in [
        "{}",
        r#"{"id":null}"#,
        r#"{"id":""}"#,
        r#"{"id":true}"#,
        r#"{"id":{}}"#,
        r#"{"id":1.5}"#,
        r#"{"id":"\ud800"}"#,
        "7",
    ] {
        let reason = refusal(rig.apply("d1", 1, data).await);
        assert!(reason.contains("\"/data/id\""), "{data}: {reason}");
    }
    let rig = Rig::new("CREATE TABLE sales (id INTEGER PRIMARY KEY, total)", "sales", SALES);
    assert!(refusal(rig.apply("d1", 1, r#"{"id":"t1|2026-13||9"}"#).await).contains("datatype mismatch"));
    assert_eq!(rig.apply("d1", 1, r#"{"id":29}"#).await, Effect::Done("written".into()));
}

#[tokio::test]
async fn ids_of_two_sources_do_not_meet() {
    let rig = Rig::new("", "sales", SALES);
    rig.apply("d1", 1, r#"{"id":"a"}"#).await;
    let other = WorkRow { source: "other".into(), ..row("d1", 1, r#"{"id":"b"}"#) };
    assert_eq!(rig.destination.apply(&other).await, Effect::Done("written".into()));
}

/// S22: a name is a name, whatever is in it.
#[tokio::test]
async fn s22_names_from_the_configuration_are_quoted() {
    let table = r#"sa"les; DROP TABLE hikyaku_processed; --"#;
    let pairs = [("id", "/data/id"), (r#"to"tal)"#, "/data/total"), ("select", "/data/total")];
    let rig = Rig::new("", table, &pairs);
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, Effect::Done("written".into()));
    assert_eq!(rig.seen(r#"SELECT "to""tal)" || "select" FROM "sa""les; DROP TABLE hikyaku_processed; --""#), ["55"]);
}

/// S22: a value is a value, whatever is in it.
#[tokio::test]
async fn s22_values_are_bound() {
    let rig = Rig::new("", "sales", SALES);
    let evil = "'); DROP TABLE sales; --";
    let row = format!(r#"{{"id":"{evil}","total":"{evil}"}}"#);
    assert_eq!(rig.apply(evil, 1, &row).await, Effect::Done("written".into()));
    assert_eq!(rig.seen("SELECT id || '=' || total FROM sales"), [format!("{evil}={evil}")]);
}

#[test]
fn what_does_not_fit_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books.db");
    let schema = "CREATE TABLE sales (id TEXT PRIMARY KEY, total);
                  CREATE TABLE loose (id TEXT, total);
                  CREATE TABLE pair (id TEXT, total, PRIMARY KEY (id, total));
                  CREATE TABLE strict (id TEXT PRIMARY KEY, total, shop TEXT NOT NULL);
                  CREATE TABLE doubled (id TEXT PRIMARY KEY, half, total AS (half * 2));
                  CREATE TABLE kind (rid INTEGER PRIMARY KEY NOT NULL, id TEXT NOT NULL UNIQUE, total,
                      shop TEXT NOT NULL DEFAULT 'x', twice NOT NULL AS (total * 2));
                  CREATE VIEW seen AS SELECT * FROM sales";
    Connection::open(&path).unwrap().execute_batch(schema).unwrap();
    let ghost = &[("id", "/data/id"), ("ghost", "/data/total")];
    let bad_pointer = &[("id", "data/id"), ("total", "/data/total")];
    let twice = &[("id", "/data/id"), ("total", "/data/total"), ("TOTAL", "/data/total")];
    let cases: [(&str, &str, Pairs, &str); 13] = [
        ("missing", "id", SALES, "there is no table \"missing\" in the database; create it, or set create = true"),
        ("seen", "id", SALES, "there is no table \"seen\""),
        ("sales", "id", ghost, "table \"sales\" has no column \"ghost\""),
        ("sales", "key", SALES, "key \"key\" is not among the columns"),
        ("sales", "id", twice, "\"TOTAL\" and \"total\" differ in case only"),
        ("strict", "id", SALES, "without a value for \"shop\""),
        ("doubled", "id", SALES, "\"total\" of table \"doubled\" is generated"),
        ("loose", "id", SALES, "must be its PRIMARY KEY or UNIQUE"),
        ("pair", "id", SALES, "must be its PRIMARY KEY or UNIQUE"),
        ("sales", "id", bad_pointer, "\"data/id\" of \"id\" is no JSON pointer"),
        ("hikyaku_versions", "id", SALES, "are our own"),
        ("", "id", SALES, "\"\" cannot be the name of a table"),
        ("sa\0les", "id", SALES, "cannot be the name of a table"),
    ];
    for (table, key, pairs, message) in cases {
        let error = open(&path, table, key, pairs, false).err().unwrap_or_default();
        assert!(error.contains(message), "{table:?}: {error:?}");
    }
    std::fs::write(folder.path().join("notes.db"), "notes ".repeat(1000)).unwrap();
    let notes = open(&folder.path().join("notes.db"), "sales", "id", SALES, true).err().unwrap_or_default();
    assert!(notes.contains("file is not a database"), "{notes}");
    for url in ["postgres://db/books", "sqlite:", "sqlite::memory:", "books.db"] {
        let error = open_url(url, "sales", "id", SALES, true);
        assert!(error.err().unwrap_or_default().contains("not of the form \"sqlite:PATH\""), "{url}");
    }
    assert!(open(&path, "SALES", "id", SALES, true).is_ok(), "names ignore case, as SQLite's do");
    assert!(open(&path, "kind", "id", SALES, false).is_ok(), "what has a value of its own needs none of ours");
}
