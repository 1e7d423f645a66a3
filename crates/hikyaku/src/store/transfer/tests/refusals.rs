//! What is not copied, and what is not opened.

use std::cell::Cell;

use tokio::sync::Notify;

use super::*;
use crate::store::conformance::fixture::{claim, create, record, row, store_events};
use crate::store::{DutyClaim, Lease};

/// A file with something in it.
async fn filled(name: &str) -> Files {
    let files = Files::new();
    let store = files.open(name);
    create(&store, &["w"]).await;
    store_events(&store, &["a", "b"]).await;
    claim(&store, "a", 0).await;
    record(&store, vec![row("d", "k", 0)]).await;
    files
}

#[tokio::test]
async fn a_difference_is_found_and_such_a_copy_is_not_opened() {
    let files = filled("from.db").await;
    let (from, to) = (files.side("from.db").await, files.side("to.db").await);
    let planted = Cell::new(false);
    let plant = |progress| {
        if matches!(progress, Progress::Comparing(_)) && !planted.replace(true) {
            let client = rusqlite::Connection::open(files.path("to.db")).unwrap();
            assert_eq!(client.execute("UPDATE events SET body = x'00' WHERE id = 'a'", []).unwrap(), 1);
        }
    };
    let compared = copy(&from, &to, plant).await.unwrap();
    let different: Vec<_> = compared.iter().filter(|of| !of.is_same()).map(|of| of.table).collect();
    assert_eq!(different, ["events"]);
    drop((from, to));
    assert!(is_unfinished(&files.path("to.db")));
}

/// Breaks a copy off when it comes to a table.
async fn break_off(from: &Side, to: &Side, at: &str) {
    let there = Notify::new();
    let look = |progress| {
        if matches!(progress, Progress::Copying(table) | Progress::Comparing(table) if table == at) {
            there.notify_one();
        }
    };
    tokio::select! {
        biased;
        () = there.notified() => {}
        _ = copy(from, to, look) => panic!("it was not broken off"),
    }
}

#[tokio::test]
async fn a_copy_that_broke_off_is_not_opened_and_not_copied_into() {
    let files = filled("from.db").await;
    let database = TestDatabase::create().await;
    for (name, table) in [("first.db", "webhooks"), ("last.db", "outages")] {
        let (from, to) = (files.side("from.db").await, files.side(name).await);
        break_off(&from, &to, table).await;
        drop((from, to));
        assert!(is_unfinished(&files.path(name)));
        let again = Side::sqlite(&files.path(name), true, clock()).await.unwrap_err();
        assert!(again.to_string().contains("delete the file and copy again"), "{again}");
    }
    let (from, to) = (files.side("from.db").await, side_of(&database).await);
    break_off(&from, &to, "attempts").await;
    drop(to);
    assert!(matches!(open(&database).await, Err(postgres::OpenError::UnfinishedCopy { .. })));
    let again = Side::postgres(&database.url(), clock()).await.unwrap_err();
    assert!(again.to_string().contains("drop the database"), "{again}");
}

#[tokio::test]
async fn nothing_is_copied_over_anything() {
    let (files, database) = (filled("from.db").await, TestDatabase::create().await);
    copy_all(files.side("from.db").await, side_of(&database).await).await;
    let (from, to) = (files.side("from.db").await, side_of(&database).await);
    let error = copy(&from, &to, |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::NotEmpty { table: "webhooks", .. }), "{error}");
    drop((from, to));
    let (from, to) = (side_of(&database).await, files.side("from.db").await);
    let error = copy(&from, &to, |_| {}).await.unwrap_err();
    assert!(matches!(&error, CopyError::NotEmpty { table: "webhooks", .. }), "{error}");
    open(&database).await.unwrap();
}

#[tokio::test]
async fn what_somebody_works_with_is_left_alone() {
    let (files, database) = (filled("from.db").await, TestDatabase::create().await);
    let node = open(&database).await.unwrap();
    let now = node.shared_time().await.unwrap().unwrap();
    let lease = Lease { owner: "a".into(), duration: std::time::Duration::from_secs(600) };
    assert!(node.take_duty(DutyClaim { name: "retention", lease, now }).await.unwrap());
    for is_source in [true, false] {
        let (file, database) = (files.side("from.db").await, side_of(&database).await);
        let (from, to) = if is_source { (database, file) } else { (file, database) };
        let error = copy(&from, &to, |_| {}).await.unwrap_err();
        assert!(matches!(error, CopyError::InUse(_)), "{error}");
    }
    node.leave_duty("retention", "a").await.unwrap();
    node.close().await.unwrap();
    copy_all(files.side("from.db").await, side_of(&database).await).await;

    let _store = files.open("from.db");
    let error = Side::sqlite(&files.path("from.db"), false, clock()).await.unwrap_err();
    assert!(matches!(error, CopyError::Sqlite(sqlite::OpenError::InUse { .. })), "{error}");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_not_made_to_be_copied() {
    let files = Files::new();
    let error = Side::sqlite(&files.path("x.db"), false, clock()).await.unwrap_err();
    assert!(matches!(error, CopyError::NoStore(_)) && !files.path("x.db").exists(), "{error}");
}

/// What was lost of its event cannot be placed, and is not left out in silence.
#[tokio::test]
async fn a_row_that_belongs_to_nothing_is_damage() {
    let (files, database) = (filled("from.db").await, TestDatabase::create().await);
    let client = rusqlite::Connection::open(files.path("from.db")).unwrap();
    client.execute("DELETE FROM inbox_rows", []).unwrap();
    drop(client);
    let (from, to) = (files.side("from.db").await, side_of(&database).await);
    let error = copy(&from, &to, |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("a row of work has no due_since") && error.contains("not finished"), "{error}");
}
