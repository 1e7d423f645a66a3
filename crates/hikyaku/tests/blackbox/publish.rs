//! Publishing: batches, repeats, and reading back what became of it.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use crate::harness::{Answer, Api, Config, Receiver, Server, deliveries, items};

#[tokio::test]
async fn the_same_id_again_gets_the_first_answer_and_other_content_a_conflict() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let event = r#"{"id":"e1","type":"sale.created","data":{"a":1}}"#;
    let first = api.publish_raw(event).await.expect(202);
    receiver.next().await;
    api.ended("e1").await;
    // A webhook that came later, and time that has passed, change nothing about it.
    api.webhook(&receiver.url("/later")).await;
    for _ in 0..3 {
        assert_eq!(api.publish_raw(event).await.expect(200), first);
    }
    for other in [
        r#"{"id":"e1","type":"sale.created","data":{"a":2}}"#,
        r#"{"id":"e1","type":"sale.created","data":{"a": 1}}"#,
        r#"{"id":"e1","type":"sale.updated","data":{"a":1}}"#,
        r#"{"id":"e1","type":"sale.created","data":{"a":1},"timestamp":"2026-01-01T00:00:00Z"}"#,
    ] {
        let answer = api.publish_raw(other).await;
        assert!(answer.problem(409).contains("e1"), "{other}");
    }
    assert_eq!(api.event("e1").await["deliveries"].as_array().unwrap().len(), 1);
    assert_eq!(receiver.seen().len(), 1);
}

/// On a slow machine so many at once may find the store busy.
pub(crate) async fn publish_until_taken(api: Api, body: String) -> Answer {
    loop {
        let answer = api.publish_raw(body.as_str()).await;
        if answer.status != 503 {
            return answer;
        }
    }
}

