//! Any answers and any faults of the store together: what the wire saw and what the log says must fit.

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::retry::RetrySchedule;
use proptest::prelude::*;
use tokio::time::sleep;

use super::*;
use crate::store::memory::{Fault, Operation};

const WEBHOOKS: [&str; 2] = ["shop", "books"];

/// Something that happens, and how long it is quiet afterwards.
#[derive(Debug, Clone)]
struct Step {
    act: Act,
    quiet_ms: u64,
}

#[derive(Debug, Clone)]
enum Act {
    Publish,
    Fail(Operation, Fault),
    Down(Operation, bool),
}

fn act() -> impl Strategy<Value = Act> {
    let operation = || prop_oneof![Just(Operation::Commit), Just(Operation::ClaimDeliveries)];
    let fault = prop_oneof![
        Just(Fault::Before(StoreError::Unavailable("planted".into()))),
        Just(Fault::Before(StoreError::Unknown("planted".into()))),
        Just(Fault::After(StoreError::Unknown("planted".into()))),
    ];
    prop_oneof![
        4 => Just(Act::Publish),
        2 => (operation(), fault).prop_map(|(operation, fault)| Act::Fail(operation, fault)),
        1 => (operation(), any::<bool>()).prop_map(|(operation, down)| Act::Down(operation, down)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let quiet_ms = prop_oneof![Just(0), 0u64..100, 0u64..60_000];
    proptest::collection::vec((act(), quiet_ms).prop_map(|(act, quiet_ms)| Step { act, quiet_ms }), 1..20)
}

fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let outcome = prop_oneof![Just(status(200)), Just(status(500)), Just(status(301)), Just(hangs())];
    let answer = (outcome, 0u64..10_000).prop_map(|(answer, after)| match answer.outcome {
        Outcome::Answered(_) => answer.after(Duration::from_millis(after)),
        Outcome::Failed(_) => answer,
    });
    proptest::collection::vec(answer, 1..12)
}

async fn course(steps: Vec<Step>, answers: Vec<Answer>) {
    let mut settings = Settings { in_flight_per_webhook: 2, in_flight: 3, ..Settings::default() };
    settings.policy.schedule = RetrySchedule::new([1, 5, 30].map(secs).to_vec()).unwrap();
    let script = answers.clone();
    let world = World::start_with(settings, move |sent| answer_to(&script, sent));
    for webhook in WEBHOOKS {
        world.webhook(webhook).await;
    }
    let mut ids = Vec::new();
    for (n, Step { act, quiet_ms }) in steps.into_iter().enumerate() {
        match act {
            Act::Fail(operation, fault) => world.store.fail_next(operation, fault),
            Act::Down(operation, down) => world.store.set_down(operation, down),
            Act::Publish => {
                ids.push(format!("e{n}"));
                let _ = world.try_publish(&ids[ids.len() - 1..]).await;
            }
        }
        sleep(Duration::from_millis(quiet_ms)).await;
    }
    for operation in Operation::ALL {
        world.store.set_down(operation, false);
    }
    sleep(secs(1800)).await;
    for id in &ids {
        check(&world, id, &answers).await;
    }
    for webhook in WEBHOOKS {
        assert!(world.wire.most_under_way(webhook) <= 2, "{webhook} had more requests under way than its cap");
    }
    world.end().await;
}

fn answer_to(answers: &[Answer], sent: &Sent) -> Answer {
    let place = sent.nth + sent.endpoint.len() + sent.event.bytes().map(usize::from).sum::<usize>();
    answers[place % answers.len()]
}

async fn check(world: &World, id: &str, answers: &[Answer]) {
    let Some(view) = world.store.event(&organization(), &EventId::parse(id).unwrap()).await.unwrap() else {
        assert!(world.wire.sent().iter().all(|sent| sent.event != id), "{id} was sent and is not stored");
        return;
    };
    for delivery in view.deliveries {
        let webhook = delivery.webhook.as_str();
        let sent: Vec<_> =
            world.wire.sent().into_iter().filter(|sent| sent.event == id && sent.endpoint == webhook).collect();
        let context = format!("{id} to {webhook}: {:?} after {} requests", log(&delivery), sent.len());
        assert!(delivery.attempts.len() <= 4, "more than four attempts, {context}");
        assert!(sent.len() <= delivery.attempts.len(), "a request without its line, {context}");
        let answered = delivery.attempts.iter().filter(|attempt| attempt.outcome.http_status() != 0).count();
        assert!(answered <= sent.len(), "a line without its request, {context}");
        let seen_2xx = sent.iter().any(|sent| answer_to(answers, sent).outcome.is_success());
        match delivery.state {
            DeliveryState::Delivered => assert!(seen_2xx, "delivered without a 2xx, {context}"),
            DeliveryState::Exhausted => assert_eq!(delivery.attempts.len(), 4, "{context}"),
            other => panic!("it did not end but is {other:?}, {context}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_wire_and_the_log_agree_whatever_happens(steps in steps(), answers in answers()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(course(steps, answers));
    }
}
