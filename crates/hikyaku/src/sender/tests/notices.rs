//! Operational events: who is told what, and how often.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Longer than the attempts of an event take, and of those of the notices of its end.
const LONG_S: u64 = 20_000;

/// An operational event's type and the webhook that it is about.
fn body(bytes: &[u8]) -> (String, String) {
    let body: Value = serde_json::from_slice(bytes).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&body["type"]), text(&body["data"]["webhookId"]))
}

impl World {
    /// All news that was sent to anybody.
    fn told(&self) -> BTreeSet<(String, String)> {
        let all = self.wire.sent().into_iter().map(|sent| body(&sent.body));
        all.filter(|(_, about)| !about.is_empty()).collect()
    }

    /// A webhook that takes operational events only.
    async fn watcher(&self, name: &str) {
        self.webhook(name).await;
        let events = ["webhook.*", "delivery.exhausted"].map(|pattern| EventPattern::parse(pattern).unwrap()).to_vec();
        self.change(name, WebhookChange { events: Some(events), ..WebhookChange::default() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn r10_a_switch_off_is_told_once_and_to_those_who_asked() {
    let world = World::start(|sent| status(if sent.endpoint == "bad" { 500 } else { 200 }));
    world.webhook("bad").await;
    world.webhook("any").await;
    world.watcher("watch").await;
    let everything =
        ["sale.*", "webhook.*", "delivery.*"].map(|pattern| EventPattern::parse(pattern).unwrap()).to_vec();
    world.change("bad", WebhookChange { events: Some(everything), ..WebhookChange::default() }).await;
    world.publish("e1").await;
    sleep(secs(LONG_S)).await;
    assert!(!world.is_on("bad").await);
    let mut told = Vec::new();
    for sent in world.wire.sent().iter().filter(|sent| sent.event != "e1") {
        assert_eq!(sent.endpoint, "watch", "`*` means no operational events, and nobody is told of itself");
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!((&body["id"], &body["data"]["webhookId"]), (&sent.event.as_str().into(), &"bad".into()));
        assert_eq!(body["data"]["eventId"], "e1");
        assert_eq!(sent.headers["x-rr-signature"].to_str().unwrap().len(), "sha256=".len() + 64);
        told.push(body["type"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, ["delivery.exhausted", "webhook.disabled"]);
    let last = world.wire.seconds("bad").last().copied();
    assert!(world.wire.seconds("watch").iter().all(|at| Some(*at) == last), "in the commit of the last attempt");
}

#[tokio::test(start_paused = true)]
async fn r10_news_that_cannot_be_delivered_makes_no_news_but_of_switch_offs_and_these_end() {
    let world = World::start(|_| status(500));
    world.webhook("bad").await;
    for watcher in ["watch1", "watch2", "watch3"] {
        world.watcher(watcher).await;
    }
    world.publish("e1").await;
    sleep(secs(4 * LONG_S)).await;
    for webhook in ["bad", "watch1", "watch2", "watch3"] {
        assert!(!world.is_on(webhook).await, "{webhook}: R10 holds for notices too");
    }
    let told: Vec<_> = world.told().into_iter().collect();
    let exhausted = told.iter().filter(|(event_type, _)| event_type == "delivery.exhausted");
    assert_eq!(exhausted.map(|(_, about)| about.as_str()).collect::<Vec<_>>(), ["bad"], "{told:?}");
    assert!(told.contains(&("webhook.disabled".into(), "bad".into())), "{told:?}");
    assert!(told.len() <= 5, "the exhaustion and one switch-off each: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn r10_a_watcher_that_news_switched_off_is_told_to_the_others() {
    let world = World::start(|sent| status(if sent.endpoint == "watch" { 200 } else { 500 }));
    world.webhook("bad").await;
    world.watcher("both").await;
    world.watcher("watch").await;
    world.publish("e1").await;
    sleep(secs(2 * LONG_S)).await;
    let disabled = |about: &str| ("webhook.disabled".to_owned(), about.to_owned());
    assert!(!world.is_on("both").await);
    assert!(world.told().contains(&disabled("both")), "{:?}", world.told());
    let to_itself = world.wire.sent().into_iter().filter(|sent| sent.endpoint == "both").map(|sent| body(&sent.body).1);
    assert!(to_itself.into_iter().all(|about| about != "both"), "nobody is told of itself");
}
