//! What goes into the store and what comes out of it.

mod duty;
mod intervention;
mod notice;
mod outage;
mod reconcile;
mod recovery;
mod retention;
mod search;
mod tokens;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, DeliveryState, History, Outcome};
use hikyaku_core::event::{CONTENT_HASH_BYTES, EventPattern, EventType};
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::Version;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Setting, Webhook, WebhookUrl};
use jiff::Timestamp;

pub use duty::DutyClaim;
pub use intervention::*;
pub use notice::{FinishNotices, SwitchNotice};
pub use outage::{Beat, Outage, OutageQuery};
pub use reconcile::*;
pub use recovery::*;
pub use retention::*;
pub use search::*;
pub use tokens::TokenQuery;

/// A lease to take: by whom, and for how long from now. A store with a clock of its own measures by that one.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The process that takes it; new at every start.
    pub owner: Arc<str>,
    /// How long nobody else may act.
    pub duration: Duration,
}

/// Most rows that are cancelled in one commit when a webhook is removed: a few milliseconds of the store's time.
pub const MAX_REMOVED_AT_ONCE: u32 = 500;

/// How much longer a lease lasts than an attempt may: for the commit that takes it to be answered, and for the result
/// to be written although the store is slow or away for a moment.
pub const LEASE_MARGIN: Duration = Duration::from_secs(10);

impl Lease {
    /// For how long a delivery to `webhook` is leased: long enough for an attempt that it gives more time to.
    pub fn duration_for(&self, webhook: &Webhook) -> Duration {
        let own = webhook.settings.timeout.map(|timeout| timeout.get() + LEASE_MARGIN);
        own.map_or(self.duration, |own| own.max(self.duration))
    }
}

/// Writes that share one transaction. The parts are applied in the order of the fields.
#[derive(Debug, Default)]
pub struct Group {
    /// Attempts that have ended.
    pub finish_attempts: Vec<FinishAttempt>,
    /// Inbox work that has ended.
    pub finish_lanes: Vec<FinishLane>,
    /// Events that are published.
    pub publish: Vec<Publish>,
    /// Deliveries that are received.
    pub record: Vec<NewRow>,
}

/// The answers to a [`Group`], part by part and position by position.
#[derive(Debug, Default)]
pub struct GroupOutcome {
    /// One answer per finished attempt.
    pub finish_attempts: Vec<FinishOutcome>,
    /// One answer per finished lane.
    pub finish_lanes: Vec<FinishOutcome>,
    /// One answer per publish.
    pub publish: Vec<PublishOutcome>,
    /// One answer per received delivery.
    pub record: Vec<RecordOutcome>,
}

/// Events of one organization to be stored together: all or none.
#[derive(Debug, Clone)]
pub struct Publish {
    /// Whose events.
    pub organization: OrganizationId,
    /// The events, with different ids.
    pub events: Vec<NewEvent>,
    /// The schedule clock: first attempts are due from here on.
    pub due_at: Timestamp,
    /// The lease under which this process attempts the first deliveries itself.
    pub lease: Lease,
    /// For how many deliveries per webhook this process has room now. So many are leased in the same commit and handed
    /// back, in the order of `events`; the rest is simply due.
    pub room: HashMap<WebhookId, u32>,
    /// The webhook that the events are about; it gets none of them, nor misses them.
    pub about: Option<WebhookId>,
}

/// An event, ready to be stored.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it is sent out (R20), by the wall clock or as the publisher said.
    pub timestamp: Timestamp,
    /// When it was published, by the wall clock: its place in searches, and what it ages from.
    pub created_at: Timestamp,
    /// The business key, if the data has one (R24).
    pub key: Option<String>,
    /// Tells a repeated publish from a conflicting one.
    pub content_hash: [u8; CONTENT_HASH_BYTES],
    /// The one body (R9).
    pub body: Bytes,
}

