//! Things to put into a store, and short ways to do it. Times are seconds after one fixed instant.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, FailureKind, Outcome};
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::Version;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Settings, Webhook, WebhookUrl};
use jiff::Timestamp;

use crate::store::*;

/// How long the leases of these tests last.
pub(in crate::store) const LEASE_SECONDS: i64 = 30;
pub(in crate::store) const OK: Outcome = Outcome::Answered(200);
pub(in crate::store) const ERROR: Outcome = Outcome::Answered(500);
pub(in crate::store) const INTERRUPTED: Outcome = Outcome::Failed(FailureKind::Interrupted);
pub(in crate::store) const SWITCH_OFF: Decision = Decision::Exhausted { switch_off: true };
pub(in crate::store) const APPLIED: FinishOutcome = FinishOutcome::Applied { switched_off: false };

pub(in crate::store) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

pub(in crate::store) fn retry(seconds: i64) -> Decision {
    Decision::Retry { at: at(seconds) }
}

pub(in crate::store) fn organization(name: &str) -> OrganizationId {
    OrganizationId::parse(name).unwrap()
}

/// The organization of everything below.
pub(in crate::store) fn acme() -> OrganizationId {
    organization("acme")
}

pub(in crate::store) fn webhook_id(name: &str) -> WebhookId {
    WebhookId::parse(name).unwrap()
}

pub(in crate::store) fn event_id(name: &str) -> EventId {
    EventId::parse(name).unwrap()
}

pub(in crate::store) fn event_type(name: &str) -> EventType {
    EventType::parse(name).unwrap()
}

pub(in crate::store) fn lease(owner: &str) -> Lease {
    Lease { owner: owner.into(), duration: Duration::from_secs(LEASE_SECONDS as u64) }
}

/// A webhook that takes everything.
pub(in crate::store) fn webhook(id: &str) -> Webhook {
    Webhook {
        organization: acme(),
        id: webhook_id(id),
        url: WebhookUrl::parse(&format!("https://example.com/{id}")).unwrap(),
        events: vec![EventPattern::All],
        description: String::new(),
        secret: Secret::new(format!("whsec_of_{id}_0123456789abcdef")),
        previous_secret: None,
        off: None,
        exhausted: 0,
        settings: Settings::default(),
        created_at: at(0),
    }
}

pub(in crate::store) async fn create(store: &dyn Store, ids: &[&str]) {
    for id in ids {
        store.create_webhook(webhook(id)).await.unwrap();
    }
}

pub(in crate::store) async fn find_webhook(store: &dyn Store, id: &str) -> Webhook {
    let webhooks = store.webhooks(&acme()).await.unwrap();
    webhooks.iter().find(|webhook| webhook.id.as_str() == id).map(|webhook| Webhook::clone(webhook)).unwrap()
}

pub(in crate::store) async fn set_active(store: &dyn Store, id: &str, active: bool, seconds: i64) -> Webhook {
    let change = WebhookChange { active: Some(active), ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id(id), change, at(seconds)).await.unwrap().unwrap()
}

