//! Rows take effect: one lane per key and route, its rows in order, one claim at a time.

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::ordering::Version;

use super::fixture::*;
use crate::store::*;

use EffectState::{Dead, Discarded, Done, Stale};

fn done(ids: &[&str]) -> Vec<EndedRow> {
    ids.iter().map(|id| ended(id, Done)).collect()
}

fn retry_row(delivery: &str, failures: u32, due: i64) -> Option<RetryRow> {
    Some(RetryRow { delivery: delivery.into(), failures, error: "no\0luck".into(), due_at: at(due) })
}

pub(crate) async fn c4_the_rows_of_a_lane_come_in_the_order_of_their_versions(store: &dyn Store) {
    let at_five = |id: &str, event_type: &str| NewRow {
        version: Version::new(at(5), event_type, id),
        event_type: event_type.into(),
        ..row(id, "k", 5)
    };
    let rows = vec![
        row("late", "k", 9),
        at_five("b", "order.cancelled"),
        at_five("z", "order.created"),
        at_five("c", "order.updated"),
        at_five("a", "order.updated"),
        row("early", "k", -1),
    ];
    record(store, rows).await;
    let claim = LaneClaim { rows_each: 4, ..lane_claim("a", 0) };
    let lane = store.claim_lanes(claim).await.unwrap().lanes.remove(0);
    assert_eq!(deliveries(&lane), ["early", "z", "a", "c"]);
    assert_eq!((lane.key.lane.as_str(), lane.key.route.as_str()), ("k:k", "books"));
    assert_eq!(
        (lane.key.organization.clone(), lane.key.provider.as_str(), &lane.applied),
        (acme(), "receiptroller", &None)
    );

    let WorkRow { delivery, source, event_type, key, version, failures, received_at, due_since, body } = &lane.rows[2];
    let sent = at_five("a", "order.updated");
    assert_eq!((delivery, source, event_type, key), (&sent.delivery, &sent.source, &sent.event_type, &sent.key));
    assert_eq!((version, *failures, body), (&sent.version, 0, &sent.body));
    assert_eq!((*received_at, *due_since), (at(5), at(0)));

    commit_lane(store, finish_lane_of(&lane, "a", 1, done(&["early", "z", "a", "c"]))).await;
    assert_eq!(deliveries(&claim_lane(store, "a", 1).await), ["b", "late"]);
}

pub(crate) async fn a_key_is_worked_on_once_at_a_time_and_other_keys_beside_it(store: &dyn Store) {
    let rows = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("n1", ""), ("n2", "")];
    record(store, rows.map(|(id, key)| row(id, key, 1)).into()).await;
    let lanes = claim_lanes(store, "a", 0).await;
    assert_eq!(lane_names(&lanes), ["d:n1", "d:n2", "k:a", "k:b"], "a row without a key waits for nobody");
    record(store, vec![row("a3", "a", 2), row("c1", "c", 2)]).await;
    let beside = claim_lanes(store, "b", LEASE_SECONDS - 1).await;
    assert_eq!(lane_names(&beside), ["k:c"], "what comes while a lane is leased waits for it");

    let lane_a = lanes.iter().find(|lane| lane.key.lane == "k:a").unwrap();
    assert_eq!(commit_lane(store, finish_lane_of(lane_a, "a", 1, done(&["a1", "a2"]))).await, APPLIED);
    assert_eq!(deliveries(&claim_lane(store, "b", 1).await), ["a3"]);
}