/// What became of a [`Publish`].
#[derive(Debug, Clone)]
pub enum PublishOutcome {
    /// All events are stored, now or before.
    Stored(Vec<PublishedEvent>),
    /// The id is taken by an event with other content; nothing of this publish was written.
    Conflict(EventId),
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct PublishedEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it is sent out; of a repeated one, the first answer's.
    pub timestamp: Timestamp,
    /// To how many webhooks it goes: those that subscribe to its type and were active at the commit, or have their
    /// events held while they are off.
    pub deliveries: u32,
    /// Whether it was stored before, so that nothing was written now.
    pub repeated: bool,
    /// First attempts that this process has leased in the same commit.
    pub leased: Vec<ClaimedDelivery>,
}

/// A delivery under lease, with all that an attempt needs.
#[derive(Debug, Clone)]
pub struct ClaimedDelivery {
    /// Which delivery.
    pub key: DeliveryKey,
    /// Which run: the publish began the first one, and each later one was asked for.
    pub run: u32,
    /// The attempt of the run that the lease is for, from 1. With the run and the owner it is the lease's token.
    pub attempt: u32,
    /// The attempts of this run that ended before.
    pub history: History,
    /// `Some` when `attempt` was begun by an owner whose lease has ended without a word: that attempt must be finished
    /// as interrupted, not sent again, since it may have arrived. It holds when that attempt began: the claim's `at`, or
    /// the publish's `due_at` where the publish took the lease.
    pub interrupted: Option<Timestamp>,
    /// From when on it could have been taken, by the schedule clock.
    pub due_at: Timestamp,
    /// When the first attempt of this run began, by the wall clock; only of a later one, and only where the webhook has a secret from
    /// before a rotation (T8).
    pub first_attempt_at: Option<Timestamp>,
    /// The event's type.
    pub event_type: EventType,
    /// The event's body.
    pub body: Bytes,
    /// The webhook as it is now: a retry goes to the present URL.
    pub webhook: Arc<Webhook>,
}

/// Which deliveries to take.
#[derive(Debug, Clone)]
pub struct DeliveryClaim {
    /// The lease to take them under.
    pub lease: Lease,
    /// The schedule clock.
    pub now: Timestamp,
    /// The wall clock: when the attempts of this claim begin.
    pub at: Timestamp,
    /// Slots of a webhook that is not in `slots` and has no cap and no rate of its own; of one that has, its
    /// `Settings::claim_share`.
    pub slots_each: u32,
    /// The most of a webhook that is not in `slots`, whatever it has set.
    pub most_each: u32,
    /// Free slots of those webhooks that have some in use; may be 0.
    pub slots: HashMap<(OrganizationId, WebhookId), u32>,
    /// The most deliveries to take in all, at least 1.
    pub limit: u32,
    /// Where the last claim stopped for its limit: webhooks after this one come first.
    pub after: Option<(OrganizationId, WebhookId)>,
}

/// What a claim of deliveries brought.
#[derive(Debug, Clone, Default)]
pub struct DeliveryClaims {
    /// The deliveries taken.
    pub deliveries: Vec<ClaimedDelivery>,
    /// When the earliest delivery is due, by the schedule clock, of the webhooks of which nothing is due any more. Leased
    /// ones, those of this claim included, count as due when their lease ends.
    pub next_due: Option<Timestamp>,
    /// Webhooks of which more is due than there were slots for, as far as the claim came.
    pub saturated: Vec<(OrganizationId, WebhookId)>,
    /// The last webhook that was served, if the claim reached its limit; to be passed as `after`.
    pub stopped_at: Option<(OrganizationId, WebhookId)>,
}

/// An attempt that has ended, to be written under its lease.
#[derive(Debug, Clone)]
pub struct FinishAttempt {
    /// Which delivery.
    pub key: DeliveryKey,
    /// Who held the lease. A lease that has ended but that nobody took over is still held.
    pub owner: Arc<str>,
    /// What is written into the log. A webhook that this switches off is off since the attempt's end.
    pub attempt: AttemptRecord,
    /// What follows.
    pub decision: Decision,
    /// What is published in the same commit if the delivery is exhausted by this; of a lost lease nothing is.
    pub notices: Option<Box<FinishNotices>>,
}

