//! Stores that hold much already, filled by the program's own code.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hikyaku::clock::{self, Clock, SystemClock};
use hikyaku::store::seal::Seal;
use hikyaku::store::sqlite::SqliteStore;
use hikyaku::store::{
    AttemptRecord, ClaimedDelivery, FinishAttempt, Group, Lease, NewEvent, NewRow, Publish, PublishOutcome, Store,
};
use hikyaku_core::delivery::{Decision, Outcome};
use hikyaku_core::envelope::business_key;
use hikyaku_core::event::{EventType, content_hash, render_body};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::Version;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use crate::Error;
use crate::rows::data;
use crate::server::ORGANIZATION;

/// How many are written in one transaction.
const GROUP: u64 = 500;
/// Over how long a history extends: less than it is kept.
const HISTORY: SignedDuration = SignedDuration::from_hours(20 * 24);

/// A store whose program does not run.
pub(crate) struct Stock {
    store: SqliteStore,
    clock: SystemClock,
    organization: OrganizationId,
    lease: Lease,
}

impl Stock {
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let clock = SystemClock::start();
        let store = SqliteStore::open(&dir.join("hikyaku.db"), Seal::default(), &clock)?;
        let organization = OrganizationId::parse(ORGANIZATION)?;
        let lease = Lease { owner: "stock".into(), duration: Duration::from_secs(20) };
        Ok(Self { store, clock, organization, lease })
    }

    /// Events that wait for their first attempt.
    pub(crate) async fn waiting(&self, event_type: &str, count: u64) -> Result<(), Error> {
        for first in (0..count).step_by(GROUP as usize) {
            let events = self.events(event_type, first..count.min(first + GROUP), count)?;
            self.publish(events, HashMap::new(), Vec::new()).await?;
        }
        Ok(self.store.close().await?)
    }

    /// Events that were delivered to `webhook`, over the last days.
    pub(crate) async fn delivered(&self, event_type: &str, webhook: &str, count: u64) -> Result<(), Error> {
        let webhook = WebhookId::parse(webhook)?;
        let mut leased = Vec::new();
        for first in (0..count).step_by(GROUP as usize) {
            let events = self.events(event_type, first..count.min(first + GROUP), count)?;
            let room = HashMap::from([(webhook.clone(), u32::MAX)]);
            leased = self.publish(events, room, std::mem::take(&mut leased)).await?;
        }
        self.publish(Vec::new(), HashMap::new(), leased).await?;
        Ok(self.store.close().await?)
    }

    /// Received deliveries of ReceiptRoller's with random ids; without a route they are parked.
    pub(crate) async fn received(&self, route: Option<&str>, count: u64) -> Result<(), Error> {
        for first in (0..count).step_by(GROUP as usize) {
            let rows = first..count.min(first + GROUP);
            let record = rows.map(|_| self.row(route)).collect();
            self.store.commit(Group { record, ..Group::default() }).await?;
        }
        Ok(self.store.close().await?)
    }

    fn events(&self, event_type: &str, numbers: std::ops::Range<u64>, of: u64) -> Result<Vec<NewEvent>, Error> {
        let now = self.clock.now();
        let event_type = EventType::parse(event_type)?;
        let event = |number: u64| {
            let age = HISTORY.mul_f64((of - number) as f64 / of as f64);
            let at = now.checked_sub(age)?;
            let id = EventId::generate(at, clock::random());
            let data = RawValue::from_string(data(id.as_str()))?;
            let body = render_body(&id, &event_type, at, &data);
            Ok(NewEvent {
                event_type: event_type.clone(),
                timestamp: at,
                created_at: at,
                key: business_key(&data),
                content_hash: content_hash(&event_type, &data, None),
                body,
                id,
            })
        };
        numbers.map(event).collect()
    }

    /// Publishes events, and ends what an earlier publish has leased.
    async fn publish(
        &self,
        events: Vec<NewEvent>,
        room: HashMap<WebhookId, u32>,
        leased: Vec<ClaimedDelivery>,
    ) -> Result<Vec<ClaimedDelivery>, Error> {
        let (organization, due_at, lease) = (self.organization.clone(), self.clock.schedule(), self.lease.clone());
        let publish = vec![Publish { organization, events, due_at, lease, room, about: None }];
        let finish_attempts = leased.into_iter().map(|delivery| delivered(delivery, &self.lease.owner)).collect();
        let outcome = self.store.commit(Group { finish_attempts, publish, ..Group::default() }).await?;
        let mut leased = Vec::new();
        for outcome in outcome.publish {
            match outcome {
                PublishOutcome::Stored(events) => leased.extend(events.into_iter().flat_map(|event| event.leased)),
                PublishOutcome::Conflict(id) => return Err(format!("{id} is there already").into()),
            }
        }
        Ok(leased)
    }

    fn row(&self, route: Option<&str>) -> NewRow {
        let (now, id) = (self.clock.now(), random_id());
        let body = received(&id);
        NewRow {
            organization: self.organization.clone(),
            provider: "receiptroller".into(),
            source: "receiptroller".into(),
            version: Version::new(now, RECEIVED_TYPE, id.as_str()),
            event_type: RECEIVED_TYPE.into(),
            key: id.clone(),
            body: body.into(),
            received_at: now,
            due_at: self.clock.schedule(),
            routes: route.map(str::to_owned).into_iter().collect(),
            park_reason: if route.is_none() { "no route".into() } else { String::new() },
            delivery: id,
        }
    }
}

/// What the inbox gets.
pub(crate) const RECEIVED_TYPE: &str = "sale.created";

/// A delivery's body as ReceiptRoller sends it.
pub(crate) fn received(id: &str) -> String {
    let at = "2026-11-30T09:15:00.000Z";
    format!(r#"{{"id":"{id}","type":"{RECEIVED_TYPE}","timestamp":"{at}","data":{}}}"#, data(id))
}

/// An id as providers make them: in no order.
pub(crate) fn random_id() -> String {
    format!("{:032x}", fastrand::u128(..))
}

fn delivered(delivery: ClaimedDelivery, owner: &Arc<str>) -> FinishAttempt {
    let attempt = AttemptRecord {
        run: delivery.run,
        number: delivery.attempt,
        started_at: Timestamp::from_millisecond(delivery.due_at.as_millisecond()).unwrap_or(delivery.due_at),
        duration: Duration::from_millis(2),
        outcome: Outcome::Answered(200),
        error: String::new(),
        response_body: bytes::Bytes::new(),
    };
    let (key, created_at, owner) = (delivery.key, delivery.created_at, Arc::clone(owner));
    FinishAttempt { key, created_at, owner, attempt, decision: Decision::Delivered, notices: None }
}
