//! What a transaction that stays open for long costs the others (case 13): nothing that has ended since is cleaned up.

use std::collections::HashMap;

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::{ClaimedDelivery, NewRow, Publish};
use claim::queues::Queues;
use lanes::due::LaneLooks;
use transaction::Transaction;

/// Deliveries and lanes that have ended, and would be cleaned up if nobody could still see them.
const ENDED: i64 = 40_000;
/// Seconds over which they were due.
const SPAN_SECONDS: i64 = 60;
/// Blocks that a claim may read of the indexes of what is hot, whatever has ended.
const MAX_BLOCKS: i64 = 80;

/// A database in which so much has ended, of the webhook `w` and the route `books`, under a transaction that is given.
/// PostgreSQL takes the tables for empty.
async fn churned() -> (Fresh, tokio_postgres::Client) {
    let store = make().await;
    create(&*store, &["hangs", "w"]).await;
    // An old backlog of a webhook that hangs.
    store_events(&*store, &["e1", "e2"]).await;
    let holder = store.database.client().await;
    holder.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM waiting").await.unwrap();
    let (from, span) = (columns::millis(at(0)), SPAN_SECONDS * 1_000);
    let churn = format!(
        "INSERT INTO waiting SELECT 'acme', 'w', 'x' || g, {from}, {from} + g % {span}, 1, 0, 0, NULL, NULL
            FROM generate_series(1, {ENDED}) AS g;
         INSERT INTO lanes SELECT 'acme', 'books', 'p', 'x' || g, {from} + g % {span}, NULL, 0, NULL, NULL
            FROM generate_series(1, {ENDED}) AS g;
         DELETE FROM waiting WHERE event LIKE 'x%'; DELETE FROM lanes WHERE lane LIKE 'x%'; ANALYZE"
    );
    store.database.client().await.batch_execute(&churn).await.unwrap();
    (store, holder)
}

/// Blocks that this transaction has read of the indexes of what is hot. A plan may prefer to read a small table whole.
async fn blocks(transaction: &Transaction<'_>) -> Result<i64, StoreError> {
    const SQL: &str = "SELECT SUM(pg_stat_get_xact_blocks_fetched(oid))::BIGINT FROM pg_class
        WHERE relkind = 'i' AND relname ~ '^(waiting|lanes|work)'";
    Ok(transaction.one(SQL, &[]).await?.try_get(0)?)
}

/// Claims deliveries, but none of the webhook that hangs; what was claimed, what is remembered then, and what was read.
async fn claim_some(store: &Fresh, queues: Queues, seconds: i64) -> (Vec<ClaimedDelivery>, Queues, i64) {
    let slots = HashMap::from([((acme(), webhook_id("hangs")), 0)]);
    let claim = DeliveryClaim { slots, until: at(seconds + 1), ..claim_of("a", seconds) };
    let claimed = store.db.write((claim, queues), |transaction, (claim, queues)| {
        Box::pin(async move {
            let before = blocks(transaction).await?;
            let (_, queues) = claim::look(transaction, claim, queues, None).await?;
            let (claims, queues) = claim::take(transaction, claim, queues).await?;
            Ok((claims.deliveries, queues, blocks(transaction).await? - before))
        })
    });
    claimed.await.unwrap()
}

#[tokio::test]
async fn case13_a_claim_reads_no_more_under_a_transaction_that_stays_open() {
    let (store, _holder) = churned().await;
    let (claimed, queues, whole) = claim_some(&store, Queues::default(), SPAN_SECONDS + 5).await;
    assert_eq!(sorted_names(&claimed), [("e1", "w"), ("e2", "w")]);
    assert!(whole > 2 * MAX_BLOCKS, "{whole} blocks: the test shows nothing");
    let (claimed, queues, blocks) = claim_some(&store, queues, SPAN_SECONDS + 6).await;
    assert!(claimed.is_empty() && blocks < MAX_BLOCKS, "{blocks} blocks for nothing");
    let new = Publish { due_at: at(SPAN_SECONDS + 6), ..publish(vec![event("e3")]) };
    commit_publish(&*store, new).await;
    let (claimed, queues, blocks) = claim_some(&store, queues, SPAN_SECONDS + 7).await;
    assert_eq!(names(&claimed), [("e3", "w")]);
    assert!(blocks < MAX_BLOCKS, "{blocks} blocks for one");
    // What is made due far in the past is found by a look at everything, and so is what hung.
    commit_publish(&*store, publish(vec![event("e4")])).await;
    let (claimed, _, _) = claim_some(&store, queues, SPAN_SECONDS + 65).await;
    assert!(names(&claimed).contains(&("e4", "w")), "{claimed:?}");
}

#[tokio::test]
async fn case13_a_claim_of_lanes_reads_no_more_under_a_transaction_that_stays_open() {
    let (store, _holder) = churned().await;
    let claim = async |looks: LaneLooks, seconds| {
        let claim = LaneClaim { until: at(seconds + 1), ..lane_claim("a", seconds) };
        let claimed = store.db.write((claim, looks, None::<i64>), |transaction, asked| {
            Box::pin(async move {
                let before = blocks(transaction).await?;
                let (claims, looks) = lanes::due::claim(transaction, asked).await?;
                Ok((claims.lanes.len(), looks, blocks(transaction).await? - before))
            })
        });
        claimed.await.unwrap()
    };
    let (_, looks, whole) = claim(LaneLooks::default(), SPAN_SECONDS + 5).await;
    assert!(whole > 2 * MAX_BLOCKS, "{whole} blocks: the test shows nothing");
    let (_, looks, blocks) = claim(looks, SPAN_SECONDS + 6).await;
    assert!(blocks < MAX_BLOCKS, "{blocks} blocks for nothing");
    record(&*store, vec![NewRow { due_at: at(SPAN_SECONDS + 6), ..row("d", "k", 1) }]).await;
    let (taken, looks, blocks) = claim(looks, SPAN_SECONDS + 7).await;
    assert_eq!(taken, 1);
    assert!(blocks < MAX_BLOCKS, "{blocks} blocks for one");
    record(&*store, vec![row("e", "l", 1)]).await;
    let (taken, ..) = claim(looks, SPAN_SECONDS + 65).await;
    assert_eq!(taken, 2, "what is made due far in the past is found at last, beside the lease that has ended");
}

#[tokio::test]
async fn case13_a_writer_goes_to_another_line_before_its_own_is_long() {
    let store = make().await;
    let client = store.database.client().await;
    let line = async || -> (i64, i64) {
        let row =
            client.query_one("SELECT writer, number FROM commits ORDER BY number DESC LIMIT 1", &[]).await.unwrap();
        (row.get(0), row.get(1))
    };
    store.ping().await.unwrap();
    let (first, _) = line().await;
    for _ in 0..database::LINE_TRANSACTIONS {
        store.ping().await.unwrap();
    }
    let (last, number) = line().await;
    assert_ne!(first, last, "after {number} transactions");
    let lines: i64 = client.query_one("SELECT COUNT(*) FROM commits", &[]).await.unwrap().get(0);
    assert_eq!(lines, 4, "as many as there are writers");
}
