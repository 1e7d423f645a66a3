//! What an operator's tools ask for: whether the process lives, whether it can store, and the metrics.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::IntoResponse;
use jiff::Timestamp;
use metrics::{describe_gauge, gauge};
use serde::Serialize;
use tokio::time::timeout;

use super::State;
use super::problem::{Kind, Problem};
use crate::store::{Backlog, StoreError};

const STORE_UP: &str = "hikyaku_store_up";
const DELIVERIES_WAITING: &str = "hikyaku_deliveries_waiting";
const DELIVERIES_LATE: &str = "hikyaku_deliveries_late_seconds";
const EFFECTS_WAITING: &str = "hikyaku_effects_waiting";
const EFFECTS_LATE: &str = "hikyaku_effects_late_seconds";
const WEBHOOKS_OFF: &str = "hikyaku_webhooks_off";

/// How long the store may take to answer a question about its health.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// A good answer.
#[derive(Debug, Serialize)]
pub(super) struct Health {
    status: &'static str,
}

/// `GET /healthz`: the process lives.
pub(super) async fn alive() -> Json<Health> {
    Json(Health { status: "ok" })
}

/// `GET /readyz`: the store takes writes now; else 503.
pub(super) async fn ready(Shared(state): Shared<Arc<State>>) -> Result<Json<Health>, Problem> {
    match timeout(STORE_TIMEOUT, state.store.ping()).await {
        Ok(Ok(())) => Ok(Json(Health { status: "ok" })),
        failed => {
            tracing::warn!(?failed, "not ready: the store does not take writes");
            Err(Problem::new(Kind::Unavailable, "The store does not take writes now; the log says why."))
        }
    }
}

/// `GET /metrics`: in Prometheus' text format. The backlog is counted when it is asked for.
pub(super) async fn metrics(Shared(state): Shared<Arc<State>>) -> impl IntoResponse {
    let backlog = timeout(STORE_TIMEOUT, state.store.backlog()).await;
    let backlog = backlog.unwrap_or_else(|_| Err(StoreError::Unavailable("no answer in time".to_owned())));
    if let Err(error) = &backlog {
        tracing::warn!(%error, "the metrics have no backlog");
    }
    show(backlog.ok(), state.clock.schedule());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], state.metrics.render())
}

/// Says what each of these metrics means; once, when there is a router.
pub(super) fn describe() {
    describe_gauge!(STORE_UP, "1 if the store answered this scrape, else 0 and the other gauges are old");
    describe_gauge!(DELIVERIES_WAITING, "Deliveries that wait or are under way");
    describe_gauge!(DELIVERIES_LATE, "How long the oldest delivery has been due, in seconds");
    describe_gauge!(EFFECTS_WAITING, "Effects of inbox rows that wait or are under way");
    describe_gauge!(EFFECTS_LATE, "How long the oldest effect has been due, in seconds");
    describe_gauge!(WEBHOOKS_OFF, "Webhooks that are off");
}

fn show(backlog: Option<Backlog>, now: Timestamp) {
    gauge!(STORE_UP).set(if backlog.is_some() { 1.0 } else { 0.0 });
    let Some(backlog) = backlog else { return };
    let late = |due: Option<Timestamp>| due.map_or(0.0, |due| now.duration_since(due).as_secs_f64().max(0.0));
    gauge!(DELIVERIES_WAITING).set(backlog.deliveries as f64);
    gauge!(DELIVERIES_LATE).set(late(backlog.oldest_delivery_due));
    gauge!(EFFECTS_WAITING).set(backlog.effects as f64);
    gauge!(EFFECTS_LATE).set(late(backlog.oldest_effect_due));
    gauge!(WEBHOOKS_OFF).set(backlog.webhooks_off as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[test]
    fn the_gauges_tell_how_much_waits_and_how_late_it_is() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let at = |second| Timestamp::from_second(second).unwrap();
        let backlog = Backlog {
            deliveries: 3,
            oldest_delivery_due: Some(at(40)),
            effects: 2,
            oldest_effect_due: Some(at(200)),
            webhooks_off: 1,
        };
        metrics::with_local_recorder(&recorder, || show(Some(backlog), at(100)));
        let text = recorder.handle().render();
        for line in [
            "hikyaku_store_up 1",
            "hikyaku_deliveries_waiting 3",
            "hikyaku_deliveries_late_seconds 60",
            "hikyaku_effects_waiting 2",
            "hikyaku_effects_late_seconds 0",
            "hikyaku_webhooks_off 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        metrics::with_local_recorder(&recorder, || show(None, at(100)));
        assert!(recorder.handle().render().contains("hikyaku_store_up 0"));
    }
}
