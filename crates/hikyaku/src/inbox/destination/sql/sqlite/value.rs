//! From JSON to SQL without losing a digit (case 3: `29383937493038367292` survives).
//!
//! | JSON | SQL |
//! |---|---|
//! | text | TEXT; one that holds half of a surrogate pair, which no SQL text can, as the JSON text with its quotes |
//! | whole number of 64 bits | INTEGER |
//! | other number | REAL if that is exactly the number, else TEXT with its digits |
//! | `true`, `false` | 1, 0 |
//! | `null`, nothing there | NULL |
//! | object, array | the JSON text as it stands |
//!
//! A number for a TEXT column goes there in its own digits. Where another column's type would change a value all the
//! same, the row is refused rather than changed.

use hikyaku_core::json;
use rusqlite::types::Value;

use crate::inbox::destination::sql::decimal::same_number;

/// What a column does to values, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inbox::destination::sql) enum Affinity {
    /// It turns numbers into text, and not always with all of their digits.
    Text,
    /// It keeps values, or turns text into numbers.
    Other,
}

impl Affinity {
    /// By the declared type, as SQLite decides it: `INT` anywhere comes before `CHAR`, `CLOB` and `TEXT`.
    pub(super) fn of(declared_type: &str) -> Self {
        let declared = declared_type.to_ascii_uppercase();
        let text = ["CHAR", "CLOB", "TEXT"].iter().any(|word| declared.contains(word));
        if text && !declared.contains("INT") { Self::Text } else { Self::Other }
    }
}

/// The value at `pointer` in a body, for a column with this affinity.
pub(in crate::inbox::destination::sql) fn bound_as(affinity: Affinity, body: &[u8], pointer: &str) -> Value {
    let Some(json) = json::pointer(body, pointer).map(|value| value.get()) else {
        return Value::Null;
    };
    match json.as_bytes().first() {
        Some(b'n') | None => Value::Null,
        Some(b't') => Value::Integer(1),
        Some(b'f') => Value::Integer(0),
        Some(b'"') => Value::Text(serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())),
        Some(b'{' | b'[') => Value::Text(json.to_owned()),
        Some(_) if affinity == Affinity::Text => Value::Text(json.to_owned()),
        Some(_) => number(json),
    }
}

fn number(digits: &str) -> Value {
    if let Ok(whole) = digits.parse() {
        return Value::Integer(whole);
    }
    match digits.parse::<f64>() {
        Ok(real) if digits.contains(['.', 'e', 'E']) && same_number(digits, &format!("{real:e}")) => Value::Real(real),
        _ => Value::Text(digits.to_owned()),
    }
}

/// The same whole number as a text, or the same text as a whole number; `None` where there is no other.
pub(super) fn other_type(key: &Value) -> Option<Value> {
    match key {
        Value::Integer(whole) => Some(Value::Text(whole.to_string())),
        Value::Text(text) => text.parse::<i64>().ok().filter(|whole| whole.to_string() == *text).map(Value::Integer),
        _ => None,
    }
}

/// A key that a table holds, as text; `None` for what no key of ours can be.
pub(super) fn stored_key(stored: &Value) -> Option<String> {
    match stored {
        Value::Text(text) => Some(text.clone()),
        Value::Integer(whole) => Some(whole.to_string()),
        Value::Real(real) => Some(real.to_string()),
        Value::Null | Value::Blob(_) => None,
    }
}

/// Whether SQLite kept what was bound: nothing changed, or only its type and not what it says.
pub(super) fn stored_whole(bound: &Value, stored: &Value) -> bool {
    match (bound, stored) {
        (Value::Text(text), Value::Integer(whole)) => same_number(text, &whole.to_string()),
        (Value::Text(text), Value::Real(real)) => same_number(text, &format!("{real:e}")),
        (Value::Integer(whole), Value::Real(real)) => same_number(&whole.to_string(), &format!("{real:e}")),
        (Value::Real(real), Value::Integer(whole)) => same_number(&format!("{real:e}"), &whole.to_string()),
        (Value::Integer(whole), Value::Text(text)) => whole.to_string() == *text,
        _ => bound == stored,
    }
}
