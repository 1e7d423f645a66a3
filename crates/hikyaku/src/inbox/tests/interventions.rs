//! What a person does about rows, against a running inbox.

use super::*;
use crate::inbox::{Outcome, RowFilter, RowId, Wanted};
use crate::store::EffectState;

fn every(destination: &str) -> Route {
    route(destination, "*", Order::Every, Once::Delivery)
}

fn id(delivery: &str) -> RowId {
    RowId { organization: organization(), provider: PROVIDER.into(), delivery: delivery.into() }
}

fn replay(route: Option<&str>) -> Wanted {
    Wanted::Replay { route: route.map(str::to_owned) }
}

fn discard(route: Option<&str>) -> Wanted {
    Wanted::Discard { route: route.map(str::to_owned), reason: "a test".into() }
}

fn filter(state: RowState) -> RowFilter {
    let organization = organization();
    RowFilter { organization, state, source: None, event_type: None, key: None, route: None, from: None, to: None }
}

impl Rig {
    async fn intervene(&self, delivery: &str, wanted: &Wanted) -> Outcome {
        self.inbox.intervene(&id(delivery), wanted).await.unwrap()
    }

    async fn state(&self, delivery: &str) -> RowState {
        self.row(delivery).await.row.state
    }
}

/// A destination that fails until the program is set right, which the second rig over its store stands for.
fn broken() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(failed("no such column")))
}

fn mended() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(done()))
}

fn again(rig: &Rig, routes: Vec<Route>, destinations: Destinations<'_>) -> Rig {
    let mut next = Rig::over(rig.store.clone(), "two", vec![source("shop")], routes, destinations);
    next.run();
    next
}

