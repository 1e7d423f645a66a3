//! The user's database file, held open, and opened again where another one has taken its place.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::table::{BOOKKEEPING, Table};
use crate::file::FileInUse;
use crate::inbox::destination::sql::mapping::Mapping;

/// How long a statement waits for the user's own programs before it counts as failed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An open database with the table that is written to.
pub(super) struct Database {
    pub(super) connection: Connection,
    pub(super) table: Table,
    pub(super) mapping: Mapping,
    url: String,
    file: FileInUse,
}

impl Database {
    /// Opens the database and checks the table. `create` makes the file and the table where they are missing.
    pub(super) fn open(url: &str, mapping: &Mapping, create: bool) -> Result<Self, String> {
        let path = path_of(url)?;
        let connection = connect(path, create)?;
        let file = FileInUse::new(Path::new(path));
        let table = Table::open(&connection, mapping, create)?;
        Ok(Self { connection, table, mapping: mapping.clone(), url: url.to_owned(), file })
    }

    /// Sees to it that what is written goes into the file that stands at the path.
    ///
    /// A file that is gone is not made anew: whoever moved it may be about to put another in its place.
    pub(super) fn follow(&mut self) -> Result<(), String> {
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
fn connect(path: &str, create: bool) -> Result<Connection, String> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
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
        format!("cannot open the SQLite database {path:?} for writing: {error}{remedy}")
    })
}
