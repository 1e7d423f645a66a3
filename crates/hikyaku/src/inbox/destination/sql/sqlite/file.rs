//! The user's database file, held open, and opened again where another one has taken its place.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::table::{BOOKKEEPING, Table};
use crate::file::FileInUse;
use crate::inbox::destination::sql::EFFECTS_PER_PRUNING;
use crate::inbox::destination::sql::mapping::Mapping;
use crate::store::sqlite::write_ahead;

/// How long a statement waits for the user's own programs before it counts as failed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What may pass: a missing or locked file, a full or broken disk, missing rights.
const PASSING: [ErrorCode; 10] = [
    ErrorCode::CannotOpen,
    ErrorCode::DatabaseBusy,
    ErrorCode::DatabaseLocked,
    ErrorCode::DatabaseCorrupt,
    ErrorCode::DiskFull,
    ErrorCode::SystemIoFailure,
    ErrorCode::PermissionDenied,
    ErrorCode::ReadOnly,
    ErrorCode::OutOfMemory,
    ErrorCode::FileLockingProtocolFailed,
];

/// Why there is no database to write to.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// There may be one later.
    #[error("{0}")]
    Away(String),
    /// It is not as configured.
    #[error("{0}")]
    Unfit(String),
}

impl OpenError {
    /// What an error means, with what is said of it.
    pub(super) fn of(error: &rusqlite::Error, said: String) -> Self {
        if is_passing(error) { Self::Away(said) } else { Self::Unfit(said) }
    }
}

/// Whether an error is of the database as a whole, and may pass.
pub(super) fn is_passing(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code().is_some_and(|code| PASSING.contains(&code))
}

impl From<String> for OpenError {
    /// What is said without an error of the database's is about the settings.
    fn from(said: String) -> Self {
        Self::Unfit(said)
    }
}

/// Where a database is, or will be when the trouble is over.
pub(super) struct Place {
    url: String,
    mapping: Mapping,
    database: Option<Database>,
}

impl Place {
    /// Opens the database and checks the table. One that cannot be used now is waited for like any other outage (C16);
    /// one that answers must fit.
    pub(super) fn open(url: &str, mapping: &Mapping) -> Result<Self, String> {
        let mut place = Self { url: url.to_owned(), mapping: mapping.clone(), database: None };
        match place.ready().map(drop) {
            Err(OpenError::Unfit(reason)) => return Err(reason),
            Err(OpenError::Away(reason)) => {
                tracing::warn!(url, "a database cannot be used now; what is for it waits: {reason}");
            }
            Ok(()) => {}
        }
        Ok(place)
    }

    /// The database that stands at the place now.
    pub(super) fn ready(&mut self) -> Result<&mut Database, OpenError> {
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(Database::open(&self.url, &self.mapping, self.mapping.create)?),
        };
        database.follow().map_err(OpenError::Away)?;
        Ok(database)
    }
}

/// An open database with the table that is written to.
pub(super) struct Database {
    pub(super) connection: Connection,
    pub(super) table: Table,
    pub(super) mapping: Mapping,
    /// Effects since old records were dropped.
    pub(super) unpruned: u32,
    url: String,
    file: FileInUse,
}

impl Database {
    /// Opens the database and checks the table. `create` makes the file and the table where they are missing.
    fn open(url: &str, mapping: &Mapping, create: bool) -> Result<Self, OpenError> {
        let path = path_of(url)?;
        let connection = connect(path, create)?;
        let file = FileInUse::new(Path::new(path));
        let table = Table::open(&connection, mapping, create)?;
        Ok(Self {
            connection,
            table,
            mapping: mapping.clone(),
            unpruned: EFFECTS_PER_PRUNING,
            url: url.to_owned(),
            file,
        })
    }

    /// Sees to it that what is written goes into the file that stands at the path.
    ///
    /// A file that is gone is not made anew: whoever moved it may be about to put another in its place.
    fn follow(&mut self) -> Result<(), String> {
        if self.file.is_in_place() {
            return Ok(());
        }
        let present = Self::open(&self.url, &self.mapping, false).map_err(|error| {
            format!("the database was moved or deleted while it was in use; put it back, or start again: {error}")
        })?;
        tracing::warn!(url = self.url, "another database stands where the one in use was; rows go there from now on");
        *self = present;
        Ok(())
    }
}

fn path_of(url: &str) -> Result<&str, String> {
    let path = url.strip_prefix("sqlite:").filter(|path| !path.is_empty() && !path.starts_with(':'));
    path.ok_or_else(|| format!("url {url:?} is not of the form \"sqlite:PATH\""))
}

/// Opens a file for writing that survives power loss.
fn connect(path: &str, create: bool) -> Result<Connection, OpenError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        write_ahead(&connection)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(BOOKKEEPING)?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| {
        let remedy = match Path::new(path).exists() {
            true => "",
            false if create => "; its directory must exist and be writable",
            false => "; there is no such file: create it, or set create = true",
        };
        OpenError::of(&error, format!("cannot open the SQLite database {path:?} for writing: {error}{remedy}"))
    })
}
