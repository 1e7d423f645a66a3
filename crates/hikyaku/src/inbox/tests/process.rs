use std::time::Duration;

use super::*;
use crate::store::memory::{Fault, Operation};
use crate::store::{EffectState, RowState, StoreError};

fn every(destination: &str) -> Route {
    route(destination, "*", Order::Every, Once::Delivery)
}

fn running(routes: Vec<Route>, destinations: Destinations<'_>) -> Rig {
    let mut rig = Rig::new(routes, destinations);
    rig.run();
    rig
}

#[tokio::test(start_paused = true)]
async fn c15_c16_a_destination_that_is_away_for_long_costs_the_provider_nothing() {
    // No draw lets a pause exceed twice the time that has passed, so none reaches beyond the hour of giving up.
    const AWAY_SECONDS: i64 = 600;
    let start: SharedClock = Arc::new(SystemClock::start());
    let (clock, began) = (start.clone(), start.schedule());
    let books = Scripted::new(move |_, _| {
        let away = clock.schedule().duration_since(began).as_secs() < AWAY_SECONDS;
        Answer::Now(if away { failed("connection refused") } else { done() })
    });
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    for n in 0..20 {
        let delivery = format!("d{n}");
        assert_eq!(rig.send(&delivery, sale(&delivery, &format!("k{}", n % 5), n)).await, Received::Stored);
    }
    rig.settle().await;
    for n in 0..20 {
        assert_eq!(rig.row(&format!("d{n}")).await.row.state, RowState::Done);
    }
    let calls = books.deliveries().len();
    assert!((60..=90).contains(&calls), "tried again with growing pauses, not {calls} times");
}

