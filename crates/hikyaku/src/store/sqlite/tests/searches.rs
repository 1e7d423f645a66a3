//! What a search may cost.

use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, Outcome};
use hikyaku_core::event::EventPattern;
use rusqlite::{Connection, StatementStatus};

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::{DeliveryPosition, DeliveryQuery, LogQuery, NewEvent, OutcomeFilter, StatusFilter};

/// What SQLite counts when it reads a table row by row, sorts, or makes an index for one statement.
const SIGNS: [StatementStatus; 3] = [StatementStatus::FullscanStep, StatementStatus::Sort, StatementStatus::AutoIndex];

fn signs(db: &Connection) -> i32 {
    let statements = search::STATEMENTS.iter().chain(log::STATEMENTS);
    let of = |sql: &&str| {
        let statement = db.prepare_cached(sql).unwrap();
        SIGNS.map(|sign| statement.get_status(sign)).iter().sum::<i32>()
    };
    statements.map(of).sum()
}

/// Delivers `count` events, and before them one that is exhausted, one that waits and one with a business key: the
/// oldest of all.
async fn fill(store: &dyn Store, count: i64) {
    create(store, &["w"]).await;
    let oldest = |id: &str, key: Option<&str>| NewEvent { key: key.map(str::to_owned), ..event(id) };
    let first = vec![oldest("exhausted", None), oldest("keyed", Some("k")), oldest("waits", None)];
    commit_publish(store, publish(first)).await;
    for claimed in claim(store, "a", 0).await {
        let (outcome, decision) = match claimed.key.event.as_str() {
            "exhausted" => (Outcome::Failed(FailureKind::Dns), Decision::Exhausted { switch_off: false }),
            "waits" => (ERROR, retry(100_000)),
            _ => (OK, Decision::Delivered),
        };
        finish(store, &claimed, "a", 0, outcome, decision).await;
    }
    let events = (1..=count).map(|number| NewEvent { created_at: at(number), ..event(&format!("e{number:05}")) });
    commit_publish(store, publish(events.collect())).await;
    for claimed in claim(store, "a", 0).await {
        finish(store, &claimed, "a", 1, OK, Decision::Delivered).await;
    }
}

/// Every combination of filters, each there or not.
fn combinations() -> impl Iterator<Item = (DeliveryQuery, LogQuery)> {
    (0..1_u32 << 9).map(|bits| {
        let given = |bit: u32| bits >> bit & 1 == 1;
        let pattern = given(0).then(|| EventPattern::parse("sale.*").unwrap());
        let outcome = OutcomeFilter {
            status: given(1).then(|| StatusFilter::parse("5xx").unwrap()),
            failure: given(2).then_some(FailureKind::Dns),
        };
        let (from, to) = (given(3).then(|| at(-1)), given(4).then(|| at(1000)));
        let deliveries = DeliveryQuery {
            event_type: pattern.clone(),
            last: outcome,
            from,
            to,
            webhook: given(5).then(|| webhook_id("w")),
            event: given(6).then(|| event_id("keyed")),
            key: given(7).then(|| "k".into()),
            state: given(8).then_some(DeliveryState::Exhausted),
            ..delivery_query()
        };
        (deliveries, LogQuery { event_type: pattern, outcome, from, to, ..log_query("w", None, 10) })
    })
}

#[tokio::test]
async fn no_combination_of_filters_scans_a_table_or_sorts() {
    let store = Fresh::new();
    fill(&*store, 20).await;
    let search = |db: &Connection| {
        for (deliveries, lines) in combinations() {
            search::deliveries(db, &deliveries)?;
            log::log(db, &lines)?;
            assert_eq!(signs(db), 0, "{deliveries:?} {lines:?}");
        }
        Ok(())
    };
    store.readers.run(search).await.unwrap();
}

#[tokio::test]
async fn what_is_rare_is_found_without_looking_at_the_rest() {
    let store = Fresh::new();
    fill(&*store, 1000).await;
    let failed = |status| OutcomeFilter { status: StatusFilter::parse(status), failure: None };
    for (query, expected) in [
        (DeliveryQuery { state: Some(DeliveryState::Exhausted), ..delivery_query() }, vec!["exhausted"]),
        (DeliveryQuery { state: Some(DeliveryState::Waiting), ..delivery_query() }, vec!["waits"]),
        (DeliveryQuery { last: failed("0"), ..delivery_query() }, vec!["exhausted"]),
        (DeliveryQuery { last: failed("500"), ..delivery_query() }, vec!["waits"]),
        (DeliveryQuery { key: Some("k".into()), ..delivery_query() }, vec!["keyed"]),
        (DeliveryQuery { event: Some(event_id("keyed")), ..delivery_query() }, vec!["keyed"]),
        (DeliveryQuery { to: Some(at(1)), ..delivery_query() }, vec!["waits", "keyed", "exhausted"]),
        (DeliveryQuery { from: Some(at(1000)), ..delivery_query() }, vec!["e01000"]),
    ] {
        let found = store.deliveries(DeliveryQuery { look_at: 8, ..query.clone() }).await.unwrap();
        let events: Vec<_> = found.rows.iter().map(|row| row.event.as_str()).collect();
        assert_eq!((events, found.searched_to), (expected, None), "{query:?}");
    }
    let lines = LogQuery { outcome: failed("5xx"), look_at: 8, ..log_query("w", None, 10) };
    let found = store.log(lines).await.unwrap();
    assert_eq!((found.rows.len(), found.searched_to), (1, None));
}

#[tokio::test]
async fn a_search_looks_at_no_more_than_it_may_and_says_how_far_it_came() {
    let store = Fresh::new();
    fill(&*store, 100).await;
    let none = Some(EventPattern::parse("order.*").unwrap());
    let query = DeliveryQuery { event_type: none.clone(), look_at: 10, ..delivery_query() };
    let found = store.deliveries(query).await.unwrap();
    let expected = DeliveryPosition { created_at: at(91), event: event_id("e00091"), webhook: None };
    assert_eq!((found.rows.len(), found.searched_to), (0, Some(expected)));
    let lines = LogQuery { event_type: none, look_at: 10, ..log_query("w", None, 10) };
    assert!(store.log(lines).await.unwrap().searched_to.is_some());
}
