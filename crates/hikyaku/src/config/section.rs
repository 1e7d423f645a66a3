//! Reading tables: each setting is taken by name and judged where it is taken; what nobody took is unknown. A problem
//! is noted and reading goes on, so that one run shows them all.

use std::collections::BTreeMap;

use super::Problem;
use super::tree::{Entry, Node, Place, Table, Value};

/// A table being read.
pub(super) struct Section<'p> {
    path: String,
    place: Place,
    table: Table,
    known: Vec<&'static str>,
    problems: &'p mut Vec<Problem>,
}

impl<'p> Section<'p> {
    /// Reads the whole configuration.
    pub(super) fn read_root<T>(
        table: Table,
        place: Place,
        problems: &'p mut Vec<Problem>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        Section { path: String::new(), place, table, known: Vec::new(), problems }.read(read)
    }

    fn read<T>(mut self, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = read(&mut self);
        self.refuse_unknown();
        value
    }

    /// Whether a setting is written, right or wrong.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Whether a setting is not written, or as an empty list.
    pub(super) fn is_blank(&self, key: &str) -> bool {
        self.table.get(key).is_none_or(|entry| matches!(&entry.node.value, Value::List(items) if items.is_empty()))
    }

    /// Leaves the rest of the table alone, where what is known already makes it impossible to judge.
    pub(super) fn ignore_rest(&mut self) {
        self.table.clear();
    }

    /// Takes a setting; `None` where it is not written, or not as it must be.
    pub(super) fn get<T>(&mut self, key: &'static str, parse: impl FnOnce(&Node) -> Result<T, String>) -> Option<T> {
        let node = self.take(key)?;
        match parse(&node) {
            Ok(value) => Some(value),
            Err(message) => {
                self.note(node.place, key, &message);
                None
            }
        }
    }

    /// Takes a setting that has to be there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Node) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(key) {
            self.problem(key, "is missing");
        }
        self.get(key, parse)
    }

    /// Takes a list and judges its items one by one. From the environment or a flag it may also come as texts with commas
    /// between them.
    pub(super) fn list<T>(&mut self, key: &'static str, parse: impl Fn(&Node) -> Result<T, String>) -> Option<Vec<T>> {
        if let Some(entry) = self.table.get_mut(key) {
            entry.node.split_at_commas();
        }
        self.items(key, "a list ([…])", parse)
    }

    /// Whether a setting is written, as a list with nothing in it.
    pub(super) fn is_empty_list(&self, key: &str) -> bool {
        let written = self.table.get(key).map(|entry| &entry.node.value);
        matches!(written, Some(Value::List(nodes)) if nodes.is_empty())
    }

    fn items<T>(
        &mut self,
        key: &'static str,
        form: &str,
        parse: impl Fn(&Node) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let nodes = self.get(key, |node| match &node.value {
            Value::List(nodes) => Ok(nodes.clone()),
            other => Err(format!("must be {form}, not {}", other.kind())),
        })?;
        let mut values = Vec::with_capacity(nodes.len());
        for node in nodes {
            match parse(&node) {
                Ok(value) => values.push(value),
                Err(message) => self.note(node.place, key, &message),
            }
        }
        Some(values)
    }

    /// Takes a table of freely named texts.
    pub(super) fn texts(
        &mut self,
        key: &'static str,
        parse: impl Fn(&Node) -> Result<String, String>,
    ) -> Option<BTreeMap<String, String>> {
        let table = self.get(key, inner_table)?;
        let mut texts = BTreeMap::new();
        for (name, Entry { node, .. }) in table {
            match parse(&node) {
                Ok(text) => drop(texts.insert(name, text)),
                Err(message) => self.note(node.place, &format!("{key}.{name}"), &message),
            }
        }
        Some(texts)
    }

    /// Reads a table below this one; where it is not written, an empty one.
    pub(super) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let place = self.table.get(key).map_or_else(|| self.place.clone(), |entry| entry.key.clone());
        let table = self.get(key, inner_table).unwrap_or_default();
        self.below(key, place, table).read(read)
    }

    /// Reads every table of a list (`[[key]]`), and leaves out those that `read` could not make sense of.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> Option<T>,
    ) -> Vec<T> {
        let form = format!("a list of tables ([[{key}]])");
        let tables = self.items(key, &form, |node| inner_table(node).map(|table| (node.place.clone(), table)));
        let tables = tables.unwrap_or_default().into_iter();
        tables.filter_map(|(place, table)| self.below(key, place, table).read(&mut read)).collect()
    }

    fn below(&mut self, key: &str, place: Place, table: Table) -> Section<'_> {
        Section { path: self.path_of(key), place, table, known: Vec::new(), problems: self.problems }
    }

    /// Notes a problem with a setting of this table, at its place, or at the table's where it is not written.
    pub(super) fn problem(&mut self, key: &str, message: &str) {
        let place = self.place_of(key);
        self.note(place, key, message);
    }

    /// Where a setting is written; the table's own place where it is not.
    pub(super) fn place_of(&self, key: &str) -> Place {
        self.table.get(key).map_or_else(|| self.place.clone(), |entry| entry.node.place.clone())
    }

    fn note(&mut self, place: Place, key: &str, message: &str) {
        let message = format!("`{}` {message}", self.path_of(key));
        self.problems.push(Problem { place, message });
    }

    fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        self.table.get(key).map(|entry| entry.node.clone())
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn refuse_unknown(&mut self) {
        self.known.sort_unstable();
        self.known.dedup();
        let known = self.known.join(", ");
        for (key, entry) in std::mem::take(&mut self.table) {
            if !self.known.contains(&key.as_str()) {
                self.note(entry.key, &key, &format!("is not a setting; here are: {known}"));
            }
        }
    }
}

fn inner_table(node: &Node) -> Result<Table, String> {
    match &node.value {
        Value::Table(table) => Ok(table.clone()),
        other => Err(format!("must be a table, not {}", other.kind())),
    }
}
