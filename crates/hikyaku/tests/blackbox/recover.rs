//! What a webhook missed while it was off (R12), its recovery on request, and what is held for it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{
    Answer, Api, Config, Receiver, Reply, Seen, Server, Webhook, deliveries, eventually, gated, items, within,
};

const ALL: &str = r#"{"from":"2026-01-01T00:00:00Z","to":"2999-01-01T00:00:00+09:00","which":"all"}"#;

/// One attempt at a time, so that the order of arrival is the order in which deliveries were due.
fn one_at_a_time() -> Config {
    Config::default().env("HIKYAKU_SENDER__IN_FLIGHT_PER_WEBHOOK", "1")
}

async fn recover(api: &Api, webhook: &Webhook, body: &str) -> Answer {
    api.call(Method::POST, &["webhooks", &webhook.id, "recover"], body).await
}

async fn missed(api: &Api, webhook: &Webhook, query: &[(&str, &str)]) -> Value {
    api.get(&["webhooks", &webhook.id, "missed"], query).await.expect(200)
}

async fn recovery(api: &Api, webhook: &Webhook, id: &str) -> Value {
    api.get(&["webhooks", &webhook.id, "recoveries", id], &[]).await.expect(200)
}

async fn done(api: &Api, webhook: &Webhook, id: &str) -> Value {
    eventually("the recovery's end", async || {
        let recovery = recovery(api, webhook, id).await;
        (recovery["state"] == "done").then_some(recovery)
    })
    .await
}

