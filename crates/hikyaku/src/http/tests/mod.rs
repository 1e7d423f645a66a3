//! The API over a real socket, on the memory store, with nobody at the other end of the deliveries.

mod access;
mod deliveries;
mod docs;
mod edges;
mod events;
mod inbox;
mod interventions;
mod log;
mod looks;
mod reconcile;
mod settings;
mod webhooks;

use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::Decision;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, WebhookId};
use hikyaku_core::provider::Preset;
use hikyaku_core::signature::Secret;
use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest::{Body, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;

use super::{Access, LastBacklog, State, router};
use crate::clock::{Clock, SharedClock, SystemClock};
use crate::inbox::{Inbox, OnBadSignature, Settings as InboxSettings, Source};
use crate::outbound::{Client, Request, Resolve, ResolveError, Response, Transport};
use crate::role::Roles;
use crate::sender::{Sender, Settings as SenderSettings};
use crate::store::memory::MemoryStore;
use crate::store::{AttemptRecord, Committer, FinishAttempt, Group, SharedStore, Store};

/// The organization of most tests.
const ACME: &str = "/v1/organizations/acme";
/// The secret of the sources.
const SOURCE_SECRET: &str = "a-secret-of-the-test-sources";
/// Largest body of the test inbox, in bytes.
const MAX_RECEIVED_BYTES: usize = 10_000;
/// Largest event of the test API, in bytes.
const MAX_EVENT_BYTES: usize = 50_000;

/// Serves a router on a free loopback port until the test ends, and says where.
pub(super) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    base
}

/// A running API.
pub(super) struct Api {
    base: String,
    client: reqwest::Client,
    store: Arc<MemoryStore>,
}

/// What it answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: reqwest::header::HeaderMap,
    pub(super) text: String,
}

/// Attempts that never end.
struct Nobody;

#[async_trait]
impl Transport for Nobody {
    async fn post(&self, _: Request) -> Response {
        pending().await
    }
}

/// Knows two names.
struct Names;

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        match name {
            "public.example" => Ok(vec![[8, 8, 8, 8].into()]),
            "private.example" => Ok(vec![[8, 8, 8, 8].into(), [10, 0, 0, 1].into()]),
            _ => pending().await,
        }
    }
}

fn source(name: &str, provider: &str, organization: &str) -> Source {
    Source {
        notify: None,
        name: name.to_owned(),
        provider: provider.to_owned(),
        organization: OrganizationId::parse(organization).unwrap(),
        secrets: vec![Secret::new(SOURCE_SECRET)],
        fetch: None,
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
    }
}

impl Api {
    pub(super) async fn start() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(token: Option<&str>) -> Self {
        let memory = Arc::new(MemoryStore::new());
        let store: SharedStore = memory.clone();
        let clock: SharedClock = Arc::new(SystemClock::start());
        let committer = Committer::start(store.clone());
        let targets = TargetPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true };
        let sources = vec![source("shop", "receiptroller", "acme"), source("till", "receiptroller", "acme")];
        let settings = InboxSettings { max_body_bytes: MAX_RECEIVED_BYTES, ..Default::default() };
        let (s, c) = (store.clone(), committer.clone());
        let inbox = Inbox::new(
            s,
            c,
            clock.clone(),
            "test".into(),
            settings,
            sources.clone(),
            Vec::new(),
            HashMap::new(),
            HashMap::new(),
        );
        let (transport, settings) = (Arc::new(Nobody), SenderSettings::default());
        let state = State {
            reconciler: crate::reconcile::tests::idle("acme", store.clone(), clock.clone()),
            sender: Sender::new(store.clone(), committer, clock.clone(), transport, "test".into(), settings),
            client: Arc::new(Client::new(targets, Arc::new(Names), clock.clone(), &[]).unwrap()),
            metrics: PrometheusBuilder::new().build_recorder().handle(),
            roles: Roles::default(),
            access: Access::start(token.map(Secret::new), store.clone(), clock.clone()).await.unwrap(),
            max_event_bytes: MAX_EVENT_BYTES,
            backlog: LastBacklog::default(),
            clock,
            store,
            inbox,
            sources,
            destinations: Vec::new(),
        };
        Self { base: serve(router(state)).await, client: reqwest::Client::new(), store: memory }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        Answer::of(self.request(Method::POST, path).body(body)).await
    }

    async fn patch(&self, path: &str, body: &str) -> Answer {
        Answer::of(self.request(Method::PATCH, path).body(body.to_owned())).await
    }

    async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    /// Writes an attempt of a delivery, as the sender would.
    async fn finish(&self, webhook: &str, event: &str, attempt: AttemptRecord, decision: Decision) {
        let (organization, event) = (OrganizationId::parse("acme").unwrap(), EventId::parse(event).unwrap());
        let created_at = self.store.event(&organization, &event).await.unwrap().unwrap().created_at;
        let key = DeliveryKey { organization, event, webhook: WebhookId::parse(webhook).unwrap() };
        let finish = FinishAttempt { key, created_at, owner: "test".into(), attempt, decision, notices: None };
        self.store.commit(Group { finish_attempts: vec![finish], ..Group::default() }).await.unwrap();
    }

    /// Registers a webhook for every event and gives its id.
    pub(super) async fn webhook(&self) -> String {
        let answer = self.post(&format!("{ACME}/webhooks"), r#"{"url":"http://127.0.0.1:9/hook"}"#).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

impl Answer {
    pub(super) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Checks that it is a problem document of this status and type whose text holds every one of `parts`.
    #[track_caller]
    fn is_problem(&self, status: u16, kind: &str, parts: &[&str]) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["type"], format!("/problems/{kind}"), "{self:?}");
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string());
        let detail = problem["detail"].as_str().unwrap();
        for part in parts {
            assert!(detail.contains(part), "{part:?} is not in {detail:?}");
        }
    }

    /// The fields that the problem names.
    #[track_caller]
    fn fields(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    }
}
