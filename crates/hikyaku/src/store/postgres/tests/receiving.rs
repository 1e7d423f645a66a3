//! Nodes that share an inbox: what they do at the same moment is as if one had done it after the other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;

use super::*;
use crate::store::conformance::fixture::*;
use crate::store::*;

use EffectState::{Dead, Done};

/// How often a race is tried.
const ROUNDS: usize = 25;
const DAY_SECONDS: i64 = 24 * 3600;

async fn two_nodes() -> (Fresh, PostgresStore) {
    let fresh = make().await;
    let other = open(&fresh.database).await;
    (fresh, other)
}

async fn count(fresh: &Fresh, from: &str) -> i64 {
    fresh.database.client().await.query_one(&format!("SELECT COUNT(*) FROM {from}"), &[]).await.unwrap().get(0)
}

/// Work that nobody would ever take, and lanes that would be taken for nothing.
async fn stuck(fresh: &Fresh) -> (i64, i64) {
    let work = "work w WHERE NOT EXISTS (SELECT FROM lanes l WHERE (l.organization, l.route, l.provider, l.lane)
        = (w.organization, w.route, w.provider, w.lane))";
    let lanes = "lanes l WHERE NOT EXISTS (SELECT FROM work w WHERE (l.organization, l.route, l.provider, l.lane)
        = (w.organization, w.route, w.provider, w.lane))";
    (count(fresh, work).await, count(fresh, lanes).await)
}

/// Whoever has inserted into a table waits before going on, with all locks, until the gate is opened.
struct Gate {
    keeper: tokio_postgres::Client,
}

impl Gate {
    async fn close(fresh: &Fresh, table: &str) -> Self {
        let keeper = fresh.database.client().await;
        let sql = format!(
            "CREATE TABLE gate (id BIGINT); INSERT INTO gate VALUES (1);
             CREATE FUNCTION pass() RETURNS TRIGGER LANGUAGE plpgsql
                 AS 'BEGIN PERFORM FROM gate FOR SHARE; RETURN NULL; END';
             CREATE TRIGGER pass AFTER INSERT ON {table} FOR EACH STATEMENT EXECUTE FUNCTION pass();"
        );
        keeper.batch_execute(&sql).await.unwrap();
        // On its own: the table is not to be locked by the change above.
        keeper.batch_execute("BEGIN; SELECT FROM gate FOR UPDATE").await.unwrap();
        Self { keeper }
    }

    /// Waits until so many wait for somebody's lock, or `is_over`.
    async fn waiting(&self, many: i64, is_over: &AtomicBool) {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while !is_over.load(Ordering::SeqCst) {
            if self.keeper.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) >= many {
                return;
            }
            // What is seen of others stays the same within a transaction, unless it is asked for anew.
            self.keeper.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        }
    }

    /// Runs `first` up to the gate, then `second` until it waits or is done, and then opens the gate for both.
    async fn pass<A, B>(self, first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
        let is_done = AtomicBool::new(false);
        let second = async {
            self.waiting(1, &AtomicBool::new(false)).await;
            let answer = second.await;
            is_done.store(true, Ordering::SeqCst);
            answer
        };
        let open = async {
            self.waiting(2, &is_done).await;
            self.keeper.batch_execute("COMMIT").await.unwrap();
        };
        let (first, second, ()) = tokio::join!(first, second, open);
        (first, second)
    }
}

fn both_routes(id: &str) -> NewRow {
    NewRow { routes: vec!["books".into(), "chat".into()], ..row(id, id, 1) }
}

async fn claim_of_route(store: &dyn Store, owner: &str, route: &str) -> ClaimedLane {
    let claim = LaneClaim { slots: vec![(acme(), route.into(), 9)], ..lane_claim(owner, 0) };
    store.claim_lanes(claim).await.unwrap().lanes.remove(0)
}

fn intervention(delivery: &str, act: Act, seconds: i64) -> Vec<Intervention> {
    let (organization, provider) = (acme(), "receiptroller".to_owned());
    vec![Intervention { organization, provider, delivery: delivery.into(), act, at: at(seconds), now: at(seconds) }]
}

