//! From JSON to what templates work with, without losing a digit (case 3): a number that neither a whole number of 128 bits
//! nor the template's fractions spell exactly as it was written is a text of its digits.

use std::collections::BTreeMap;

use minijinja::Value;
use serde_json::value::RawValue;

/// Deepest nesting that is taken apart; what is deeper is its JSON text.
const MAX_DEPTH: usize = 32;

/// A whole body; `None` if it is no JSON.
pub(super) fn of_body(body: &[u8]) -> Option<Value> {
    hikyaku_core::json::pointer(body, "").map(|json| value(json, MAX_DEPTH))
}

fn value(json: &RawValue, depth: usize) -> Value {
    let text = json.get();
    let taken_apart = match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => None,
        Some(b'{') => object(text, depth - 1),
        Some(b'[') => list(text, depth - 1),
        // Half of a surrogate pair is no text; it is shown as it was written.
        Some(b'"') => serde_json::from_str::<String>(text).ok().map(Value::from),
        Some(b't') => Some(Value::from(true)),
        Some(b'f') => Some(Value::from(false)),
        Some(b'n') => Some(Value::from(())),
        _ => number(text),
    };
    taken_apart.unwrap_or_else(|| Value::from(text))
}

fn object(text: &str, depth: usize) -> Option<Value> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let fields: BTreeMap<String, Value> = fields.into_iter().map(|(name, json)| (name, value(json, depth))).collect();
    Some(Value::from_object(fields))
}

fn list(text: &str, depth: usize) -> Option<Value> {
    let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
    Some(items.into_iter().map(|json| value(json, depth)).collect())
}

/// A number, if templates have one that is written the same.
fn number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<i128>() {
        return Some(Value::from(whole)).filter(|value| value.to_string() == text);
    }
    let fraction = Value::from(text.parse::<f64>().ok().filter(|fraction| fraction.is_finite())?);
    Some(fraction).filter(|value| value.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case3_every_number_keeps_its_digits() {
        for text in [
            "0",
            "-0",
            "1280",
            "29383937493038367292",
            "170141183460469231731687303715884105728",
            "1280.50",
            "1280.5",
            "0.1",
            "1e3",
            "1e400",
            "123456789012345678901234567890.123456789",
        ] {
            assert_eq!(of_body(text.as_bytes()).unwrap().to_string(), text);
        }
        assert!(of_body(b"29383937493038367292").unwrap().is_number());
        assert!(of_body(b"0.5").unwrap().is_number());
    }

    #[test]
    fn any_json_becomes_something_that_can_be_shown() {
        let value = of_body(br#"{"a":{"b":[1,null,true,"\ud800"]},"a":{"b":[2]},"\u0000":1}"#).unwrap();
        assert_eq!(value.get_attr("a").unwrap().get_attr("b").unwrap().get_item_by_index(0).unwrap(), Value::from(2));
        assert_eq!(of_body(br#""\ud800""#).unwrap().to_string(), r#""\ud800""#);
        let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(of_body(deep.as_bytes()).unwrap().to_string().contains(&"[".repeat(9_000)));
        assert!(of_body(b"{").is_none());
    }
}
