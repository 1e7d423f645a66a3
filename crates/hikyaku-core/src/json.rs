//! Looking into a JSON text without changing it: numbers keep their digits, texts their bytes.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The value that a JSON pointer (RFC 6901) names in `json`, as it is written there; `None` if there is none, or the
/// text on the way to it is no JSON. Of a repeated key the last counts. A leading byte order mark is passed over.
pub fn pointer<'a>(json: &'a [u8], pointer: &str) -> Option<&'a RawValue> {
    within(read(json)?, pointer)
}

/// The same in a value of which it is known that it is JSON.
pub fn within<'a>(json: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    all_within(json, &[pointer]).pop().flatten()
}

/// The same for several pointers, position by position. However many there are, each object on their way is read once.
pub fn all_within<'a>(json: &'a RawValue, pointers: &[&str]) -> Vec<Option<&'a RawValue>> {
    let mut found = vec![None; pointers.len()];
    let ways = pointers.iter().enumerate().filter_map(|(position, pointer)| Some((position, tokens(pointer)?)));
    let ways: Vec<_> = ways.collect();
    follow(json, 0, &ways.iter().collect::<Vec<_>>(), &mut found);
    found
}

fn read(json: &[u8]) -> Option<&RawValue> {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    serde_json::from_slice(json).ok()
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

/// The way of a pointer: whose it is, and the names on it.
type Way<'p> = (usize, Vec<Cow<'p, str>>);

/// Notes the values of those ways that end in `value`, `depth` names down, and follows the others.
fn follow<'a>(value: &'a RawValue, depth: usize, ways: &[&Way<'_>], found: &mut [Option<&'a RawValue>]) {
    let mut names = Vec::new();
    for (position, way) in ways {
        match way.get(depth) {
            None => found[*position] = Some(value),
            Some(name) if !names.contains(&name.as_ref()) => names.push(name),
            Some(_) => {}
        }
    }
    for (child, name) in children(value, &names).into_iter().zip(&names) {
        if let Some(child) = child {
            let goes_on = |(_, way): &&Way<'_>| way.get(depth).is_some_and(|next| next == name);
            let further: Vec<_> = ways.iter().copied().filter(goes_on).collect();
            follow(child, depth + 1, &further, found);
        }
    }
}

/// Reads an object for the values of some members; of a repeated key the last counts. It keeps nothing else, because this
/// runs for each body.
struct Members<'t>(&'t [&'t str]);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = vec![None; self.0.len()];
        while let Some(meant) = members.next_key_seed(Key(self.0))? {
            match meant {
                Some(place) => found[place] = Some(members.next_value()?),
                None => {
                    members.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Which of these a key is.
struct Key<'t>(&'t [&'t str]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

/// The members or items of these names, position by position.
fn children<'a>(value: &'a RawValue, names: &[&str]) -> Vec<Option<&'a RawValue>> {
    let found = match value.get().as_bytes().first() {
        Some(b'{') if !names.is_empty() => {
            serde_json::Deserializer::from_str(value.get()).deserialize_map(Members(names)).ok()
        }
        Some(b'[') if !names.is_empty() => serde_json::from_str(value.get()).ok().map(|items: Vec<&RawValue>| {
            names.iter().map(|name| index(name).and_then(|index| items.get(index).copied())).collect()
        }),
        _ => None,
    };
    found.unwrap_or_default()
}

/// An item's place, as a pointer writes it.
fn index(name: &str) -> Option<usize> {
    let is_plain = name == "0" || !name.starts_with(['0', '+']);
    is_plain.then(|| name.parse().ok())?
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
    fn several_pointers_at_once_find_what_each_finds_alone() {
        let json = br#"{"a":{"b":[1,{"c":2}],"d":3},"e":4,"a":{"b":[5,{"c":6}]},"":7}"#;
        let all = ["", "/a", "/a/b", "/a/b/1/c", "/a/b/0", "/a/d", "/e", "/e/f", "/", "/a", "no pointer", "/a/b/2"];
        let alone: Vec<_> = all.iter().map(|path| pointer(json, path).map(RawValue::get)).collect();
        assert_eq!(alone[3..7], [Some("6"), Some("5"), None, Some("4")]);
        let found = all_within(pointer(json, "").unwrap(), &all);
        assert_eq!(found.into_iter().map(|value| value.map(RawValue::get)).collect::<Vec<_>>(), alone);
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
