//! The slots alone: claims and publishes at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::ids::WebhookId;
use hikyaku_core::webhook::{Settings, Webhook};
use proptest::prelude::*;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::organization;
use crate::clock::SystemClock;
use crate::sender::slots::{Again, Claim, Offer, Permit, Slots, WebhookKey};

const NOTHING_MORE: Again = Again { at_once: false, later: None };

fn key(n: usize) -> WebhookKey {
    (organization(), WebhookId::parse(format!("wh{n}")).unwrap())
}

fn webhook(n: usize) -> Webhook {
    super::webhook(&format!("wh{n}"), Settings::default())
}

fn slots(per_webhook: u32, in_all: u32) -> Arc<Slots> {
    slots_that_wake(per_webhook, in_all, Arc::default())
}

fn slots_that_wake(per_webhook: u32, in_all: u32, wake: Arc<Notify>) -> Arc<Slots> {
    Slots::new(per_webhook, in_all, wake, Arc::new(SystemClock::start()))
}

#[test]
fn a_publish_beside_a_claim_gets_the_half_that_the_claim_was_not_promised() {
    let slots = slots(5, 100);
    let claim = slots.begin_claim().unwrap();
    let reserved = slots.reserve(&webhook(0), 9);
    assert_eq!((claim.offer().each, reserved.len()), (3, 2));
    let taken: Vec<_> = (0..3).map(|_| claim.take(&webhook(0))).collect();
    assert!(slots.reserve(&webhook(0), 9).is_empty());
    assert_eq!(claim.end(Vec::new(), false), NOTHING_MORE, "there is nothing more to claim");
    drop(taken);
    assert_eq!(slots.reserve(&webhook(0), 9).len(), 3);
}

#[test]
fn a_webhook_with_a_backlog_is_filled_by_claims_alone() {
    let slots = slots(4, 100);
    let claim = slots.begin_claim().unwrap();
    let _taken = [claim.take(&webhook(0)), claim.take(&webhook(0))];
    assert!(claim.end(vec![key(0)], false).at_once, "the half that was not promised is free");
    assert!(slots.reserve(&webhook(0), 9).is_empty());
    assert_eq!(slots.reserve(&webhook(1), 9).len(), 4);
    let claim = slots.begin_claim().unwrap();
    assert_eq!(claim.offer().listed[&key(0)], 2);
    assert_eq!(claim.end(vec![key(0)], false), NOTHING_MORE, "all that is free was offered");
}

#[test]
fn a_claim_that_failed_gives_its_promise_back() {
    let slots = slots(4, 4);
    drop(slots.begin_claim().unwrap());
    assert_eq!(slots.reserve(&webhook(0), 9).len(), 4);
}

#[tokio::test]
async fn a_freed_slot_wakes_the_loop_only_where_more_is_due() {
    let wake = Arc::new(Notify::new());
    let slots = slots_that_wake(1, 100, wake.clone());
    let woken = || timeout(Duration::ZERO, wake.notified());
    drop(slots.reserve(&webhook(0), 1));
    assert!(woken().await.is_err(), "nothing was due");
    let permit = slots.reserve(&webhook(0), 1);
    assert_eq!(slots.begin_claim().unwrap().end(vec![key(0)], false), NOTHING_MORE);
    drop(permit);
    assert!(woken().await.is_ok(), "the backlog was not told");
}

#[test]
fn case14_where_slots_are_scarce_every_cap_shrinks_and_those_who_hold_few_still_get_theirs() {
    let slots = slots(8, 32);
    let mut held = Vec::new();
    for n in (0..8).flat_map(|_| 0..4) {
        held.extend(slots.reserve(&webhook(n), 1));
    }
    assert_eq!(held.len(), 22, "four that hang leave ten slots, where their caps would take all");
    held.extend(slots.reserve(&webhook(4), 9));
    assert_eq!(held.len(), 27, "the next gets as many as they have, to one");
    held.extend((5..99).flat_map(|n| slots.reserve(&webhook(n), 1)));
    assert_eq!(held.len(), 32, "whoever has none gets one while there is one");
}

/// What somebody does: a publish of some events, the end of an attempt, a step of a claim.
#[derive(Debug, Clone)]
enum Act {
    Publish(usize, u32),
    End(usize),
    BeginClaim,
    Take(usize),
    EndClaim(Vec<usize>, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0usize..3, 1u32..9).prop_map(|(webhook, wanted)| Act::Publish(webhook, wanted)),
        any::<usize>().prop_map(Act::End),
        Just(Act::BeginClaim),
        (0usize..3).prop_map(Act::Take),
        (proptest::collection::vec(0usize..3, 0..3), any::<bool>())
            .prop_map(|(left, stopped)| Act::EndClaim(left, stopped)),
    ]
}

/// Permits by webhook, and the claim under way with what it may still take.
#[derive(Default)]
struct Model {
    permits: Vec<(usize, Permit)>,
    claim: Option<(Claim, u32, HashMap<WebhookKey, u32>, u32)>,
}

impl Model {
    fn step(&mut self, slots: &Arc<Slots>, act: Act) {
        match act {
            Act::Publish(n, wanted) => {
                self.permits.extend(slots.reserve(&webhook(n), wanted).into_iter().map(|permit| (n, permit)));
            }
            Act::End(n) if !self.permits.is_empty() => drop(self.permits.swap_remove(n % self.permits.len())),
            Act::BeginClaim if self.claim.is_none() => {
                self.claim = slots.begin_claim().map(|claim| {
                    let Offer { each, listed, limit, .. } = claim.offer();
                    (claim, each, listed, limit)
                });
            }
            Act::Take(n) => {
                let Some((claim, each, listed, limit)) = &mut self.claim else { return };
                let left = listed.entry(key(n)).or_insert(*each);
                if *left > 0 && *limit > 0 {
                    (*left, *limit) = (*left - 1, *limit - 1);
                    self.permits.push((n, claim.take(&webhook(n))));
                }
            }
            Act::EndClaim(left, stopped) => {
                let Some((claim, ..)) = self.claim.take() else { return };
                claim.end(left.into_iter().map(key).collect(), stopped);
            }
            Act::End(_) | Act::BeginClaim => (),
        }
    }
}

proptest! {
    #[test]
    fn no_cap_is_ever_exceeded(
        acts in proptest::collection::vec(act(), 1..80), per_webhook in 1u32..6, in_all in 1u32..9,
    ) {
        let slots = slots(per_webhook, in_all);
        let mut model = Model::default();
        for act in acts {
            model.step(&slots, act);
            prop_assert!(model.permits.len() <= in_all as usize);
            for n in 0..3 {
                prop_assert!(model.permits.iter().filter(|(of, _)| *of == n).count() <= per_webhook as usize);
            }
        }
        // All that was taken comes back, once a claim has found that nothing is left.
        model.permits.clear();
        for act in [Act::EndClaim(Vec::new(), false), Act::BeginClaim, Act::EndClaim(Vec::new(), false)] {
            model.step(&slots, act);
        }
        prop_assert_eq!(slots.reserve(&webhook(0), 99).len() as u32, per_webhook.min(in_all));
    }
}