/// One line of the delivery log: one HTTP request, or one that never came to be (R6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Of which run, from 1.
    pub run: u32,
    /// Which attempt of the run, from 1.
    pub number: u32,
    /// When it began, by the wall clock.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration: Duration,
    /// What it came to.
    pub outcome: Outcome,
    /// For people: what went wrong, without secrets. Empty after an answer.
    pub error: String,
    /// The first bytes of the response, at most `MAX_RESPONSE_BODY_BYTES`.
    pub response_body: Bytes,
}

/// What became of a finish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishOutcome {
    /// It is written and has taken effect.
    Applied {
        /// Whether this very finish switched the webhook off.
        switched_off: bool,
    },
    /// The lease was lost, or the delivery ended otherwise: no state has changed. What an attempt came to is kept in
    /// the log all the same, once per run and number: the first word on a number stays, except that "interrupted" gives
    /// way to what a late finish tells.
    LeaseLost,
}

/// What may change of a webhook; `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct WebhookChange {
    /// The new URL.
    pub url: Option<WebhookUrl>,
    /// The new patterns.
    pub events: Option<Vec<EventPattern>>,
    /// The new description.
    pub description: Option<String>,
    /// On or off.
    pub active: Option<bool>,
    /// Settings with their new values.
    pub settings: Vec<Setting>,
    /// A new secret.
    pub rotation: Option<Rotation>,
    /// What is published in the same commit if the change switches the webhook on or off.
    pub notice: Option<SwitchNotice>,
}

/// A new secret for a webhook.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// The secret.
    pub secret: Secret,
    /// How long the one before it stays good.
    pub overlap: Duration,
}

impl WebhookChange {
    /// The webhook as it is after this change, made at `at` by the wall clock.
    pub fn apply(self, mut webhook: Webhook, at: Timestamp) -> Webhook {
        let Self { url, events, description, active, settings, rotation, notice: _ } = self;
        webhook.forget_secrets(at);
        webhook.url = url.unwrap_or(webhook.url);
        webhook.events = events.unwrap_or(webhook.events);
        webhook.description = description.unwrap_or(webhook.description);
        if let Some(active) = active {
            webhook.set_active(active, at);
        }
        settings.into_iter().for_each(|setting| webhook.settings.set(setting));
        if let Some(Rotation { secret, overlap }) = rotation {
            webhook.rotate_secret(secret, overlap, at);
        }
        webhook
    }
}

/// An event as it stands.
#[derive(Debug, Clone)]
pub struct EventView {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it was sent out.
    pub timestamp: Timestamp,
    /// When it was published, by the wall clock.
    pub created_at: Timestamp,
    /// The body that goes to every webhook.
    pub body: Bytes,
    /// Its deliveries, by webhook id; held ones are among them.
    pub deliveries: Vec<DeliveryView>,
    /// The webhooks that missed it and have not got it since, by id.
    pub missed: Vec<Missed>,
}

/// A delivery as it stands.
#[derive(Debug, Clone)]
pub struct DeliveryView {
    /// To which webhook.
    pub webhook: WebhookId,
    /// Where it stands.
    pub state: DeliveryState,
    /// The present run, or the last one.
    pub run: u32,
    /// When the next attempt is due (schedule clock); only while it waits and none is under way.
    pub next_attempt_at: Option<Timestamp>,
    /// Whether an attempt is under way now.
    pub in_flight: bool,
    /// Why it was cancelled; empty otherwise.
    pub reason: String,
    /// The attempts that ended, in their order.
    pub attempts: Vec<AttemptRecord>,
}