#[tokio::test]
async fn c6_an_id_that_comes_to_two_nodes_at_once_is_stored_once() {
    let (fresh, other) = two_nodes().await;
    for round in 0..ROUNDS {
        let rows = |take: fn(usize) -> usize| (0..8).map(|n| row(&format!("{round}-{}", take(n)), "k", 1)).collect();
        // In opposite orders, so that neither comes first everywhere.
        let (here, there) = tokio::join!(record(&*fresh, rows(|n| n)), record(&other, rows(|n| 7 - n)));
        let stored = |outcomes: &[RecordOutcome], n: usize| outcomes[n] == RecordOutcome::Stored;
        assert!((0..8).all(|n| stored(&here, n) != stored(&there, 7 - n)), "{here:?} {there:?}");
    }
    let rows = i64::try_from(8 * ROUNDS).unwrap();
    assert_eq!((count(&fresh, "inbox_rows").await, count(&fresh, "inbox_bodies").await), (rows, rows));
    assert_eq!((count(&fresh, "work").await, stuck(&fresh).await), (rows, (0, 0)));
}

/// What the workers of the test below share.
#[derive(Default)]
struct Shared {
    recorded: AtomicUsize,
    held: Mutex<BTreeSet<LaneKey>>,
    ended: Mutex<BTreeSet<String>>,
}

const KEYS: [&str; 3] = ["a", "b", "c"];

async fn record_many(store: &dyn Store, name: &str, shared: &Shared) {
    for n in 0..ROUNDS {
        let rows = KEYS.iter().take(1 + n % KEYS.len()).map(|key| row(&format!("{name}-{n}-{key}"), key, 1));
        record(store, rows.collect()).await;
    }
    shared.recorded.fetch_add(1, Ordering::SeqCst);
}

/// Takes lanes and ends what they hold, all lanes in one group, until both have recorded and nothing is left.
async fn work_off(store: &dyn Store, owner: &str, shared: &Shared) {
    loop {
        let is_last = shared.recorded.load(Ordering::SeqCst) == 2;
        let lanes = claim_lanes(store, owner, 0).await;
        if lanes.is_empty() && is_last && shared.held.lock().unwrap().is_empty() {
            return;
        }
        let mut group = Group::default();
        for lane in &lanes {
            assert!(shared.held.lock().unwrap().insert(lane.key.clone()), "two hold {:?}", lane.key);
            let ids = deliveries(lane).into_iter().map(|id| ended(id, Done));
            group.finish_lanes.push(finish_lane_of(lane, owner, 0, ids.collect()));
            for id in deliveries(lane) {
                assert!(shared.ended.lock().unwrap().insert(id.to_owned()), "{id} is ended twice");
            }
        }
        for lane in &lanes {
            shared.held.lock().unwrap().remove(&lane.key);
        }
        let outcomes = store.commit(group).await.unwrap().finish_lanes;
        assert!(outcomes.iter().all(|outcome| *outcome == APPLIED));
    }
}

#[tokio::test]
async fn c15_nothing_is_lost_between_those_who_add_to_lanes_and_those_who_empty_them() {
    let (fresh, other) = two_nodes().await;
    let shared = Shared::default();
    tokio::join!(
        record_many(&*fresh, "here", &shared),
        record_many(&other, "there", &shared),
        work_off(&*fresh, "a", &shared),
        work_off(&other, "b", &shared),
    );
    assert_eq!(stuck(&fresh).await, (0, 0));
    // What was recorded between the last look and the end is still there, for whoever looks next.
    work_off(&*fresh, "a", &shared).await;
    let rows = count(&fresh, "inbox_rows").await;
    assert_eq!(shared.ended.lock().unwrap().len(), usize::try_from(rows).unwrap());
    assert_eq!(count(&fresh, "inbox_rows WHERE state = 'done'").await, rows);
    assert_eq!((count(&fresh, "work").await, count(&fresh, "lanes").await), (0, 0));
}

