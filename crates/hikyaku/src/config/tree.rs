//! What is written, before it is judged: values, each with the place where it stands, from the file, the environment
//! and the command line.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Problem;

/// Where something is written. Sorts as a person reads: by file, line and column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the file.
    File {
        /// The file's name.
        file: Arc<str>,
        /// The line, from 1.
        line: usize,
        /// The column, from 1, in characters.
        column: usize,
    },
    /// Outside of the file: an environment variable or a flag, or the file as a whole.
    Named(Arc<str>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
    /// The bytes as given, for a value from the environment or a flag: there `12345` may be meant as text.
    pub(super) raw: Option<String>,
}

impl Node {
    /// Makes a list of a value from the environment or a flag that is none: `api,sender` is `["api", "sender"]`.
    pub(super) fn split_at_commas(&mut self) {
        let Some(raw) = self.raw.take_if(|_| !matches!(self.value, Value::List(_))) else { return };
        let items = raw.split(',').map(str::trim).filter(|item| !item.is_empty());
        self.value = Value::List(items.map(|item| given(item, &self.place)).collect());
    }
}

/// A value as TOML knows it. The kinds that no setting has are kept by name only.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    Other(&'static str),
}

/// A table's entries; each key knows its own place.
pub(super) type Table = BTreeMap<String, Entry>;

/// A table's entry.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Place,
    pub(super) node: Node,
}

impl Value {
    /// What it is, for a message that says it should be something else.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// A file's name and text.
pub(super) struct Source<'a> {
    pub(super) file: Arc<str>,
    pub(super) text: &'a str,
}

impl Source<'_> {
    /// Parses the whole text; every error of form is reported.
    pub(super) fn parse(&self) -> Result<Table, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Ok(self.table(table.into_inner()));
        }
        let problem = |error: toml::de::Error| Problem {
            place: self.place(error.span().unwrap_or_default()),
            message: format!("is not TOML: {}", error.message()),
        };
        Err(errors.into_iter().map(problem).collect())
    }

    fn place(&self, span: Range<usize>) -> Place {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::File {
            file: Arc::clone(&self.file),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    fn table(&self, table: DeTable<'_>) -> Table {
        let entry = |(key, value): (Spanned<_>, Spanned<_>)| {
            let place = self.place(key.span());
            (String::from(key.into_inner()), Entry { key: place, node: self.node(value) })
        };
        table.into_iter().map(entry).collect()
    }

    fn node(&self, spanned: Spanned<DeValue<'_>>) -> Node {
        let place = self.place(spanned.span());
        let value = match spanned.into_inner() {
            DeValue::String(text) => Value::Text(text.into_owned()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Other("an integer of more than 64 bits"), Value::Integer),
            DeValue::Boolean(truth) => Value::Boolean(truth),
            DeValue::Array(items) => Value::List(items.into_iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Datetime(_) => Value::Other("a date or time"),
        };
        Node { place, value, raw: None }
    }
}

/// Sets `path` (levels joined by dots) to a value given outside of the file, over whatever stands there. The value is
/// read as TOML, and as plain text where it is none (`5s`).
pub(super) fn set(root: &mut Table, path: &str, raw: &str, place: Place) -> Result<(), Problem> {
    let (levels, key) = match path.rsplit_once('.') {
        Some((levels, key)) => (levels.split('.').collect(), key),
        None => (Vec::new(), path),
    };
    let mut table = root;
    for level in levels {
        let empty = || Entry {
            key: place.clone(),
            node: Node { place: place.clone(), value: Value::Table(Table::new()), raw: None },
        };
        match &mut table.entry(level.to_owned()).or_insert_with(empty).node.value {
            Value::Table(inner) => table = inner,
            other => {
                let message = format!("cannot set `{path}`: `{level}` is {}, not a table", other.kind());
                return Err(Problem { place, message });
            }
        }
    }
    let node = given(raw, &place);
    table.insert(key.to_owned(), Entry { key: place, node });
    Ok(())
}

fn given(raw: &str, place: &Place) -> Node {
    let source = Source { file: Arc::from(""), text: raw };
    let mut node = match DeValue::parse(raw) {
        Ok(value) => source.node(value),
        Err(_) => Node { place: place.clone(), value: Value::Text(raw.to_owned()), raw: None },
    };
    replace_places(&mut node, place);
    node.raw = Some(raw.to_owned());
    node
}

fn replace_places(node: &mut Node, place: &Place) {
    node.place = place.clone();
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| replace_places(item, place)),
        Value::Table(table) => table.values_mut().for_each(|entry| {
            entry.key = place.clone();
            replace_places(&mut entry.node, place);
        }),
        _ => {}
    }
}
