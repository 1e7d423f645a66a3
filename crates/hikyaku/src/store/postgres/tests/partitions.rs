//! Days: made before their first row, dropped whole when they are old, and made again by whoever did not know.

use hikyaku_core::delivery::{Decision, DeliveryState};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SharedClock;
use crate::retention::{Retention, Settings};
use crate::store::conformance::fixture::*;
use crate::store::*;

const DAY_SECONDS: i64 = 24 * 3600;

/// The days of which a table has a partition, counted from that of second 0.
async fn days(fresh: &Fresh, table: &str) -> Vec<i64> {
    let sql = "SELECT relname::TEXT FROM pg_inherits JOIN pg_class ON oid = inhrelid
        WHERE inhparent = to_regclass($1::TEXT) ORDER BY 1";
    let rows = fresh.database.client().await.query(sql, &[&table]).await.unwrap();
    let day = |name: &str| name.rsplit_once('_').unwrap().1.parse::<i64>().unwrap() - Day::of(at(0)).0;
    rows.iter().map(|row| day(row.get(0))).collect()
}

/// How many rows a table has.
async fn count(fresh: &Fresh, table: &str) -> i64 {
    fresh.database.client().await.query_one(&format!("SELECT COUNT(*) FROM {table}"), &[]).await.unwrap().get(0)
}

/// Events that were published on a day.
async fn published(store: &PostgresStore, day: i64, ids: &[&str]) {
    let created_at = at(day * DAY_SECONDS + 60);
    let events = ids.iter().map(|id| NewEvent { created_at, ..event(id) }).collect();
    stored(commit_publish(store, publish(events)).await);
}

/// Ends everything that waits.
async fn deliver_all(store: &PostgresStore) {
    for claimed in claim(store, "a", 0).await {
        finish(store, &claimed, "a", 0, OK, Decision::Delivered).await;
    }
}

/// Drops what came before second 0, in steps of so many rows.
async fn drop_old(store: &PostgresStore, what: Aged, max_rows: u32) -> Dropped {
    let mut all = Dropped::default();
    let mut next = Some(what);
    while let Some(what) = next {
        let step = DropStep { what, before: at(0), ids_before: at(0), max_rows };
        let dropped = store.drop_aged(step).await.unwrap();
        all.events += dropped.events;
        all.deliveries += dropped.deliveries;
        all.attempts += dropped.attempts;
        all.inbox_rows += dropped.inbox_rows;
        next = dropped.next;
    }
    all
}

const EVENTS: Aged = Aged::Events(None);
const ROWS: Aged = Aged::InboxRows(None);

#[tokio::test]
async fn a_day_that_is_wholly_old_is_dropped_with_its_partitions() {
    let fresh = make().await;
    create(&*fresh, &["v", "w"]).await;
    for (day, ids) in [(-3, ["a", "b"]), (-1, ["c", "d"]), (0, ["e", "f"])] {
        published(&fresh, day, &ids).await;
    }
    deliver_all(&fresh).await;
    assert_eq!(days(&fresh, "events").await, [-3, -1, 0]);
    let expected = Dropped { events: 4, deliveries: 8, attempts: 8, ..Dropped::default() };
    assert_eq!(drop_old(&fresh, EVENTS, 1).await, expected);
    for table in ["events", "deliveries", "attempts"] {
        assert_eq!(days(&fresh, table).await, [0], "{table}");
    }
    assert_eq!((count(&fresh, "event_ids").await, count(&fresh, "attempts").await), (2, 4));
    assert_eq!(drop_old(&fresh, EVENTS, 1).await, Dropped::default());
}

#[tokio::test]
async fn of_a_day_on_which_something_waits_only_that_stays() {
    let fresh = make().await;
    create(&*fresh, &["w"]).await;
    published(&fresh, -2, &["a", "b", "c"]).await;
    let claimed = claim(&*fresh, "a", 0).await;
    for claimed in &claimed[1..] {
        finish(&*fresh, claimed, "a", 0, OK, Decision::Delivered).await;
    }
    let dropped = drop_old(&fresh, EVENTS, 100).await;
    assert_eq!((dropped.events, dropped.deliveries, dropped.attempts), (2, 2, 2));
    assert_eq!((days(&fresh, "events").await, count(&fresh, "events").await), (vec![-2], 1));
    assert_eq!((count(&fresh, "deliveries").await, count(&fresh, "attempts").await), (0, 0));
    finish(&*fresh, &claimed[0], "a", 0, OK, Decision::Delivered).await;
    assert_eq!(view(&*fresh, claimed[0].key.event.as_str(), "w").await.state, DeliveryState::Delivered);
    assert_eq!(drop_old(&fresh, EVENTS, 100).await.events, 1);
    assert_eq!(days(&fresh, "events").await, [0_i64; 0]);
}

#[tokio::test]
async fn old_inbox_rows_go_by_the_day_too_and_their_ids_stay_for_as_long_as_they_should() {
    let fresh = make().await;
    let parked = |id: &str, day| NewRow {
        due_at: at(day * DAY_SECONDS + 60),
        routes: vec![],
        park_reason: "no route".into(),
        ..row(id, id, 0)
    };
    let working = NewRow { routes: vec!["books".into()], ..parked("works", -1) };
    record(&*fresh, vec![parked("a", -3), parked("b", -3), parked("c", -1), working, parked("d", 0)]).await;
    assert_eq!(drop_old(&fresh, ROWS, 1).await.inbox_rows, 3);
    assert_eq!(days(&fresh, "inbox_rows").await, [-1, 0]);
    assert_eq!((count(&fresh, "inbox_rows").await, count(&fresh, "inbox_ids").await), (2, 2));
    let step = DropStep { what: ROWS, before: at(DAY_SECONDS), ids_before: at(0), max_rows: 100 };
    assert_eq!(fresh.drop_aged(step).await.unwrap().inbox_rows, 1);
    assert_eq!(days(&fresh, "inbox_bodies").await, [-1]);
    let again = record(&*fresh, vec![parked("d", 0), parked("a", 0)]).await;
    assert_eq!(again, [RecordOutcome::Duplicate, RecordOutcome::Stored]);
}

