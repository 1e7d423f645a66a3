//! What a person does about rows that have ended, are parked or are quarantined, also while others work on them.

use bytes::Bytes;

use super::fixture::*;
use crate::store::*;

use EffectState::{Dead, Discarded, Done, Stale, Waiting};
use Intervened::{Duplicate, NoSuchRow, StillParked, UnderWay, Unfit};

async fn intervene(store: &dyn Store, delivery: &str, act: Act, seconds: i64) -> Intervened {
    let (organization, provider) = (acme(), "receiptroller".to_owned());
    let (at, now) = (at(seconds), at(seconds));
    let asked = Intervention { organization, provider, delivery: delivery.into(), act, at, now };
    store.intervene(vec![asked]).await.unwrap()[0]
}

fn replay(effects: &[(&str, EffectState)]) -> Act {
    Act::Replay { effects: effects.iter().map(|(route, state)| ((*route).to_owned(), *state)).collect() }
}

fn release(routes: &[&str], park_reason: &str) -> Act {
    let routes = routes.iter().map(|route| (*route).to_owned()).collect();
    Act::Release { routes, park_reason: park_reason.into() }
}

fn discard(route: Option<&str>) -> Act {
    Act::Discard { route: route.map(str::to_owned), reason: "a test\0sale".into() }
}

fn parked(delivery: &str, reason: &str) -> NewRow {
    NewRow { routes: Vec::new(), park_reason: reason.into(), ..row(delivery, "k", 1) }
}

/// Claims the one lane that is due and ends its rows like this.
async fn end(store: &dyn Store, seconds: i64, rows: &[(&str, EffectState)]) {
    let lane = claim_lane(store, "a", seconds).await;
    let ended = rows.iter().map(|(delivery, state)| ended(delivery, *state)).collect();
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", seconds, ended)).await, APPLIED);
}

async fn state(store: &dyn Store, delivery: &str) -> (RowState, String) {
    let row = detail(store, delivery).await.row;
    (row.state, row.reason)
}

/// The states of a row's effects, by route.
async fn effects(store: &dyn Store, delivery: &str) -> Vec<EffectState> {
    detail(store, delivery).await.effects.iter().map(|effect| effect.state).collect()
}

pub(crate) async fn case21_a_replayed_row_begins_anew_whatever_it_ended_as(store: &dyn Store) {
    for (number, ended_as) in [Dead, Done, Stale, Discarded].into_iter().enumerate() {
        let (id, seconds) = (format!("d{number}"), number as i64 * 100);
        record(store, vec![row(&id, "k", 1)]).await;
        let lane = claim_lane(store, "a", seconds).await;
        let failed = RetryRow { delivery: id.clone(), failures: 7, error: "no".into(), due_at: at(seconds + 1) };
        let failed = FinishLane { retry: Some(failed), ..finish_lane_of(&lane, "a", seconds, vec![]) };
        commit_lane(store, failed).await;
        end(store, seconds + 1, &[(&id, ended_as)]).await;

        assert_eq!(
            intervene(store, &id, replay(&[("books", ended_as)]), seconds + 50).await,
            Intervened::Done,
            "{ended_as:?}"
        );
        assert_eq!(state(store, &id).await, (RowState::Waiting, String::new()));
        let lane = claim_lane(store, "a", seconds + 50).await;
        let again = &lane.rows[0];
        // The time to give it up counts from the replay, and so do its failures.
        assert_eq!((again.failures, again.due_since, again.received_at), (0, at(seconds + 50), at(1)));
        assert_eq!((&again.body, &again.version), (&row(&id, "k", 1).body, &row(&id, "k", 1).version));
        commit_lane(store, finish_lane_of(&lane, "a", seconds + 50, vec![ended(&id, Done)])).await;
        let shown = detail(store, &id).await;
        assert_eq!((shown.row.state, shown.effects.len(), shown.effects[0].failures), (RowState::Done, 1, 0));
    }
}