pub(crate) async fn c3_only_the_last_of_a_lanes_rows_may_come_with_its_body(store: &dyn Store) {
    record(store, vec![row("d2", "k", 2), row("d1", "k", 1), row("d3", "k", 3), row("x", "other", 1)]).await;
    let claim = LaneClaim { rows_each: 2, last_body_only: true, ..lane_claim("a", 0) };
    let lanes = store.claim_lanes(claim).await.unwrap().lanes;
    let rows = lanes.iter().flat_map(|lane| &lane.rows);
    let mut bodies: Vec<_> = rows.map(|row| (&*row.delivery, &row.body[..])).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [("d1", &b""[..]), ("d2", br#"{"id":"d2"}"#), ("x", br#"{"id":"x"}"#)]);
}

pub(crate) async fn a_route_gets_no_more_than_its_free_slots(store: &dyn Store) {
    let both = |id: &str, key: &str, due| NewRow {
        routes: vec!["books".into(), "chat".into()],
        due_at: at(due),
        ..row(id, key, 1)
    };
    record(store, vec![both("d1", "k1", 2), both("d2", "k2", 1), both("d3", "k3", 3)]).await;
    let slots = |books, chat| vec![(acme(), "books".to_owned(), books), (acme(), "chat".to_owned(), chat)];
    let first = store.claim_lanes(LaneClaim { slots: slots(2, 0), ..lane_claim("a", 9) }).await.unwrap();
    assert_eq!(lane_names(&first.lanes), ["k:k1", "k:k2"], "those due first");
    assert!(first.lanes.iter().all(|lane| lane.key.route == "books"));
    let second = store.claim_lanes(LaneClaim { slots: slots(1, 3), ..lane_claim("a", 9) }).await.unwrap();
    let mut taken: Vec<_> = second.lanes.iter().map(|lane| (lane.key.route.as_str(), lane.key.lane.as_str())).collect();
    taken.sort_unstable();
    assert_eq!(taken, [("books", "k:k3"), ("chat", "k:k1"), ("chat", "k:k2"), ("chat", "k:k3")]);
    let none = store.claim_lanes(LaneClaim { slots: Vec::new(), ..lane_claim("b", 1000) }).await.unwrap();
    assert!(none.lanes.is_empty() && none.next_due.is_none());
}

pub(crate) async fn what_a_finish_leaves_is_due_at_once(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    let lane = claim_lane(store, "a", 0).await;
    commit_lane(store, finish_lane_of(&lane, "a", 5, done(&["d1", "unknown"]))).await;
    assert_eq!(detail(store, "d2").await.effects[0].next_attempt_at, Some(at(5)));
    let lane = claim_lane(store, "a", 5).await;
    assert_eq!((deliveries(&lane), lane.rows[0].failures), (vec!["d2"], 0));
    assert_eq!(detail(store, "d2").await.effects[0].next_attempt_at, None, "it is being worked on");
}

pub(crate) async fn a_retry_makes_its_whole_lane_wait(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2), row("d3", "k", 3)]).await;
    let lane = claim_lane(store, "a", 0).await;
    let failed = FinishLane { retry: retry_row("d2", 1, 60), ..finish_lane_of(&lane, "a", 1, done(&["d1"])) };
    assert_eq!(commit_lane(store, failed).await, APPLIED);
    let effect = detail(store, "d2").await.effects.remove(0);
    assert_eq!((effect.state, effect.failures, effect.detail.as_str()), (EffectState::Waiting, 1, "no\0luck"));
    assert_eq!((effect.next_attempt_at, effect.ended_at), (Some(at(60)), None));

    record(store, vec![row("d4", "k", 4), row("d0", "k", 0)]).await;
    assert!(claim_lanes(store, "a", 59).await.is_empty(), "a new row does not hurry a lane that backs off");
    let lane = claim_lane(store, "a", 60).await;
    assert_eq!(deliveries(&lane), ["d0", "d2", "d3", "d4"]);
    assert_eq!(lane.rows.iter().map(|row| row.failures).collect::<Vec<_>>(), [0, 1, 0, 0]);
    let failed = FinishLane { retry: retry_row("d2", 2, 300), ..finish_lane_of(&lane, "a", 61, done(&["d0"])) };
    commit_lane(store, failed).await;
    let lane = claim_lane(store, "a", 300).await;
    assert_eq!((deliveries(&lane), lane.rows[0].failures), (vec!["d2", "d3", "d4"], 2));
    // No error is told: what it failed with before stays to be seen.
    let postponed = RetryRow { error: String::new(), ..retry_row("d2", 2, 301).unwrap() };
    commit_lane(store, FinishLane { retry: Some(postponed), ..finish_lane_of(&lane, "a", 300, vec![]) }).await;
    let effect = detail(store, "d2").await.effects.remove(0);
    assert_eq!((effect.failures, effect.detail.as_str()), (2, "no\0luck"));
    let lane = claim_lane(store, "a", 301).await;
    commit_lane(store, finish_lane_of(&lane, "a", 301, vec![EndedRow { failures: 3, ..ended("d2", Dead) }])).await;
    assert_eq!(detail(store, "d2").await.effects[0].failures, 3, "the failure that ended it is one of them");
}

