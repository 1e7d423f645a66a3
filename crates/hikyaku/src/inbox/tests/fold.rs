//! Promise 2 as a property: whatever comes in whatever order, as often as it likes, with crashes between an effect and
//! its record, the table equals the events folded by the ordering rule (C4, C8, C10, R19).

use std::collections::BTreeMap;

use hikyaku_core::ordering::{Verdict, Version, judge};
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::inbox::destination::{Kind, Settings as DestinationSettings, Tools, build};
use crate::outbound::{Request, Response, Transport};

/// An event of the property: which key, at which second, of which type.
#[derive(Debug, Clone)]
struct Event {
    key: u8,
    second: i64,
    event_type: &'static str,
}

/// A destination that lets another one work and then sometimes forgets to say so.
struct Forgetful {
    inner: Arc<dyn Destination>,
    /// Whether the n-th call is forgotten; all later ones are not.
    forgets: Vec<bool>,
    calls: Mutex<usize>,
}

#[async_trait]
impl Destination for Forgetful {
    async fn apply(&self, row: &WorkRow) -> Effect {
        let effect = self.inner.apply(row).await;
        let call = {
            let mut calls = self.calls.lock().unwrap();
            *calls += 1;
            *calls - 1
        };
        if self.forgets.get(call).copied().unwrap_or(false) { failed("forgotten") } else { effect }
    }
}

struct NoNetwork;

#[async_trait]
impl Transport for NoNetwork {
    async fn post(&self, _: Request) -> Response {
        unreachable!("SQL needs no network")
    }
}

fn table(path: &str, clock: SharedClock) -> Arc<dyn Destination> {
    let columns = [("id", "/data/id"), ("total", "/data/total"), ("event", "/id")];
    let kind = Kind::Sql {
        url: Secret::new(format!("sqlite:{path}")),
        table: "sales".into(),
        key: "id".into(),
        columns: columns.into_iter().map(|(column, pointer)| (column.to_owned(), pointer.to_owned())).collect(),
        create: true,
    };
    let tools = Tools {
        transport: Arc::new(NoNetwork),
        clock,
        effect_timeout: Duration::from_secs(20),
        origins: Arc::default(),
    };
    build(DestinationSettings { name: "books".into(), kind }, &tools).unwrap()
}

fn expected(events: &[Event]) -> BTreeMap<String, String> {
    let mut newest: BTreeMap<String, Version> = BTreeMap::new();
    for (n, event) in events.iter().enumerate() {
        let at = Timestamp::from_second(event.second).unwrap();
        let version = Version::new(at, event.event_type, format!("e{n}"));
        let key = format!("k{}", event.key);
        if judge(newest.get(&key), &version) == Verdict::Newer {
            newest.insert(key, version);
        }
    }
    newest.into_iter().map(|(key, version)| (key, version.event)).collect()
}

async fn received(events: &[Event], arrivals: &[usize], forgets: Vec<bool>, order: Order) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books.db").to_string_lossy().into_owned();
    let inner = table(&path, Arc::new(SystemClock::start()));
    let books = Arc::new(Forgetful { inner, forgets, calls: Mutex::default() });
    let mut rig = Rig::new(vec![route("books", "*", order, Once::Delivery)], &[("books", books)]);
    rig.run();
    for n in arrivals {
        let Event { key, second, event_type } = &events[*n];
        rig.send(&format!("e{n}"), event(&format!("e{n}"), event_type, &format!("k{key}"), *second)).await;
    }
    rig.settle().await;
    rig.stop().await;
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut rows = connection.prepare("SELECT id, event, total FROM sales").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?))).unwrap();
    rows.map(|row| {
        let (key, event, total): (String, String, i64) = row.unwrap();
        let n: usize = event[1..].parse().unwrap();
        assert_eq!(events[n].second, total, "a row is one event's, not a mixture");
        (key, event)
    })
    .collect()
}

fn event_strategy() -> impl Strategy<Value = Event> {
    let types = prop_oneof![Just("order.created"), Just("order.updated"), Just("order.cancelled")];
    (0u8..4, 1i64..5, types).prop_map(|(key, second, event_type)| Event { key, second, event_type })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn c4_c8_c10_the_table_equals_the_fold_of_the_events(
        (events, arrivals, repeats) in proptest::collection::vec(event_strategy(), 1..16).prop_flat_map(|events| {
            let n = events.len();
            let arrivals = Just((0..n).collect::<Vec<_>>()).prop_shuffle();
            (Just(events), arrivals, proptest::collection::vec(0..n, 0..8))
        }),
        forgets in proptest::collection::vec(any::<bool>(), 0..12),
        latest in any::<bool>(),
    ) {
        let arrivals: Vec<_> = arrivals.into_iter().chain(repeats).collect();
        let order = if latest { Order::Latest } else { Order::Every };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let table = runtime.block_on(received(&events, &arrivals, forgets, order));
        prop_assert_eq!(table, expected(&events));
    }
}
