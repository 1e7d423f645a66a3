//! Rows that no delivery brought (T4, T5).

use hikyaku_core::gap::Entry;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::*;
use crate::inbox::{Import, Imported};
use crate::store::memory::Operation;

fn item(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

/// A sale of the list that last changed at this second.
fn listed(item: &RawValue, second: i64) -> Import<'_> {
    Import {
        event_type: "sale.created",
        key: "k",
        changed_at: Timestamp::from_second(second).unwrap(),
        item,
        is_event: false,
        entry: Entry::AtItsTime,
    }
}

fn books() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(done()))
}

/// All rows, newest first.
async fn rows(rig: &Rig) -> Vec<InboxRowView> {
    let organization = organization();
    let query = InboxQuery::newest(organization, 10);
    rig.store.inbox(query).await.unwrap().rows
}

#[tokio::test(start_paused = true)]
async fn t5_an_item_enters_once_as_an_event_about_itself() {
    let books = books();
    let mut rig = Rig::new(vec![route("books", "sale.*", Order::Every, Once::Delivery)], &[("books", books.clone())]);
    rig.run();
    let sale = item(r#"{"id": "k", "total": 12345678901234567890.10}"#);
    assert_eq!(rig.inbox.import("shop", &listed(&sale, 7)).await.unwrap(), Imported::Stored);
    assert_eq!(rig.inbox.import("shop", &listed(&sale, 7)).await.unwrap(), Imported::Nothing);
    rig.settle().await;
    let [row] = rows(&rig).await.try_into().unwrap();
    assert_eq!((row.key.as_str(), row.event_type.as_str(), row.timestamp.as_second()), ("k", "sale.created", 7));
    assert!(row.delivery.starts_with("listed:sha256:"), "no id of a provider's: {}", row.delivery);
    let body = String::from_utf8(rig.row(&row.delivery).await.body.to_vec()).unwrap();
    let end = r#""timestamp":"1970-01-01T00:00:07.000Z","data":{"id": "k", "total": 12345678901234567890.10}}"#;
    assert!(body.ends_with(end), "the item to the byte: {body}");
    // It has changed in the list: that is another row.
    assert_eq!(rig.inbox.import("shop", &listed(&sale, 8)).await.unwrap(), Imported::Stored);
    assert_eq!(rig.inbox.import("nobody", &listed(&sale, 8)).await.unwrap(), Imported::Nothing);
    rig.settle().await;
    assert_eq!(books.deliveries().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn c4_an_item_is_judged_by_the_time_of_its_change_beside_deliveries() {
    let books = books();
    let mut rig = Rig::new(vec![route("books", "*", Order::Latest, Once::Delivery)], &[("books", books.clone())]);
    rig.run();
    rig.send("pushed", sale("pushed", "k", 10)).await;
    rig.settle().await;
    let (older, newer) = (item(r#"{"id":"k","n":1}"#), item(r#"{"id":"k","n":2}"#));
    for (import, expected) in [(listed(&older, 9), RowState::Stale), (listed(&newer, 11), RowState::Done)] {
        assert_eq!(rig.inbox.import("shop", &import).await.unwrap(), Imported::Stored);
        rig.settle().await;
        assert_eq!(rows(&rig).await[0].state, expected);
    }
    assert_eq!(books.deliveries().len(), 2);
}

/// The list has what another event of the same instant had overwritten, even if it was itself listed before.
#[tokio::test(start_paused = true)]
async fn c4_an_item_that_follows_what_is_of_its_time_takes_effect() {
    let books = books();
    let mut rig = Rig::new(vec![route("books", "*", Order::Latest, Once::Delivery)], &[("books", books.clone())]);
    rig.run();
    let first = item(r#"{"id":"k","n":1}"#);
    let micros = Timestamp::from_second(10).unwrap().as_microsecond();
    assert_eq!(rig.inbox.import("shop", &listed(&first, 10)).await.unwrap(), Imported::Stored);
    rig.settle().await;
    rig.send("zz", sale("zz", "k", 10)).await;
    rig.settle().await;
    let follows = Import { entry: Entry::After(micros), ..listed(&first, 10) };
    assert_eq!(rig.inbox.import("shop", &follows).await.unwrap(), Imported::Stored);
    assert_eq!(rig.inbox.import("shop", &follows).await.unwrap(), Imported::Nothing);
    rig.settle().await;
    let [last, ..] = &rows(&rig).await[..] else { panic!() };
    assert_eq!((last.state, last.timestamp.as_microsecond()), (RowState::Done, micros + 1));
    assert_eq!(books.deliveries().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn t5_an_item_that_is_an_event_has_the_id_under_which_it_would_be_pushed() {
    let books = books();
    let mut rig = Rig::new(vec![route("books", "*", Order::Every, Once::Delivery)], &[("books", books.clone())]);
    rig.run();
    let event = item(&sale("d1", "k", 5));
    let import = Import { is_event: true, ..listed(&event, 5) };
    assert_eq!(rig.inbox.import("shop", &import).await.unwrap(), Imported::Stored);
    assert_eq!(rig.send("d1", sale("d1", "k", 5)).await, Received::Duplicate);
    rig.settle().await;
    assert_eq!((books.deliveries(), &rig.row("d1").await.body[..]), (vec!["d1".into()], event.get().as_bytes()));
}

#[tokio::test(start_paused = true)]
async fn t6_an_item_that_nobody_takes_is_parked_unless_only_readings_were_meant() {
    let rig = Rig::new(vec![route("books", "order.*", Order::Every, Once::Delivery)], &[("books", books())]);
    let sale = item(r#"{"id":"k"}"#);
    let for_readings = Import { entry: Entry::ForReadings, ..listed(&sale, 1) };
    assert_eq!(rig.inbox.import("shop", &for_readings).await.unwrap(), Imported::Nothing);
    assert_eq!(rig.inbox.import("shop", &listed(&sale, 1)).await.unwrap(), Imported::Parked);
    let [row] = rows(&rig).await.try_into().unwrap();
    assert_eq!(
        (row.state, row.reason.as_str()),
        (RowState::Parked, "no route of the source takes the event type \"sale.created\"")
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_that_could_not_be_stored_can_be_given_again() {
    let rig = Rig::new(vec![route("books", "*", Order::Every, Once::Delivery)], &[("books", books())]);
    let sale = item(r#"{"id":"k"}"#);
    rig.store.set_down(Operation::Commit, true);
    assert!(rig.inbox.import("shop", &listed(&sale, 1)).await.is_err());
    rig.store.set_down(Operation::Commit, false);
    assert_eq!(rig.inbox.import("shop", &listed(&sale, 1)).await.unwrap(), Imported::Stored);
}