pub(crate) async fn c15_an_effect_left_without_an_end_is_told_and_counted(store: &dyn Store) {
    record(store, vec![row("d2", "k", 2), row("d3", "k", 3), row("x", "other", 1)]).await;
    let left = claim_lanes(store, "a", 0).await;
    assert!(left.iter().all(|lane| lane.interrupted.is_none()), "nothing was begun before");
    let other = left.iter().find(|lane| lane.key.lane == "k:other").unwrap();
    let failed = FinishLane { retry: retry_row("x", 1, LEASE_SECONDS), ..finish_lane_of(other, "a", 1, Vec::new()) };
    commit_lane(store, failed).await;
    // What was first then need not be first when the lease has ended.
    record(store, vec![row("d1", "k", 1)]).await;
    for (number, interrupted) in [(1, "d2"), (2, "d1")] {
        let again = claim_lanes(store, "b", number * LEASE_SECONDS).await;
        let lane = again.iter().find(|lane| lane.key.lane == "k:k").unwrap();
        assert_eq!(lane.interrupted.as_deref(), Some(interrupted));
        let effect = detail(store, interrupted).await.effects.remove(0);
        assert_eq!(
            (effect.state, effect.failures, effect.detail.as_str()),
            (EffectState::Waiting, 1, EFFECT_INTERRUPTED)
        );
        let failures = lane.rows.iter().map(|row| row.failures).collect::<Vec<_>>();
        assert_eq!(failures, if number == 1 { [0, 1, 0] } else { [1, 1, 0] });
        if number == 1 {
            let other = again.iter().find(|lane| lane.key.lane == "k:other").unwrap();
            assert_eq!(other.interrupted, None, "its end was written");
            commit_lane(store, finish_lane_of(other, "b", 1, done(&["x"]))).await;
        } else {
            commit_lane(store, finish_lane_of(lane, "b", 1, done(&["d1"]))).await;
        }
    }
    let lane = claim_lane(store, "b", 2 * LEASE_SECONDS).await;
    assert_eq!((lane.interrupted.as_deref(), deliveries(&lane)), (None, vec!["d2", "d3"]));
}

pub(crate) async fn c4_what_took_effect_is_remembered_and_never_goes_back(store: &dyn Store) {
    let version = |seconds| Some(Version::new(at(seconds), "order.updated", format!("v{seconds}")));
    for (number, (applied, remembered)) in
        [(5, None), (3, version(5)), (7, version(5)), (9, version(7))].into_iter().enumerate()
    {
        let id = format!("d{number}");
        let both = vec!["books".into(), "chat".into()];
        record(store, vec![NewRow { routes: both, ..row(&id, "k", 1) }]).await;
        let lane = claim_lane(store, "a", 0).await;
        assert_eq!(lane.applied, remembered, "{number}");
        let finish = finish_lane_of(&lane, "a", 0, done(&[&id]));
        commit_lane(store, FinishLane { applied: version(applied), ..finish }).await;
    }
    record(store, vec![row("last", "k", 1), row("else", "k2", 1)]).await;
    let lanes = claim_lanes(store, "a", 0).await;
    let last = lanes.iter().find(|lane| lane.key.lane == "k:k").unwrap();
    commit_lane(store, finish_lane_of(last, "a", 0, Vec::new())).await;
    assert_eq!(claim_lane(store, "a", 0).await.applied, version(9), "a finish that names none leaves it");
    assert_eq!(lanes.iter().find(|lane| lane.key.lane == "k:k2").unwrap().applied, None);
    let chat = LaneClaim { slots: vec![(acme(), "chat".into(), 9)], ..lane_claim("a", 0) };
    assert_eq!(store.claim_lanes(chat).await.unwrap().lanes[0].applied, None, "each route has its own");
}

