//! Dropping what is old: what goes, what stays, and in which steps.

use hikyaku_core::delivery::{Decision, DeliveryState};
use hikyaku_core::webhook::{Settings, Webhook, WhileInactive};

use super::fixture::*;
use crate::store::RecordOutcome::{Duplicate, Stored};
use crate::store::*;

const EVENTS: Aged = Aged::Events(None);
const ROWS: Aged = Aged::InboxRows(None);
const VERSIONS: Aged = Aged::Versions(None);

/// Drops what came before `seconds`, step by step. Gives what was dropped in each.
async fn drop_before(store: &dyn Store, what: Aged, seconds: i64, max_rows: u32) -> Vec<Dropped> {
    drop_keeping_ids(store, what, seconds, i64::from(u32::MAX), max_rows).await
}

/// The same; ids that came at `ids` seconds or later stay known.
async fn drop_keeping_ids(store: &dyn Store, what: Aged, seconds: i64, ids: i64, max_rows: u32) -> Vec<Dropped> {
    let mut steps = Vec::new();
    let mut next = Some(what);
    while let Some(what) = next {
        let step = DropStep { what, before: at(seconds), ids_before: at(ids), max_rows };
        let dropped = store.drop_aged(step).await.unwrap();
        assert!(steps.len() < 100, "the steps come to an end: {dropped:?}");
        next = dropped.next.clone();
        steps.push(dropped);
    }
    steps
}

fn rows_of(dropped: &Dropped) -> u64 {
    dropped.events + dropped.deliveries + dropped.attempts + dropped.inbox_rows + dropped.ids + dropped.versions
}

/// Publishes an event of this age, and ends all that is due.
async fn delivered(store: &dyn Store, id: &str, seconds: i64) {
    commit_publish(store, publish(vec![NewEvent { created_at: at(seconds), ..event(id) }])).await;
    for claimed in claim(store, "a", 0).await {
        finish(store, &claimed, "a", 0, OK, Decision::Delivered).await;
    }
}

async fn exists(store: &dyn Store, id: &str) -> bool {
    store.event(&acme(), &event_id(id)).await.unwrap().is_some()
}

pub(crate) async fn old_events_go_with_all_that_is_theirs(store: &dyn Store) {
    create(store, &["v", "w"]).await;
    for (id, seconds) in [("old", 1), ("older", -5), ("young", 10)] {
        delivered(store, id, seconds).await;
    }
    let rival = organization("rival");
    let theirs = NewEvent { created_at: at(2), ..event("theirs") };
    commit_publish(store, Publish { organization: rival.clone(), ..publish(vec![theirs]) }).await;

    let steps = drop_before(store, EVENTS, 10, 1000).await;
    let expected = Dropped { events: 3, deliveries: 4, attempts: 4, ..Dropped::default() };
    assert_eq!(steps, [expected]);
    assert_eq!(
        (exists(store, "old").await, exists(store, "older").await, exists(store, "young").await),
        (false, false, true)
    );
    assert!(store.event(&rival, &event_id("theirs")).await.unwrap().is_none());
    assert_eq!(log(store, "w").await.len(), 1);
    assert_eq!(search(store, delivery_query(), async || ()).await.len(), 2);
    assert_eq!(drop_before(store, EVENTS, 10, 1000).await, [Dropped::default()]);
}

pub(crate) async fn an_event_of_which_anything_waits_is_kept_whole(store: &dyn Store) {
    create(store, &["v", "w"]).await;
    store_events(store, &["e"]).await;
    let [one, other] = &claim(store, "a", 0).await[..] else { panic!("two deliveries") };
    for _ in 0..2 {
        // First both are under way, then one has ended and the other is.
        assert_eq!(drop_before(store, EVENTS, 1000, 1).await.iter().map(rows_of).sum::<u64>(), 0);
        finish(store, one, "a", 0, OK, Decision::Delivered).await;
    }
    finish(store, other, "a", 0, ERROR, retry(100_000)).await;
    assert_eq!(drop_before(store, EVENTS, 1000, 1).await.iter().map(rows_of).sum::<u64>(), 0, "a retry waits");
    assert_eq!(view(store, "e", one.key.webhook.as_str()).await.attempts.len(), 1);
    let last = claim_one(store, "a", 100_000).await;
    finish(store, &last, "a", 100_000, ERROR, SWITCH_OFF).await;
    assert_eq!(drop_before(store, EVENTS, 1000, 100).await.iter().map(rows_of).sum::<u64>(), 1 + 2 + 3);
    assert_eq!(finish(store, &last, "a", 100_000, OK, Decision::Delivered).await, FinishOutcome::LeaseLost);
    assert!(log(store, "v").await.is_empty() && log(store, "w").await.is_empty());
}

