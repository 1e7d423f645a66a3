//! No statement reads a whole table, none sorts history, and none looks into days that it has no business with.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::*;
use crate::store::conformance::fixture::at;

/// A file with statements: its name, its text and its list.
macro_rules! file {
    ($name:literal, $statements:expr) => {
        ($name, include_str!(concat!("../", $name, ".rs")), $statements)
    };
}
/// Every file with statements.
const FILES: &[(&str, &str, &[&str])] = &[
    file!("claim/queues", claim::queues::STATEMENTS),
    file!("claim/take", claim::take::STATEMENTS),
    file!("database", database::STATEMENTS),
    file!("days", days::STATEMENTS),
    file!("duties", duties::STATEMENTS),
    file!("effects", effects::STATEMENTS),
    file!("finish/wave", finish::wave::STATEMENTS),
    file!("inbox", inbox::STATEMENTS),
    file!("interventions", interventions::STATEMENTS),
    file!("lanes", lanes::STATEMENTS),
    file!("lanes/due", lanes::due::STATEMENTS),
    file!("log", log::STATEMENTS),
    file!("migrate", migrate::STATEMENTS),
    file!("outages", outages::STATEMENTS),
    file!("publish", publish::STATEMENTS),
    file!("publish/rows", publish::rows::STATEMENTS),
    file!("quarantine", quarantine::STATEMENTS),
    file!("read", read::STATEMENTS),
    file!("reconcile", reconcile::STATEMENTS),
    file!("recoveries", recoveries::STATEMENTS),
    file!("removals", removals::STATEMENTS),
    file!("reseal", reseal::STATEMENTS),
    file!("retention", retention::STATEMENTS),
    file!("retention/events", retention::events::STATEMENTS),
    file!("retention/inbox", retention::inbox::STATEMENTS),
    file!("retention/partitions", retention::partitions::STATEMENTS),
    file!("search/details", search::details::STATEMENTS),
    file!("search/streams", search::streams::STATEMENTS),
    file!("tokens", tokens::STATEMENTS),
    file!("undelivered", undelivered::STATEMENTS),
    file!("webhooks", webhooks::STATEMENTS),
];
/// The first words of what is planned.
const SQL_WORDS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];

/// Statements that look into every day, because what they look for may be of any: by a business key, by the provider's
/// own time, by the place in the inbox, or along a webhook's log.
const EVERY_DAY: &[&str] = &[
    reconcile::KNOWN_KEYS,
    reconcile::TIMED_KEYS,
    inbox::LIST_OF_KEY,
    inbox::LIST_OF_STATE,
    inbox::LIST_OF_SOURCE,
    inbox::LIST,
    log::LINES,
    log::FAILED_LINES,
];
/// Statements that count what waits, or read all webhooks of an organization. Never history.
const READ_ALL: &[&str] = &[
    read::DELIVERY_BACKLOG,
    read::HELD_BACKLOG,
    read::EFFECT_BACKLOG,
    read::LANE_BACKLOG,
    read::ROUTE_BACKLOG,
    read::WEBHOOKS_OFF,
    read::OLDEST_TRANSACTION,
    webhooks::LOAD,
];
/// Statements that sort a few rows which an index finds and gives in another order.
const SORT_FEW: &[&str] = &[reconcile::KNOWN_KEYS, claim::queues::RECENT];

/// Tables whose rows are never many or have no other key than the organization, and the database's own.
const SMALL: &[&str] = &["schema_steps", "commits", "organizations", "pg_inherits", "pg_class"];
/// By which the days' partitions are told apart.
const DAY_COLUMNS: [&str; 2] = ["created_at", "due_since"];
/// Rows of every table while the plans are looked at, so many that it pays to go by the day, and the days that they are of.
const ROWS: i64 = 12_000;
const DAYS: i64 = 5;

/// What makes PostgreSQL take the hot tables for empty, with all that has ended still in their indexes, or without any.
const DRAINED: &[&str] = &[
    "DELETE FROM waiting; DELETE FROM lanes; DELETE FROM work; ANALYZE waiting, lanes, work",
    "VACUUM waiting, lanes, work",
];

/// A database with rows in every table, and a connection that plans as the store's do.
async fn filled() -> (Fresh, Client) {
    let fresh = make().await;
    fresh.make_days((0..DAYS).map(|day| at(day * 24 * 3600))).await.unwrap();
    let client = fresh.database.client().await;
    let tables = "SELECT relname::TEXT FROM pg_class WHERE relnamespace = current_schema()::regnamespace
        AND relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('heartbeat', 'schema_steps')";
    for table in client.query(tables, &[]).await.unwrap() {
        client.batch_execute(&fill(&client, table.get(0)).await).await.unwrap();
    }
    client.batch_execute(&connections::settings()).await.unwrap();
    client.batch_execute("ANALYZE").await.unwrap();
    (fresh, client)
}

