//! Operational events: who is told what, and how often.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Longer than the attempts of an event take, and of those of the notices of its end.
const LONG_S: u64 = 20_000;

impl World {
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
async fn r10_the_failures_of_notices_are_told_to_nobody() {
    let world = World::start(|_| status(500));
    world.webhook("bad").await;
    world.watcher("watch1").await;
    world.watcher("watch2").await;
    world.publish("e1").await;
    sleep(secs(LONG_S)).await;
    let events: BTreeSet<_> = world.wire.sent().into_iter().map(|sent| sent.event).collect();
    assert_eq!(events.len(), 3, "the event, its exhaustion and the switch-off: {events:?}");
    for webhook in ["bad", "watch1", "watch2"] {
        assert!(!world.is_on(webhook).await, "{webhook}: R10 holds for notices too");
    }
}
