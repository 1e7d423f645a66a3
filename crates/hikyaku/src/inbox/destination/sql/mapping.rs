//! Which values of a body go into which columns, and what is said where they do not.

use std::collections::BTreeMap;
use std::iter;

use hikyaku_core::json;

/// Most columns that one row may fill.
pub(crate) const MAX_COLUMNS: usize = 500;
/// What the names of our own tables begin with.
pub(crate) const OWN_PREFIX: &str = "hikyaku_";

/// The settings of a table that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    /// The table.
    pub(crate) table: String,
    /// The column that is the business key.
    pub(crate) key: String,
    /// Columns and the JSON pointers of their values.
    pub(crate) columns: BTreeMap<String, String>,
    /// Whether the table is created where it is missing.
    pub(crate) create: bool,
}

impl Mapping {
    /// Says what no table could fit.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { table, key, columns, .. } = self;
        if table.to_ascii_lowercase().starts_with(OWN_PREFIX) {
            return Err(format!("table {table:?}: names that begin with {OWN_PREFIX:?} are our own"));
        }
        if columns.len() > MAX_COLUMNS {
            return Err(format!("columns: {} are more than {MAX_COLUMNS}", columns.len()));
        }
        if !columns.contains_key(key) {
            return Err(format!("key {key:?} is not among the columns"));
        }
        if let Some(name) = iter::once(table).chain(columns.keys()).find(|name| !is_name(name)) {
            return Err(format!("{name:?} cannot be the name of a table or column"));
        }
        if let Some((one, other)) = same_name(columns.keys()) {
            return Err(format!("columns: {one:?} and {other:?} differ in case only; name the column once"));
        }
        match columns.iter().find(|(_, pointer)| !json::is_pointer(pointer)) {
            Some((name, pointer)) => {
                Err(format!("columns: {pointer:?} of {name:?} is no JSON pointer such as \"/data/id\" (RFC 6901)"))
            }
            None => Ok(()),
        }
    }

    /// The key in a body as text: a JSON text or a whole number, and not empty. The error says why the row is refused.
    pub(super) fn key_text(&self, body: &[u8]) -> Result<String, String> {
        let pointer = &self.columns[&self.key];
        let text = json::pointer(body, pointer).and_then(|json| {
            let whole_or_text = json.get().starts_with('"') || !json.get().contains(['.', 'e', 'E']);
            json::text_or_number(json).filter(|text| whole_or_text && !text.is_empty())
        });
        text.ok_or_else(|| {
            format!("the body has no text and no whole number at {pointer:?}, the key column {:?}", self.key)
        })
    }

    /// Where the table's name leads nowhere.
    pub(super) fn no_table(&self) -> String {
        format!("there is no table {:?} in the database; create it, or set create = true", self.table)
    }

    /// Where a column's name leads nowhere.
    pub(super) fn no_column(&self, name: &str) -> String {
        format!("table {:?} has no column {name:?}", self.table)
    }

    /// Where a column gets its value from the table itself.
    pub(super) fn generated(&self, name: &str) -> String {
        format!("column {name:?} of table {:?} is generated; take it out of `columns`", self.table)
    }

    /// Where the table would refuse every row.
    pub(super) fn unfilled(&self, name: &str) -> String {
        format!(
            "table {:?} takes no row without a value for {name:?}, which is NOT NULL and has no default; add it to \
             `columns`, or give it a DEFAULT",
            self.table
        )
    }

    /// Where no row can be found by its key.
    pub(super) fn not_unique(&self, why: &str) -> String {
        let Self { table, key, .. } = self;
        format!("rows cannot be written to table {table:?} by {key:?}, which must be its PRIMARY KEY or UNIQUE{why}")
    }

    /// Why a row is refused whose value would not survive in its column.
    pub(super) fn not_whole(&self, name: &str, remedy: &str) -> String {
        format!("the column {name:?} would change the value at {:?}; make the column {remedy}", self.columns[name])
    }

    /// Why a row is refused that the table passed over.
    pub(super) fn ignored(&self, by: &str) -> String {
        format!("the table {:?} passed the row over: {by}", self.table)
    }
}

/// Two names that differ only in the case of ASCII letters, which SQLite does not tell apart and few people do.
fn same_name<'a>(names: impl Iterator<Item = &'a String>) -> Option<(&'a str, &'a str)> {
    let mut seen = BTreeMap::new();
    names.into_iter().find_map(|name| Some((seen.insert(name.to_ascii_lowercase(), name.as_str())?, name.as_str())))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\0')
}

/// An identifier as SQL reads it, whatever it contains (S22).
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Several of them, in their order.
pub(super) fn quote_all<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}
