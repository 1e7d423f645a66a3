//! What the tests of destinations share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;
use jiff::Timestamp;

use super::{Origin, Tools};
use crate::clock::SystemClock;
use crate::outbound::{Request, Response, Transport};
use crate::store::WorkRow;

/// Answers as it is told, and keeps what it was asked.
pub(super) struct Scripted {
    answer: Box<dyn Fn(usize) -> Response + Send + Sync>,
    pub(super) requests: Mutex<Vec<Request>>,
}

impl Scripted {
    /// One that makes its answers from how many requests came before.
    pub(super) fn new(answer: impl Fn(usize) -> Response + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { answer: Box::new(answer), requests: Mutex::default() })
    }
}

#[async_trait]
impl Transport for Scripted {
    async fn post(&self, request: Request) -> Response {
        let mut requests = self.requests.lock().unwrap();
        requests.push(request);
        (self.answer)(requests.len() - 1)
    }
}

/// An answer with a body.
pub(super) fn answered(status: u16, body: &'static str) -> Response {
    Response {
        outcome: Outcome::Answered(status),
        error: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::from_static(body.as_bytes()),
        duration: Duration::ZERO,
    }
}

/// Tools over a transport; the source `shop` is acme's, of ReceiptRoller's.
pub(super) fn tools(transport: Arc<dyn Transport>, effect_timeout: Duration) -> Tools {
    let organization = OrganizationId::parse("acme").unwrap();
    let origin = Origin { organization, provider: "receiptroller".into() };
    Tools {
        transport,
        clock: Arc::new(SystemClock::start()),
        effect_timeout,
        origins: Arc::new([("shop".into(), origin)].into()),
    }
}

/// A row of the source `shop`, sent out at a quarter past nine (UTC) and received a second later.
pub(super) fn row(delivery: &str, event_type: &str, key: &str, body: &str) -> WorkRow {
    let at: Timestamp = "2026-11-30T09:15:00.250Z".parse().unwrap();
    WorkRow {
        delivery: delivery.into(),
        source: "shop".into(),
        event_type: event_type.into(),
        key: key.into(),
        version: Version::new(at, event_type, delivery),
        failures: 0,
        received_at: at + Duration::from_secs(1),
        due_since: at,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}
