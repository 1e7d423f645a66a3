//! The file: what survives in it, and what is refused.

use rusqlite::Connection;

use super::*;
use crate::clock::Clock;
use crate::store::conformance::fixture::{
    acme, at, claim_lane, claim_of, commit_publish, create, detail, event_id, find_webhook, lease, log, publish_of,
    record, row, store_events, view, webhook, webhook_id,
};
use crate::store::{EffectState, Group, Lease, MAX_REMOVED_AT_ONCE, Publish, RecordOutcome};

/// The store in this file, opened when the schedule clock stands at second `seconds` of the fixture.
fn open_at(path: &Path, seconds: i64) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Seal::default(), &Fixed(at(seconds)))
}

struct Fixed(Timestamp);

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn schedule(&self) -> Timestamp {
        self.0
    }
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open(&path).unwrap();
    create(&store, &["w"]).await;
    let published = store_events(&store, &["e"]).await;
    record(&store, vec![row("d", "k", 1)]).await;
    drop(store);

    let store = open(&path).unwrap();
    assert_eq!(find_webhook(&store, "w").await, webhook("w"));
    let again = store_events(&store, &["e"]).await;
    assert_eq!((again[0].repeated, again[0].deliveries), (true, published[0].deliveries));
    assert_eq!(record(&store, vec![row("d", "k", 1)]).await, [RecordOutcome::Duplicate]);
    assert_eq!(detail(&store, "d").await.body, row("d", "k", 1).body);
    assert_eq!(store.claim_deliveries(claim_of("b", 1_000)).await.unwrap().deliveries.len(), 1);
}

/// What is answered 2xx must be there after a restart, which opens what stands at the path.
#[tokio::test]
#[cfg(unix)]
async fn nothing_is_taken_into_a_file_that_was_moved_or_replaced() {
    let fresh = Fresh::new();
    create(&fresh.store, &["w"]).await;
    let away = fresh.path().with_extension("away");
    std::fs::rename(fresh.path(), &away).unwrap();
    let refused = async || {
        let group = Group { record: vec![row("d", "k", 1)], ..Group::default() };
        let error = fresh.store.commit(group).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unavailable(reason) if reason.contains("moved or deleted")), "{error}");
        assert!(matches!(fresh.store.ping().await, Err(StoreError::Unavailable(_))));
    };
    refused().await;
    std::fs::write(fresh.path(), "").unwrap();
    refused().await;
    std::fs::rename(&away, fresh.path()).unwrap();
    assert_eq!(record(&fresh.store, vec![row("d", "k", 1)]).await, [RecordOutcome::Stored]);
}

#[tokio::test]
async fn after_a_close_the_file_alone_is_the_store() {
    let fresh = Fresh::new();
    create(&fresh.store, &["w"]).await;
    store_events(&fresh.store, &["e"]).await;
    fresh.store.close().await.unwrap();
    let copy = path_in(tempfile::tempdir().unwrap().keep().as_path());
    std::fs::copy(fresh.path(), &copy).unwrap();
    let copied = open(&copy).unwrap();
    assert_eq!(store_events(&copied, &["e"]).await[0].deliveries, 1);
    std::fs::remove_dir_all(copy.parent().unwrap()).unwrap();
}

#[tokio::test]
async fn what_a_killed_process_had_under_lease_is_taken_over_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open_at(&path, 0).unwrap();
    create(&store, &["w"]).await;
    let hour = Lease { duration: std::time::Duration::from_secs(3600), ..lease("killed") };
    let leased = Publish { lease: hour, room: [(webhook_id("w"), 1)].into(), ..publish_of(&["e"]) };
    commit_publish(&store, leased).await;
    record(&store, vec![row("d", "k", 1)]).await;
    let lane = claim_lane(&store, "killed", 0).await;
    drop(store);

    let store = open_at(&path, 5).unwrap();
    assert!(store.claim_deliveries(claim_of("b", 4)).await.unwrap().deliveries.is_empty());
    let taken = store.claim_deliveries(claim_of("b", 5)).await.unwrap().deliveries;
    assert_eq!((taken[0].attempt, taken[0].interrupted), (1, Some(at(0))));
    let again = claim_lane(&store, "b", 5).await;
    assert_eq!(again.rows.len(), 1);
    assert_ne!(again.claim, lane.claim);
}

