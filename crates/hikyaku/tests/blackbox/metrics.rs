//! What `/metrics` tells after a bit of everything.

use std::collections::BTreeSet;

use reqwest::StatusCode;

use crate::harness::{Config, Receiver, Server, event_body, forward_to};

/// The documented metrics: the first cells of the table's rows.
fn documented() -> BTreeSet<String> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md")).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Metrics\n")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let names = rows.map(|(name, _)| name).filter(|name| !name.contains(' '));
    names.map(str::to_owned).collect()
}

async fn scrape(server: &Server) -> String {
    let answer = reqwest::get(server.api().url(&["metrics"])).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.text().await.unwrap()
}

/// The metrics that a scrape says `what` about.
fn told(text: &str, what: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(what)?.split_once(' '));
    lines.map(|(name, _)| name.to_owned()).collect()
}

/// Its provider gives no answer.
const RECONCILE: &str = r#"
[[reconcile]]
name = "sales"
source = "receiptroller"
adapter = "receiptroller-transactions"
url = "http://127.0.0.1:9"
provider_organization = "shop"
token = "a-token"
"#;
/// Told from the first look at a provider's webhook on.
const OF_A_WATCH: &str = "hikyaku_reconcile_webhook_active";

/// One event delivered, one exhausted, one row with its effect, one signature refused.
async fn a_bit_of_everything() -> Server {
    let (good, bad, business) = (Receiver::always(204).await, Receiver::always(500).await, Receiver::always(200).await);
    let config = Config::default().with(&forward_to(&business.url("/"))).with(RECONCILE);
    let server = Server::start(config).await;
    let api = server.api();
    api.webhook(&good.url("/")).await;
    api.webhook(&bad.url("/")).await;
    let event = api.publish("sale.created", "1").await;
    api.ended(&event).await;
    let body = event_body("d1", "sale.created", "2026-07-01T09:30:00.000Z", "{}");
    assert_eq!(api.deliver_signed("d1", &body).await, 200);
    api.settled("receiptroller", "d1").await;
    assert_eq!(api.deliver("receiptroller", &[("x-rr-signature", "sha256=00")], body.as_bytes()).await, 401);
    server
}

#[tokio::test]
async fn every_documented_metric_is_there_with_its_help_and_type() {
    let server = a_bit_of_everything().await;
    let text = scrape(&server).await;
    let documented = documented();
    assert!(documented.len() > 20, "{documented:?}");
    for what in ["# HELP ", "# TYPE "] {
        let told = told(&text, what);
        let missing: Vec<_> = documented.difference(&told).filter(|name| *name != OF_A_WATCH).collect();
        assert!(missing.is_empty(), "no {what}of {missing:?} in\n{text}");
        let unknown: Vec<_> = told.difference(&documented).collect();
        assert!(unknown.is_empty(), "not in docs/operations.md: {unknown:?}");
    }
}

#[tokio::test]
async fn they_count_what_happened_and_no_id_is_a_label() {
    let server = a_bit_of_everything().await;
    server.api().get(&["no", "such", "path"], &[]).await;
    let text = scrape(&server).await;
    for line in [
        r#"hikyaku_deliveries_total{outcome="delivered"} 1"#,
        r#"hikyaku_deliveries_total{outcome="exhausted"} 1"#,
        r#"hikyaku_attempts_total{result="5xx"} 4"#,
        "hikyaku_attempt_delay_seconds_count 5",
        "hikyaku_webhooks_switched_off_total 1",
        "hikyaku_webhooks_off 1",
        r#"hikyaku_deliveries_waiting{state="leased"} 0"#,
        r#"hikyaku_inbox_effects_total{route="receiptroller-forward",state="done"} 1"#,
        r#"hikyaku_http_requests_total{method="POST",route="/v1/organizations/{organization}/events",status="202"} 1"#,
        r#"hikyaku_http_requests_total{method="POST",route="/in/{source}",status="401"} 1"#,
        r#"hikyaku_http_requests_total{method="GET",route="none",status="404"} 1"#,
        concat!(r#"hikyaku_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for id in ["acme", "evt_", "wh_", "d1"] {
        let labels = text.lines().filter(|line| !line.starts_with('#')).find(|line| line.contains(id));
        assert_eq!(labels, None, "{id}");
    }
}

/// A panel for it should not stay empty until there is a webhook.
#[tokio::test]
async fn what_is_none_yet_is_told_as_0() {
    let server = Server::start(Config::default()).await;
    let text = scrape(&server).await;
    assert!(text.lines().any(|line| line == "hikyaku_attempts_in_flight 0"), "{text}");
}
