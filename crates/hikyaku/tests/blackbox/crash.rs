//! `kill -9` in the middle of the work, again and again: what was answered is kept, and nothing comes too often.

use serde_json::Value;
use tokio::sync::mpsc;

use crate::harness::{
    Api, Books, Config, Effect, Ledgers, LoggedAttempt, Published, Receiver, Reply, Server, Webhook, Wire, XorShift,
    deliveries, expected_body, within,
};

/// How often the program is killed.
const ROUNDS: u64 = 5;
/// Callers at a time.
const CALLERS: u64 = 6;
/// The seed of a run without `CRASH_SEED` in the environment. A failing run names its seed, and is repeated with it.
const DEFAULT_SEED: u64 = 20_261_130;
const TIMESTAMP: &str = "2026-11-30T09:15:00.000Z";
const SOURCE: &str = "receiptroller";

pub(crate) fn seed() -> u64 {
    std::env::var("CRASH_SEED").map_or(DEFAULT_SEED, |seed| seed.parse().expect("CRASH_SEED is a number"))
}

/// Draws that a seed and a name decide.
pub(crate) fn draws_of(name: &str) -> XorShift {
    XorShift::new(name.bytes().fold(seed(), |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte)))
}

/// How the endpoint answers an attempt: a delivery fails at most twice, in a way that its id decides. So crashes may
/// use up attempts, and no webhook is switched off.
fn reply(event: &str, attempt: usize) -> Reply {
    let mut random = draws_of(event);
    let failures = random.below(3);
    if attempt > failures {
        return Reply::status(200);
    }
    [Reply::status(500), Reply::status(404), Reply::Close, Reply::Reset][random.below(4)].clone()
}

fn is_accepted(event: &str, attempt: usize) -> bool {
    matches!(reply(event, attempt), Reply::Answer(200, _))
}

#[tokio::test]
async fn kill9_under_load_loses_no_event_and_sends_none_more_than_four_times() {
    let config = Config::default().attempt_timeout("2s");
    let mut server = Server::start(config).await;
    let faulty = Receiver::start(|seen| reply(seen.delivery(), seen.attempt)).await;
    let steady = Receiver::always(200).await;
    let webhooks = [server.api().webhook(&faulty.url("/")).await, server.api().webhook(&steady.url("/")).await];
    let mut random = XorShift::new(seed());
    let mut published = Vec::new();
    for round in 0..ROUNDS {
        let answers = 30 + random.below(60);
        published.extend(publish_until_killed(&mut server, round, answers).await);
        server.restart().await;
    }
    let mut ledgers = read_back(&server.api(), published).await;
    assert_eq!(server.sigterm().await.code(), Some(0));
    ledgers.wire = [wire(&faulty, &webhooks[0], is_accepted), wire(&steady, &webhooks[1], |_, _| true)].concat();
    ledgers.secrets = webhooks.into_iter().map(|webhook| (webhook.id, webhook.secret)).collect();
    assert_eq!(ledgers.outgoing_faults(), [], "CRASH_SEED={}", seed());
    // Otherwise the run has shown nothing.
    assert!(ledgers.published.iter().filter(|event| event.answered == Some(2)).count() > 100);
    assert!(ledgers.log.iter().filter(|line| line.http_status == 500).count() > 10);
}

