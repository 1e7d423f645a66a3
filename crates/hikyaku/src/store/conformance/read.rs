//! What people see: the log in pages, events, and how much waits.

use hikyaku_core::delivery::Decision;

use super::fixture::*;
use crate::store::*;

fn position(line: &LogEntry) -> LogPosition {
    LogPosition {
        started_at: line.attempt.started_at,
        event: line.event.clone(),
        run: line.attempt.run,
        number: line.attempt.number,
    }
}

/// Stores an event to everyone and finishes its first attempts, begun at `seconds`.
async fn line(store: &dyn Store, event: &str, seconds: i64) {
    store_events(store, &[event]).await;
    for claimed in claim(store, "a", 0).await {
        finish(store, &claimed, "a", seconds, OK, Decision::Delivered).await;
    }
}

fn events(log: &[LogEntry]) -> Vec<&str> {
    log.iter().map(|line| line.event.as_str()).collect()
}

pub(crate) async fn the_log_is_newest_first_and_a_cursor_stays_right(store: &dyn Store) {
    create(store, &["w"]).await;
    for (event, seconds) in [("third", 3), ("first", 1), ("fifth", 5), ("second", 2)] {
        line(store, event, seconds).await;
    }
    let page = store.log(log_query("w", None, 2)).await.unwrap().rows;
    assert_eq!(events(&page), ["fifth", "third"]);
    let cursor = position(&page[1]);
    line(store, "newest", 9).await;
    line(store, "fourth", 4).await;
    let next = store.log(log_query("w", Some(cursor), 2)).await.unwrap().rows;
    assert_eq!(events(&next), ["second", "first"]);
    assert!(store.log(log_query("w", Some(position(&next[1])), 2)).await.unwrap().rows.is_empty());
    assert!(store.log(log_query("w", None, 0)).await.unwrap().rows.is_empty());
    assert_eq!(events(&log(store, "w").await), ["newest", "fifth", "fourth", "third", "second", "first"]);
}

pub(crate) async fn lines_of_the_same_instant_are_paged_once_each(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["a", "b", "c"]).await;
    for due in [10, 20] {
        for claimed in claim(store, "a", due).await {
            finish(store, &claimed, "a", 7, ERROR, retry(20)).await;
        }
    }
    let mut before = None;
    let mut seen = Vec::new();
    // One more page than there are lines, so that a cursor that stands still is found out.
    for _ in 0..=6 {
        let page = store.log(log_query("w", before, 1)).await.unwrap().rows;
        let Some(line) = page.first() else { break };
        seen.push(format!("{}{}", line.event, line.attempt.number));
        before = Some(position(line));
    }
    assert_eq!(seen, ["c2", "c1", "b2", "b1", "a2", "a1"]);
}

pub(crate) async fn s17_a_log_holds_one_webhook_of_one_organization(store: &dyn Store) {
    let rival = organization("rival");
    create(store, &["w", "x"]).await;
    store.create_webhook(Webhook { organization: rival.clone(), ..webhook("w") }).await.unwrap();
    line(store, "ours", 1).await;
    let theirs = Publish { organization: rival.clone(), ..publish_of(&["theirs"]) };
    commit_publish(store, theirs).await;
    let claimed = claim_one(store, "a", 0).await;
    finish(store, &claimed, "a", 2, OK, Decision::Delivered).await;

    assert_eq!(events(&log(store, "w").await), ["ours"]);
    assert_eq!(events(&log(store, "x").await), ["ours"]);
    assert!(log(store, "unknown").await.is_empty());
    let theirs = LogQuery { organization: rival, ..log_query("w", None, 10) };
    assert_eq!(events(&store.log(theirs).await.unwrap().rows), ["theirs"]);
}

pub(crate) async fn s17_an_event_of_another_organization_does_not_exist(store: &dyn Store) {
    store_events(store, &["e"]).await;
    assert!(store.event(&acme(), &event_id("e")).await.unwrap().is_some());
    assert!(store.event(&acme(), &event_id("x")).await.unwrap().is_none());
    assert!(store.event(&organization("rival"), &event_id("e")).await.unwrap().is_none());
}

pub(crate) async fn an_events_deliveries_are_in_order_of_their_webhooks(store: &dyn Store) {
    create(store, &["c", "a", "d", "b"]).await;
    store_events(store, &["e"]).await;
    let claimed = claim(store, "a", 0).await;
    for claimed in claimed.iter().filter(|claimed| ["a", "d"].contains(&claimed.key.webhook.as_str())) {
        finish(store, claimed, "a", 0, OK, Decision::Delivered).await;
    }
    let view = store.event(&acme(), &event_id("e")).await.unwrap().unwrap();
    let webhooks: Vec<_> = view.deliveries.iter().map(|delivery| delivery.webhook.as_str()).collect();
    assert_eq!(webhooks, ["a", "b", "c", "d"]);
}

pub(crate) async fn the_backlog_counts_what_waits(store: &dyn Store) {
    assert_eq!(store.backlog().await.unwrap(), Backlog::default());
    create(store, &["w", "off"]).await;
    set_active(store, "off", false, 0).await;
    commit_publish(store, Publish { due_at: at(5), ..publish_of(&["e1", "e2"]) }).await;
    commit_publish(store, Publish { due_at: at(9), ..publish_of(&["e3"]) }).await;
    let count = async || {
        let backlog = store.backlog().await.unwrap();
        (backlog.deliveries, backlog.deliveries_leased, backlog.oldest_delivery_due, backlog.webhooks_off)
    };
    assert_eq!(count().await, (3, 0, Some(at(5)), 1));
    let claimed = claim(store, "a", 5).await;
    assert_eq!(count().await, (3, 2, Some(at(9)), 1), "what is under way counts as due when its lease ends");
    finish(store, &claimed[0], "a", 5, OK, Decision::Delivered).await;
    finish(store, &claimed[1], "a", 5, ERROR, retry(7)).await;
    assert_eq!(count().await, (2, 0, Some(at(7)), 1));
    set_active(store, "off", true, 10).await;
    store.delete_webhook(&acme(), &webhook_id("w"), at(10)).await.unwrap();
    assert_eq!(store.backlog().await.unwrap(), Backlog::default());
}

pub(crate) async fn a_ping_changes_nothing(store: &dyn Store) {
    store.ping().await.unwrap();
    store.ping().await.unwrap();
    assert_eq!(store.backlog().await.unwrap(), Backlog::default());
}
