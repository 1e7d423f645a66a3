//! Sending a past event again by hand (R13), and the answer to "why did it get this, or not?".

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Answer, Api, Config, Receiver, Reply, Server, Webhook, deliveries, gated, items, statuses};

async fn resend(api: &Api, event: &str, webhook: &Webhook) -> Answer {
    api.call(Method::POST, &["deliveries", event, &webhook.id, "resend"], "").await
}

async fn explain_one(api: &Api, event: &str, webhook: &str) -> (String, String) {
    let answer = api.get(&["events", event, "explain"], &[("webhook", webhook)]).await.expect(200);
    let [explained] = &items(&answer)[..] else { panic!("{answer}") };
    assert_eq!(explained["webhookId"], webhook);
    let text = |name: &str| explained[name].as_str().unwrap().to_owned();
    (text("code"), text("sentence"))
}

fn runs(delivery: &Value) -> Vec<(u64, u64)> {
    let attempts = delivery["attempts"].as_array().unwrap();
    attempts.iter().map(|a| (a["run"].as_u64().unwrap(), a["attempt"].as_u64().unwrap())).collect()
}

#[tokio::test]
async fn case23_r13_a_delivered_event_is_sent_again_with_the_same_id_bytes_and_signature() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let event = api.publish("sale.created", r#"{"b":1, "a":2.0}"#).await;
    let first = receiver.next().await;
    api.ended(&event).await;
    let answer = resend(&api, &event, &webhook).await.expect(202);
    assert_eq!((&answer["webhookId"], &answer["run"]), (&json!(webhook.id), &json!(2)));
    let again = receiver.next().await;
    assert_eq!((again.head.as_str(), &again.body), (first.head.as_str(), &first.body));
    let delivery = api.ended_one(&event).await;
    assert_eq!((delivery["state"].as_str(), runs(&delivery)), (Some("delivered"), vec![(1, 1), (2, 1)]));
    let log = items(&api.log(&webhook, &[]).await);
    assert_eq!(log.iter().map(|line| line["run"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn r13_a_resend_has_four_attempts_of_its_own_and_never_switches_the_webhook_off() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let event = api.publish("sale.created", "{}").await;
    receiver.next_many(4).await;
    api.ended(&event).await;
    assert_eq!(api.read_webhook(&webhook).await["active"], false, "R10");
    let code = explain_one(&api, &event, &webhook.id).await;
    assert_eq!(code.0, "exhausted");
    assert!(code.1.contains("all 4 attempts failed (500, 500, 500, 500)"), "{}", code.1);
    // While it is off, and again when it is on.
    for (run, active) in [(2, false), (3, true)] {
        api.patch(&webhook, json!({ "active": active })).await;
        resend(&api, &event, &webhook).await.expect(202);
        receiver.next_many(4).await;
        let delivery = api.ended_one(&event).await;
        assert_eq!((delivery["state"].as_str(), &delivery["run"]), (Some("exhausted"), &json!(run)));
        assert_eq!(statuses(&delivery).len(), 4 * run);
        assert_eq!(api.read_webhook(&webhook).await["active"], active);
    }
    assert_eq!(receiver.seen().len(), 12);
}

#[tokio::test]
async fn r13_a_delivery_that_has_attempts_left_is_not_resent() {
    let config = Config::default().retry_delays(["300s", "300s", "300s"]);
    let (server, receiver) = (Server::start(config).await, Receiver::always(500).await);
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let event = api.publish("sale.created", "{}").await;
    crate::harness::eventually("the first attempt's end", async || {
        (!statuses(&deliveries(&api.event(&event).await)[0]).is_empty()).then_some(())
    })
    .await;
    let answer = resend(&api, &event, &webhook).await;
    assert!(answer.problem(409).contains("has attempts left"), "{answer:?}");
    assert_eq!(answer.json["type"], "/problems/delivery-waiting");
    assert_eq!(explain_one(&api, &event, &webhook.id).await.0, "waiting");
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn r13_any_event_can_be_resent_to_any_webhook_of_the_organization() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    let event = api.publish("sale.created", "{}").await;
    let webhook = api.webhook_with(json!({ "url": receiver.url("/"), "events": ["order.*"] })).await;
    assert_eq!(explain_one(&api, &event, &webhook.id).await.0, "notSubscribed");
    resend(&api, &event, &webhook).await.expect(202);
    assert_eq!(receiver.next().await.delivery(), event);
    let delivery = api.ended_one(&event).await;
    assert_eq!((delivery["state"].as_str(), runs(&delivery)), (Some("delivered"), vec![(2, 1)]));
    let nobody = Webhook { id: "wh_nobody".into(), secret: String::new() };
    assert!(resend(&api, &event, &nobody).await.problem(404).contains("wh_nobody"));
    assert!(resend(&api, "evt_nothing", &webhook).await.problem(404).contains("evt_nothing"));
}

/// Every reason that can be brought about from outside; the sentences are judged beside the code that makes them.
#[tokio::test]
async fn explain_tells_for_every_webhook_why_it_got_an_event_or_did_not() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let (ok, failing) = (Receiver::always(200).await, Receiver::always(500).await);
    let (slow, _gate) = gated(200).await;
    let retrying = Receiver::start(|_| Reply::status(503)).await;
    let delivered = api.webhook(&ok.url("/delivered")).await;
    let exhausted = api.webhook(&failing.url("/")).await;
    let in_flight = api.webhook(&slow.url("/")).await;
    let unsubscribed = api.webhook_with(json!({ "url": ok.url("/x"), "events": ["order.*"] })).await;
    let off = api.webhook_with(json!({ "url": ok.url("/off"), "active": false })).await;
    let missed = api.webhook_with(json!({ "url": ok.url("/missed"), "active": false })).await;
    let held = api.webhook_with(json!({ "url": ok.url("/held"), "active": false, "whileInactive": "hold" })).await;
    let removed = api.webhook(&retrying.url("/")).await;
    let event = api.publish("sale.created", "{}").await;
    let later = api.webhook(&ok.url("/later")).await;
    api.patch(&missed, json!({ "active": true })).await;
    api.patch(&unsubscribed, json!({ "events": ["*"] })).await;
    crate::harness::eventually("an attempt of each", async || {
        let event = api.event(&event).await;
        let of = |id: &str| deliveries(&event).iter().find(|delivery| delivery["webhookId"] == id).cloned();
        let ended = of(&exhausted.id)?["state"] == "exhausted" && of(&delivered.id)?["state"] == "delivered";
        (ended && !statuses(&of(&removed.id)?).is_empty()).then_some(())
    })
    .await;
    // Whether its schedule is at its end by now or not, what is removed is explained by what became of it.
    api.delete(&removed).await;
    let all = items(&api.get(&["events", &event, "explain"], &[]).await.expect(200));
    let code = |webhook: &Webhook| {
        let found = all.iter().find(|explained| explained["webhookId"] == *webhook.id).unwrap();
        assert!(found["sentence"].as_str().unwrap().ends_with('.'), "{found}");
        found["code"].as_str().unwrap().to_owned()
    };
    for (webhook, expected) in [
        (&delivered, "delivered"),
        (&exhausted, "exhausted"),
        (&in_flight, "inFlight"),
        (&unsubscribed, "subscribedLater"),
        (&off, "webhookOff"),
        (&missed, "missed"),
        (&held, "held"),
        (&later, "createdLater"),
    ] {
        assert_eq!(code(webhook), expected, "{all:?}");
    }
    assert!(["cancelled", "exhausted"].contains(&code(&removed).as_str()), "{all:?}");
    assert_eq!(all.len(), 9);
    assert_eq!(explain_one(&api, &event, "wh_nobody").await.0, "unknownWebhook");
    assert_eq!(explain_one(&api, &event, &off.id).await.0, "webhookOff");
    api.get(&["events", "evt_nothing", "explain"], &[]).await.problem(404);
    api.get(&["events", &event, "explain"], &[("webhok", "x")]).await.problem(400);
}
