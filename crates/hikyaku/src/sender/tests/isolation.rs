//! Many webhooks that never answer, with a long queue each, beside many that do: on SQLite, in virtual time. The store
//! takes none of it, so what is measured is who waits for whom.

use std::collections::BTreeSet;

use hikyaku_core::retry::RetrySchedule;
use tempfile::TempDir;

use super::*;
use crate::store::seal::Seal;
use crate::store::sqlite::SqliteStore;
use crate::store::{Group, LEASE_MARGIN, Lease, Publish};

const GOOD: usize = 4_500;
const DEAD: usize = 500;
/// Organizations that the good ones belong to; the dead ones are all of one.
const ORGANIZATIONS: usize = 10;
/// Deliveries that wait for each of the dead ones; 100,000 in all.
const WAITING_EACH: usize = 200;
/// For how long good webhooks are published to, and how much.
const TICKS: usize = 110;
const TICK: Duration = Duration::from_millis(100);
const EVENTS_PER_TICK: usize = 10;
/// From a good webhook's first attempt to its second.
const RETRY_DELAY: Duration = Duration::from_secs(3);

/// Good webhooks answer after 50 ms, and every fourth event with an error at first. Dead ones never do.
struct Endpoints {
    clock: Arc<TestClock>,
    /// When each attempt at a good webhook began, by event.
    began: Mutex<HashMap<String, Vec<Duration>>>,
    dead: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Transport for Endpoints {
    async fn post(&self, request: Request) -> Response {
        let host = request.url.host_str().unwrap().to_owned();
        let (after, outcome) = if host.starts_with("dead") {
            self.dead.lock().unwrap().insert(host);
            (request.timeout, Outcome::Failed(FailureKind::Timeout))
        } else {
            let event = request.headers["x-rr-delivery"].to_str().unwrap().to_owned();
            let mut began = self.began.lock().unwrap();
            let attempts = began.entry(event.clone()).or_default();
            attempts.push(self.clock.elapsed());
            let fails = fails_at_first(&event) && attempts.len() == 1;
            (Duration::from_millis(50), Outcome::Answered(if fails { 500 } else { 200 }))
        };
        sleep(after).await;
        Response { outcome, error: String::new(), headers: HeaderMap::new(), body: Bytes::new(), duration: after }
    }
}

fn fails_at_first(event: &str) -> bool {
    event.ends_with(['0', '4', '8'])
}

fn taker(organization: OrganizationId, name: &str, event_type: &str) -> Webhook {
    let events = vec![EventPattern::parse(event_type).unwrap()];
    Webhook { organization, events, ..webhook(name, webhook::Settings::default()) }
}

/// The organization of a good webhook.
fn owner_of(good: usize) -> OrganizationId {
    OrganizationId::parse(format!("shop{}", good % ORGANIZATIONS)).unwrap()
}

fn of_type(id: &str, event_type: &str) -> NewEvent {
    NewEvent { event_type: EventType::parse(event_type).unwrap(), ..event(id) }
}

/// A store with all those webhooks, and 100,000 deliveries that are due to the dead ones.
async fn store_with_a_backlog(clock: &TestClock) -> (Arc<SqliteStore>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("hikyaku.db"), Seal::default(), clock).unwrap();
    for n in 0..DEAD {
        store.create_webhook(taker(organization(), &format!("dead{n}"), "flood.*")).await.unwrap();
    }
    for group in 0..WAITING_EACH / 20 {
        let events = (0..20).map(|n| of_type(&format!("old{}", group * 20 + n), "flood.came")).collect();
        let lease = Lease { owner: "nobody".into(), duration: LEASE_MARGIN };
        let (organization, due_at, room, about) = (organization(), clock.schedule(), HashMap::new(), None);
        let publish = Publish { organization, events, due_at, lease, room, about };
        store.commit(Group { publish: vec![publish], ..Group::default() }).await.unwrap();
    }
    for n in 0..GOOD {
        let good = taker(owner_of(n), &format!("good{n}"), &format!("ping.to{n}"));
        store.create_webhook(good).await.unwrap();
    }
    (Arc::new(store), directory)
}

/// Publishes events, each to one good webhook, and gives when each was.
async fn publish_to_good_ones(sender: &Arc<Sender>, clock: &TestClock) -> HashMap<String, Duration> {
    let mut published = HashMap::new();
    for tick in 0..TICKS {
        for n in 0..EVENTS_PER_TICK {
            let number = tick * EVENTS_PER_TICK + n;
            let to = number * 7 % GOOD;
            let (id, event_type) = (format!("new{number}"), format!("ping.to{to}"));
            published.insert(id.clone(), clock.elapsed());
            sender.publish(owner_of(to), vec![of_type(&id, &event_type)]).await.unwrap();
        }
        sleep(TICK).await;
    }
    published
}

#[tokio::test(start_paused = true)]
async fn case14_isolation_a_tenth_of_5000_webhooks_hangs_and_the_others_start_within_a_second() {
    let clock = TestClock::start();
    let (store, _directory) = store_with_a_backlog(&clock).await;
    assert_eq!(store.backlog().await.unwrap().deliveries, (DEAD * WAITING_EACH) as u64);
    let (began, dead) = Default::default();
    let endpoints = Arc::new(Endpoints { clock: clock.clone(), began, dead });
    let mut settings = Settings::default();
    settings.policy.schedule = RetrySchedule::new(vec![RETRY_DELAY; 3]).unwrap();
    let committer = Committer::start(store.clone());
    let sender = Sender::new(store, committer, clock.clone(), endpoints.clone(), "owner".into(), settings);
    let stop = CancellationToken::new();
    let running = tokio::spawn(sender.clone().run(stop.clone()));

    let published = publish_to_good_ones(&sender, &clock).await;
    sleep(RETRY_DELAY * 2).await;
    let mut late = Vec::new();
    let began = endpoints.began.lock().unwrap().clone();
    for (event, published) in &published {
        let attempts = began.get(event).unwrap_or_else(|| panic!("{event} was never sent"));
        assert_eq!(attempts.len(), if fails_at_first(event) { 2 } else { 1 }, "{event}");
        late.push(attempts[0] - *published);
        let retry_due = attempts[0] + Duration::from_millis(50) + RETRY_DELAY;
        late.extend(attempts.get(1).map(|retry| *retry - retry_due));
    }
    late.sort_unstable();
    let p99 = late[late.len() * 99 / 100];
    assert!(p99 <= secs(1), "{p99:?}");
    assert_eq!(endpoints.dead.lock().unwrap().len(), DEAD, "every dead one has had its turn");
    stop.cancel();
    running.await.unwrap();
}