#[tokio::test]
async fn c15_a_lane_that_is_added_to_at_its_end_stays() {
    let (fresh, other) = two_nodes().await;
    record(&*fresh, vec![row("d1", "k", 1)]).await;
    let lane = claim_lane(&other, "b", 0).await;
    let finish = finish_lane_of(&lane, "b", 0, vec![ended("d1", Done)]);
    let gate = Gate::close(&fresh, "work").await;
    let (_, finished) = gate.pass(record(&*fresh, vec![row("d2", "k", 2)]), commit_lane(&other, finish)).await;
    assert_eq!((finished, stuck(&fresh).await), (APPLIED, (0, 0)));
    assert_eq!(deliveries(&claim_lane(&other, "b", 0).await), ["d2"]);
}

#[tokio::test]
async fn a_claim_of_no_lane_writes_nothing() {
    let store = make().await;
    record(&*store, vec![NewRow { due_at: at(100), ..row("d", "k", 1) }]).await;
    let writes = async || -> i64 {
        let client = store.database.client().await;
        client.query_one("SELECT SUM(number)::BIGINT FROM commits", &[]).await.unwrap().get(0)
    };
    let before = writes().await;
    let claims = store.claim_lanes(lane_claim("a", 50)).await.unwrap();
    assert_eq!((claims.lanes.len(), claims.next_due), (0, Some(at(100))));
    assert_eq!(writes().await, before);
}

#[tokio::test]
async fn case6_two_nodes_that_claim_at_once_share_no_lane() {
    let (fresh, other) = two_nodes().await;
    let ids: Vec<_> = (0..40).map(|n| format!("d{n}")).collect();
    record(&*fresh, ids.iter().map(|id| row(id, id, 1)).collect()).await;
    let some = |owner| LaneClaim { slots: vec![(acme(), "books".into(), 25)], ..lane_claim(owner, 0) };
    let (here, there) = tokio::join!(fresh.claim_lanes(some("a")), other.claim_lanes(some("b")));
    let (here, there) = (here.unwrap(), there.unwrap());
    let rest = claim_lanes(&*fresh, "a", 0).await;
    let all = [here.lanes, there.lanes, rest].concat();
    let tokens: BTreeSet<_> = all.iter().map(|lane| lane.claim).collect();
    let names: BTreeSet<_> = lane_names(&all).into_iter().collect();
    assert_eq!((all.len(), names.len(), tokens.len()), (40, 40, 40));
}

#[tokio::test]
async fn a_lane_that_somebody_holds_for_a_moment_is_looked_for_again_soon() {
    let fresh = make().await;
    record(&*fresh, vec![row("d", "k", 1)]).await;
    let somebody = fresh.database.client().await;
    somebody.batch_execute("BEGIN; SELECT FROM lanes FOR UPDATE").await.unwrap();
    let claims = fresh.claim_lanes(lane_claim("a", 0)).await.unwrap();
    assert!(claims.lanes.is_empty());
    assert!(claims.next_due.is_some_and(|due| due > at(0) && due < at(1)), "{:?}", claims.next_due);
    let full = LaneClaim { slots: vec![(acme(), "books".into(), 0)], ..lane_claim("a", 0) };
    assert_eq!(fresh.claim_lanes(full).await.unwrap().next_due, None, "who has no room does not look");
    somebody.batch_execute("COMMIT").await.unwrap();
    assert_eq!(deliveries(&claim_lane(&*fresh, "a", 0).await), ["d"]);
}

#[tokio::test]
async fn a_row_whose_effects_end_on_two_nodes_at_once_has_ended() {
    let (fresh, other) = two_nodes().await;
    for round in 0..ROUNDS {
        let id = round.to_string();
        record(&*fresh, vec![both_routes(&id)]).await;
        let books = claim_of_route(&*fresh, "a", "books").await;
        let chat = claim_of_route(&other, "b", "chat").await;
        tokio::join!(
            commit_lane(&*fresh, finish_lane_of(&books, "a", 1, vec![ended(&id, Done)])),
            commit_lane(&other, finish_lane_of(&chat, "b", 1, vec![ended(&id, Dead)])),
        );
        assert_eq!(detail(&*fresh, &id).await.row.state, RowState::Dead);
    }
}