/// Publishes from several callers at once, and kills the program when `answers` of them have been answered.
async fn publish_until_killed(server: &mut Server, round: u64, answers: usize) -> Vec<Published> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    for caller in 0..CALLERS {
        let (api, sender) = (server.api(), sender.clone());
        tokio::spawn(async move {
            for n in 0.. {
                let event = event(&format!("r{round}-c{caller}-{n}"), n);
                let (event, alive) = publish(&api, event).await;
                if sender.send(event).is_err() || !alive {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut published = Vec::new();
    while published.len() < answers {
        published.push(within("an answer", receiver.recv()).await.unwrap());
    }
    server.kill9().await;
    while let Some(event) = receiver.recv().await {
        published.push(event);
    }
    published
}

fn event(id: &str, n: u64) -> Published {
    Published {
        id: id.into(),
        event_type: "sale.created".into(),
        timestamp: TIMESTAMP.into(),
        data: format!(r#"{{ "n": {n}.0 }}"#),
        key: String::new(),
        answered: None,
    }
}

/// Publishes one event; whether the program was there to answer.
async fn publish(api: &Api, mut event: Published) -> (Published, bool) {
    let Ok(answer) = api.try_publish(expected_body(&event)).await else { return (event, false) };
    let answer = answer.expect(202);
    event.answered = answer["deliveries"].as_u64().map(|deliveries| deliveries as usize);
    (event, true)
}

/// What the program says of every event, once nothing waits any more.
async fn read_back(api: &Api, published: Vec<Published>) -> Ledgers {
    let mut ledgers = Ledgers { published, ..Ledgers::default() };
    for event in &ledgers.published {
        if event.answered.is_none() && api.get(&["events", &event.id], &[]).await.status == 404 {
            continue;
        }
        for delivery in deliveries(&api.ended(&event.id).await) {
            let webhook = text(&delivery["webhookId"]);
            ledgers.states.push((webhook.clone(), event.id.clone(), text(&delivery["state"])));
            let line = |http_status| LoggedAttempt { webhook: webhook.clone(), event: event.id.clone(), http_status };
            ledgers.log.extend(crate::harness::statuses(delivery).into_iter().map(line));
        }
    }
    ledgers
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn wire(receiver: &Receiver, webhook: &Webhook, accepts: fn(&str, usize) -> bool) -> Vec<Wire> {
    let of = |seen: crate::harness::Seen| Wire {
        webhook: webhook.id.clone(),
        event: seen.delivery().to_owned(),
        signature: seen.signature().to_owned(),
        accepted: accepts(seen.delivery(), seen.attempt),
        body: seen.body,
    };
    receiver.seen().into_iter().map(of).collect()
}

#[tokio::test]
async fn c8_kill9_under_load_keeps_every_delivery_that_was_answered_200_and_lets_it_take_effect_once() {
    deliveries_take_effect_once_whenever_the_program_is_killed(Books::sqlite().await).await;
}

#[tokio::test]
async fn c8_kill9_under_load_lets_every_delivery_take_effect_once_in_postgresql() {
    deliveries_take_effect_once_whenever_the_program_is_killed(Books::postgres().await).await;
}

async fn deliveries_take_effect_once_whenever_the_program_is_killed(books: Books) {
    // The lease of what was under way ends a while after the crash; a short deadline keeps that while short.
    let mut server = books.serve("[inbox]\neffect_timeout = \"500ms\"\nretry_first = \"50ms\"\n").await;
    let mut random = XorShift::new(seed());
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let answers = 30 + random.below(60);
        let mut received = deliver_until_killed(&mut server, round, answers).await;
        server.restart().await;
        // The provider sends again what got no answer, and now and then what got one.
        for sale in &mut received {
            if sale.answered.is_none() || random.below(10) == 0 {
                assert_eq!(server.api().deliver_signed(&sale.id, expected_body(sale)).await, 200);
                sale.answered = Some(0);
            }
        }
        all.extend(received);
    }
    let api = server.api();
    for sale in &all {
        let row = api.settled(SOURCE, &sale.id).await;
        assert!(["done", "stale"].contains(&row["state"].as_str().unwrap()), "{row}");
        assert_eq!(api.inbox_body(SOURCE, &sale.id).await, expected_body(sale).as_bytes());
    }
    let effects = books.effects().await.into_iter().map(|(key, event)| Effect { key, event }).collect::<Vec<_>>();
    assert!(effects.len() > 20, "the run has shown nothing: {effects:?}");
    let ledgers = Ledgers { published: all, effects, ..Ledgers::default() };
    assert_eq!(ledgers.incoming_faults(), [], "CRASH_SEED={}", seed());
}

/// A sale's event with a time and a key that its id decides, so that events of a key come in any order.
pub(crate) fn sale(id: &str) -> Published {
    let mut random = draws_of(id);
    let key = format!("k{}", random.below(40));
    Published {
        id: id.into(),
        event_type: ["sale.created", "sale.updated", "sale.voided"][random.below(3)].into(),
        timestamp: format!("2026-11-30T09:15:{:02}.000Z", random.below(60)),
        data: format!(r#"{{ "id": "{key}", "paymentSummary":{{"grandTotal":{}}} }}"#, random.below(10_000)),
        key,
        answered: None,
    }
}

/// Delivers from several connections at once, and kills the program when `answers` of them have been answered.
async fn deliver_until_killed(server: &mut Server, round: u64, answers: usize) -> Vec<Published> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    for caller in 0..CALLERS {
        let (api, sender) = (server.api(), sender.clone());
        tokio::spawn(async move {
            for n in 0.. {
                let mut sale = sale(&format!("r{round}-c{caller}-{n}"));
                let status = api.try_deliver_signed(&sale.id, expected_body(&sale)).await;
                sale.answered = status.as_ref().ok().map(|status| {
                    assert_eq!(*status, 200);
                    0
                });
                if sender.send(sale).is_err() || status.is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut received = Vec::new();
    while received.len() < answers {
        received.push(within("an answer", receiver.recv()).await.unwrap());
    }
    server.kill9().await;
    while let Some(sale) = receiver.recv().await {
        received.push(sale);
    }
    received
}
