//! Sending again: runs, what a webhook missed, and recoveries.

use hikyaku_core::delivery::{Decision, DeliveryState};
use hikyaku_core::ids::{DeliveryKey, RecoveryId};
use hikyaku_core::webhook::{Off, OffReason};

use super::fixture::*;
use crate::store::*;

const EXHAUSTED: Decision = Decision::Exhausted { switch_off: false };

pub(in crate::store) fn key(event: &str, webhook: &str) -> DeliveryKey {
    DeliveryKey { organization: acme(), event: event_id(event), webhook: webhook_id(webhook) }
}

pub(super) async fn resend(store: &dyn Store, event: &str, webhook: &str, seconds: i64) -> ResendOutcome {
    store.resend(&key(event, webhook), at(seconds)).await.unwrap()
}

/// An event whose timestamp is `seconds`.
fn dated(id: &str, seconds: i64) -> NewEvent {
    NewEvent { timestamp: at(seconds), ..event(id) }
}

pub(super) async fn store_dated(store: &dyn Store, events: &[(&str, i64)]) {
    let events = events.iter().map(|(id, seconds)| dated(id, *seconds)).collect();
    stored(commit_publish(store, publish(events)).await);
}

/// Publishes events that `w` misses, and switches it on.
pub(super) async fn missed_by_w(store: &dyn Store, events: &[(&str, i64)]) {
    create(store, &["w"]).await;
    set_active(store, "w", false, 1).await;
    store_dated(store, events).await;
    set_active(store, "w", true, 2).await;
}

pub(super) fn query() -> MissedQuery {
    MissedQuery {
        organization: acme(),
        webhook: webhook_id("w"),
        from: None,
        to: None,
        after: None,
        limit: 1000,
        count_to: 1000,
    }
}

pub(super) async fn missed(store: &dyn Store, query: MissedQuery) -> (Vec<String>, u64, u64) {
    let found = store.missed(query).await.unwrap();
    let names = found.entries.iter().map(|entry| format!("{} {}", entry.position.event, entry.kind.as_str()));
    (names.collect(), found.missed, found.exhausted)
}

/// A recovery of `w` of what has a timestamp from second 0 up to second 1000.
pub(in crate::store) fn recovery(id: &str, which: Which) -> NewRecovery {
    NewRecovery {
        id: recovery_id(id),
        organization: acme(),
        webhook: webhook_id("w"),
        which,
        from: at(0),
        to: at(1000),
        at: at(5),
    }
}

pub(in crate::store) fn recovery_id(id: &str) -> RecoveryId {
    RecoveryId::parse(id).unwrap()
}

pub(super) fn recovery_key(id: &str) -> RecoveryKey {
    (acme(), webhook_id("w"), recovery_id(id))
}

pub(super) async fn recover(store: &dyn Store, id: &str, which: Which) {
    let outcome = store.recover(recovery(id, which)).await.unwrap();
    assert!(matches!(outcome, RecoverOutcome::Begun(_)), "{outcome:?}");
}

pub(in crate::store) fn step_of(seconds: i64, most_due: u32) -> RecoveryStep {
    RecoveryStep { now: at(seconds), most_due, limit: 100, after: None }
}

pub(super) async fn step(store: &dyn Store, seconds: i64, most_due: u32) -> (u32, u32) {
    let stepped = store.step_recoveries(step_of(seconds, most_due)).await.unwrap();
    (stepped.made_due, stepped.running)
}

/// State, total and recovered.
pub(super) async fn progress(store: &dyn Store, id: &str) -> (&'static str, u64, u64) {
    let recovery = store.recovery(&recovery_key(id)).await.unwrap().unwrap();
    (recovery.state.as_str(), recovery.total, recovery.recovered)
}

/// Claims the events that are due for `w`, in the order of their due times, one by one.
pub(super) async fn claim_in_order(store: &dyn Store, seconds: i64) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let claim = DeliveryClaim { slots_each: 1, ..claim_of("a", seconds) };
        let claims = store.claim_deliveries(claim).await.unwrap().deliveries;
        let [claimed] = &claims[..] else { return events };
        events.push(claimed.key.event.to_string());
    }
}