#[tokio::test]
async fn case21_a_replay_moves_a_row_to_its_day_while_its_other_effect_ends() {
    let (fresh, other) = two_nodes().await;
    for round in 0..ROUNDS {
        let id = round.to_string();
        record(&*fresh, vec![both_routes(&id)]).await;
        let books = claim_of_route(&*fresh, "a", "books").await;
        commit_lane(&*fresh, finish_lane_of(&books, "a", 0, vec![ended(&id, Dead)])).await;
        let chat = claim_of_route(&other, "b", "chat").await;
        let replay = Act::Replay { effects: vec![("books".to_owned(), Dead)] };
        let (replayed, finished) = tokio::join!(
            fresh.intervene(intervention(&id, replay, DAY_SECONDS)),
            commit_lane(&other, finish_lane_of(&chat, "b", 1, vec![ended(&id, Done)])),
        );
        assert_eq!((replayed.unwrap(), finished), (vec![Intervened::Done], APPLIED));
        let shown = detail(&*fresh, &id).await;
        let states: Vec<_> = shown.effects.iter().map(|effect| effect.state).collect();
        assert_eq!((shown.row.state, states), (RowState::Waiting, vec![EffectState::Waiting, Done]));
        let again = claim_lanes(&*fresh, "a", DAY_SECONDS).await.remove(0);
        assert_eq!((deliveries(&again), again.rows[0].due_since), (vec![&*id], at(DAY_SECONDS)));
        assert_eq!(again.rows[0].body, row(&id, &id, 1).body);
        commit_lane(&*fresh, finish_lane_of(&again, "a", DAY_SECONDS, vec![ended(&id, Done)])).await;
        assert_eq!(detail(&*fresh, &id).await.row.state, RowState::Done);
    }
    for table in ["inbox_rows", "inbox_bodies", "effects"] {
        let old = format!("{table} WHERE due_since < {}", millis_of(DAY_SECONDS));
        assert_eq!(count(&fresh, &old).await, 0, "{table}: nothing is left on the old day");
    }
}

fn millis_of(seconds: i64) -> i64 {
    at(seconds).as_millisecond()
}

#[tokio::test]
async fn a_discard_and_a_claim_at_once_never_both_have_the_row() {
    let (fresh, other) = two_nodes().await;
    for round in 0..ROUNDS {
        let id = round.to_string();
        record(&*fresh, vec![row(&id, &id, 1)]).await;
        let discard = Act::Discard { route: None, reason: "a test sale".into() };
        let (discarded, lanes) =
            tokio::join!(fresh.intervene(intervention(&id, discard, 0)), claim_lanes(&other, "b", 0));
        match discarded.unwrap()[..] {
            [Intervened::Done] => assert!(lanes.is_empty(), "{lanes:?}"),
            [Intervened::UnderWay] => {
                assert_eq!(
                    commit_lane(&other, finish_lane_of(&lanes[0], "b", 1, vec![ended(&id, Done)])).await,
                    APPLIED
                );
            }
            ref other => panic!("{other:?}"),
        }
        assert_eq!(stuck(&fresh).await, (0, 0));
    }
}

#[tokio::test]
async fn t2_the_quarantine_is_bounded_over_all_nodes() {
    let (fresh, other) = two_nodes().await;
    let suspect = |id: &str| {
        let row = NewRow { routes: vec![], ..row(id, "", 1) };
        Quarantined { row, headers: Bytes::new(), max_rows: 1, max_bytes: 1000 }
    };
    let gate = Gate::close(&fresh, "quarantine").await;
    let (here, there) = gate.pass(fresh.quarantine(suspect("here")), other.quarantine(suspect("there"))).await;
    assert_eq!((here.unwrap(), there.unwrap()), (QuarantineOutcome::Kept, QuarantineOutcome::Full));
}
