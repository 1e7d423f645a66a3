//! The comparer must find one planted fault of each kind, and none where there is none.

use super::ledger::{Effect, Fault, Ledgers, LoggedAttempt, Published, Wire, expected_body};
use hikyaku_core::signature::{Secret, receiptroller};

fn published(id: &str, timestamp: &str, answered: Option<usize>) -> Published {
    Published {
        id: id.into(),
        event_type: "sale.created".into(),
        timestamp: timestamp.into(),
        data: "{}".into(),
        key: "k".into(),
        answered,
    }
}

fn request(event: &Published, accepted: bool) -> Wire {
    let body = expected_body(event).into_bytes();
    let signature = receiptroller::sign(&Secret::new("s"), &body);
    Wire { webhook: "w".into(), event: event.id.clone(), body, signature, accepted }
}

fn line(event: &str, http_status: u64) -> LoggedAttempt {
    LoggedAttempt { webhook: "w".into(), event: event.into(), http_status }
}

/// One event that failed once and was then delivered, one that an unanswered publish left behind, one that waits.
fn sound() -> Ledgers {
    let events = [published("a", "1", Some(1)), published("b", "2", None), published("c", "3", Some(1))];
    Ledgers {
        wire: vec![request(&events[0], false), request(&events[0], true), request(&events[2], false)],
        log: vec![line("a", 0), line("a", 200)],
        states: vec![("w".into(), "a".into(), "delivered".into()), ("w".into(), "c".into(), "waiting".into())],
        secrets: [("w".into(), "s".into())].into(),
        effects: ["a", "c"].map(|event| Effect { key: "k".into(), event: event.into() }).into(),
        published: events.into(),
    }
}

#[track_caller]
fn outgoing(plant: impl FnOnce(&mut Ledgers), expected: &[Fault]) {
    let mut ledgers = sound();
    plant(&mut ledgers);
    assert_eq!(ledgers.outgoing_faults(), expected);
}

#[track_caller]
fn incoming(plant: impl FnOnce(&mut Ledgers), expected: &[Fault]) {
    let mut ledgers = sound();
    plant(&mut ledgers);
    assert_eq!(ledgers.incoming_faults(), expected);
}

#[test]
fn the_comparer_finds_nothing_where_nothing_is_wrong() {
    outgoing(|_| {}, &[]);
    incoming(|_| {}, &[]);
}

#[test]
fn the_comparer_finds_what_was_lost() {
    let lost = |id: &str| [Fault::Lost(id.into())];
    outgoing(|l| drop((l.states.pop(), l.wire.pop())), &lost("c"));
    outgoing(|l| l.wire[1].accepted = false, &lost("a"));
    outgoing(|l| l.states[0].2 = "exhausted".into(), &lost("a"));
    incoming(|l| drop(l.effects.pop()), &lost("c"));
}

#[test]
fn the_comparer_finds_what_was_corrupted() {
    let corrupted = [Fault::Corrupted("a".into())];
    outgoing(|l| l.wire[0].body[10] ^= 1, &corrupted);
    outgoing(|l| l.wire[1].signature = receiptroller::sign(&Secret::new("other"), &l.wire[1].body), &corrupted);
    outgoing(|l| l.published[0].data = "{ }".into(), &corrupted);
}

#[test]
fn the_comparer_finds_phantoms() {
    let nobody = published("x", "1", None);
    outgoing(|l| l.wire.push(request(&nobody, true)), &[Fault::Phantom("x".into()), Fault::Duplicated("x".into())]);
    incoming(|l| l.effects[0].event = "x".into(), &[Fault::Phantom("x".into())]);
}

#[test]
fn the_comparer_finds_duplicates_without_a_cause() {
    let duplicated = |id: &str| [Fault::Duplicated(id.into())];
    outgoing(|l| l.log[0].http_status = 204, &duplicated("a"));
    outgoing(|l| drop(l.log.remove(0)), &duplicated("a"));
    incoming(|l| l.effects.push(l.effects[1].clone()), &duplicated("c"));
}

#[test]
fn the_comparer_finds_a_fifth_request() {
    let too_often = |l: &mut Ledgers| {
        for _ in 0..3 {
            l.wire.insert(0, l.wire[0].clone());
            l.log.insert(0, line("a", 500));
        }
    };
    outgoing(too_often, &[Fault::TooOften("a".into())]);
}

#[test]
fn the_comparer_finds_what_was_misordered() {
    // The older one written last is out of order, and the newer one's state is gone with it.
    incoming(|l| l.effects.reverse(), &[Fault::Lost("c".into()), Fault::Misordered("a".into())]);
}