pub(crate) async fn a_replay_is_of_the_routes_that_were_named(store: &dyn Store) {
    let routes = vec!["books".to_owned(), "chat".to_owned()];
    record(store, vec![NewRow { routes, ..row("d", "k", 1) }]).await;
    assert_eq!(intervene(store, "d", replay(&[("books", Dead)]), 1).await, Unfit(RowState::Waiting));
    end(store, 0, &[("d", Dead)]).await;
    // The other route's effect has not ended: it goes on as it was.
    assert_eq!(intervene(store, "d", replay(&[("chat", Waiting)]), 1).await, Unfit(RowState::Waiting));
    assert_eq!(intervene(store, "d", replay(&[("books", Done), ("gone", Dead)]), 1).await, Unfit(RowState::Waiting));
    assert_eq!(intervene(store, "d", replay(&[("books", Dead), ("chat", Waiting)]), 1).await, Intervened::Done);
    assert_eq!(effects(store, "d").await, [Waiting, Waiting]);
    assert_eq!(store.backlog().await.unwrap().effects, 2, "none of them twice");
    assert_eq!(intervene(store, "nothing", replay(&[("books", Dead)]), 1).await, NoSuchRow);
}

pub(crate) async fn a_replay_into_a_leased_lane_waits_for_its_turn(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    end(store, 0, &[("d1", Dead)]).await;
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(deliveries(&lane), ["d2"]);
    assert_eq!(intervene(store, "d1", replay(&[("books", Dead)]), 1).await, Intervened::Done);
    assert!(claim_lanes(store, "b", 1).await.is_empty(), "one at a time of a key");
    // Whoever holds the lane knows nothing of the row, and cannot end it.
    let both = vec![ended("d2", Done)];
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", 2, both)).await, APPLIED);
    assert_eq!(deliveries(&claim_lane(store, "b", 2).await), ["d1"]);
}

pub(crate) async fn a_replay_into_a_lane_that_backs_off_keeps_its_order(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1)]).await;
    end(store, 0, &[("d1", Dead)]).await;
    record(store, vec![row("d2", "k", 2)]).await;
    let lane = claim_lane(store, "a", 0).await;
    let retry = Some(RetryRow { delivery: "d2".into(), failures: 1, error: "no".into(), due_at: at(50) });
    commit_lane(store, FinishLane { retry, ..finish_lane_of(&lane, "a", 1, vec![]) }).await;
    assert_eq!(intervene(store, "d1", replay(&[("books", Dead)]), 2).await, Intervened::Done);
    assert!(claim_lanes(store, "a", 49).await.is_empty());
    assert_eq!(deliveries(&claim_lane(store, "a", 50).await), ["d1", "d2"]);
}

pub(crate) async fn t6_a_parked_row_is_released_to_the_routes_of_today(store: &dyn Store) {
    record(store, vec![parked("d", "no route takes it"), row("other", "k2", 1)]).await;
    assert_eq!(intervene(store, "d", release(&[], "still none"), 5).await, StillParked);
    assert_eq!(state(store, "d").await, (RowState::Parked, "still none".to_owned()));
    assert_eq!(intervene(store, "other", release(&["books"], ""), 5).await, Unfit(RowState::Waiting));
    assert_eq!(intervene(store, "d", release(&["books", "chat"], ""), 5).await, Intervened::Done);
    assert_eq!(state(store, "d").await, (RowState::Waiting, String::new()));
    assert_eq!(effects(store, "d").await, [Waiting, Waiting]);
    assert_eq!(intervene(store, "d", release(&["books"], ""), 6).await, Unfit(RowState::Waiting), "once");
    let lanes = claim_lanes(store, "a", 5).await;
    let released = lanes.iter().find(|lane| lane.key.lane == "k:k").unwrap();
    assert_eq!((released.rows[0].due_since, released.rows[0].failures), (at(5), 0));
}

