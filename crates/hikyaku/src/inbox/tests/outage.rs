//! Destinations that are away, and keys that fail, in virtual time (C15, C16); and the inbox's own memory (T5).

use hikyaku_core::ordering::Version;
use jiff::Timestamp;

use super::*;
use crate::store::{EffectState, Group, NewRow};

const HOUR: Duration = Duration::from_secs(3600);
/// As long as a provider may wait for its answer at the 99th percentile.
const LONGEST_ANSWER: Duration = Duration::from_millis(100);

/// A route with the pauses that hold if nothing else is said.
fn with_default_pauses(destination: &str) -> Route {
    Route { backoff: Some(Backoff::default()), ..route(destination, "*", Order::Every, Once::Delivery) }
}

fn elapsed(rig: &Rig, since: Timestamp) -> Duration {
    rig.clock.schedule().duration_since(since).unsigned_abs()
}

#[tokio::test(start_paused = true)]
async fn c16_a_destination_that_is_down_for_an_hour_costs_no_answer_and_no_effect() {
    const DELIVERIES: i64 = 360;
    let clock: SharedClock = Arc::new(SystemClock::start());
    let began = clock.schedule();
    let books = Scripted::new(move |_, _| {
        let is_down = clock.schedule().duration_since(began).unsigned_abs() < HOUR;
        Answer::After(Duration::from_secs(2), if is_down { failed("connection refused") } else { done() })
    });
    let chat = Scripted::new(|_, _| Answer::Now(done()));
    let mut rig = Rig::new(
        vec![with_default_pauses("books"), with_default_pauses("chat")],
        &[("books", books.clone()), ("chat", chat.clone())],
    );
    rig.run();
    for n in 0..DELIVERIES {
        let (delivery, asked_at) = (format!("d{n:03}"), rig.clock.schedule());
        assert_eq!(rig.send(&delivery, sale(&delivery, &format!("k{}", n % 50), n)).await, Received::Stored);
        assert!(elapsed(&rig, asked_at) < LONGEST_ANSWER, "{delivery}");
        tokio::time::sleep(HOUR / DELIVERIES as u32 - Duration::from_millis(1)).await;
    }
    assert!(elapsed(&rig, began) < HOUR && chat.deliveries().len() == DELIVERIES as usize, "the other route goes on");
    rig.settle().await;
    for n in 0..DELIVERIES {
        let effects = rig.row(&format!("d{n:03}")).await.effects;
        assert!(effects.iter().all(|effect| effect.state == EffectState::Done), "d{n:03}: {effects:?}");
    }
    // After the longest pause at the latest it has caught up, but for its own two seconds each.
    assert!(elapsed(&rig, began) < HOUR * 2 + Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn c15_the_pauses_grow_from_a_second_to_an_hour_for_three_days() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (seen, clock): (_, SharedClock) = (times.clone(), Arc::new(SystemClock::start()));
    let books = Scripted::new(move |_, _| {
        seen.lock().unwrap().push(clock.schedule());
        Answer::Now(failed("away"))
    });
    let mut rig = Rig::new(vec![with_default_pauses("books")], &[("books", books)]);
    rig.run();
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.settle().await;
    assert_eq!(rig.effect("d1").await.state, EffectState::Dead);
    let times = times.lock().unwrap().clone();
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1].duration_since(pair[0]).unsigned_abs()).collect();
    for (n, pause) in pauses.iter().enumerate() {
        let whole = Duration::from_secs(1 << n.min(12)).min(HOUR);
        let late = Duration::from_millis(10);
        assert!((whole / 2..=whole + late).contains(pause), "pause {n} is {pause:?}");
    }
    assert!(pauses[20..].windows(2).any(|pair| pair[0] != pair[1]), "chance has its part");
    let all: Duration = pauses.iter().sum();
    assert!((71 * HOUR..=72 * HOUR).contains(&all), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destination_may_ask_for_a_longer_pause() {
    let asked = Duration::from_secs(1800);
    let books = Scripted::new(move |_, tried| {
        let busy = Effect::Failed { error: "answered 429".into(), retry_after: Some(asked) };
        Answer::Now(if tried == 0 { busy } else { done() })
    });
    let mut rig = Rig::new(vec![with_default_pauses("books")], &[("books", books.clone())]);
    rig.run();
    let began = rig.clock.schedule();
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.settle().await;
    assert!((asked..asked + Duration::from_secs(1)).contains(&elapsed(&rig, began)));
    let [status] = &rig.inbox.routes(&organization())[..] else { panic!("one route") };
    assert_eq!(status.last_error.as_ref().map(|last| last.error.as_str()), Some("answered 429"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_holds_no_other_key() {
    let books = Scripted::new(|row, _| match row.key.as_str() {
        "broken" => Answer::Now(failed("no such shop")),
        "slow" => Answer::Never,
        _ => Answer::Now(done()),
    });
    let mut rig = Rig::new(vec![with_default_pauses("books")], &[("books", books.clone())]);
    rig.run();
    for n in 0..30 {
        let key = ["broken", "slow", "good"][n % 3];
        let delivery = format!("d{n:02}");
        rig.send(&delivery, sale(&delivery, if key == "good" { &delivery } else { key }, n as i64)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for n in 0..30 {
        let expected = if n % 3 == 2 { EffectState::Done } else { EffectState::Waiting };
        assert_eq!(rig.effect(&format!("d{n:02}")).await.state, expected, "d{n:02}");
    }
}

/// A sale that reconciliation imported, and that is pushed later under the id that it never had here: the id does not
/// know it, the key does.
#[tokio::test(start_paused = true)]
async fn t5_an_imported_sale_that_is_pushed_later_is_announced_once() {
    let chat = Scripted::new(|_, _| Answer::Now(done()));
    let once = route("chat", "*", Order::Every, Once::Key);
    let mut rig = Rig::new(vec![once], &[("chat", chat.clone())]);
    rig.run();
    let body = Bytes::from(sale("import-1", "t1|2026-11|9", 5));
    let at = rig.clock.now();
    let imported = NewRow {
        organization: organization(),
        provider: PROVIDER.into(),
        source: "shop".into(),
        delivery: "import-1".into(),
        event_type: "sale.created".into(),
        version: Version::new(Timestamp::from_second(5).unwrap(), "sale.created", "import-1"),
        key: "t1|2026-11|9".into(),
        body,
        received_at: at,
        due_at: rig.clock.schedule(),
        routes: vec!["chat".into()],
        park_reason: String::new(),
    };
    rig.store.commit(Group { record: vec![imported], ..Group::default() }).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.send("pushed-1", sale("pushed-1", "t1|2026-11|9", 5)).await, Received::Stored);
    assert_eq!(rig.send("pushed-2", sale("pushed-2", "t1|2026-11|10", 6)).await, Received::Stored);
    rig.settle().await;
    assert_eq!(chat.deliveries(), ["import-1", "pushed-2"]);
    assert_eq!(rig.effect("pushed-1").await.state, EffectState::Stale);
}