/// A statement that fills a table: organizations, webhooks and the like repeat, times lie on some days, and all else differs.
async fn fill(client: &Client, table: &str) -> String {
    let columns = "SELECT attname::TEXT, atttypid::regtype::TEXT FROM pg_attribute
        WHERE attrelid = to_regclass($1::TEXT) AND attnum > 0 ORDER BY attnum";
    let start = Day::of(at(0)).start();
    let mut values = Vec::new();
    for column in client.query(columns, &[&table]).await.unwrap() {
        let (name, of): (String, String) = (column.get(0), column.get(1));
        values.push(match (name.as_str(), of.as_str()) {
            ("kind", _) => "(ARRAY['held', 'missed', 'exhausted'])[1 + g % 3]".to_owned(),
            ("state", _) => "(ARRAY['delivered', 'waiting', 'exhausted', 'running'])[1 + g % 4]".to_owned(),
            ("webhook", _) if table == "removals" => "'webhook' || g".to_owned(),
            ("webhook" | "route" | "provider" | "source" | "type", _) => format!("'{name}' || g % 7"),
            ("organization", _) if table != "organizations" => "'organization' || g % 3".to_owned(),
            ("revoked_at", _) => "CASE WHEN g % 10 = 0 THEN g END".to_owned(),
            ("owner", _) if table != "duties" => "CASE WHEN g % 10 = 0 THEN 'owner' END".to_owned(),
            ("created_at" | "due_since", _) => format!("{start} + g % {DAYS} * 86400000 + g"),
            (_, "bigint") => "g".to_owned(),
            (_, "bytea") => "decode(md5(g::TEXT), 'hex')".to_owned(),
            _ => format!("'{name}' || g"),
        });
    }
    format!("INSERT INTO {table} SELECT {} FROM generate_series(1, {ROWS}) AS g", values.join(", "))
}

/// A value of a type.
fn value(of: &str) -> String {
    let time = Day::of(at(0)).start();
    match of {
        "bigint" | "integer" => time.to_string(),
        "bigint[]" => format!("'{{{time}}}'"),
        "boolean" => "TRUE".to_owned(),
        "boolean[]" => "'{t}'".to_owned(),
        "bytea" => "'\\x00'".to_owned(),
        "bytea[]" => "ARRAY['\\x00'::BYTEA]".to_owned(),
        "text" => "'organization1'".to_owned(),
        "text[]" => "'{organization1}'".to_owned(),
        other => panic!("a value of the type {other}"),
    }
}

/// A statement's plan, or `None` of what is not planned.
async fn plan(client: &Client, sql: &str) -> Option<Value> {
    SQL_WORDS.iter().find(|word| sql.starts_with(**word))?;
    client.batch_execute(&format!("PREPARE asked AS {sql}")).await.unwrap_or_else(|error| panic!("{error:?}\n{sql}"));
    let types = "SELECT parameter_types::TEXT[] FROM pg_prepared_statements WHERE name = 'asked'";
    let types: Vec<String> = client.query_one(types, &[]).await.unwrap().get(0);
    let values: Vec<_> = types.iter().map(|of| value(of)).collect();
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    let explain = format!("EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE asked{values}");
    let shown = client.simple_query(&explain).await.unwrap_or_else(|error| panic!("{error:?}\n{sql}"));
    let lines = shown.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let text: String = lines.collect();
    client.batch_execute("DEALLOCATE asked").await.unwrap();
    let plan: Value = serde_json::from_str(&text).unwrap();
    Some(plan[0]["Plan"].clone())
}

