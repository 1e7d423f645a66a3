//! The user's table as configured, checked against the one that is there.

use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::json;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::value::Affinity;

/// How long a statement waits for the user's own programs before it counts as failed.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Most columns that one row may fill.
const MAX_COLUMNS: usize = 500;
/// What the names of our own tables begin with.
const OWN_PREFIX: &str = "hikyaku_";

/// The bookkeeping beside the user's tables: which version each key has, and which deliveries are done.
const BOOKKEEPING: &str = "
    CREATE TABLE IF NOT EXISTS hikyaku_versions (
        table_name TEXT NOT NULL, key TEXT NOT NULL,
        micros INTEGER NOT NULL, rank INTEGER NOT NULL, event TEXT NOT NULL,
        PRIMARY KEY (table_name, key)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS hikyaku_processed (
        table_name TEXT NOT NULL, source TEXT NOT NULL, delivery TEXT NOT NULL, processed_at INTEGER NOT NULL,
        PRIMARY KEY (table_name, source, delivery)
    ) WITHOUT ROWID;";

/// A table that rows can be written to.
#[derive(Debug)]
pub(super) struct Table {
    /// Its name as the schema has it.
    pub(super) name: String,
    /// The columns to fill.
    pub(super) columns: Vec<Column>,
    /// The position in `columns` of the business key.
    pub(super) key: usize,
    /// The statement that writes a row and returns what was stored.
    pub(super) upsert: String,
}

/// A column to fill.
#[derive(Debug)]
pub(super) struct Column {
    /// Its name.
    pub(super) name: String,
    /// Where its value stands in the body.
    pub(super) pointer: String,
    /// What it does to the values it is given.
    pub(super) affinity: Affinity,
}

/// Opens `sqlite:PATH` for writing that survives power loss.
pub(super) fn connect(url: &str, create: bool) -> Result<Connection, String> {
    let path = url.strip_prefix("sqlite:").filter(|path| !path.is_empty() && !path.starts_with(':'));
    let path = path.ok_or_else(|| format!("url {url:?} is not of the form \"sqlite:PATH\""))?;
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
    open().map_err(|error: rusqlite::Error| format!("cannot open the SQLite database {path:?} for writing: {error}"))
}

impl Table {
    /// Checks the settings against the database, and creates the table if that is wished and it is missing.
    pub(super) fn open(
        connection: &Connection,
        table: &str,
        key: &str,
        columns: &BTreeMap<String, String>,
        create: bool,
    ) -> Result<Self, String> {
        check_settings(table, key, columns)?;
        let fails = |error: rusqlite::Error| format!("cannot read the schema of table {table:?}: {error}");
        if create && find(connection, table).map_err(fails)?.is_none() {
            let statement = create_statement(table, key, columns);
            connection.execute_batch(&statement).map_err(|error| format!("cannot create table {table:?}: {error}"))?;
        }
        let name = find(connection, table)
            .map_err(fails)?
            .ok_or_else(|| format!("there is no table {table:?} in the database; create it, or set create = true"))?;
        let declared = declared_types(connection, &name).map_err(fails)?;
        let columns = columns.iter().map(|(name, pointer)| column(&declared, table, name, pointer));
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let position = columns.iter().position(|column| column.name == key).unwrap_or_default();
        let upsert = upsert_statement(&name, key, &columns);
        connection.prepare(&upsert).map_err(|error| {
            format!(
                "rows cannot be written to table {table:?} by {key:?}, which must be its PRIMARY KEY or UNIQUE: {error}"
            )
        })?;
        Ok(Self { name, columns, key: position, upsert })
    }

    /// Why a row without a usable key is refused.
    pub(super) fn no_key(&self) -> String {
        let Column { name, pointer, .. } = &self.columns[self.key];
        format!("the body has no text and no whole number at {pointer:?}, the key column {name:?}")
    }

    /// Why a row is refused whose value would not survive in its column.
    pub(super) fn not_whole(&self, position: usize) -> String {
        let Column { name, pointer, .. } = &self.columns[position];
        format!("the column {name:?} would change the value at {pointer:?}; make the column TEXT and replay the row")
    }
}

fn check_settings(table: &str, key: &str, columns: &BTreeMap<String, String>) -> Result<(), String> {
    if table.to_ascii_lowercase().starts_with(OWN_PREFIX) {
        return Err(format!("table {table:?}: names that begin with {OWN_PREFIX:?} are our own"));
    }
    if columns.len() > MAX_COLUMNS {
        return Err(format!("columns: {} are more than {MAX_COLUMNS}", columns.len()));
    }
    if !columns.contains_key(key) {
        return Err(format!("key {key:?} is not among the columns"));
    }
    if let Some(name) = [table].into_iter().chain(columns.keys().map(String::as_str)).find(|name| !is_name(name)) {
        return Err(format!("{name:?} cannot be the name of a table or column"));
    }
    match columns.iter().find(|(_, pointer)| !json::is_pointer(pointer)) {
        Some((name, pointer)) => {
            Err(format!("columns: {pointer:?} of {name:?} is no JSON pointer such as \"/data/id\" (RFC 6901)"))
        }
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

/// The name of a table as the schema has it: SQLite's names ignore the case of ASCII letters.
fn find(connection: &Connection, table: &str) -> rusqlite::Result<Option<String>> {
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    connection.query_row(query, [table], |row| row.get(0)).optional()
}

fn declared_types(connection: &Connection, table: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let mut statement = connection.prepare("SELECT name, type FROM pragma_table_info(?1)")?;
    statement.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn column(declared: &[(String, String)], table: &str, name: &str, pointer: &str) -> Result<Column, String> {
    let found = declared.iter().find(|(declared, _)| declared.eq_ignore_ascii_case(name));
    let (_, declared_type) = found.ok_or_else(|| format!("table {table:?} has no column {name:?}"))?;
    Ok(Column { name: name.to_owned(), pointer: pointer.to_owned(), affinity: Affinity::of(declared_type) })
}

/// An identifier as SQLite reads it whatever it contains (S22).
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Columns without a type keep every value as it is.
fn create_statement(table: &str, key: &str, columns: &BTreeMap<String, String>) -> String {
    let column = |name: &String| if name == key { format!("{} PRIMARY KEY", quote(name)) } else { quote(name) };
    let columns: Vec<_> = columns.keys().map(column).collect();
    format!("CREATE TABLE {} ({})", quote(table), columns.join(", "))
}

fn upsert_statement(table: &str, key: &str, columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|column| quote(&column.name)).collect();
    let marks = vec!["?"; names.len()].join(", ");
    let sets: Vec<_> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    format!(
        "INSERT INTO {} ({names}) VALUES ({marks}) ON CONFLICT ({}) DO UPDATE SET {} RETURNING {names}",
        quote(table),
        quote(key),
        sets.join(", "),
        names = names.join(", "),
    )
}