pub(crate) async fn case23_a_delivered_event_is_resent_with_the_same_id_and_bytes(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    finish(store, &first, "a", 0, OK, Decision::Delivered).await;
    assert_eq!(resend(store, "e", "w", 10).await, ResendOutcome::Begun);
    assert_eq!(view(store, "e", "w").await.next_attempt_at, Some(at(10)));
    let again = claim_one(store, "a", 10).await;
    assert_eq!((&again.key, &again.body), (&first.key, &first.body));
    assert_eq!((again.run, again.attempt, again.history.attempts, again.history.on_request), (2, 1, 0, true));
    finish(store, &again, "a", 10, OK, Decision::Delivered).await;
    let view = view(store, "e", "w").await;
    let runs: Vec<_> = view.attempts.iter().map(|attempt| (attempt.run, attempt.number)).collect();
    assert_eq!((view.state, view.run, runs), (DeliveryState::Delivered, 2, vec![(1, 1), (2, 1)]));
    let log: Vec<_> = log(store, "w").await.iter().map(|line| (line.attempt.run, line.attempt.number)).collect();
    assert_eq!(log, [(2, 1), (1, 1)]);
}

pub(crate) async fn r13_a_resend_has_the_whole_schedule_before_it(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    finish(store, &first, "a", 0, INTERRUPTED, retry(5)).await;
    let second = claim_one(store, "a", 5).await;
    finish(store, &second, "a", 5, ERROR, EXHAUSTED).await;
    for run in 2..4 {
        assert_eq!(resend(store, "e", "w", 10 * i64::from(run)).await, ResendOutcome::Begun);
        let again = claim_one(store, "a", 10 * i64::from(run)).await;
        assert_eq!((again.run, again.attempt, again.history.spoiled_by_us), (run, 1, 0));
        finish(store, &again, "a", 30, ERROR, retry(10 * i64::from(run) + 1)).await;
        let later = claim_one(store, "a", 10 * i64::from(run) + 1).await;
        assert_eq!((later.run, later.attempt, later.history.attempts, later.history.on_request), (run, 2, 1, true));
        finish(store, &later, "a", 40, ERROR, EXHAUSTED).await;
    }
    assert_eq!(log(store, "w").await.len(), 6);
}

pub(crate) async fn r13_a_delivery_that_has_not_ended_cannot_be_resent(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    assert_eq!(resend(store, "e", "w", 1).await, ResendOutcome::StillWaiting);
    let first = claim_one(store, "a", 0).await;
    assert_eq!(resend(store, "e", "w", 1).await, ResendOutcome::StillWaiting);
    assert!(view(store, "e", "w").await.in_flight);
    assert_eq!(finish(store, &first, "a", 0, ERROR, retry(60)).await, APPLIED);
    assert_eq!(resend(store, "e", "w", 1).await, ResendOutcome::StillWaiting);
    assert_eq!(view(store, "e", "w").await.next_attempt_at, Some(at(60)));
}

pub(crate) async fn r13_any_event_can_be_resent_to_any_webhook_even_one_that_is_off(store: &dyn Store) {
    store_events(store, &["e"]).await;
    create(store, &["w"]).await;
    set_active(store, "w", false, 1).await;
    assert_eq!(resend(store, "e", "w", 5).await, ResendOutcome::Begun);
    let claimed = claim_one(store, "a", 5).await;
    assert!(claimed.webhook.off.is_some() && claimed.history.on_request);
    assert_eq!(resend(store, "nothing", "w", 5).await, ResendOutcome::NoSuchEvent);
    assert_eq!(resend(store, "e", "nobody", 5).await, ResendOutcome::NoSuchWebhook);
    let rival = DeliveryKey { organization: organization("rival"), ..key("e", "w") };
    assert_eq!(store.resend(&rival, at(5)).await.unwrap(), ResendOutcome::NoSuchEvent, "S17");
}

