//! The door over a real inbox and a real sender that share a store in memory.

use std::collections::HashMap;

use async_trait::async_trait;
use hikyaku_core::event::EventPattern;
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::EventId;
use hikyaku_core::provider::Preset;
use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::clock::SystemClock;
use crate::inbox::destination::{Destination, Effect};
use crate::inbox::{self, NOTICES, OnBadSignature, Once, Order, Route, Source};
use crate::outbound::{Request, Response, Transport};
use crate::sender;
use crate::store::memory::{MemoryStore, Operation};
use crate::store::{Committer, InboxQuery, InboxRowView, Store, WorkRow};

/// Never asked: no inbox and no sender runs here.
struct Nobody;

#[async_trait]
impl Destination for Nobody {
    async fn apply(&self, _: &WorkRow) -> Effect {
        std::future::pending().await
    }
}

#[async_trait]
impl Transport for Nobody {
    async fn post(&self, _: Request) -> Response {
        std::future::pending().await
    }
}

fn organization() -> OrganizationId {
    OrganizationId::parse("acme").unwrap()
}

fn source(name: &str, notify: Option<&str>) -> Source {
    Source {
        name: name.into(),
        provider: "receiptroller".into(),
        organization: organization(),
        secrets: vec![Secret::new("a secret")],
        fetch: None,
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
        notify: notify.map(str::to_owned),
    }
}

/// A door; sales of the source `shop` are taken, and notices about it.
fn door() -> (OpenDoor, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let clock: SharedClock = Arc::new(SystemClock::start());
    let committer = Committer::start(store.clone());
    let route = Route {
        name: "books".into(),
        sources: vec!["shop".into()],
        events: vec![EventPattern::parse("sale.*").unwrap()],
        destination: "there".into(),
        order: Order::Every,
        once: Once::Delivery,
        backoff: None,
    };
    let inbox = Inbox::new(
        store.clone(),
        committer.clone(),
        clock.clone(),
        "one".into(),
        inbox::Settings::default(),
        vec![source("shop", Some("there")), source("quiet", None)],
        vec![route],
        HashMap::from([("there".to_owned(), Arc::new(Nobody) as Arc<dyn Destination>)]),
        HashMap::new(),
    );
    let settings = sender::Settings::default();
    let sender = Sender::new(store.clone(), committer, clock.clone(), Arc::new(Nobody), "one".into(), settings);
    (OpenDoor { inbox, sender, store: store.clone(), clock }, store)
}

fn item(event_type: &str, key: &str) -> Item {
    Item {
        key: key.into(),
        listed_at: Timestamp::UNIX_EPOCH,
        changed_at: Timestamp::UNIX_EPOCH,
        event_type: event_type.into(),
        data: RawValue::from_string(format!(r#"{{"id":"{key}"}}"#)).unwrap(),
        is_event: false,
    }
}

fn seen(source: &str, active_at: Option<Timestamp>) -> Seen {
    Seen { reconcile: "sales".into(), source: source.into(), webhook: "wh-1".into(), active_at, is_reenabled: false }
}

async fn rows(store: &MemoryStore) -> Vec<InboxRowView> {
    let organization = organization();
    let query = InboxQuery::newest(organization, 10);
    store.inbox(query).await.unwrap().rows
}

#[tokio::test]
async fn t4_t5_what_is_missing_enters_once_and_what_nobody_takes_is_parked() {
    let (door, store) = door();
    for (event_type, source, entry, expected) in [
        ("sale.created", "shop", Entry::AtItsTime, Entered::Stored),
        ("sale.created", "shop", Entry::AtItsTime, Entered::Known),
        ("order.created", "shop", Entry::ForReadings, Entered::Known),
        ("order.created", "shop", Entry::AtItsTime, Entered::Parked),
        ("sale.created", "gone", Entry::AtItsTime, Entered::Known),
    ] {
        let entered = door.enter(source, &item(event_type, "k"), entry).await.unwrap();
        assert_eq!(entered, expected, "{event_type} {source} {entry:?}");
    }
    let rows = rows(&store).await;
    assert_eq!(rows.iter().map(|row| row.event_type.as_str()).collect::<Vec<_>>(), ["order.created", "sale.created"]);
    store.set_down(Operation::Commit, true);
    assert!(
        door.enter("shop", &item("sale.created", "k2"), Entry::AtItsTime).await.is_err(),
        "nothing is said to be stored that is not"
    );
}

#[tokio::test]
async fn t4_deliveries_can_be_taken_where_the_source_is_known_and_the_store_takes_writes() {
    let (door, store) = door();
    assert!(door.is_healthy("shop").await);
    assert!(!door.is_healthy("gone").await);
    store.set_down(Operation::Ping, true);
    assert!(!door.is_healthy("shop").await);
}

#[tokio::test]
async fn t4_that_a_webhook_is_off_is_told_once_by_an_event_and_to_the_sources_destination() {
    let (door, store) = door();
    let first = Some(Timestamp::UNIX_EPOCH);
    for active_at in [first, first, Some(Timestamp::from_second(60).unwrap())] {
        door.switched_off(&organization(), &seen("shop", active_at)).await.unwrap();
    }
    let rows = rows(&store).await;
    assert_eq!(rows.len(), 2, "once for each time that it was seen to be on before: {rows:?}");
    for row in &rows {
        assert_eq!((row.provider.as_str(), row.event_type.as_str()), (NOTICES, "webhook.source_disabled"));
        let told = store.inbox_row(&organization(), NOTICES, &row.delivery).await.unwrap().unwrap();
        let event =
            store.event(&organization(), &EventId::parse(row.delivery.as_str()).unwrap()).await.unwrap().unwrap();
        assert_eq!(event.event_type.as_str(), "webhook.source_disabled");
        let body: Value = serde_json::from_slice(&told.body).unwrap();
        assert_eq!((&body["data"]["source"], &body["data"]["providerWebhookId"]), (&"shop".into(), &"wh-1".into()));
    }
    door.switched_off(&organization(), &seen("quiet", first)).await.unwrap();
    assert_eq!(super::tests::rows(&store).await.len(), 2, "it names nobody");
    store.set_down(Operation::Commit, true);
    assert!(door.switched_off(&organization(), &seen("quiet", None)).await.is_err(), "it is to be told again");
}
