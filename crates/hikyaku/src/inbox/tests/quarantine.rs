//! Bad signatures that are kept aside, and what never happens to good ones for it (T2).

use hikyaku_core::provider::Refusal;
use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::inbox::{OnBadSignature, Outcome, Room, RowId, Wanted};
use crate::store::memory::Operation;
use crate::store::{Backlog, StoreError};

const ROOM: Room = Room { max_rows: 2, max_bytes: 1000 };

/// A source that knows these secrets.
fn knowing(secrets: &[&str]) -> Source {
    Source {
        secrets: secrets.iter().map(|secret| Secret::new(*secret)).collect(),
        on_bad_signature: OnBadSignature::Quarantine(ROOM),
        ..source("shop")
    }
}

fn over(store: &Arc<MemoryStore>, secrets: &[&str], books: &Arc<Scripted>) -> Rig {
    let to = [("books", books.clone() as Arc<dyn Destination>)];
    let every = route("books", "*", Order::Every, Once::Delivery);
    Rig::over(store.clone(), "one", vec![knowing(secrets)], vec![every], &to)
}

fn books() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(done()))
}

async fn quarantined(rig: &Rig) -> Vec<RowId> {
    let query = InboxQuery { state: Some(RowState::Quarantined), ..InboxQuery::newest(organization(), 10) };
    let id = |row: InboxRowView| RowId { organization: organization(), provider: row.provider, delivery: row.delivery };
    rig.store.inbox(query).await.unwrap().rows.into_iter().map(id).collect()
}

#[tokio::test(start_paused = true)]
async fn t2_what_is_quarantined_takes_effect_once_the_secret_is_right() {
    let (store, books) = (Arc::new(MemoryStore::new()), books());
    let rig = over(&store, &["wrong"], &books);
    let body = sale("d1", "k", 1);
    assert_eq!(rig.send("d1", body.clone()).await, Received::Quarantined);
    assert_eq!(rig.send("d1", body.clone()).await, Received::Quarantined, "the provider's retry is the same");
    let [id] = quarantined(&rig).await.try_into().unwrap();
    assert_eq!(rig.store.backlog().await.unwrap(), Backlog::default());
    assert_eq!(rig.inbox.intervene(&id, &Wanted::Release).await.unwrap(), Outcome::Unverified(Refusal::Mismatch));

    let mut rig = over(&store, &["wrong", SECRET], &books);
    rig.run();
    assert_eq!(rig.inbox.intervene(&id, &Wanted::Release).await.unwrap(), Outcome::Done);
    rig.settle().await;
    assert_eq!((rig.row("d1").await.row.state, rig.row("d1").await.body), (RowState::Done, Bytes::from(body)));
    assert_eq!(books.deliveries(), ["d1"]);
    assert_eq!(rig.inbox.intervene(&id, &Wanted::Release).await.unwrap(), Outcome::NoSuchRow);
}

/// C6: the id of a delivery belongs to whoever signs it.
#[tokio::test(start_paused = true)]
async fn t2_c6_a_quarantined_copy_never_takes_the_place_of_the_delivery() {
    let (store, books) = (Arc::new(MemoryStore::new()), books());
    let rig = over(&store, &[SECRET], &books);
    let body = Bytes::from(sale("d1", "k", 1));
    let mut forged = headers("d1", &body);
    forged.insert(SIGNATURE_HEADER, sign(&Secret::new("a guess"), &body).parse().unwrap());
    assert_eq!(rig.inbox.receive("shop", &forged, body.clone()).await.unwrap(), Received::Quarantined);
    assert_eq!(rig.send("d1", body.clone()).await, Received::Stored);
    let [id] = quarantined(&rig).await.try_into().unwrap();
    // Somebody set the secret wrong in between; then the copy turns out to be one of what is stored.
    let rig = over(&store, &["a guess"], &books);
    assert_eq!(rig.inbox.intervene(&id, &Wanted::Release).await.unwrap(), Outcome::Duplicate);
    assert!(quarantined(&rig).await.is_empty());
    assert_eq!(rig.row("d1").await.row.state, RowState::Waiting);
}

