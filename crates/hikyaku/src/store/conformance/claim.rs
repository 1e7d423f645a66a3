//! Deliveries go out: what is due, to whom, how many, and never twice at once.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, History};
use hikyaku_core::webhook::WebhookUrl;

use super::fixture::*;
use crate::store::*;

pub(crate) async fn a_claim_takes_what_is_due_with_all_that_an_attempt_needs(store: &dyn Store) {
    create(store, &["w"]).await;
    let later = Publish { due_at: at(10), ..publish_of(&["e"]) };
    commit_publish(store, later).await;
    assert!(claim(store, "a", 9).await.is_empty());
    let claimed = claim_one(store, "a", 10).await;
    assert_eq!((&claimed.key.organization, claimed.key.event.as_str()), (&acme(), "e"));
    assert_eq!((claimed.attempt, claimed.history, claimed.interrupted), (1, History::default(), None));
    assert_eq!(claimed.due_at, at(10));
    assert_eq!((claimed.event_type.as_str(), &claimed.body), ("sale.created", &event("e").body));
    assert_eq!(*claimed.webhook, webhook("w"));
    assert_eq!(claimed.webhook.secret.reveal(), webhook("w").secret.reveal());
}

pub(crate) async fn a_lease_keeps_everyone_else_out_until_it_ends(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    claim_one(store, "a", 0).await;
    let shown = view(store, "e", "w").await;
    assert_eq!((shown.in_flight, shown.next_attempt_at), (true, None));
    for owner in ["a", "b"] {
        assert!(claim(store, owner, LEASE_SECONDS - 1).await.is_empty(), "{owner}");
    }
    assert_eq!(claim(store, "b", LEASE_SECONDS).await.len(), 1);
}

pub(crate) async fn case14_a_webhook_gets_no_more_than_its_free_slots(store: &dyn Store) {
    create(store, &["busy", "full", "idle"]).await;
    store_events(store, &["e1", "e2", "e3"]).await;
    let slots = [("full", 0), ("busy", 2)].map(|(id, free)| ((acme(), webhook_id(id)), free));
    let claim = DeliveryClaim { slots_each: 3, slots: HashMap::from(slots), ..claim_of("a", 0) };
    let claims = store.claim_deliveries(claim).await.unwrap();
    let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, webhook) in names(&claims.deliveries) {
        *taken.entry(webhook).or_default() += 1;
    }
    assert_eq!(taken, BTreeMap::from([("busy", 2), ("idle", 3)]));
    let mut saturated = claims.saturated;
    saturated.sort();
    assert_eq!(saturated, [(acme(), webhook_id("busy")), (acme(), webhook_id("full"))]);
    assert_eq!(claims.stopped_at, None);
}

pub(crate) async fn of_one_webhook_what_was_due_first_comes_first(store: &dyn Store) {
    create(store, &["w"]).await;
    for (id, due) in [("a", 3), ("c", 2), ("b", 1)] {
        commit_publish(store, Publish { due_at: at(due), ..publish_of(&[id]) }).await;
    }
    let claim = DeliveryClaim { slots_each: 2, ..claim_of("a", 9) };
    let claims = store.claim_deliveries(claim).await.unwrap();
    assert_eq!(sorted_names(&claims.deliveries), [("b", "w"), ("c", "w")]);
}

pub(crate) async fn case14_a_claim_that_reached_its_limit_goes_on_after_it(store: &dyn Store) {
    let ids = ["w1", "w2", "w3", "w4", "w5"];
    create(store, &ids).await;
    store_events(store, &["e1", "e2", "e3"]).await;
    let mut after = None;
    let mut turns = Vec::new();
    for _ in 0..4 {
        let claim = DeliveryClaim { slots_each: 2, limit: 4, after, ..claim_of("a", 0) };
        let claims = store.claim_deliveries(claim).await.unwrap();
        let mut webhooks: Vec<_> =
            names(&claims.deliveries).into_iter().map(|(_, webhook)| webhook.to_owned()).collect();
        webhooks.sort();
        turns.push(webhooks.join(" "));
        after = claims.stopped_at;
    }
    // Three for each of five: nobody's second turn comes before everybody's first.
    assert_eq!(turns, ["w1 w1 w2 w2", "w3 w3 w4 w4", "w1 w2 w5 w5", "w3 w4 w5"]);
    assert_eq!(after, None, "the last claim did not reach its limit");
}

