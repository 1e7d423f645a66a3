//! What an operator's tools ask for: whether the process lives, whether it can store, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::problem::{Kind, Problem};
use super::{State, metrics};
use crate::store::StoreError;

/// How long the store may take to answer a question about its health.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A good answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
}

/// Is the process alive?
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "isAlive",
    tag = "operation",
    responses((status = 200, description = "It is.", body = Health)),
    security(()),
)]
pub(super) async fn alive() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// Does the store take writes?
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "isReady",
    tag = "operation",
    responses(
        (status = 200, description = "It does.", body = Health),
        (status = 503, description = "A problem: unavailable. It does not."),
    ),
    security(()),
)]
pub(super) async fn ready(Shared(state): Shared<Arc<State>>) -> Result<Json<Health>, Problem> {
    match timeout(STORE_TIMEOUT, state.store.ping()).await {
        Ok(Ok(())) => Ok(Json(Health { status: "ok" })),
        failed => {
            tracing::warn!(?failed, "not ready: the store does not take writes");
            Err(Problem::new(Kind::Unavailable, "The store does not take writes now; the log says why."))
        }
    }
}

/// Read the metrics.
///
/// In Prometheus' text format. The backlog is counted when it is asked for.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "readMetrics",
    tag = "operation",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain")),
)]
pub(super) async fn scrape(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let backlog = timeout(STORE_TIMEOUT, state.store.backlog()).await;
    let backlog = backlog.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer in time".to_owned())));
    if let Err(error) = &backlog {
        tracing::warn!(%error, "the metrics have no backlog");
    }
    let now = state.clock.schedule();
    if let Ok(backlog) = &backlog {
        metrics::show_routes(backlog, state.inbox.route_names(), now);
    }
    metrics::show(backlog.ok(), now);
    match timeout(STORE_TIMEOUT, state.store.upkeep()).await {
        Ok(Ok(upkeep)) => metrics::show_upkeep(upkeep),
        failed => tracing::debug!(?failed, "the metrics do not tell what keeps the store from cleaning up"),
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render())
}