pub(crate) async fn case22_a_late_finish_of_an_older_run_changes_nothing_of_the_present_one(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    let takeover = claim_one(store, "b", LEASE_SECONDS).await;
    finish(store, &takeover, "b", LEASE_SECONDS, INTERRUPTED, EXHAUSTED).await;
    resend(store, "e", "w", 50).await;
    // The same owner and the same number, but of the run before.
    let again = claim_one(store, "a", 50).await;
    assert_eq!((again.run, again.attempt), (2, first.attempt));
    assert_eq!(finish(store, &first, "a", 60, OK, Decision::Delivered).await, FinishOutcome::LeaseLost);
    let view = view(store, "e", "w").await;
    assert!(view.in_flight);
    assert_eq!(view.attempts.iter().map(|attempt| (attempt.run, attempt.outcome)).collect::<Vec<_>>(), [(1, OK)]);
    assert_eq!(finish(store, &again, "a", 50, ERROR, retry(70)).await, APPLIED);
}

pub(crate) async fn r12_what_was_missed_or_exhausted_is_listed_oldest_first_with_counts(store: &dyn Store) {
    missed_by_w(store, &[("m2", 20), ("m1", 10), ("m3", 30)]).await;
    store_dated(store, &[("x", 15), ("ok", 16)]).await;
    for claimed in claim(store, "a", 0).await {
        let ok = claimed.key.event.as_str() == "ok";
        let (outcome, decision) = if ok { (OK, Decision::Delivered) } else { (ERROR, EXHAUSTED) };
        finish(store, &claimed, "a", 0, outcome, decision).await;
    }
    let all = ["m1 missed", "x exhausted", "m2 missed", "m3 missed"];
    assert_eq!(missed(store, query()).await, (all.iter().map(|s| (*s).to_owned()).collect(), 3, 1));
    let period = MissedQuery { from: Some(at(15)), to: Some(at(30)), ..query() };
    assert_eq!(missed(store, period.clone()).await, (vec!["x exhausted".to_owned(), "m2 missed".to_owned()], 1, 1));
    let page = store.missed(MissedQuery { limit: 2, ..query() }).await.unwrap();
    let after = page.entries.last().map(|entry| entry.position.clone());
    assert_eq!(missed(store, MissedQuery { after, ..query() }).await.0, ["m2 missed", "m3 missed"]);
    let two = missed(store, MissedQuery { count_to: 2, ..query() }).await;
    assert_eq!((two.0.len(), two.1, two.2), (4, 2, 1), "counting stops, the list does not");
    resend(store, "m1", "w", 5).await;
    resend(store, "x", "w", 5).await;
    assert_eq!(missed(store, query()).await.0, ["m2 missed", "m3 missed"], "what waits is not missed");
    assert_eq!(missed(store, MissedQuery { organization: organization("rival"), ..query() }).await, (vec![], 0, 0));
}

pub(crate) async fn r12_what_a_run_has_delivered_is_not_missed_after_a_failed_resend(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["had", "never"]).await;
    for claimed in claim(store, "a", 0).await {
        let had = claimed.key.event.as_str() == "had";
        let (outcome, decision) = if had { (OK, Decision::Delivered) } else { (ERROR, EXHAUSTED) };
        finish(store, &claimed, "a", 0, outcome, decision).await;
    }
    for run in 2..4 {
        for event in ["had", "never"] {
            assert_eq!(resend(store, event, "w", run * 10).await, ResendOutcome::Begun);
            let again = claim_one(store, "a", run * 10).await;
            finish(store, &again, "a", run * 10, ERROR, EXHAUSTED).await;
        }
        assert_eq!(view(store, "had", "w").await.state, DeliveryState::Exhausted, "the last run's end");
        assert_eq!(missed(store, query()).await, (vec!["never exhausted".to_owned()], 0, 1));
    }
}

