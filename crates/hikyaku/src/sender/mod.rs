//! The sender: publishes events, claims due deliveries, makes one attempt of each, decides, and writes what came of it.
//!
//! No task and no timer owns a delivery that waits: its next attempt is a due time in the store, and one loop looks
//! there. A publish leases first attempts in its own commit, as far as there are slots, and starts them at once; what
//! it could not lease is simply due. Retries, takeovers and what a restart finds come through the same claim.

mod attempt;
mod metrics;
mod notice;
mod rate;
mod recover;
mod remove;
mod request;
mod run;
mod slots;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::Policy;
use hikyaku_core::ids::{OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;

use crate::clock::SharedClock;
use crate::crash;
use crate::outbound::Transport;
use crate::store::{
    Committer, Due, LEASE_MARGIN, Lease, NewEvent, Publish, PublishOutcome, PublishedEvent, SharedStore, StoreError,
};
use run::Agenda;
use slots::{Permit, Slots};
pub use trial::Trial;

/// How the sender behaves; the defaults are the contract's. Of these, policy, timeout and attempts under way per webhook
/// hold for webhooks that have nothing of their own set.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The pauses between attempts (R7, R8).
    pub policy: Policy,
    /// From the start of an attempt until its status must have come (R4).
    pub attempt_timeout: Duration,
    /// Which addresses may be delivered to (S1-S7).
    pub targets: TargetPolicy,
    /// Attempts under way to one webhook at a time, so that one that hangs costs the others nothing.
    pub in_flight_per_webhook: u32,
    /// Attempts under way in all.
    pub in_flight: u32,
    /// Whether first attempts are made by the process that publishes; if not, they are simply due.
    pub attempts_first: bool,
    /// The longest rest of each loop. What another process left due is found by then, and no clock that jumps can park a
    /// loop.
    pub look_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            attempt_timeout: Duration::from_secs(10),
            targets: TargetPolicy::default(),
            in_flight_per_webhook: 16,
            in_flight: 4096,
            attempts_first: true,
            look_every: Duration::from_secs(1),
        }
    }
}

/// The sender. One per process; any number of processes may share a store.
pub struct Sender {
    store: SharedStore,
    committer: Committer,
    clock: SharedClock,
    transport: Arc<dyn Transport>,
    owner: Arc<str>,
    settings: Settings,
    slots: Arc<Slots>,
    /// Tells the loop to look into the store now. It carries no data.
    wake: Arc<Notify>,
    /// The same for the loop that works recoveries off.
    wake_recoveries: Notify,
    agenda: Agenda,
    /// How many more test deliveries may be under way.
    trials: Semaphore,
    /// Attempts and publishes under way, which a shutdown waits for.
    tasks: TaskTracker,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("owner", &self.owner).field("slots", &self.slots).finish_non_exhaustive()
    }
}

/// What a publish can count on.
struct Reserved {
    /// Slots for first attempts.
    permits: HashMap<WebhookId, Vec<Permit>>,
    /// Deliveries that will probably come of it.
    deliveries: usize,
}

impl Sender {
    /// A sender. `owner` names this process in its leases and must be new at every start. It makes first attempts from
    /// now on; retries need [`Sender::run`].
    pub fn new(
        store: SharedStore,
        committer: Committer,
        clock: SharedClock,
        transport: Arc<dyn Transport>,
        owner: Arc<str>,
        settings: Settings,
    ) -> Arc<Self> {
        metrics::describe();
        let wake = Arc::new(Notify::new());
        let slots = Slots::new(settings.in_flight_per_webhook, settings.in_flight, Arc::clone(&wake), clock.clone());
        Arc::new(Self {
            store,
            committer,
            clock,
            transport,
            owner,
            settings,
            slots,
            wake,
            wake_recoveries: Notify::new(),
            agenda: Agenda::default(),
            trials: Semaphore::new(trial::MAX_TRIALS),
            tasks: TaskTracker::new(),
        })
    }

