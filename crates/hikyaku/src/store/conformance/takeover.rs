//! A lease that ended without a word: the attempt may have arrived, so it is never sent again under its number.

use hikyaku_core::delivery::{Decision, DeliveryState, History, Outcome};

use super::fixture::*;
use crate::store::*;

/// The end of a run by our own fault.
const GIVEN_UP: Decision = Decision::Exhausted { switch_off: false };

/// One delivery that `a` has claimed at second 0 and left alone.
async fn left_by_a(store: &dyn Store) -> ClaimedDelivery {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    claim_one(store, "a", 0).await
}

async fn lines(store: &dyn Store) -> Vec<(u32, Outcome)> {
    let lines = log(store, "w").await;
    lines.into_iter().map(|line| (line.attempt.number, line.attempt.outcome)).collect()
}

pub(crate) async fn case22_a_takeover_interrupts_and_the_late_finish_changes_only_the_log(store: &dyn Store) {
    let left = left_by_a(store).await;
    let taken = claim_one(store, "b", 40).await;
    assert_eq!((taken.attempt, taken.history, taken.interrupted), (1, History::default(), Some(at(0))));
    assert_eq!(finish(store, &taken, "b", 0, INTERRUPTED, retry(100)).await, APPLIED);
    assert_eq!(lines(store).await, [(1, INTERRUPTED)]);

    // `a` awakes: what it saw replaces "we do not know", but the retry stays.
    let late = finish(store, &left, "a", 0, OK, Decision::Delivered).await;
    assert_eq!(late, FinishOutcome::LeaseLost);
    assert_eq!(lines(store).await, [(1, OK)]);
    let shown = view(store, "e", "w").await;
    assert_eq!((shown.state, shown.next_attempt_at), (DeliveryState::Waiting, Some(at(100))));

    let second = claim_one(store, "b", 100).await;
    assert_eq!((second.attempt, second.interrupted), (2, None));
    assert_eq!(second.history, History { attempts: 1, spoiled_by_us: 1, on_request: false });
    finish(store, &second, "b", 100, OK, Decision::Delivered).await;
    let again = finish(store, &left, "a", 0, ERROR, SWITCH_OFF).await;
    assert_eq!(again, FinishOutcome::LeaseLost);
    assert_eq!(lines(store).await, [(2, OK), (1, OK)], "the first word on a number stays");
    assert_eq!(view(store, "e", "w").await.state, DeliveryState::Delivered);
    assert!(find_webhook(store, "w").await.off.is_none());
}

pub(crate) async fn case22_a_late_finish_before_the_takeover_ends_is_the_line_that_stays(store: &dyn Store) {
    let left = left_by_a(store).await;
    let taken = claim_one(store, "b", 40).await;
    let late = finish(store, &left, "a", 0, ERROR, retry(60)).await;
    assert_eq!(late, FinishOutcome::LeaseLost);
    assert!(view(store, "e", "w").await.in_flight, "the lease is b's");
    assert_eq!(finish(store, &taken, "b", 0, INTERRUPTED, retry(100)).await, APPLIED);
    assert_eq!(lines(store).await, [(1, ERROR)]);
    assert_eq!(view(store, "e", "w").await.next_attempt_at, Some(at(100)));
}

