//! Events come in: idempotent, all or none, and to the right webhooks.

use bytes::Bytes;
use hikyaku_core::delivery::{DeliveryState, History};
use hikyaku_core::event::EventPattern;

use super::fixture::*;
use crate::store::*;

pub(crate) async fn r9_an_event_reads_back_byte_for_byte(store: &dyn Store) {
    create(store, &["w"]).await;
    let bodies: [&[u8]; 5] =
        [br#"{"b":1, "a":2.0,"z":1,"z":29383937493038367292}"#, b"", b"a\0b\r\n", b"\xff\xfe", &vec![b'x'; 1 << 20]];
    for (number, body) in bodies.into_iter().enumerate() {
        let id = format!("e{number}");
        let new = NewEvent { body: Bytes::copy_from_slice(body), timestamp: at(7), ..event(&id) };
        let published = stored(commit_publish(store, publish(vec![new])).await).remove(0);
        assert_eq!((published.id.as_str(), published.deliveries, published.repeated), (id.as_str(), 1, false));
        assert_eq!(published.timestamp, at(7));

        let view = store.event(&acme(), &event_id(&id)).await.unwrap().unwrap();
        assert_eq!(view.body, body);
        assert_eq!((view.event_type.as_str(), view.timestamp), ("sale.created", at(7)));
        let [delivery] = view.deliveries.as_slice() else { panic!("{view:?}") };
        assert_eq!((delivery.state, delivery.next_attempt_at), (DeliveryState::Waiting, Some(at(0))));
        assert_eq!((delivery.in_flight, delivery.reason.as_str(), delivery.attempts.len()), (false, "", 0));
    }
    for claimed in claim(store, "a", 0).await {
        let number: usize = claimed.key.event.as_str()[1..].parse().unwrap();
        assert_eq!(claimed.body, bodies[number]);
    }
}

pub(crate) async fn r12_s17_events_fan_out_to_active_subscribers_of_their_organization(store: &dyn Store) {
    create(store, &["all", "off"]).await;
    set_active(store, "off", false, 1).await;
    for (id, patterns) in [("prefix", &["sale.*"] as &[_]), ("exact", &["x.y", "sale.created"]), ("other", &["x.y"])] {
        let events = patterns.iter().map(|pattern| EventPattern::parse(*pattern).unwrap()).collect();
        store.create_webhook(Webhook { events, ..webhook(id) }).await.unwrap();
    }
    store.create_webhook(Webhook { organization: organization("rival"), ..webhook("theirs") }).await.unwrap();

    assert_eq!(store_events(store, &["e"]).await[0].deliveries, 3);
    assert_eq!(sorted_names(&claim(store, "a", 0).await), [("e", "all"), ("e", "exact"), ("e", "prefix")]);
}

pub(crate) async fn r12_what_happens_while_a_webhook_is_off_never_comes_later(store: &dyn Store) {
    create(store, &["w"]).await;
    set_active(store, "w", false, 1).await;
    assert_eq!(store_events(store, &["missed"]).await[0].deliveries, 0);
    set_active(store, "w", true, 2).await;
    assert_eq!(store_events(store, &["next"]).await[0].deliveries, 1);
    assert_eq!(names(&claim(store, "a", 1000).await), [("next", "w")]);
    assert!(store.event(&acme(), &event_id("missed")).await.unwrap().unwrap().deliveries.is_empty());
}

pub(crate) async fn case5_the_same_publish_again_is_the_first_answer(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    create(store, &["later"]).await;
    let again = NewEvent { timestamp: at(99), body: Bytes::from_static(b"rendered anew"), ..event("e") };
    let mut again = publish(vec![again]);
    again.room.insert(webhook_id("w"), 5);
    let again = stored(commit_publish(store, again).await).remove(0);
    assert_eq!((again.timestamp, again.deliveries, again.repeated), (at(0), 1, true));
    assert!(again.leased.is_empty());
    let claimed = claim_one(store, "a", 0).await;
    assert_eq!((claimed.key.webhook.as_str(), &claimed.body), ("w", &event("e").body));
}

pub(crate) async fn case5_equal_ids_in_one_group_are_one_event(store: &dyn Store) {
    create(store, &["w"]).await;
    let other = NewEvent { content_hash: [2; 32], ..event("e") };
    let parts = [publish_of(&["e"]), publish_of(&["e"]), publish(vec![event("x"), other]), publish_of(&["y"])];
    let group = Group { publish: parts.into(), ..Group::default() };
    let mut answers = store.commit(group).await.unwrap().publish.into_iter();
    assert!(!stored(answers.next().unwrap())[0].repeated);
    assert!(stored(answers.next().unwrap())[0].repeated);
    assert!(matches!(answers.next(), Some(PublishOutcome::Conflict(id)) if id.as_str() == "e"));
    assert!(!stored(answers.next().unwrap())[0].repeated);
    assert_eq!(sorted_names(&claim(store, "a", 0).await), [("e", "w"), ("y", "w")]);
}

pub(crate) async fn case5_equal_ids_at_the_same_time_are_one_event(store: &dyn Store) {
    create(store, &["w"]).await;
    let one = || commit_publish(store, publish_of(&["e"]));
    let (a, b, c, d) = tokio::join!(one(), one(), one(), one());
    let first: Vec<_> = [a, b, c, d].into_iter().map(|answer| !stored(answer)[0].repeated).collect();
    assert_eq!(first.iter().filter(|first| **first).count(), 1, "{first:?}");
    assert_eq!(claim(store, "a", 0).await.len(), 1);
}

pub(crate) async fn a_conflict_keeps_its_whole_batch_out_and_nothing_else(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["taken"]).await;
    let other = NewEvent { content_hash: [2; 32], ..event("taken") };
    let mut batch = publish(vec![event("before"), other, event("after")]);
    batch.room.insert(webhook_id("w"), 5);
    let outcome = commit_publish(store, batch).await;
    assert!(matches!(&outcome, PublishOutcome::Conflict(id) if id.as_str() == "taken"), "{outcome:?}");
    for id in ["before", "after"] {
        assert!(store.event(&acme(), &event_id(id)).await.unwrap().is_none(), "{id}");
    }
    assert_eq!(names(&claim(store, "a", 1000).await), [("taken", "w")]);
}

