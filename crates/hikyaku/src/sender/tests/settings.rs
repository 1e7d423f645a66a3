//! What is set per webhook holds for it and for no other.

use hikyaku_core::delivery::DeliveryState;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::store::memory::Operation;

/// Longer than any schedule here.
const LONG: Duration = Duration::from_secs(3 * 24 * 3600);

fn settings(json: Value) -> webhook::Settings {
    serde_json::from_value(json).unwrap()
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("e{n:03}")).collect()
}

#[tokio::test(start_paused = true)]
async fn r8_a_webhook_has_its_own_schedule() {
    let world = World::start(|_| status(500));
    world.webhook_with("own", settings(json!({"retryDelays": [0.5, 7]}))).await;
    world.webhook_with("once", settings(json!({"retryDelays": []}))).await;
    world.webhook("plain").await;
    world.publish("e1").await;
    sleep(LONG).await;
    let millis: Vec<_> =
        world.wire.sent().iter().filter(|sent| sent.endpoint == "own").map(|sent| sent.at.as_millis()).collect();
    assert_eq!(millis, [0, 500, 7500]);
    assert_eq!(world.wire.seconds("once"), [0]);
    assert_eq!(world.wire.seconds("plain"), [0, 60, 660, 4260]);
    for webhook in ["own", "once", "plain"] {
        assert!(!world.is_on(webhook).await, "R10 holds for {webhook} too");
    }
}

