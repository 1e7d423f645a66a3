//! The statement that a row would bring, told without opening the database.

use hikyaku_core::signature::Secret;
use rusqlite::types::Value;

use super::mapping::{Mapping, quote, quote_all};
use super::postgres;
use super::sqlite::value::{Affinity, bound_as};
use crate::postgres::is_url;

/// The statement with its values. What columns do to values by their types, and what the table says of the key's newest
/// version, is known only to the database. The error says why the row would be refused.
pub(in crate::inbox::destination) fn preview(url: &Secret, mapping: &Mapping, body: &[u8]) -> Result<String, String> {
    mapping.key_text(body)?;
    Ok(if is_url(url.reveal()) { postgres::preview(mapping, body) } else { of_sqlite(mapping, body) })
}

fn of_sqlite(mapping: &Mapping, body: &[u8]) -> String {
    let Mapping { table, key, columns, .. } = mapping;
    let values: Vec<_> = columns.values().map(|pointer| shown(&bound_as(Affinity::Other, body, pointer))).collect();
    let sets: Vec<_> = columns.keys().map(|name| format!("{0} = excluded.{0}", quote(name))).collect();
    format!(
        "INSERT INTO {} ({}) VALUES ({})\nON CONFLICT ({}) DO UPDATE SET {}",
        quote(table),
        quote_all(columns.keys()),
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

    fn preview_in(url: &str, body: &[u8]) -> Result<String, String> {
        let columns = [("id", "/data/id"), ("note", "/data/note"), ("total", "/data/total"), ("x", "/data/x")];
        let columns = columns.map(|(name, pointer)| (name.to_owned(), pointer.to_owned())).into();
        let mapping = Mapping { table: "sales".into(), key: "id".into(), columns, create: false };
        preview(&Secret::new(url), &mapping, body)
    }

    const BODY: &[u8] = br#"{"data":{"id":29383937493038367292,"note":"it's","total":1200}}"#;

    #[test]
    fn case3_a_statement_of_sqlite_is_shown_with_its_values() {
        assert_eq!(
            preview_in("sqlite:books.db", BODY).unwrap(),
            "INSERT INTO \"sales\" (\"id\", \"note\", \"total\", \"x\") VALUES ('29383937493038367292', 'it''s', 1200, NULL)\n\
             ON CONFLICT (\"id\") DO UPDATE SET \"id\" = excluded.\"id\", \"note\" = excluded.\"note\", \
             \"total\" = excluded.\"total\", \"x\" = excluded.\"x\""
        );
    }

    #[test]
    fn case3_a_statement_of_postgresql_is_shown_with_its_values_as_they_are_sent() {
        assert_eq!(
            preview_in("postgres://user:sesame@db.example/books", BODY).unwrap(),
            "INSERT INTO \"sales\" (\"id\", \"note\", \"total\", \"x\") VALUES ($1, $2, $3, $4) \
             ON CONFLICT (\"id\") DO UPDATE SET \"id\" = \"sales\".\"id\", \"note\" = excluded.\"note\", \
             \"total\" = excluded.\"total\", \"x\" = excluded.\"x\" RETURNING \"sales\".\"id\"::text\n\
             $1 = '29383937493038367292', read as the type of \"id\"\n\
             $2 = 'it''s', read as the type of \"note\"\n\
             $3 = '1200', read as the type of \"total\"\n\
             $4 = NULL, read as the type of \"x\""
        );
    }

    #[test]
    fn a_row_without_a_key_would_be_refused() {
        for url in ["sqlite:books.db", "postgres://db.example/books"] {
            assert!(preview_in(url, b"{}").unwrap_err().contains("\"/data/id\""), "{url}");
        }
    }
}