pub(crate) async fn what_is_held_is_kept_and_what_was_missed_goes(store: &dyn Store) {
    let settings = Settings { while_inactive: WhileInactive::Hold, ..Settings::default() };
    store.create_webhook(Webhook { settings, ..webhook("holds") }).await.unwrap();
    set_active(store, "holds", false, 0).await;
    store_events(store, &["held"]).await;
    store.delete_webhook(&acme(), &webhook_id("holds"), at(1)).await.unwrap();
    create(store, &["drops"]).await;
    set_active(store, "drops", false, 2).await;
    store_events(store, &["missed"]).await;
    let settings = Settings { while_inactive: WhileInactive::Hold, ..Settings::default() };
    store.create_webhook(Webhook { settings, ..webhook("keeps") }).await.unwrap();
    set_active(store, "keeps", false, 3).await;
    store_events(store, &["kept"]).await;

    drop_before(store, EVENTS, 1000, 2).await;
    let left = (exists(store, "held").await, exists(store, "missed").await, exists(store, "kept").await);
    assert_eq!(left, (false, false, true));
    assert_eq!(view(store, "kept", "keeps").await.state, DeliveryState::Held);
    let query = MissedQuery {
        organization: acme(),
        webhook: webhook_id("drops"),
        from: None,
        to: None,
        after: None,
        limit: 10,
        count_to: 10,
    };
    let missed = store.missed(query).await.unwrap();
    let events: Vec<_> = missed.entries.iter().map(|entry| entry.position.event.as_str()).collect();
    assert_eq!((events, missed.missed), (vec!["kept"], 1));
}

pub(crate) async fn a_step_touches_so_many_rows_and_the_next_goes_on(store: &dyn Store) {
    const MAX_ROWS: u32 = 4;
    create(store, &["v", "w", "x"]).await;
    store_events(store, &["kept"]).await;
    let kept = claim(store, "b", 0).await;
    for number in 0..6 {
        delivered(store, &format!("e{number}"), number % 3).await;
    }
    let steps = drop_before(store, EVENTS, 1000, MAX_ROWS).await;
    assert!(steps.len() >= 6, "{steps:?}");
    // The last delivery or event of a step may exceed it.
    assert!(steps.iter().all(|step| rows_of(step) <= u64::from(MAX_ROWS) + 7), "{steps:?}");
    assert_eq!(steps.iter().map(|step| step.events).sum::<u64>(), 6);
    assert_eq!(steps.iter().map(|step| step.attempts).sum::<u64>(), 18);
    assert_eq!((kept.len(), exists(store, "kept").await), (3, true));
}

pub(crate) async fn the_id_of_a_dropped_event_is_free_again(store: &dyn Store) {
    store_events(store, &["e"]).await;
    assert!(store_events(store, &["e"]).await[0].repeated);
    drop_before(store, EVENTS, 1000, 100).await;
    let other = NewEvent { content_hash: [2; 32], ..event("e") };
    assert!(!stored(commit_publish(store, publish(vec![other])).await)[0].repeated);
}

/// Records a row that came at `seconds`, and lets it take effect.
async fn done(store: &dyn Store, id: &str, seconds: i64) {
    assert_eq!(record(store, vec![NewRow { due_at: at(seconds), ..row(id, id, seconds) }]).await, [Stored]);
    let lane = claim_lane(store, "a", seconds).await;
    let mut finish = finish_lane_of(&lane, "a", seconds, vec![ended(id, EffectState::Done)]);
    finish.applied = Some(lane.rows[0].version.clone());
    commit_lane(store, finish).await;
}

pub(crate) async fn c7_an_id_is_known_until_its_row_is_dropped(store: &dyn Store) {
    done(store, "d", 5).await;
    drop_before(store, ROWS, 5, 100).await;
    assert_eq!(record(store, vec![row("d", "d", 5)]).await, [Duplicate], "it is not older than the age");
    let steps = drop_before(store, ROWS, 6, 100).await;
    assert_eq!(steps, [Dropped { inbox_rows: 1, ..Dropped::default() }]);
    assert!(store.inbox_row(&acme(), "receiptroller", "d").await.unwrap().is_none());
    assert_eq!(record(store, vec![row("d", "d", 5)]).await, [Stored]);
    let shown = detail(store, "d").await;
    assert_eq!((shown.row.state, shown.effects.len()), (RowState::Waiting, 1), "it is a new row");
}

