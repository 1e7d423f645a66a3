//! A full disk, many callers at once, long logs, long queues.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::{Connection, StatementStatus};

use super::*;
use crate::store::conformance::fixture::{
    acme, at, claim_of, create, event, find_webhook, log_query, publish, row, set_active, store_events, webhook,
};
use crate::store::{Group, NewRow, RecordOutcome};

/// Lets the file grow by so many pages, or without a limit.
async fn limit_pages(store: &SqliteStore, more: Option<i64>) {
    let limit = move |transaction: &mut Transaction<'_>| {
        let pages: i64 = transaction.db.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let limit = more.map_or(i64::from(u32::MAX) - 2, |more| pages + more);
        Ok(transaction.db.pragma_update_and_check(None, "max_page_count", limit, |_| Ok(()))?)
    };
    store.writer.run(limit).await.unwrap();
}

fn large_row(number: usize) -> NewRow {
    NewRow { body: Bytes::from(vec![b'x'; 100_000]), ..row(&format!("d{number}"), "k", 1) }
}

async fn commit_row(store: &SqliteStore, row: NewRow) -> Result<RecordOutcome, StoreError> {
    let group = Group { record: vec![row], ..Group::default() };
    Ok(store.commit(group).await?.record[0])
}

#[tokio::test]
async fn a_full_disk_is_unavailable_writes_nothing_and_passes() {
    let store = Fresh::new();
    limit_pages(&store, Some(200)).await;
    let mut stored = 0;
    let error = loop {
        match commit_row(&store, large_row(stored)).await {
            Ok(outcome) => assert_eq!(outcome, RecordOutcome::Stored),
            Err(error) => break error,
        }
        stored += 1;
        assert!(stored < 100, "the limit has no effect");
    };
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let found = async |number: usize| store.inbox_row(&acme(), "receiptroller", &format!("d{number}")).await.unwrap();
    assert!(found(stored).await.is_none(), "a part of it was written");
    assert!(found(stored - 1).await.is_some());

    limit_pages(&store, None).await;
    assert_eq!(commit_row(&store, large_row(stored)).await.unwrap(), RecordOutcome::Stored);
}

