use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, FailureKind, Outcome};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::store::AttemptRecord;

impl Api {
    /// Publishes an event whose one delivery then ends, or fails, like this.
    async fn attempted(&self, webhook: &str, event: &str, data: &str, outcome: Outcome, decision: Decision) {
        let body = format!(r#"{{"type":"sale.created","data":{data},"id":"{event}"}}"#);
        assert_eq!(self.post(&format!("{ACME}/events"), body).await.status, 202);
        let attempt = AttemptRecord {
            run: 1,
            number: 1,
            started_at: Timestamp::from_millisecond(1_000).unwrap(),
            duration: Duration::from_micros(12_900),
            outcome,
            error: String::new(),
            response_body: Bytes::new(),
        };
        self.finish(webhook, event, attempt, decision).await;
    }

    /// The ids of the deliveries that a search shows, page by page.
    async fn search(&self, filter: &str) -> Vec<String> {
        let mut ids = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("{ACME}/deliveries?limit=2{filter}{cursor}")).await;
            assert_eq!(page.status, 200, "{page:?}");
            let page = page.json();
            ids.extend(
                page["items"].as_array().unwrap().iter().map(|item| item["deliveryId"].as_str().unwrap().into()),
            );
            let Some(next) = page["nextCursor"].as_str() else { return ids };
            cursor = format!("&cursor={next}");
        }
    }
}

const DAY: &str = "2026-01-01T00:00:00";

#[tokio::test]
async fn deliveries_are_found_by_every_filter() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    let due = Timestamp::from_millisecond(32_503_680_000_000).unwrap();
    let off = Decision::Exhausted { switch_off: false };
    api.attempted(&webhook, "e1", r#"{"id":"k|1"}"#, Outcome::Answered(200), Decision::Delivered).await;
    api.attempted(&webhook, "e2", "1", Outcome::Failed(FailureKind::Dns), off).await;
    api.attempted(&webhook, "e3", r#"{"order_id":7}"#, Outcome::Answered(503), Decision::Retry { at: due }).await;
    for (filter, expected) in [
        (String::new(), vec!["e3", "e2", "e1"]),
        (format!("&webhook={webhook}"), vec!["e3", "e2", "e1"]),
        ("&webhook=wh_none".into(), vec![]),
        ("&event=e2".into(), vec!["e2"]),
        ("&type=sale.*&state=delivered".into(), vec!["e1"]),
        ("&type=order.created".into(), vec![]),
        ("&state=waiting".into(), vec!["e3"]),
        ("&httpStatus=5xx".into(), vec!["e3"]),
        ("&httpStatus=0".into(), vec!["e2"]),
        ("&error=dns".into(), vec!["e2"]),
        ("&key=k%7C1".into(), vec!["e1"]),
        ("&key=7&state=delivered".into(), vec![]),
        (format!("&from={DAY}%2B09:00"), vec!["e3", "e2", "e1"]),
        (format!("&to={DAY}Z"), vec![]),
    ] {
        assert_eq!(api.search(&filter).await, expected, "{filter}");
    }
    let shown = &api.get(&format!("{ACME}/deliveries?event=e2")).await.json()["items"][0];
    let expected = json!({
        "deliveryId": "e2", "eventType": "sale.created", "webhookId": webhook, "createdAt": shown["createdAt"],
        "state": "exhausted", "inFlight": false, "nextAttemptAt": null, "attempts": 1, "lastAttempt": {
            "httpStatus": 0, "errorKind": "dns", "startedAt": "1970-01-01T00:00:01.000Z", "durationMs": 12,
        },
    });
    assert_eq!(*shown, expected);
}

#[tokio::test]
async fn the_log_is_filtered_alike() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    api.attempted(&webhook, "e1", "1", Outcome::Answered(200), Decision::Delivered).await;
    let path = format!("{ACME}/webhooks/{webhook}/log");
    for (filter, lines) in [
        ("type=sale.*", 1),
        ("type=order.*", 0),
        ("httpStatus=200", 1),
        ("httpStatus=5xx", 0),
        ("error=timeout", 0),
        ("from=1970-01-01T00:00:01Z&to=1970-01-01T00:00:01.001Z", 1),
        ("to=1970-01-01T00:00:01Z", 0),
    ] {
        let page = api.get(&format!("{path}?{filter}")).await.json();
        assert_eq!(page["items"].as_array().unwrap().len(), lines, "{filter}");
    }
    assert_eq!(api.delete(&format!("{ACME}/webhooks/{webhook}")).await.status, 204);
    assert_eq!(api.get(&format!("{path}?httpStatus=5xx")).await.status, 200, "it is gone, but its log is not");
    api.get(&format!("{ACME}/webhooks/wh_none/log?httpStatus=5xx")).await.is_problem(404, "not-found", &["wh_none"]);
}

