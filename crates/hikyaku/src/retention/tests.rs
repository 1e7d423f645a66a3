use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use hikyaku_core::event::{EventPattern, EventType};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::Version;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Webhook, WebhookUrl};
use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::*;
use crate::clock::SystemClock;
use crate::store::memory::{Fault, MemoryStore, Operation};
use crate::store::{Group, Lease, NewEvent, NewRow, Publish, RecordOutcome, Store};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Retention at work on a memory store, in virtual time.
struct Fixture {
    store: Arc<MemoryStore>,
    clock: SharedClock,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Fixture {
    /// Starts over a store that holds `old` events of 31 days.
    async fn start(settings: Settings, old: usize) -> Self {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SystemClock::start()) as SharedClock);
        let created_at = clock.schedule().checked_sub(31 * DAY).unwrap();
        let ids: Vec<_> = (0..old).map(old_id).collect();
        publish(&*store, &ids, created_at).await;
        let stop = CancellationToken::new();
        let retention = Retention::new(Arc::clone(&store) as SharedStore, Arc::clone(&clock), settings);
        let running = tokio::spawn(retention.run(stop.clone()));
        Self { store, clock, stop, running }
    }

    async fn exists(&self, id: &str) -> bool {
        self.store.event(&organization(), &EventId::parse(id).unwrap()).await.unwrap().is_some()
    }

    async fn record(&self, id: &str, age: Duration) -> RecordOutcome {
        let came = self.clock.schedule().checked_sub(age).unwrap();
        let row = NewRow {
            organization: organization(),
            provider: "receiptroller".into(),
            source: "shop".into(),
            delivery: id.into(),
            event_type: String::new(),
            version: Version::new(came, "", id),
            key: String::new(),
            body: Bytes::new(),
            received_at: came,
            due_at: came,
            routes: Vec::new(),
            park_reason: "noRoute".into(),
        };
        self.store.commit(Group { record: vec![row], ..Group::default() }).await.unwrap().record[0]
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

fn organization() -> OrganizationId {
    OrganizationId::parse("shop").unwrap()
}

fn old_id(number: usize) -> String {
    format!("old{number:05}")
}

async fn publish(store: &dyn Store, ids: &[String], created_at: Timestamp) {
    let event = |id: &String| NewEvent {
        id: EventId::parse(id).unwrap(),
        event_type: EventType::parse("sale.created").unwrap(),
        timestamp: created_at,
        created_at,
        key: None,
        content_hash: [0; 32],
        body: Bytes::new(),
    };
    let lease = Lease { owner: "test".into(), duration: Duration::from_secs(20) };
    let events = ids.iter().map(event).collect();
    let publish =
        Publish { organization: organization(), events, due_at: created_at, lease, room: HashMap::new(), about: None };
    store.commit(Group { publish: vec![publish], ..Group::default() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn traffic_goes_on_between_the_steps() {
    const STEPS: usize = 8;
    let all = STEPS * MAX_STEP_ROWS as usize;
    let fixture = Fixture::start(Settings::default(), all).await;
    let mut left = BTreeSet::new();
    let mut published = 0;
    while fixture.exists(&old_id(all - 1)).await {
        sleep(Duration::from_millis(1)).await;
        publish(&*fixture.store, &[format!("new{published}")], fixture.clock.now()).await;
        published += 1;
        let mut first = 0;
        while first < all && !fixture.exists(&old_id(first)).await {
            first += 100;
        }
        left.insert(first);
    }
    // Something was committed between any two steps: the number of events that are left was seen after each of them.
    assert!(left.len() >= STEPS && published >= STEPS, "{left:?}");
    assert!(fixture.exists("new0").await);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn s15_a_secret_is_forgotten_soon_after_its_overlap_whatever_is_kept() {
    let fixture = Fixture::start(Settings { events: None, inbox: None, ids: None, versions: None }, 0).await;
    let secret = |text: &str| Secret::new(format!("a secret of more than 24 bytes: {text}"));
    let mut webhook = Webhook {
        organization: organization(),
        id: WebhookId::parse("w").unwrap(),
        url: WebhookUrl::parse("https://shop.example/").unwrap(),
        events: vec![EventPattern::All],
        description: String::new(),
        secret: secret("old"),
        previous_secret: None,
        off: None,
        exhausted: 0,
        settings: hikyaku_core::webhook::Settings::default(),
        created_at: fixture.clock.now(),
    };
    // The wall clock stands still in a test, so the rotations lie in the past.
    let rotated_at = fixture.clock.now().checked_sub(2 * ROUND_PAUSE).unwrap();
    for (id, overlap) in [("over", ROUND_PAUSE), ("good", DAY)] {
        webhook.id = WebhookId::parse(id).unwrap();
        let mut rotated = webhook.clone();
        rotated.rotate_secret(secret("new"), overlap, rotated_at);
        assert!(rotated.previous_secret.is_some());
        fixture.store.create_webhook(rotated).await.unwrap();
    }
    sleep(2 * ROUND_PAUSE).await;
    for webhook in fixture.store.webhooks(&organization()).await.unwrap().iter() {
        assert_eq!(webhook.previous_secret.is_some(), webhook.id.as_str() == "good", "{}", webhook.id);
    }
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn never_means_never() {
    let fixture = Fixture::start(Settings { events: None, inbox: None, ids: None, versions: None }, 3).await;
    fixture.record("d", 100 * DAY).await;
    sleep(DAY).await;
    assert!(fixture.exists(&old_id(0)).await);
    assert_eq!(fixture.record("d", DAY).await, RecordOutcome::Duplicate);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_round_that_failed_is_made_again() {
    let fixture = Fixture::start(Settings::default(), 1).await;
    let away = || Fault::Before(StoreError::Unavailable("planted".into()));
    fixture.store.fail_next(Operation::DropAged, away());
    fixture.store.fail_next(Operation::DropAged, away());
    sleep(ROUND_PAUSE / 2).await;
    assert!(fixture.exists(&old_id(0)).await);
    sleep(ROUND_PAUSE).await;
    assert!(!fixture.exists(&old_id(0)).await);
    fixture.end().await;
}

/// The shortest age that can be set still knows every id that a provider may send again.
#[tokio::test(start_paused = true)]
async fn case26_an_id_is_known_for_as_long_as_it_may_come_again() {
    let fixture =
        Fixture::start(Settings { events: None, inbox: Some(MIN_AGE), ids: Some(MIN_AGE), versions: None }, 0).await;
    assert_eq!(fixture.record("d", Duration::ZERO).await, RecordOutcome::Stored);
    sleep(MIN_AGE - Duration::from_secs(1)).await;
    assert_eq!(fixture.record("d", Duration::ZERO).await, RecordOutcome::Duplicate);
    sleep(ROUND_PAUSE + Duration::from_secs(2)).await;
    assert_eq!(fixture.record("d", Duration::ZERO).await, RecordOutcome::Stored, "it was old, and it was dropped");
    fixture.end().await;
}

/// Bodies may go early, and the ids stay for their own time (C7).
#[tokio::test(start_paused = true)]
async fn c7_an_id_outlives_its_row() {
    let settings = Settings { inbox: Some(MIN_AGE), ..Settings::default() };
    let fixture = Fixture::start(settings, 0).await;
    fixture.record("d", Duration::ZERO).await;
    let row = async || fixture.store.inbox_row(&organization(), "receiptroller", "d").await.unwrap();
    sleep(MIN_AGE + 2 * ROUND_PAUSE).await;
    assert!(row().await.is_none());
    sleep(DEFAULT_ID_AGE - MIN_AGE - 4 * ROUND_PAUSE).await;
    assert_eq!(fixture.record("d", Duration::ZERO).await, RecordOutcome::Duplicate);
    sleep(4 * ROUND_PAUSE).await;
    assert_eq!(fixture.record("d", Duration::ZERO).await, RecordOutcome::Stored);
    fixture.end().await;
}