    /// Stores events of one organization, all or none, with their deliveries, and starts first attempts as far as there
    /// are slots. The lists of leased deliveries in the answer are empty: they are under way.
    ///
    /// # Errors
    /// Those of the commit: after [`StoreError::Unknown`] the events may be stored, and publishing the same ids again
    /// tells.
    pub async fn publish(
        self: &Arc<Self>,
        organization: OrganizationId,
        events: Vec<NewEvent>,
    ) -> Result<PublishOutcome, StoreError> {
        // In a task of its own, because a caller that goes away would take along the leases of a commit that goes on.
        let sender = Arc::clone(self);
        let publish = self.tasks.spawn(async move { sender.publish_and_start(organization, events).await });
        publish.await.unwrap_or_else(|error| Err(StoreError::Unknown(format!("the publish was cut off: {error}"))))
    }

    /// Tells the loop to look into the store now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Tells whoever delivers, here and elsewhere, that something is due which nobody has leased.
    fn announce(&self) {
        self.wake();
        self.store.nudge(Due::Deliveries);
    }

    async fn publish_and_start(
        self: Arc<Self>,
        organization: OrganizationId,
        events: Vec<NewEvent>,
    ) -> Result<PublishOutcome, StoreError> {
        let Reserved { mut permits, deliveries } = self.reserve(&organization, &events).await?;
        let room = permits.iter().map(|(webhook, permits)| (webhook.clone(), count(permits))).collect();
        let (lease, due_at) = (self.lease(), self.clock.schedule());
        crash::point("publish.asked");
        let publish = Publish { organization, events, due_at, lease, room, about: None };
        let mut outcome = self.committer.publish(publish, deliveries).await?;
        crash::point("publish.committed");
        if let PublishOutcome::Stored(events) = &mut outcome {
            for event in events {
                self.start_first_attempts(event, &mut permits, due_at);
            }
        }
        Ok(outcome)
    }

    /// Reserves slots for as many first attempts as these events may bring.
    async fn reserve(&self, organization: &OrganizationId, events: &[NewEvent]) -> Result<Reserved, StoreError> {
        let mut reserved = Reserved { permits: HashMap::new(), deliveries: 0 };
        for webhook in self.store.webhooks(organization).await?.iter() {
            let wanted = events.iter().filter(|event| webhook.takes(event.event_type.as_str())).count();
            reserved.deliveries += wanted;
            if !self.settings.attempts_first {
                continue;
            }
            let permits = self.slots.reserve(webhook, u32::try_from(wanted).unwrap_or(u32::MAX));
            if !permits.is_empty() {
                reserved.permits.insert(webhook.id.clone(), permits);
            }
        }
        Ok(reserved)
    }

    fn start_first_attempts(
        self: &Arc<Self>,
        event: &mut PublishedEvent,
        permits: &mut HashMap<WebhookId, Vec<Permit>>,
        asked: Timestamp,
    ) {
        let leased = std::mem::take(&mut event.leased);
        if !event.repeated && event.deliveries > count(&leased) {
            self.announce();
        }
        for delivery in leased {
            match permits.get_mut(&delivery.key.webhook).and_then(Vec::pop) {
                Some(permit) => self.start(delivery, permit, asked),
                // The lease will end, and a claim will take it over.
                None => {
                    tracing::error!(webhook = %delivery.key.webhook, "the store leased more than there was room for")
                }
            }
        }
    }

    fn lease(&self) -> Lease {
        Lease { owner: Arc::clone(&self.owner), duration: self.settings.attempt_timeout + LEASE_MARGIN }
    }

    /// From the start of an attempt at this webhook until its status must have come.
    fn timeout(&self, webhook: &Webhook) -> Duration {
        webhook.settings.timeout.map_or(self.settings.attempt_timeout, |timeout| timeout.get())
    }

    /// When the lease of a delivery ends that was asked for at `asked`: not later than the store thinks.
    fn lease_until(&self, asked: Timestamp, webhook: &Webhook) -> Timestamp {
        asked.checked_add(self.lease().duration_for(webhook)).unwrap_or(Timestamp::MAX)
    }
}

fn count<T>(list: &[T]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