#[tokio::test(start_paused = true)]
async fn case21_what_always_fails_is_dead_after_its_retries_and_takes_effect_when_it_is_replayed() {
    let books = broken();
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    rig.run();
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.send("d2", sale("d2", "k", 2)).await;
    rig.settle().await;
    let effect = rig.effect("d1").await;
    assert_eq!((rig.state("d1").await, effect.state), (RowState::Dead, EffectState::Dead));
    assert!(effect.detail.starts_with("given up after ") && effect.detail.ends_with("no such column"), "{effect:?}");
    assert!(effect.failures > 3, "{effect:?}");
    assert_eq!(rig.inbox.find(&filter(RowState::Dead), None, 10).await.unwrap().rows.len(), 2);

    // While it still fails, a replay is given the whole time again.
    let before = books.deliveries().len();
    assert_eq!(rig.intervene("d1", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert!(books.deliveries().len() > before + 3);
    assert_eq!(rig.state("d1").await, RowState::Dead);
    rig.stop().await;

    let books = mended();
    let rig = again(&rig, vec![every("books")], &[("books", books.clone())]);
    for delivery in ["d2", "d1"] {
        assert_eq!(rig.intervene(delivery, &replay(None)).await, Outcome::Done);
        rig.settle().await;
        assert_eq!(rig.state(delivery).await, RowState::Done);
    }
    assert_eq!(books.deliveries(), ["d2", "d1"]);
    assert_eq!(rig.intervene("d3", &replay(None)).await, Outcome::NoSuchRow);
}

#[tokio::test(start_paused = true)]
async fn a_replay_takes_the_dead_effects_only_unless_a_route_is_named() {
    let (chat, books) = (mended(), broken());
    let mut rig = Rig::new(vec![every("books"), every("chat")], &[("books", books.clone()), ("chat", chat.clone())]);
    rig.run();
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.settle().await;
    rig.stop().await;

    let books = mended();
    let rig = again(&rig, vec![every("books"), every("chat")], &[("books", books.clone()), ("chat", chat.clone())]);
    assert_eq!(rig.intervene("d1", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!((books.deliveries().len(), chat.deliveries().len()), (1, 1), "nobody is told twice");
    assert_eq!(rig.intervene("d1", &replay(Some("chat"))).await, Outcome::Done);
    rig.settle().await;
    assert_eq!((books.deliveries().len(), chat.deliveries().len()), (1, 2));
    // Nothing of it is dead: the whole row takes place again.
    assert_eq!(rig.intervene("d1", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!((books.deliveries().len(), chat.deliveries().len()), (2, 3));
    assert_eq!(rig.intervene("d1", &replay(Some("gone"))).await, Outcome::Unfit(RowState::Done));
}

/// C4: a replay does not bring back what is older than what took effect since.
#[tokio::test(start_paused = true)]
async fn c4_a_replayed_row_is_stale_where_something_newer_took_effect() {
    let books =
        Scripted::new(|row, _| Answer::Now(if row.delivery == "old" { Effect::Refused("no".into()) } else { done() }));
    let mut rig = Rig::new(vec![route("books", "*", Order::Latest, Once::Delivery)], &[("books", books)]);
    rig.run();
    rig.send("old", sale("old", "k", 1)).await;
    rig.settle().await;
    rig.send("new", sale("new", "k", 2)).await;
    rig.settle().await;
    assert_eq!(rig.intervene("old", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!(rig.state("old").await, RowState::Stale);
    assert_eq!(rig.intervene("new", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!(rig.effect("new").await.detail, "it took effect before");
}

#[tokio::test(start_paused = true)]
async fn t6_what_is_parked_is_released_to_the_routes_of_today() {
    let mut rig = Rig::new(vec![route("books", "order.*", Order::Every, Once::Delivery)], &[("books", mended())]);
    rig.run();
    rig.send("d1", sale("d1", "k", 1)).await;
    rig.send("odd", "null").await;
    assert_eq!(rig.send("d2", sale("d1", "k", 1)).await, Received::Stored, "a copy under another header");
    let Outcome::StillParked(reason) = rig.intervene("d1", &Wanted::Release).await else { panic!("nothing takes it") };
    assert_eq!(reason, "no route of the source takes the event type \"sale.created\"");
    rig.stop().await;

    let books = mended();
    let rig = again(&rig, vec![every("books")], &[("books", books.clone())]);
    assert_eq!(rig.intervene("d1", &Wanted::Release).await, Outcome::Done);
    rig.settle().await;
    assert_eq!((rig.state("d1").await, books.deliveries().len()), (RowState::Done, 1));
    assert_eq!(rig.intervene("d1", &Wanted::Release).await, Outcome::Unfit(RowState::Done));
    // A route does not make these any better.
    let copy = rig.parked().await.remove(0);
    for (delivery, part) in [("odd", "no object"), (copy.delivery.as_str(), "somebody else's copy")] {
        let Outcome::StillParked(reason) = rig.intervene(delivery, &Wanted::Release).await else {
            panic!("{delivery}")
        };
        assert!(reason.contains(part), "{reason}");
        assert_eq!(rig.row(delivery).await.row.reason, reason);
    }
    let gone = Rig::over(rig.store.clone(), "three", vec![source("other")], vec![], &[]);
    assert_eq!(gone.intervene("odd", &Wanted::Release).await, Outcome::SourceGone("shop".into()));
}

#[tokio::test(start_paused = true)]
async fn a_row_behind_the_one_under_way_can_still_be_discarded() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_secs(5), done()));
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    for (n, delivery) in ["d1", "d2", "d3"].into_iter().enumerate() {
        rig.send(delivery, sale(delivery, "k", n as i64)).await;
    }
    rig.run();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.intervene("d1", &discard(None)).await, Outcome::UnderWay);
    assert_eq!(rig.intervene("d3", &discard(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!(rig.state("d3").await, RowState::Discarded);
    assert_eq!(books.deliveries(), ["d1", "d2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_discarded_takes_no_effect_and_what_takes_effect_is_not_discarded() {
    let books = Scripted::new(|_, _| Answer::After(Duration::from_secs(5), done()));
    let mut rig = Rig::new(vec![every("books")], &[("books", books.clone())]);
    rig.send("d1", sale("d1", "k1", 1)).await;
    assert_eq!(rig.intervene("d1", &discard(None)).await, Outcome::Done);
    rig.send("d2", sale("d2", "k2", 2)).await;
    rig.run();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.intervene("d2", &discard(None)).await, Outcome::UnderWay);
    rig.settle().await;
    assert_eq!((rig.state("d1").await, rig.state("d2").await), (RowState::Discarded, RowState::Done));
    assert_eq!(rig.intervene("d2", &discard(None)).await, Outcome::Unfit(RowState::Done));
    assert_eq!(books.deliveries(), ["d2"]);
    assert_eq!(rig.effect("d1").await.detail, "a test");
    // A person may think again.
    assert_eq!(rig.intervene("d1", &replay(None)).await, Outcome::Done);
    rig.settle().await;
    assert_eq!(books.deliveries(), ["d2", "d1"]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_route_that_is_gone_can_be_discarded() {
    let rig = Rig::new(vec![every("books")], &[("books", mended())]);
    rig.send("d1", sale("d1", "k1", 1)).await;
    let gone = Rig::over(rig.store.clone(), "two", vec![source("shop")], vec![], &[]);
    assert_eq!(gone.intervene("d1", &discard(Some("books"))).await, Outcome::Done);
    assert_eq!(gone.state("d1").await, RowState::Discarded);
    assert_eq!(
        gone.intervene("d1", &replay(None)).await,
        Outcome::Unfit(RowState::Discarded),
        "it would wait for nobody"
    );
}

#[tokio::test(start_paused = true)]
async fn a_filter_finds_what_it_says_page_by_page() {
    let mut rig = Rig::new(
        vec![every("books"), route("chat", "order.*", Order::Every, Once::Delivery)],
        &[("books", mended()), ("chat", broken())],
    );
    rig.run();
    for n in 0..6 {
        let (delivery, kind) = (format!("d{n}"), if n % 2 == 0 { "order.created" } else { "sale.created" });
        rig.send(&delivery, event(&delivery, kind, &format!("k{}", n % 3), n)).await;
    }
    rig.settle().await;
    let find = async |filter: RowFilter, before, most| {
        let found = rig.inbox.find(&filter, before, most).await.unwrap();
        (found.rows.iter().map(|row| row.delivery.clone()).collect::<Vec<_>>(), found.next)
    };
    let dead = filter(RowState::Dead);
    assert_eq!(find(dead.clone(), None, 10).await, (vec!["d4".into(), "d2".into(), "d0".into()], None));
    assert_eq!(find(filter(RowState::Done), None, 10).await.0, ["d5", "d3", "d1"]);
    // With a route it is the state of that route's effect too.
    let of_route = |route: &str| RowFilter { route: Some(route.into()), ..dead.clone() };
    assert_eq!(find(of_route("chat"), None, 10).await.0.len(), 3);
    assert!(find(of_route("books"), None, 10).await.0.is_empty());
    let of_key = RowFilter { key: Some("k1".into()), ..dead.clone() };
    assert_eq!(find(of_key, None, 10).await.0, ["d4"]);
    let of_type = |text: &str| RowFilter { event_type: Some(EventPattern::parse(text).unwrap()), ..dead.clone() };
    assert_eq!(find(of_type("order.*"), None, 10).await.0.len(), 3);
    assert!(find(of_type("sale.*"), None, 10).await.0.is_empty());
    let at = rig.row("d2").await.row.received_at;
    let late = RowFilter { from: Some(at), ..dead.clone() };
    assert!(find(late, None, 10).await.0.contains(&"d2".to_owned()));
    let early = RowFilter { to: Some(rig.row("d0").await.row.received_at), ..dead.clone() };
    assert!(find(early, None, 10).await.0.is_empty());

    for wide in [dead.clone(), of_type("order.*")] {
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let (rows, next) = find(wide.clone(), before, 2).await;
            assert!(rows.len() <= 2);
            all.extend(rows);
            before = next;
            if next.is_none() {
                break;
            }
        }
        assert_eq!(all, ["d4", "d2", "d0"]);
    }
}
