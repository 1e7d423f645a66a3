//! Deliveries that are taken under lease, and what their attempts came to.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{Decision, History, Outcome};
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{DeliveryKey, OrganizationId, WebhookId};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use super::{FinishNotices, Lease};

/// A delivery under lease, with all that an attempt needs.
#[derive(Debug, Clone)]
pub struct ClaimedDelivery {
    /// Which delivery.
    pub key: DeliveryKey,
    /// When its event was published, by the wall clock: stores find it by that, too.
    pub created_at: Timestamp,
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
    /// The schedule clock: what is due later than this need not be told, because whoever claims looks again before.
    pub until: Timestamp,
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
    /// When its event was published, as the claim or the publish gave it. One that was dropped since and published anew under
    /// the same id is another event.
    pub created_at: Timestamp,
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
