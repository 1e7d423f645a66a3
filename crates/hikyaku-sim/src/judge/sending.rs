//! What was published, and what came of it: accept, fan-out, attempt, end.

use std::collections::{BTreeMap, BTreeSet};

use hikyaku_core::delivery::{DeliveryState, FailureKind, Outcome};
use hikyaku_core::signature::{Secret, receiptroller};

use super::Fault;
use crate::ledger::{Delivery, Ledgers, Line, Request};

/// Most attempts of a run (R7).
const MAX_ATTEMPTS: u32 = 4;
/// The pauses between a run's attempts, in milliseconds (R8).
const PAUSES: [i64; 3] = [60_000, 600_000, 3_600_000];

pub(super) fn judge(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    accepted(ledgers, faults);
    fanned_out(ledgers, faults);
    on_the_wire(ledgers, faults);
    let mut wire: BTreeMap<(&str, &str), Vec<&Request>> = BTreeMap::new();
    for request in &ledgers.wire {
        wire.entry((&request.event, &request.webhook)).or_default().push(request);
    }
    for delivery in &ledgers.deliveries {
        let requests = wire.remove(&(delivery.event.as_str(), delivery.webhook.as_str())).unwrap_or_default();
        attempted(ledgers, delivery, &requests, faults);
        ended(ledgers, delivery, &requests, faults);
    }
    // What is left was sent for no delivery at all.
    faults.extend(wire.into_keys().map(|(event, webhook)| Fault::Phantom(format!("{event} to {webhook}"))));
}

/// Every 2xx is stored with its bytes; what was not answered may be.
fn accepted(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    for event in &ledgers.published {
        match ledgers.bodies.get(&event.id) {
            Some(body) if *body != event.body => faults.push(Fault::Corrupted(event.id.clone())),
            None if event.answered.is_some() => faults.push(Fault::Lost(event.id.clone())),
            _ => {}
        }
    }
}

/// One delivery per event and webhook that was active at the commit, and one for what people asked for later.
fn fanned_out(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    for event in &ledgers.published {
        let Some(takers) = ledgers.takers.get(&event.id) else { continue };
        if event.answered.is_some_and(|count| count as usize != takers.len()) {
            faults.push(Fault::AnsweredWrongly(event.id.clone()));
        }
        let of_event = ledgers.deliveries.iter().filter(|delivery| delivery.event == event.id);
        let there: BTreeSet<_> = of_event.map(|delivery| &delivery.webhook).collect();
        for webhook in takers.iter().filter(|webhook| !there.contains(webhook)) {
            faults.push(Fault::Lost(format!("{} to {webhook}", event.id)));
        }
        for webhook in there.into_iter().filter(|webhook| !takers.contains(*webhook)) {
            let people = &ledgers.people;
            let was_asked_for = people.resent.contains(&(event.id.clone(), webhook.clone()));
            if !was_asked_for && !people.recovered.contains(webhook) {
                faults.push(Fault::Phantom(format!("{} to {webhook}", event.id)));
            }
        }
    }
}

/// Bytes and signature of every request, and none beside another of its delivery.
fn on_the_wire(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    let bodies: BTreeMap<_, _> = ledgers.published.iter().map(|event| (&event.id, &event.body)).collect();
    let mut last_end: BTreeMap<_, i64> = BTreeMap::new();
    for request in &ledgers.wire {
        let about = || format!("{} to {}", request.event, request.webhook);
        let Some(body) = bodies.get(&request.event) else {
            faults.push(Fault::Phantom(about()));
            continue;
        };
        let secrets = ledgers.people.secrets.get(&request.webhook).into_iter().flatten();
        let mut signatures = secrets.map(|secret| receiptroller::sign(&Secret::new(secret.clone()), body));
        if request.body != **body || !signatures.any(|signature| signature == request.signature) {
            faults.push(Fault::Corrupted(about()));
        }
        let end = last_end.entry((&request.event, &request.webhook)).or_insert(i64::MIN);
        if request.at < *end {
            faults.push(Fault::Overlapping(about()));
        }
        *end = request.ended.max(*end);
    }
}

/// Every request has one line of the log, and every line that is about a request has one.
fn attempted(ledgers: &Ledgers, delivery: &Delivery, requests: &[&Request], faults: &mut Vec<Fault>) {
    let about = || format!("{} to {}", delivery.event, delivery.webhook);
    if delivery.log.iter().any(|line| line.number > MAX_ATTEMPTS) {
        faults.push(Fault::TooOften(about()));
    }
    let mut left: Vec<&Request> = requests.to_vec();
    let mut matched: Vec<(&Line, &Request)> = Vec::new();
    for line in &delivery.log {
        let fits = |request: &&Request| request.wall == line.started_at && came_to(request, line.outcome);
        match left.iter().position(fits) {
            Some(place) => matched.push((line, left.remove(place))),
            None if brings_a_request(line.outcome) => faults.push(Fault::Unlogged(about())),
            None => {}
        }
    }
    let interrupted = delivery.log.iter().filter(|line| line.outcome == Outcome::Failed(FailureKind::Interrupted));
    // The last attempt of a delivery that was cancelled under it may have nobody left to write it down.
    let unwritten = usize::from(delivery.state == DeliveryState::Cancelled);
    if left.len() > interrupted.count() + unwritten {
        faults.push(Fault::Duplicated(about()));
    }
    for pair in matched.windows(2) {
        let [(before, first), (after, second)] = pair else { continue };
        if before.run != after.run || before.number + 1 != after.number {
            continue;
        }
        let pause = PAUSES.get(before.number as usize - 1).copied().unwrap_or_default();
        if second.at < first.ended.saturating_add(pause) {
            faults.push(Fault::Early(about()));
        }
        // Two clocks of which one was set back do not tell what came first, the rotation or the attempt (T8).
        if !ledgers.people.clock_was_set && first.signature != second.signature {
            faults.push(Fault::Corrupted(format!("the signature of {}", about())));
        }
    }
}

fn came_to(request: &Request, outcome: Outcome) -> bool {
    match (outcome, request.status) {
        (Outcome::Answered(status), Some(seen)) => status == seen,
        (Outcome::Failed(FailureKind::Timeout | FailureKind::Reset), None) => true,
        _ => false,
    }
}

fn brings_a_request(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Answered(_) | Outcome::Failed(FailureKind::Timeout | FailureKind::Reset))
}

/// Delivered, exhausted after four attempts, or cancelled with its webhook.
fn ended(ledgers: &Ledgers, delivery: &Delivery, requests: &[&Request], faults: &mut Vec<Fault>) {
    let about = format!("{} to {} as {}", delivery.event, delivery.webhook, delivery.state.as_str());
    let of_run: Vec<_> = delivery.log.iter().filter(|line| line.run == delivery.run).collect();
    let failed = |line: &&&Line| !line.outcome.is_success();
    let holds = match delivery.state {
        DeliveryState::Waiting => return faults.push(Fault::Unended(about)),
        DeliveryState::Delivered => requests.iter().any(|request| matches!(request.status, Some(200..=299))),
        DeliveryState::Exhausted => {
            of_run.len() == MAX_ATTEMPTS as usize && of_run.iter().filter(failed).count() == of_run.len()
        }
        DeliveryState::Cancelled => ledgers.people.deleted.contains(&delivery.webhook),
        // The webhook has its events held while it is off: the witness saw that.
        DeliveryState::Held => delivery.log.is_empty(),
    };
    if !holds {
        let log: Vec<_> = delivery.log.iter().map(|line| (line.run, line.number, line.outcome)).collect();
        faults.push(Fault::EndedWrongly(format!("{about} after {log:?}")));
    }
}
