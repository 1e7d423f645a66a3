//! Names of things. Ids of our own are time-ordered (UUIDv7), because an index on random ids is several times dearer;
//! an id that somebody else chose is kept exactly as given.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Longest id we take from anyone, in bytes. An event id travels as a header value (R21), so it has to be short.
pub const MAX_ID_BYTES: usize = 200;
/// Longest organization name, in bytes.
pub const MAX_ORGANIZATION_BYTES: usize = 64;
/// Random bytes in a generated id.
pub const ID_RANDOM_BYTES: usize = 10;

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// It has no characters.
    #[error("must not be empty")]
    Empty,
    /// It is longer than the limit, in bytes.
    #[error("is {actual} bytes long; at most {limit} are allowed")]
    TooLong {
        /// The length given.
        actual: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// It has a character that cannot stand in a header value or a path.
    #[error("contains {0:?}; only {1} are allowed")]
    Character(char, &'static str),
    /// It is "." or "..": whoever asks for it by its path would be led elsewhere, even if it is percent-encoded.
    #[error("is a step in a path, where it has to stand; choose another")]
    PathStep,
}

fn check(text: &str, limit: usize, allowed: fn(char) -> bool, which: &'static str) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.len() > limit {
        return Err(InvalidId::TooLong { actual: text.len(), limit });
    }
    if matches!(text, "." | "..") {
        return Err(InvalidId::PathStep);
    }
    match text.chars().find(|c| !allowed(*c)) {
        Some(c) => Err(InvalidId::Character(c, which)),
        None => Ok(()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $limit:expr, $allowed:expr, $which:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes a text as this id, or says why it cannot be one.
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check(&text, $limit, $allowed, $which)?;
                Ok(Self(text))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

text_id!(
    /// A tenant. Every key in the store begins with it.
    OrganizationId,
    MAX_ORGANIZATION_BYTES,
    |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'),
    "ASCII letters, digits, '_', '-' and '.'"
);
text_id!(
    /// A registered endpoint.
    WebhookId,
    MAX_ID_BYTES,
    |c| c.is_ascii_graphic(),
    "visible ASCII characters"
);
text_id!(
    /// An event; also the `X-RR-Delivery` of all its deliveries and the `id` of its body (R21, R22).
    EventId,
    MAX_ID_BYTES,
    |c| c.is_ascii_graphic(),
    "visible ASCII characters"
);
text_id!(
    /// An API token's name in lists and revocations; it says nothing about the token itself (S16).
    TokenId,
    MAX_ID_BYTES,
    |c| c.is_ascii_graphic(),
    "visible ASCII characters"
);

text_id!(
    /// A recovery of one webhook's events.
    RecoveryId,
    MAX_ID_BYTES,
    |c| c.is_ascii_graphic(),
    "visible ASCII characters"
);

impl EventId {
    /// A new id of ours, ordered by `now`; `random` makes it unique.
    pub fn generate(now: Timestamp, random: [u8; ID_RANDOM_BYTES]) -> Self {
        Self(time_ordered("evt_", now, random))
    }
}

impl WebhookId {
    /// A new id of ours, ordered by `now`; `random` makes it unique.
    pub fn generate(now: Timestamp, random: [u8; ID_RANDOM_BYTES]) -> Self {
        Self(time_ordered("wh_", now, random))
    }
}

impl RecoveryId {
    /// A new id of ours, ordered by `now`; `random` makes it unique.
    pub fn generate(now: Timestamp, random: [u8; ID_RANDOM_BYTES]) -> Self {
        Self(time_ordered("rec_", now, random))
    }

    /// The one recovery of a webhook that nobody asked for: the release of what was held.
    pub fn of_held() -> Self {
        Self("held".to_owned())
    }
}

impl TokenId {
    /// A new id of ours, ordered by `now`; `random` makes it unique.
    pub fn generate(now: Timestamp, random: [u8; ID_RANDOM_BYTES]) -> Self {
        Self(time_ordered("tok_", now, random))
    }
}

/// One event for one webhook.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    /// Whose event it is.
    pub organization: OrganizationId,
    /// What is delivered.
    pub event: EventId,
    /// Where to.
    pub webhook: WebhookId,
}

fn time_ordered(prefix: &str, now: Timestamp, random: [u8; ID_RANDOM_BYTES]) -> String {
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
    format!("{prefix}{}", id.as_simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_cannot_be_a_header_value_is_refused_and_says_why() {
        for (text, reason) in [
            ("", "must not be empty"),
            ("a b", "contains ' '; only visible ASCII characters are allowed"),
            ("a\nb", "contains '\\n'; only visible ASCII characters are allowed"),
            ("領収書", "contains '領'; only visible ASCII characters are allowed"),
            (".", "is a step in a path, where it has to stand; choose another"),
            ("..", "is a step in a path, where it has to stand; choose another"),
        ] {
            assert_eq!(EventId::parse(text).unwrap_err().to_string(), reason, "{text:?}");
        }
        assert!(EventId::parse("x".repeat(MAX_ID_BYTES)).is_ok());
        assert!(EventId::parse("x".repeat(MAX_ID_BYTES + 1)).is_err());
    }

    #[test]
    fn ids_with_bars_empty_parts_and_month_13_are_taken_as_they_are() {
        for text in ["t1|2026-13|9", "||", "a/b?c=%2F"] {
            assert_eq!(EventId::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn generated_ids_sort_by_time() {
        let at = |ms| EventId::generate(Timestamp::from_millisecond(ms).unwrap(), [7; ID_RANDOM_BYTES]);
        assert!(at(1_000) < at(1_001));
        assert!(at(1_001) < at(1_900_000_000_000));
    }
}
