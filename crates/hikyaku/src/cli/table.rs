//! JSON as people read it: rows under headings, and members one below the other.

use std::fmt::{self, Write};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::output;

/// A column: its heading, and the JSON pointer of its values in a row.
pub(super) type Column = (&'static str, &'static str);

/// Columns that fit what is in them. Rows can come in portions; a column never gets narrower.
pub(super) struct Table {
    columns: &'static [Column],
    widths: Vec<usize>,
    has_headings: bool,
}

impl Table {
    /// A table that has not been begun.
    pub(super) fn new(columns: &'static [Column]) -> Self {
        Self { columns, widths: vec![0; columns.len()], has_headings: false }
    }

    /// The same, with columns at least as wide: for rows of which the first ones say little about the others.
    pub(super) fn at_least(mut self, widths: &[usize]) -> Self {
        self.widths.iter_mut().zip(widths).for_each(|(width, least)| *width = *least);
        self
    }

    /// Prints rows, the first time under their headings.
    pub(super) fn print<'a>(&mut self, rows: impl IntoIterator<Item = &'a Value>) {
        output::print(self.render(rows));
    }

    fn render<'a>(&mut self, rows: impl IntoIterator<Item = &'a Value>) -> String {
        let cells = |row: &Value| self.columns.iter().map(|(_, at)| cell(row.pointer(at))).collect::<Vec<_>>();
        let mut lines: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
        if !self.has_headings {
            self.has_headings = true;
            lines.insert(0, self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect());
        }
        for line in &lines {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for line in lines {
            let padded = line.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
            text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints rows that are all there.
pub(super) fn print_table(columns: &'static [Column], rows: &[Value]) {
    Table::new(columns).print(rows);
}

/// Prints a JSON object's members, one below the other as the server wrote them, without those that `tables` names and
/// those that are empty.
pub(super) fn print_members(object: &Members, tables: &[&str]) {
    output::print(render_members(object, tables));
}

fn render_members(Members(members): &Members, tables: &[&str]) -> String {
    let shown: Vec<_> = members
        .iter()
        .filter(|(name, _)| !tables.contains(&name.as_str()))
        .map(|(name, value)| (name, raw_cell(value)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let width = shown.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in shown {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text
}

/// The members of a JSON object in their order, with their values to the byte.
#[derive(Debug)]
pub(super) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// The member with this name; `null` if there is none.
    pub(super) fn value(&self, name: &str) -> Value {
        let member = self.0.iter().find(|(known, _)| known == name);
        member.and_then(|(_, value)| serde_json::from_str(value.get()).ok()).unwrap_or(Value::Null)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// A value in a cell.
pub(super) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => plain(text),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().map(|item| cell(Some(item))).collect::<Vec<_>>().join(", ")
        }
        Some(other) => plain(&other.to_string()),
    }
}

/// As [`cell`], but numbers keep their digits and objects their order.
fn raw_cell(value: &RawValue) -> String {
    match serde_json::from_str(value.get()) {
        Ok(Value::Object(_)) | Ok(Value::Number(_)) | Err(_) => plain(value.get()),
        Ok(value) => cell(Some(&value)),
    }
}

/// A text that cannot steer a terminal: an endpoint's answer or an event's data may hold anything. What would break the
/// line, command the terminal or turn the direction of writing is shown by its number.
pub(super) fn plain(text: &str) -> String {
    let steers = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned_also_over_portions() {
        let mut table = Table::new(&[("ID", "/id"), ("STATE", "/last/state"), ("NOTE", "/note")]);
        let first = table.render(&[json!({"id": "long-one", "last": {"state": 5}, "note": "é"}), json!({"id": "b"})]);
        assert_eq!(first, "ID        STATE  NOTE\nlong-one  5      é\nb\n");
        let second = table.render(&[json!({"id": "c", "last": null, "note": ["x", "y"]})]);
        assert_eq!(second, "c                x, y\n");
    }

    #[test]
    fn members_keep_their_order_and_their_digits() {
        let object: Members =
            serde_json::from_str(r#"{"b":1.10,"a":"x","none":null,"rows":[],"d":{"z":1e999,"y":[]}}"#).unwrap();
        assert_eq!(render_members(&object, &["rows"]), "b  1.10\na  x\nd  {\"z\":1e999,\"y\":[]}\n");
        assert_eq!((object.value("a"), object.value("d"), object.value("?")), (json!("x"), Value::Null, Value::Null));
    }

    #[test]
    fn what_an_endpoint_answered_cannot_steer_the_terminal() {
        assert_eq!(plain("\u{1b}[2Ja\r\nb\u{202e}c\u{7f}飛"), "\\u{1b}[2Ja\\r\\nb\\u{202e}c\\u{7f}飛");
        assert_eq!(cell(Some(&json!(["\u{1b}", "x"]))), "\\u{1b}, x");
        let raw: Box<RawValue> = serde_json::from_str("[1,\n\"\u{7f}\"]").unwrap();
        assert_eq!(raw_cell(&raw), "[1,\"\\u{7f}\"]");
    }
}
