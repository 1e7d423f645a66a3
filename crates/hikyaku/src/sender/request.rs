//! The request of an attempt: made anew for every attempt, and the same every time (R9).

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER, sign};

use crate::outbound::Request;
use crate::store::ClaimedDelivery;

const PRODUCT: HeaderValue = HeaderValue::from_static(concat!("hikyaku/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The request for a delivery: the stored bytes, their signature, and the event's id (R9, R21, R22), to the webhook's
/// present URL.
pub(super) fn request(delivery: &ClaimedDelivery, timeout: Duration) -> Request {
    let signature = sign(&delivery.webhook.secret, &delivery.body);
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, JSON),
        (USER_AGENT, PRODUCT),
        (HeaderName::from_static(DELIVERY_HEADER), visible_ascii(delivery.key.event.as_str())),
        (HeaderName::from_static(SIGNATURE_HEADER), visible_ascii(&signature)),
    ]);
    Request { url: delivery.webhook.url.as_url().clone(), headers, body: delivery.body.clone(), timeout }
}

fn visible_ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("an event id and a signature hold visible ASCII characters only")
}
