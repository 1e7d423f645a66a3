//! Opening the file: exclusively, with a SQLite that is sound, and in the present schema.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rusqlite_migration::{M, MigrationDefinitionError, Migrations};

use super::columns;
use super::queues::Queues;
use super::reseal::{self, Failure};
use crate::clock::Clock;
use crate::crash;
use crate::file::FileInUse;
use crate::store::seal::{Seal, SealError};

/// The oldest SQLite that keeps what it committed: before it, write-ahead logging with several connections could lose
/// commits in a race while the log is started anew.
const MIN_SQLITE_VERSION: i32 = 3_051_003;
/// Marks a file as ours: "Hkyk" as a big-endian number.
pub(super) const APPLICATION_ID: i32 = 1_215_002_987;
/// Marks a file into which another store was not wholly copied: "Hkyc".
pub(super) const UNFINISHED_COPY_ID: i32 = 1_215_002_979;
/// Connections that read.
const READERS: usize = 4;
/// How long a statement waits for a lock that another program holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements that a connection keeps: more than we have.
const MAX_CACHED_STATEMENTS: usize = 96;
/// Page cache of the connection that writes, in KiB. SQLite goes through all of it at the end of a transaction that moved
/// pages of a tree, so that a larger one costs more than what it spares; docs/performance.md has the figures.
const WRITER_CACHE_KIB: i64 = 16 * 1024;
/// Page cache of each connection that reads, in KiB.
const READER_CACHE_KIB: i64 = 8 * 1024;
/// The write-ahead log is folded back whenever it has so many pages. Everybody who writes waits for that: with more pages
/// rarer, and longer.
const WAL_AUTOCHECKPOINT_PAGES: i64 = 1_000;
/// Started anew, the log's file is cut to this length, in bytes.
const JOURNAL_SIZE_LIMIT_BYTES: i64 = 16 * 1024 * 1024;

/// Leases that were left behind: nobody else can hold one, so their owner is gone.
const END_DELIVERY_LEASES: &str = "UPDATE waiting SET due_at = ?1 WHERE owner IS NOT NULL";
const END_LANE_LEASES: &str = "UPDATE lanes SET due_at = ?1 WHERE owner IS NOT NULL";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[END_DELIVERY_LEASES, END_LANE_LEASES];

pub(super) const SCHEMA: &[M<'_>] = &[
    M::up(include_str!("../migrations/sqlite/0001_first.sql")),
    M::up(include_str!("../migrations/sqlite/0002_settings.sql")),
    M::up(include_str!("../migrations/sqlite/0003_runs.sql")),
    M::up(include_str!("../migrations/sqlite/0004_tokens.sql")),
    M::up(include_str!("../migrations/sqlite/0005_search.sql")),
    M::up(include_str!("../migrations/sqlite/0006_removals.sql")),
    M::up(include_str!("../migrations/sqlite/0007_quarantine.sql")),
    M::up(include_str!("../migrations/sqlite/0008_inbox_memory.sql")),
    M::up(include_str!("../migrations/sqlite/0009_reconcile.sql")),
    M::up(include_str!("../migrations/sqlite/0010_begun.sql")),
    M::up(include_str!("../migrations/sqlite/0011_old_secrets.sql")),
    M::up(include_str!("../migrations/sqlite/0012_taken.sql")),
    M::up(include_str!("../migrations/sqlite/0013_waiting.sql")),
];

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{path} is in use by another process; stop that one, or give this one a file of its own")]
    InUse {
        /// The store's file.
        path: PathBuf,
    },
    /// The SQLite library that this program was built with is too old.
    #[error(
        "this program was built with SQLite {found}; at least {MIN_SQLITE_VERSION} is needed, because older ones can lose what they committed: build it with the bundled SQLite"
    )]
    OldSqlite {
        /// Its version, as SQLite's version number.
        found: i32,
    },
    /// The file is no database, or another program's.
    #[error("{path} is not a Hikyaku store: {reason}; name another file, or move this one away")]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// How it is known.
        reason: String,
    },
    /// Another store was not wholly copied into it.
    #[error("{path} holds a copy of a store that was not finished; delete the file and copy again")]
    UnfinishedCopy {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of this program has written it.
    #[error("{path} was written by a newer version of Hikyaku; use that version, or restore a backup from before it")]
    TooNew {
        /// The store's file.
        path: PathBuf,
    },
    /// Its secrets are sealed under a key that is not configured, or were changed.
    #[error(
        "the secrets in {path} cannot be read: {source}; set `sealing_key` to the key they were sealed under, or name that one in `old_sealing_keys`"
    )]
    Sealed {
        /// The store's file.
        path: PathBuf,
        /// Why not.
        source: SealError,
    },
    /// The file, or its lock file, cannot be used.
    #[error("{path} cannot be opened: {source}; check that its directory exists and can be written to")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("{path} cannot be opened: {reason}")]
    Sqlite {
        /// The store's file.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
}

