//! Headers of the user's own (S12): parsed when they are saved, so that no delivery fails on them; and none may touch
//! what we or HTTP itself say.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Most custom headers of one webhook.
pub const MAX_HEADERS: usize = 20;
/// Longest name of a custom header, in bytes.
pub const MAX_HEADER_NAME_BYTES: usize = 128;
/// Longest value of a custom header, in bytes.
pub const MAX_HEADER_VALUE_BYTES: usize = 2048;

/// Names that are ours, or HTTP's own.
const RESERVED: [&str; 14] = [
    "accept-encoding",
    "connection",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "traceparent",
    "tracestate",
    "upgrade",
    "user-agent",
];
/// What reserved names begin with.
const RESERVED_PREFIXES: [&str; 4] = ["content-", "proxy-", "webhook-", "x-rr-"];

/// Why headers cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// There are more than [`MAX_HEADERS`].
    #[error("has more than {MAX_HEADERS} headers")]
    TooMany,
    /// The name is no header name.
    #[error(
        "{0:?} is not the name of a header (1 to {MAX_HEADER_NAME_BYTES} ASCII letters, digits, or - _ . and the like)"
    )]
    Name(String),
    /// The name is reserved.
    #[error("{0:?} is reserved: the sender or HTTP itself sets it")]
    Reserved(String),
    /// Two names differ in case only.
    #[error("{0:?} is given more than once (case does not count)")]
    Twice(String),
    /// The value is no header value. The message does not repeat it: it may be a credential.
    #[error(
        "the value of {0:?} is not at most {MAX_HEADER_VALUE_BYTES} bytes of visible ASCII characters, with spaces only between them"
    )]
    Value(String),
}

/// Headers by their lower-case names.
#[derive(Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct CustomHeaders(BTreeMap<String, String>);

impl CustomHeaders {
    /// Adds a header.
    ///
    /// # Errors
    /// Says what is wrong with it; then nothing has changed.
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), InvalidHeader> {
        if name.is_empty() || name.len() > MAX_HEADER_NAME_BYTES || !name.bytes().all(is_token) {
            return Err(InvalidHeader::Name(name.to_owned()));
        }
        let name = name.to_ascii_lowercase();
        if RESERVED.contains(&name.as_str()) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(InvalidHeader::Reserved(name));
        }
        let is_visible = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
        if !is_visible || value.len() > MAX_HEADER_VALUE_BYTES {
            return Err(InvalidHeader::Value(name));
        }
        if self.0.len() == MAX_HEADERS {
            return Err(InvalidHeader::TooMany);
        }
        match self.0.entry(name) {
            Entry::Occupied(taken) => Err(InvalidHeader::Twice(taken.key().clone())),
            Entry::Vacant(free) => {
                free.insert(value.to_owned());
                Ok(())
            }
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for CustomHeaders {
    /// Names only: values are often credentials (S19).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<'de> Deserialize<'de> for CustomHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = CustomHeaders;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CustomHeaders, A::Error> {
                let mut headers = CustomHeaders::default();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    headers.add(&name, &value).map_err(serde::de::Error::custom)?;
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// Whether a byte may stand in a header's name (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s12_reserved_names_are_refused_in_any_case() {
        for name in [
            "host",
            "Host",
            "HOST",
            "Content-Type",
            "content-length",
            "CONTENT-ENCODING",
            "Transfer-Encoding",
            "connection",
            "X-RR-Signature",
            "x-rr-delivery",
            "X-Rr-Anything",
            "Webhook-Id",
            "webhook-signature",
            "User-Agent",
            "TraceParent",
            "tracestate",
            "Proxy-Authorization",
            "TE",
            "Upgrade",
            "Expect",
        ] {
            let refused = CustomHeaders::default().add(name, "x");
            assert_eq!(refused, Err(InvalidHeader::Reserved(name.to_ascii_lowercase())));
        }
    }

    #[test]
    fn s12_what_would_break_a_request_is_refused() {
        for name in ["", "a b", "a:", "a\r\nb", "é", "名", &"x".repeat(MAX_HEADER_NAME_BYTES + 1)] {
            let refused = CustomHeaders::default().add(name, "x");
            assert!(matches!(refused, Err(InvalidHeader::Name(_))), "{name:?}");
        }
        for value in
            ["a\r\nb: c", "a\nb", "a\0", "a\tb", " a", "a ", "é", "\u{7f}", &"x".repeat(MAX_HEADER_VALUE_BYTES + 1)]
        {
            let refused = CustomHeaders::default().add("x-a", value);
            assert_eq!(refused, Err(InvalidHeader::Value("x-a".into())), "{value:?}");
        }
    }

    #[test]
    fn names_are_unique_whatever_their_case_and_bounded() {
        let read = serde_json::from_str::<CustomHeaders>;
        assert!(read(r#"{"X-A":"1","x-a":"2"}"#).unwrap_err().to_string().contains("more than once"));
        assert!(read(r#"{"X-A":"1","X-A":"2"}"#).unwrap_err().to_string().contains("more than once"));
        let mut headers = CustomHeaders::default();
        for number in 0..MAX_HEADERS {
            headers.add(&format!("x-{number}"), "").unwrap();
        }
        assert_eq!(headers.add("x-more", ""), Err(InvalidHeader::TooMany));
        let mut longest = CustomHeaders::default();
        longest.add(&"x".repeat(MAX_HEADER_NAME_BYTES), &"x".repeat(MAX_HEADER_VALUE_BYTES)).unwrap();
        assert!(!longest.is_empty());
        assert!(read("[]").unwrap_err().to_string().contains("an object of header names and texts"));
    }

    #[test]
    fn s19_values_are_not_printed() {
        let mut headers = CustomHeaders::default();
        headers.add("Authorization", "Bearer hidden").unwrap();
        assert_eq!(format!("{headers:?}"), r#"{"authorization"}"#);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("authorization", "Bearer hidden")]);
    }
}
