//! The contract's rules, one by one.

use std::sync::atomic::Ordering;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::WebhookId;
use hikyaku_core::signature::{Secret, receiptroller};
use hikyaku_core::webhook::WebhookUrl;
use tokio::time::sleep;

use super::*;
use crate::store::{Group, Lease, Publish};

/// Longer than the whole schedule with all its waits.
const TWO_HOURS: Duration = Duration::from_secs(2 * 3600);

#[tokio::test(start_paused = true)]
async fn r2_a_2xx_ends_it_at_once() {
    for code in [200, 204, 299] {
        let world = World::start(move |_| status(code));
        world.webhook("shop").await;
        assert_eq!(world.publish("e1").await.deliveries, 1);
        sleep(TWO_HOURS).await;
        let delivery = world.delivery("e1", "shop").await;
        assert_eq!((delivery.state, log(&delivery)), (DeliveryState::Delivered, vec![code.to_string()]));
        assert_eq!(world.wire.seconds("shop"), [0]);
    }
}

#[tokio::test(start_paused = true)]
async fn r7_r8_four_attempts_over_seventy_one_minutes() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(TWO_HOURS).await;
    assert_eq!(world.wire.seconds("shop"), [0, 60, 660, 4260]);
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!((delivery.state, log(&delivery)), (DeliveryState::Exhausted, vec!["500".to_owned(); 4]));
}

#[tokio::test(start_paused = true)]
async fn r4_r6_r8_pauses_are_counted_from_the_end_of_the_attempt_before() {
    let world = World::start(|_| hangs());
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(TWO_HOURS).await;
    assert_eq!(world.wire.seconds("shop"), [0, 70, 680, 4290]);
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!(log(&delivery), ["timeout"; 4]);
    assert!(delivery.attempts.iter().all(|attempt| attempt.outcome.http_status() == 0));
}

#[tokio::test(start_paused = true)]
async fn r9_r21_r22_every_attempt_at_every_webhook_has_the_same_bytes_signature_and_id() {
    let world = World::start(|_| status(503));
    world.webhook("shop").await;
    world.webhook("books").await;
    assert_eq!(world.publish("e1").await.deliveries, 2);
    sleep(TWO_HOURS).await;
    let sent = world.wire.sent();
    assert_eq!(sent.len(), 8);
    for request in &sent {
        assert_eq!(request.body, event("e1").body);
        assert_eq!(request.headers, sent[0].headers);
        assert_eq!(request.headers["x-rr-delivery"], "e1");
        assert_eq!(request.headers["content-type"], "application/json");
        let signature = request.headers["x-rr-signature"].as_bytes();
        assert_eq!(receiptroller::verify(&[Secret::new(SECRET)], Some(signature), &request.body), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn r9_a_retry_goes_to_the_present_url_with_the_first_bytes() {
    let world = World::start(|sent| status(if sent.endpoint == "shop" { 500 } else { 200 }));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(1)).await;
    let url = Some(WebhookUrl::parse("https://moved.example.com/hook").unwrap());
    world.change("shop", WebhookChange { url, ..WebhookChange::default() }).await;
    sleep(TWO_HOURS).await;
    let sent = world.wire.sent();
    assert_eq!(sent.iter().map(|sent| sent.endpoint.as_str()).collect::<Vec<_>>(), ["shop", "moved"]);
    assert_eq!((&sent[0].body, &sent[0].headers), (&sent[1].body, &sent[1].headers));
}

#[tokio::test(start_paused = true)]
async fn r10_r11_r12_one_exhausted_event_switches_off_and_later_events_do_not_come() {
    let world = World::start(|sent| status(if sent.endpoint == "shop" { 404 } else { 200 }));
    world.webhook("shop").await;
    world.webhook("books").await;
    world.publish("e1").await;
    sleep(secs(4200)).await;
    assert!(world.is_on("shop").await, "it is off before the fourth attempt");
    sleep(TWO_HOURS).await;
    assert!(!world.is_on("shop").await);
    assert_eq!(world.publish("e2").await.deliveries, 1, "an event for the webhook that is off");
    world.change("shop", WebhookChange { active: Some(true), ..WebhookChange::default() }).await;
    sleep(TWO_HOURS).await;
    assert_eq!(world.wire.seconds("shop").len(), 4, "an event came later");
    assert_eq!(world.wire.seconds("books").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn r14_a_pause_does_not_stop_retries_and_their_success_does_not_end_it() {
    let world = World::start(|sent| status(if sent.nth < 3 { 500 } else { 200 }));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(1)).await;
    world.change("shop", WebhookChange { active: Some(false), ..WebhookChange::default() }).await;
    sleep(TWO_HOURS).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["500", "500", "200"]);
    assert!(!world.is_on("shop").await);
}

/// What a process leaves behind that published, took the lease and was killed.
#[tokio::test(start_paused = true)]
async fn r17_r18_an_interrupted_attempt_is_logged_as_one_of_the_four_and_switches_nothing_off() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    let lease = Lease { owner: "killed".into(), duration: secs(20) };
    let room = [(WebhookId::parse("shop").unwrap(), 1)].into();
    let due_at = world.clock.schedule();
    let publish = Publish { organization: organization(), events: vec![event("e1")], due_at, lease, room, about: None };
    world.store.commit(Group { publish: vec![publish], ..Group::default() }).await.unwrap();
    sleep(TWO_HOURS).await;
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!(log(&delivery), ["interrupted", "500", "500", "500"]);
    assert_eq!(delivery.attempts[0].started_at, due_at);
    assert_eq!(world.wire.seconds("shop"), [80, 680, 4280], "the first attempt's lease ends at 20");
    assert_eq!(delivery.state, DeliveryState::Exhausted);
    assert!(world.is_on("shop").await);
}

#[tokio::test(start_paused = true)]
async fn r19_events_do_not_wait_for_each_other() {
    let world = World::start(|sent| if sent.event == "e1" { hangs() } else { status(200) });
    world.webhook("shop").await;
    world.publish("e1").await;
    world.publish("e2").await;
    sleep(secs(1)).await;
    assert_eq!(world.delivery("e2", "shop").await.state, DeliveryState::Delivered);
    assert!(world.delivery("e1", "shop").await.in_flight);
}

#[tokio::test(start_paused = true)]
async fn case16_the_wall_clock_does_not_move_an_attempt() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    world.publish("e1").await;
    for off_by_s in [-24 * 3600, 71 * 60, -300] {
        sleep(secs(30)).await;
        world.clock.wall_off_by_s.store(off_by_s, Ordering::SeqCst);
    }
    sleep(TWO_HOURS).await;
    assert_eq!(world.wire.seconds("shop"), [0, 60, 660, 4260]);
}