pub(in crate::store) fn event(id: &str) -> NewEvent {
    NewEvent {
        id: event_id(id),
        event_type: event_type("sale.created"),
        timestamp: at(0),
        created_at: at(0),
        key: None,
        content_hash: [1; 32],
        body: Bytes::from(format!(r#"{{"id":"{id}"}}"#)),
    }
}

pub(in crate::store) fn publish(events: Vec<NewEvent>) -> Publish {
    Publish {
        organization: acme(),
        events,
        due_at: at(0),
        lease: lease("publisher"),
        room: HashMap::new(),
        about: None,
    }
}

/// A publish of events with these ids, due at second 0.
pub(in crate::store) fn publish_of(ids: &[&str]) -> Publish {
    publish(ids.iter().map(|id| event(id)).collect())
}

pub(in crate::store) async fn commit_publish(store: &dyn Store, publish: Publish) -> PublishOutcome {
    let group = Group { publish: vec![publish], ..Group::default() };
    let mut outcome = store.commit(group).await.unwrap();
    assert_eq!(outcome.publish.len(), 1);
    outcome.publish.remove(0)
}

pub(in crate::store) fn stored(outcome: PublishOutcome) -> Vec<PublishedEvent> {
    match outcome {
        PublishOutcome::Stored(events) => events,
        PublishOutcome::Conflict(id) => panic!("{id} is a conflict"),
    }
}

pub(in crate::store) async fn store_events(store: &dyn Store, ids: &[&str]) -> Vec<PublishedEvent> {
    stored(commit_publish(store, publish_of(ids)).await)
}

/// A claim with room for everything.
pub(in crate::store) fn claim_of(owner: &str, seconds: i64) -> DeliveryClaim {
    DeliveryClaim {
        lease: lease(owner),
        now: at(seconds),
        until: Timestamp::MAX,
        at: at(seconds),
        slots_each: 1000,
        most_each: u32::MAX,
        slots: HashMap::new(),
        limit: 1000,
        after: None,
    }
}

pub(in crate::store) async fn claim(store: &dyn Store, owner: &str, seconds: i64) -> Vec<ClaimedDelivery> {
    store.claim_deliveries(claim_of(owner, seconds)).await.unwrap().deliveries
}

/// Claims the one delivery that is due.
pub(in crate::store) async fn claim_one(store: &dyn Store, owner: &str, seconds: i64) -> ClaimedDelivery {
    let mut claimed = claim(store, owner, seconds).await;
    assert_eq!(claimed.len(), 1, "{claimed:?}");
    claimed.remove(0)
}

/// Event and webhook of each.
pub(in crate::store) fn names(claimed: &[ClaimedDelivery]) -> Vec<(&str, &str)> {
    claimed.iter().map(|claimed| (claimed.key.event.as_str(), claimed.key.webhook.as_str())).collect()
}

pub(in crate::store) fn sorted_names(claimed: &[ClaimedDelivery]) -> Vec<(&str, &str)> {
    let mut names = names(claimed);
    names.sort_unstable();
    names
}

/// A finish of a claimed attempt, begun at `seconds`, that took a quarter of a second.
pub(in crate::store) fn finish_of(
    claimed: &ClaimedDelivery,
    owner: &str,
    seconds: i64,
    outcome: Outcome,
    decision: Decision,
) -> FinishAttempt {
    let attempt = AttemptRecord {
        run: claimed.run,
        number: claimed.attempt,
        started_at: at(seconds),
        duration: Duration::from_millis(250),
        outcome,
        error: if outcome.http_status() == 0 { "no answer".into() } else { String::new() },
        response_body: Bytes::from_static(b"answer"),
    };
    let (key, created_at) = (claimed.key.clone(), claimed.created_at);
    FinishAttempt { key, created_at, owner: owner.into(), attempt, decision, notices: None }
}

pub(in crate::store) async fn commit_finish(store: &dyn Store, finish: FinishAttempt) -> FinishOutcome {
    let group = Group { finish_attempts: vec![finish], ..Group::default() };
    store.commit(group).await.unwrap().finish_attempts[0]
}

pub(in crate::store) async fn finish(
    store: &dyn Store,
    claimed: &ClaimedDelivery,
    owner: &str,
    seconds: i64,
    outcome: Outcome,
    decision: Decision,
) -> FinishOutcome {
    commit_finish(store, finish_of(claimed, owner, seconds, outcome, decision)).await
}

pub(in crate::store) async fn view(store: &dyn Store, event: &str, webhook: &str) -> DeliveryView {
    let view = store.event(&acme(), &event_id(event)).await.unwrap().unwrap();
    view.deliveries.into_iter().find(|delivery| delivery.webhook.as_str() == webhook).unwrap()
}

pub(in crate::store) async fn log(store: &dyn Store, webhook: &str) -> Vec<LogEntry> {
    store.log(log_query(webhook, None, 1000)).await.unwrap().rows
}

pub(in crate::store) fn log_query(webhook: &str, before: Option<LogPosition>, limit: u32) -> LogQuery {
    LogQuery {
        organization: acme(),
        webhook: webhook_id(webhook),
        event_type: None,
        outcome: OutcomeFilter::default(),
        from: None,
        to: None,
        before,
        limit,
        look_at: 1000,
    }
}

/// A search for every delivery of the organization.
pub(in crate::store) fn delivery_query() -> DeliveryQuery {
    DeliveryQuery {
        organization: acme(),
        webhook: None,
        event: None,
        event_type: None,
        state: None,
        last: OutcomeFilter::default(),
        key: None,
        from: None,
        to: None,
        after: None,
        limit: 1000,
        look_at: 1000,
    }
}

/// Everything that a search finds, as event and webhook, page by page; `between` is done between the pages.
pub(in crate::store) async fn search(
    store: &dyn Store,
    mut query: DeliveryQuery,
    mut between: impl AsyncFnMut(),
) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    loop {
        let found = store.deliveries(query.clone()).await.unwrap();
        assert!(found.rows.len() <= query.limit as usize);
        let full = found.rows.len() == query.limit as usize;
        let last = found.rows.last().filter(|_| full).map(DeliveryRow::position);
        seen.extend(found.rows.iter().map(|row| (row.event.to_string(), row.webhook.to_string())));
        let Some(after) = last.or(found.searched_to) else { return seen };
        assert!(query.after.is_none_or(|before| after < before), "a search goes on");
        query.after = Some(after);
        between().await;
    }
}

/// A row of the route `books` whose event happened, and came, at `seconds`; its work is due at second 0.
pub(in crate::store) fn row(delivery: &str, key: &str, seconds: i64) -> NewRow {
    NewRow {
        organization: acme(),
        provider: "receiptroller".into(),
        source: "shop".into(),
        delivery: delivery.into(),
        event_type: "order.updated".into(),
        version: Version::new(at(seconds), "order.updated", delivery),
        key: key.into(),
        body: Bytes::from(format!(r#"{{"id":"{delivery}"}}"#)),
        received_at: at(seconds),
        due_at: at(0),
        routes: vec!["books".into()],
        park_reason: String::new(),
    }
}

pub(in crate::store) async fn record(store: &dyn Store, rows: Vec<NewRow>) -> Vec<RecordOutcome> {
    let group = Group { record: rows, ..Group::default() };
    store.commit(group).await.unwrap().record
}

/// A claim of lanes of `books`, with room for everything.
pub(in crate::store) fn lane_claim(owner: &str, seconds: i64) -> LaneClaim {
    let slots = vec![(acme(), "books".into(), 1000)];
    LaneClaim {
        lease: lease(owner),
        now: at(seconds),
        until: Timestamp::MAX,
        slots,
        rows_each: 1000,
        last_body_only: false,
    }
}

pub(in crate::store) async fn claim_lanes(store: &dyn Store, owner: &str, seconds: i64) -> Vec<ClaimedLane> {
    store.claim_lanes(lane_claim(owner, seconds)).await.unwrap().lanes
}

/// Claims the one lane that is due.
pub(in crate::store) async fn claim_lane(store: &dyn Store, owner: &str, seconds: i64) -> ClaimedLane {
    let mut lanes = claim_lanes(store, owner, seconds).await;
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes.remove(0)
}

pub(in crate::store) fn deliveries(lane: &ClaimedLane) -> Vec<&str> {
    lane.rows.iter().map(|row| row.delivery.as_str()).collect()
}

pub(in crate::store) fn lane_names(lanes: &[ClaimedLane]) -> Vec<&str> {
    let mut names: Vec<_> = lanes.iter().map(|lane| lane.key.lane.as_str()).collect();
    names.sort_unstable();
    names
}

pub(in crate::store) fn ended(delivery: &str, state: EffectState) -> EndedRow {
    EndedRow { delivery: delivery.into(), state, failures: 0, detail: format!("{} it is", state.as_str()) }
}

/// A finish of a claimed lane at `seconds` that ends these rows.
pub(in crate::store) fn finish_lane_of(
    lane: &ClaimedLane,
    owner: &str,
    seconds: i64,
    ended: Vec<EndedRow>,
) -> FinishLane {
    FinishLane {
        key: lane.key.clone(),
        owner: owner.into(),
        claim: lane.claim,
        ended,
        retry: None,
        applied: None,
        at: at(seconds),
        now: at(seconds),
    }
}

pub(in crate::store) async fn commit_lane(store: &dyn Store, finish: FinishLane) -> FinishOutcome {
    let group = Group { finish_lanes: vec![finish], ..Group::default() };
    store.commit(group).await.unwrap().finish_lanes[0]
}

pub(in crate::store) async fn detail(store: &dyn Store, delivery: &str) -> InboxRowDetail {
    store.inbox_row(&acme(), "receiptroller", delivery).await.unwrap().unwrap()
}

pub(in crate::store) fn inbox_query() -> InboxQuery {
    InboxQuery::newest(acme(), 1000)
}
