//! What a handler takes from a request's head: the ids in its path and the parameters of its query.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use data_encoding::BASE64URL_NOPAD;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::timestamp;
use jiff::Timestamp;
use ring::digest::{Context, SHA256};
use url::form_urlencoded;

use super::page::Cursor;
use super::problem::{FieldError, Kind, Problem};

/// Rows of a page where the query does not say.
const DEFAULT_PAGE_ROWS: u32 = 50;
/// Most rows of a page.
const MAX_PAGE_ROWS: u32 = 200;

/// The named parts of a path, percent-decoded: an id with a `/` arrives whole when it was sent as `%2F`.
pub(super) struct InPath(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if !is_encoded(parts.uri.path()) {
            let detail =
                "The path has a \"%\" without two hexadecimal digits behind it; a \"%\" itself is written %25.";
            return Err(Problem::new(Kind::InvalidPath, detail));
        }
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::new(Kind::InvalidPath, format!("{}.", error.body_text())))?;
        Ok(Self(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

/// Whether every `%` of a path begins an encoded byte. What is not decoded is no id that anybody meant.
fn is_encoded(path: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let mut rests = path.split('%').skip(1).map(str::as_bytes);
    rests.all(|rest| is_hex(rest.first()) && is_hex(rest.get(1)))
}

impl InPath {
    /// The part with this name, as the router calls it; empty if the route has none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Whose things the request is about.
    pub(super) fn organization(&self) -> Result<OrganizationId, Problem> {
        let name = self.text("organization");
        OrganizationId::parse(name)
            .map_err(|error| Problem::new(Kind::InvalidPath, format!("The organization {name:?} {error}.")))
    }

    /// The webhook's id. A text that cannot be one names no webhook.
    pub(super) fn webhook(&self, organization: &OrganizationId) -> Result<WebhookId, Problem> {
        let id = self.text("webhook");
        WebhookId::parse(id).map_err(|_| Problem::not_found("webhook", id, organization))
    }

    /// The event's id. A text that cannot be one names no event.
    pub(super) fn event(&self, organization: &OrganizationId) -> Result<EventId, Problem> {
        let id = self.text("event");
        EventId::parse(id).map_err(|_| Problem::not_found("event", id, organization))
    }
}

/// Bytes of a digest that bind a cursor to its list; three bytes are four characters.
const BINDING_BYTES: usize = 9;

/// The parameters of a query string, decoded. As in forms, `+` stands for a space.
pub(super) struct Query {
    path: String,
    parameters: Vec<(String, String)>,
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let path = parts.uri.path().to_owned();
        Ok(Self { path, parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect() })
    }
}

impl Query {
    /// Refuses parameters that are not among `known`, are given twice, or are no UTF-8: a misspelt filter that is
    /// passed over would show the wrong rows.
    pub(super) fn only(self, known: &[&str]) -> Result<Self, Problem> {
        let mut errors = Vec::new();
        for (at, (name, value)) in self.parameters.iter().enumerate() {
            let earlier = &self.parameters[..at];
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() {
                    "no parameter is".to_owned()
                } else {
                    format!("known are {}", known.join(", "))
                };
                errors.push(FieldError::new(name, &format!("is not known here; {known}")));
            } else if earlier.iter().any(|(other, _)| other == name) {
                errors.push(FieldError::new(name, "is given more than once"));
            } else if value.contains(char::REPLACEMENT_CHARACTER) {
                errors.push(FieldError::new(name, "is not UTF-8"));
            }
        }
        if errors.is_empty() { Ok(self) } else { Err(Problem::of_fields(Kind::InvalidQuery, errors)) }
    }

    /// The parameter with this name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The parameter with this name, as what `parse` makes of it; `expected` says what that is.
    pub(super) fn parse<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => {
                let error = FieldError::new(name, &format!("must be {expected}, not {text:?}"));
                Err(Problem::of_fields(Kind::InvalidQuery, vec![error]))
            }
        }
    }

    /// A point in time (case 18). A space is refused by name: it is what an unescaped `+` of an offset becomes, and must
    /// never turn into another window in silence.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        let expected = "a time such as 2026-11-30T09:15:00Z or epoch milliseconds";
        let hint = if self.text(name).is_some_and(|text| text.contains(' ')) {
            "; a \"+\" in a query string means a space: write it as %2B"
        } else {
            ""
        };
        let read = |text: &str| timestamp::parse(text).filter(|_| !text.contains(' '));
        let at = self.parse(name, &format!("{expected}{hint}"), read)?;
        // What is finer than a millisecond is not kept of any event either.
        Ok(at.and_then(|at| Timestamp::from_millisecond(at.as_millisecond()).ok()))
    }

    /// `limit`: how many rows a page has.
    pub(super) fn limit(&self) -> Result<u32, Problem> {
        let in_range = |text: &str| text.parse().ok().filter(|limit| (1..=MAX_PAGE_ROWS).contains(limit));
        let limit = self.parse("limit", &format!("a whole number from 1 to {MAX_PAGE_ROWS}"), in_range)?;
        Ok(limit.unwrap_or(DEFAULT_PAGE_ROWS))
    }

    /// `cursor`: where the page begins. That of another list, or of this one with other filters, is none.
    pub(super) fn cursor<T>(&self, decode: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Problem> {
        let own = |text: &str| text.strip_prefix(&self.binding()).and_then(decode);
        self.parse("cursor", "the nextCursor of an earlier page of this list, asked for with the same filters", own)
    }

    /// A place in this list as it is handed out: only this list takes it back, with the same filters.
    pub(super) fn next(&self, place: &impl Cursor) -> String {
        self.binding() + &place.encode()
    }

    /// What stands for this list and its filters at the beginning of its cursors. How long a page is may change.
    fn binding(&self) -> String {
        let mut parameters: Vec<_> =
            self.parameters.iter().filter(|(name, _)| name != "cursor" && name != "limit").collect();
        parameters.sort();
        let mut digest = Context::new(&SHA256);
        let texts = parameters.into_iter().flat_map(|(name, value)| [name, value]);
        for text in [&self.path].into_iter().chain(texts) {
            digest.update(&(text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        }
        BASE64URL_NOPAD.encode(&digest.finish().as_ref()[..BINDING_BYTES])
    }
}
