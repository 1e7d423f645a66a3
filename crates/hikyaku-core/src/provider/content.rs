//! What a signature is computed over: the body, alone or among other things.

use std::fmt;

/// Longest template, in bytes.
const MAX_TEMPLATE_BYTES: usize = 256;

/// A template such as `{id}.{timestamp}.{body}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Id,
    Timestamp,
    Url,
    Body,
}

/// Why a text is no template of what is signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContent {
    /// Something in braces that is none of ours, or a brace alone.
    #[error("has {0:?}; what can stand in braces is {{id}}, {{timestamp}}, {{url}} and {{body}}")]
    Unknown(String),
    /// Nothing of the body would be signed, or it would be signed twice.
    #[error("must have {{body}} exactly once: what is not signed is anybody's to change")]
    Body,
    /// It is longer than it could usefully be.
    #[error("is longer than {MAX_TEMPLATE_BYTES} bytes")]
    TooLong,
}

impl Content {
    /// Takes a template.
    pub fn parse(template: &str) -> Result<Self, InvalidContent> {
        if template.len() > MAX_TEMPLATE_BYTES {
            return Err(InvalidContent::TooLong);
        }
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let (text, braces) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            let end = braces.find('}').map_or(braces.len(), |end| end + 1);
            let (placeholder, after) = braces.split_at(end);
            match placeholder {
                "" => {}
                "{id}" => parts.push(Part::Id),
                "{timestamp}" => parts.push(Part::Timestamp),
                "{url}" => parts.push(Part::Url),
                "{body}" => parts.push(Part::Body),
                other => return Err(InvalidContent::Unknown(other.to_owned())),
            }
            rest = after;
        }
        match parts.iter().filter(|part| **part == Part::Body).count() {
            1 => Ok(Self(parts)),
            _ => Err(InvalidContent::Body),
        }
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Whether the delivery's id is signed.
    pub fn has_id(&self) -> bool {
        self.0.contains(&Part::Id)
    }

    /// Whether a timestamp is signed that does not stand in the body.
    pub fn has_timestamp(&self) -> bool {
        self.0.contains(&Part::Timestamp)
    }

    /// Whether the URL is signed that the provider sends to.
    pub fn has_url(&self) -> bool {
        self.0.contains(&Part::Url)
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| {
            f.write_str(match part {
                Part::Text(text) => text,
                Part::Id => "{id}",
                Part::Timestamp => "{timestamp}",
                Part::Url => "{url}",
                Part::Body => "{body}",
            })
        })
    }
}
