//! What a list and a provider can do to a cycle.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::RETRY_AFTER;
use hikyaku_core::gap::{Entry, Period};
use hikyaku_core::timestamp;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

use super::rig::{Rig, before, no_trick, settings};
use super::shop::{answer, key, organization};
use crate::reconcile::{Reconciler, Requested, Settings, Tools};
use crate::store::StoreError;

#[tokio::test(start_paused = true)]
async fn t4_what_is_missing_comes_in_once_and_the_report_says_what_was_found() {
    let rig = Rig::new(&[("a", 50), ("b", 40), ("c", 30), ("d", 20), ("e", 10)], settings());
    let body = |key: &str, minutes, total| {
        format!(r#"{{"data":{{"id":"{key}","timestamp":"{}","total":{total}}}}}"#, timestamp::format(before(minutes)))
    };
    rig.know("b", 40, &body("b", 40, 5)).await;
    rig.know("c", 29, &body("c", 29, 7)).await;
    rig.know("gone", 35, &body("gone", 35, 5)).await;
    rig.run();
    let counts = rig.ended(1).await.counts;
    let found = (counts.listed, counts.known, counts.missing, counts.repaired, counts.different, counts.unknown);
    assert_eq!(found, (5, 1, 3, 4, 1, 1));
    let entered = rig.door.entered.lock().unwrap().clone();
    assert!(
        entered.contains(&("c".to_owned(), Entry::ForReadings)),
        "what differs and is older goes to readings alone"
    );
    assert!(entered.contains(&("a".to_owned(), Entry::AtItsTime)));
    let again = rig.ended(2).await.counts;
    assert_eq!((again.missing, again.known), (0, 4), "c differs still");
}

/// Two changes of one instant: which of them is the state, the provider alone knows, and its list says it.
#[tokio::test(start_paused = true)]
async fn c4_what_differs_and_is_of_the_same_time_follows_what_is_known() {
    let rig = Rig::new(&[("a", 50)], settings());
    let at = timestamp::format(before(50));
    rig.know("a", 50, &format!(r#"{{"data":{{"id":"a","timestamp":"{at}","total":7}}}}"#)).await;
    rig.run();
    let counts = rig.ended(1).await.counts;
    assert_eq!((counts.different, counts.repaired), (1, 1));
    let entered = rig.door.entered.lock().unwrap().clone();
    assert_eq!(entered, [("a".to_owned(), Entry::After(before(50).as_microsecond()))]);
    let again = rig.ended(2).await.counts;
    assert_eq!((again.known, again.different), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_run_of_equal_times_may_be_longer_than_a_page() {
    let names: Vec<_> = (0..20).map(|n| format!("s{n:02}")).collect();
    let sales: Vec<_> = names.iter().map(|name| (name.as_str(), 10)).collect();
    let rig = Rig::new(&sales, settings());
    rig.run();
    assert_eq!(rig.ended(1).await.counts.missing, 20);
    assert_eq!(rig.entered(), names);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_shifts_while_it_is_read_is_read_until_it_holds() {
    let sales: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip((1..).map(|n| 200 - n * 10)).collect();
    let mut late = 0;
    // Whenever a second page is asked for, for a while, a sale slips in at the beginning of the list.
    let rig = Rig::new(&sales, settings()).trick(move |sales, query| {
        if !query.contains("currentPage=1&") && late < 6 {
            late += 1;
            let from =
                form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "from").unwrap().1.into_owned();
            sales.insert(format!("late-{late}"), timestamp::parse(&from).unwrap());
        }
        None
    });
    rig.run();
    rig.ended(1).await;
    let all: Vec<_> = rig.provider.sales.lock().unwrap().keys().cloned().collect();
    assert!(all.len() > 8, "too little slipped in: {all:?}");
    assert_eq!(rig.entered(), all);
}

#[tokio::test(start_paused = true)]
async fn a_second_that_never_holds_is_left_for_later_and_nothing_is_passed_over() {
    let mut asked = 0;
    let rig = Rig::new(&[("a", 10), ("b", 10), ("c", 10), ("d", 10)], settings()).trick(move |sales, query| {
        if !query.contains("currentPage=1&") && asked < 40 {
            asked += 1;
            sales.insert(format!("late-{asked:02}"), before(10));
        }
        None
    });
    rig.run();
    rig.ended(1).await;
    assert!(rig.elapsed() > Duration::from_secs(30), "it paused");
    assert_eq!(rig.entered().len(), 44);
}

#[tokio::test(start_paused = true)]
async fn what_comes_into_the_list_late_is_found_within_the_overlap() {
    let rig = Rig::new(&[("a", 10)], settings());
    rig.run();
    rig.ended(1).await;
    rig.provider.sales.lock().unwrap().insert("late".into(), before(50));
    rig.ended(2).await;
    assert_eq!(rig.entered(), ["a", "late"]);
    let asked = rig.provider.asked.lock().unwrap().clone();
    assert!(
        asked.last().unwrap().contains("from=2026-11-26T22%3A00%3A00.000Z&to=2026-11-27T01%3A00%3A00.000Z"),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_for_patience_gets_it() {
    let mut tries = 0;
    let rig = Rig::new(&[("a", 10)], settings()).trick(move |_, _| {
        tries += 1;
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "900".parse().unwrap())]);
        (tries == 1).then(|| answer(429, headers, "{}"))
    });
    rig.run();
    tokio::time::sleep(Duration::from_secs(899)).await;
    let cycle = rig.cycles().await.remove(0);
    assert!(cycle.ended_at.is_none() && cycle.problem.contains("429"), "{cycle:?}");
    assert_eq!(
        rig.reconciler.request(&key("sales"), None).await.unwrap(),
        Requested::Noted,
        "impatience changes nothing"
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(rig.provider.asked.lock().unwrap().len(), 1);
    let cycle = rig.ended(1).await;
    assert_eq!((cycle.problem.as_str(), cycle.calls, rig.entered()), ("", 2, vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_in_the_middle_a_cycle_goes_on_where_it_was() {
    let lookback = Duration::from_secs(5 * 24 * 3600);
    let day = 24 * 60;
    let rig = Rig::new(
        &[("a", 5 * day - 1), ("b", 4 * day - 1), ("c", 3 * day - 1), ("d", 2 * day - 1)],
        Settings { lookback, ..settings() },
    );
    // The third day's page never comes; the process ends.
    let rig = rig.trick(|_, query| query.contains("from=2026-11-24").then(|| answer(500, HeaderMap::new(), "{}")));
    rig.run();
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.stop.cancel();
    let open = rig.cycles().await.remove(0);
    assert_eq!((open.done_to, open.ended_at), (before(3 * day), None));
    assert_eq!(rig.entered(), ["a", "b"]);
    rig.provider.asked.lock().unwrap().clear();
    *rig.provider.trick.lock().unwrap() = no_trick();
    let (store, clock) = (rig.store.clone(), rig.clock.clone());
    let tools = Tools { store, clock, exchange: rig.provider.clone(), door: rig.door.clone() };
    let next = Reconciler::new(vec![Settings { lookback, ..settings() }], &tools);
    let stop = CancellationToken::new();
    tokio::spawn(next.run(stop.clone()));
    let ended = rig.ended(1).await;
    stop.cancel();
    assert_eq!(rig.provider.asked.lock().unwrap().len(), 3, "the days that were done are not asked for again");
    assert_eq!((ended.counts.missing, rig.entered().len()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_passes_nothing_over() {
    let rig = Rig::new(&[("a", 30), ("b", 20), ("c", 10)], settings());
    rig.door.fails.lock().unwrap().extend([StoreError::Unavailable("full".into()), StoreError::Unknown("cut".into())]);
    rig.run();
    rig.ended(1).await;
    assert_eq!(rig.entered(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_is_used_up_is_said_and_the_next_one_goes_on() {
    let lookback = Duration::from_secs(5 * 24 * 3600);
    let rig = Rig::new(&[("a", 10)], Settings { call_budget: 3, lookback, ..settings() });
    rig.run();
    tokio::time::sleep(Duration::from_secs(29 * 24 * 3600)).await;
    let open = rig.cycles().await.remove(0);
    assert!(open.problem.contains("budget") && open.problem.contains("2026-12-27T00:00:00.000Z"), "{open:?}");
    assert_eq!(rig.provider.asked.lock().unwrap().len(), 3);
    let ended = rig.ended(1).await;
    assert_eq!((ended.calls, rig.entered()), (5, vec!["a".to_owned()]));
}

/// Years of days would use the budget up in a minute, and leave the schedule nothing for a month.
#[tokio::test(start_paused = true)]
async fn a_period_that_needs_more_than_half_of_what_is_left_is_not_begun() {
    let rig = Rig::new(&[("a", 50)], Settings { call_budget: 21, ..settings() });
    let asked = async |days: u64| {
        let to = before(0);
        let from = to.checked_sub(Duration::from_secs(days * 24 * 3600)).unwrap();
        rig.reconciler.request(&key("sales"), Period::around(from, to)).await.unwrap()
    };
    assert_eq!(asked(11).await, Requested::BeyondBudget { needed: 11, left: 21 });
    assert_eq!(asked(10_000).await, Requested::BeyondBudget { needed: 21, left: 21 });
    assert_eq!(rig.reconciler.status(&key("sales")).await.unwrap().unwrap().state.wanted, None);
    assert_eq!(asked(10).await, Requested::Noted);
}

/// The simulation found it: a period that began within the overlap moved the mark, and the rest of the overlap was never read again.
#[tokio::test(start_paused = true)]
async fn t4_a_period_that_is_asked_for_takes_nothing_from_the_overlap() {
    let mark = before(0);
    for from in [before(60), mark] {
        let rig = Rig::new(&[("a", 10)], settings());
        rig.run();
        rig.ended(1).await;
        advance(Duration::from_secs(50 * 60)).await;
        rig.provider.sales.lock().unwrap().insert("late".into(), before(90));
        let period = Period::around(from, mark + Duration::from_secs(50 * 60));
        assert_eq!(rig.reconciler.request(&key("sales"), period).await.unwrap(), Requested::Noted);
        rig.ended(3).await;
        assert_eq!(rig.entered(), ["a", "late"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_period_that_is_asked_for_moves_no_mark_that_it_does_not_reach() {
    let rig = Rig::new(&[("old", 40 * 24 * 60), ("a", 10)], settings());
    rig.run();
    rig.ended(1).await;
    let mark = |status: Vec<crate::reconcile::Status>| status[0].state.mark;
    let before_it = mark(rig.reconciler.list(&organization()).await.unwrap());
    let (from, to) = (before(41 * 24 * 60), before(39 * 24 * 60));
    assert_eq!(rig.reconciler.request(&key("sales"), Period::around(from, to)).await.unwrap(), Requested::Noted);
    rig.ended(2).await;
    assert_eq!(rig.entered(), ["a", "old"]);
    assert_eq!(mark(rig.reconciler.list(&organization()).await.unwrap()), before_it);
    assert_eq!(rig.reconciler.request(&key("other"), None).await.unwrap(), Requested::Nowhere);
}
