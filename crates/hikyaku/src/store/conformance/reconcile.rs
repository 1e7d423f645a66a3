//! How far reconciliations have come, and what they ask.

use bytes::Bytes;
use hikyaku_core::gap::Period;

use super::fixture::*;
use crate::store::*;

fn key(name: &str) -> ReconcileKey {
    ReconcileKey { organization: acme(), name: name.into() }
}

fn period(from: i64, to: i64) -> Period {
    Period { from: at(from), to: at(to) }
}

fn cycle(number: i64) -> Cycle {
    Cycle {
        number,
        period: period(number * 10, number * 10 + 20),
        done_to: at(number * 10 + 5),
        started_at: at(number),
        ended_at: (number % 2 == 0).then(|| at(number + 1)),
        counts: CycleCounts { listed: 6, known: 1, missing: 2, repaired: 4, different: 3, unknown: 5 },
        calls: 7,
        problem: "none".into(),
    }
}

pub(crate) async fn t4_how_far_a_reconciliation_came_is_kept_with_its_reports(store: &dyn Store) {
    assert_eq!(store.reconcile_state(&key("a")).await.unwrap(), ReconcileState::default());
    let first = ReconcileState {
        mark: Some(at(9)),
        wanted: Some(period(1, 2)),
        calls: 8,
        calls_since: Some(at(3)),
        active_at: Some(at(4)),
        cycle: Some(cycle(1)),
    };
    let save = async |before: &ReconcileState, state: &ReconcileState| {
        store.save_reconcile(&key("a"), before, state.clone()).await.unwrap()
    };
    assert!(save(&ReconcileState::default(), &first).await);
    assert_eq!(store.reconcile_state(&key("a")).await.unwrap(), first);
    let next = ReconcileState { wanted: None, mark: Some(at(10)), cycle: Some(cycle(2)), ..first.clone() };
    assert!(save(&first, &next).await);
    let ended = Cycle { problem: String::new(), ..cycle(2) };
    let last = ReconcileState { cycle: Some(ended.clone()), ..next.clone() };
    assert!(save(&next, &last).await);
    assert!(!save(&next, &first).await, "somebody else has changed it");
    assert_eq!(store.reconcile_state(&key("a")).await.unwrap(), last);
    assert_eq!(store.reconcile_cycles(&key("a"), None, 9).await.unwrap(), [ended.clone(), cycle(1)]);
    assert_eq!(store.reconcile_cycles(&key("a"), None, 1).await.unwrap(), [ended]);
    assert_eq!(store.reconcile_cycles(&key("a"), Some(2), 9).await.unwrap(), [cycle(1)]);
    assert_eq!(store.reconcile_state(&key("b")).await.unwrap(), ReconcileState::default());
}

pub(crate) async fn s17_reconciliations_of_another_organization_do_not_exist(store: &dyn Store) {
    let saved = ReconcileState { mark: Some(at(9)), cycle: Some(cycle(1)), ..ReconcileState::default() };
    assert!(store.save_reconcile(&key("a"), &ReconcileState::default(), saved).await.unwrap());
    let other = ReconcileKey { organization: organization("other"), ..key("a") };
    assert_eq!(store.reconcile_state(&other).await.unwrap(), ReconcileState::default());
    assert_eq!(store.reconcile_cycles(&other, None, 9).await.unwrap(), []);
}

async fn known(store: &dyn Store, keys: &[&str]) -> Vec<Option<KnownKey>> {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let provider = row("d", "k", 0).provider;
    let query = KnownKeysQuery { organization: acme(), provider, keys, max_body_bytes: 20 };
    store.known_keys(query).await.unwrap()
}

pub(crate) async fn t5_a_key_is_known_by_its_rows_or_by_its_effect(store: &dyn Store) {
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());
    let parked = NewRow { routes: vec![], park_reason: "no route".into(), ..row("parked", "parked", 1) };
    let rows = vec![
        NewRow { body: body("newer"), ..row("d1", "k", 5) },
        NewRow { body: body("older"), ..row("d2", "k", 4) },
        NewRow { body: body("stands"), ..row("t2", "tie", 4) },
        NewRow { body: body("is stale"), ..row("t1", "tie", 4) },
        NewRow { body: body("larger than 20 bytes, by far"), ..row("d3", "big", 3) },
        NewRow { organization: organization("other"), ..row("d4", "theirs", 3) },
        NewRow { provider: "other".into(), ..row("d5", "elsewhere", 3) },
        NewRow { body: body("x"), ..row("d6", "", 3) },
        parked,
    ];
    record(store, rows).await;
    let found = known(store, &["big", "none", "k", "theirs", "elsewhere", "parked", "", "tie"]).await;
    let micros = |seconds| Some(row("d", "k", seconds).version.micros);
    let big = KnownKey { micros: micros(3), body: None };
    let newest = KnownKey { micros: micros(5), body: Some(body("newer")) };
    let tie = KnownKey { micros: micros(4), body: Some(body("stands")) };
    assert_eq!(found, [Some(big), None, Some(newest), None, None, None, None, Some(tie)]);

    // The rows go; that their key had an effect is remembered.
    for lane in claim_lanes(store, "a", 10).await {
        let all = lane.rows.iter().map(|row| ended(&row.delivery, EffectState::Done)).collect();
        let applied = lane.rows.last().map(|row| row.version.clone());
        commit_lane(store, FinishLane { applied, ..finish_lane_of(&lane, "a", 11, all) }).await;
    }
    let step = DropStep { what: Aged::InboxRows(None), before: at(10_000), ids_before: at(10_000), max_rows: 100 };
    store.drop_aged(step).await.unwrap();
    assert_eq!(known(store, &["k", "none"]).await, [Some(KnownKey::default()), None]);
}

pub(crate) async fn rows_are_listed_by_their_own_time(store: &dyn Store) {
    let parked = NewRow { routes: vec![], park_reason: "no route".into(), ..row("d5", "parked", 3) };
    let theirs = NewRow { organization: organization("other"), ..row("d6", "theirs", 3) };
    record(store, vec![row("d1", "c", 4), row("d2", "a", 2), row("d3", "b", 3), row("d4", "", 3), parked, theirs])
        .await;
    record(store, vec![row("d7", "early", 1), row("d8", "late", 9), row("d9", "tie", 3)]).await;
    let micros = |seconds| row("d", "k", seconds).version.micros;
    let mut query = TimedKeysQuery {
        organization: acme(),
        provider: row("d", "k", 0).provider,
        from_micros: micros(2),
        to_micros: micros(9),
        after: None,
        limit: 2,
    };
    let mut pages = Vec::new();
    loop {
        let page = store.timed_keys(query.clone()).await.unwrap();
        let Some(last) = page.last() else { break };
        query.after = Some(last.place);
        assert!(page.iter().all(|found| found.event_type == row("d", "k", 0).event_type));
        pages.push(page.into_iter().map(|found| found.key).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["a", "b"], vec!["tie", "c"]]);
}
