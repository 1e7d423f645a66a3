//! Events: what a platform publishes, and the one body that every webhook gets (R9, R20, R21, R22).

use std::fmt;

use bytes::Bytes;
use jiff::Timestamp;
use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{ids::EventId, timestamp};

/// Longest event type, in bytes.
pub const MAX_EVENT_TYPE_BYTES: usize = 128;
/// Bytes of a content hash (SHA-256).
pub const CONTENT_HASH_BYTES: usize = 32;

/// Two or more words joined by dots, as in `sale.created`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(String);

/// Why a text is no event type, or no pattern for one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventType {
    /// It is longer than [`MAX_EVENT_TYPE_BYTES`].
    #[error("{0:?} is longer than {MAX_EVENT_TYPE_BYTES} bytes")]
    TooLong(String),
    /// It has not the form of a type.
    #[error("{0:?} is not of the form word.word, as in \"sale.created\" (ASCII letters, digits, '_' and '-')")]
    NotAType(String),
    /// It has not the form of a pattern.
    #[error("{0:?} is neither an event type such as \"sale.created\", nor a prefix such as \"order.*\", nor \"*\"")]
    NotAPattern(String),
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

impl EventType {
    /// Takes a text as an event type, or says why it is none.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidEventType> {
        let text = text.into();
        if text.len() > MAX_EVENT_TYPE_BYTES {
            return Err(InvalidEventType::TooLong(text));
        }
        if text.contains('.') && text.split('.').all(is_word) {
            Ok(Self(text))
        } else {
            Err(InvalidEventType::NotAType(text))
        }
    }

    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which event types are meant: one, all below a prefix, or all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum EventPattern {
    /// Exactly this one.
    Exact(EventType),
    /// All that begin with this text, which ends in a dot (`order.*` holds `order.`).
    Prefix(String),
    /// Every type.
    All,
}

impl EventPattern {
    /// Takes `sale.created`, `order.*` or `*`.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidEventType> {
        let text = text.into();
        if text == "*" {
            return Ok(Self::All);
        }
        if text.len() > MAX_EVENT_TYPE_BYTES {
            return Err(InvalidEventType::TooLong(text));
        }
        if let Some(prefix) = text.strip_suffix(".*") {
            if prefix.split('.').all(is_word) {
                return Ok(Self::Prefix(format!("{prefix}.")));
            }
        } else if let Ok(exact) = EventType::parse(text.as_str()) {
            return Ok(Self::Exact(exact));
        }
        Err(InvalidEventType::NotAPattern(text))
    }

    /// Takes what [`EventPattern::parse`] takes, and a single word: other systems have types like `push`.
    pub fn parse_received(text: &str) -> Result<Self, InvalidEventType> {
        if text.len() <= MAX_EVENT_TYPE_BYTES && is_word(text) {
            return Ok(Self::Exact(EventType(text.to_owned())));
        }
        Self::parse(text)
    }

    /// Whether a type, as text, is meant. A text that is no [`EventType`] (a provider may send anything) is meant by
    /// `*` only, or by its own prefix.
    pub fn matches(&self, event_type: &str) -> bool {
        match self {
            Self::Exact(exact) => exact.as_str() == event_type,
            Self::Prefix(prefix) => event_type.len() > prefix.len() && event_type.starts_with(prefix.as_str()),
            Self::All => true,
        }
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(exact) => exact.fmt(f),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::All => f.write_str("*"),
        }
    }
}

impl TryFrom<String> for EventPattern {
    type Error = InvalidEventType;
    fn try_from(text: String) -> Result<Self, InvalidEventType> {
        Self::parse(text)
    }
}

impl From<EventPattern> for String {
    fn from(pattern: EventPattern) -> String {
        pattern.to_string()
    }
}

