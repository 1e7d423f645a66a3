//! What is told of a source when nothing comes from it any more (T2, T4).

use hikyaku_core::event::EventType;
use hikyaku_core::ids::EventId;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::inbox::{NOTICES, Notice};
use crate::store::memory::Operation;

const MINUTE: Duration = Duration::from_secs(60);

/// A source that tells the destination `chat`, and one that tells nobody, with everything from them going to `books`.
fn rig(chat: &Arc<Scripted>, books: &Arc<Scripted>) -> Rig {
    let sources = vec![Source { notify: Some("chat".into()), ..source("shop") }, source("quiet")];
    let every =
        Route { sources: vec!["shop".into(), "quiet".into()], ..route("books", "*", Order::Every, Once::Delivery) };
    let mut rig = Rig::over(
        Arc::new(MemoryStore::new()),
        "one",
        sources,
        vec![every],
        &[("books", books.clone()), ("chat", chat.clone())],
    );
    rig.run();
    rig
}

fn willing() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(done()))
}

async fn forged(rig: &Rig, source: &str) {
    let refused = rig.inbox.receive(source, &headers("d", b"another body"), Bytes::from_static(b"{}")).await.unwrap();
    assert!(matches!(refused, Received::Unauthorized(_)), "{refused:?}");
}

/// What a destination was told: the type and the source.
fn told(chat: &Scripted) -> Vec<(String, String)> {
    chat.calls.lock().unwrap().iter().map(|row| (row.event_type.clone(), row.key.clone())).collect()
}

fn notice(id: &str) -> Notice {
    Notice {
        id: EventId::parse(id).unwrap(),
        event_type: EventType::parse("webhook.source_disabled").unwrap(),
        data: RawValue::from_string(r#"{"source":"shop"}"#.into()).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn t2_whoever_should_know_is_told_once_a_day_that_no_signature_verifies() {
    let (chat, books) = (willing(), willing());
    let rig = rig(&chat, &books);
    forged(&rig, "shop").await;
    forged(&rig, "quiet").await;
    tokio::time::sleep(MINUTE - Duration::from_secs(1)).await;
    forged(&rig, "shop").await;
    assert!(told(&chat).is_empty(), "one of them may be anybody's");
    tokio::time::sleep(Duration::from_secs(2)).await;
    for _ in 0..3 {
        forged(&rig, "shop").await;
        forged(&rig, "quiet").await;
    }
    rig.settle().await;
    let once = ("webhook.source_unverified".to_owned(), "shop".to_owned());
    assert_eq!(told(&chat), std::slice::from_ref(&once));
    let body: Value = serde_json::from_slice(&chat.calls.lock().unwrap()[0].body).unwrap();
    assert_eq!(body["data"]["source"], "shop");
    assert!(body["data"]["switchedOffAt"].is_string() && body["data"]["since"].is_string(), "{body}");
    // A good one ends it; what fails then is news of another day.
    rig.send("good", sale("good", "k", 1)).await;
    forged(&rig, "shop").await;
    tokio::time::sleep(2 * MINUTE).await;
    forged(&rig, "shop").await;
    rig.settle().await;
    assert_eq!(told(&chat).len(), 1);
    tokio::time::sleep(25 * 60 * MINUTE).await;
    forged(&rig, "shop").await;
    rig.settle().await;
    assert_eq!(told(&chat), [once.clone(), once]);
    assert_eq!(books.deliveries(), ["good"], "no route of deliveries takes a notice");
}

#[tokio::test(start_paused = true)]
async fn t2_what_could_not_be_stored_is_told_with_the_next_one() {
    let (chat, books) = (willing(), willing());
    let rig = rig(&chat, &books);
    forged(&rig, "shop").await;
    tokio::time::sleep(2 * MINUTE).await;
    rig.store.set_down(Operation::Commit, true);
    forged(&rig, "shop").await;
    rig.store.set_down(Operation::Commit, false);
    forged(&rig, "shop").await;
    rig.settle().await;
    assert_eq!(told(&chat).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn t4_a_notice_is_a_row_that_is_told_once_and_tried_again_until_it_is_taken() {
    let chat = Scripted::new(|_, tried| Answer::Now(if tried < 2 { failed("away") } else { done() }));
    let books = willing();
    let rig = rig(&chat, &books);
    for _ in 0..2 {
        rig.inbox.tell("shop", &notice("off-1")).await.unwrap();
    }
    for source in ["quiet", "nobody"] {
        rig.inbox.tell(source, &notice("off-2")).await.unwrap();
    }
    rig.settle().await;
    assert_eq!(chat.deliveries(), ["off-1"; 3]);
    let row = rig.store.inbox_row(&organization(), NOTICES, "off-1").await.unwrap().unwrap();
    assert_eq!((row.row.state, row.row.source.as_str(), row.row.key.as_str()), (RowState::Done, NOTICES, "shop"));
    assert!(String::from_utf8_lossy(&row.body).starts_with(r#"{"id":"off-1","type":"webhook.source_disabled","#));
    assert!(rig.store.inbox_row(&organization(), NOTICES, "off-2").await.unwrap().is_none());
    let routes: Vec<_> = rig.inbox.routes(&organization()).into_iter().map(|status| status.route.name).collect();
    assert_eq!(routes, ["books", "notify:shop"]);
}
