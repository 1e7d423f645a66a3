//! The sandbox as the provider, and both ways between it and the nodes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use hikyaku::clock::SharedClock;
use hikyaku::inbox::Received;
use hikyaku::outbound::{Exchange, Request, Response};
use hikyaku::provider_api::Credential;
use hikyaku::reconcile::adapter::{Kind, Lister, What};
use hikyaku::reconcile::{Settings, Watch};
use hikyaku::sandbox::engine::{Manner, Outgoing};
use hikyaku::sandbox::faults::Plan;
use hikyaku::sandbox::{self, Courier, Receiver, Sandbox, message, world};
use hikyaku::store::ReconcileKey;
use hikyaku_core::delivery::{FailureKind, Outcome};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ordering::Version;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use hikyaku_core::signature::receiptroller::sign;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::dice::lock;
use crate::fate::{Fate, Point};
use crate::ledger;
use crate::node::organization;
use crate::plant::Plant;
use crate::world::{Stage, start};

pub(crate) const SOURCE: &str = "shop";
pub(crate) const PROVIDER: &str = "receiptroller";
pub(crate) const SECRET: &str = "a secret of the simulation";
/// Largest answer of the sandbox that is taken, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// A share of the requests that get lost, on the way there or on the way back.
const BAD_LUCK: f64 = 0.03;
/// What the provider does wrong: more often than its own plan of everything, since a day here has few events.
const PLAN: &str = r#"
fault = [
    { kind = "duplicate", share = 0.1 },
    { kind = "reorder", share = 0.1 },
    { kind = "delay", share = 0.05, by = "40m" },
    { kind = "drop", share = 0.05 },
    { kind = "tampered", share = 0.03 },
    { kind = "unsigned", share = 0.03 },
    { kind = "wrong-signature", share = 0.03 },
    { kind = "odd-json", share = 0.03 },
    { kind = "equal-timestamps", share = 0.1 },
    { kind = "late-sale", share = 0.05, by = "2h" },
    { kind = "restart", every = "5h 7m" },
    { kind = "burst", every = "11h", count = 5 },
    { kind = "api-errors", every = "7h", by = "5m" },
    { kind = "api-limit", every = "13h", by = "5m" },
    { kind = "shifting-pages", at = "9h", by = "30m" },
]
"#;

fn url(text: &str) -> Url {
    Url::parse(text).expect("the simulation's addresses are good")
}

/// The reconciliation's name in the store.
pub(crate) fn key() -> ReconcileKey {
    ReconcileKey { organization: organization(), name: ledger::SALES.into() }
}

pub(crate) fn open(seed: u64, real: SharedClock, courier: Arc<dyn Courier>) -> Arc<Sandbox> {
    let settings = sandbox::Settings {
        world: world::Settings { seed, sales_per_hour: 1.5, orders_per_hour: 0.4, ..world::Settings::default() },
        plan: Plan::parse(PLAN).expect("the plan of the simulation is one"),
        retries: RetrySchedule::default(),
        attempt_timeout: sandbox::ATTEMPT_TIMEOUT,
        time_scale: 1,
        start: start(),
        user_name: "sim".into(),
        password: Secret::new("sim"),
        receivers: vec![Receiver {
            url: url("https://here.example/in/shop"),
            secret: Secret::new(SECRET),
            events: vec![EventPattern::All],
        }],
    };
    Sandbox::new(settings, real, courier)
}

pub(crate) fn reconciliation() -> Settings {
    let at = |path: &str| url(&format!("https://shop.example{path}"));
    let (user, password) = ("sim".into(), Secret::new("sim"));
    Settings {
        name: key().name,
        organization: organization(),
        source: SOURCE.into(),
        provider: PROVIDER.into(),
        list: Kind::ReceiptRoller(Lister {
            base: at(""),
            organization: "org-sandbox".into(),
            what: What::Transactions,
            page_items: 5,
        }),
        credential: Some(Credential::Login { url: at("/account/login"), user, password }),
        timeout: Settings::DEFAULT_TIMEOUT,
        every: Duration::from_secs(6 * 3600),
        daily: None,
        // The plan's sales are listed up to two hours late, and the wall clock may be ahead by more than one.
        overlap: Duration::from_secs(4 * 3600),
        lookback: Settings::DEFAULT_LOOKBACK,
        call_budget: 1_000_000,
        watch: Some(Watch {
            list: at("/org-sandbox/webhooks"),
            update: at("/org-sandbox/webhook/update"),
            webhook: None,
            every: Watch::DEFAULT_EVERY,
            reenable: true,
        }),
    }
}

/// The keys of all sales that the provider has.
pub(crate) fn listed(sandbox: &Sandbox) -> BTreeSet<String> {
    let engine = sandbox.engine();
    let sales = engine.world.sales_between(Timestamp::MIN, Timestamp::MAX, Timestamp::MAX);
    sales.iter().filter_map(|sale| Some(sale.data.value()["id"].as_str()?.to_owned())).collect()
}

/// Brings the provider's requests to whichever node answers.
pub(crate) struct Post(pub(crate) Arc<Stage>);