pub(crate) async fn r12_an_event_tells_who_missed_it_and_why(store: &dyn Store) {
    create(store, &["w", "v", "on"]).await;
    set_active(store, "v", false, 3).await;
    store_events(store, &["e0"]).await;
    let failed = claim(store, "a", 0).await.into_iter().find(|claimed| claimed.key.webhook.as_str() == "w").unwrap();
    finish(store, &failed, "a", 7, ERROR, SWITCH_OFF).await;
    let since = view(store, "e0", "w").await.attempts[0].started_at.as_millisecond() + 250;
    let published = store_events(store, &["e"]).await;
    assert_eq!(published[0].deliveries, 1);
    let event = store.event(&acme(), &event_id("e")).await.unwrap().unwrap();
    let off = |since, reason| Off { since, reason };
    let exhausted = off(jiff::Timestamp::from_millisecond(since).unwrap(), OffReason::Exhausted(event_id("e0")));
    let missed = [
        Missed { webhook: webhook_id("v"), off: off(at(3), OffReason::Paused) },
        Missed { webhook: webhook_id("w"), off: exhausted },
    ];
    assert_eq!(event.missed, missed);
}

pub(crate) async fn a_recovery_makes_its_events_due_oldest_first_and_a_few_at_a_time(store: &dyn Store) {
    missed_by_w(store, &[("c", 20), ("a", 20), ("z", 10), ("b", 30), ("out", 1000)]).await;
    recover(store, "r", Which::Missed).await;
    assert!(claim(store, "a", 6).await.is_empty(), "a recovery makes nothing due by itself");
    assert_eq!(progress(store, "r").await, ("running", 4, 0));
    assert_eq!(step(store, 6, 3).await, (3, 1));
    assert_eq!(progress(store, "r").await, ("running", 4, 3));
    assert_eq!(step(store, 7, 3).await, (0, 1), "three are due already");
    assert_eq!(claim_in_order(store, 8).await, ["z", "a", "c"]);
    assert_eq!(step(store, 9, 3).await, (1, 0));
    assert_eq!(progress(store, "r").await, ("done", 4, 4));
    let claimed = claim_one(store, "a", 9).await;
    assert_eq!((claimed.key.event.as_str(), claimed.run, claimed.history.on_request), ("b", 2, true));
    assert_eq!(missed(store, query()).await.0, ["out missed"]);
}

pub(crate) async fn a_recovery_takes_each_event_once_however_often_it_fails(store: &dyn Store) {
    create(store, &["w"]).await;
    store_dated(store, &[("e1", 1), ("e2", 2)]).await;
    for claimed in claim(store, "a", 0).await {
        finish(store, &claimed, "a", 0, ERROR, EXHAUSTED).await;
    }
    recover(store, "r", Which::All).await;
    assert_eq!(step(store, 1, 1).await, (1, 1));
    let first = claim_one(store, "a", 1).await;
    finish(store, &first, "a", 1, ERROR, EXHAUSTED).await;
    assert_eq!(step(store, 2, 1).await, (1, 1));
    assert_eq!(claim_in_order(store, 2).await, ["e2"]);
    assert_eq!(step(store, 3, 1).await, (0, 0));
    assert_eq!(progress(store, "r").await, ("done", 2, 2));
    assert_eq!(missed(store, query()).await.0, ["e1 exhausted"]);
}

pub(crate) async fn a_recovery_brings_only_what_it_was_asked_for(store: &dyn Store) {
    missed_by_w(store, &[("m", 1)]).await;
    store_dated(store, &[("x", 2)]).await;
    let claimed = claim_one(store, "a", 0).await;
    finish(store, &claimed, "a", 0, ERROR, EXHAUSTED).await;
    recover(store, "r1", Which::Exhausted).await;
    assert_eq!(step(store, 1, 10).await, (1, 0));
    assert_eq!(claim_in_order(store, 1).await, ["x"]);
    recover(store, "r2", Which::Missed).await;
    assert_eq!(step(store, 2, 10).await, (1, 0));
    assert_eq!(claim_in_order(store, 2).await, ["m"]);
}