/// What was answered 2xx has been delivered, whenever we hear of it: here after the last attempt was given up.
pub(crate) async fn r2_a_late_success_makes_what_was_given_up_delivered(store: &dyn Store) {
    let left = left_by_a(store).await;
    let taken = claim_one(store, "b", 40).await;
    assert_eq!(finish(store, &taken, "b", 0, INTERRUPTED, GIVEN_UP).await, APPLIED);
    assert_eq!((view(store, "e", "w").await.state, recoverable(store).await), (DeliveryState::Exhausted, 1));
    let late = finish(store, &left, "a", 0, ERROR, GIVEN_UP).await;
    assert_eq!((late, view(store, "e", "w").await.state), (FinishOutcome::LeaseLost, DeliveryState::Exhausted));

    let left = {
        store.resend(&left.key, at(50)).await.unwrap();
        claim_one(store, "a", 50).await
    };
    let taken = claim_one(store, "b", 90).await;
    assert_eq!(finish(store, &taken, "b", 50, INTERRUPTED, GIVEN_UP).await, APPLIED);
    assert_eq!(finish(store, &left, "a", 50, OK, Decision::Delivered).await, APPLIED);
    assert_eq!((view(store, "e", "w").await.state, recoverable(store).await), (DeliveryState::Delivered, 0));
    assert_eq!(finish(store, &left, "a", 50, OK, Decision::Delivered).await, FinishOutcome::LeaseLost);
    assert_eq!(view(store, "e", "w").await.state, DeliveryState::Delivered);
}

/// And here before: no later failure makes it undone.
pub(crate) async fn r2_a_run_with_a_late_success_never_ends_as_exhausted(store: &dyn Store) {
    let left = left_by_a(store).await;
    let taken = claim_one(store, "b", 40).await;
    assert_eq!(finish(store, &taken, "b", 0, INTERRUPTED, retry(100)).await, APPLIED);
    assert_eq!(finish(store, &left, "a", 0, OK, Decision::Delivered).await, FinishOutcome::LeaseLost);
    let last = claim_one(store, "b", 100).await;
    assert_eq!(finish(store, &last, "b", 100, ERROR, SWITCH_OFF).await, APPLIED, "nothing is switched off");
    assert_eq!((view(store, "e", "w").await.state, recoverable(store).await), (DeliveryState::Delivered, 0));
    assert_eq!(lines(store).await, [(2, ERROR), (1, OK)]);
    let webhook = find_webhook(store, "w").await;
    assert_eq!((webhook.off, webhook.exhausted), (None, 0));
}

/// How many deliveries a recovery would find.
async fn recoverable(store: &dyn Store) -> usize {
    let (organization, webhook) = (acme(), webhook_id("w"));
    let query = MissedQuery { organization, webhook, from: None, to: None, after: None, limit: 9, count_to: 9 };
    store.missed(query).await.unwrap().entries.len()
}

pub(crate) async fn a_second_takeover_is_still_of_the_first_start(store: &dyn Store) {
    left_by_a(store).await;
    let b = claim_one(store, "b", 40).await;
    let c = claim_one(store, "c", 90).await;
    assert_eq!((c.attempt, c.interrupted), (1, Some(at(0))));
    assert_eq!(finish(store, &b, "b", 0, INTERRUPTED, retry(100)).await, FinishOutcome::LeaseLost);
    assert_eq!(finish(store, &c, "c", 0, INTERRUPTED, retry(150)).await, APPLIED);
    assert_eq!(lines(store).await, [(1, INTERRUPTED)]);
    assert_eq!(claim_one(store, "c", 150).await.attempt, 2);
}

pub(crate) async fn a_lease_that_ended_is_held_until_somebody_takes_it(store: &dyn Store) {
    let left = left_by_a(store).await;
    assert_eq!(finish(store, &left, "a", LEASE_SECONDS + 5, OK, Decision::Delivered).await, APPLIED);
    assert!(claim(store, "b", 1000).await.is_empty());
}

pub(crate) async fn a_publishers_lease_is_taken_over_like_any_other(store: &dyn Store) {
    create(store, &["w"]).await;
    let mut leased = Publish { due_at: at(5), ..publish_of(&["e"]) };
    leased.room.insert(webhook_id("w"), 1);
    commit_publish(store, leased).await;
    assert!(claim(store, "b", 5 + LEASE_SECONDS - 1).await.is_empty());
    let taken = claim_one(store, "b", 5 + LEASE_SECONDS).await;
    assert_eq!((taken.attempt, taken.interrupted), (1, Some(at(5))));
}
