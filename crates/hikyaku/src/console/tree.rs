//! A body as a tree: what it is made of, in its own order, with its numbers as they were written.

use std::fmt;

use minijinja::{Value, context};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Deepest level that is shown as a tree; what is deeper is shown as text.
const MAX_DEPTH: usize = 32;
/// Most values of a tree.
const MAX_VALUES: usize = 5_000;

/// The tree of a JSON text: `{name, kind, text, children}`; `None` where it is no JSON.
pub(super) fn of(json: &str) -> Option<Value> {
    let raw: &RawValue = serde_json::from_str(json).ok()?;
    Some(node(None, raw, 0, &mut 0))
}

fn node(name: Option<String>, raw: &RawValue, depth: usize, count: &mut usize) -> Value {
    let text = raw.get();
    let opens = depth < MAX_DEPTH;
    let children = match text.as_bytes().first() {
        Some(b'{') if opens => serde_json::from_str::<Members<'_>>(text).ok().map(|members| members.0),
        Some(b'[') if opens => {
            let items = serde_json::from_str::<Vec<&RawValue>>(text).ok();
            items.map(|items| items.into_iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect())
        }
        _ => None,
    };
    // A level is shown whole or not at all.
    let children = children.filter(|children| *count + children.len() <= MAX_VALUES);
    *count += children.as_ref().map_or(0, Vec::len);
    let kind = match text.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f' | b'n') => "word",
        _ => "number",
    };
    let children = children.map(|children: Vec<(String, &RawValue)>| {
        children.into_iter().map(|(name, raw)| node(Some(name), raw, depth + 1, count)).collect::<Vec<_>>()
    });
    context! { name, kind, text => children.is_none().then(|| shown(text)), children }
}

/// A value as people read it: a text with its letters and not their escapes, everything else as it was written.
fn shown(text: &str) -> String {
    let letters = text.starts_with('"').then(|| serde_json::from_str::<String>(text).ok()).flatten();
    letters.map_or_else(|| text.to_owned(), |letters| format!("\"{letters}\""))
}

/// An object's members in their order, those that are named twice included.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_keeps_order_numbers_and_what_is_there_twice() {
        let tree = of(r#"{"b":12345678901234567890.10,"a":["<script>",null],"b":{}}"#).unwrap();
        let json = serde_json::to_value(&tree).unwrap();
        let names: Vec<_> =
            json["children"].as_array().unwrap().iter().map(|child| child["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["b", "a", "b"]);
        assert_eq!(json["children"][0]["text"], "12345678901234567890.10");
        assert_eq!(json["children"][1]["children"][0]["text"], "\"<script>\"");
        let letters = of(r#"["\u65e5\u672c\u8a9e \"\u003cb>\"", "\ud800"]"#).unwrap();
        let json = serde_json::to_value(&letters).unwrap();
        assert_eq!(json["children"][0]["text"], "\"日本語 \"<b>\"\"");
        assert_eq!(json["children"][1]["text"], "\"\\ud800\"", "half a letter stays as it was written");
        assert!(of("no json").is_none());
    }

    #[test]
    fn what_is_too_deep_or_too_much_is_text() {
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(of(&deep).is_some());
        let wide = format!("[[{}1],[2]]", "1,".repeat(MAX_VALUES));
        let json = serde_json::to_value(of(&wide).unwrap()).unwrap();
        assert!(json["children"][0]["text"].is_string() && json["children"][1]["children"].is_array());
    }
}