/// One line of a webhook's log.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Of which event.
    pub event: EventId,
    /// The event's type.
    pub event_type: EventType,
    /// The attempt.
    pub attempt: AttemptRecord,
}

/// A received delivery, ready to be stored: the deduplication record and the saved work in one (T1).
#[derive(Debug, Clone)]
pub struct NewRow {
    /// Whose.
    pub organization: OrganizationId,
    /// From which provider: ids are unique per organization and provider, over all of its sources (C9).
    pub provider: String,
    /// Through which source.
    pub source: String,
    /// The provider's id of the delivery (C5).
    pub delivery: String,
    /// The event's type, as the provider wrote it; empty if not known.
    pub event_type: String,
    /// The event's place in its object's history.
    pub version: Version,
    /// The business key; empty if not known.
    pub key: String,
    /// The bytes as they came.
    pub body: Bytes,
    /// When it came, by the wall clock.
    pub received_at: Timestamp,
    /// The schedule clock: its work is due from here on.
    pub due_at: Timestamp,
    /// Which routes take it, each once; none: it is parked.
    pub routes: Vec<String>,
    /// Why no route takes it; empty where one does.
    pub park_reason: String,
}

/// What became of a received delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOutcome {
    /// It is stored.
    Stored,
    /// Its id was stored before (C6, C12); nothing was written.
    Duplicate,
}

/// The queue of one business key within one route: its rows take effect one after another. A row without a key has a
/// lane of its own, named by its delivery id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// Whose.
    pub organization: OrganizationId,
    /// Which route.
    pub route: String,
    /// The provider of the lane's rows.
    pub provider: String,
    /// The business key: `k:` and the key, or `d:` and the delivery id of a row without one.
    pub lane: String,
}

impl LaneKey {
    /// The lane in which a row takes effect through `route`.
    pub fn of(row: &NewRow, route: &str) -> Self {
        Self::in_route(&row.organization, route, &row.provider, &row.key, &row.delivery)
    }

    /// The lane in which a delivery of this business key (or with an empty one) takes effect through `route`.
    pub fn in_route(organization: &OrganizationId, route: &str, provider: &str, key: &str, delivery: &str) -> Self {
        let lane = if key.is_empty() { format!("d:{delivery}") } else { format!("k:{key}") };
        Self { organization: organization.clone(), route: route.to_owned(), provider: provider.to_owned(), lane }
    }
}

/// Which lanes to take.
#[derive(Debug, Clone)]
pub struct LaneClaim {
    /// The lease to take them under.
    pub lease: Lease,
    /// The schedule clock.
    pub now: Timestamp,
    /// Free slots per organization and route.
    pub slots: Vec<(OrganizationId, String, u32)>,
    /// The most rows to take of one lane.
    pub rows_each: u32,
    /// Whether of each lane only the last of these rows needs its body; the others then have an empty one.
    pub last_body_only: bool,
}

/// What a claim of lanes brought.
#[derive(Debug, Clone, Default)]
pub struct LaneClaims {
    /// The lanes taken.
    pub lanes: Vec<ClaimedLane>,
    /// When the earliest lane of these routes is due that is not due yet, by the schedule clock.
    pub next_due: Option<Timestamp>,
}

/// A lane under lease.
#[derive(Debug, Clone)]
pub struct ClaimedLane {
    /// Which lane.
    pub key: LaneKey,
    /// Another one at every claim of this lane key, also after the lane was empty; with the owner it is the lease's token.
    pub claim: u64,
    /// The newest version of this key that took effect through this route, if any did.
    pub applied: Option<Version>,
    /// The delivery that was first at an earlier claim of which no end was written, if it still waits: it may have taken
    /// effect. The claim has counted that as a failure of it.
    pub interrupted: Option<String>,
    /// The lane's first rows, oldest version first.
    pub rows: Vec<WorkRow>,
}

/// What a row that was interrupted shows as its last failure.
pub const EFFECT_INTERRUPTED: &str = "interrupted: the process ended, or lost its lease, before the end of this effect was written; it may have taken \
     place, and is made again";