pub(crate) async fn a_row_stands_as_all_of_its_effects_do(store: &dyn Store) {
    let cases = [
        ([Done, Done], RowState::Done),
        ([Done, Stale], RowState::Done),
        ([Stale, Stale], RowState::Stale),
        ([Done, Dead], RowState::Dead),
        ([Discarded, Discarded], RowState::Discarded),
        ([Stale, Discarded], RowState::Stale),
    ];
    for (number, (states, expected)) in cases.into_iter().enumerate() {
        let id = format!("d{number}");
        let routes = vec!["chat".into(), "books".into()];
        record(store, vec![NewRow { routes, ..row(&id, &id, 1) }]).await;
        for (state, route) in states.into_iter().zip(["books", "chat"]) {
            assert_eq!(detail(store, &id).await.row.state, RowState::Waiting);
            let claim = LaneClaim { slots: vec![(acme(), route.into(), 9)], ..lane_claim("a", 0) };
            let lane = store.claim_lanes(claim).await.unwrap().lanes.remove(0);
            commit_lane(store, finish_lane_of(&lane, "a", 7, vec![ended(&id, state)])).await;
        }
        let shown = detail(store, &id).await;
        assert_eq!(shown.row.state, expected, "{states:?}");
        for (effect, (state, route)) in shown.effects.iter().zip(states.into_iter().zip(["books", "chat"])) {
            assert_eq!((effect.route.as_str(), effect.state), (route, state));
            assert_eq!((effect.ended_at, effect.next_attempt_at), (Some(at(7)), None));
            assert_eq!(effect.detail, format!("{} it is", state.as_str()));
        }
    }
}

pub(crate) async fn case22_a_finish_of_a_lost_lane_changes_nothing(store: &dyn Store) {
    record(store, vec![row("d", "k", 1)]).await;
    let left = claim_lane(store, "a", 0).await;
    let taken = claim_lane(store, "b", LEASE_SECONDS).await;
    assert_eq!((&left.interrupted, taken.interrupted.as_deref()), (&None, Some("d")));
    let late = FinishLane { applied: Some(row("d", "k", 1).version), ..finish_lane_of(&left, "a", 31, done(&["d"])) };
    let wrong_owner = FinishLane { owner: "c".into(), claim: taken.claim, ..late.clone() };
    for lost in [late, wrong_owner] {
        assert_eq!(commit_lane(store, lost).await, FinishOutcome::LeaseLost);
        assert_eq!(detail(store, "d").await.row.state, RowState::Waiting);
        assert!(claim_lanes(store, "c", LEASE_SECONDS + 1).await.is_empty(), "the lease is still b's");
    }
    let finish = finish_lane_of(&taken, "b", 40, Vec::new());
    assert_eq!(commit_lane(store, finish.clone()).await, APPLIED);
    assert_eq!(commit_lane(store, finish).await, FinishOutcome::LeaseLost);
    let again = claim_lane(store, "b", 40).await;
    assert_eq!((again.applied, again.interrupted), (None, None));
}

pub(crate) async fn a_lane_that_ended_never_gives_out_an_old_token(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1)]).await;
    let left = claim_lane(store, "a", 0).await;
    let taken = claim_lane(store, "b", LEASE_SECONDS).await;
    commit_lane(store, finish_lane_of(&taken, "b", 31, done(&["d1"]))).await;
    record(store, vec![row("d2", "k", 2)]).await;
    let again = claim_lane(store, "a", 32).await;
    let late = FinishLane { retry: retry_row("d1", 1, 9999), ..finish_lane_of(&left, "a", 33, Vec::new()) };
    assert_eq!(commit_lane(store, late).await, FinishOutcome::LeaseLost);
    assert_eq!(commit_lane(store, finish_lane_of(&again, "a", 33, done(&["d2"]))).await, APPLIED);
}