fn event(number: usize) -> String {
    format!(r#"{{"id":"e{number:03}","type":"sale.created","data":{{"n":{number}}}}}"#)
}

/// Publishes events of increasing timestamps while the webhook is off, the youngest first.
async fn publish_while_off(api: &Api, webhook: &Webhook, count: usize) {
    api.patch(webhook, json!({ "active": false })).await;
    let dated = |number: usize| {
        let timestamp = format!("2026-11-30T09:{:02}:{:02}.000Z", number / 60, number % 60);
        event(number).replacen('{', &format!(r#"{{"timestamp":"{timestamp}","#), 1)
    };
    let events: Vec<_> = (0..count).rev().map(dated).collect();
    assert_eq!(api.publish_batch(&events).await.status, 202);
}

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|number| format!("e{number:03}")).collect()
}

fn listed(page: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    items(page).iter().map(|item| (text(&item["eventId"]), text(&item["which"]))).collect()
}

#[tokio::test]
async fn r12_missed_is_listed_and_recovered_only_on_request() {
    let only_x_fails = |seen: &Seen| Reply::status(if seen.delivery() == "x" && seen.attempt <= 4 { 500 } else { 200 });
    let (server, mut receiver) = (Server::start(one_at_a_time()).await, Receiver::start(only_x_fails).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let exhausted = r#"{"id":"x","type":"sale.created","timestamp":"2026-11-30T09:00:01.500Z","data":{}}"#;
    api.publish_raw(exhausted).await.expect(202);
    receiver.next_many(4).await;
    api.ended("x").await;
    publish_while_off(&api, &webhook, 4).await;
    api.patch(&webhook, json!({ "active": true })).await;
    // Nothing comes by itself: what is published now is the next to arrive.
    api.publish_raw(r#"{"id":"fresh","type":"sale.created","data":{}}"#).await.expect(202);
    assert_eq!(receiver.next().await.delivery(), "fresh");
    let all = missed(&api, &webhook, &[]).await;
    let m = |name: &str| (name.to_owned(), "missed".to_owned());
    let x = ("x".to_owned(), "exhausted".to_owned());
    assert_eq!(listed(&all), [m("e000"), m("e001"), x.clone(), m("e002"), m("e003")]);
    assert_eq!((&all["countMissed"], &all["countExhausted"]), (&json!(4), &json!(1)));
    let period = [("from", "2026-11-30T18:00:01+09:00"), ("to", "2026-11-30T09:00:02Z"), ("limit", "1")];
    let page = missed(&api, &webhook, &period).await;
    assert_eq!((listed(&page), &page["countMissed"], &page["countExhausted"]), (vec![m("e001")], &json!(1), &json!(1)));
    let next = [&period[..], &[("cursor", page["nextCursor"].as_str().unwrap())]].concat();
    assert_eq!(listed(&missed(&api, &webhook, &next).await), [x]);

    let asked = r#"{"from":"2026-11-30T09:00:01Z","to":"2026-11-30T09:00:03Z","which":"missed"}"#;
    let begun = recover(&api, &webhook, asked).await.expect(202);
    assert_eq!((&begun["total"], &begun["which"]), (&json!(2), &json!("missed")));
    let recovered = done(&api, &webhook, begun["id"].as_str().unwrap()).await;
    assert_eq!((&recovered["recovered"], &recovered["from"]), (&json!(2), &json!("2026-11-30T09:00:01.000Z")));
    for event in ["e001", "e002"] {
        let delivery = api.ended_one(event).await;
        assert_eq!(delivery["run"], 2, "{delivery}");
    }
    assert_eq!(missed(&api, &webhook, &[]).await["countMissed"], 2);
    let arrived: Vec<_> = receiver.seen().iter().map(|seen| seen.delivery().to_owned()).collect();
    assert!(!arrived.contains(&"e000".to_owned()) && !arrived.contains(&"e003".to_owned()), "{arrived:?}");
}

#[tokio::test]
async fn recover_keeps_order_and_progress_and_survives_kill9() {
    const EVENTS: usize = 250;
    let (mut receiver, gate) = gated(200).await;
    let mut server = Server::start(one_at_a_time()).await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    publish_while_off(&api, &webhook, EVENTS).await;
    api.patch(&webhook, json!({ "active": true })).await;
    let begun = recover(&api, &webhook, ALL).await.expect(202);
    let id = begun["id"].as_str().unwrap().to_owned();
    assert_eq!((&begun["state"], &begun["total"]), (&json!("running"), &json!(EVENTS)));
    let second = recover(&api, &webhook, ALL).await;
    assert!(second.problem(409).contains(&id), "{second:?}");
    // The endpoint lets 20 pass and then hangs: the recovery goes on for as long as there is room in the queue.
    gate.add_permits(20);
    let mut arrived = receiver.next_many(21).await;
    let halfway = recovery(&api, &webhook, &id).await;
    assert_eq!(halfway["state"], "running");
    assert!((21..EVENTS as u64).contains(&halfway["recovered"].as_u64().unwrap()), "{halfway}");
    // A new event does not stand behind all of the old ones.
    api.publish_raw(event(999)).await.expect(202);
    server.kill9().await;
    server.restart().await;
    let api = server.api();
    gate.add_permits(10 * EVENTS);
    let end = within("the recovery after the crash", done(&api, &webhook, &id)).await;
    assert_eq!((&end["recovered"], &end["total"]), (&json!(EVENTS), &json!(EVENTS)));
    for name in names(0, EVENTS).iter().chain([&"e999".to_owned()]) {
        assert_eq!(api.ended_one(name).await["state"], "delivered", "{name}");
    }
    arrived.extend(receiver.next_many(EVENTS + 1 - 21).await);
    let seen = receiver.seen();
    let mut firsts: Vec<_> = seen.iter().filter(|seen| seen.attempt == 1).map(|seen| seen.delivery()).collect();
    let new_at = firsts.iter().position(|name| *name == "e999").unwrap();
    assert!(new_at < EVENTS - 1, "the new event came last");
    firsts.remove(new_at);
    // What was under way at the crash is repeated later, but came in its turn before, or was never sent.
    let disorder = firsts.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(disorder <= 1, "{firsts:?}");
    assert!(seen.iter().filter(|seen| seen.attempt > 1).count() <= 1, "only what was under way came twice");
}

#[tokio::test]
async fn a_recovery_is_cancelled_and_what_it_has_not_made_due_stays_missed() {
    const EVENTS: usize = 250;
    let (mut receiver, gate) = gated(200).await;
    let server = Server::start(one_at_a_time()).await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    publish_while_off(&api, &webhook, EVENTS).await;
    api.patch(&webhook, json!({ "active": true })).await;
    let id = recover(&api, &webhook, ALL).await.expect(202)["id"].as_str().unwrap().to_owned();
    receiver.next().await;
    // Off, it rests, and says so.
    api.patch(&webhook, json!({ "active": false })).await;
    assert_eq!(recovery(&api, &webhook, &id).await["state"], "paused");
    api.patch(&webhook, json!({ "active": true })).await;
    let path = ["webhooks", &webhook.id, "recoveries", &id];
    let cancelled = api.call(Method::DELETE, &path, "").await.expect(200);
    assert_eq!(cancelled["state"], "cancelled");
    let made_due = cancelled["recovered"].as_u64().unwrap() as usize;
    gate.add_permits(EVENTS);
    for name in names(0, made_due) {
        assert_eq!(api.ended_one(&name).await["state"], "delivered");
    }
    assert_eq!(missed(&api, &webhook, &[]).await["countMissed"], EVENTS - made_due);
    assert_eq!(api.call(Method::DELETE, &path, "").await.expect(200)["state"], "cancelled");
}

#[tokio::test]
async fn a_recovery_is_refused_where_it_cannot_be_meant() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let webhook = api.webhook("http://127.0.0.1:9/").await;
    api.patch(&webhook, json!({ "active": false })).await;
    assert!(recover(&api, &webhook, ALL).await.problem(409).contains("Switch it on first"));
    for (body, part) in [
        (r#"{"which":"all"}"#, "\"from\" is missing"),
        (r#"{"from":"2026-01-01T00:00:00Z"}"#, "\"which\" is missing"),
        (r#"{"from":"yesterday","which":"all"}"#, "must be a time"),
        (r#"{"from":"2026-01-01T00:00:00Z","which":"held"}"#, "\"missed\", \"exhausted\" or \"all\""),
        (r#"{"from":"2026-01-02T00:00:00Z","to":"2026-01-02T09:00:00+09:00","which":"all"}"#, "must be after"),
        (r#"{"from":"2026-01-02T00:00:00Z","which":"all","webhook":"x"}"#, "not known here"),
    ] {
        let answer = recover(&api, &webhook, body).await;
        assert!(answer.problem(400).contains(part), "{body}: {answer:?}");
    }
    let nobody = Webhook { id: "wh_nobody".into(), secret: String::new() };
    recover(&api, &nobody, ALL).await.problem(404);
    api.get(&["webhooks", "wh_nobody", "missed"], &[]).await.problem(404);
    api.get(&["webhooks", &webhook.id, "recoveries", "rec_nothing"], &[]).await.problem(404);
}

#[tokio::test]
async fn case18_an_unescaped_plus_in_a_time_is_refused_and_never_another_window() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let webhook = api.webhook("http://127.0.0.1:9/").await;
    let path = ["v1", "organizations", "acme", "webhooks", &webhook.id, "missed"];
    for (query, part) in [
        ("from=2026-01-01T00:00:00+09:00", "write it as %2B"),
        ("to=2026-01-01T00:00:00+09:00", "write it as %2B"),
        ("from=2026-01-01+00:00:00Z", "write it as %2B"),
        ("from=2026-01-01", "must be a time"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "must be after"),
        ("form=2026-01-01T00:00:00Z", "not known here"),
    ] {
        let mut url = api.url(&path);
        url.set_query(Some(query));
        let answer = api.try_send(Method::GET, url, &[], Vec::new()).await.unwrap();
        assert!(answer.problem(400).contains(part), "{query}: {answer:?}");
    }
    let mut url = api.url(&path);
    url.set_query(Some("from=2026-01-01T00:00:00%2B09:00&to=1796030100250"));
    api.try_send(Method::GET, url, &[], Vec::new()).await.unwrap().expect(200);
}

#[tokio::test]
async fn what_is_held_comes_oldest_first_when_the_webhook_is_switched_on() {
    let (server, mut receiver) = (Server::start(one_at_a_time()).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook_with(json!({ "url": receiver.url("/"), "whileInactive": "hold" })).await;
    publish_while_off(&api, &webhook, 120).await;
    let held = api.event("e007").await;
    assert_eq!(deliveries(&held)[0]["state"], "held", "{held}");
    assert_eq!(missed(&api, &webhook, &[]).await["countMissed"], 0);
    let explained = items(&api.get(&["events", "e007", "explain"], &[]).await.expect(200));
    assert_eq!(explained[0]["code"], "held", "{explained:?}");
    api.patch(&webhook, json!({ "active": true })).await;
    let arrived = receiver.next_many(120).await;
    assert_eq!(arrived.iter().map(|seen| seen.delivery()).collect::<Vec<_>>(), names(0, 120));
    let released = done(&api, &webhook, "held").await;
    assert_eq!((&released["recovered"], &released["from"]), (&json!(120), &Value::Null));
    assert_eq!(api.ended_one("e007").await["run"], 1);
}