/// One row of a lane, with all that a destination needs.
#[derive(Debug, Clone)]
pub struct WorkRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// Through which source it came.
    pub source: String,
    /// The event's type; empty if not known.
    pub event_type: String,
    /// The business key; empty if not known.
    pub key: String,
    /// The event's place in its object's history.
    pub version: Version,
    /// Attempts at this row's effect that failed before.
    pub failures: u32,
    /// When it was received, by the wall clock.
    pub received_at: Timestamp,
    /// When it was received, or was given another beginning by somebody, by the schedule clock.
    pub due_since: Timestamp,
    /// The bytes as they came.
    pub body: Bytes,
}

/// What was done with a lane, to be written under its lease. Rows that are in neither part stay, due at once.
#[derive(Debug, Clone)]
pub struct FinishLane {
    /// Which lane.
    pub key: LaneKey,
    /// Who held the lease.
    pub owner: Arc<str>,
    /// Which claim.
    pub claim: u64,
    /// Rows that have ended.
    pub ended: Vec<EndedRow>,
    /// A row that failed, and when to try again (schedule clock); the lane waits until then, to keep its order.
    pub retry: Option<RetryRow>,
    /// The newest version that has taken effect by now, if that is to be remembered; it outlives the lane, and an older
    /// one than is remembered changes nothing.
    pub applied: Option<Version>,
    /// The wall clock.
    pub at: Timestamp,
    /// The schedule clock: rows that are left and not waiting for a retry are due from here on.
    pub now: Timestamp,
}

/// A row whose effect through one route has ended.
#[derive(Debug, Clone)]
pub struct EndedRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// How it ended.
    pub state: EffectState,
    /// Failures in all, the last one included.
    pub failures: u32,
    /// For people: what the destination did, or why it gave up.
    pub detail: String,
}

/// A row whose effect failed and is tried again.
#[derive(Debug, Clone)]
pub struct RetryRow {
    /// The provider's id of the delivery.
    pub delivery: String,
    /// Failures so far, this one included.
    pub failures: u32,
    /// For people: what went wrong. Empty: what went wrong before stays to be seen.
    pub error: String,
    /// When to try again, by the schedule clock.
    pub due_at: Timestamp,
}

/// How a row stands with one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectState {
    /// It waits for its turn or its retry.
    Waiting,
    /// It took effect.
    Done,
    /// It is older than what took effect (C4), or its key had its one effect already.
    Stale,
    /// Its destination failed until it was given up.
    Dead,
    /// Somebody decided that it shall have no effect.
    Discarded,
}

impl EffectState {
    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stale => "stale",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}

/// How an inbox row stands over all of its routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Some effect waits.
    Waiting,
    /// All have ended, some took effect, and none is dead.
    Done,
    /// All have ended, and none took effect because newer ones had.
    Stale,
    /// No route takes it.
    Parked,
    /// All have ended, and one or more were given up.
    Dead,
    /// All have ended, by somebody's decision.
    Discarded,
    /// Its signature did not verify, and it was kept all the same.
    Quarantined,
}

impl RowState {
    /// All states, in the order of their documentation.
    pub const ALL: [Self; 7] =
        [Self::Waiting, Self::Done, Self::Stale, Self::Parked, Self::Dead, Self::Discarded, Self::Quarantined];

    /// The word used in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stale => "stale",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
            Self::Quarantined => "quarantined",
        }
    }

    /// The state with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The state of a row whose effects stand like this.
    pub fn of(effects: impl IntoIterator<Item = EffectState>) -> Self {
        // Worst first: one waiting effect keeps the row waiting, one dead effect makes it dead, and so on.
        const ORDER: [(EffectState, RowState); 5] = [
            (EffectState::Waiting, RowState::Waiting),
            (EffectState::Dead, RowState::Dead),
            (EffectState::Done, RowState::Done),
            (EffectState::Stale, RowState::Stale),
            (EffectState::Discarded, RowState::Discarded),
        ];
        let effects: Vec<_> = effects.into_iter().collect();
        let first = ORDER.iter().find(|(effect, _)| effects.contains(effect));
        first.map_or(Self::Parked, |(_, row)| *row)
    }
}