#[tokio::test]
async fn case18_a_plus_that_became_a_space_is_an_error_that_says_so() {
    let api = Api::start().await;
    for path in [format!("{ACME}/deliveries"), format!("{ACME}/webhooks/wh_1/log")] {
        let answer = api.get(&format!("{path}?from={DAY}+09:00")).await;
        answer.is_problem(400, "invalid-query", &["\"from\"", "write it as %2B"]);
        for bad in ["2026-01-01", "2026-01-01T00:00:00", "yesterday", ""] {
            api.get(&format!("{path}?to={bad}")).await.is_problem(400, "invalid-query", &["\"to\"", "a time such as"]);
        }
        let backwards = api.get(&format!("{path}?from={DAY}Z&to={DAY}Z")).await;
        backwards.is_problem(400, "invalid-query", &["\"to\"", "not after"]);
    }
}

#[tokio::test]
async fn a_filter_that_means_nothing_is_refused() {
    let api = Api::start().await;
    for (filter, part) in [
        ("state=done", "one of waiting, delivered, exhausted, cancelled, held"),
        ("httpStatus=5XX", "a class such as 5xx"),
        ("error=oops", "one of timeout, dns"),
        ("type=order", "a pattern such as order.*"),
        ("event=a%20b", "the id of an event"),
        ("webhook=", "the id of a webhook"),
        ("cursor=x", "the nextCursor"),
        ("status=200", "is not known here"),
    ] {
        api.get(&format!("{ACME}/deliveries?{filter}")).await.is_problem(400, "invalid-query", &[part]);
    }
}

#[tokio::test]
async fn nobody_is_sent_news_of_itself_on_request_either() {
    let api = Api::start().await;
    let about = api.webhook().await;
    let watcher =
        api.post(&format!("{ACME}/webhooks"), r#"{"url":"http://127.0.0.1:9/","events":["webhook.*"]}"#).await;
    let watcher = watcher.json()["id"].as_str().unwrap().to_owned();
    let change = r#"{"active":false,"events":["webhook.*"]}"#;
    assert_eq!(api.patch(&format!("{ACME}/webhooks/{about}"), change).await.status, 200);
    let told = api.get(&format!("{ACME}/deliveries?type=webhook.*")).await.json();
    assert_eq!((told["items"].as_array().unwrap().len(), &told["items"][0]["webhookId"]), (1, &json!(watcher)));
    let event = told["items"][0]["deliveryId"].as_str().unwrap();
    let resend = |webhook: &str| format!("{ACME}/deliveries/{event}/{webhook}/resend");
    api.post(&resend(&about), "").await.is_problem(409, "about-itself", &["nothing was changed"]);
    api.post(&resend(&watcher), "").await.is_problem(409, "delivery-waiting", &[]);
    let why = api.get(&format!("{ACME}/events/{event}/explain?webhook={about}")).await.json();
    assert_eq!(why["items"][0]["code"], "aboutItself");
}

#[tokio::test]
async fn a_failed_resend_of_what_was_delivered_is_explained_as_delivered() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    api.attempted(&webhook, "e1", "{}", Outcome::Answered(204), Decision::Delivered).await;
    assert_eq!(api.post(&format!("{ACME}/deliveries/e1/{webhook}/resend"), "").await.status, 202);
    let why = api.get(&format!("{ACME}/events/e1/explain")).await.json();
    assert_eq!(why["items"][0]["code"], "waiting");
    assert!(
        why["items"][0]["sentence"].as_str().unwrap().starts_with("It was delivered in run 1, with the answer 204.")
    );
}

#[tokio::test]
async fn an_old_timestamp_does_not_make_an_event_older_than_the_webhook() {
    let api = Api::start().await;
    let webhook = api.webhook().await;
    assert_eq!(api.patch(&format!("{ACME}/webhooks/{webhook}"), r#"{"events":["order.*"]}"#).await.status, 200);
    let event = r#"{"type":"sale.created","data":1,"id":"old","timestamp":"2020-01-01T00:00:00Z"}"#;
    assert_eq!(api.post(&format!("{ACME}/events"), event).await.status, 202);
    assert_eq!(api.patch(&format!("{ACME}/webhooks/{webhook}"), r#"{"events":["*"]}"#).await.status, 200);
    let why = api.get(&format!("{ACME}/events/old/explain")).await.json();
    assert_eq!(why["items"][0]["code"], "subscribedLater");
}