/// What is stored ends; where its route was renamed or removed, nobody works on it, and that is said.
#[tokio::test(start_paused = true)]
async fn work_of_a_route_that_is_gone_is_known_and_goes_on_when_it_is_back() {
    let hung = Scripted::new(|_, _| Answer::Now(failed("away")));
    let mut rig = running(vec![every("books"), every("chat")], &[("books", hung.clone()), ("chat", hung.clone())]);
    for n in 0..3 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), &format!("k{n}"), n)).await;
    }
    rig.stop().await;
    let books = Scripted::new(|_, _| Answer::Now(done()));
    let over = |source: Source, route: Route| {
        let to = [("books", books.clone() as Arc<dyn Destination>)];
        Rig::over(rig.store.clone(), "two", vec![source], vec![route], &to)
    };
    let backlog = rig.store.backlog().await.unwrap();
    let renamed = over(source("shop"), Route { name: "ledger".into(), ..every("books") });
    let all = [("default", "books", 3), ("default", "chat", 3)];
    assert_eq!(renamed.inbox.stranded(&backlog).collect::<Vec<_>>(), all);
    let other = Source { organization: OrganizationId::parse("other").unwrap(), ..source("shop") };
    assert_eq!(over(other, every("books")).inbox.stranded(&backlog).collect::<Vec<_>>(), all, "it is another's route");
    let mut back = over(source("shop"), every("books"));
    assert_eq!(back.inbox.stranded(&backlog).collect::<Vec<_>>(), all[1..]);
    back.run();
    while back.store.backlog().await.unwrap().effects > 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(books.deliveries().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn case21_a_row_that_always_fails_ends_as_dead_and_lets_the_rest_of_its_key_through() {
    let books = Scripted::new(|row, _| Answer::Now(if row.delivery == "d1" { failed("no such shop") } else { done() }));
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.send("d2", sale("d2", "k", 2)).await;
    rig.settle().await;
    let dead = rig.effect("d1").await;
    assert_eq!((rig.row("d1").await.row.state, dead.state), (RowState::Dead, EffectState::Dead));
    let counted = format!("given up after {} failures: no such shop", dead.failures);
    assert_eq!(dead.detail, counted, "the failure that ended it is one of them");
    assert_eq!(dead.failures as usize, books.deliveries().len() - 1);
    assert_eq!(rig.row("d2").await.row.state, RowState::Done);
    let calls = books.deliveries();
    assert!(calls.len() > 5, "{calls:?}");
    assert_eq!(calls.iter().position(|d| d == "d2"), Some(calls.len() - 1), "order holds behind a failing row");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_refused_is_dead_at_once_with_the_reason() {
    let books = Scripted::new(|_, _| Answer::Now(Effect::Refused("no key".into())));
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.settle().await;
    let effect = rig.effect("d1").await;
    assert_eq!((effect.state, effect.detail.as_str(), books.deliveries().len()), (EffectState::Dead, "no key", 1));
    assert_eq!(effect.failures, 1);
}

#[tokio::test(start_paused = true)]
async fn c4_latest_skips_what_is_older_without_asking_the_destination() {
    let books = Scripted::new(|_, _| Answer::Now(done()));
    let rig = running(vec![route("books", "*", Order::Latest, Once::Delivery)], &[("books", books.clone())]);
    for (delivery, event_type, second) in [
        ("d3", "order.updated", 3),
        ("d1", "order.created", 1),
        ("d2", "order.created", 3),
        ("d4", "order.cancelled", 3),
    ] {
        rig.send(delivery, event(delivery, event_type, "k", second)).await;
        rig.settle().await;
    }
    assert_eq!(books.deliveries(), ["d3", "d4"]);
    for (delivery, state) in
        [("d1", RowState::Stale), ("d2", RowState::Stale), ("d3", RowState::Done), ("d4", RowState::Done)]
    {
        assert_eq!(rig.row(delivery).await.row.state, state, "{delivery}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_event_of_a_key_takes_effect_oldest_first_among_those_that_wait() {
    let books = Scripted::new(|_, _| Answer::Now(done()));
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    for n in [3, 1, 2, 0, 4] {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
    }
    rig.run();
    rig.settle().await;
    assert_eq!(books.deliveries(), ["d0", "d1", "d2", "d3", "d4"]);
}

#[tokio::test(start_paused = true)]
async fn t5_a_key_that_had_its_one_effect_gets_no_other_and_a_dead_one_does_not_count() {
    let books = Scripted::new(|row, _| {
        Answer::Now(if row.delivery == "d0" { Effect::Refused("broken".into()) } else { done() })
    });
    let rig = running(vec![route("books", "*", Order::Every, Once::Key)], &[("books", books.clone())]);
    for n in 0..4 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
        rig.settle().await;
    }
    rig.send("x1", r#"{"id":"x1","type":"sale.created"}"#).await;
    rig.send("x2", r#"{"id":"x2","type":"sale.created"}"#).await;
    rig.settle().await;
    assert_eq!(books.deliveries(), ["d0", "d1", "x1", "x2"], "rows without a key are each their own");
    assert_eq!(rig.effect("d3").await.state, EffectState::Stale);
}

#[tokio::test(start_paused = true)]
async fn t5_c9_a_key_that_two_sources_tell_of_has_its_one_effect_through_a_route_of_both() {
    let books = Scripted::new(|_, _| Answer::Now(done()));
    let both = Route { sources: vec!["shop".into(), "till".into()], ..route("books", "*", Order::Every, Once::Key) };
    let sources = vec![source("shop"), source("till")];
    let to = [("books", books.clone() as Arc<dyn Destination>)];
    let mut rig = Rig::over(Arc::new(MemoryStore::new()), "one", sources, vec![both], &to);
    rig.run();
    for (source, delivery, key) in [("shop", "d1", "k"), ("till", "d2", "k"), ("till", "d3", "l"), ("shop", "d4", "l")]
    {
        rig.send_to(source, delivery, sale(delivery, key, 1)).await;
        rig.settle().await;
    }
    assert_eq!(books.deliveries(), ["d1", "d3"]);
}

#[tokio::test(start_paused = true)]
async fn keys_run_side_by_side_up_to_the_routes_slots_and_one_key_never_twice() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_secs(1), done()));
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    let began = rig.clock.schedule();
    for n in 0..24 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), &format!("k{}", n % 12), n)).await;
    }
    rig.settle().await;
    // The scripted destination itself refuses to be called twice at once for one key.
    assert_eq!(*books.most_busy.lock().unwrap(), 4);
    assert!(rig.clock.schedule().duration_since(began).as_secs() < 12, "24 effects of a second in four slots");
}

