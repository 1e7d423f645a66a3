//! The statement that a row would bring, told without opening the database.

use std::collections::BTreeMap;

use rusqlite::types::Value;

use super::mapping::quote;
use super::sqlite::value::{Affinity, bound_as};

/// The statement with its values. What columns do to values by their types, and what the table says of the key's newest
/// version, is known only to the database.
pub(in crate::inbox::destination) fn preview(
    table: &str,
    key: &str,
    columns: &BTreeMap<String, String>,
    body: &[u8],
) -> String {
    let names: Vec<_> = columns.keys().map(|name| quote(name)).collect();
    let values: Vec<_> = columns.values().map(|pointer| shown(&bound_as(Affinity::Other, body, pointer))).collect();
    let sets: Vec<_> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({})\nON CONFLICT ({}) DO UPDATE SET {}",
        quote(table),
        names.join(", "),
        values.join(", "),
        quote(key),
        sets.join(", ")
    )
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Integer(whole) => whole.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Blob(bytes) => format!("({} bytes)", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_shown_with_its_values() {
        let columns = [("id", "/data/id"), ("note", "/data/note"), ("total", "/data/total"), ("x", "/data/x")];
        let columns = columns.map(|(name, pointer)| (name.to_owned(), pointer.to_owned())).into();
        let body = br#"{"data":{"id":29383937493038367292,"note":"it's","total":1200}}"#;
        assert_eq!(
            preview("sales", "id", &columns, body),
            "INSERT INTO \"sales\" (\"id\", \"note\", \"total\", \"x\") VALUES ('29383937493038367292', 'it''s', 1200, NULL)\n\
             ON CONFLICT (\"id\") DO UPDATE SET \"id\" = excluded.\"id\", \"note\" = excluded.\"note\", \
             \"total\" = excluded.\"total\", \"x\" = excluded.\"x\""
        );
    }
}
