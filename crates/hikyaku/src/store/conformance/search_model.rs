//! Random searches over random deliveries find, page by page, what looking at every event finds.

use hikyaku_core::delivery::{Decision, DeliveryState, FailureKind, Outcome};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::DeliveryKey;
use hikyaku_core::webhook::{Settings, Webhook, WhileInactive};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use super::fixture::*;
use crate::store::*;

const CASES: u32 = 48;
/// Those that are on. Beside them there is one that is off, and holds its events.
// As in the other model, none of these may stand in a statement's text (S22).
const WEBHOOKS: [&str; 3] = ["w0'", "w1'", "w2'"];
const TYPES: [&str; 3] = ["sale.created", "sale.refunded", "order.created"];
const PATTERNS: [&str; 5] = ["sale.created", "order.created", "sale.*", "order.*", "*"];
const KEYS: [Option<&str>; 3] = [None, Some("k1'"), Some("k2'")];
const STATUSES: [&str; 6] = ["200", "2xx", "5xx", "503", "0", "404"];

/// What becomes of a delivery.
const FATES: [(Outcome, Decision); 6] = [
    (OK, Decision::Delivered),
    (Outcome::Answered(204), Decision::Delivered),
    (ERROR, Decision::Exhausted { switch_off: false }),
    (Outcome::Failed(FailureKind::Dns), Decision::Exhausted { switch_off: false }),
    (Outcome::Answered(503), Decision::Retry { at: jiff::Timestamp::UNIX_EPOCH }),
    (Outcome::Failed(FailureKind::Timeout), Decision::Retry { at: jiff::Timestamp::constant(4_000_000_000, 0) }),
];

/// Events, what becomes of their deliveries in several rounds, and searches.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    events: Vec<(usize, usize, i64)>,
    /// Per round and delivery, which fate; one beyond the list leaves it under way.
    fates: Vec<Vec<usize>>,
    resent: Vec<(usize, usize)>,
    deleted: bool,
    searches: Vec<Search>,
}

/// A search; the numbers pick from the lists above.
#[derive(Debug, Clone)]
struct Search {
    webhook: Option<usize>,
    event: Option<usize>,
    pattern: Option<usize>,
    state: Option<usize>,
    status: Option<usize>,
    failure: Option<bool>,
    key: Option<usize>,
    from: Option<i64>,
    to: Option<i64>,
    limit: u32,
    look_at: u32,
}

fn search_strategy() -> impl Strategy<Value = Search> {
    // Each filter is there once in four times, so that most searches find something and all pairs come.
    fn rarely<S: Strategy>(strategy: S) -> impl Strategy<Value = Option<S::Value>>
    where
        S::Value: Clone,
    {
        proptest::option::weighted(0.25, strategy)
    }
    let which = (rarely(0..3usize), rarely(0..8usize), rarely(0..5usize), rarely(0..5usize), rarely(0..6usize));
    let rest = (rarely(any::<bool>()), rarely(1..3usize), rarely(0..4i64), rarely(1..5i64), 1..5u32, 1..12u32);
    (which, rest).prop_map(|((webhook, event, pattern, state, status), (failure, key, from, to, limit, look_at))| {
        // Every other search may look at everything.
        let look_at = if look_at % 2 == 0 { 1000 } else { look_at };
        Search { webhook, event, pattern, state, status, failure, key, from, to, limit, look_at }
    })
}

/// Runs many random cases, and shrinks one that is answered wrongly.
pub(crate) fn check(run: impl AsyncFn(Case) -> Result<(), TestCaseError>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: CASES, max_shrink_iters: 500, failure_persistence: None, ..Config::default() };
    let events = proptest::collection::vec((0..3usize, 0..3usize, 0..4i64), 1..8);
    let fates = proptest::collection::vec(proptest::collection::vec(0..8usize, 24), 1..3);
    let searches = proptest::collection::vec(search_strategy(), 12);
    let resent = proptest::collection::vec((0..8usize, 0..3usize), 0..4);
    let case = (events, fates, resent, any::<bool>(), searches)
        .prop_map(|(events, fates, resent, deleted, searches)| Case { events, fates, resent, deleted, searches });
    TestRunner::new(config).run(&case, |case| runtime.block_on(run(case))).unwrap();
}