/// The body of an event, rendered once: the same bytes go to every webhook and into every retry (R9, R22).
///
/// `data` is copied as it was published, to the byte: odd spacing, repeated keys and 20-digit numbers survive.
pub fn render_body(id: &EventId, event_type: &EventType, at: Timestamp, data: &RawValue) -> Bytes {
    // An id and a type have no character that JSON would escape, but for '"' and '\' in an id.
    let id = serde_json::to_string(id.as_str()).unwrap_or_default();
    let head = format!(r#"{{"id":{id},"type":"{event_type}","timestamp":"{}","data":"#, timestamp::format(at));
    Bytes::from([&head, data.get(), "}"].concat())
}

/// What makes two publishes of one id the same: the type, the bytes of `data`, and the timestamp where one was given.
pub fn content_hash(event_type: &EventType, data: &RawValue, given: Option<Timestamp>) -> [u8; CONTENT_HASH_BYTES] {
    let given = given.map(timestamp::format).unwrap_or_default();
    let mut context = digest::Context::new(&digest::SHA256);
    for part in [event_type.as_str(), &given, data.get()] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let mut hash = [0; CONTENT_HASH_BYTES];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_two_words_or_more() {
        for good in ["sale.created", "order.item.added", "a-b.c_d", "X1.y2"] {
            assert!(EventType::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "sale", "sale.", ".created", "sale..created", "sale.*", "sale created.x", "売上.作成"] {
            assert!(EventType::parse(bad).is_err(), "{bad}");
        }
        assert!(EventType::parse(format!("a.{}", "b".repeat(MAX_EVENT_TYPE_BYTES - 2))).is_ok());
        assert!(EventType::parse(format!("a.{}", "b".repeat(MAX_EVENT_TYPE_BYTES - 1))).is_err());
    }

    #[test]
    fn patterns_mean_what_they_say() {
        let cases = [
            ("order.created", "order.created", true),
            ("order.created", "order.created.late", false),
            ("order.*", "order.created", true),
            ("order.*", "order.item.added", true),
            ("order.*", "order.", false),
            ("order.*", "orders.created", false),
            ("order.*", "order", false),
            ("*", "anything at all", true),
        ];
        for (pattern, event_type, expected) in cases {
            let parsed = EventPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(event_type), expected, "{pattern} {event_type}");
            assert_eq!(parsed.to_string(), pattern);
            assert_eq!(serde_json::to_value(&parsed).unwrap(), pattern);
        }
        for bad in ["", "order", "*.created", "order.*.x", ".*", "order*"] {
            assert!(EventPattern::parse(bad).is_err(), "{bad}");
        }
        let long = |bytes| EventPattern::parse(format!("{}.*", "x".repeat(bytes - 2)));
        assert!(long(MAX_EVENT_TYPE_BYTES).is_ok());
        assert!(matches!(long(MAX_EVENT_TYPE_BYTES + 2), Err(InvalidEventType::TooLong(_))));
    }

    #[test]
    fn what_others_send_may_be_of_one_word() {
        let word = "x".repeat(MAX_EVENT_TYPE_BYTES);
        for (text, event_type) in [("push", "push"), (&word, &word), ("order.*", "order.created"), ("a.b", "a.b")] {
            assert!(EventPattern::parse_received(text).unwrap().matches(event_type), "{text}");
        }
        for bad in ["", "a b", "*.created", &format!("{word}x")] {
            assert!(EventPattern::parse_received(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_body_keeps_the_published_bytes() {
        let odd = r#"{"b":1, "a":2.0,"z":1,"z":3,"n":29383937493038367292,"e":1e400,"s":"\ud800\u0000"}"#;
        let data: Box<RawValue> = serde_json::from_str(odd).unwrap();
        let id = EventId::parse(r#"a"b\c"#).unwrap();
        let body = render_body(&id, &EventType::parse("sale.created").unwrap(), Timestamp::UNIX_EPOCH, &data);
        let expected =
            format!(r#"{{"id":"a\"b\\c","type":"sale.created","timestamp":"1970-01-01T00:00:00.000Z","data":{odd}}}"#);
        assert_eq!(body, expected);
    }

    #[test]
    fn content_is_type_data_and_given_time() {
        let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).unwrap();
        let (sale, order) = (EventType::parse("sale.created").unwrap(), EventType::parse("order.created").unwrap());
        let base = content_hash(&sale, &raw("{}"), None);
        assert_eq!(base, content_hash(&sale, &raw("{}"), None));
        for other in [
            content_hash(&order, &raw("{}"), None),
            content_hash(&sale, &raw("{ }"), None),
            content_hash(&sale, &raw("{}"), Some(Timestamp::UNIX_EPOCH)),
        ] {
            assert_ne!(base, other);
        }
    }
}