pub(crate) async fn a_discard_ends_what_is_dead_or_waits_and_nothing_else(store: &dyn Store) {
    let both = |id: &str| NewRow { routes: vec!["books".into(), "chat".into()], ..row(id, id, 1) };
    record(store, vec![both("d"), row("done", "done", 1), parked("parked", "why")]).await;
    let lanes = claim_lanes(store, "a", 0).await;
    for lane in lanes {
        let (id, how) = (lane.rows[0].delivery.clone(), if lane.key.lane == "k:d" { Dead } else { Done });
        commit_lane(store, finish_lane_of(&lane, "a", 0, vec![ended(&id, how)])).await;
    }
    assert_eq!(intervene(store, "done", discard(None), 3).await, Unfit(RowState::Done));
    assert_eq!(intervene(store, "d", discard(Some("gone")), 3).await, Unfit(RowState::Waiting));
    assert_eq!(intervene(store, "d", discard(Some("books")), 3).await, Intervened::Done);
    assert_eq!(effects(store, "d").await, [Discarded, Waiting]);
    assert_eq!(state(store, "d").await.0, RowState::Waiting);
    assert_eq!(intervene(store, "d", discard(None), 4).await, Intervened::Done);
    let shown = detail(store, "d").await;
    assert_eq!(shown.row.state, RowState::Discarded);
    let of_effects: Vec<_> = shown.effects.iter().map(|effect| (effect.detail.as_str(), effect.ended_at)).collect();
    assert_eq!(of_effects, [("a test\0sale", Some(at(3))), ("a test\0sale", Some(at(4)))]);
    assert_eq!(store.backlog().await.unwrap().effects, 0, "its lane is gone with it");

    assert_eq!(intervene(store, "parked", discard(Some("books")), 5).await, Unfit(RowState::Parked));
    assert_eq!(intervene(store, "parked", discard(None), 5).await, Intervened::Done);
    assert_eq!(state(store, "parked").await, (RowState::Discarded, "a test\0sale".to_owned()));
    assert_eq!(intervene(store, "parked", discard(None), 6).await, Unfit(RowState::Discarded));
    assert_eq!(intervene(store, "parked", release(&["books"], ""), 6).await, Unfit(RowState::Discarded));
}

pub(crate) async fn a_discard_waits_for_whoever_may_be_making_it_take_effect(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(intervene(store, "d1", discard(None), LEASE_SECONDS - 1).await, UnderWay);
    assert_eq!(effects(store, "d1").await, [Waiting]);
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", 1, vec![ended("d1", Done)])).await, APPLIED);
    assert_eq!(intervene(store, "d2", discard(None), 2).await, Intervened::Done, "the lease is given back");
    assert_eq!((state(store, "d1").await.0, state(store, "d2").await.0), (RowState::Done, RowState::Discarded));
}

/// Claims the first `rows_each` rows of the one lane that is due.
async fn claim_first(store: &dyn Store, owner: &str, rows_each: u32) -> ClaimedLane {
    let claim = LaneClaim { rows_each, ..lane_claim(owner, 0) };
    store.claim_lanes(claim).await.unwrap().lanes.remove(0)
}

pub(crate) async fn what_waits_behind_the_rows_that_were_taken_can_be_discarded(store: &dyn Store) {
    let rows = ["d1", "d2", "d3", "d4"].iter().zip(1..).map(|(id, n)| row(id, "k", n));
    record(store, rows.collect()).await;
    for (most, under_way) in [(1, ["d1"].as_slice()), (2, &["d1", "d2"]), (32, &["d1", "d2", "d4"])] {
        let lane = claim_first(store, "a", most).await;
        assert_eq!(deliveries(&lane), under_way);
        for delivery in under_way {
            assert_eq!(intervene(store, delivery, discard(None), 1).await, UnderWay, "{delivery} of {most}");
        }
        if most == 2 {
            assert_eq!(intervene(store, "d3", discard(None), 1).await, Intervened::Done);
            assert_eq!(state(store, "d3").await.0, RowState::Discarded);
            assert!(claim_lanes(store, "b", LEASE_SECONDS - 1).await.is_empty(), "the lease stays whose it was");
        }
        assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", 0, vec![])).await, APPLIED);
    }
    let lane = claim_first(store, "a", 1).await;
    assert_eq!(intervene(store, "d2", discard(None), 1).await, Intervened::Done);
    // A finish that names it all the same changes nothing of it.
    let both = vec![ended("d1", Done), ended("d2", Done)];
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", 2, both)).await, APPLIED);
    assert_eq!((state(store, "d1").await.0, state(store, "d2").await.0), (RowState::Done, RowState::Discarded));
    assert_eq!(deliveries(&claim_lane(store, "a", 2).await), ["d4"]);
}

