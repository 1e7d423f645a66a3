//! Routes whose order is `fetch` (C3, C4).

use axum::http::Method;
use hikyaku_core::delivery::Outcome;
use tokio::sync::Semaphore;

use super::*;
use crate::inbox::fetch::{self, UrlTemplate};
use crate::outbound::{Exchange, Request, Response};
use crate::store::EffectState;

/// A provider's API: a state that can be changed, and readings that can be held back.
struct Provider {
    state: Mutex<(u16, String)>,
    readings: Mutex<Vec<String>>,
    began: Semaphore,
    may_end: Semaphore,
}

impl Provider {
    /// One of which so many readings may end at once.
    fn new(state: &str, may_end: usize) -> Arc<Self> {
        let state = Mutex::new((200, state.to_owned()));
        let (began, may_end) = (Semaphore::new(0), Semaphore::new(may_end));
        Arc::new(Self { state, readings: Mutex::default(), began, may_end })
    }

    fn set(&self, status: u16, state: &str) {
        *self.state.lock().unwrap() = (status, state.to_owned());
    }

    fn readings(&self) -> usize {
        self.readings.lock().unwrap().len()
    }
}

#[async_trait]
impl Exchange for Provider {
    async fn exchange(&self, _: Method, request: Request, _: usize) -> Response {
        self.readings.lock().unwrap().push(request.url.path().to_owned());
        // What is read is what stood there when the reading began.
        let (status, state) = self.state.lock().unwrap().clone();
        self.began.add_permits(1);
        self.may_end.acquire().await.unwrap().forget();
        let (headers, duration) = (HeaderMap::new(), Duration::ZERO);
        Response { outcome: Outcome::Answered(status), error: String::new(), headers, body: state.into(), duration }
    }
}

const MANY: usize = 1000;

fn rig(provider: &Arc<Provider>, once: Once, destination: &Arc<Scripted>) -> Rig {
    let settings = fetch::Settings {
        url: UrlTemplate::parse("https://api.example/orders/{key}").unwrap(),
        credential: None,
        timeout: Duration::from_secs(10),
        max_body_bytes: 1000,
    };
    let source = Source { fetch: Some(settings), ..source("shop") };
    let fetcher = Fetcher::of(&source, provider.clone(), Arc::new(SystemClock::start())).unwrap();
    let route = route("books", "*", Order::Fetch, once);
    let fetchers = HashMap::from([("shop".to_owned(), Arc::new(fetcher))]);
    let to: [(&str, Arc<dyn Destination>); 1] = [("books", destination.clone())];
    Rig::with(Arc::new(MemoryStore::new()), "one", vec![source], vec![route], &to, fetchers)
}

fn order(delivery: &str, event_type: &str, second: i64) -> String {
    event(delivery, event_type, "o1", second)
}

fn books() -> Arc<Scripted> {
    Scripted::new(|_, _| Answer::Now(done()))
}

fn calls(books: &Scripted) -> Vec<(String, String)> {
    let text = |body: &Bytes| String::from_utf8(body.to_vec()).unwrap();
    books.calls.lock().unwrap().iter().map(|row| (row.delivery.clone(), text(&row.body))).collect()
}

