//! Whoever publishes: writes down what it was answered, and asks again where it heard nothing.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hikyaku::clock::Clock;
use hikyaku::store::{NewEvent, PublishOutcome};
use hikyaku_core::event::{EventType, content_hash, render_body};
use hikyaku_core::ids::EventId;
use hikyaku_core::timestamp;
use serde_json::value::RawValue;
use tokio::time::{sleep, timeout};

use crate::dice::lock;
use crate::ledger::Published;
use crate::node::organization;
use crate::plant::Plant;
use crate::world::Stage;

/// How long it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it asks at most.
const TRIES: u32 = 6;
/// The longest pause between two publishes.
const LONGEST_PAUSE: Duration = Duration::from_secs(50 * 60);
const TYPES: [&str; 3] = ["sale.created", "order.updated", "stock.counted"];
/// Data that no careless hand would leave as it is.
const DATA: [&str; 4] = [
    r#"{"z":1,  "a":2.0, "z":3}"#,
    r#"{"id":29383937493038367292,"t":"\u00e9\n"}"#,
    r#"[1e400, -0.0, "飛脚"]"#,
    r#""\ud800""#,
];

/// Publishes until the day is over.
pub(crate) async fn publish(stage: Arc<Stage>, name: char) {
    let mut number = 0;
    while !stage.is_over() {
        let longest = if stage.dice.hits(0.3) { Duration::from_secs(2) } else { LONGEST_PAUSE };
        sleep(stage.dice.between(Duration::ZERO, longest)).await;
        let events: Vec<_> = (0..=stage.dice.below(3))
            .map(|_| {
                number += 1;
                event(&stage, &format!("e-{name}{number}"))
            })
            .collect();
        publish_all(&stage, events).await;
    }
}

fn event(stage: &Stage, id: &str) -> NewEvent {
    let (id, now) = (EventId::parse(id).expect("a good id"), stage.clock.now());
    let pick = |from: &[&'static str]| *stage.dice.pick(from).expect("there are some");
    let event_type = EventType::parse(pick(&TYPES)).expect("a good type");
    let data = RawValue::from_string(pick(&DATA).to_owned()).expect("good JSON");
    NewEvent {
        body: render_body(&id, &event_type, now, &data),
        content_hash: content_hash(&event_type, &data, None),
        timestamp: now,
        created_at: now,
        key: None,
        id,
        event_type,
    }
}

/// The body, by nothing of the program but its way to write a time.
fn expected(event: &NewEvent) -> Bytes {
    let data = event.body.windows(8).position(|part| part == b",\"data\":").map_or(0, |place| place + 8);
    let data = String::from_utf8_lossy(&event.body[data..]).into_owned();
    let (id, at) = (event.id.as_str(), timestamp::format(event.timestamp));
    Bytes::from(format!(r#"{{"id":"{id}","type":"{}","timestamp":"{at}","data":{data}"#, event.event_type.as_str()))
}

async fn publish_all(stage: &Arc<Stage>, events: Vec<NewEvent>) {
    for event in &events {
        let (id, body) = (event.id.as_str().to_owned(), expected(event));
        stage.witness.expect(&id, event.event_type.as_str());
        lock(&stage.ledgers).published.push(Published { id, body, answered: None });
    }
    for _ in 0..TRIES {
        if publish_once(stage, &events).await || stage.dice.hits(0.05) {
            return;
        }
        sleep(stage.dice.between(Duration::from_secs(1), Duration::from_secs(90))).await;
    }
}

/// Whether it was answered.
async fn publish_once(stage: &Arc<Stage>, events: &[NewEvent]) -> bool {
    if stage.plants(Plant::PublishForgotten) {
        events.iter().for_each(|event| answered(stage, event.id.as_str(), 1));
        return true;
    }
    let Some(node) = stage.any_node() else { return false };
    let outcome = timeout(PATIENCE, node.sender.publish(organization(), events.to_vec())).await;
    if node.fate.is_away() {
        return false;
    }
    let Ok(Ok(PublishOutcome::Stored(stored))) = outcome else { return false };
    stored.iter().for_each(|event| answered(stage, event.id.as_str(), event.deliveries));
    true
}

fn answered(stage: &Stage, id: &str, deliveries: u32) {
    let wrong = u32::from(stage.plants(Plant::CountWrong));
    stage.trace.note(format_args!("{id} is published to {deliveries}"));
    let mut ledgers = lock(&stage.ledgers);
    let known = ledgers.published.iter_mut().find(|event| event.id == id);
    known.into_iter().for_each(|event| event.answered = Some(deliveries + wrong));
}
