//! Looking into a JSON text without changing it: numbers keep their digits, texts their bytes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The value that a JSON pointer (RFC 6901) names in `json`, as it is written there; `None` if there is none, or the
/// text on the way to it is no JSON. Of a repeated key the last counts. A leading byte order mark is passed over.
pub fn pointer<'a>(json: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    within(serde_json::from_slice(json).ok()?, pointer)
}

/// The same in a value of which it is known that it is JSON.
pub fn within<'a>(json: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    tokens(pointer)?.into_iter().try_fold(json, |value, token| child(value, &token))
}

/// Whether a text has the form of a JSON pointer: empty, or `/`-led parts in which `~` is followed by 0 or 1.
pub fn is_pointer(text: &str) -> bool {
    tokens(text).is_some()
}

/// A JSON string as text, or a JSON number in its own digits; `None` for every other value.
///
/// An id may be either, and `29383937493038367292` must not become `2.9e19`.
pub fn text_or_number(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'-' | b'0'..=b'9' => Some(value.get().to_owned()),
        _ => None,
    }
}

fn tokens(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer.strip_prefix('/')?.split('/').map(unescape).collect()
}

fn unescape(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    let well_formed = token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    well_formed.then(|| Cow::Owned(token.replace("~1", "/").replace("~0", "~")))
}

/// Reads an object for one member's value; of a repeated key the last counts. It keeps nothing else, because this runs for
/// each field of each body.
struct Member<'t>(&'t str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_meant) = members.next_key_seed(IsKey(self.0))? {
            if is_meant {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Whether a key is this one.
struct IsKey<'t>(&'t str);

impl<'de> DeserializeSeed<'de> for IsKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

fn child<'a>(value: &'a RawValue, token: &str) -> Option<&'a RawValue> {
    match value.get().as_bytes().first()? {
        b'{' => serde_json::Deserializer::from_str(value.get()).deserialize_map(Member(token)).ok()?,
        b'[' => {
            let plain = token == "0" || !token.starts_with(['0', '+']);
            let index: usize = plain.then(|| token.parse().ok())??;
            let items: Vec<&'a RawValue> = serde_json::from_str(value.get()).ok()?;
            items.get(index).copied()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<'a>(json: &'a str, path: &str) -> Option<&'a str> {
        pointer(json.as_bytes(), path).map(RawValue::get)
    }

    #[test]
    fn pointers_reach_what_they_name_as_it_is_written() {
        let json = r#"{"data":{"id":29383937493038367292,"a/b":[1.0,{"~":1e400}]},"data2":"x"}"#;
        for (path, expected) in [
            ("/data/id", Some("29383937493038367292")),
            ("/data/a~1b/0", Some("1.0")),
            ("/data/a~1b/1/~0", Some("1e400")),
            ("/data/a~1b/01", None),
            ("/data/a~1b/+0", None),
            ("/data/a~1b/2", None),
            ("/data/missing", None),
            ("/data2/x", None),
            ("data", None),
            ("/~2", None),
        ] {
            assert_eq!(at(json, path), expected, "{path}");
        }
        assert_eq!(at(json, ""), Some(json));
    }

    #[test]
    fn of_a_repeated_key_the_last_counts() {
        assert_eq!(at(r#"{"z":1,"a":2,"z":3}"#, "/z"), Some("3"));
    }

    #[test]
    fn what_is_no_json_has_no_values_and_does_no_harm() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for json in ["", "null", "\"text\"", "12", "{", "{\"a\":1}x", deep.as_str()] {
            assert_eq!(at(json, "/a"), None);
        }
        assert!(pointer(b"\xff\xfe", "").is_none());
        assert_eq!(at("\u{feff}{\"a\":1}", "/a"), Some("1"));
    }

    #[test]
    fn ids_are_texts_or_numbers() {
        let read = |json: &str| pointer(json.as_bytes(), "").and_then(text_or_number);
        assert_eq!(read(r#""a\u007cb""#).as_deref(), Some("a|b"));
        assert_eq!(read("29383937493038367292").as_deref(), Some("29383937493038367292"));
        for other in ["true", "null", "{}", "[]", r#""\ud800""#] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
