//! Forwards the bytes as they came to an HTTP server, at least once, with the same idempotency key every time.

use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::signature::Secret;
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER, sign};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use url::Url;

use super::{Destination, Effect, Tools};
use crate::inbox::hash_id;
use crate::outbound::{Request, Response};
use crate::store::WorkRow;

/// The header that lets a server recognise a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Forwards rows to one URL.
pub(super) struct HttpDestination {
    url: Url,
    secret: Option<Secret>,
    tools: Tools,
}

impl HttpDestination {
    pub(super) fn new(url: Url, secret: Option<Secret>, tools: Tools) -> Self {
        Self { url, secret, tools }
    }

    fn request(&self, row: &WorkRow) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(IDEMPOTENCY_KEY, idempotency_key(row));
        if let Some(delivery) = header_value(&row.delivery) {
            headers.insert(DELIVERY_HEADER, delivery);
        }
        let signature = self.secret.as_ref().and_then(|secret| header_value(&sign(secret, &row.body)));
        if let Some(signature) = signature {
            headers.insert(SIGNATURE_HEADER, signature);
        }
        // A little less than the whole effect, so that the better explained of the two timeouts comes first.
        let timeout = self.tools.effect_timeout * 9 / 10;
        Request { url: self.url.clone(), headers, body: row.body.clone(), timeout }
    }
}

#[async_trait]
impl Destination for HttpDestination {
    async fn apply(&self, row: &WorkRow) -> Effect {
        let response = self.tools.transport.post(self.request(row)).await;
        match response.outcome {
            Outcome::Answered(status @ 200..=299) => Effect::Done(format!("answered {status}")),
            Outcome::Answered(status) => Effect::Failed {
                error: format!("answered {status}"),
                retry_after: retry_after(status, &response, self.tools.clock.now()),
            },
            Outcome::Failed(_) => Effect::Failed { error: response.error, retry_after: None },
        }
    }
}

/// The same for every try of a row, and different for any two rows: ids are unique per source only.
fn idempotency_key(row: &WorkRow) -> HeaderValue {
    let key = format!("{}:{}", row.source, row.delivery);
    let hashed = || header_value(&hash_id(key.as_bytes())).unwrap_or(HeaderValue::from_static("unknown"));
    header_value(&key).unwrap_or_else(hashed)
}

/// A text as a header's value, if all of it is visible ASCII.
fn header_value(text: &str) -> Option<HeaderValue> {
    text.bytes().all(|b| b.is_ascii_graphic()).then(|| HeaderValue::from_str(text).ok())?
}

/// How long the server asks us to wait, in seconds or until an HTTP date; only an overloaded one may ask.
fn retry_after(status: u16, response: &Response, now: Timestamp) -> Option<Duration> {
    if !matches!(status, 429 | 503) {
        return None;
    }
    let text = response.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(at.duration_since(now)).ok()
}

#[cfg(test)]
mod tests;
