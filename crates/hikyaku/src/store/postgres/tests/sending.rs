//! The sending side on two nodes at the same time, and what a claim costs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use hikyaku_core::delivery::{Decision, DeliveryState};
use hikyaku_core::webhook::{Settings, WhileInactive};
use serde_json::Value;
use tokio_postgres::SimpleQueryMessage;

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::conformance::recovery::step_of;
use crate::store::{FinishOutcome, NewEvent, Publish, PublishOutcome};

/// Two nodes on one database.
async fn two() -> (Fresh, PostgresStore) {
    let first = make().await;
    let second = open(&first.database).await;
    (first, second)
}

fn ids(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

async fn store_ids(store: &PostgresStore, ids: &[String]) {
    store_events(store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn case5_many_publishes_of_one_id_on_two_nodes_are_one_event() {
    let (a, b) = two().await;
    create(&*a, &["w"]).await;
    let publishes = (0..64).map(|number| {
        let node: &PostgresStore = if number % 2 == 0 { &a } else { &b };
        // Some take several ids, so that whoever takes them in another order would wait for ever.
        let ids: &[&str] = [&["e"] as &[_], &["d", "e"], &["e", "d"]][number % 3];
        async move { store_events(node, ids).await }
    });
    // In fours, which is as much as a node's pool has.
    let mut first = Vec::new();
    let publishes: Vec<_> = publishes.collect();
    let mut publishes = publishes.into_iter();
    while let (Some(a), Some(b), Some(c), Some(d)) =
        (publishes.next(), publishes.next(), publishes.next(), publishes.next())
    {
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        let stored = [a, b, c, d].into_iter().flatten();
        first.extend(stored.filter(|event| !event.repeated).map(|event| event.id.to_string()));
    }
    first.sort();
    assert_eq!(first, ["d", "e"]);
    assert_eq!(sorted_names(&claim(&b, "b", 0).await), [("d", "w"), ("e", "w")]);
}

#[tokio::test]
async fn an_id_that_only_a_conflicting_publish_wanted_is_given_back() {
    let store = make().await;
    create(&*store, &["w"]).await;
    store_events(&*store, &["taken"]).await;
    let next_day = at(24 * 60 * 60);
    let other = NewEvent { content_hash: [2; 32], ..event("taken") };
    let both = [
        publish(vec![event("again"), event("never"), other]),
        publish(vec![NewEvent { created_at: next_day, ..event("again") }]),
    ];
    let group = Group { publish: both.into(), ..Group::default() };
    let answers = store.commit(group).await.unwrap().publish;
    let [PublishOutcome::Conflict(_), PublishOutcome::Stored(stored)] = &answers[..] else { panic!("{answers:?}") };
    assert!(!stored[0].repeated);
    let kept = store.event(&acme(), &event_id("again")).await.unwrap().unwrap();
    assert_eq!((kept.created_at, kept.deliveries.len()), (next_day, 1));
    assert!(!store_events(&*store, &["never"]).await[0].repeated);
}

#[tokio::test]
async fn of_two_finishes_of_one_attempt_in_a_group_the_first_counts() {
    let store = make().await;
    create(&*store, &["v", "w"]).await;
    store_events(&*store, &["e"]).await;
    let claimed = claim(&*store, "a", 0).await;
    let finish = |number: usize, decision| finish_of(&claimed[number], "a", 0, ERROR, decision);
    let group = [finish(0, retry(60)), finish(1, retry(70)), finish(0, SWITCH_OFF), finish(0, retry(80))];
    let group = Group { finish_attempts: group.into(), ..Group::default() };
    let outcomes = store.commit(group).await.unwrap().finish_attempts;
    assert_eq!(outcomes, [APPLIED, APPLIED, FinishOutcome::LeaseLost, FinishOutcome::LeaseLost]);
    let shown = view(&*store, "e", claimed[0].key.webhook.as_str()).await;
    assert_eq!((shown.next_attempt_at, shown.attempts.len()), (Some(at(60)), 1));
}

#[tokio::test]
async fn case6_two_nodes_that_claim_at_the_same_time_share_nothing_and_leave_nothing() {
    let (a, b) = two().await;
    create(&*a, &["w1", "w2", "w3", "w4"]).await;
    store_ids(&a, &ids("e", 60)).await;
    let work_off = async |store: &PostgresStore, owner| {
        let (mut taken, mut after) = (Vec::new(), None);
        loop {
            let claim = DeliveryClaim { slots_each: 5, limit: 7, after, ..claim_of(owner, 0) };
            let claims = store.claim_deliveries(claim).await.unwrap();
            if claims.deliveries.is_empty() {
                return taken;
            }
            after = claims.stopped_at;
            for claimed in claims.deliveries {
                assert_eq!(finish(store, &claimed, owner, 0, OK, Decision::Delivered).await, APPLIED);
                taken.push(claimed.key);
            }
        }
    };
    let (mut keys, by_b) = tokio::join!(work_off(&a, "a"), work_off(&b, "b"));
    keys.extend(by_b);
    assert_eq!(keys.len(), 240);
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), 240, "a delivery was leased twice");
    assert_eq!(a.backlog().await.unwrap().deliveries, 0);
}

#[tokio::test]
async fn what_is_published_while_another_node_switches_a_webhook_is_never_held_for_ever() {
    let (a, b) = two().await;
    let settings = Settings { while_inactive: WhileInactive::Hold, ..Settings::default() };
    a.create_webhook(Webhook { settings, ..webhook("w") }).await.unwrap();
    let switched = AtomicBool::new(false);
    let publish = async {
        let mut published = 0;
        while !switched.load(Ordering::Relaxed) {
            store_ids(&a, &ids(&format!("e{published}-"), 2)).await;
            published += 2;
        }
        published
    };
    let switch = async {
        for second in 0..100 {
            set_active(&b, "w", false, second).await;
            set_active(&b, "w", true, second).await;
        }
        switched.store(true, Ordering::Relaxed);
    };
    let step = async {
        while !switched.load(Ordering::Relaxed) {
            b.step_recoveries(step_of(1, 100_000)).await.unwrap();
        }
    };
    let (published, (), ()) = tokio::join!(publish, switch, step);
    while b.step_recoveries(step_of(1, 100_000)).await.unwrap().running > 0 {}
    let backlog = a.backlog().await.unwrap();
    assert!(published > 0);
    assert_eq!((backlog.deliveries, backlog.deliveries_held), (published, 0));
}

#[tokio::test]
async fn what_is_published_while_another_node_deletes_a_webhook_is_not_left_waiting() {
    let (a, b) = two().await;
    for round in 0..30 {
        let name = format!("w{round}");
        create(&*a, &[name.as_str()]).await;
        let events = ids(&format!("e{round}-"), 3);
        let (webhook, organization) = (webhook_id(&name), acme());
        let deletion = b.delete_webhook(&organization, &webhook, at(1));
        let ((), deleted) = tokio::join!(store_ids(&a, &events), deletion);
        assert!(deleted.unwrap().is_some());
        assert!(claim(&*a, "a", 5).await.is_empty(), "a webhook that is gone");
        while b.step_removals(100).await.unwrap().is_some() {}
        for event in &events {
            let shown = a.event(&organization, &event_id(event)).await.unwrap().unwrap();
            assert!(shown.deliveries.iter().all(|delivery| delivery.state == DeliveryState::Cancelled), "{shown:?}");
        }
        assert_eq!(a.backlog().await.unwrap().deliveries, 0, "round {round}");
    }
}

/// How many rows the steps of a statement's plan have given, as it runs.
fn rows_given(plan: &Value) -> f64 {
    let own = plan["Actual Rows"].as_f64().unwrap() * plan["Actual Loops"].as_f64().unwrap();
    let removed = plan["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
    own + removed + plan["Plans"].as_array().into_iter().flatten().map(rows_given).sum::<f64>()
}

#[tokio::test]
async fn a_claim_of_nothing_writes_nothing_and_reads_next_to_nothing() {
    let store = make().await;
    create(&*store, &["w"]).await;
    let later: Vec<_> = ids("e", 3_000).iter().map(|id| event(id)).collect();
    commit_publish(&*store, Publish { due_at: at(100), ..publish(later) }).await;
    let client = store.database.client().await;
    let writes =
        async || -> i64 { client.query_one("SELECT SUM(number)::BIGINT FROM commits", &[]).await.unwrap().get(0) };
    client.batch_execute("ANALYZE").await.unwrap();
    let before = writes().await;
    let claims = store.claim_deliveries(claim_of("a", 50)).await.unwrap();
    assert_eq!((claims.deliveries.len(), claims.next_due), (0, Some(at(100))));
    assert_eq!(writes().await, before);
    let (now, soon) = (columns::millis(at(50)).to_string(), columns::millis(at(200)).to_string());
    for sql in [claim::queues::RECENT, claim::queues::WALK, claim::queues::LATER] {
        let (first, second) = if sql == claim::queues::RECENT { ("0", &now) } else { (&*now, &soon) };
        let sql = sql.replace("$1", first).replace("$2", second);
        let shown = client.simple_query(&format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}")).await.unwrap();
        let shown = shown.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan: Value = serde_json::from_str(shown.unwrap()).unwrap();
        assert!(rows_given(&plan[0]["Plan"]) < 1_000.0, "{plan:#}");
    }
}
