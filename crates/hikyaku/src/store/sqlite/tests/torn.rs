//! After a power loss the end of the write-ahead log may be missing, or hold anything.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::*;
use crate::store::RowState;
use crate::store::conformance::fixture::{acme, record, row};

/// Bytes at the end of the log that are cut off one by one; before them, one cut in so many bytes. All of the bytes that are
/// cut at all are cut one by one where `HIKYAKU_TEST_WAL` is `full`.
const LAST_BYTES: u64 = 2 * 1024;
const STRIDE: usize = 61;
/// How much is cut off in all.
const TAIL_BYTES: u64 = 64 * 1024;
/// One cut in so many is opened as a whole store too.
const STORE_EVERY: usize = 400;
/// What stands where something else was written last.
const GARBAGE: u8 = 0xa5;

/// A store's file with its log, and how long the log was after each of the commits in it.
struct Log {
    directory: tempfile::TempDir,
    ends: Vec<u64>,
    length: u64,
}

impl Log {
    /// Commits rows until the log is longer than its tail, and copies the files as a crash would leave them.
    async fn written() -> Self {
        let fresh = Fresh::new();
        let wal = wal_of(&fresh.path());
        let mut ends = vec![fs::metadata(&wal).unwrap().len()];
        // The first commits are the store's own; before them nothing is cut.
        while ends.len() < 5 || *ends.last().unwrap() < ends[0] + TAIL_BYTES {
            record(&fresh.store, vec![row(&format!("d{:03}", ends.len()), "k", 1)]).await;
            ends.push(fs::metadata(&wal).unwrap().len());
        }
        let directory = tempfile::tempdir().unwrap();
        let path = path_in(directory.path());
        fs::copy(fresh.path(), &path).unwrap();
        fs::copy(&wal, wal_of(&path)).unwrap();
        Self { directory, length: *ends.last().unwrap(), ends }
    }

    fn path(&self) -> std::path::PathBuf {
        path_in(self.directory.path())
    }

    fn wal(&self) -> File {
        OpenOptions::new().write(true).open(wal_of(&self.path())).unwrap()
    }

    /// How many rows must be there when the log is whole up to this byte.
    fn rows_before(&self, byte: u64) -> usize {
        self.ends.iter().filter(|end| **end <= byte).count() - 1
    }

    /// Where it is cut, from the end on.
    fn cuts(&self) -> impl Iterator<Item = u64> {
        let (length, step) = (self.length, if is_full() { 1 } else { STRIDE });
        let last = length - LAST_BYTES;
        (last..=length).rev().chain((length - TAIL_BYTES..last).rev().step_by(step))
    }
}

fn is_full() -> bool {
    std::env::var("HIKYAKU_TEST_WAL").is_ok_and(|extent| extent == "full")
}

fn wal_of(path: &Path) -> std::path::PathBuf {
    format!("{}-wal", path.display()).into()
}

/// The rows that SQLite finds, as it would at any start; the files stay as they are.
fn rows(path: &Path) -> Vec<String> {
    let _ = fs::remove_file(format!("{}-shm", path.display()));
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    let mut found = db.prepare("SELECT delivery FROM inbox_rows ORDER BY position").unwrap();
    let rows = found.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    drop(found);
    rows
}

/// The rows that the store finds in a copy of the files.
async fn rows_of_store(log: &Log) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    fs::copy(log.path(), &path).unwrap();
    fs::copy(wal_of(&log.path()), wal_of(&path)).unwrap();
    let store = open(&path).unwrap();
    let found = store.inbox(InboxQuery::newest(acme(), 200)).await.unwrap().rows;
    assert!(found.iter().all(|row| row.state == RowState::Waiting), "half a row");
    found.len()
}

/// Looks at the file after each cut.
async fn assert_each_is_a_prefix(log: &Log, mut cut: impl FnMut(u64)) {
    let mut seen = std::collections::BTreeSet::new();
    for (number, byte) in log.cuts().enumerate() {
        cut(byte);
        let (found, kept) = (rows(&log.path()), log.rows_before(byte));
        let expected: Vec<_> = (1..=kept).map(|number| format!("d{number:03}")).collect();
        assert_eq!(found, expected, "cut at byte {byte} of {}", log.length);
        if number % STORE_EVERY == 0 {
            assert_eq!(rows_of_store(log).await, kept, "cut at byte {byte} of {}", log.length);
        }
        seen.insert(kept);
    }
    assert!(seen.len() > 2, "the cuts showed only {seen:?}");
}

#[tokio::test]
async fn a_log_that_is_cut_off_anywhere_opens_to_all_that_was_committed_before() {
    let log = Log::written().await;
    let wal = log.wal();
    assert_each_is_a_prefix(&log, |byte| wal.set_len(byte).unwrap()).await;
}

#[tokio::test]
async fn a_log_that_ends_in_garbage_opens_to_all_that_was_committed_before() {
    let log = Log::written().await;
    let (wal, mut whole) = (log.wal(), log.length);
    assert_each_is_a_prefix(&log, |byte| {
        let garbage = vec![GARBAGE; (whole - byte) as usize];
        wal.write_all_at(&garbage, byte).unwrap();
        whole = byte;
    })
    .await;
}
