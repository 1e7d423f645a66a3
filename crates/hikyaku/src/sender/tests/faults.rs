//! What the store does to us, and that nothing is lost by it.

use hikyaku_core::delivery::DeliveryState;
use tokio::time::sleep;

use super::*;
use crate::store::memory::{Fault, Operation};
use crate::store::{Group, Publish};

fn unavailable() -> StoreError {
    StoreError::Unavailable("planted".into())
}

fn unknown() -> StoreError {
    StoreError::Unknown("planted".into())
}

#[tokio::test(start_paused = true)]
async fn claims_go_on_when_the_store_is_back() {
    let world = World::start(|sent| status(if sent.nth == 1 { 500 } else { 200 }));
    world.webhook("shop").await;
    world.publish("e1").await;
    sleep(secs(10)).await;
    world.store.set_down(Operation::ClaimDeliveries, true);
    sleep(secs(600)).await;
    assert_eq!(world.wire.sent().len(), 1);
    world.store.set_down(Operation::ClaimDeliveries, false);
    sleep(secs(6)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["500", "200"]);
}

#[tokio::test(start_paused = true)]
async fn a_finish_that_failed_is_written_again_and_nothing_is_sent_again() {
    // The last one is of somebody else's write in the same commit.
    let damaged = StoreError::Damaged("planted".into());
    let faults =
        [Fault::Before(unavailable()), Fault::Before(unknown()), Fault::After(unknown()), Fault::Before(damaged)];
    for fault in faults {
        let world = World::start(|_| status(200).after(secs(1)));
        world.webhook("shop").await;
        world.publish("e1").await;
        world.store.fail_next(Operation::Commit, fault.clone());
        sleep(secs(600)).await;
        let delivery = world.delivery("e1", "shop").await;
        assert_eq!((delivery.state, log(&delivery)), (DeliveryState::Delivered, vec!["200".to_owned()]), "{fault:?}");
        assert_eq!(world.wire.sent().len(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_whose_finish_was_written_unheard_is_on_time() {
    let world = World::start(|sent| status(if sent.nth == 1 { 500 } else { 200 }).after(secs(1)));
    world.webhook("shop").await;
    world.publish("e1").await;
    world.store.fail_next(Operation::Commit, Fault::After(unknown()));
    sleep(secs(100)).await;
    assert_eq!(world.wire.seconds("shop"), [0, 61]);
    assert_eq!(log(&world.delivery("e1", "shop").await), ["500", "200"]);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_outlives_its_lease_unwritten_stands_as_interrupted() {
    let world = World::start(|_| status(500).after(secs(1)));
    world.webhook("shop").await;
    world.publish("e1").await;
    world.store.set_down(Operation::Commit, true);
    sleep(secs(60)).await;
    world.store.set_down(Operation::Commit, false);
    sleep(secs(2 * 3600)).await;
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!(log(&delivery), ["interrupted", "500", "500", "500"]);
    assert_eq!(world.wire.sent().len(), 4, "one for each line of the log");
    assert!(world.is_on("shop").await, "our outage switched a webhook off");
}

#[tokio::test(start_paused = true)]
async fn a_refused_publish_gives_its_slots_back() {
    let settings = Settings { in_flight_per_webhook: 1, ..Settings::default() };
    let world = World::start_with(settings, |_| status(200));
    world.webhook("shop").await;
    world.store.fail_next(Operation::Commit, Fault::Before(unavailable()));
    assert!(world.try_publish(&["e1".to_owned()]).await.is_err());
    world.store.set_down(Operation::ClaimDeliveries, true);
    world.publish("e2").await;
    sleep(secs(1)).await;
    assert_eq!(world.delivery("e2", "shop").await.state, DeliveryState::Delivered);
}

/// The publisher does not know, asks again with the same id, and the event is delivered once more at most.
#[tokio::test(start_paused = true)]
async fn a_publish_written_unheard_is_delivered_all_the_same() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    world.store.fail_next(Operation::Commit, Fault::After(unknown()));
    assert!(matches!(world.try_publish(&["e1".to_owned()]).await, Err(StoreError::Unknown(_))));
    assert!(world.publish("e1").await.repeated);
    sleep(secs(100)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["interrupted", "200"]);
}

/// The commit that took the lease was answered so late that an attempt would outlive it.
#[tokio::test(start_paused = true)]
async fn no_request_begins_under_a_lease_that_is_too_short_for_it() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    let (due_at, lease) = (world.clock.schedule(), world.sender.lease());
    let permit = world.sender.slots.reserve(&webhook("shop", Default::default()), 1).remove(0);
    let room = [(WebhookId::parse("shop").unwrap(), 1)].into();
    let publish = Publish { organization: organization(), events: vec![event("e1")], due_at, lease, room, about: None };
    let outcome = world.store.commit(Group { publish: vec![publish], ..Group::default() }).await.unwrap();
    let PublishOutcome::Stored(events) = &outcome.publish[0] else { panic!("{outcome:?}") };
    sleep(secs(11)).await;
    world.sender.start(events[0].leased[0].clone(), permit, due_at);
    sleep(secs(10)).await;
    assert_eq!(world.wire.sent().len(), 0);
    sleep(secs(600)).await;
    assert_eq!(log(&world.delivery("e1", "shop").await), ["interrupted", "200"]);
}
