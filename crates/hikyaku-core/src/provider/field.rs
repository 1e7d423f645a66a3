//! Where a delivery says something about itself.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

use super::Headers;
use crate::json;

/// Longest name of a header, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// How a part of the signature's header is written in the configuration: `signature:t=`.
const PART: &str = "signature:";

/// A place in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// The header of this name.
    Header(String),
    /// What this JSON pointer names in the body.
    Pointer(String),
    /// In the signature's header, among its parts, the rest of the one that begins with this.
    Part(String),
}

/// Why a text names no place in a delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a header's name like \"x-event-id\", a JSON pointer like \"/data/id\", or \"signature:\" and what begins a \
     part of the signature's header like \"signature:t=\", not {0:?}"
)]
pub struct InvalidField(String);

impl Field {
    /// Takes a header's name, a JSON pointer or `signature:PREFIX`.
    pub fn parse(text: &str) -> Result<Self, InvalidField> {
        let invalid = || InvalidField(text.chars().take(MAX_NAME_BYTES).collect());
        if text.starts_with('/') && json::is_pointer(text) {
            return Ok(Self::Pointer(text.to_owned()));
        }
        match text.strip_prefix(PART) {
            Some(prefix) if !prefix.is_empty() && prefix.is_ascii() => Ok(Self::Part(prefix.to_owned())),
            Some(_) => Err(invalid()),
            None if is_header_name(text) => Ok(Self::Header(text.to_ascii_lowercase())),
            None => Err(invalid()),
        }
    }

    /// What stands in this place as text; `None` if there is nothing, it is no text, or it stands there twice.
    pub(super) fn text<'a>(&self, headers: &Headers<'a>, parts: &[&'a str], body: &[u8]) -> Option<Cow<'a, str>> {
        self.text_by(headers, parts, |path| json::pointer(body, path))
    }

    /// The same where the body has been looked into: `value` gives what a pointer names in it.
    pub(super) fn text_by<'a, 'b>(
        &self,
        headers: &Headers<'a>,
        parts: &[&'a str],
        value: impl FnOnce(&str) -> Option<&'b RawValue>,
    ) -> Option<Cow<'a, str>> {
        match self {
            Self::Header(name) => {
                headers.only(name).and_then(|value| std::str::from_utf8(value).ok()).map(Cow::Borrowed)
            }
            Self::Pointer(path) => value(path).and_then(json::text_or_number).map(Cow::Owned),
            Self::Part(prefix) => {
                let mut values = parts.iter().filter_map(|part| part.strip_prefix(prefix.as_str()));
                values.next().filter(|_| values.next().is_none()).map(Cow::Borrowed)
            }
        }
    }

    /// The pointer, if this is one.
    pub(super) fn pointer(&self) -> Option<&str> {
        match self {
            Self::Pointer(path) => Some(path),
            Self::Header(_) | Self::Part(_) => None,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => f.write_str(name),
            Self::Pointer(pointer) => f.write_str(pointer),
            Self::Part(prefix) => write!(f, "{PART}{prefix}"),
        }
    }
}

/// Whether a text is a header's name as HTTP defines it.
pub(super) fn is_header_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.bytes().all(allowed)
}