pub(crate) async fn what_came_since_and_is_older_than_the_rows_taken_can_be_discarded(store: &dyn Store) {
    record(store, vec![row("replayed", "k", 1)]).await;
    end(store, 0, &[("replayed", Dead)]).await;
    record(store, vec![row("d3", "k", 3), row("d5", "k", 5)]).await;
    let lane = claim_first(store, "a", 2).await;
    record(store, vec![row("d2", "k", 2), row("d4", "k", 4), row("d6", "k", 6)]).await;
    assert_eq!(intervene(store, "replayed", replay(&[("books", Dead)]), 1).await, Intervened::Done);
    for delivery in ["replayed", "d2", "d6"] {
        assert_eq!(intervene(store, delivery, discard(None), 1).await, Intervened::Done, "{delivery}");
    }
    // Whoever has the lease may have read it with the others.
    assert_eq!(intervene(store, "d4", discard(None), 1).await, UnderWay);
    let both = vec![ended("d3", Done), ended("d5", Done)];
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", 2, both)).await, APPLIED);
    assert_eq!(intervene(store, "d4", discard(None), 2).await, Intervened::Done);
    assert!(claim_lanes(store, "a", 1000).await.is_empty(), "nothing is left");
}

pub(crate) async fn case22_a_discard_takes_over_a_lease_that_has_ended(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(intervene(store, "d1", discard(None), LEASE_SECONDS).await, Intervened::Done);
    let late = vec![ended("d1", Done), ended("d2", Done)];
    assert_eq!(commit_lane(store, finish_lane_of(&lane, "a", LEASE_SECONDS, late)).await, FinishOutcome::LeaseLost);
    assert_eq!((effects(store, "d1").await, effects(store, "d2").await), (vec![Discarded], vec![Waiting]));
    assert_eq!(deliveries(&claim_lane(store, "b", LEASE_SECONDS).await), ["d2"]);
}

pub(crate) async fn a_discard_of_what_failed_frees_what_waits_behind_it(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    let lane = claim_lane(store, "a", 0).await;
    let retry = Some(RetryRow { delivery: "d1".into(), failures: 1, error: "no".into(), due_at: at(500) });
    commit_lane(store, FinishLane { retry, ..finish_lane_of(&lane, "a", 1, vec![]) }).await;
    assert_eq!(intervene(store, "d1", discard(None), 2).await, Intervened::Done);
    assert_eq!(deliveries(&claim_lane(store, "a", 2).await), ["d2"]);
}

/// A delivery of `source` with a body of 10 bytes and headers of 5, where two of them have room.
fn suspect(source: &str, delivery: &str) -> Quarantined {
    let body = Bytes::from_static(b"0123456789");
    let row = NewRow { source: source.into(), body, ..parked(delivery, "its signature does not verify") };
    Quarantined { row, headers: Bytes::from_static(b"x: y\n"), max_rows: 2, max_bytes: 1000 }
}

pub(crate) async fn t2_a_quarantined_row_is_kept_with_its_headers_and_has_no_effect(store: &dyn Store) {
    assert_eq!(store.quarantine(suspect("shop", "q1")).await.unwrap(), QuarantineOutcome::Kept);
    assert_eq!(store.quarantine(suspect("shop", "q1")).await.unwrap(), QuarantineOutcome::Duplicate);
    let shown = detail(store, "q1").await;
    assert_eq!((shown.row.state, shown.row.reason.as_str()), (RowState::Quarantined, "its signature does not verify"));
    assert_eq!((&shown.body[..], &shown.headers[..], shown.effects.len()), (&b"0123456789"[..], &b"x: y\n"[..], 0));
    let listed = store.inbox(InboxQuery { state: Some(RowState::Quarantined), ..inbox_query() }).await.unwrap().rows;
    assert_eq!(listed.len(), 1);
    assert!(claim_lanes(store, "a", 1000).await.is_empty());
    for act in [replay(&[("books", Dead)]), release(&["books"], "")] {
        assert_eq!(intervene(store, "q1", act, 1).await, Unfit(RowState::Quarantined));
    }
}

