//! Deliveries are received: once each, byte for byte, and found again.

use bytes::Bytes;

use super::fixture::*;
use crate::store::*;

use RecordOutcome::{Duplicate, Stored};

pub(crate) async fn c13_a_body_is_kept_byte_for_byte(store: &dyn Store) {
    let bodies: [&[u8]; 7] = [
        br#"{"z":1,"a":2.0 ,"z":3}"#,
        b"",
        b"\xff\xfe\0\xc3",
        b"\xef\xbb\xbf\"\\ud800\"",
        b"null",
        b"a\r\n",
        &vec![7; 1 << 20],
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let new = NewRow { body: Bytes::copy_from_slice(body), ..row(&format!("d{number}"), "k", number as i64) };
        assert_eq!(record(store, vec![new]).await, [Stored]);
        assert_eq!(detail(store, &format!("d{number}")).await.body, body);
    }
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(lane.rows.len(), bodies.len());
    for (row, body) in lane.rows.iter().zip(bodies) {
        assert_eq!(row.body, body);
    }
}

pub(crate) async fn c6_an_id_is_recorded_once(store: &dyn Store) {
    let again = NewRow { body: Bytes::from_static(b"other"), routes: vec!["more".into()], ..row("d1", "other", 9) };
    let first = record(store, vec![row("d1", "k", 1), again.clone(), row("d2", "k", 2)]).await;
    assert_eq!(first, [Stored, Duplicate, Stored]);
    assert_eq!(record(store, vec![again, row("d3", "k", 3)]).await, [Duplicate, Stored]);
    assert_eq!(store.inbox(inbox_query()).await.unwrap().rows.len(), 3);
    assert_eq!(detail(store, "d1").await.body, row("d1", "k", 1).body);
    assert_eq!(detail(store, "d1").await.effects.len(), 1);
    let lane = claim_lane(store, "a", 0).await;
    assert_eq!(deliveries(&lane), ["d1", "d2", "d3"]);

    let all = ["d1", "d2", "d3"].map(|id| ended(id, EffectState::Done)).into();
    commit_lane(store, finish_lane_of(&lane, "a", 1, all)).await;
    assert_eq!(record(store, vec![row("d1", "k", 1)]).await, [Duplicate], "C12: also when it was processed");
    assert!(claim_lanes(store, "a", 1000).await.is_empty());
}

pub(crate) async fn c9_an_id_is_recorded_once_over_all_sources_of_a_provider(store: &dyn Store) {
    let mirror = NewRow { source: "mirror".into(), ..row("d", "k", 1) };
    let other_provider = NewRow { provider: "stripe".into(), ..row("d", "k", 1) };
    assert_eq!(record(store, vec![row("d", "k", 1), mirror, other_provider]).await, [Stored, Duplicate, Stored]);
    assert_eq!(detail(store, "d").await.row.source, "shop");
    let lanes = claim_lanes(store, "a", 0).await;
    assert_eq!(lanes.len(), 2, "equal keys of two providers are two objects: {lanes:?}");
}

pub(crate) async fn case20_a_row_without_routes_is_parked(store: &dyn Store) {
    let nothing = NewRow {
        routes: Vec::new(),
        park_reason: "no route takes \"\"".into(),
        event_type: String::new(),
        body: Bytes::from_static(b"null"),
        ..row("d", "", 1)
    };
    assert_eq!(record(store, vec![nothing]).await, [Stored]);
    let shown = detail(store, "d").await;
    assert_eq!((shown.row.state, shown.row.reason.as_str()), (RowState::Parked, "no route takes \"\""));
    assert!(shown.effects.is_empty());
    assert!(claim_lanes(store, "a", 1000).await.is_empty());
    assert_eq!(store.backlog().await.unwrap().effects, 0);
}

pub(crate) async fn the_list_shows_what_was_recorded(store: &dyn Store) {
    let odd = NewRow { received_at: at(50), key: "a\0|'%".into(), event_type: "\0領".into(), ..row("d\0'%", "", 7) };
    record(store, vec![odd.clone()]).await;
    let listed = store.inbox(inbox_query()).await.unwrap().rows.remove(0);
    assert_eq!((&listed.provider, &listed.source, &listed.delivery), (&odd.provider, &odd.source, &odd.delivery));
    assert_eq!((&listed.event_type, &listed.key), (&odd.event_type, &odd.key));
    assert_eq!((listed.timestamp, listed.received_at), (at(7), at(50)));
    assert_eq!((listed.state, listed.reason.as_str()), (RowState::Waiting, ""));
    let shown = detail(store, &odd.delivery).await;
    assert_eq!((shown.row.position, shown.row.state), (listed.position, RowState::Waiting));
    let [effect] = shown.effects.as_slice() else { panic!("{shown:?}") };
    assert_eq!((effect.route.as_str(), effect.state, effect.failures), ("books", EffectState::Waiting, 0));
    assert_eq!((effect.next_attempt_at, effect.ended_at, effect.detail.as_str()), (Some(at(0)), None, ""));
    assert_eq!(claim_lane(store, "a", 0).await.rows[0].delivery, odd.delivery);
}

