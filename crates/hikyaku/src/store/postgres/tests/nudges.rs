//! What nodes tell each other, and what they read together.

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;
use crate::store::conformance::fixture::*;

/// A node that has begun to listen.
async fn node(database: &TestDatabase) -> PostgresStore {
    let options = Options { connections: 4, notify: true, ..Options::default() };
    let store = PostgresStore::open(&database.url(), Seal::default(), &SystemClock::start(), options).await.unwrap();
    // Whoever begins to listen looks, because what was said before was not heard.
    for what in Due::ALL {
        store.nudged(what).await;
    }
    store
}

#[tokio::test]
async fn a_nudge_reaches_the_other_nodes_and_not_its_own() {
    let database = TestDatabase::create().await;
    let (a, b) = (node(&database).await, node(&database).await);
    a.nudge(Due::Deliveries);
    b.nudged(Due::Deliveries).await;
    b.nudge(Due::Lanes);
    a.nudged(Due::Lanes).await;
    assert!(a.nudged(Due::Deliveries).now_or_never().is_none(), "it was its own");
    assert!(b.nudged(Due::Lanes).now_or_never().is_none(), "it was its own");
}

#[tokio::test]
async fn a_node_whose_connection_is_lost_listens_again_and_looks() {
    let database = TestDatabase::create().await;
    let (a, b) = (node(&database).await, node(&database).await);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND query = 'LISTEN hikyaku'";
    assert_eq!(database.client().await.query(end, &[]).await.unwrap().len(), 2);
    for store in [&a, &b] {
        store.nudged(Due::Deliveries).await;
        store.nudged(Due::Lanes).await;
    }
    a.nudge(Due::Lanes);
    b.nudged(Due::Lanes).await;
}

#[tokio::test]
async fn a_node_that_is_not_to_listen_opens_no_connection_for_it() {
    let store = make().await;
    store.nudge(Due::Deliveries);
    assert!(store.nudged(Due::Deliveries).now_or_never().is_none());
    let listening = "SELECT COUNT(*) FROM pg_stat_activity
        WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    assert_eq!(store.database.client().await.query_one(listening, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn many_who_ask_for_webhooks_at_once_take_one_connection() {
    const READERS: usize = 64;
    let store = make().await;
    create(&*store, &["w"]).await;
    let (keeper, watcher) = (store.database.client().await, store.database.client().await);
    keeper.batch_execute("BEGIN; LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let waiting = async || -> i64 {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        watcher.query_one(sql, &[]).await.unwrap().get(0)
    };
    let organization = acme();
    let readers = join_all((0..READERS).map(|_| store.webhooks(&organization)));
    let look = async {
        while waiting().await == 0 {}
        // Whoever else reads for himself has come by then.
        for _ in 0..50 {
            assert_eq!(waiting().await, 1);
        }
        keeper.batch_execute("COMMIT").await.unwrap();
    };
    let (answers, ()) = tokio::join!(readers, look);
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap().len() == 1));
}
