//! A database that is away, busy, or cut off in the middle of a commit.

use tokio::time::timeout;

use super::*;
use crate::clock::Stopwatch;
use crate::store::conformance::fixture::*;
use crate::store::*;
use crate::test_proxy::{Cut, Proxy};

/// How long a test waits for what must come. It is only ever used up by a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store behind a proxy, and the same database without it.
struct Reached {
    store: PostgresStore,
    proxy: Proxy,
    direct: Fresh,
}

async fn reached() -> Reached {
    let direct = make().await;
    let url = direct.database.url();
    let proxy = Proxy::before(&url).await;
    Reached { store: open_at(&proxy.url(&url)).await, proxy, direct }
}

/// Where the connection is cut in a round: at every byte of the commit and of its answer, and between them.
fn cut_of(round: usize) -> Cut {
    match round % 3 {
        0 => Cut::Message(round / 3 % 12),
        1 => Cut::Answer(round / 3 % 18),
        _ => Cut::Sent,
    }
}

/// What there is of an event and of a delivery that was received with it.
async fn rows_of(direct: &Fresh, id: &str) -> [i64; 4] {
    let sql = "SELECT (SELECT COUNT(*) FROM events WHERE id = $1), (SELECT COUNT(*) FROM waiting WHERE event = $1),
        (SELECT COUNT(*) FROM inbox_rows WHERE delivery = $1), (SELECT COUNT(*) FROM work WHERE delivery = $1)";
    let row = direct.database.client().await.query_one(sql, &[&id]).await.unwrap();
    [0, 1, 2, 3].map(|index| row.get(index))
}

#[tokio::test]
async fn a_commit_that_is_cut_off_is_answered_as_it_ended_and_written_once() {
    const ROUNDS: usize = 100;
    let Reached { store, proxy, direct } = reached().await;
    create(&store, &["w"]).await;
    store.prepare(at(0)).await.unwrap();
    let (mut written, mut refused) = (0, 0);
    for round in 0..ROUNDS {
        let id = format!("e{round}");
        let group = Group { publish: vec![publish_of(&[&id])], record: vec![row(&id, "k", 0)], ..Group::default() };
        proxy.cut_next_commit(cut_of(round));
        let answer = timeout(PATIENCE, store.commit(group)).await.unwrap();
        assert!(!proxy.has_cut_left(), "the commit was cut");
        let rows = rows_of(&direct, &id).await;
        match answer {
            Ok(outcome) => {
                assert_eq!((outcome.record, rows), (vec![RecordOutcome::Stored], [1; 4]), "round {round}");
                written += 1;
            }
            Err(StoreError::Unavailable(reason)) => {
                assert_eq!(rows, [0; 4], "round {round}: {reason}");
                refused += 1;
            }
            Err(other) => panic!("round {round}: the database is there and can be asked: {other}"),
        }
    }
    assert!(written >= ROUNDS / 3 && refused >= ROUNDS / 3, "{written} were written and {refused} were not");
}

#[tokio::test]
async fn while_the_database_is_away_calls_fail_at_once_and_succeed_by_themselves_when_it_is_back() {
    let Reached { store, proxy, direct: _direct } = reached().await;
    for _ in 0..3 {
        proxy.close();
        for _ in 0..50 {
            let failed = [store.ping().await, store.last_beat().await.map(drop)];
            let is_away = |result: &Result<(), StoreError>| matches!(result, Err(StoreError::Unavailable(_)));
            assert!(failed.iter().all(is_away), "{failed:?}");
        }
        proxy.open();
        let back = async {
            while store.ping().await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, back).await.unwrap();
        let answers = tokio::join!(store.ping(), store.last_beat(), store.any_valid_token());
        assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok(), "{answers:?}");
    }
}

#[tokio::test]
async fn whoever_finds_all_connections_in_use_hears_so_soon_and_they_come_free_again() {
    let direct = make().await;
    let options = Options { connections: 2, ..Options::default() };
    let url = direct.database.url();
    let store = PostgresStore::open(&url, Seal::default(), &SystemClock::start(), options).await.unwrap();
    let store = Arc::new(store);
    let holder = direct.database.client().await;
    holder.batch_execute("BEGIN; LOCK TABLE heartbeat").await.unwrap();
    let beat = || {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.beat(Beat { at: at(1), outage: None }).await })
    };
    let held = [beat(), beat()];
    let waits = "SELECT COUNT(*) FROM pg_locks WHERE NOT granted AND relation = 'heartbeat'::regclass";
    while holder.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) < 2 {
        tokio::task::yield_now().await;
    }
    let (write, read) =
        tokio::join!(store.ping(), store.tokens(TokenQuery { organization: None, before: None, limit: 1 }));
    assert!(matches!(&write, Err(StoreError::Unavailable(reason)) if reason.contains("too much")), "{write:?}");
    assert!(matches!(&read, Err(StoreError::Unavailable(reason)) if reason.contains("in use")), "{read:?}");
    holder.batch_execute("COMMIT").await.unwrap();
    for held in held {
        held.await.unwrap().unwrap();
    }
    store.ping().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn virtual_time_stands_still_while_the_database_is_asked() {
    let fresh = make().await;
    let began = Stopwatch::start();
    for _ in 0..20 {
        fresh.ping().await.unwrap();
        fresh.last_beat().await.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Whoever asked may go away at any time, and what stood still may come back late: the next one who gets the connection
/// reads what is there then.
#[tokio::test]
async fn a_read_that_is_cut_short_leaves_nothing_to_the_next() {
    let database = TestDatabase::create().await;
    let options = Options { connections: 1, ..Options::default() };
    let one = PostgresStore::open(&database.url(), Seal::default(), &SystemClock::start(), options).await.unwrap();
    create(&one, &["w"]).await;
    let keeper = database.client().await;
    keeper.batch_execute("BEGIN; LOCK TABLE event_ids").await.unwrap();
    let is_waited_for = async {
        let sql = "SELECT TRUE FROM pg_locks WHERE NOT granted AND relation = 'event_ids'::regclass";
        while keeper.query_opt(sql, &[]).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let (organization, event) = (acme(), event_id("e"));
    tokio::select! {
        biased;
        answer = one.event(&organization, &event) => panic!("{answer:?}"),
        () = is_waited_for => {}
    }
    keeper.batch_execute("COMMIT").await.unwrap();
    let other = open(&database).await;
    store_events(&other, &["e"]).await;
    assert!(one.event(&organization, &event).await.unwrap().is_some(), "published before it was asked for");
    one.ping().await.unwrap();
}