pub(crate) async fn the_list_is_filtered_and_a_cursor_stays_right(store: &dyn Store) {
    for number in 0..6 {
        let source = if number % 2 == 0 { "even" } else { "odd" };
        let key = if number < 3 { "low" } else { "high" };
        // Older events come later: the list is by arrival, not by version.
        record(store, vec![NewRow { source: source.into(), ..row(&format!("d{number}"), key, -number) }]).await;
    }
    let low = claim_lanes(store, "a", 0).await.into_iter().find(|lane| lane.key.lane == "k:low").unwrap();
    let all = vec![ended("d0", EffectState::Done), ended("d1", EffectState::Dead), ended("d2", EffectState::Done)];
    commit_lane(store, finish_lane_of(&low, "a", 1, all)).await;

    let list = async |query: InboxQuery| {
        let rows = store.inbox(query).await.unwrap().rows;
        rows.into_iter().map(|row| row.delivery).collect::<Vec<_>>()
    };
    assert_eq!(list(inbox_query()).await, ["d5", "d4", "d3", "d2", "d1", "d0"]);
    assert_eq!(list(InboxQuery { source: Some("odd".into()), ..inbox_query() }).await, ["d5", "d3", "d1"]);
    assert_eq!(list(InboxQuery { key: Some("low".into()), ..inbox_query() }).await, ["d2", "d1", "d0"]);
    assert_eq!(list(InboxQuery { state: Some(RowState::Done), ..inbox_query() }).await, ["d2", "d0"]);
    assert_eq!(list(InboxQuery { state: Some(RowState::Dead), ..inbox_query() }).await, ["d1"]);
    let waiting = InboxQuery { state: Some(RowState::Waiting), source: Some("odd".into()), ..inbox_query() };
    assert_eq!(list(waiting).await, ["d5", "d3"]);
    assert!(list(InboxQuery { key: Some("lo".into()), ..inbox_query() }).await.is_empty());

    let even = InboxQuery { source: Some("even".into()), limit: 2, ..inbox_query() };
    let page = store.inbox(even.clone()).await.unwrap().rows;
    record(store, vec![NewRow { source: "even".into(), ..row("d6", "low", 9) }]).await;
    let next = InboxQuery { before: Some(page[1].position), ..even };
    assert_eq!((page.len(), page[1].delivery.as_str()), (2, "d2"));
    assert_eq!(list(next).await, ["d0"]);
}

pub(crate) async fn a_search_that_may_look_at_little_goes_on_where_it_came_to(store: &dyn Store) {
    for number in 0..9 {
        let source = if number % 4 == 0 { "rare" } else { "common" };
        record(store, vec![NewRow { source: source.into(), ..row(&format!("d{number}"), "k", number) }]).await;
    }
    let route = Some("books".to_owned());
    let rare = InboxQuery { source: Some("rare".into()), state: Some(RowState::Waiting), route, ..inbox_query() };
    for (look_at, limit) in [(1, 10), (2, 10), (3, 1), (9, 2), (10, 10)] {
        let (mut found, mut before) = (Vec::new(), None);
        loop {
            let piece = store.inbox(InboxQuery { look_at, limit, before, ..rare.clone() }).await.unwrap();
            let full = piece.rows.last().filter(|_| piece.rows.len() == limit as usize).map(|row| row.position);
            before = full.or(piece.searched_to.map(|place| place.position));
            found.extend(piece.rows.into_iter().map(|row| row.delivery));
            if before.is_none() {
                break;
            }
        }
        assert_eq!(found, ["d8", "d4", "d0"], "looking at {look_at}, {limit} at a time");
    }
}

pub(crate) async fn s17_rows_of_another_organization_do_not_exist(store: &dyn Store) {
    let rival = organization("rival");
    let theirs = NewRow { organization: rival.clone(), body: Bytes::from_static(b"theirs"), ..row("d", "k", 1) };
    assert_eq!(record(store, vec![row("d", "k", 1), theirs, row("ours", "k", 2)]).await, [Stored; 3]);
    let listed = store.inbox(InboxQuery { organization: rival.clone(), ..inbox_query() }).await.unwrap().rows;
    assert_eq!(listed.len(), 1);
    let body = store.inbox_row(&rival, "receiptroller", "d").await.unwrap().unwrap().body;
    assert_eq!(body, "theirs");
    assert_eq!(detail(store, "d").await.body, row("d", "k", 1).body);
    assert!(store.inbox_row(&rival, "receiptroller", "ours").await.unwrap().is_none());
    assert!(store.inbox_row(&acme(), "stripe", "d").await.unwrap().is_none());
}
