//! The user's table as configured, checked against the one that is there.

use rusqlite::{Connection, OptionalExtension};

use super::file::OpenError;
use super::value::Affinity;
use crate::inbox::destination::sql::mapping::{Mapping, quote, quote_all};

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
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS hikyaku_processed_by_age ON hikyaku_processed (processed_at);";

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
    pub(super) fn open(connection: &Connection, mapping: &Mapping, create: bool) -> Result<Self, OpenError> {
        let Mapping { table, key, .. } = mapping;
        let fails = |error: rusqlite::Error| {
            OpenError::of(&error, format!("cannot read the schema of table {table:?}: {error}"))
        };
        if create && find(connection, table).map_err(fails)?.is_none() {
            let statement = create_statement(mapping);
            connection
                .execute_batch(&statement)
                .map_err(|error| OpenError::of(&error, format!("cannot create table {table:?}: {error}")))?;
        }
        let name = find(connection, table).map_err(fails)?.ok_or_else(|| mapping.no_table())?;
        let declared = declared(connection, &name).map_err(fails)?;
        check_filled(&declared, mapping)?;
        let columns = mapping.columns.iter().map(|(name, pointer)| column(&declared, mapping, name, pointer));
        let columns = columns.collect::<Result<Vec<_>, String>>()?;
        let position = columns.iter().position(|column| column.name == *key).unwrap_or_default();
        let upsert = upsert_statement(&name, mapping);
        connection
            .prepare(&upsert)
            .map_err(|error| OpenError::of(&error, mapping.not_unique(&format!(": {error}"))))?;
        let find_key = format!("SELECT {key} FROM {} WHERE {key} = ?1", quote(&name), key = quote(key));
        Ok(Self { name, columns, key: position, find_key, upsert })
    }
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

fn column(declared: &[Declared], mapping: &Mapping, name: &str, pointer: &str) -> Result<Column, String> {
    let found = declared.iter().find(|column| column.name.eq_ignore_ascii_case(name));
    let found = found.ok_or_else(|| mapping.no_column(name))?;
    if found.generated {
        return Err(mapping.generated(name));
    }
    Ok(Column { name: name.to_owned(), pointer: pointer.to_owned(), affinity: Affinity::of(&found.declared_type) })
}

/// A table that would refuse every row is refused at the start.
fn check_filled(declared: &[Declared], mapping: &Mapping) -> Result<(), String> {
    let is_filled = |column: &Declared| mapping.columns.keys().any(|name| name.eq_ignore_ascii_case(&column.name));
    match declared.iter().find(|column| column.required && !is_filled(column)) {
        Some(Declared { name, .. }) => Err(mapping.unfilled(name)),
        None => Ok(()),
    }
}

/// Columns without a type keep every value as it is.
fn create_statement(mapping: &Mapping) -> String {
    let column =
        |name: &String| if *name == mapping.key { format!("{} PRIMARY KEY", quote(name)) } else { quote(name) };
    let columns: Vec<_> = mapping.columns.keys().map(column).collect();
    format!("CREATE TABLE {} ({})", quote(&mapping.table), columns.join(", "))
}

fn upsert_statement(table: &str, mapping: &Mapping) -> String {
    let names = quote_all(mapping.columns.keys());
    let marks = vec!["?"; mapping.columns.len()].join(", ");
    let sets: Vec<_> = mapping.columns.keys().map(|name| format!("{0} = excluded.{0}", quote(name))).collect();
    format!(
        "INSERT INTO {} ({names}) VALUES ({marks}) ON CONFLICT ({}) DO UPDATE SET {} RETURNING {names}",
        quote(table),
        quote(&mapping.key),
        sets.join(", "),
    )
}