pub(crate) async fn a_row_with_work_left_is_kept(store: &dyn Store) {
    record(store, vec![row("waits", "k", 0), NewRow { routes: Vec::new(), ..row("parked", "k", 0) }]).await;
    let steps = drop_before(store, ROWS, 1000, 100).await;
    assert_eq!(steps.iter().map(rows_of).sum::<u64>(), 1);
    assert!(store.inbox_row(&acme(), "receiptroller", "parked").await.unwrap().is_none());
    assert_eq!(claim_lane(store, "a", 0).await.rows[0].body, row("waits", "k", 0).body);
}

pub(crate) async fn c4_what_took_effect_is_remembered_when_its_row_is_gone(store: &dyn Store) {
    done(store, "d", 5).await;
    drop_before(store, ROWS, 1000, 100).await;
    record(store, vec![NewRow { due_at: at(7), ..row("older", "d", 1) }]).await;
    let lane = claim_lane(store, "a", 7).await;
    assert!(lane.applied.is_some_and(|applied| applied > lane.rows[0].version));
}

pub(crate) async fn rows_are_dropped_in_steps_too(store: &dyn Store) {
    for number in 0..9 {
        done(store, &format!("d{number}"), number).await;
    }
    record(store, vec![row("waits", "k", 0)]).await;
    let steps = drop_before(store, ROWS, 8, 3).await;
    assert!(steps.len() >= 3 && steps.iter().all(|step| step.inbox_rows <= 3), "{steps:?}");
    let left: Vec<_> = store.inbox(inbox_query()).await.unwrap().rows.into_iter().map(|row| row.delivery).collect();
    assert_eq!(left, ["waits", "d8"]);
}

pub(crate) async fn c7_t5_an_id_is_known_longer_than_its_row_where_it_should_be(store: &dyn Store) {
    for (id, seconds) in [("young", 5), ("old", 2), ("older", 1)] {
        done(store, id, seconds).await;
    }
    let steps = drop_keeping_ids(store, ROWS, 100, 2, 100).await;
    assert_eq!(steps, [Dropped { inbox_rows: 3, ..Dropped::default() }]);
    assert!(store.inbox(inbox_query()).await.unwrap().rows.is_empty(), "the rows are gone with their bodies");
    let other = |provider: &str, id: &str| NewRow { provider: provider.into(), ..row(id, id, 0) };
    for (new, expected) in [
        (row("young", "k", 0), Duplicate),
        (NewRow { source: "other".into(), ..row("old", "k", 0) }, Duplicate),
        (row("older", "k", 0), Stored),
        (other("stripe", "young"), Stored),
        (NewRow { organization: organization("rival"), ..row("young", "k", 0) }, Stored),
    ] {
        let what = format!("{new:?}");
        assert_eq!(record(store, vec![new]).await, [expected], "{what}");
    }
    let steps = drop_before(store, Aged::Ids, 5, 1).await;
    assert_eq!(steps.iter().map(|step| step.ids).sum::<u64>(), 1);
    assert_eq!(record(store, vec![row("old", "k", 0)]).await, [Stored]);
    assert_eq!(record(store, vec![row("young", "k", 0)]).await, [Duplicate]);
}

pub(crate) async fn t5_versions_are_dropped_by_the_time_of_their_effect_in_steps(store: &dyn Store) {
    for number in 0..7 {
        done(store, &format!("k{number}"), number).await;
    }
    let steps = drop_before(store, VERSIONS, 6, 2).await;
    assert!(steps.len() >= 3 && steps.iter().all(|step| step.versions <= 2), "{steps:?}");
    assert_eq!(steps.iter().map(|step| step.versions).sum::<u64>(), 6);
    for (key, is_known) in [("k0", false), ("k5", false), ("k6", true)] {
        record(store, vec![NewRow { due_at: at(9), ..row(&format!("late-{key}"), key, -1) }]).await;
        let lane = claim_lane(store, "a", 9).await;
        assert_eq!(lane.applied.is_some(), is_known, "{key}");
    }
}

pub(crate) async fn c4_the_version_of_a_key_with_work_left_is_kept(store: &dyn Store) {
    done(store, "k", 1).await;
    record(store, vec![row("late", "k", -1)]).await;
    assert_eq!(drop_before(store, VERSIONS, 1000, 10).await.iter().map(rows_of).sum::<u64>(), 0);
    assert!(claim_lane(store, "a", 0).await.applied.is_some());
}