pub(crate) async fn a_recovery_is_refused_where_it_could_not_run(store: &dyn Store) {
    missed_by_w(store, &[("m", 1)]).await;
    let nobody = NewRecovery { webhook: webhook_id("nobody"), ..recovery("r", Which::All) };
    assert_eq!(store.recover(nobody).await.unwrap(), RecoverOutcome::NoSuchWebhook);
    recover(store, "r1", Which::All).await;
    let second = store.recover(recovery("r2", Which::All)).await.unwrap();
    assert_eq!(second, RecoverOutcome::Running(recovery_id("r1")));
    let cancelled = store.cancel_recovery(&recovery_key("r1")).await.unwrap().unwrap();
    assert_eq!((cancelled.state, cancelled.recovered), (RecoveryState::Cancelled, 0));
    assert_eq!(step(store, 6, 10).await, (0, 0), "what is cancelled makes nothing due");
    set_active(store, "w", false, 7).await;
    let off = Off { since: at(7), reason: OffReason::Paused };
    assert_eq!(store.recover(recovery("r2", Which::All)).await.unwrap(), RecoverOutcome::Off(off));
    assert_eq!(store.cancel_recovery(&recovery_key("r2")).await.unwrap(), None);
}

pub(crate) async fn a_recovery_rests_while_its_webhook_is_off(store: &dyn Store) {
    missed_by_w(store, &[("m1", 1), ("m2", 2)]).await;
    recover(store, "r", Which::All).await;
    assert_eq!(step(store, 6, 1).await, (1, 1));
    set_active(store, "w", false, 7).await;
    claim_one(store, "a", 7).await;
    assert_eq!(step(store, 8, 1).await, (0, 0));
    set_active(store, "w", true, 9).await;
    assert_eq!(step(store, 10, 1).await, (1, 1));
    assert_eq!(step(store, 10 + LEASE_SECONDS, 10).await, (0, 0));
    assert_eq!(progress(store, "r").await, ("done", 2, 2));
}

pub(crate) async fn recoveries_take_turns_where_there_are_many(store: &dyn Store) {
    missed_by_w(store, &[("m1", 1)]).await;
    create(store, &["v"]).await;
    resend(store, "m1", "v", 50).await;
    for webhook in ["v", "w"] {
        let new = NewRecovery { webhook: webhook_id(webhook), ..recovery("r", Which::All) };
        assert!(matches!(store.recover(new).await.unwrap(), RecoverOutcome::Begun(_)));
    }
    let first = store.step_recoveries(RecoveryStep { limit: 1, ..step_of(6, 10) }).await.unwrap();
    let stopped_at = Some((acme(), webhook_id("v"), recovery_id("r")));
    assert_eq!(first, RecoveryStepped { made_due: 0, running: 0, stopped_at: stopped_at.clone() });
    let second = store.step_recoveries(RecoveryStep { limit: 2, after: stopped_at, ..step_of(6, 10) }).await.unwrap();
    assert_eq!(second, RecoveryStepped { made_due: 1, running: 0, stopped_at: None });
}

pub(crate) async fn t8_a_new_run_is_signed_by_its_own_first_attempt(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    finish(store, &first, "a", 0, ERROR, EXHAUSTED).await;
    let overlap = std::time::Duration::from_secs(1000);
    let secret = hikyaku_core::signature::Secret::new("whsec_the_new_one_0123456789abcdef");
    let change = WebhookChange { rotation: Some(Rotation { secret, overlap }), ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("w"), change, at(10)).await.unwrap();
    resend(store, "e", "w", 20).await;
    let again = claim_one(store, "a", 20).await;
    assert_eq!(again.first_attempt_at, None, "it is the first itself");
    finish(store, &again, "a", 20, ERROR, retry(30)).await;
    assert_eq!(claim_one(store, "a", 30).await.first_attempt_at, Some(at(20)));
}