#[tokio::test(start_paused = true)]
async fn one_routes_dead_destination_does_not_hold_another() {
    let hangs = Scripted::new(|_, _| Answer::Never);
    let good = Scripted::new(|_, _| Answer::Now(done()));
    let rig = running(vec![every("hangs"), every("good")], &[("hangs", hangs.clone()), ("good", good.clone())]);
    let began = rig.clock.schedule();
    for n in 0..50 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), &format!("k{n}"), n)).await;
    }
    while good.deliveries().len() < 50 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(rig.clock.schedule().duration_since(began).as_secs() < 5, "the good route waits for the bad one");
    }
    assert_eq!(hangs.deliveries().len(), 4, "its own slots are all it takes");
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_never_ends_and_one_that_panics_are_failures_and_tried_again() {
    let books = Scripted::new(|row, tried| match (row.delivery.as_str(), tried) {
        ("d1", 0) => Answer::Never,
        ("d2", 0) => Answer::Panic,
        _ => Answer::Now(done()),
    });
    let mut rig = running(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "", 1)).await;
    rig.send("d2", sale("d2", "", 2)).await;
    rig.settle().await;
    assert_eq!(books.deliveries().len(), 4);
    for delivery in ["d1", "d2"] {
        let effect = rig.effect(delivery).await;
        assert_eq!((effect.state, effect.failures), (EffectState::Done, 1), "{delivery}");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_asks_for_a_pause_gets_it() {
    let clock: SharedClock = Arc::new(SystemClock::start());
    let times = Arc::new(Mutex::new(Vec::new()));
    let (kept, at) = (times.clone(), clock.clone());
    let books = Scripted::new(move |_, tried| {
        kept.lock().unwrap().push(at.schedule());
        let busy = Effect::Failed { error: "busy".into(), retry_after: Some(Duration::from_secs(600)) };
        Answer::Now(if tried == 0 { busy } else { done() })
    });
    let rig = running(vec![every("books")], &[("books", books)]);
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.settle().await;
    let times = times.lock().unwrap();
    let pause = times[1].duration_since(times[0]).as_secs();
    assert!((600..610).contains(&pause), "{pause} s");
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_what_is_under_way_end_and_leaves_the_rest_to_the_next_process() {
    let slow = Scripted::new(|_, _| Answer::After(Duration::from_secs(3), done()));
    let mut rig = running(vec![every("books")], &[("books", slow.clone())]);
    for n in 0..3 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
    }
    while slow.deliveries().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rig.stop().await;
    assert_eq!(slow.deliveries(), ["d0"]);
    assert_eq!(rig.effect("d0").await.state, EffectState::Done);

    let mut next =
        Rig::over(rig.store.clone(), "two", vec![source("shop")], vec![every("books")], &[("books", slow.clone())]);
    next.run();
    next.settle().await;
    assert_eq!(slow.deliveries(), ["d0", "d1", "d2"]);
}

/// The error may be of another write in the same commit: the effect was made, and must not be made again for it.
#[tokio::test(start_paused = true)]
async fn an_end_that_was_refused_is_written_again_and_the_effect_is_not_made_again() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_secs(1), done()));
    let mut rig = running(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.store.fail_next(Operation::Commit, Fault::Before(StoreError::Damaged("planted".into())));
    rig.settle().await;
    assert_eq!(books.deliveries(), ["d1"]);
    rig.stop().await;
}