/// Makes the deliveries of a case in `store`, and compares every search.
pub(crate) async fn compare(store: &dyn Store, case: Case) -> Result<(), TestCaseError> {
    create(store, &WEBHOOKS).await;
    let settings = Settings { while_inactive: WhileInactive::Hold, ..Settings::default() };
    store.create_webhook(Webhook { settings, ..webhook("w3") }).await.unwrap();
    set_active(store, "w3", false, 0).await;
    let events: Vec<_> = case.events.iter().enumerate().map(|(n, event)| new_event(n, *event)).collect();
    commit_publish(store, publish(events.clone())).await;
    for (round, fates) in case.fates.iter().enumerate() {
        // Far enough apart for leases to end: what was left under way is taken over, and some retries are due.
        let now = round as i64 * 100;
        for (claimed, fate) in claim(store, "a", now).await.iter().zip(fates) {
            if let Some((outcome, decision)) = FATES.get(*fate) {
                finish(store, claimed, "a", now + i64::from(*fate as u32 % 3), *outcome, *decision).await;
            }
        }
    }
    for key in
        case.resent.iter().map(|(event, webhook)| (event_id(&format!("e'{event}")), webhook_id(WEBHOOKS[*webhook])))
    {
        let key = DeliveryKey { organization: acme(), event: key.0, webhook: key.1 };
        // An event that is not there, or a delivery that waits, is refused; all the same to a search.
        store.resend(&key, at(400)).await.unwrap();
    }
    if case.deleted {
        store.delete_webhook(&acme(), &webhook_id(WEBHOOKS[1]), at(500)).await.unwrap();
    }
    let mut views = Vec::new();
    for event in events {
        let view = store.event(&acme(), &event.id).await.unwrap().unwrap();
        views.extend(view.deliveries.into_iter().map(|delivery| (event.clone(), delivery)));
    }
    for asked in &case.searches {
        let expected = deliveries_by_looking(asked, &views);
        let found = search(store, delivery_search(asked), async || ()).await;
        prop_assert_eq!(&found, &expected, "deliveries of {:?}", asked);
        let expected = lines_by_looking(asked, &views);
        prop_assert_eq!(lines(store, asked).await, expected, "log of {:?}", asked);
    }
    Ok(())
}

fn new_event(number: usize, (event_type, key, seconds): (usize, usize, i64)) -> NewEvent {
    NewEvent {
        event_type: super::fixture::event_type(TYPES[event_type]),
        key: KEYS[key].map(str::to_owned),
        created_at: at(seconds),
        // Ids in another order than time.
        ..event(&format!("e'{number}"))
    }
}

impl Search {
    fn pattern(&self) -> Option<EventPattern> {
        self.pattern.map(|pattern| EventPattern::parse(PATTERNS[pattern]).unwrap())
    }

    fn outcome(&self) -> OutcomeFilter {
        let failure = self.failure.map(|dns| if dns { FailureKind::Dns } else { FailureKind::Timeout });
        OutcomeFilter { status: self.status.and_then(|status| StatusFilter::parse(STATUSES[status])), failure }
    }

    /// The same conditions, in other words than the store's.
    fn takes_type(&self, event_type: &str) -> bool {
        match self.pattern.map(|pattern| PATTERNS[pattern]) {
            None | Some("*") => true,
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(prefix) => event_type.starts_with(prefix),
                None => event_type == pattern,
            },
        }
    }

    fn takes_outcome(&self, outcome: Outcome) -> bool {
        let status = outcome.http_status().to_string();
        let by_status = match self.status.map(|status| STATUSES[status]) {
            None => true,
            Some(wanted) => wanted == status || (wanted.ends_with("xx") && status.starts_with(&wanted[..1])),
        };
        let wanted = self.failure.map(|dns| if dns { FailureKind::Dns } else { FailureKind::Timeout });
        by_status && wanted.is_none_or(|kind| outcome == Outcome::Failed(kind))
    }

    fn takes_time(&self, time: jiff::Timestamp) -> bool {
        self.from.is_none_or(|from| time >= at(from)) && self.to.is_none_or(|to| time < at(to))
    }
}

