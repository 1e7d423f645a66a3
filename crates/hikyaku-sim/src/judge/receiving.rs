//! What the provider sent, and what came of it: receive, apply, reconcile.

use std::collections::{BTreeMap, BTreeSet};

use hikyaku_core::ordering::Version;

use super::Fault;
use crate::ledger::{CALLS, Effect, LISTED, Ledgers, ORDERS, Received, SALES};

/// States in which a row had its effect, or needs none.
const GOOD: [&str; 2] = ["done", "stale"];

pub(super) fn judge(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    if ledgers.forged > 0 {
        faults.push(Fault::Phantom(format!("{} deliveries of strangers", ledgers.forged)));
    }
    received(ledgers, faults);
    came_from_somewhere(ledgers, faults);
    let by_route = |route: &str| ledgers.effects.iter().filter(|effect| effect.route == route).collect::<Vec<_>>();
    once_per_key(ledgers, &by_route(SALES), faults);
    newest_wins(ledgers, &by_route(ORDERS), faults);
    called(ledgers, &by_route(CALLS), faults);
}

/// Every 200 is a row with identical bytes, whose effects have ended.
fn received(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    for delivery in &ledgers.received {
        let Some(row) = ledgers.rows.get(&delivery.id) else {
            faults.push(Fault::Lost(delivery.id.clone()));
            continue;
        };
        if row.body != delivery.body {
            faults.push(Fault::Corrupted(delivery.id.clone()));
        }
        if row.effects.is_empty() {
            faults.push(Fault::Lost(format!("{} goes nowhere", delivery.id)));
        }
        let waiting = row.effects.iter().filter(|(_, (state, _))| state == "waiting");
        faults.extend(waiting.map(|(route, _)| Fault::Unended(format!("{} of {}", route, delivery.id))));
    }
}

/// No effect without a delivery, or an item of the list.
fn came_from_somewhere(ledgers: &Ledgers, faults: &mut Vec<Fault>) {
    let ids: BTreeSet<_> = ledgers.received.iter().map(|delivery| delivery.id.as_str()).collect();
    for Effect { delivery, key, .. } in &ledgers.effects {
        let is_known = match delivery.starts_with(LISTED) {
            true => ledgers.listed.contains(key),
            // It may have come without our having answered.
            false => ids.contains(delivery.as_str()) || ledgers.rows.contains_key(delivery),
        };
        if !is_known {
            faults.push(Fault::Phantom(delivery.clone()));
        }
    }
}

/// The state of a delivery's effect through a route.
fn state<'a>(ledgers: &'a Ledgers, delivery: &str, route: &str) -> &'a str {
    let effect = ledgers.rows.get(delivery).and_then(|row| row.effects.get(route));
    effect.map_or("none", |(state, _)| state)
}

/// The rows of a route that are to have had their effect.
fn good<'a>(ledgers: &'a Ledgers, route: &'a str) -> impl Iterator<Item = &'a Received> {
    ledgers.received.iter().filter(move |delivery| GOOD.contains(&state(ledgers, &delivery.id, route)))
}

/// Each sale took effect once; and after the last cycle all that the provider lists did, pushed or not (T4, T5).
fn once_per_key(ledgers: &Ledgers, effects: &[&Effect], faults: &mut Vec<Fault>) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    effects.iter().for_each(|effect| *counts.entry(&effect.key).or_default() += 1);
    let twice = counts.iter().filter(|(_, count)| **count > 1);
    faults.extend(twice.map(|(key, _)| Fault::Duplicated((*key).to_owned())));
    // Somebody decided that these have none, or the books refused them for days.
    let given_up = |delivery: &&Received| ["discarded", "dead"].contains(&state(ledgers, &delivery.id, SALES));
    let given_up: BTreeSet<_> = ledgers.received.iter().filter(given_up).map(|delivery| &delivery.key).collect();
    let wanted = good(ledgers, SALES).map(|delivery| &delivery.key).chain(&ledgers.listed);
    let wanted = wanted.filter(|key| !given_up.contains(key));
    let missing: BTreeSet<_> = wanted.filter(|key| !counts.contains_key(key.as_str())).collect();
    faults.extend(missing.into_iter().cloned().map(Fault::Lost));
}

/// The orders are what the events fold to, whatever their order, and no older event wrote over a newer one (C4).
fn newest_wins(ledgers: &Ledgers, effects: &[&Effect], faults: &mut Vec<Fault>) {
    let mut last: BTreeMap<&str, &Version> = BTreeMap::new();
    for effect in effects {
        if let Some(before) = last.insert(&effect.key, &effect.version).filter(|before| **before >= effect.version) {
            let same = *before == effect.version;
            let about = effect.delivery.clone();
            faults.push(if same { Fault::Duplicated(about) } else { Fault::Misordered(about) });
        }
    }
    let mut newest: BTreeMap<&str, &Version> = BTreeMap::new();
    for delivery in good(ledgers, ORDERS) {
        let known = newest.entry(&delivery.key).or_insert(&delivery.version);
        *known = (*known).max(&delivery.version);
    }
    for (key, version) in newest {
        match last.get(key) {
            Some(applied) if *applied >= version => {}
            Some(_) => faults.push(Fault::Misordered(key.to_owned())),
            None => faults.push(Fault::Lost(key.to_owned())),
        }
    }
}

/// Every event was called out at least once, and once more only with a failure in its row that says why.
fn called(ledgers: &Ledgers, effects: &[&Effect], faults: &mut Vec<Fault>) {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    effects.iter().for_each(|effect| *counts.entry(&effect.delivery).or_default() += 1);
    let missing = good(ledgers, CALLS).filter(|delivery| !counts.contains_key(delivery.id.as_str()));
    faults.extend(missing.map(|delivery| Fault::Lost(format!("the call of {}", delivery.id))));
    for (delivery, count) in counts {
        let failures = ledgers.rows.get(delivery).and_then(|row| row.effects.get(CALLS)).map_or(u32::MAX, |one| one.1);
        if count > failures.saturating_add(1) && !ledgers.people.replayed.contains(delivery) {
            faults.push(Fault::Duplicated(format!("the call of {delivery}")));
        }
    }
}
