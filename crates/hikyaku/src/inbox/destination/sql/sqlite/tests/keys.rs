//! C10: one row per business key, whatever type the key has in a body and in the table.

use super::*;

#[tokio::test]
async fn c10_a_number_and_its_text_are_one_key_and_one_row() {
    for schema in [
        "",
        "CREATE TABLE sales (id PRIMARY KEY, total)",
        "CREATE TABLE sales (id BLOB UNIQUE, total)",
        "CREATE TABLE sales (id TEXT PRIMARY KEY, total)",
        "CREATE TABLE sales (id INTEGER PRIMARY KEY, total)",
        "CREATE TABLE sales (id NUMERIC UNIQUE, total)",
    ] {
        for (first, second) in [("7", "\"7\""), ("\"7\"", "7"), ("-7", "\"-7\"")] {
            let rig = Rig::new(schema, "sales", SALES);
            let sale = |id: &str, total: u32| format!(r#"{{"id":{id},"total":{total}}}"#);
            assert_eq!(rig.apply("d1", 1, &sale(first, 1)).await, Effect::Done("written".into()), "{schema}");
            assert_eq!(rig.apply("d3", 3, &sale(second, 3)).await, Effect::Done("written".into()), "{schema}");
            let late = rig.apply("d2", 2, &sale(first, 2)).await;
            assert!(matches!(late, Effect::Stale(_)), "{schema}: {first}: {late:?}");
            assert_eq!(rig.seen("SELECT count(*) || ':' || max(total) FROM sales"), ["1:3"], "{schema}: {first}");
        }
    }
}

/// What is spelled otherwise is another text, and so another key.
#[tokio::test]
async fn c10_two_spellings_are_two_keys_where_the_column_does_not_say_otherwise() {
    let rig = Rig::new("", "sales", SALES);
    for (n, id) in ["7", "\"07\"", "\"+7\"", "\" 7\""].iter().enumerate() {
        let effect = rig.apply(&format!("d{n}"), 1, &format!(r#"{{"id":{id},"total":1}}"#)).await;
        assert_eq!(effect, Effect::Done("written".into()), "{id}");
    }
    assert_eq!(rig.seen("SELECT count(*) || '' FROM sales"), ["4"]);
}