impl Post {
    /// We answered 200.
    fn accepted(&self, outgoing: &Outgoing) {
        let event = &outgoing.attempt.event;
        self.0.trace.note(format_args!("we have {}", event.id));
        let mut ledgers = lock(&self.0.ledgers);
        if matches!(outgoing.manner, Manner::Tampered | Manner::Unsigned | Manner::WrongSignature) {
            ledgers.forged += 1;
        } else if ledgers.received.iter().all(|known| known.id != event.id) {
            ledgers.received.push(ledger::Received {
                id: event.id.clone(),
                key: event.key.clone(),
                version: Version::new(event.timestamp, &event.event_type, event.id.clone()),
                event_type: event.event_type.clone(),
                body: event.body.clone(),
            });
        }
    }

    fn bring(&self, outgoing: &Outgoing) -> (HeaderMap, Bytes) {
        let (mut headers, mut body) = message(outgoing);
        if outgoing.manner == Manner::Plain && self.0.plants(Plant::ReceiptChanged) {
            body = Bytes::from([&body[..], b"\n"].concat());
            let signature = sign(&Secret::new(SECRET), &body).parse();
            headers.insert("x-rr-signature", signature.expect("a signature is visible ASCII"));
        }
        (headers, body)
    }
}

#[async_trait]
impl Courier for Post {
    async fn send(&self, outgoing: &Outgoing, patience: Duration) -> Outcome {
        let stage = &self.0;
        sleep(stage.dice.between(Duration::from_millis(1), Duration::from_millis(80))).await;
        let Some(node) = stage.any_node().filter(|node| !node.fate.is_away()) else {
            return Outcome::Failed(FailureKind::Connect);
        };
        if stage.dice.hits(BAD_LUCK) {
            return Outcome::Failed(FailureKind::Reset);
        }
        if outgoing.manner == Manner::Plain && stage.plants(Plant::ReceiptForgotten) {
            self.accepted(outgoing);
            return Outcome::Answered(200);
        }
        let (headers, body) = self.bring(outgoing);
        let received = timeout(patience, node.inbox.receive(SOURCE, &headers, body)).await;
        let outcome = match received {
            _ if node.fate.is_away() => return Outcome::Failed(FailureKind::Timeout),
            Err(_) => return Outcome::Failed(FailureKind::Timeout),
            Ok(Ok(Received::Stored | Received::Duplicate)) => {
                self.accepted(outgoing);
                Outcome::Answered(200)
            }
            Ok(Ok(Received::Unauthorized(_))) => Outcome::Answered(401),
            Ok(Ok(_)) => Outcome::Answered(404),
            Ok(Err(_)) => Outcome::Answered(503),
        };
        if stage.dice.hits(BAD_LUCK) { Outcome::Failed(FailureKind::Timeout) } else { outcome }
    }
}

/// One node's way to the provider's API.
pub(crate) struct Api {
    pub(crate) stage: Arc<Stage>,
    pub(crate) fate: Arc<Fate>,
}

impl Api {
    /// A page of the list, without the sale that it keeps from us: one that no delivery has brought.
    fn listed(&self, page: Bytes) -> Bytes {
        let Ok(mut list) = serde_json::from_slice::<Value>(&page) else { return page };
        let Some(items) = list["items"].as_array_mut() else { return page };
        let has_come = |key: &str| lock(&self.stage.ledgers).received.iter().any(|delivery| delivery.key == key);
        let is_kept = |key: &str| !has_come(key) && self.stage.plants_into(Plant::ListForgets, key);
        let Some(place) = items.iter().position(|item| item["id"].as_str().is_some_and(is_kept)) else { return page };
        items.remove(place);
        let total = list["totalItems"].as_u64().unwrap_or_default();
        list["totalItems"] = total.saturating_sub(1).into();
        list.to_string().into()
    }
}

#[async_trait]
impl Exchange for Api {
    async fn exchange(&self, method: Method, request: Request, _: usize) -> Response {
        self.fate.pass(Point::Sending).await;
        let answer = |outcome, headers, body| Response {
            outcome,
            error: String::new(),
            headers,
            body,
            duration: Duration::ZERO,
        };
        let nothing = || (HeaderMap::new(), Bytes::new());
        let is_list = request.url.path().ends_with("/transactions");
        if is_list && self.stage.plants_into(Plant::ListSilent, request.url.path()) {
            let (headers, body) = nothing();
            return answer(Outcome::Answered(500), headers, body);
        }
        if self.stage.dice.hits(BAD_LUCK) {
            let (headers, body) = nothing();
            return answer(Outcome::Failed(FailureKind::Reset), headers, body);
        }
        let Some(router) = self.stage.router() else { std::future::pending().await };
        let mut asked = axum::http::Request::new(Body::from(request.body));
        *asked.method_mut() = method;
        *asked.headers_mut() = request.headers;
        *asked.uri_mut() = request.url.as_str().parse().unwrap_or_default();
        let Ok(answered) = TowerToHyperService::new(router).call(asked).await;
        let (head, body) = answered.into_parts();
        let body = to_bytes(body, MAX_ANSWER_BYTES).await.unwrap_or_default();
        let body = if is_list { self.listed(body) } else { body };
        self.fate.pass(Point::Sent).await;
        answer(Outcome::Answered(head.status.as_u16()), head.headers, body)
    }
}