#[tokio::test]
async fn a_day_that_another_node_dropped_is_made_again_by_its_next_row() {
    let fresh = make().await;
    let other = open(&fresh.database).await;
    published(&fresh, -2, &["a"]).await;
    published(&other, -2, &["b"]).await;
    drop_old(&fresh, EVENTS, 100).await;
    assert_eq!(days(&fresh, "events").await, [0_i64; 0]);
    published(&other, -2, &["b", "c"]).await;
    assert_eq!((days(&fresh, "events").await, count(&fresh, "events").await), (vec![-2], 2));
}

#[tokio::test]
async fn a_day_that_somebody_reads_stays_for_the_next_round_and_keeps_nobody_waiting() {
    let fresh = make().await;
    published(&fresh, -2, &["a"]).await;
    let reader = fresh.database.client().await;
    reader.batch_execute("BEGIN; SELECT * FROM events").await.unwrap();
    assert_eq!(drop_old(&fresh, EVENTS, 100).await.events, 1);
    assert!(days(&fresh, "events").await == [-2] && fresh.event(&acme(), &event_id("a")).await.unwrap().is_none());
    published(&fresh, -2, &["b"]).await;
    reader.batch_execute("COMMIT").await.unwrap();
    assert_eq!(drop_old(&fresh, EVENTS, 100).await.events, 1);
    assert_eq!(days(&fresh, "events").await, [0_i64; 0]);
}

#[tokio::test]
async fn tomorrow_is_made_today_and_costs_a_write_once() {
    let fresh = make().await;
    fresh.prepare(at(60)).await.unwrap();
    assert_eq!(days(&fresh, "attempts").await, [0, 1]);
    let other = open(&fresh.database).await;
    let written = async || -> i64 {
        let sql = "SELECT SUM(number)::BIGINT FROM commits";
        fresh.database.client().await.query_one(sql, &[]).await.unwrap().get(0)
    };
    let before = written().await;
    fresh.prepare(at(61)).await.unwrap();
    other.prepare(at(62)).await.unwrap();
    assert_eq!(written().await, before);
    assert_eq!(fresh.whole_before(at(3 * DAY_SECONDS + 5)), at(3 * DAY_SECONDS));
}

#[tokio::test]
async fn what_is_made_to_wait_while_it_is_dropped_is_there_whole_or_not_at_all() {
    const ROUNDS: usize = 60;
    let fresh = make().await;
    let other = open(&fresh.database).await;
    create(&*fresh, &["w"]).await;
    for round in 0..ROUNDS {
        let id = format!("e{round}");
        published(&fresh, -2, &[&id]).await;
        deliver_all(&fresh).await;
        let key = DeliveryKey { organization: acme(), event: event_id(&id), webhook: webhook_id("w") };
        let (dropped, resent) = tokio::join!(drop_old(&fresh, EVENTS, 100), other.resend(&key, at(0)));
        let is_begun = resent.unwrap() == ResendOutcome::Begun;
        assert_eq!(dropped.events, u64::from(!is_begun), "{id}");
        let left = [count(&fresh, "events").await, count(&fresh, "event_ids").await, count(&fresh, "waiting").await];
        assert!(left == [i64::from(is_begun); 3] || (!is_begun && left[1..] == [0, 0]), "{id}: {left:?}");
        deliver_all(&fresh).await;
        drop_old(&fresh, EVENTS, 100).await;
    }
}

#[tokio::test]
async fn what_is_kept_for_a_week_or_longer_goes_by_whole_days_and_the_rest_to_the_moment() {
    const DAY: Duration = Duration::from_secs(DAY_SECONDS as u64);
    let fresh = make().await;
    let clock: SharedClock = Arc::new(SystemClock::start());
    let aged = |age: Duration| clock.schedule().checked_sub(age).unwrap();
    let border = Day::of(aged(30 * DAY)).start();
    let millis = |at: i64| Timestamp::from_millisecond(at).unwrap();
    for (id, created_at) in [("of", millis(border)), ("before", millis(border - 1)), ("recent", aged(6 * DAY))] {
        stored(commit_publish(&*fresh, publish(vec![NewEvent { created_at, ..event(id) }])).await);
    }
    let store: SharedStore = Arc::new(open(&fresh.database).await);
    for (age, gone, left) in [(30 * DAY, "before", &["of", "recent"][..]), (6 * DAY, "recent", &[])] {
        let settings = Settings { events: Some(age), inbox: None, ids: None, versions: None };
        let stop = CancellationToken::new();
        let retention = Retention::new(Arc::clone(&store), Arc::clone(&clock), settings);
        let running = tokio::spawn(retention.run(stop.clone()));
        while fresh.event(&acme(), &event_id(gone)).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        running.await.unwrap();
        for id in left {
            assert!(fresh.event(&acme(), &event_id(id)).await.unwrap().is_some(), "{id}");
        }
    }
}
