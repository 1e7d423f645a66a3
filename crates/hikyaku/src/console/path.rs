//! What stands in a page's path, and what it asks for in its query.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use url::form_urlencoded;

use super::page::Failure;
use crate::client::segment;

/// The named parts of a path, percent-decoded.
pub(super) struct InPath(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Failure::Nothing)?;
        Ok(Self(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
    }
}

impl InPath {
    /// The part with this name; empty where the route has none.
    pub(super) fn text(&self, name: &str) -> &str {
        let value = self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
        value.strip_prefix(MARK).unwrap_or(value)
    }

    /// The organization that the page is about.
    pub(super) fn organization(&self) -> String {
        self.text("organization").to_owned()
    }

    /// Where the API keeps the organization's things, with further parts, each of them one segment.
    pub(super) fn api(&self, parts: &[&str]) -> String {
        of_api(self.text("organization"), parts)
    }

    /// Where the console shows them.
    pub(super) fn console(&self, parts: &[&str]) -> String {
        below(&below("/console/o", &[self.text("organization")]), parts)
    }
}

/// Where the API keeps an organization's things.
pub(super) fn of_api(organization: &str, parts: &[&str]) -> String {
    let base = format!("/v1/organizations/{}", segment(organization));
    parts.iter().fold(base, |path, part| format!("{path}/{}", segment(part)))
}

/// Stands before a segment of the console's paths that a browser would take for a step in the path, whichever way it is
/// written (`.` and `..`), and before one that begins with itself.
const MARK: char = '~';

/// A path of the console with further segments.
pub(super) fn below(base: &str, parts: &[&str]) -> String {
    let marked = |part: &str| matches!(part, "." | "..") || part.starts_with(MARK);
    parts.iter().fold(base.to_owned(), |path, part| match marked(part) {
        true => format!("{path}/{MARK}{}", segment(part)),
        false => format!("{path}/{}", segment(part)),
    })
}

/// A page's query. What is given and empty counts as not given, because that is how forms send it.
pub(super) struct InQuery(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for InQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let given = form_urlencoded::parse(query.as_bytes()).into_owned();
        Ok(Self(given.filter(|(_, value)| !value.trim().is_empty()).collect()))
    }
}

impl InQuery {
    /// That asks for nothing.
    pub(super) fn empty() -> Self {
        Self(Vec::new())
    }

    /// A parameter's value; empty where it is not given.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }

    /// Those of the named parameters that are given, as a query for the API.
    pub(super) fn only(&self, names: &[&str]) -> String {
        let given = names.iter().map(|name| (*name, self.text(name))).filter(|(_, value)| !value.is_empty());
        query(given)
    }
}

/// Parameters as they stand in a URL.
pub(super) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        query.append_pair(name, value);
    }
    query.finish()
}