/// What is wrong with a plan, at this node and below it. `limited` tells whether no more is read than is given, and `first`
/// the first column of every index.
fn objections(node: &Value, limited: bool, first: &HashMap<String, String>, found: &mut BTreeSet<&'static str>) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let (kind, relation, condition) = (text("Node Type"), text("Relation Name"), text("Index Cond"));
    let is_small = SMALL.contains(&relation) || SMALL.iter().any(|table| text("Index Name").starts_with(table));
    if kind == "Seq Scan" && !is_small {
        found.insert("reads a whole table");
    }
    if let Some(column) = first.get(text("Index Name"))
        && !limited
        && !is_small
    {
        if !condition.contains(column) {
            found.insert("reads a whole table");
        } else if condition.contains("(organization = ") && !condition.contains(" AND ") {
            found.insert("reads all that an organization has");
        }
    }
    let filter = text("Filter").replace("OR (organization = ", "");
    if !condition.is_empty() && !condition.contains("organization") && filter.contains("(organization = ") {
        found.insert("walks past other organizations");
    }
    let is_of_day = relation.rsplit_once('_').is_some_and(|(_, day)| day.len() == 5 && day.parse::<i64>().is_ok());
    let conditions = format!("{condition} {} {}", text("Recheck Cond"), text("Filter"));
    if is_of_day && kind.contains("Scan") && !DAY_COLUMNS.iter().any(|column| conditions.contains(column)) {
        found.insert("looks into every day");
    }
    // A batch that was handed over, or what a part of the statement gave that is judged by itself, may be sorted.
    let sorted = node.to_string();
    if kind.contains("Sort") && !["Function Scan", "CTE Scan"].iter().any(|scan| sorted.contains(scan)) {
        found.insert("sorts");
    }
    let passes_on = matches!(
        kind,
        "Append" | "Merge Append" | "LockRows" | "Subquery Scan" | "Result" | "Nested Loop" | "WindowAgg"
    );
    let limited = kind == "Limit" || (limited && passes_on);
    for node in node["Plans"].as_array().into_iter().flatten() {
        objections(node, limited, first, found);
    }
}

async fn objections_to(client: &Client, sql: &str) -> BTreeSet<&'static str> {
    let indexes = "SELECT indexrelid::regclass::TEXT, pg_get_indexdef(indexrelid, 1, TRUE) FROM pg_index
        WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)";
    let first = client.query(indexes, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut found = BTreeSet::new();
    if let Some(plan) = plan(client, sql).await {
        objections(&plan, false, &first, &mut found);
    }
    found
}

/// What there is to object to in any statement as it is planned now.
async fn complaints(client: &Client) -> Vec<String> {
    let mut complaints = Vec::new();
    for (file, _, statements) in FILES {
        for sql in *statements {
            for objection in objections_to(client, sql).await {
                let allowed: &[&[&str]] = match objection {
                    "looks into every day" => &[EVERY_DAY],
                    "sorts" => &[SORT_FEW, READ_ALL],
                    _ => &[READ_ALL],
                };
                if !allowed.iter().any(|list| list.contains(sql)) {
                    complaints.push(format!("{file}: {objection}\n{sql}\n{:#}", plan(client, sql).await.unwrap()));
                }
            }
        }
    }
    complaints
}

#[tokio::test]
async fn no_statement_reads_a_whole_table_sorts_history_or_looks_into_every_day() {
    let (_fresh, client) = filled().await;
    let complaints = complaints(&client).await;
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[tokio::test]
async fn case13_no_statement_reads_a_whole_table_that_was_drained() {
    let (_fresh, client) = filled().await;
    for drained in DRAINED {
        for statement in drained.split("; ") {
            client.batch_execute(statement).await.unwrap();
        }
        let complaints = complaints(&client).await;
        assert!(complaints.is_empty(), "after {drained}:\n{}", complaints.join("\n\n"));
    }
}

#[tokio::test]
async fn the_check_knows_a_bad_plan_when_it_sees_one() {
    let (_fresh, client) = filled().await;
    for (sql, expected) in [
        ("SELECT * FROM events WHERE type = $1", "reads a whole table"),
        ("SELECT COUNT(*) FROM waiting", "reads a whole table"),
        (
            "SELECT * FROM waiting WHERE organization = $1 AND due_at + 0 < $2 ORDER BY due_at + 0 LIMIT 1",
            "walks past other organizations",
        ),
        ("SELECT * FROM waiting WHERE organization = $1", "reads all that an organization has"),
        ("SELECT * FROM waiting WHERE organization = $1 AND webhook = $2 ORDER BY attempt", "sorts"),
        ("SELECT * FROM attempts WHERE organization = $1 AND webhook = $2 AND started_at < $3", "looks into every day"),
    ] {
        let found = objections_to(&client, sql).await;
        assert!(found.contains(expected), "{sql}: {found:?}");
    }
    let good = "SELECT * FROM deliveries WHERE organization = $1 AND created_at = $2 AND event = $3";
    assert_eq!(objections_to(&client, good).await, BTreeSet::new());
}

#[test]
fn every_statement_is_in_its_files_list() {
    for (file, text, _) in FILES {
        let (_, list) = text.split_once("STATEMENTS: &[&str] =").unwrap();
        let listed: BTreeSet<_> =
            list[..list.find(';').unwrap()].split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for (name, value) in text.split("const ").filter_map(|rest| rest.split_once(": &str =")) {
            let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let text = value.trim_start().strip_prefix('"');
            let is_plain = text.is_some_and(|text| !SQL_WORDS.iter().any(|word| text.starts_with(word)));
            assert!(!is_name || is_plain || listed.contains(name), "{file}.rs: {name} is not in its list");
        }
    }
}