/// Which inbox rows.
#[derive(Debug, Clone)]
pub struct InboxQuery {
    /// Whose.
    pub organization: OrganizationId,
    /// Only of this source.
    pub source: Option<String>,
    /// Only in this state.
    pub state: Option<RowState>,
    /// Only of this business key.
    pub key: Option<String>,
    /// Only with an effect through this route; where a state is asked for, that effect stands so too.
    pub route: Option<String>,
    /// Only rows older than this one.
    pub before: Option<RowPosition>,
    /// At most so many.
    pub limit: u32,
}

/// A row's place in the inbox, newest first: its number, which the store gives in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition(pub i64);

/// An inbox row in a list.
#[derive(Debug, Clone)]
pub struct InboxRowView {
    /// Its place.
    pub position: RowPosition,
    /// From which provider.
    pub provider: String,
    /// Through which source.
    pub source: String,
    /// The provider's id of the delivery.
    pub delivery: String,
    /// The event's type; empty if not known.
    pub event_type: String,
    /// The business key; empty if not known.
    pub key: String,
    /// When the provider sent it out (or when we got it, if the provider does not say).
    pub timestamp: Timestamp,
    /// When it came.
    pub received_at: Timestamp,
    /// How it stands.
    pub state: RowState,
    /// Why it is parked or quarantined, or was discarded then; empty otherwise.
    pub reason: String,
}

/// An inbox row in full.
#[derive(Debug, Clone)]
pub struct InboxRowDetail {
    /// What a list shows.
    pub row: InboxRowView,
    /// The bytes as they came.
    pub body: Bytes,
    /// What was kept beside them, of a quarantined row; see [`Quarantined::headers`].
    pub headers: Bytes,
    /// Its effects, by route.
    pub effects: Vec<EffectView>,
}

/// How a row stands with one route.
#[derive(Debug, Clone)]
pub struct EffectView {
    /// Which route.
    pub route: String,
    /// How it stands.
    pub state: EffectState,
    /// Failures so far.
    pub failures: u32,
    /// When its lane is due (schedule clock); only while it waits and the lane is not leased.
    pub next_attempt_at: Option<Timestamp>,
    /// The last error, or what the destination did.
    pub detail: String,
    /// When it ended, by the wall clock.
    pub ended_at: Option<Timestamp>,
}

/// How much waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Deliveries that wait, those under way included.
    pub deliveries: u64,
    /// Those of them that are under a lease, as a rule because an attempt is under way.
    pub deliveries_leased: u64,
    /// When the earliest of them is or was due, by the schedule clock; a lease counts as due when it ends.
    pub oldest_delivery_due: Option<Timestamp>,
    /// Deliveries that are held until their webhook is switched on.
    pub deliveries_held: u64,
    /// Inbox rows' effects that wait, those under way included.
    pub effects: u64,
    /// When the earliest of their lanes is or was due, by the schedule clock; a lease counts as due when it ends.
    pub oldest_effect_due: Option<Timestamp>,
    /// How many of those lanes each route has, also one that no configuration names any more.
    pub lanes: BTreeMap<(OrganizationId, String), u64>,
    /// What waits for each route, also for one that no configuration names any more.
    pub routes: BTreeMap<(OrganizationId, String), RouteBacklog>,
    /// Webhooks that are off.
    pub webhooks_off: u64,
}

/// How much waits for one route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteBacklog {
    /// Effects that wait, those under way included.
    pub effects: u64,
    /// Those of them that have failed before.
    pub failing: u64,
    /// When the oldest of their rows was received, by the schedule clock.
    pub oldest: Option<Timestamp>,
}
