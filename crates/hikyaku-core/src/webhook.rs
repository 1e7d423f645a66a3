//! A registered endpoint, and what a URL must be like to be one.

use std::fmt;

use jiff::Timestamp;
use url::Url;

use crate::event::EventPattern;
use crate::ids::{EventId, OrganizationId, WebhookId};
use crate::signature::Secret;

/// Longest webhook URL, in bytes.
pub const MAX_URL_BYTES: usize = 2048;
/// Most event patterns of one webhook.
pub const MAX_EVENT_PATTERNS: usize = 100;
/// Longest description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 1024;

/// Why a text cannot be a webhook's URL, whatever address it leads to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is longer than [`MAX_URL_BYTES`].
    #[error("is {0} bytes long; at most {MAX_URL_BYTES} are allowed")]
    TooLong(usize),
    /// It is no absolute URL.
    #[error("is not an absolute URL: {0}")]
    NotAUrl(String),
    /// Its scheme is neither http nor https.
    #[error("has the scheme {0:?}; only https (and http where the configuration allows it) can be delivered to")]
    Scheme(String),
    /// It has a user name or password.
    #[error("carries a user name or password; they would end up in logs, so put a token into the path or a header")]
    Credentials,
    /// It has a fragment.
    #[error("has a fragment (#…), which is never sent to a server; remove it")]
    Fragment,
}

/// An absolute http(s) URL with a host, no credentials and no fragment (S3: its host is a typed value).
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    /// Takes a text as a webhook's URL, or says why it cannot be one.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if text.len() > MAX_URL_BYTES {
            return Err(InvalidUrl::TooLong(text.len()));
        }
        let url = Url::parse(text).map_err(|error| InvalidUrl::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidUrl::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidUrl::Credentials);
        }
        if url.fragment().is_some() {
            return Err(InvalidUrl::Fragment);
        }
        Ok(Self(url))
    }

    /// The URL itself.
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Scheme and host only: all that a log may say of a target (S19), since paths and queries carry tokens.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookUrl({}/…)", self.origin())
    }
}

/// Why a webhook is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffReason {
    /// Somebody set `active: false`.
    Paused,
    /// A delivery of this event used up its attempts (R10).
    Exhausted(EventId),
}

/// Since when and why a webhook gets no events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Off {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: OffReason,
}

/// A registered endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Whose it is.
    pub organization: OrganizationId,
    /// Its id.
    pub id: WebhookId,
    /// Where deliveries go.
    pub url: WebhookUrl,
    /// Which events it gets.
    pub events: Vec<EventPattern>,
    /// For people.
    pub description: String,
    /// What deliveries are signed with.
    pub secret: Secret,
    /// `None` while it is active; off, it gets no new events (R12), but retries that wait go on (R14).
    pub off: Option<Off>,
    /// When it was registered.
    pub created_at: Timestamp,
}

impl Webhook {
    /// Whether an event published now is delivered to it.
    pub fn takes(&self, event_type: &str) -> bool {
        self.off.is_none() && self.events.iter().any(|pattern| pattern.matches(event_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_a_webhook_is_refused_and_says_why() {
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL_BYTES));
        for (text, part) in [
            ("ftp://example.com/", "scheme \"ftp\""),
            ("https://user:pass@example.com/", "user name"),
            ("https://user@example.com/", "user name"),
            ("https://:pass@example.com/", "user name"),
            ("https://example.com/#part", "fragment"),
            ("https://example.com/#", "fragment"),
            ("/relative", "not an absolute URL"),
            ("https://", "not an absolute URL"),
            ("", "not an absolute URL"),
            (&long, "at most 2048"),
        ] {
            let error = WebhookUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn s19_a_url_is_printed_without_its_path() {
        let url = WebhookUrl::parse("https://example.com:8443/hook/token?key=1").unwrap();
        assert_eq!(format!("{url:?}"), "WebhookUrl(https://example.com:8443/…)");
        assert_eq!(url.as_str(), "https://example.com:8443/hook/token?key=1");
    }
}
