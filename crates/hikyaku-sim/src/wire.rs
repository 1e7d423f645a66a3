//! All endpoints of the world, and the way there.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, HeaderValue, header::RETRY_AFTER};
use bytes::Bytes;
use hikyaku::clock::Clock;
use hikyaku::outbound::{Request, Response, Transport};
use hikyaku_core::delivery::{FailureKind, Outcome};
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER};
use tokio::time::sleep;

use crate::dice::lock;
use crate::fate::{Fate, Point};
use crate::ledger;
use crate::plant::Plant;
use crate::world::Stage;

/// A share of the requests to good endpoints that go wrong all the same.
const BAD_LUCK: f64 = 0.08;

/// What becomes of a request.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Status(u16, Duration),
    /// It is taken, and no answer comes.
    Hangs,
    /// It is taken, and the connection breaks.
    Cut(Duration),
    /// It never arrives.
    Unreachable(FailureKind),
}

/// One node's way to the endpoints.
pub(crate) struct Wire {
    pub(crate) stage: Arc<Stage>,
    pub(crate) fate: Arc<Fate>,
}

impl Wire {
    fn draw(&self, webhook: &str) -> Answer {
        let dice = &self.stage.dice;
        let now = self.stage.trace.millis();
        let is_down = lock(&self.stage.down_until).get(webhook).is_some_and(|until| now < *until);
        let quick = dice.between(Duration::from_millis(1), Duration::from_millis(300));
        if !is_down && !dice.hits(BAD_LUCK) {
            let slow = if dice.hits(0.05) { quick * 30 } else { quick };
            return Answer::Status(*dice.pick(&[200, 200, 202, 204]).unwrap_or(&200), slow);
        }
        match dice.below(8) {
            0 => Answer::Hangs,
            1 => Answer::Cut(quick),
            2 => Answer::Unreachable(FailureKind::Connect),
            3 => Answer::Unreachable(FailureKind::Dns),
            4 => Answer::Unreachable(FailureKind::Tls),
            _ => Answer::Status(*dice.pick(&[500, 404, 401, 302, 429, 503, 199]).unwrap_or(&500), quick),
        }
    }

    /// The request arrives; gives its place in the ledger.
    fn arrived(&self, request: &Request, wall: jiff::Timestamp) -> usize {
        let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let webhook = webhook_of(request);
        let at = self.stage.trace.millis();
        let mut arrived = ledger::Request {
            at,
            ended: at,
            wall,
            webhook,
            event: text(DELIVERY_HEADER).to_owned(),
            body: request.body.clone(),
            signature: text(SIGNATURE_HEADER).to_owned(),
            status: None,
        };
        self.plant(&mut arrived);
        self.stage.trace.note(format_args!("{} sends {} to {}", self.fate.name, arrived.event, arrived.webhook));
        let wire = &mut lock(&self.stage.ledgers).wire;
        wire.push(arrived);
        wire.len() - 1
    }

    fn plant(&self, arrived: &mut ledger::Request) {
        let stage = &self.stage;
        if stage.plants(Plant::ByteChanged) {
            let mut body = arrived.body.to_vec();
            body.iter_mut().rev().take(2).for_each(|byte| *byte ^= 1);
            arrived.body = Bytes::from(body);
        }
        if stage.plants(Plant::SignatureChanged) {
            arrived.signature.push('0');
        }
        if stage.plants(Plant::Phantom) {
            arrived.event.push_str("-of-nobody");
        }
        if stage.plants(Plant::SentTwice) {
            let twin = arrived.clone();
            lock(&stage.ledgers).wire.push(twin);
        }
        if stage.plants(Plant::SentBeside) {
            let twin = ledger::Request { ended: arrived.at + 1, ..arrived.clone() };
            lock(&stage.ledgers).wire.push(twin);
        }
    }

    fn over(&self, place: usize, status: Option<u16>) {
        let now = self.stage.trace.millis();
        if let Some(request) = lock(&self.stage.ledgers).wire.get_mut(place) {
            (request.ended, request.status) = (now, status);
            self.stage.trace.note(format_args!("{} has {status:?} for {}", request.webhook, request.event));
        }
    }
}

#[async_trait]
impl Transport for Wire {
    async fn post(&self, request: Request) -> Response {
        let wall = self.stage.clock.now();
        self.fate.reach(Point::Sending).await;
        let answer = self.draw(&webhook_of(&request));
        if let Answer::Unreachable(kind) = answer {
            let duration = Duration::from_millis(20);
            sleep(duration).await;
            self.fate.pass(Point::Sent).await;
            return response(Outcome::Failed(kind), duration);
        }
        let (outcome, duration) = match answer {
            Answer::Status(status, after) if after < request.timeout => (Outcome::Answered(status), after),
            Answer::Cut(after) => (Outcome::Failed(FailureKind::Reset), after),
            _ => (Outcome::Failed(FailureKind::Timeout), request.timeout),
        };
        let place = self.arrived(&request, wall);
        sleep(duration).await;
        let status = matches!(outcome, Outcome::Answered(_)).then(|| outcome.http_status());
        self.over(place, status);
        self.fate.pass(Point::Sent).await;
        let is_failure = !outcome.is_success() && status.is_some();
        if is_failure && self.stage.plants(Plant::FailureTakenForSuccess) {
            return response(Outcome::Answered(200), duration);
        }
        response(outcome, duration)
    }
}

fn webhook_of(request: &Request) -> String {
    request.url.host_str().and_then(|host| host.split('.').next()).unwrap_or_default().to_owned()
}

fn response(outcome: Outcome, duration: Duration) -> Response {
    let mut headers = HeaderMap::new();
    if outcome == Outcome::Answered(503) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("120"));
    }
    let error = if outcome.http_status() == 0 { "the simulation's network".to_owned() } else { String::new() };
    Response { outcome, error, headers, body: Bytes::new(), duration }
}