/// T1, C15: the row is the saved work. A process that dies in the midst of an effect leaves it to whoever comes next.
#[tokio::test(start_paused = true)]
async fn t1_an_effect_cut_off_by_a_crash_is_made_again_with_the_same_delivery() {
    let books = Scripted::new(|_, tried| if tried == 0 { Answer::Never } else { Answer::Now(done()) });
    let mut rig = running(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k", 1)).await;
    while books.deliveries().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The store takes nothing from the first process any more, as if it had lost its connection for good.
    rig.store.set_down(Operation::Commit, true);
    rig.stop().await;
    rig.store.set_down(Operation::Commit, false);
    let mut next =
        Rig::over(rig.store.clone(), "two", vec![source("shop")], vec![every("books")], &[("books", books.clone())]);
    next.run();
    next.settle().await;
    assert_eq!(books.deliveries(), ["d1", "d1"]);
    let failures: Vec<_> = books.calls.lock().unwrap().iter().map(|row| row.failures).collect();
    assert_eq!(failures, [0, 1], "the destination is told that it is not the first time");
    let effect = next.effect("d1").await;
    assert_eq!((effect.state, effect.failures), (EffectState::Done, 1));
}

/// What came of a row is written before the next of its key is begun: a crash repeats what was under way, and no more.
#[tokio::test(start_paused = true)]
async fn c15_a_crash_repeats_only_the_effects_that_were_under_way() {
    let crashed = Arc::new(Mutex::new(false));
    let (dies, sees) = (crashed.clone(), crashed.clone());
    let books = Scripted::new(move |row, _| {
        // The tenth row of each of two keys is the one that the process dies in.
        let is_last = row.delivery.ends_with("-9") && !*sees.lock().unwrap();
        if is_last { Answer::Never } else { Answer::After(Duration::from_millis(200), done()) }
    });
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    for (key, n) in ["k", "l"].into_iter().flat_map(|key| (0..30).map(move |n| (key, n))) {
        let delivery = format!("{key}-{n}");
        rig.send(&delivery, sale(&delivery, key, n)).await;
    }
    rig.run();
    while books.deliveries().iter().filter(|delivery| delivery.ends_with("-9")).count() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(rig.store.backlog().await.unwrap().effects, 42, "what was answered is written");
    rig.store.set_down(Operation::Commit, true);
    rig.stop().await;
    rig.store.set_down(Operation::Commit, false);
    *dies.lock().unwrap() = true;
    let mut next =
        Rig::over(rig.store.clone(), "two", vec![source("shop")], vec![every("books")], &[("books", books.clone())]);
    next.run();
    next.settle().await;
    let mut repeats = books.deliveries();
    repeats.sort();
    let again: Vec<_> = repeats.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0].clone()).collect();
    assert_eq!((again, repeats.len()), (vec!["k-9".to_owned(), "l-9".to_owned()], 62));
}

#[tokio::test(start_paused = true)]
async fn an_older_event_that_comes_while_its_key_is_worked_on_is_next() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_millis(400), done()));
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    for n in 10..20 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
    }
    while books.deliveries().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rig.send("d5", sale("d5", "k", 5)).await;
    rig.settle().await;
    let begun: Vec<_> = [10, 11, 12, 5].into_iter().chain(13..20).map(|n| format!("d{n}")).collect();
    assert_eq!(books.deliveries(), begun);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_moment_costs_no_second_effect() {
    let books = Scripted::new(|_, _| Answer::Now(done()));
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.store.fail_next(Operation::ClaimLanes, Fault::Before(StoreError::Unavailable("busy".into())));
    rig.store.fail_next(Operation::Commit, Fault::Before(StoreError::Unavailable("busy".into())));
    rig.store.fail_next(Operation::Commit, Fault::After(StoreError::Unknown("cut off".into())));
    rig.run();
    rig.settle().await;
    rig.stop().await;
    assert_eq!(books.deliveries(), ["d1"]);
    assert_eq!(rig.effect("d1").await.state, EffectState::Done);
}

#[tokio::test(start_paused = true)]
async fn more_rows_than_are_taken_at_a_time_and_rows_that_come_meanwhile_follow_at_once() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_millis(1), done()));
    let rig = running(vec![every("books")], &[("books", books.clone())]);
    let began = rig.clock.schedule();
    for n in 0..100 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
    }
    rig.settle().await;
    assert_eq!(books.deliveries().len(), 100);
    assert!(rig.clock.schedule().duration_since(began).as_secs() < 2, "no row waits for the poll");
}

/// Many slow rows of one key: their lane is given back before its lease ends, so that nobody else begins it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_lane_is_given_back_before_its_lease_ends() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_secs(15), done()));
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    for n in 0..8 {
        rig.send(&format!("d{n}"), sale(&format!("d{n}"), "k", n)).await;
    }
    rig.run();
    rig.settle().await;
    assert_eq!(books.deliveries(), (0..8).map(|n| format!("d{n}")).collect::<Vec<_>>());
}
