//! What stands in the network's place between a shop and us.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Method;
use hikyaku_core::delivery::{FailureKind, Outcome};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;

use crate::clock::SharedClock;
use crate::inbox::{Inbox, Received};
use crate::outbound::{Exchange, Request, Response, Transport};
use crate::sandbox::engine::Outgoing;
use crate::sandbox::{Courier, message};

/// Largest answer of the sandbox that is taken, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Calls of a router without a network.
#[derive(Default)]
pub(super) struct Direct(pub(super) OnceLock<Router>);

#[async_trait]
impl Exchange for Direct {
    async fn exchange(&self, method: Method, request: Request, _: usize) -> Response {
        let mut asked = axum::http::Request::builder().method(method).uri(request.url.as_str());
        *asked.headers_mut().unwrap() = request.headers;
        let asked = asked.body(Body::from(request.body)).unwrap();
        let answer = TowerToHyperService::new(self.0.get().unwrap().clone()).call(asked).await.unwrap();
        let (head, body) = answer.into_parts();
        Response {
            outcome: Outcome::Answered(head.status.as_u16()),
            error: String::new(),
            headers: head.headers,
            body: to_bytes(body, MAX_ANSWER_BYTES).await.unwrap(),
            duration: Duration::ZERO,
        }
    }
}

/// Nobody sends anything in these tests but the sandbox.
pub(super) struct NoTransport;

#[async_trait]
impl Transport for NoTransport {
    async fn post(&self, _: Request) -> Response {
        let outcome = Outcome::Failed(FailureKind::Reset);
        let (error, headers, body, duration) = Default::default();
        Response { outcome, error, headers, body, duration }
    }
}

/// When the receiver is not there, in hours after the start.
pub(super) type Outages = &'static [std::ops::Range<i64>];

/// Brings deliveries to the inbox, but for those that befalls something.
pub(super) struct Inbound {
    pub(super) inbox: OnceLock<Arc<Inbox>>,
    pub(super) clock: SharedClock,
    pub(super) start: Timestamp,
    pub(super) outages: Outages,
}

#[async_trait]
impl Courier for Inbound {
    async fn send(&self, outgoing: &Outgoing, _: Duration) -> Outcome {
        let hours = self.clock.now().duration_since(self.start).as_secs() / 3600;
        if self.outages.iter().any(|outage| outage.contains(&hours)) {
            return Outcome::Failed(FailureKind::Reset);
        }
        // Some attempts do not come, some are taken and the answer is lost: the same ones for the same seed (R23).
        let luck = outgoing
            .attempt
            .event
            .id
            .bytes()
            .take(2)
            .fold(outgoing.attempt.number, |sum, byte| sum * 31 + u32::from(byte))
            % 40;
        if luck == 0 {
            return Outcome::Failed(FailureKind::Timeout);
        }
        let (headers, body) = message(outgoing);
        let received = self.inbox.get().unwrap().receive("shop", &headers, body).await;
        match received {
            _ if luck == 1 => Outcome::Failed(FailureKind::Timeout),
            Ok(Received::Stored | Received::Duplicate) => Outcome::Answered(200),
            Ok(Received::Unauthorized(_)) => Outcome::Answered(401),
            other => panic!("the sandbox sends only good and badly signed deliveries: {other:?}"),
        }
    }
}
