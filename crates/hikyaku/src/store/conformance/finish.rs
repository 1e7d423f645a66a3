//! What an attempt came to is written under its lease, with all that follows, in one commit.

use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, History, Outcome};
use hikyaku_core::webhook::{Off, OffReason};

use super::fixture::*;
use crate::store::*;

/// Events to one webhook `w`, all claimed by `a` at second 0.
async fn claimed(store: &dyn Store, events: &[&str]) -> Vec<ClaimedDelivery> {
    create(store, &["w"]).await;
    store_events(store, events).await;
    let mut claimed = claim(store, "a", 0).await;
    claimed.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(claimed.len(), events.len());
    claimed
}

pub(crate) async fn r2_a_success_ends_the_delivery(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let finish = finish_of(&claimed[0], "a", 2, Outcome::Answered(204), Decision::Delivered);
    assert_eq!(commit_finish(store, finish.clone()).await, APPLIED);
    let shown = view(store, "e", "w").await;
    assert_eq!((shown.state, shown.next_attempt_at, shown.in_flight), (DeliveryState::Delivered, None, false));
    assert_eq!((shown.attempts, shown.reason.as_str()), (vec![finish.attempt.clone()], ""));
    let log = log(store, "w").await;
    assert_eq!((log.len(), log[0].event.as_str(), log[0].event_type.as_str()), (1, "e", "sale.created"));
    assert_eq!(log[0].attempt, finish.attempt);
    assert!(claim(store, "b", 1_000_000).await.is_empty());
}

