use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::event::EventPattern;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::{Secret, receiptroller};
use url::Url;

use super::*;
use crate::sandbox::world;

const OK: Outcome = Outcome::Answered(200);

fn start() -> Timestamp {
    "2026-11-30T00:00:00Z".parse().unwrap()
}

fn engine(plan: &str) -> Engine {
    let world = World::open(world::Settings::default(), start());
    let mut provider = Provider::new(RetrySchedule::default(), 1);
    provider.put(Webhook {
        id: "a".to_owned(),
        url: Url::parse("http://127.0.0.1:1/").unwrap(),
        events: vec![EventPattern::All],
        active: true,
        secret: Secret::new("s"),
        memo: String::new(),
    });
    Engine::new(world, provider, Plan::parse(plan).unwrap(), start())
}

/// Runs for so many hours with a receiver that accepts everything; what was sent, in its order.
fn run(engine: &mut Engine, hours: u64) -> Vec<Outgoing> {
    let end = start().checked_add(Duration::from_secs(hours * 3600)).unwrap();
    let mut sent = Vec::new();
    while engine.next_at() <= end {
        let now = engine.next_at();
        for outgoing in engine.step(now) {
            engine.ended(outgoing.clone(), OK, now, now);
            sent.push(outgoing);
        }
    }
    sent
}

fn count(sent: &[Outgoing], manner: Manner) -> usize {
    sent.iter().filter(|outgoing| outgoing.manner == manner).count()
}

#[test]
fn without_a_plan_everything_is_sent_once_in_its_order() {
    let mut engine = engine("");
    let sent = run(&mut engine, 24);
    assert!(sent.len() > 2000 && count(&sent, Manner::Plain) == sent.len());
    assert!(sent.is_sorted_by_key(|outgoing| outgoing.attempt.event.timestamp));
}

#[test]
fn r19_reordered_and_delayed_events_come_after_later_ones_and_none_is_lost() {
    for plan in ["[[fault]]\nkind = \"reorder\"\nshare = 0.2", "[[fault]]\nkind = \"delay\"\nshare = 0.2\nby = \"40m\""]
    {
        let sent = run(&mut engine(plan), 24);
        assert!(!sent.is_sorted_by_key(|outgoing| outgoing.attempt.event.timestamp), "{plan}");
        assert!(sent.len() > 2000);
    }
}

#[test]
fn every_event_fault_does_what_its_name_says() {
    let share = |kind: &str| format!("[[fault]]\nkind = \"{kind}\"\nshare = 0.1");
    let sent = run(&mut engine(&share("drop")), 24);
    let told = run(&mut engine(""), 24).len();
    assert!(sent.len() < told * 95 / 100 && sent.len() > told * 85 / 100);
    for (kind, manner) in [
        ("duplicate", Manner::Copy),
        ("tampered", Manner::Tampered),
        ("unsigned", Manner::Unsigned),
        ("wrong-signature", Manner::WrongSignature),
        ("slow-drip", Manner::Drip),
    ] {
        let sent = run(&mut engine(&share(kind)), 24);
        assert!((told / 15..told / 6).contains(&count(&sent, manner)), "{kind}");
        let true_ones = sent.iter().filter(|outgoing| outgoing.manner.counts()).count();
        assert_eq!(true_ones, told, "{kind}: the true delivery comes all the same");
    }
}

#[test]
fn odd_json_is_json_has_the_same_key_and_verifies() {
    let sent = run(&mut engine("[[fault]]\nkind = \"odd-json\"\nshare = 1.0"), 2);
    for outgoing in sent {
        let event = &outgoing.attempt.event;
        assert!(std::str::from_utf8(&event.body).unwrap().contains("29383937493038367292"));
        assert_eq!(hikyaku_core::envelope::Envelope::read(&event.body).key.as_ref(), Some(&event.key));
        assert!(
            receiptroller::verify(&[Secret::new("s")], Some(outgoing.attempt.signature.as_bytes()), &event.body)
                .is_ok()
        );
    }
}

#[test]
fn equal_timestamps_are_those_of_one_object() {
    let sent = run(&mut engine("[[fault]]\nkind = \"equal-timestamps\"\nshare = 1.0"), 24);
    let mut of_order: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
    for outgoing in sent.iter().filter(|outgoing| outgoing.attempt.event.event_type.starts_with("order.")) {
        of_order.entry(&outgoing.attempt.event.key).or_default().push(outgoing.attempt.event.timestamp);
    }
    assert!(of_order.values().any(|times| times.len() > 1 && times[0] == times[1]));
}

#[test]
fn r16_a_restart_at_its_time_loses_what_waits() {
    let mut engine = engine("[[fault]]\nkind = \"restart\"\nat = \"1h\"");
    let mut waited = 0;
    let end = start().checked_add(Duration::from_secs(3600)).unwrap();
    while engine.next_at() < end {
        let now = engine.next_at();
        for outgoing in engine.step(now) {
            engine.ended(outgoing, Outcome::Answered(500), now, now);
        }
        waited = engine.provider.waiting();
    }
    assert!(waited > 0);
    engine.step(end);
    assert_eq!(engine.provider.waiting(), 0);
    assert!(engine.told().iter().any(|told| matches!(told, Told::Fault(_, TimedFault::Restart, _))));
}

#[test]
fn the_api_is_in_trouble_for_as_long_as_the_plan_says() {
    let mut engine = engine(
        "fault = [{ kind = \"api-errors\", at = \"1h\", by = \"5m\" }, { kind = \"api-limit\", at = \"2h\", by = \"5m\" }]",
    );
    run(&mut engine, 3);
    let at = |minutes: u64| start().checked_add(Duration::from_secs(minutes * 60)).unwrap();
    // The faults have struck by now; the question is until when.
    assert_eq!(engine.trouble(at(64)), Some(Trouble::Errors));
    assert_eq!(engine.trouble(at(124)), Some(Trouble::Limit(at(125))));
    assert_eq!(engine.trouble(at(125)), None);
}

#[test]
fn pages_shift_while_the_plan_says_so() {
    let mut engine = engine("fault = [{ kind = \"shifting-pages\", at = \"1h\", by = \"30m\" }]");
    run(&mut engine, 2);
    let at = |minutes: u64| start().checked_add(Duration::from_secs(minutes * 60)).unwrap();
    let listed = |engine: &Engine| engine.world.sales_between(start(), at(60), at(120)).len();
    let before = listed(&engine);
    engine.shift_pages(start(), at(80));
    engine.shift_pages(start(), at(100));
    assert_eq!(listed(&engine), before + 1);
}