/// A store's parts.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) queues: Arc<Queues>,
    pub(super) readers: Vec<Connection>,
    pub(super) lock: File,
    pub(super) file: FileInUse,
    pub(super) wal_path: PathBuf,
}

/// Opens or creates the store; leases that were left behind end now, and what is not sealed as it should be is sealed,
/// unless (`None`) secrets stay as they stand.
pub(super) fn open(path: &Path, seal: Option<&Seal>, clock: &dyn Clock) -> Result<Opened, OpenError> {
    check_version(rusqlite::version_number())?;
    let path = &create_private(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let lock = lock(path)?;
    crash::point("sqlite.created");
    let explain = |error| explain(path, &error);
    let mut writer = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, WRITER_CACHE_KIB).map_err(explain)?;
    check_owner(path, &writer).map_err(explain)??;
    write_ahead(&writer).map_err(explain)?;
    prepare_to_write(&writer).map_err(explain)?;
    migrate(path, &mut writer)?;
    crash::point("sqlite.migrated");
    end_leases(&writer, clock.schedule()).map_err(explain)?;
    if let Some(seal) = seal {
        reseal::reseal(&mut writer, seal, clock.now()).map_err(|failure| match failure {
            Failure::Sqlite(error) => explain(error),
            Failure::Seal(source) => OpenError::Sealed { path: path.to_owned(), source },
        })?;
    }
    let queues = Queues::load(&writer)
        .map_err(|error| OpenError::Sqlite { path: path.to_owned(), reason: error.to_string() })?;
    let reader = || connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, READER_CACHE_KIB);
    let readers = (0..READERS).map(|_| reader()).collect::<Result<_, _>>().map_err(explain)?;
    Ok(Opened { writer, queues, readers, lock, file: FileInUse::new(path), wal_path: beside(path, "-wal") })
}

fn check_version(found: i32) -> Result<(), OpenError> {
    if found < MIN_SQLITE_VERSION { Err(OpenError::OldSqlite { found }) } else { Ok(()) }
}

/// The lock is its own file, because SQLite's locks on the store's file come and go, and because closing any other
/// handle of a file drops this process's locks on it.
fn lock(path: &Path) -> Result<File, OpenError> {
    let lock_path = beside(path, ".lock");
    let io = |source| OpenError::Io { path: lock_path.clone(), source };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Creates the file if there is none, readable by nobody else: it holds secrets. SQLite gives the files that it adds
/// the same permissions. Gives the path without symbolic links, so that one file has one lock and one log beside it.
fn create_private(path: &Path) -> io::Result<PathBuf> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?;
    path.canonicalize()
}

fn connect(path: &Path, mode: OpenFlags, cache_kib: i64) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // A plan holds for all values. Otherwise a statement is planned anew whenever another LIMIT is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

fn prepare_to_write(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", WAL_AUTOCHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", JOURNAL_SIZE_LIMIT_BYTES)
}

/// Asked until it has nothing more to say: SQLite answers that it writes ahead before the disk has taken it. Whoever goes on
/// after that answer has a connection that writes ahead to a file that, to all others, does not.
pub(crate) fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Whether the file is empty or ours, and whole.
fn check_owner(path: &Path, connection: &Connection) -> rusqlite::Result<Result<(), OpenError>> {
    let path = path.to_owned();
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match id {
        APPLICATION_ID => Ok(()),
        0 if tables == 0 => Ok(()),
        UNFINISHED_COPY_ID => Err(OpenError::UnfinishedCopy { path }),
        _ => Err(OpenError::NotAStore { path, reason: "it is a SQLite database of another program".into() }),
    })
}

fn migrate(path: &Path, connection: &mut Connection) -> Result<(), OpenError> {
    use rusqlite_migration::Error;
    Migrations::from_slice(SCHEMA).to_latest(connection).map_err(|error| match error {
        Error::MigrationDefinition(MigrationDefinitionError::DatabaseTooFarAhead) => {
            OpenError::TooNew { path: path.to_owned() }
        }
        Error::RusqliteError { err, .. } => explain(path, &err),
        other => OpenError::Sqlite { path: path.to_owned(), reason: other.to_string() },
    })
}

fn end_leases(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    connection.execute(END_DELIVERY_LEASES, [columns::millis(now)])?;
    connection.execute(END_LANE_LEASES, [columns::millis(now)])?;
    Ok(())
}

fn explain(path: &Path, error: &rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotAStore { path, reason: "it is not a SQLite database".into() },
        _ => OpenError::Sqlite { path, reason: error.to_string() },
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_can_lose_commits_is_refused() {
        for refused in [3_050_004, 3_051_002] {
            assert!(matches!(check_version(refused), Err(OpenError::OldSqlite { found }) if found == refused));
        }
        for taken in [3_051_003, 3_053_002, 4_000_000] {
            assert!(check_version(taken).is_ok(), "{taken}");
        }
    }

    #[test]
    fn the_schema_can_be_applied() {
        Migrations::from_slice(SCHEMA).validate().unwrap();
    }
}
