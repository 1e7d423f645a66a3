use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, FailureKind, Outcome};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::store::AttemptRecord;

impl Api {
    /// Publishes an event and writes attempts of its delivery, as the sender would.
    async fn attempt(&self, webhook: &str, event: &str, attempts: Vec<(AttemptRecord, Decision)>) {
        let body = format!(r#"{{"type":"sale.created","data":1,"id":"{event}"}}"#);
        assert_eq!(self.post(&format!("{ACME}/events"), body).await.status, 202);
        for (attempt, decision) in attempts {
            self.finish(webhook, event, attempt, decision).await;
        }
    }
}

fn attempt(number: u32, at: i64, outcome: Outcome, error: &str, body: &[u8]) -> AttemptRecord {
    AttemptRecord {
        run: 1,
        number,
        started_at: Timestamp::from_millisecond(at).unwrap(),
        duration: Duration::from_micros(12_900),
        outcome,
        error: error.to_owned(),
        response_body: Bytes::copy_from_slice(body),
    }
}

#[tokio::test]
async fn r6_case_19_the_log_shows_every_attempt_as_it_went() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let refused = attempt(1, 1_000, Outcome::Failed(FailureKind::Connect), "connection refused", b"");
    let failed = attempt(2, 2_000, Outcome::Answered(500), "", b"\x1f\x8b\x00 gzip");
    let due = Timestamp::from_millisecond(32_503_680_000_000).unwrap();
    api.attempt(&webhook, "e1", vec![(refused, Decision::Retry { at: due }), (failed, Decision::Retry { at: due })])
        .await;
    let log = api.get(&format!("{ACME}/webhooks/{webhook}/log")).await.json();
    assert_eq!(log["nextCursor"], json!(null));
    let second = json!({
        "deliveryId": "e1", "eventType": "sale.created", "run": 1, "attempt": 2, "httpStatus": 500, "error": null,
        "startedAt": "1970-01-01T00:00:02.000Z", "durationMs": 12, "responseBody": "\u{1f}\u{fffd}\u{0} gzip",
    });
    let first = json!({
        "deliveryId": "e1", "eventType": "sale.created", "run": 1, "attempt": 1, "httpStatus": 0, "error": "connection refused",
        "errorKind": "connect", "startedAt": "1970-01-01T00:00:01.000Z", "durationMs": 12, "responseBody": "",
    });
    assert_eq!(log["items"], json!([second, first]));
    let event = api.get(&format!("{ACME}/events/e1")).await.json();
    let delivery = &event["deliveries"][0];
    let numbers: Vec<_> = delivery["attempts"].as_array().unwrap().iter().map(|a| a["attempt"].as_u64()).collect();
    assert_eq!((numbers, &delivery["state"]), (vec![Some(1), Some(2)], &json!("waiting")));
}

#[tokio::test]
async fn the_log_is_read_page_by_page_while_lines_are_added() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let done = |number, at| vec![(attempt(number, at, Outcome::Answered(200), "", b"ok"), Decision::Delivered)];
    // Two begin in the same millisecond.
    for (event, at) in [("a|1", 1_000), ("b/2", 2_000), ("c", 2_000), ("d", 3_000), ("e", 4_000)] {
        api.attempt(&webhook, event, done(1, at)).await;
    }
    let path = format!("{ACME}/webhooks/{webhook}/log");
    let mut seen = Vec::new();
    let mut next = format!("{path}?limit=2");
    for page in 0..3 {
        let answer = api.get(&next).await.json();
        seen.extend(
            answer["items"].as_array().unwrap().iter().map(|item| item["deliveryId"].as_str().unwrap().to_owned()),
        );
        let cursor = answer["nextCursor"].as_str();
        assert_eq!(cursor.is_none(), page == 2, "{answer}");
        next = format!("{path}?limit=2&cursor={}", cursor.unwrap_or_default());
        api.attempt(&webhook, &format!("later{page}"), done(1, 5_000 + page)).await;
    }
    let (first, last) = (seen[..2].join(","), &seen[4]);
    assert_eq!((first.as_str(), last.as_str(), seen.len()), ("e,d", "a|1", 5));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5, "nothing twice");
}

#[tokio::test]
async fn a_removed_webhooks_log_can_be_read_and_an_unknown_ones_is_404() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let path = format!("{ACME}/webhooks/{webhook}");
    assert_eq!(api.get(&format!("{path}/log")).await.json(), json!({"items": [], "nextCursor": null}));
    let answered = attempt(1, 1_000, Outcome::Answered(204), "", b"");
    api.attempt(&webhook, "e1", vec![(answered, Decision::Delivered)]).await;
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.get(&format!("{path}/log")).await.json()["items"].as_array().unwrap().len(), 1);
    for id in ["wh_none", "a%20b"] {
        api.get(&format!("{ACME}/webhooks/{id}/log")).await.is_problem(404, "not-found", &["no webhook"]);
    }
}