pub(crate) async fn next_due_is_the_earliest_that_is_not_due_yet(store: &dyn Store) {
    let next_due = async |seconds| store.claim_deliveries(claim_of("a", seconds)).await.unwrap().next_due;
    assert_eq!(next_due(0).await, None);
    create(store, &["w"]).await;
    commit_publish(store, Publish { due_at: at(50), ..publish_of(&["e2"]) }).await;
    commit_publish(store, Publish { due_at: at(10), ..publish_of(&["e1"]) }).await;
    assert_eq!(next_due(0).await, Some(at(10)));
    assert_eq!(next_due(10).await, Some(at(10 + LEASE_SECONDS)), "what was just taken is due when its lease ends");
    let no_slots = DeliveryClaim { slots_each: 0, ..claim_of("b", 60) };
    assert_eq!(store.claim_deliveries(no_slots).await.unwrap().next_due, None, "what is due is not due later");
}

pub(crate) async fn case24_nothing_can_be_claimed_that_is_not_committed(store: &dyn Store) {
    create(store, &["w"]).await;
    for number in 0..20 {
        let ids = [format!("e{number}a"), format!("e{number}b")];
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        let (published, early) = tokio::join!(store_events(store, &ids), claim(store, "a", 0));
        assert_eq!(published.len(), 2);
        assert!(matches!(early.len(), 0 | 2), "a commit was seen in part: {early:?}");
        for claimed in &early {
            assert!(store.event(&acme(), &claimed.key.event).await.unwrap().is_some());
        }
        let late = claim(store, "a", 0).await;
        assert_eq!(early.len() + late.len(), 2);
    }
}

pub(crate) async fn case6_two_claims_at_once_share_nothing(store: &dyn Store) {
    create(store, &["w1", "w2"]).await;
    let ids: Vec<_> = (0..25).map(|number| format!("e{number}")).collect();
    store_events(store, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let few = |owner| store.claim_deliveries(DeliveryClaim { limit: 10, ..claim_of(owner, 0) });
    let (a, b, c) = tokio::join!(few("a"), few("b"), few("c"));
    let mut keys: Vec<_> = [a, b, c].into_iter().flat_map(|claims| claims.unwrap().deliveries).map(|c| c.key).collect();
    assert_eq!(keys.len(), 30);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 30, "a delivery was leased twice");
}

pub(crate) async fn r14_the_waiting_retries_of_a_webhook_that_is_off_go_on(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    finish(store, &first, "a", 0, ERROR, retry(60)).await;
    set_active(store, "w", false, 1).await;
    let second = claim_one(store, "a", 60).await;
    assert_eq!(second.attempt, 2);
    assert!(second.webhook.off.is_some());
    assert_eq!(finish(store, &second, "a", 60, OK, Decision::Delivered).await, APPLIED);
}

pub(crate) async fn a_retry_goes_to_the_present_url(store: &dyn Store) {
    create(store, &["w"]).await;
    store_events(store, &["e"]).await;
    let first = claim_one(store, "a", 0).await;
    finish(store, &first, "a", 0, ERROR, retry(60)).await;
    let url = WebhookUrl::parse("https://new.example.com/").unwrap();
    let change = WebhookChange { url: Some(url.clone()), ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("w"), change, at(5)).await.unwrap();
    let second = claim_one(store, "a", 60).await;
    assert_eq!((second.webhook.url.as_str(), &second.body), (url.as_str(), &first.body));
}

pub(crate) async fn s17_deliveries_with_equal_ids_in_two_organizations_are_apart(store: &dyn Store) {
    let rival = organization("rival");
    create(store, &["w"]).await;
    let url = WebhookUrl::parse("https://rival.example.com/").unwrap();
    store.create_webhook(Webhook { organization: rival.clone(), url, ..webhook("w") }).await.unwrap();
    store_events(store, &["e"]).await;
    let theirs = NewEvent { body: Bytes::from_static(b"theirs"), ..event("e") };
    commit_publish(store, Publish { organization: rival.clone(), ..publish(vec![theirs]) }).await;

    let claimed = claim(store, "a", 0).await;
    assert_eq!(claimed.len(), 2);
    for delivery in &claimed {
        let theirs = delivery.key.organization == rival;
        assert_eq!(delivery.webhook.organization, delivery.key.organization);
        assert_eq!(delivery.body == "theirs", theirs);
        assert_eq!(delivery.webhook.url.as_str().contains("rival"), theirs);
    }
    let ours = claimed.iter().find(|delivery| delivery.key.organization == acme()).unwrap();
    finish(store, ours, "a", 0, ERROR, SWITCH_OFF).await;
    let left = claim_one(store, "b", LEASE_SECONDS).await;
    assert_eq!(left.key.organization, rival);
    assert!(left.webhook.off.is_none());
}
