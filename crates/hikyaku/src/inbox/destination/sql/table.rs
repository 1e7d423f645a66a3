//! The user's table as configured, checked against the one that is there.

use std::collections::BTreeMap;

use hikyaku_core::json;
use rusqlite::{Connection, OptionalExtension};

use super::value::Affinity;

/// Most columns that one row may fill.
const MAX_COLUMNS: usize = 500;
/// What the names of our own tables begin with.
const OWN_PREFIX: &str = "hikyaku_";

/// The bookkeeping beside the user's tables: which version each key has, and which deliveries are done.
pub(super) const BOOKKEEPING: &str = "
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
    /// The statement that finds the key of the row that a key names.
    pub(super) find_key: String,
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
        let declared = declared(connection, &name).map_err(fails)?;
        check_filled(&declared, table, columns)?;
        let columns = columns.iter().map(|(name, pointer)| column(&declared, table, name, pointer));
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let position = columns.iter().position(|column| column.name == key).unwrap_or_default();
        let upsert = upsert_statement(&name, key, &columns);
        connection.prepare(&upsert).map_err(|error| {
            format!(
                "rows cannot be written to table {table:?} by {key:?}, which must be its PRIMARY KEY or UNIQUE: {error}"
            )
        })?;
        let find_key = format!("SELECT {key} FROM {} WHERE {key} = ?1", quote(&name), key = quote(key));
        Ok(Self { name, columns, key: position, find_key, upsert })
    }

    /// Why a row without a usable key is refused.
    pub(super) fn no_key(&self) -> String {
        let Column { name, pointer, .. } = &self.columns[self.key];
        format!("the body has no text and no whole number at {pointer:?}, the key column {name:?}")
    }

    /// Why a row is refused whose value would not survive in its column.
    pub(super) fn not_whole(&self, position: usize) -> String {
        let Column { name, pointer, .. } = &self.columns[position];
        format!("the column {name:?} would change the value at {pointer:?}; make the column TEXT")
    }

    /// Why a row is refused that the table passed over.
    pub(super) fn ignored(&self) -> String {
        format!(
            "the table {:?} passed the row over: a trigger or an ON CONFLICT clause of its own says IGNORE",
            self.name
        )
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
    if let Some((one, other)) = same_name(columns.keys()) {
        return Err(format!("columns: {one:?} and {other:?} are one column to SQLite; name it once"));
    }
    match columns.iter().find(|(_, pointer)| !json::is_pointer(pointer)) {
        Some((name, pointer)) => {
            Err(format!("columns: {pointer:?} of {name:?} is no JSON pointer such as \"/data/id\" (RFC 6901)"))
        }
        None => Ok(()),
    }
}

/// Two names that differ only in the case of ASCII letters, which SQLite does not tell apart.
fn same_name<'a>(names: impl Iterator<Item = &'a String>) -> Option<(&'a str, &'a str)> {
    let mut seen = BTreeMap::new();
    names.into_iter().find_map(|name| Some((seen.insert(name.to_ascii_lowercase(), name.as_str())?, name.as_str())))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

/// The name of a table as the schema has it: SQLite's names ignore the case of ASCII letters.
fn find(connection: &Connection, table: &str) -> rusqlite::Result<Option<String>> {
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ?1 COLLATE NOCASE";
    connection.query_row(query, [table], |row| row.get(0)).optional()
}

/// A column as the schema has it.
struct Declared {
    name: String,
    declared_type: String,
    /// Its value is computed from other columns.
    generated: bool,
    /// A row that brings no value for it cannot be written.
    required: bool,
}

fn declared(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Declared>> {
    let query = "SELECT name, type, hidden IN (2, 3), \"notnull\" AND dflt_value IS NULL AND pk = 0 AND hidden = 0
                 FROM pragma_table_xinfo(?1)";
    let declared = |row: &rusqlite::Row<'_>| {
        Ok(Declared { name: row.get(0)?, declared_type: row.get(1)?, generated: row.get(2)?, required: row.get(3)? })
    };
    connection.prepare(query)?.query_map([table], declared)?.collect()
}

fn column(declared: &[Declared], table: &str, name: &str, pointer: &str) -> Result<Column, String> {
    let found = declared.iter().find(|column| column.name.eq_ignore_ascii_case(name));
    let found = found.ok_or_else(|| format!("table {table:?} has no column {name:?}"))?;
    if found.generated {
        return Err(format!("column {name:?} of table {table:?} is generated; take it out of `columns`"));
    }
    Ok(Column { name: name.to_owned(), pointer: pointer.to_owned(), affinity: Affinity::of(&found.declared_type) })
}

/// A table that would refuse every row is refused at the start.
fn check_filled(declared: &[Declared], table: &str, columns: &BTreeMap<String, String>) -> Result<(), String> {
    let is_filled = |column: &Declared| columns.keys().any(|name| name.eq_ignore_ascii_case(&column.name));
    match declared.iter().find(|column| column.required && !is_filled(column)) {
        Some(Declared { name, .. }) => Err(format!(
            "table {table:?} takes no row without a value for {name:?}, which is NOT NULL and has no default; add it \
             to `columns`, or give it a DEFAULT"
        )),
        None => Ok(()),
    }
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