pub(crate) async fn a_batch_that_is_partly_known_stores_the_rest(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["known"]).await;
    let answers = store_events(store, &["new1", "known", "new2"]).await;
    let repeated: Vec<_> = answers.iter().map(|event| (event.id.as_str(), event.repeated)).collect();
    assert_eq!(repeated, [("new1", false), ("known", true), ("new2", false)]);
    assert_eq!(sorted_names(&claim(store, "a", 0).await), [("known", "w"), ("new1", "w"), ("new2", "w")]);
}

pub(crate) async fn s17_one_id_in_two_organizations_is_two_events(store: &dyn Store) {
    let rival = organization("rival");
    create(store, &["w"]).await;
    store.create_webhook(Webhook { organization: rival.clone(), ..webhook("w") }).await.unwrap();
    store_events(store, &["e"]).await;
    let theirs = NewEvent { content_hash: [2; 32], body: Bytes::from_static(b"theirs"), ..event("e") };
    let theirs = Publish { organization: rival.clone(), ..publish(vec![theirs]) };
    assert!(!stored(commit_publish(store, theirs).await)[0].repeated);
    let body = async |organization| store.event(organization, &event_id("e")).await.unwrap().unwrap().body;
    assert_eq!(body(&rival).await, "theirs");
    assert_eq!(body(&acme()).await, event("e").body);
}

pub(crate) async fn room_leases_so_many_first_attempts_in_the_commit(store: &dyn Store) {
    create(store, &["none", "two"]).await;
    let mut batch = publish_of(&["e1", "e2", "e3"]);
    batch.room.insert(webhook_id("two"), 2);
    batch.room.insert(webhook_id("unknown"), 9);
    let published = stored(commit_publish(store, batch).await);
    let leased: Vec<_> = published.iter().flat_map(|event| &event.leased).cloned().collect();
    assert_eq!(names(&leased), [("e1", "two"), ("e2", "two")]);
    for claimed in &leased {
        assert_eq!((claimed.attempt, claimed.history, claimed.interrupted), (1, History::default(), None));
        assert_eq!(claimed.body, event(claimed.key.event.as_str()).body);
        assert_eq!(*claimed.webhook, find_webhook(store, "two").await);
    }
    let shown = view(store, "e1", "two").await;
    assert_eq!((shown.in_flight, shown.next_attempt_at), (true, None));
    let rest = [("e1", "none"), ("e2", "none"), ("e3", "none"), ("e3", "two")];
    assert_eq!(sorted_names(&claim(store, "a", 0).await), rest);
    assert_eq!(
        finish(store, &leased[0], "publisher", 0, OK, hikyaku_core::delivery::Decision::Delivered).await,
        APPLIED
    );
}

pub(crate) async fn ids_of_any_allowed_form_are_kept_as_given(store: &dyn Store) {
    create(store, &["%", "w';DROP"]).await;
    let long = "x".repeat(hikyaku_core::ids::MAX_ID_BYTES);
    let ids = ["t1|2026-13|9", "||", "a/b?c=%2F", "'\"\\", "E", "e", &long];
    store_events(store, &ids).await;
    assert_eq!(claim(store, "a", 0).await.len(), 2 * ids.len());
    for id in ids {
        let view = store.event(&acme(), &event_id(id)).await.unwrap().unwrap();
        assert_eq!((view.id.as_str(), view.deliveries.len()), (id, 2));
    }
}

pub(crate) async fn an_empty_group_has_no_answers(store: &dyn Store) {
    let outcome = store.commit(Group::default()).await.unwrap();
    assert!(outcome.publish.is_empty() && outcome.record.is_empty());
    assert!(outcome.finish_attempts.is_empty() && outcome.finish_lanes.is_empty());
}