#[tokio::test]
async fn a_change_that_is_rolled_back_is_never_shown() {
    let store = Fresh::new();
    create(&*store, &["w"]).await;
    let before = find_webhook(&*store, "w").await;
    let failed = store
        .writer
        .run(|transaction| {
            let change = WebhookChange { active: Some(false), ..WebhookChange::default() };
            webhooks::update(transaction, &acme(), &webhook("w").id, change, at(1))?;
            webhooks::create(transaction, webhook("v"))?;
            Err::<(), _>(StoreError::Unavailable("the disk is full".into()))
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(find_webhook(&*store, "w").await, before);
    assert_eq!(store.webhooks(&acme()).await.unwrap().len(), 1);
    // Nor is it after a commit of which nobody knows.
    store
        .writer
        .run(|transaction| {
            webhooks::create(transaction, webhook("u"))?;
            Err::<(), _>(StoreError::Unknown("the disk went away".into()))
        })
        .await
        .unwrap_err();
    assert_eq!(store.webhooks(&acme()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case11_readers_that_write_beside_a_writer_are_never_busy() {
    let store = Arc::new(Fresh::new());
    create(&**store, &["w0"]).await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = store.clone();
        tasks.spawn(async move {
            let id = format!("w{}", task + 1);
            store.create_webhook(webhook(&id)).await.unwrap();
            for round in 0..10 {
                let claims = store.claim_deliveries(claim_of("a", 0)).await.unwrap();
                assert!(claims.deliveries.iter().all(|delivery| delivery.attempt == 1));
                set_active(&**store, &id, round % 2 == 0, round).await;
                store.log(log_query(&id, None, 10)).await.unwrap();
            }
        });
    }
    for number in 0..100 {
        store_events(&**store, &[&format!("e{number}")]).await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

/// At every commit somebody is in the middle of a short reading. Left to itself, SQLite then never folds its log back
/// to the end, and never starts it anew.
#[tokio::test]
async fn case12_the_log_on_disk_stays_bounded_under_steady_reading() {
    const GROUP_ROWS: usize = 40;
    const ROW_BYTES: u64 = 100_000;
    let bound = writer::MAX_WAL_BYTES * 5 / 4;
    let store = Fresh::new();
    let wal = format!("{}-wal", store.path().display());
    let reader = Connection::open(store.path()).unwrap();
    let mut longest = 0;
    for group in 0..(bound * 3 / 2 / ROW_BYTES) as usize / GROUP_ROWS {
        let reading = reader.unchecked_transaction().unwrap();
        reading.query_row("SELECT COUNT(*) FROM webhooks", [], |_| Ok(())).unwrap();
        let rows = (0..GROUP_ROWS).map(|number| large_row(group * GROUP_ROWS + number)).collect();
        store.commit(Group { record: rows, ..Group::default() }).await.unwrap();
        longest = longest.max(std::fs::metadata(&wal).unwrap().len());
        drop(reading);
        // An empty job comes after what the writer does behind a commit.
        store.writer.run(|_| Ok(())).await.unwrap();
    }
    assert!(longest <= bound, "{longest} bytes");
}

/// Steps of SQLite's machine that it takes to look for due deliveries.
async fn steps_of_a_search(store: &SqliteStore, claim: DeliveryClaim) -> i32 {
    let (webhooks, queues) = (store.webhooks.clone(), store.queues.clone());
    let search = move |db: &Connection| {
        let steps = || -> Result<i32, StoreError> {
            let of = |sql: &&str| Ok(db.prepare_cached(sql)?.reset_status(StatementStatus::VmStep));
            claim::STATEMENTS.iter().map(of).sum()
        };
        steps()?;
        claim::find(db, &webhooks, &queues, &claim)?;
        steps()
    };
    store.readers.run(search).await.unwrap()
}

#[tokio::test]
async fn case14_a_long_queue_to_one_webhook_costs_a_claim_no_step_more() {
    let store = Fresh::new();
    create(&*store, &["hangs", "works"]).await;
    let hangs = (acme(), webhook("hangs").id);
    let claim = DeliveryClaim { slots: HashMap::from([(hangs, 0)]), slots_each: 2, ..claim_of("a", 0) };
    store_events(&*store, &["e1", "e2", "e3"]).await;
    let short = steps_of_a_search(&store, claim.clone()).await;
    for hundred in 0..20 {
        let events = (0..100).map(|number| event(&format!("f{hundred:02}{number:02}"))).collect();
        let group = Group { publish: vec![publish(events)], ..Group::default() };
        store.commit(group).await.unwrap();
    }
    let long = steps_of_a_search(&store, claim).await;
    assert!(short > 0);
    assert_eq!(long, short);
}

#[tokio::test]
async fn case14_a_claim_reads_nothing_of_webhooks_that_are_full_or_wait_for_later() {
    let store = Fresh::new();
    create(&*store, &["works"]).await;
    store_events(&*store, &["e1"]).await;
    let alone = steps_of_a_search(&store, claim_of("a", 0)).await;
    let full: Vec<_> = (0..500).map(|number| format!("full{number}")).collect();
    let later: Vec<_> = (0..500).map(|number| format!("later{number}")).collect();
    for (id, seconds) in full.iter().map(|id| (id, 0)).chain(later.iter().map(|id| (id, 60))) {
        create(&*store, &[id]).await;
        let key = DeliveryKey { organization: acme(), event: event("e1").id, webhook: webhook(id).id };
        store.resend(&key, at(seconds)).await.unwrap();
    }
    let slots = full.iter().map(|id| ((acme(), webhook(id).id), 0)).collect();
    let beside = steps_of_a_search(&store, DeliveryClaim { slots, ..claim_of("a", 0) }).await;
    assert!(alone > 0);
    assert_eq!(beside, alone);
}

#[test]
fn what_a_lost_commit_may_have_made_due_is_looked_at_until_the_next_one_tells() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    drop(open(&path).unwrap());
    let db = Connection::open(&path).unwrap();
    let (queues, w) = (Arc::new(queues::Queues::default()), webhook("w").id);
    let mut view = queues::QueueView::new(queues.clone());
    let next = || queues.next_due(None, at(9)).map(|webhook| webhook.1.clone());
    let wait = "INSERT INTO waiting (organization, created_at, event, webhook, due_at, run, attempt, spoiled)
        VALUES ('acme', 0, 'e', 'w', 0, 1, 0, 0)";
    db.execute(wait, []).unwrap();
    view.touch(&acme(), &w);
    view.settle(&db).unwrap();
    assert_eq!(next(), None, "nothing is known before the commit");
    view.unknown();
    assert_eq!(next(), Some(w));
    db.execute("DELETE FROM waiting", []).unwrap();
    view.settle(&db).unwrap();
    view.committed();
    assert_eq!(next(), None, "the next transaction read it again");
}
