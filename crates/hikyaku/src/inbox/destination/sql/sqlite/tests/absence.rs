//! C16: a database that is not there when the program starts.

use std::fs;

use super::*;

fn failed(effect: &Effect) -> &str {
    match effect {
        Effect::Failed { error, .. } => error,
        _ => panic!("{effect:?}"),
    }
}

#[tokio::test]
async fn c16_a_file_or_directory_that_is_missing_at_the_start_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later/books.db");
    let made = open(&path, "sales", "id", SALES, true).unwrap();
    let found = open(&path, "sales", "id", SALES, false).unwrap();
    let sale = row("d1", 1, r#"{"id":"a","total":5}"#);
    assert!(failed(&made.apply(&sale).await).contains("its directory must exist"));
    fs::create_dir(folder.path().join("later")).unwrap();
    let effect = found.apply(&sale).await;
    assert!(failed(&effect).contains("create = true") && !path.exists(), "{effect:?}");
    assert_eq!(made.apply(&sale).await, Effect::Done("written".into()));
    assert_eq!(found.apply(&row("d2", 2, r#"{"id":"a","total":6}"#)).await, Effect::Done("written".into()));
}

/// What does not fit then is said by every row, and nothing is written.
#[tokio::test]
async fn c16_a_table_that_does_not_fit_when_the_database_is_there_is_said_by_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books.db");
    let destination = open(&path, "sales", "id", SALES, false).unwrap();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE sales (id TEXT PRIMARY KEY)").unwrap();
    let effect = destination.apply(&row("d1", 1, r#"{"id":"a","total":5}"#)).await;
    assert!(failed(&effect).contains("has no column \"total\""), "{effect:?}");
}

#[tokio::test]
async fn c16_a_database_that_is_locked_at_the_start_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books.db");
    let user = Connection::open(&path).unwrap();
    user.execute_batch("PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE sales (id TEXT PRIMARY KEY, total)").unwrap();
    let destination = open(&path, "sales", "id", SALES, false).unwrap();
    drop(user);
    let effect = destination.apply(&row("d1", 1, r#"{"id":"a","total":5}"#)).await;
    assert_eq!(effect, Effect::Done("written".into()));
}
