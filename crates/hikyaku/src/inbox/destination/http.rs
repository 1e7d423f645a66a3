//! Forwards the bytes as they came to an HTTP server, at least once, with the same idempotency key every time.

use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::signature::standard::{self, SigningKey};
use hikyaku_core::signature::{Scheme, Secret, receiptroller};
use hikyaku_core::webhook::CustomHeaders;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use url::{Position, Url};

use super::{Destination, Effect, HIDDEN, Tools};
use crate::inbox::hash_id;
use crate::outbound::{Request, Response};
use crate::store::WorkRow;

/// The header that lets a server recognise a repeated request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest first part of a path that is shown, in bytes: a word, and no token.
const MAX_SHOWN_PART_BYTES: usize = 16;

/// A URL as people may see it: its host and the first part of its path. What follows may be as good as a password (S19).
pub(crate) fn shown_url(url: &Url) -> String {
    let (base, path) = (&url[..Position::BeforePath], &url[Position::BeforePath..]);
    let first = path[1..].find(['/', '?']).map_or(path.len(), |at| at + 1);
    let shown = if first <= 1 + MAX_SHOWN_PART_BYTES { &path[..first] } else { "" };
    match path.len() - shown.len() {
        0 => url.to_string(),
        hidden => format!("{base}{}/(hidden:{hidden}-bytes)", shown.trim_end_matches('/')),
    }
}

/// An HTTP destination as configured.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where to. The operator chose it, so no address is refused.
    pub url: Url,
    /// Signs what is forwarded; `None` sends it unsigned.
    pub secret: Option<Secret>,
    /// How it is signed.
    pub scheme: Scheme,
    /// Headers of the operator's own (S12).
    pub headers: CustomHeaders,
}

/// Forwards rows to one URL.
pub(super) struct HttpDestination {
    url: Url,
    signer: Option<Signer>,
    headers: HeaderMap,
    tools: Tools,
}

/// What signs, with its scheme.
enum Signer {
    ReceiptRoller(Secret),
    Standard(SigningKey),
}

impl Signer {
    fn new(scheme: Scheme, secret: Secret) -> Result<Self, String> {
        let key = match scheme {
            Scheme::ReceiptRoller => return Ok(Self::ReceiptRoller(secret)),
            Scheme::StandardWebhooks => SigningKey::hmac(&secret),
            Scheme::StandardWebhooksEd25519 => SigningKey::ed25519(&secret),
        };
        key.map(Self::Standard).map_err(|error| format!("its secret {error}"))
    }

    fn sign(&self, headers: &mut HeaderMap, id: &HeaderValue, body: &[u8], now: Timestamp) {
        let mut say = |name: &'static str, value: &str| {
            // Hexadecimal, Base64 and digits are visible ASCII.
            header_value(value).map(|value| headers.insert(name, value));
        };
        match self {
            Self::ReceiptRoller(secret) => say(receiptroller::SIGNATURE_HEADER, &receiptroller::sign(secret, body)),
            Self::Standard(key) => {
                let (id, at) = (id.to_str().unwrap_or_default(), now.as_second());
                say(standard::ID_HEADER, id);
                say(standard::TIMESTAMP_HEADER, &at.to_string());
                // Its comma and equals signs are visible too.
                say(standard::SIGNATURE_HEADER, &key.sign(id, at, body));
            }
        }
    }
}

impl HttpDestination {
    pub(super) fn open(settings: HttpSettings, tools: Tools) -> Result<Self, String> {
        let HttpSettings { url, secret, scheme, headers } = settings;
        let signer = secret.map(|secret| Signer::new(scheme, secret)).transpose()?;
        let parsed = |(name, value): (&str, &str)| Some((name.parse::<HeaderName>().ok()?, value.parse().ok()?));
        let headers = headers.iter().filter_map(parsed).collect();
        Ok(Self { url, signer, headers, tools })
    }

    fn request(&self, row: &WorkRow) -> Request {
        // The operator's come first, so that ours are what holds.
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let key = idempotency_key(row);
        if let Some(delivery) = header_value(&row.delivery) {
            headers.insert(receiptroller::DELIVERY_HEADER, delivery);
        }
        if let Some(signer) = &self.signer {
            signer.sign(&mut headers, &key, &row.body, self.tools.clock.now());
        }
        headers.insert(IDEMPOTENCY_KEY, key);
        Request { url: self.url.clone(), headers, body: row.body.clone(), timeout: self.tools.patience() }
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

    fn preview(&self, row: &WorkRow) -> Result<String, String> {
        let Request { headers, body, .. } = self.request(row);
        let url = shown_url(&self.url);
        let shown = |name, value: &HeaderValue| match self.headers.get(name) == Some(value) {
            // The operator's own may be a password (S19).
            true => HIDDEN.to_owned(),
            false => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {}\n", shown(name, value))).collect();
        Ok(format!("POST {url}\n{headers}and the {} bytes of the body", body.len()))
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
pub(super) fn retry_after(status: u16, response: &Response, now: Timestamp) -> Option<Duration> {
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