pub(crate) async fn t2_the_quarantine_of_a_source_is_bounded_in_rows_and_bytes(store: &dyn Store) {
    for (source, delivery, expected) in [
        ("shop", "q1", QuarantineOutcome::Kept),
        ("shop", "q2", QuarantineOutcome::Kept),
        ("shop", "q3", QuarantineOutcome::Full),
        ("shop", "q1", QuarantineOutcome::Duplicate),
        ("mirror", "q4", QuarantineOutcome::Kept),
    ] {
        assert_eq!(store.quarantine(suspect(source, delivery)).await.unwrap(), expected, "{delivery}");
    }
    assert!(store.inbox_row(&acme(), "receiptroller", "q3").await.unwrap().is_none());
    for (delivery, max_bytes, expected) in [("q5", 29, QuarantineOutcome::Full), ("q5", 30, QuarantineOutcome::Kept)] {
        let narrow = Quarantined { max_bytes, ..suspect("mirror", delivery) };
        assert_eq!(store.quarantine(narrow).await.unwrap(), expected, "{max_bytes}");
    }
    // What somebody has decided about takes no more room.
    assert_eq!(intervene(store, "q1", discard(None), 1).await, Intervened::Done);
    assert_eq!(state(store, "q1").await.0, RowState::Discarded);
    assert_eq!(detail(store, "q1").await.headers, "");
    assert_eq!(store.quarantine(suspect("shop", "q3")).await.unwrap(), QuarantineOutcome::Kept);
    let rival = NewRow { organization: organization("rival"), ..suspect("shop", "q1").row };
    let theirs = Quarantined { row: rival, ..suspect("shop", "q1") };
    assert_eq!(store.quarantine(theirs).await.unwrap(), QuarantineOutcome::Kept, "S17: each has its own room");
}

pub(crate) async fn t2_an_admitted_row_is_stored_under_its_own_id_once(store: &dyn Store) {
    for delivery in ["q1", "q2"] {
        store.quarantine(suspect("shop", delivery)).await.unwrap();
    }
    let admit = |delivery: &str| Act::Admit(Box::new(NewRow { due_at: at(9), ..row(delivery, "k", 1) }));
    assert_eq!(intervene(store, "q1", admit("sale-1"), 9).await, Intervened::Done);
    assert!(store.inbox_row(&acme(), "receiptroller", "q1").await.unwrap().is_none());
    assert_eq!(deliveries(&claim_lane(store, "a", 9).await), ["sale-1"]);
    assert_eq!(intervene(store, "q2", admit("sale-1"), 10).await, Duplicate, "it came by itself since");
    assert_eq!(store.inbox(inbox_query()).await.unwrap().rows.len(), 1);
    assert_eq!(intervene(store, "sale-1", admit("sale-2"), 11).await, Unfit(RowState::Waiting));
    for delivery in ["q3", "q4"] {
        assert_eq!(store.quarantine(suspect("shop", delivery)).await.unwrap(), QuarantineOutcome::Kept, "room again");
    }
}

pub(crate) async fn a_batch_of_interventions_has_an_answer_each(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), parked("d2", "why")]).await;
    let asked = |organization, delivery: &str, act| {
        let (at, now) = (at(1), at(1));
        Intervention { organization, provider: "receiptroller".into(), delivery: delivery.into(), act, at, now }
    };
    let batch = vec![
        asked(acme(), "d1", replay(&[("books", Dead)])),
        asked(acme(), "d2", release(&["books"], "")),
        asked(organization("rival"), "d2", discard(None)),
        asked(acme(), "d2", discard(None)),
    ];
    let answers = store.intervene(batch).await.unwrap();
    assert_eq!(answers, [Unfit(RowState::Waiting), Intervened::Done, NoSuchRow, Intervened::Done]);
    assert_eq!(state(store, "d2").await.0, RowState::Discarded);
    assert!(store.intervene(vec![]).await.unwrap().is_empty());
}

pub(crate) async fn a_row_that_was_given_another_beginning_ages_from_it(store: &dyn Store) {
    record(store, vec![row("d1", "k", 1), row("d2", "k", 2)]).await;
    store.quarantine(suspect("shop", "q1")).await.unwrap();
    end(store, 0, &[("d1", Dead), ("d2", Dead)]).await;
    assert_eq!(intervene(store, "d2", replay(&[("books", Dead)]), 50).await, Intervened::Done);
    end(store, 50, &[("d2", Done)]).await;
    let dropped = store
        .drop_aged(DropStep { what: Aged::InboxRows(None), before: at(50), ids_before: at(50), max_rows: 1000 })
        .await
        .unwrap();
    assert_eq!(dropped.inbox_rows, 2, "the one that was dead, and the quarantined one");
    assert_eq!(state(store, "d2").await.0, RowState::Done);
    // What is dropped gives back its room.
    for delivery in ["q2", "q3"] {
        assert_eq!(store.quarantine(suspect("shop", delivery)).await.unwrap(), QuarantineOutcome::Kept);
    }
}