#[tokio::test(start_paused = true)]
async fn c3_many_waiting_events_of_a_key_become_one_reading() {
    let (provider, books) = (Provider::new(r#"{"state":"now"}"#, MANY), books());
    let mut rig = rig(&provider, Once::Delivery, &books);
    for n in 0..100 {
        // Out of their order, and pairs of them with the same timestamp.
        let delivery = format!("d{:02}", (n * 7) % 100);
        rig.send(&delivery, order(&delivery, "order.updated", i64::from((n * 7) % 100 / 2))).await;
    }
    rig.run();
    rig.settle().await;
    assert_eq!(provider.readings(), 1);
    assert_eq!(calls(&books), [("d99".to_owned(), r#"{"state":"now"}"#.to_owned())]);
    let version = books.calls.lock().unwrap()[0].version.clone();
    assert_eq!((version.micros, version.event.as_str()), (49_000_000, "d99"));
    assert_eq!(rig.effect("d99").await.detail, "done");
    for n in 0..99 {
        let effect = rig.effect(&format!("d{n:02}")).await;
        assert_eq!(effect.state, EffectState::Done);
        assert_eq!(effect.detail, r#"covered by the reading for delivery "d99": done"#);
    }
}

#[tokio::test(start_paused = true)]
async fn c3_an_event_that_comes_during_a_reading_brings_another() {
    let (provider, books) = (Provider::new(r#"{"n":1}"#, 0), books());
    let mut rig = rig(&provider, Once::Delivery, &books);
    rig.run();
    rig.send("d5", order("d5", "order.updated", 5)).await;
    provider.began.acquire().await.unwrap().forget();
    // The object changes after the reading saw it; that event is older by its timestamp, or of the same instant.
    for (delivery, second, state) in [("d4", 4, r#"{"n":2}"#), ("a5", 5, r#"{"n":3}"#)] {
        provider.set(200, state);
        rig.send(delivery, order(delivery, "order.updated", second)).await;
        provider.may_end.add_permits(1);
        provider.began.acquire().await.unwrap().forget();
    }
    provider.may_end.add_permits(1);
    rig.settle().await;
    assert_eq!(provider.readings(), 3);
    let states: Vec<_> = calls(&books).into_iter().map(|(_, state)| state).collect();
    assert_eq!(states, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
    let versions: Vec<_> = books.calls.lock().unwrap().iter().map(|row| row.version.clone()).collect();
    assert!(versions.is_sorted_by(|a, b| a < b), "each reading is newer to the destination: {versions:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_fails_is_made_again_and_holds_no_other_key() {
    let (provider, books) = (Provider::new("{}", MANY), books());
    provider.set(503, "");
    let mut rig = rig(&provider, Once::Delivery, &books);
    rig.run();
    rig.send("d1", order("d1", "order.updated", 1)).await;
    while provider.readings() < 3 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let waiting = rig.effect("d1").await;
    assert!(waiting.failures >= 1 && waiting.detail.contains("503"), "{waiting:?}");
    provider.set(200, "{}");
    rig.send("x1", event("x1", "order.updated", "other", 1)).await;
    rig.send("d0", order("d0", "order.updated", 0)).await;
    rig.settle().await;
    assert_eq!(rig.effect("d1").await.state, EffectState::Done);
    assert_eq!(rig.effect("d0").await.detail, r#"covered by the reading for delivery "d1": done"#);
    assert_eq!(calls(&books).first().map(|(delivery, _)| delivery.as_str()), Some("x1"));
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_does_not_have_is_dead_unless_the_event_says_that_it_ended() {
    let (provider, books) = (Provider::new("", MANY), books());
    provider.set(404, "");
    let mut rig = rig(&provider, Once::Delivery, &books);
    rig.run();
    rig.send("d1", order("d1", "order.created", 1)).await;
    rig.settle().await;
    let dead = rig.effect("d1").await;
    assert_eq!((dead.state, provider.readings()), (EffectState::Dead, 6));
    assert!(dead.detail.contains("404"), "{}", dead.detail);
    rig.send("d2", order("d2", "order.deleted", 2)).await;
    rig.settle().await;
    assert_eq!((rig.effect("d2").await.state, provider.readings()), (EffectState::Stale, 7));
    assert!(calls(&books).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_providers_api_is_no_sign_that_it_does_not_have_the_object() {
    let (provider, books) = (Provider::new("{}", MANY), books());
    provider.set(404, "");
    let mut rig = rig(&provider, Once::Delivery, &books);
    rig.run();
    rig.send("d1", order("d1", "order.updated", 1)).await;
    // 404s on either side of an outage: never six in a row.
    for (status, readings) in [(404, 3), (503, 5), (404, 8)] {
        provider.set(status, "");
        while provider.readings() < readings {
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(rig.effect("d1").await.state, EffectState::Waiting);
        }
    }
    provider.set(200, "{}");
    rig.settle().await;
    let effect = rig.effect("d1").await;
    assert_eq!((effect.state, effect.failures, calls(&books).len()), (EffectState::Done, 8, 1));
}

#[tokio::test(start_paused = true)]
async fn t5_once_per_key_reads_and_acts_once() {
    let (provider, books) = (Provider::new("{}", MANY), books());
    let mut rig = rig(&provider, Once::Key, &books);
    rig.run();
    for n in 0..3 {
        let delivery = format!("d{n}");
        rig.send(&delivery, order(&delivery, "order.updated", n)).await;
        rig.settle().await;
    }
    assert_eq!((provider.readings(), calls(&books).len()), (1, 1));
    assert_eq!(rig.effect("d2").await.state, EffectState::Stale);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_asked_about_is_dead_with_the_reason() {
    let (provider, books) = (Provider::new("{}", MANY), books());
    let mut rig = rig(&provider, Once::Delivery, &books);
    rig.run();
    rig.send("d1", r#"{"id":"d1","type":"order.updated","data":{}}"#).await;
    rig.settle().await;
    let effect = rig.effect("d1").await;
    assert!(effect.state == EffectState::Dead && effect.detail.contains("business key"), "{effect:?}");
    assert_eq!(provider.readings(), 0);
}