#[tokio::test(start_paused = true)]
async fn t2_a_full_quarantine_refuses_and_good_deliveries_do_not_notice() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let (store, books) = (Arc::new(MemoryStore::new()), books());
    let rig = over(&store, &[SECRET], &books);
    let bad = async |number: usize, body: Vec<u8>| {
        let headers = headers(&format!("d{number}"), b"another body");
        rig.inbox.receive("shop", &headers, body.into()).await.unwrap()
    };
    assert_eq!(bad(0, vec![b'x'; 2000]).await, Received::Unauthorized(Refusal::Mismatch), "too many bytes");
    for number in 1..=2 {
        assert_eq!(bad(number, b"x".to_vec()).await, Received::Quarantined);
    }
    assert_eq!(bad(3, b"x".to_vec()).await, Received::Unauthorized(Refusal::Mismatch), "too many rows");
    assert_eq!(bad(1, b"x".to_vec()).await, Received::Quarantined, "it is kept already");
    assert_eq!(rig.send("good", sale("good", "k", 1)).await, Received::Stored);
    let first = quarantined(&rig).await.remove(0);
    let discard = Wanted::Discard { route: None, reason: "forged".into() };
    assert_eq!(rig.inbox.intervene(&first, &discard).await.unwrap(), Outcome::Done);
    assert_eq!(bad(3, b"x".to_vec()).await, Received::Quarantined, "there is room again");
    let text = recorder.handle().render();
    for line in [
        r#"hikyaku_inbox_deliveries_total{source="shop",answer="quarantined"} 4"#,
        r#"hikyaku_inbox_deliveries_total{source="shop",answer="quarantineFull"} 2"#,
        r#"hikyaku_inbox_signature_failures_total{source="shop"} 6"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn t2_what_cannot_be_quarantined_for_want_of_a_store_is_not_answered_200() {
    let (store, books) = (Arc::new(MemoryStore::new()), books());
    let rig = over(&store, &["wrong"], &books);
    store.set_down(Operation::Intervene, true);
    let body = Bytes::from(sale("d1", "k", 1));
    let refused = rig.inbox.receive("shop", &headers("d1", &body), body.clone()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
}

#[tokio::test(start_paused = true)]
async fn t2_a_source_tells_how_its_signatures_stand_and_when_its_webhook_will_be_off() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let rig = Rig::over(Arc::new(MemoryStore::new()), "one", vec![source("shop")], vec![], &[]);
    let state = || rig.inbox.sources(&organization()).remove(0).1;
    assert_eq!(state().last_good_at.or(state().refused_since), None);
    let body = Bytes::from(sale("d1", "k", 1));
    rig.inbox.receive("shop", &HeaderMap::new(), body.clone()).await.unwrap();
    let refused = state();
    let since = refused.refused_since.unwrap();
    assert_eq!(refused.switched_off_at.unwrap().duration_since(since).as_secs(), 71 * 60);
    assert_eq!(refused.last_refused.unwrap().1, Refusal::Missing(SIGNATURE_HEADER.into()));
    let gauge = |value: i64| format!(r#"hikyaku_inbox_switched_off_timestamp_seconds{{source="shop"}} {value}"#);
    let expected = gauge(since.as_second() + 71 * 60);
    assert!(recorder.handle().render().contains(&expected), "{expected}\n{}", recorder.handle().render());

    assert_eq!(rig.send("d1", body).await, Received::Stored);
    assert_eq!((state().refused_since, state().switched_off_at), (None, None));
    assert!(state().last_good_at.is_some());
    assert!(recorder.handle().render().contains(&gauge(0)));
    assert!(rig.inbox.sources(&OrganizationId::parse("other").unwrap()).is_empty(), "S17");
}

/// C14: the provider hears in time that it must come again.
#[tokio::test(start_paused = true)]
async fn c14_a_store_that_does_not_answer_is_told_long_before_the_provider_gives_up() {
    let rig = over(&Arc::new(MemoryStore::new()), &[SECRET], &books());
    rig.store.hang_commits();
    let began = rig.clock.schedule();
    let body = Bytes::from(sale("d1", "k", 1));
    let refused = rig.inbox.receive("shop", &headers("d1", &body), body.clone()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(rig.clock.schedule().duration_since(began).as_secs(), 5);
}