pub(crate) async fn r8_a_retry_is_due_when_it_was_decided_and_not_before(store: &dyn Store) {
    let mut attempt = claimed(store, &["e"]).await.remove(0);
    for (number, due) in [(1, 70), (2, 700), (3, 4400)] {
        let outcome = if number == 2 { Outcome::Failed(FailureKind::Local) } else { ERROR };
        assert_eq!(finish(store, &attempt, "a", due - 60, outcome, retry(due)).await, APPLIED);
        let shown = view(store, "e", "w").await;
        assert_eq!((shown.state, shown.next_attempt_at), (DeliveryState::Waiting, Some(at(due))));
        assert!(claim(store, "a", due - 1).await.is_empty());
        attempt = claim_one(store, "a", due).await;
        assert_eq!((attempt.attempt, attempt.interrupted), (number + 1, None));
        assert_eq!(
            attempt.history,
            History { attempts: number, spoiled_by_us: u32::from(number >= 2), on_request: false }
        );
        assert_eq!(attempt.body, event("e").body);
    }
    let numbers: Vec<_> = view(store, "e", "w").await.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

pub(crate) async fn r10_r11_exhaustion_switches_the_webhook_off_once(store: &dyn Store) {
    let claimed = claimed(store, &["e1", "e2"]).await;
    let both = claimed.iter().map(|claimed| finish_of(claimed, "a", 9, ERROR, SWITCH_OFF)).collect();
    let group = Group { finish_attempts: both, ..Group::default() };
    let outcomes = store.commit(group).await.unwrap().finish_attempts;
    assert_eq!(outcomes, [FinishOutcome::Applied { switched_off: true }, APPLIED]);
    let since = at(9) + Duration::from_millis(250);
    let off = find_webhook(store, "w").await.off;
    assert_eq!(off, Some(Off { since, reason: OffReason::Exhausted(event_id("e1")) }));
    for event in ["e1", "e2"] {
        assert_eq!(view(store, event, "w").await.state, DeliveryState::Exhausted);
    }
    assert_eq!(store_events(store, &["e3"]).await[0].deliveries, 0);
    assert!(claim(store, "b", 1_000_000).await.is_empty());
}

pub(crate) async fn r17_exhaustion_by_our_fault_switches_nothing_off(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let spoiled = Decision::Exhausted { switch_off: false };
    assert_eq!(finish(store, &claimed[0], "a", 0, INTERRUPTED, spoiled).await, APPLIED);
    assert_eq!(view(store, "e", "w").await.state, DeliveryState::Exhausted);
    assert_eq!(find_webhook(store, "w").await.off, None);
}

pub(crate) async fn a_webhook_that_is_off_keeps_the_older_reason(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    set_active(store, "w", false, 3).await;
    assert_eq!(finish(store, &claimed[0], "a", 9, ERROR, SWITCH_OFF).await, APPLIED);
    assert_eq!(find_webhook(store, "w").await.off, Some(Off { since: at(3), reason: OffReason::Paused }));
}

pub(crate) async fn r14_a_late_success_switches_nothing_on(store: &dyn Store) {
    let claimed = claimed(store, &["e1", "e2"]).await;
    finish(store, &claimed[0], "a", 0, ERROR, SWITCH_OFF).await;
    assert_eq!(finish(store, &claimed[1], "a", 0, OK, Decision::Delivered).await, APPLIED);
    assert!(find_webhook(store, "w").await.off.is_some());
}

pub(crate) async fn a_finish_without_the_lease_changes_nothing(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let wrong_owner = finish_of(&claimed[0], "b", 0, ERROR, SWITCH_OFF);
    let later = ClaimedDelivery { attempt: 2, ..claimed[0].clone() };
    let wrong_attempt = finish_of(&later, "a", 0, ERROR, SWITCH_OFF);
    for wrong in [wrong_owner, wrong_attempt] {
        assert_eq!(commit_finish(store, wrong).await, FinishOutcome::LeaseLost);
        let shown = view(store, "e", "w").await;
        assert_eq!((shown.state, shown.in_flight), (DeliveryState::Waiting, true));
    }
    assert!(find_webhook(store, "w").await.off.is_none());
    assert_eq!(finish(store, &claimed[0], "a", 0, OK, Decision::Delivered).await, APPLIED);
}

pub(crate) async fn a_finish_of_an_event_that_was_published_anew_leaves_no_trace(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let older = ClaimedDelivery { created_at: at(-1), ..claimed[0].clone() };
    for decision in [Decision::Delivered, retry(60)] {
        assert_eq!(finish(store, &older, "a", 0, OK, decision).await, FinishOutcome::LeaseLost);
    }
    assert!(view(store, "e", "w").await.in_flight);
    assert_eq!(finish(store, &claimed[0], "a", 0, OK, Decision::Delivered).await, APPLIED);
    assert_eq!(finish(store, &older, "a", 0, OK, Decision::Delivered).await, FinishOutcome::LeaseLost);
    assert_eq!(log(store, "w").await.len(), 1);
}

pub(crate) async fn the_same_finish_again_leaves_one_line(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let finish = finish_of(&claimed[0], "a", 0, ERROR, retry(60));
    assert_eq!(commit_finish(store, finish.clone()).await, APPLIED);
    assert_eq!(commit_finish(store, finish.clone()).await, FinishOutcome::LeaseLost);
    assert_eq!(view(store, "e", "w").await.attempts, [finish.attempt]);
    assert_eq!(log(store, "w").await.len(), 1);
    assert_eq!(claim_one(store, "a", 60).await.history.attempts, 1);
}

pub(crate) async fn s17_a_finish_of_another_organization_touches_nothing(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let theirs = Publish { organization: organization("rival"), ..publish_of(&["e"]) };
    assert_eq!(stored(commit_publish(store, theirs).await)[0].deliveries, 0);
    let mut foreign = finish_of(&claimed[0], "a", 0, ERROR, SWITCH_OFF);
    foreign.key.organization = organization("rival");
    assert_eq!(commit_finish(store, foreign).await, FinishOutcome::LeaseLost);
    assert!(view(store, "e", "w").await.in_flight);
    assert!(find_webhook(store, "w").await.off.is_none());
    assert!(log(store, "w").await.is_empty());
    let theirs = LogQuery { organization: organization("rival"), ..log_query("w", None, 10) };
    assert!(store.log(theirs).await.unwrap().rows.is_empty(), "a line of a delivery that does not exist");
}

pub(crate) async fn deleting_a_webhook_cancels_what_waits(store: &dyn Store) {
    create(store, &["stays"]).await;
    let claimed: Vec<_> = claimed_beside(store).await;
    assert!(store.delete_webhook(&acme(), &webhook_id("w"), at(5)).await.unwrap().is_some());
    assert_eq!(store.delete_webhook(&acme(), &webhook_id("w"), at(6)).await.unwrap(), None);
    for event in ["retried", "under-way"] {
        let shown = view(store, event, "w").await;
        assert_eq!((shown.state, shown.reason.as_str()), (DeliveryState::Cancelled, "webhookDeleted"));
        assert_eq!((shown.next_attempt_at, shown.in_flight), (None, false));
        assert_eq!(view(store, event, "stays").await.state, DeliveryState::Waiting);
    }
    let late = finish(store, &claimed[1], "a", 8, OK, Decision::Delivered).await;
    assert_eq!(late, FinishOutcome::Applied { switched_off: false });
    let arrived = view(store, "under-way", "w").await;
    assert_eq!((arrived.state, arrived.reason.as_str()), (DeliveryState::Delivered, ""), "it was answered 2xx");
    let again = finish(store, &claimed[1], "a", 9, OK, Decision::Delivered).await;
    assert_eq!(again, FinishOutcome::LeaseLost);
    assert_eq!(log(store, "w").await.len(), 2, "the log stays, and what was under way is in it");
    let left = claim(store, "b", 1_000_000).await;
    assert_eq!(sorted_names(&left), [("retried", "stays"), ("under-way", "stays")]);
    assert_eq!(store.webhooks(&acme()).await.unwrap().len(), 1);
}

/// Deliveries to `w`: `retried` waits for a retry, `under-way` is leased. Those to other webhooks are leased too.
async fn claimed_beside(store: &dyn Store) -> Vec<ClaimedDelivery> {
    create(store, &["w"]).await;
    store_events(store, &["retried", "under-way"]).await;
    let mut claimed = claim(store, "a", 0).await;
    claimed.retain(|claimed| claimed.key.webhook.as_str() == "w");
    claimed.sort_by(|a, b| a.key.cmp(&b.key));
    finish(store, &claimed[0], "a", 0, ERROR, retry(60)).await;
    claimed
}

pub(crate) async fn a_group_applies_its_parts_in_order(store: &dyn Store) {
    let claimed = claimed(store, &["e"]).await;
    let group = Group {
        publish: vec![publish_of(&["after"])],
        finish_attempts: vec![finish_of(&claimed[0], "a", 0, ERROR, SWITCH_OFF)],
        record: vec![row("d", "k", 0)],
        ..Group::default()
    };
    let outcome = store.commit(group).await.unwrap();
    assert_eq!(outcome.finish_attempts, [FinishOutcome::Applied { switched_off: true }]);
    assert_eq!(outcome.record, [RecordOutcome::Stored]);
    let [PublishOutcome::Stored(events)] = outcome.publish.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(events[0].deliveries, 0, "R10: the webhook was off before the event was stored");
}

pub(crate) async fn case4_case19_every_outcome_error_and_response_is_kept_as_it_was(store: &dyn Store) {
    use FailureKind::*;
    let kinds = [Timeout, Dns, Connect, Tls, Reset, Protocol, TargetRefused, Local, Interrupted];
    let outcomes = kinds.map(Outcome::Failed).into_iter().chain([100, 204, 301, 599].map(Outcome::Answered));
    let errors = ["", "a\0b", "\u{1b}[31m\r\n領収書\u{10ffff}", "'; --"];
    let responses: [&[u8]; 4] = [b"", b"\x1f\x8b\x08\0\xff\xfe", b"a\0b", &[b'x'; 16 * 1024]];
    let mut attempt = claimed(store, &["e"]).await.remove(0);
    let mut expected = Vec::new();
    for (index, outcome) in outcomes.enumerate() {
        let due = 100 * (index as i64 + 1);
        let mut finish = finish_of(&attempt, "a", due, outcome, retry(due));
        finish.attempt.error = errors[index % errors.len()].to_owned();
        finish.attempt.response_body = Bytes::copy_from_slice(responses[index % responses.len()]);
        finish.attempt.duration = Duration::from_millis(index as u64 * 10_250);
        expected.push(finish.attempt.clone());
        assert_eq!(commit_finish(store, finish).await, APPLIED);
        attempt = claim_one(store, "a", due).await;
    }
    assert_eq!(view(store, "e", "w").await.attempts, expected);
    expected.reverse();
    let log: Vec<_> = log(store, "w").await.into_iter().map(|line| line.attempt).collect();
    assert_eq!(log, expected);
}
