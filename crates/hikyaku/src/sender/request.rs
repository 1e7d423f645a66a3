//! The request of an attempt: made anew for every attempt, and by the ReceiptRoller scheme the same every time (R9).

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hikyaku_core::signature::standard::{self, InvalidKey, SigningKey};
use hikyaku_core::signature::{Scheme, Secret, receiptroller};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use crate::outbound::Request;
use crate::store::ClaimedDelivery;
use crate::trace;

const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("hikyaku/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The request for an attempt that begins at `now`, by the wall clock: the stored bytes, their signature, and the event's
/// id (R9, R21, R22), to the webhook's present URL. Our headers are written over the webhook's own (S12).
///
/// # Errors
/// If the webhook's secret does not fit its scheme. What is checked where they are set keeps that from happening.
pub(super) fn request(
    delivery: &ClaimedDelivery,
    timeout: Duration,
    now: Timestamp,
    place: Option<trace::Context>,
) -> Result<Request, InvalidKey> {
    let webhook = &*delivery.webhook;
    let mut headers = own_headers(webhook);
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(USER_AGENT, PRODUCT);
    if let Some(place) = place.filter(|_| webhook.settings.trace_context) {
        headers.insert(HeaderName::from_static(trace::TRACEPARENT), place.header());
    }
    let id = delivery.key.event.as_str();
    headers.insert(HeaderName::from_static(receiptroller::DELIVERY_HEADER), visible_ascii(id));
    for (name, value) in signature(delivery, now)? {
        headers.insert(HeaderName::from_static(name), visible_ascii(&value));
    }
    Ok(Request { url: webhook.url.as_url().clone(), headers, body: delivery.body.clone(), timeout })
}

fn own_headers(webhook: &Webhook) -> HeaderMap {
    let parsed = webhook.settings.headers.iter().filter_map(|(name, value)| {
        // Both were parsed when they were saved.
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    });
    parsed.collect()
}

fn signature(delivery: &ClaimedDelivery, now: Timestamp) -> Result<Vec<(&'static str, String)>, InvalidKey> {
    let ClaimedDelivery { webhook, body, .. } = delivery;
    let key: fn(&Secret) -> Result<SigningKey, InvalidKey> = match webhook.settings.signature {
        Scheme::ReceiptRoller => {
            let secret = webhook.secret_of(delivery.first_attempt_at, now);
            return Ok(vec![(receiptroller::SIGNATURE_HEADER, receiptroller::sign(secret, body))]);
        }
        Scheme::StandardWebhooks => SigningKey::hmac,
        Scheme::StandardWebhooksEd25519 => SigningKey::ed25519,
    };
    let (id, at) = (delivery.key.event.as_str(), now.as_second());
    let signatures = webhook.secrets(now).map(|secret| Ok(key(secret)?.sign(id, at, body)));
    let signatures = signatures.collect::<Result<Vec<_>, _>>()?.join(" ");
    Ok(vec![
        (standard::ID_HEADER, id.to_owned()),
        (standard::TIMESTAMP_HEADER, at.to_string()),
        (standard::SIGNATURE_HEADER, signatures),
    ])
}

fn visible_ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("an event id and a signature hold visible ASCII characters only")
}
