//! From JSON to PostgreSQL without changing a value (case 3: `29383937493038367292` survives in a `numeric`).
//!
//! A value goes to the database as text and is read there by its column's own type, so that every type's input works and
//! nothing passes through a binary number of ours.

use std::error::Error;

use bytes::BytesMut;
use hikyaku_core::{json, timestamp};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::inbox::destination::sql::decimal::{Decimal, same_number};

/// What a column holds, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// Text of any length.
    Text,
    /// Whole numbers.
    Whole,
    /// Numbers.
    Number,
    /// `true` and `false`.
    Boolean,
    /// Points in time.
    Instant,
    /// Days.
    Day,
    /// JSON as it stands.
    Json,
    /// What has a text form of its own, as `uuid`, `inet`, `interval` and enumerations.
    Other,
}

impl Holds {
    /// By the type's category and name; `None` for types that no JSON value stands for.
    pub(super) fn of(category: &str, name: &str) -> Option<Self> {
        match (category, name) {
            (_, "json" | "jsonb") => Some(Self::Json),
            (_, "bytea" | "money" | "xml" | "tsvector" | "tsquery") => None,
            ("S", _) => Some(Self::Text),
            ("N", "int2" | "int4" | "int8") => Some(Self::Whole),
            ("N", "numeric" | "float4" | "float8") => Some(Self::Number),
            ("B", _) => Some(Self::Boolean),
            ("D", "timestamptz" | "timestamp") => Some(Self::Instant),
            ("D", "date") => Some(Self::Day),
            ("D", "time") | ("E" | "I" | "T" | "U", _) => Some(Self::Other),
            _ => None,
        }
    }

    fn wants(self) -> &'static str {
        match self {
            Self::Text | Self::Json => "any value",
            Self::Whole => "a whole number",
            Self::Number => "a number",
            Self::Boolean => "true or false",
            Self::Instant => "a time as of RFC 3339, or epoch seconds or milliseconds",
            Self::Day => "a day like \"2026-11-30\"",
            Self::Other => "a text",
        }
    }

    /// The text of a JSON value for such a column, `None` for NULL. The error says why it does not fit.
    pub(super) fn text(self, body: &[u8], pointer: &str) -> Result<AsText, String> {
        let json = json::pointer(body, pointer).map(|value| value.get()).filter(|json| *json != "null");
        let Some(json) = json else { return Ok(AsText { text: None, holds: self }) };
        let text = self
            .text_of(json)
            .ok_or_else(|| format!("takes {}, and the value at {pointer:?} is {}", self.wants(), kind_of(json)))?;
        if text.contains('\0') {
            return Err(format!("cannot hold the value at {pointer:?}: PostgreSQL has no character NUL (U+0000)"));
        }
        Ok(AsText { text: Some(text), holds: self })
    }

    fn text_of(self, json: &str) -> Option<String> {
        // A text that holds half of a surrogate pair, which no SQL text can, stands as it does in JSON, with its quotes.
        let string = || json.starts_with('"').then(|| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()));
        let is_number = |text: &str| Decimal::read(text).is_some();
        let text_or_number = || string().or_else(|| is_number(json).then(|| json.to_owned()));
        match self {
            Self::Text => Some(string().unwrap_or_else(|| json.to_owned())),
            Self::Json => Some(json.to_owned()),
            Self::Number => text_or_number().filter(|text| is_number(text)),
            Self::Whole => Decimal::read(&text_or_number()?)?.whole(),
            Self::Boolean => matches!(json, "true" | "false").then(|| json.to_owned()),
            // Microseconds are what the column holds.
            Self::Instant => timestamp::parse(&text_or_number()?).map(|at| format!("{at:.6}")),
            Self::Day | Self::Other => string(),
        }
    }
}

/// The value at `pointer` in a body as a column of text gets it, `None` for NULL.
pub(super) fn plain_text(body: &[u8], pointer: &str) -> Option<String> {
    let json = json::pointer(body, pointer).map(|value| value.get()).filter(|json| *json != "null");
    json.and_then(|json| Holds::Text.text_of(json))
}

fn kind_of(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'"') => "another text",
        Some(b't' | b'f') => "true or false",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        _ => "another number",
    }
}

/// A value as text, to be read by its column's type.
#[derive(Debug)]
pub(super) struct AsText {
    text: Option<String>,
    holds: Holds,
}

impl AsText {
    /// The text; `None` for NULL.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Whether the column kept it: nothing changed but its spelling. Only asked where a column may change a value in silence.
    pub(super) fn is_whole_as(&self, stored: Option<&str>) -> bool {
        match (&self.text, stored, self.holds) {
            (Some(bound), Some(stored), Holds::Number | Holds::Whole) => same_number(bound, &stored.replace("e+", "e")),
            (Some(bound), Some(stored), Holds::Instant) => {
                // The session's zone is UTC.
                let stored = stored.strip_suffix("+00").unwrap_or(stored).replace(' ', "T") + "Z";
                timestamp::parse(bound) == timestamp::parse(&stored)
            }
            (bound, stored, _) => bound.as_deref() == stored,
        }
    }
}

impl ToSql for AsText {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.text else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
