//! No statement reads a whole table, and none sorts what an index could give in order.

use rusqlite::Connection;

use super::*;

/// Every file with statements: its name, its text and its list.
const FILES: &[(&str, &str, &[&str])] = &[
    ("claim", include_str!("../claim.rs"), claim::STATEMENTS),
    ("finish", include_str!("../finish.rs"), finish::STATEMENTS),
    ("inbox", include_str!("../inbox.rs"), inbox::STATEMENTS),
    ("interventions", include_str!("../interventions.rs"), interventions::STATEMENTS),
    ("lanes", include_str!("../lanes.rs"), lanes::STATEMENTS),
    ("log", include_str!("../log.rs"), log::STATEMENTS),
    ("open", include_str!("../open.rs"), open::STATEMENTS),
    ("outages", include_str!("../outages.rs"), outages::STATEMENTS),
    ("publish", include_str!("../publish.rs"), publish::STATEMENTS),
    ("quarantine", include_str!("../quarantine.rs"), quarantine::STATEMENTS),
    ("queues", include_str!("../queues.rs"), queues::STATEMENTS),
    ("read", include_str!("../read.rs"), read::STATEMENTS),
    ("reconcile", include_str!("../reconcile.rs"), reconcile::STATEMENTS),
    ("reseal", include_str!("../reseal.rs"), reseal::STATEMENTS),
    ("recoveries", include_str!("../recoveries.rs"), recoveries::STATEMENTS),
    ("removals", include_str!("../removals.rs"), removals::STATEMENTS),
    ("undelivered", include_str!("../undelivered.rs"), undelivered::STATEMENTS),
    ("retention", include_str!("../retention.rs"), retention::STATEMENTS),
    ("search", include_str!("../search.rs"), search::STATEMENTS),
    ("tokens", include_str!("../tokens.rs"), tokens::STATEMENTS),
    ("webhooks", include_str!("../webhooks.rs"), webhooks::STATEMENTS),
];

/// The steps of SQLite's plan for a statement.
fn plan(db: &Connection, sql: &str) -> Vec<String> {
    let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get(3).unwrap());
    }
    steps
}

/// Why a step is not allowed, if it is not.
fn objection(step: &str) -> Option<&'static str> {
    if step.contains("TEMP B-TREE") {
        return Some("sorts");
    }
    let reads = (step.starts_with("SCAN ") && step != "SCAN CONSTANT ROW") || step.starts_with("SEARCH ");
    if reads && !step.contains('(') {
        return Some("reads a whole table");
    }
    step.ends_with("(organization=?)").then_some("reads all that an organization has")
}

/// Statements that are meant to read all that is hot (by an index), or all webhooks of an organization.
const READ_ALL: &[&str] =
    &[read::DELIVERY_BACKLOG, read::EFFECT_BACKLOG, read::LANE_BACKLOG, read::ROUTE_BACKLOG, webhooks::LOAD];

#[test]
fn no_statement_reads_a_whole_table_or_sorts() {
    let fresh = Fresh::new();
    let db = Connection::open(fresh.path()).unwrap();
    for (file, _, statements) in FILES {
        for sql in statements.iter().filter(|sql| !READ_ALL.contains(sql)) {
            for step in plan(&db, sql) {
                assert_eq!(objection(&step), None, "{file}: {step}\n{sql}");
            }
        }
    }
}

#[test]
fn what_reads_all_reads_it_by_an_index_and_nothing_of_history() {
    let fresh = Fresh::new();
    let db = Connection::open(fresh.path()).unwrap();
    for sql in READ_ALL {
        for step in plan(&db, sql) {
            let words: Vec<_> = step.split(' ').collect();
            // `work` is ordered by route, so its own tree is the index.
            let by_index = words.get(2).is_none_or(|word| *word == "USING") && !step.contains("TEMP B-TREE");
            let hot = by_index && ["waiting", "work", "lanes", "webhooks"].contains(&words[1]);
            assert!(hot || step.starts_with("SCALAR SUBQUERY"), "{step}\n{sql}");
        }
    }
}

#[test]
fn the_check_knows_a_bad_plan_when_it_sees_one() {
    let fresh = Fresh::new();
    let db = Connection::open(fresh.path()).unwrap();
    for (sql, expected) in [
        ("SELECT * FROM events WHERE type = ?1", "reads a whole table"),
        ("SELECT COUNT(*) FROM waiting", "reads a whole table"),
        ("SELECT * FROM waiting WHERE organization = ?1", "reads all that an organization has"),
        ("SELECT * FROM waiting WHERE organization = ?1 ORDER BY due_at", "sorts"),
    ] {
        assert!(plan(&db, sql).iter().any(|step| objection(step) == Some(expected)), "{sql}");
    }
}

#[test]
fn every_statement_is_in_its_files_list() {
    for (file, text, statements) in FILES {
        let constants = text.matches(": &str =").count();
        assert_eq!(constants, statements.len(), "{file}.rs");
    }
}