fn delivery_search(asked: &Search) -> DeliveryQuery {
    DeliveryQuery {
        webhook: asked.webhook.map(|webhook| webhook_id(WEBHOOKS[webhook])),
        event: asked.event.map(|event| event_id(&format!("e'{event}"))),
        event_type: asked.pattern(),
        state: asked.state.map(|state| DeliveryState::ALL[state]),
        last: asked.outcome(),
        key: asked.key.and_then(|key| KEYS[key]).map(str::to_owned),
        from: asked.from.map(at),
        to: asked.to.map(at),
        limit: asked.limit,
        look_at: asked.look_at,
        ..delivery_query()
    }
}

fn deliveries_by_looking(asked: &Search, views: &[(NewEvent, DeliveryView)]) -> Vec<(String, String)> {
    let wanted = |(event, delivery): &&(NewEvent, DeliveryView)| {
        let filtered = asked.status.is_some() || asked.failure.is_some();
        asked.webhook.is_none_or(|webhook| delivery.webhook.as_str() == WEBHOOKS[webhook])
            && asked.event.is_none_or(|number| event.id.as_str() == format!("e'{number}"))
            && asked.takes_type(event.event_type.as_str())
            && asked.state.is_none_or(|state| delivery.state == DeliveryState::ALL[state])
            && (!filtered || delivery.attempts.last().is_some_and(|last| asked.takes_outcome(last.outcome)))
            && asked.key.is_none_or(|key| event.key.as_deref() == KEYS[key])
            && asked.takes_time(event.created_at)
    };
    let mut found: Vec<_> = views.iter().filter(wanted).collect();
    found.sort_by_key(|(event, delivery)| (event.created_at, event.id.clone(), delivery.webhook.clone()));
    found.iter().rev().map(|(event, delivery)| (event.id.to_string(), delivery.webhook.to_string())).collect()
}

async fn lines(store: &dyn Store, asked: &Search) -> Vec<(String, u32)> {
    let mut query = LogQuery {
        event_type: asked.pattern(),
        outcome: asked.outcome(),
        from: asked.from.map(at),
        to: asked.to.map(at),
        look_at: asked.look_at,
        ..log_query(WEBHOOKS[asked.webhook.unwrap_or(0)], None, asked.limit)
    };
    let mut seen = Vec::new();
    loop {
        let found = store.log(query.clone()).await.unwrap();
        let full = found.rows.len() == query.limit as usize;
        let last = found.rows.last().filter(|_| full).map(|line| LogPosition {
            started_at: line.attempt.started_at,
            event: line.event.clone(),
            run: line.attempt.run,
            number: line.attempt.number,
        });
        seen.extend(found.rows.iter().map(|line| (line.event.to_string(), line.attempt.number)));
        let Some(before) = last.or(found.searched_to) else { return seen };
        assert_ne!(query.before.as_ref(), Some(&before), "a search goes on");
        query.before = Some(before);
    }
}

fn lines_by_looking(asked: &Search, views: &[(NewEvent, DeliveryView)]) -> Vec<(String, u32)> {
    let webhook = WEBHOOKS[asked.webhook.unwrap_or(0)];
    let of_webhook = views.iter().filter(|(_, delivery)| delivery.webhook.as_str() == webhook);
    let all = of_webhook.flat_map(|(event, delivery)| delivery.attempts.iter().map(move |attempt| (event, attempt)));
    let mut found: Vec<_> = all
        .filter(|(event, attempt)| {
            asked.takes_type(event.event_type.as_str())
                && asked.takes_outcome(attempt.outcome)
                && asked.takes_time(attempt.started_at)
        })
        .collect();
    found.sort_by_key(|(event, attempt)| (attempt.started_at, event.id.clone(), attempt.number));
    found.iter().rev().map(|(event, attempt)| (event.id.to_string(), attempt.number)).collect()
}