#[tokio::test(start_paused = true)]
async fn r4_a_webhook_has_its_own_timeout_and_a_lease_that_outlasts_it() {
    let world = World::start(|sent| status(200).after(secs(if sent.endpoint == "slow" { 29 } else { 0 })));
    world.webhook_with("slow", settings(json!({"timeoutSeconds": 30}))).await;
    world.webhook_with("hasty", settings(json!({"timeoutSeconds": 1.5}))).await;
    world.webhook("plain").await;
    world.publish("e1").await;
    sleep(secs(31)).await;
    assert_eq!(log(&world.delivery("e1", "slow").await), ["200"], "it was not taken over while it was under way");
    let timeouts = world.wire.timeouts.lock().unwrap().clone();
    for (endpoint, millis) in [("slow", 30_000), ("hasty", 1500), ("plain", 10_000)] {
        assert_eq!(timeouts[endpoint].as_millis(), millis);
    }
    // The same through claims: there are more than slots.
    world.try_publish(&ids(60)).await.unwrap();
    sleep(LONG).await;
    for id in ids(60) {
        assert_eq!(log(&world.delivery(&id, "slow").await), ["200"], "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_has_its_own_cap_on_attempts_under_way() {
    let world = World::start(|_| status(200).after(secs(1)));
    world.webhook_with("narrow", settings(json!({"maxInFlight": 2}))).await;
    world.webhook_with("wide", settings(json!({"maxInFlight": 40}))).await;
    world.webhook("plain").await;
    world.try_publish(&ids(80)).await.unwrap();
    sleep(secs(60)).await;
    for (endpoint, most) in [("narrow", 2), ("wide", 40), ("plain", 16)] {
        assert_eq!(world.wire.most_under_way(endpoint), most, "{endpoint}");
        assert_eq!(world.wire.seconds(endpoint).len(), 80);
    }
    assert_eq!(world.wire.seconds("narrow").last(), Some(&39), "a slot stayed empty");
    assert_eq!(world.wire.seconds("wide").last(), Some(&1), "a slot stayed empty");
}

#[tokio::test(start_paused = true)]
async fn a_cap_holds_from_the_first_claim_after_a_start() {
    let world = World::start(|_| status(200).after(secs(1)));
    world.webhook_with("narrow", settings(json!({"maxInFlight": 2}))).await;
    world.webhook_with("slow", settings(json!({"rateLimit": {"perSecond": 1, "burst": 1}}))).await;
    let clock = world.clock.clone();
    let store = world.end().await;
    let publish = crate::store::Publish {
        organization: organization(),
        events: ids(20).iter().map(|id| event(id)).collect(),
        due_at: clock.schedule(),
        lease: crate::store::Lease { owner: "gone".into(), duration: secs(1) },
        room: HashMap::new(),
        about: None,
    };
    store.commit(crate::store::Group { publish: vec![publish], ..Default::default() }).await.unwrap();
    let world = World::start_on(store, clock, Settings::default(), |_| status(200).after(secs(1)));
    sleep(secs(60)).await;
    assert_eq!(world.wire.most_under_way("narrow"), 2);
    let seconds = world.wire.seconds("slow");
    assert_eq!(seconds.len(), 20);
    assert!(seconds.windows(2).all(|pair| pair[0] < pair[1]), "{seconds:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_and_costs_others_nothing() {
    let world = World::start(|_| status(200));
    world.webhook_with("slow", settings(json!({"rateLimit": {"perSecond": 2, "burst": 3}}))).await;
    world.webhook("plain").await;
    world.try_publish(&ids(11)).await.unwrap();
    sleep(secs(1)).await;
    for late in ["late1", "late2"] {
        world.publish(late).await;
    }
    sleep(secs(60)).await;
    let at = |endpoint: &str| -> Vec<_> {
        world.wire.sent().iter().filter(|sent| sent.endpoint == endpoint).map(|sent| sent.at.as_millis()).collect()
    };
    let expected: Vec<_> = [0, 0, 0].into_iter().chain((1..=10).map(|n| n * 500)).collect();
    assert_eq!(at("slow"), expected, "publishes and claims share one bucket");
    assert!(at("plain").iter().all(|millis| *millis == 0 || *millis == 1000), "{:?}", at("plain"));
    let order: Vec<_> =
        world.wire.sent().into_iter().filter(|sent| sent.endpoint == "slow").map(|sent| sent.event).skip(11).collect();
    assert_eq!(order, ["late1", "late2"], "the newest do not starve the oldest");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_for_retries_too() {
    let world = World::start(|sent| status(if sent.nth < 2 { 500 } else { 200 }));
    world.webhook_with("slow", settings(json!({"rateLimit": {"perSecond": 1, "burst": 2}, "retryDelays": [10]}))).await;
    world.try_publish(&ids(6)).await.unwrap();
    sleep(secs(60)).await;
    assert_eq!(world.wire.seconds("slow"), [0, 0, 1, 2, 3, 4, 10, 10, 11, 12, 13, 14]);
}

/// Claims are counted: a webhook that has to wait for its rate must not keep the loop busy.
#[tokio::test(start_paused = true)]
async fn a_rate_limit_does_not_make_the_loop_spin() {
    let world = World::start(|_| status(200));
    world.webhook_with("slow", settings(json!({"rateLimit": {"perSecond": 0.1, "burst": 1}}))).await;
    world.try_publish(&ids(10)).await.unwrap();
    sleep(secs(5)).await;
    let before = world.store.calls(Operation::ClaimDeliveries);
    sleep(secs(60)).await;
    let claims = world.store.calls(Operation::ClaimDeliveries) - before;
    assert!(claims < 100, "{claims} claims in a minute");
    assert_eq!(world.wire.seconds("slow"), [0, 10, 20, 30, 40, 50, 60]);
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_brings_nothing_new_takes_nothing_of_the_rate() {
    let world = World::start(|_| status(200));
    world.webhook_with("slow", settings(json!({"rateLimit": {"perSecond": 0.01, "burst": 2}}))).await;
    for _ in 0..5 {
        world.publish("e1").await;
    }
    world.publish("e2").await;
    sleep(secs(1)).await;
    assert_eq!(world.wire.seconds("slow"), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn s12_custom_headers_are_sent_and_ours_stand_over_them() {
    let world = World::start(|_| status(200));
    let headers = json!({"Authorization": "Bearer x", "x-shop": "Kyoto", "accept": "*/*"});
    world.webhook_with("shop", settings(json!({"headers": headers}))).await;
    world.webhook("plain").await;
    world.publish("e1").await;
    sleep(secs(1)).await;
    let sent = world.wire.sent();
    let of = |endpoint: &str| sent.iter().find(|sent| sent.endpoint == endpoint).unwrap().headers.clone();
    let (mut with, without) = (of("shop"), of("plain"));
    for (name, value) in [("authorization", "Bearer x"), ("x-shop", "Kyoto"), ("accept", "*/*")] {
        assert_eq!(with.remove(name).unwrap(), value);
    }
    assert_eq!(with, without, "nothing of ours has changed");
}

#[tokio::test(start_paused = true)]
async fn retry_after_postpones_where_it_is_respected() {
    let world = World::start(|sent| {
        let answer = status(if sent.nth == 1 { 429 } else { 200 });
        Answer { retry_after: Some("1000"), ..answer }
    });
    world.webhook_with("polite", settings(json!({"respectRetryAfter": true}))).await;
    world.webhook("plain").await;
    world.publish("e1").await;
    sleep(LONG).await;
    assert_eq!(world.wire.seconds("polite"), [0, 1000]);
    assert_eq!(world.wire.seconds("plain"), [0, 60]);
}

#[tokio::test(start_paused = true)]
async fn r10_r11_so_many_exhausted_events_in_a_row_switch_off() {
    let world = World::start(|sent| status(if sent.event.starts_with("good") { 200 } else { 500 }));
    let set = |after: Value| settings(json!({"disableAfter": after, "retryDelays": [1]}));
    world.webhook_with("two", set(json!(2))).await;
    world.webhook_with("never", set(json!("never"))).await;
    for (event, on) in [("bad1", true), ("good1", true), ("bad2", true), ("bad3", false)] {
        world.publish(event).await;
        sleep(secs(5)).await;
        assert_eq!(world.is_on("two").await, on, "after {event}");
        assert!(world.is_on("never").await);
    }
    world.change("two", WebhookChange { active: Some(true), ..WebhookChange::default() }).await;
    world.publish("bad4").await;
    sleep(secs(5)).await;
    assert!(world.is_on("two").await, "switching it on begins anew");
    assert_eq!(world.delivery("bad4", "two").await.state, DeliveryState::Exhausted);
}