#[tokio::test(start_paused = true)]
async fn case16_a_clock_that_jumps_back_cannot_park_the_loop() {
    let world = World::start(|sent| status(if sent.nth < 2 { 500 } else { 200 }));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(10)).await;
    world.clock.schedule_off_by_s.store(-3600, Ordering::SeqCst);
    sleep(secs(90)).await;
    assert_eq!(world.wire.seconds("shop"), [0], "an attempt came early by its clock");
    world.clock.schedule_off_by_s.store(0, Ordering::SeqCst);
    sleep(secs(2)).await;
    assert_eq!(world.wire.sent().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case22_a_late_finish_is_kept_in_the_log_and_changes_no_state() {
    // The first answer takes longer than the lease, as in a process that was stopped for a while.
    let world = World::start(|sent| status(200).after(secs(if sent.nth == 1 { 50 } else { 0 })));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(40)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["interrupted"]);
    sleep(secs(20)).await;
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!((delivery.state, log(&delivery)), (DeliveryState::Waiting, vec!["200".to_owned()]));
    sleep(TWO_HOURS).await;
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!((delivery.state, log(&delivery)), (DeliveryState::Delivered, vec!["200".to_owned(); 2]));
    assert_eq!(world.wire.seconds("shop"), [0, 80]);
}

#[tokio::test(start_paused = true)]
async fn case25_a_webhook_that_is_switched_on_gets_what_is_published_next_through_any_sender() {
    let here = World::start(|_| status(200));
    here.webhook("shop").await;
    let there = World::start_on(here.store.clone(), here.clock.clone(), Settings::default(), |_| status(200));
    here.change("shop", WebhookChange { active: Some(false), ..WebhookChange::default() }).await;
    assert_eq!(there.publish("missed").await.deliveries, 0);
    here.change("shop", WebhookChange { active: Some(true), ..WebhookChange::default() }).await;
    there.publish("there").await;
    here.publish("here").await;
    sleep(secs(1)).await;
    let sent: Vec<_> = [&here, &there].into_iter().flat_map(|world| world.wire.sent()).map(|sent| sent.event).collect();
    assert_eq!(sent, ["here", "there"]);
}