#[tokio::test]
async fn case5_many_publishes_of_one_id_at_once_are_one_event() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let api = api.clone();
            tokio::spawn(publish_until_taken(api, r#"{"id":"one","type":"sale.created","data":{}}"#.to_owned()))
        })
        .collect();
    let mut answers = BTreeSet::new();
    let mut created = 0;
    for task in tasks {
        let answer = task.await.unwrap();
        created += usize::from(answer.status == 202);
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        answers.insert(answer.json.to_string());
    }
    assert_eq!((created, answers.len()), (1, 1), "{answers:?}");
    receiver.next().await;
    api.ended("one").await;
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn a_batch_is_stored_whole_or_not_at_all() {
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let event = |id: &str, data: &str| format!(r#"{{"id":"{id}","type":"sale.created","data":{data}}}"#);
    api.publish_batch(&[event("a", "1"), event("b", "2")]).await.expect(202);
    for (what, status, last) in [
        ("a bad type", 400, r#"{"id":"x","type":"sale","data":1}"#.to_owned()),
        ("an unknown field", 400, r#"{"id":"x","type":"a.b","data":1,"extra":1}"#.to_owned()),
        ("no data", 400, r#"{"id":"x","type":"a.b"}"#.to_owned()),
        ("a conflict with a stored one", 409, event("a", "9")),
    ] {
        let answer = api.publish_batch(&[event("c", "1"), event("d", "1"), last]).await;
        let detail = answer.problem(status);
        assert!(detail.contains(if status == 400 { "[2]" } else { "\"a\"" }), "{what}: {detail}");
        for id in ["c", "d", "x"] {
            api.get(&["events", id], &[]).await.problem(404);
        }
    }
    // Repeats are no conflict; with new events beside them, the new ones are stored.
    api.publish_batch(&[event("a", "1"), event("b", "2"), event("c", "3")]).await;
    for id in ["a", "b", "c"] {
        assert_eq!(api.ended(id).await["deliveries"][0]["state"], "delivered");
    }
    assert_eq!(receiver.seen().len(), 3);
}

#[tokio::test]
async fn a_batch_of_a_thousand_is_taken_and_one_more_refused() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let events = |n: usize| (0..n).map(|i| format!(r#"{{"id":"e{i}","type":"a.b","data":{i}}}"#)).collect::<Vec<_>>();
    assert!(api.publish_batch(&events(1001)).await.problem(400).contains("1000"));
    api.publish_batch(&[]).await.problem(400);
    api.get(&["events", "e0"], &[]).await.problem(404);
    api.publish_batch(&events(1000)).await.expect(202);
    let seen = receiver.next_many(1000).await;
    assert_eq!(seen.iter().map(|seen| seen.delivery().to_owned()).collect::<BTreeSet<_>>().len(), 1000);
    for i in [0, 499, 999] {
        api.ended(&format!("e{i}")).await;
    }
}

#[tokio::test]
async fn the_logs_pages_neither_skip_nor_repeat_while_lines_are_added() {
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::by_attempt(&[500, 200]).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let mut before = BTreeSet::new();
    for _ in 0..8 {
        let id = api.publish("sale.created", "{}").await;
        api.ended(&id).await;
        before.extend([(id.clone(), 1), (id, 2)]);
    }
    let (mut paged, mut cursor, mut last) = (Vec::new(), None::<String>, None::<String>);
    loop {
        let mut query = vec![("limit", "3")];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = api.log(&webhook, &query).await;
        for line in items(&page) {
            let started = line["startedAt"].as_str().unwrap().to_owned();
            assert!(last.as_ref().is_none_or(|last| *last >= started), "not newest first: {page}");
            last = Some(started);
            paged.push((line["deliveryId"].as_str().unwrap().to_owned(), line["attempt"].as_u64().unwrap()));
        }
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = Some(next.to_owned());
        api.ended(&api.publish("sale.created", "{}").await).await;
    }
    assert_eq!(paged.iter().cloned().collect::<BTreeSet<_>>(), before);
    assert_eq!(paged.len(), before.len(), "a line came twice");
}

#[tokio::test]
async fn a_webhook_is_listed_read_changed_and_deleted_and_its_secret_shown_once() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let url = "http://127.0.0.1:9/x";
    let made = json!({ "url": url, "events": ["order.*"], "description": "注文", "active": false });
    let webhook = api.webhook_with(made).await;
    assert!(webhook.secret.len() >= 24);
    let read = api.read_webhook(&webhook).await;
    for (field, value) in [("url", json!(url)), ("events", json!(["order.*"]))] {
        assert_eq!(read[field], value);
    }
    assert_eq!((&read["description"], &read["active"]), (&json!("注文"), &json!(false)));
    let listed = api.get(&["webhooks"], &[]).await.expect(200);
    assert_eq!(items(&listed).len(), 1);
    for shown in [&read, &listed] {
        assert!(!shown.to_string().contains(&webhook.secret), "the secret is shown again");
    }
    let change = json!({ "url": "http://127.0.0.1:9/y", "events": ["*"], "description": "", "active": true });
    let changed = api.patch(&webhook, change.clone()).await;
    for (field, value) in change.as_object().unwrap() {
        assert_eq!(changed[field], *value);
    }
    assert_eq!(api.read_webhook(&webhook).await, changed);
    assert_eq!(api.delete(&webhook).await, 204);
    assert!(items(&api.get(&["webhooks"], &[]).await.expect(200)).is_empty());
    let gone = api.call(Method::PATCH, &["webhooks", &webhook.id], r#"{"active":true}"#).await;
    gone.problem(404);
}

#[tokio::test]
async fn s17_another_organizations_things_are_not_found() {
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    assert_eq!(deliveries(&api.ended(&id).await).len(), 1);
    for path in [vec!["events", &id], vec!["webhooks", &webhook.id], vec!["webhooks", &webhook.id, "log"]] {
        let url = api.url(&[&["v1", "organizations", "other"], path.as_slice()].concat());
        api.try_send(Method::GET, url, &[], Vec::new()).await.unwrap().problem(404);
    }
}

#[tokio::test]
async fn the_program_tells_its_health_and_its_metrics() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for path in ["healthz", "readyz", "metrics"] {
        let answer = api.try_send(Method::GET, api.url(&[path]), &[], Vec::new()).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
}
