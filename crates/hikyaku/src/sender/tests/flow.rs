//! Who may be under way at a time, who waits for whom, and how it all begins and ends.

use hikyaku_core::delivery::DeliveryState;
use tokio::time::{sleep, timeout};

use super::*;
use crate::store::memory::Operation;

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

fn caps(in_flight_per_webhook: u32, in_flight: u32) -> Settings {
    Settings { in_flight_per_webhook, in_flight, ..Settings::default() }
}

#[tokio::test(start_paused = true)]
async fn a_first_attempt_needs_no_claim() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    world.store.set_down(Operation::ClaimDeliveries, true);
    world.publish("e1").await;
    sleep(secs(1)).await;
    assert_eq!(world.delivery("e1", "shop").await.state, DeliveryState::Delivered);
}

#[tokio::test(start_paused = true)]
async fn what_finds_no_slot_is_delivered_as_soon_as_slots_are_freed() {
    let world = World::start_with(caps(3, 100), |_| status(200).after(Duration::from_millis(100)));
    world.webhook("shop").await;
    world.try_publish(&ids("e", 12)).await.unwrap();
    sleep(secs(10)).await;
    let tenths: Vec<_> = world.wire.sent().iter().map(|sent| sent.at.as_millis() / 100).collect();
    assert_eq!(tenths, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3], "a freed slot stayed empty");
    assert_eq!(world.wire.most_under_way("shop"), 3);
}

#[tokio::test(start_paused = true)]
async fn attempts_in_all_never_exceed_their_cap() {
    let world = World::start_with(caps(10, 5), |_| status(200).after(secs(1)));
    for webhook in ["shop", "books", "sums"] {
        world.webhook(webhook).await;
    }
    world.try_publish(&ids("e", 10)).await.unwrap();
    sleep(secs(30)).await;
    let sent = world.wire.sent();
    assert_eq!(sent.len(), 30);
    for second in 0..6 {
        assert_eq!(sent.iter().filter(|sent| sent.at.as_secs() == second).count(), 5, "in second {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn case14_a_webhook_that_never_answers_costs_the_others_nothing() {
    let world = World::start(|sent| if sent.endpoint == "dead" { hangs() } else { status(200) });
    world.webhook("dead").await;
    world.try_publish(&ids("old", 500)).await.unwrap();
    sleep(secs(3)).await;
    world.webhook("good").await;
    world.try_publish(&ids("new", 10)).await.unwrap();
    sleep(secs(1)).await;
    assert_eq!(world.wire.seconds("good"), [3; 10]);
    sleep(secs(600)).await;
    assert_eq!(world.wire.most_under_way("dead"), Settings::default().in_flight_per_webhook);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_a_backlog_is_not_starved_by_new_events() {
    let world = World::start_with(caps(1, 100), |_| status(200).after(secs(1)));
    world.webhook("shop").await;
    world.try_publish(&ids("old", 5)).await.unwrap();
    for id in ids("new", 10) {
        sleep(Duration::from_millis(500)).await;
        world.publish(&id).await;
    }
    sleep(secs(30)).await;
    let order: Vec<_> = world.wire.sent().into_iter().map(|sent| sent.event).collect();
    let expected: Vec<_> = [ids("old", 5), ids("new", 10)].concat();
    assert_eq!(order, expected);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_due_before_the_next_look_is_not_late() {
    let mut settings = caps(16, 100);
    let delays = [20, 150, 400].map(Duration::from_millis).to_vec();
    settings.policy.schedule = hikyaku_core::retry::RetrySchedule::new(delays).unwrap();
    let world = World::start_with(settings, |_| status(500));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(3)).await;
    let at: Vec<_> = world.wire.sent().iter().map(|sent| sent.at.as_millis()).collect();
    assert!(at.iter().zip([0, 20, 170, 570]).all(|(at, due)| (due..due + 10).contains(at)), "{at:?}");
    assert_eq!(at.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_that_goes_away_leaves_no_attempt_unmade() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    let publish = world.sender.publish(organization(), vec![event("e1")]);
    assert!(timeout(Duration::ZERO, publish).await.is_err(), "it was answered at once; nothing was cut off");
    sleep(secs(100)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["200"]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_publish_sends_nothing_again() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    world.publish("e1").await;
    assert!(world.publish("e1").await.repeated);
    sleep(secs(100)).await;
    assert_eq!(world.wire.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn case7_an_end_waits_for_attempts_and_the_next_start_goes_on_with_the_rest() {
    let world = World::start(|sent| status(if sent.endpoint == "shop" { 200 } else { 500 }).after(secs(5)));
    world.webhook("shop").await;
    world.webhook("books").await;
    world.publish("e1").await;
    sleep(secs(1)).await;
    let (clock, wire, sender) = (world.clock.clone(), world.wire.clone(), world.sender.clone());
    let ended = tokio::spawn(world.end());
    sleep(Duration::from_millis(1)).await;
    sender.publish(organization(), vec![event("e2")]).await.unwrap();
    let store = ended.await.unwrap();
    assert_eq!(clock.elapsed().as_secs(), 5, "it ended before its attempts or long after them");
    assert_eq!(wire.sent().len(), 2, "an attempt began after the end was asked for");

    let world = World::start_on(store, clock, Settings::default(), |_| status(200));
    sleep(secs(3600)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["200"]);
    assert_eq!(log(&world.delivery("e1", "books").await), ["500", "200"]);
    assert_eq!(log(&world.delivery("e2", "shop").await), ["200"]);
    assert_eq!(world.wire.seconds("books"), [5, 65], "the retry was not on time");
}

#[tokio::test(start_paused = true)]
async fn what_a_removed_webhook_cancels_is_counted_as_ended() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _installed = ::metrics::set_default_local_recorder(&recorder);
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    let id = WebhookId::parse("shop").unwrap();
    for event in ["e1", "e2"] {
        world.publish(event).await;
    }
    sleep(secs(5)).await;
    assert_eq!(world.delivery("e1", "shop").await.state, DeliveryState::Waiting);
    let cancelled = |number: u32| format!(r#"hikyaku_deliveries_total{{outcome="cancelled"}} {number}"#);
    assert!(recorder.handle().render().contains(&cancelled(0)));
    assert!(world.sender.remove_webhook(&organization(), &id).await.unwrap());
    assert!(!world.sender.remove_webhook(&organization(), &id).await.unwrap());
    assert_eq!(world.delivery("e1", "shop").await.state, DeliveryState::Cancelled);
    assert!(recorder.handle().render().contains(&cancelled(2)), "{}", recorder.handle().render());
}