pub(crate) async fn lanes_next_due_is_the_earliest_that_is_not_due_yet(store: &dyn Store) {
    let next_due = async |seconds| store.claim_lanes(lane_claim("a", seconds)).await.unwrap().next_due;
    assert_eq!(next_due(0).await, None);
    let other_route = NewRow { routes: vec!["chat".into()], due_at: at(3), ..row("d3", "c", 1) };
    let rows = vec![
        NewRow { due_at: at(50), ..row("d1", "a", 1) },
        NewRow { due_at: at(10), ..row("d2", "b", 1) },
        other_route,
    ];
    record(store, rows).await;
    assert_eq!(next_due(0).await, Some(at(10)));
    assert_eq!(next_due(10).await, Some(at(10 + LEASE_SECONDS)), "what was just taken is due when its lease ends");
}

pub(crate) async fn s17_lanes_with_equal_keys_in_two_organizations_are_apart(store: &dyn Store) {
    let rival = organization("rival");
    record(store, vec![row("d", "k", 1), NewRow { organization: rival.clone(), ..row("d", "k", 1) }]).await;
    let ours = claim_lane(store, "a", 0).await;
    assert_eq!(ours.key.organization, acme());
    let mut foreign = finish_lane_of(&ours, "a", 0, done(&["d"]));
    foreign.key.organization = rival.clone();
    assert_eq!(commit_lane(store, foreign).await, FinishOutcome::LeaseLost);
    commit_lane(
        store,
        FinishLane { applied: Some(row("d", "k", 1).version), ..finish_lane_of(&ours, "a", 0, done(&["d"])) },
    )
    .await;
    let theirs = LaneClaim { slots: vec![(rival.clone(), "books".into(), 9)], ..lane_claim("a", 0) };
    let theirs = store.claim_lanes(theirs).await.unwrap().lanes.remove(0);
    assert_eq!((theirs.key.organization, theirs.applied, theirs.rows.len()), (rival, None, 1));
}

pub(crate) async fn the_backlog_counts_effects(store: &dyn Store) {
    let count = async || {
        let backlog = store.backlog().await.unwrap();
        (backlog.effects, backlog.oldest_effect_due)
    };
    let both = NewRow { routes: vec!["books".into(), "chat".into()], due_at: at(4), ..row("d1", "a", 1) };
    record(store, vec![both, NewRow { due_at: at(9), ..row("d2", "b", 1) }]).await;
    assert_eq!(count().await, (3, Some(at(4))));
    let lane = claim_lane(store, "a", 4).await;
    assert_eq!(count().await, (3, Some(at(4))), "chat's effect is still due");
    commit_lane(store, finish_lane_of(&lane, "a", 4, done(&["d1"]))).await;
    assert_eq!(count().await, (2, Some(at(4))));
}

pub(crate) async fn the_backlog_counts_the_lanes_of_every_route(store: &dyn Store) {
    let rival = organization("rival");
    let both = NewRow { routes: vec!["books".into(), "chat".into()], ..row("d1", "a", 1) };
    let theirs = NewRow { organization: rival.clone(), ..row("d1", "a", 1) };
    record(store, vec![both, row("d2", "a", 2), NewRow { due_at: at(9), ..row("d3", "b", 1) }, theirs]).await;
    let lanes = async || store.backlog().await.unwrap().lanes;
    let of = |organization: &OrganizationId, route: &str, n: u64| ((organization.clone(), route.to_owned()), n);
    let all = [of(&acme(), "books", 2), of(&acme(), "chat", 1), of(&rival, "books", 1)];
    assert_eq!(lanes().await, all.into());
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(lanes().await.values().sum::<u64>(), 4, "a lane under way still has its work");
    commit_lane(store, finish_lane_of(&lane, "a", 0, done(&["d1", "d2"]))).await;
    assert_eq!(lanes().await.get(&(acme(), "books".to_owned())), Some(&1));
}