#[tokio::test]
async fn what_was_handed_over_is_written_though_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open(&path).unwrap();
    let group = Group { record: vec![row("d", "k", 1)], ..Group::default() };
    let mut commit = Box::pin(store.commit(group));
    // Polled once, it has handed the group over; then its caller goes away.
    let waker = std::task::Waker::noop();
    let _ = commit.as_mut().poll(&mut std::task::Context::from_waker(waker));
    drop(commit);
    drop(store);
    let store = open(&path).unwrap();
    assert_eq!(detail(&store, "d").await.effects[0].state, EffectState::Waiting);
}

/// So no other process can keep an older copy of the webhooks (case 25), or claim what this one has under way (case 6).
#[test]
fn case25_case6_a_store_in_use_is_refused_until_it_is_closed() {
    let fresh = Fresh::new();
    let path = fresh.path();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let Fresh { store, directory } = fresh;
    drop(store);
    drop(open(&path).unwrap());
    drop(directory);
}

#[cfg(unix)]
#[test]
fn a_store_in_use_is_refused_by_its_other_name_too() {
    let fresh = Fresh::new();
    let link = fresh.directory.path().join("link.db");
    std::os::unix::fs::symlink(fresh.path(), &link).unwrap();
    assert!(matches!(open(&link).unwrap_err(), OpenError::InUse { .. }));
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "not a database, but long enough to be taken for one; ".repeat(40)).unwrap();
    let before = std::fs::read(&text).unwrap();
    let error = open(&text).unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let other = directory.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE webhooks (id TEXT)").unwrap();
    let error = open(&other).unwrap_err();
    assert!(matches!(error, OpenError::NotAStore { .. }), "{error}");
    assert!(error.to_string().contains("another program"), "{error}");
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let Fresh { store, directory } = Fresh::new();
    drop(store);
    let path = path_in(directory.path());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 1_000).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::TooNew { .. }), "{error}");
}

#[test]
fn a_directory_that_does_not_exist_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("missing").join("hikyaku.db");
    let error = open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

#[cfg(unix)]
#[test]
fn nobody_else_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    let fresh = Fresh::new();
    for ending in ["", "-wal", "-shm"] {
        let path = format!("{}{ending}", fresh.path().display());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{path}");
    }
}

#[tokio::test]
async fn a_row_with_what_we_never_write_is_damage_and_names_it() {
    let Fresh { store, directory } = Fresh::new();
    create(&store, &["w"]).await;
    store_events(&store, &["e"]).await;
    assert!(log(&store, "w").await.is_empty());
    view(&store, "e", "w").await;
    let path = path_in(directory.path());
    Connection::open(&path).unwrap().execute("UPDATE events SET type = 'nonsense'", []).unwrap();
    let error = store.event(&acme(), &event_id("e")).await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged(text) if text.starts_with("type: ")), "{error}");
}

#[tokio::test]
async fn a_removal_that_a_restart_cut_off_goes_on_and_nothing_of_it_is_sent_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open(&path).unwrap();
    create(&store, &["w"]).await;
    let many = MAX_REMOVED_AT_ONCE as usize + 1;
    let ids: Vec<_> = (0..many).map(|number| format!("e{number:04}")).collect();
    store_events(&store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    store.delete_webhook(&acme(), &webhook_id("w"), at(1)).await.unwrap();
    assert_eq!(store.backlog().await.unwrap().deliveries, 1, "it was done at once");
    drop(store);

    let store = open(&path).unwrap();
    assert!(store.claim_deliveries(claim_of("b", 1_000)).await.unwrap().deliveries.is_empty());
    assert!(store.step_removals(MAX_REMOVED_AT_ONCE).await.unwrap().is_some());
    assert!(store.step_removals(MAX_REMOVED_AT_ONCE).await.unwrap().is_none());
    assert_eq!(store.backlog().await.unwrap().deliveries, 0);
}
