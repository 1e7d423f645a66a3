//! Test deliveries.

use hikyaku_core::signature::receiptroller;

use super::*;
use crate::sender::trial::MAX_TRIALS;

impl World {
    async fn known(&self, name: &str) -> Arc<Webhook> {
        let webhooks = self.store.webhooks(&organization()).await.unwrap();
        webhooks.iter().find(|webhook| webhook.id.as_str() == name).unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_test_is_one_signed_request_of_which_nothing_stays() {
    let world = World::start(|_| status(500));
    world.webhook_with("shop", serde_json::from_str(r#"{"timeoutSeconds":3}"#).unwrap()).await;
    for active in [true, false] {
        world.change("shop", WebhookChange { active: Some(active), ..WebhookChange::default() }).await;
        let before = world.known("shop").await;
        let trial = world.sender.test(before.clone()).await.unwrap();
        assert_eq!(trial.response.outcome, Outcome::Answered(500));
        sleep(secs(10_000)).await;
        assert_eq!(world.known("shop").await, before, "a test switches nothing on or off");
        assert!(world.store.event(&organization(), &trial.event).await.unwrap().is_none());
        let sent = world.wire.sent().pop().unwrap();
        assert_eq!((sent.nth, sent.event.as_str()), (1, trial.event.as_str()), "no retries");
        let signature = receiptroller::sign(&Secret::new(SECRET), &sent.body);
        assert_eq!(sent.headers["x-rr-signature"], signature.as_str());
        let body: serde_json::Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!((&body["id"], &body["type"]), (&trial.event.as_str().into(), &"webhook.test".into()));
    }
    assert_eq!(world.wire.sent().len(), 2);
    assert_eq!(world.wire.timeouts.lock().unwrap()["shop"], secs(3));
}

#[tokio::test(start_paused = true)]
async fn so_many_tests_at_a_time_and_no_more() {
    let world = World::start(|_| hangs());
    world.webhook("shop").await;
    let webhook = world.known("shop").await;
    let one = || {
        let (sender, webhook) = (world.sender.clone(), webhook.clone());
        tokio::spawn(async move { sender.test(webhook).await.is_some() })
    };
    let tests: Vec<_> = (0..=MAX_TRIALS).map(|_| one()).collect();
    let mut made = 0;
    for test in tests {
        made += usize::from(test.await.unwrap());
    }
    assert_eq!(made, MAX_TRIALS);
    assert!(one().await.unwrap(), "those that ended make room");
}
