//! One attempt of one delivery: a request, a decision, a finish under the lease.

use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::delivery::{Decision, FailureKind, Outcome, decide};
use jiff::Timestamp;
use tokio::time::sleep;

use super::Sender;
use super::metrics::{self, InFlight};
use super::request::request;
use super::slots::Permit;
use crate::store::{AttemptRecord, ClaimedDelivery, FinishAttempt, FinishOutcome};

/// The pause before a finish is tried a second time; it doubles with each further one.
const FIRST_FINISH_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between tries of a finish.
const LONGEST_FINISH_PAUSE: Duration = Duration::from_secs(1);

impl Sender {
    /// Starts the attempt that a delivery is leased for, in a task that ends with the lease's business.
    pub(super) fn start(self: &Arc<Self>, delivery: ClaimedDelivery, permit: Permit, lease_until: Timestamp) {
        let sender = Arc::clone(self);
        self.tasks.spawn(async move { sender.attempt(delivery, permit, lease_until).await });
    }

    async fn attempt(&self, delivery: ClaimedDelivery, mut permit: Permit, lease_until: Timestamp) {
        let record = match delivery.interrupted {
            Some(began) => interrupted(delivery.attempt, began),
            None if self.expires_within(self.settings.attempt_timeout, lease_until) => {
                // Whoever takes it over writes it down as interrupted; a request now could run beside theirs.
                tracing::warn!(event = %delivery.key.event, webhook = %delivery.key.webhook, attempt = delivery.attempt,
                    "the store answered so late that the lease is too short for an attempt");
                return metrics::attempt_unwritten();
            }
            None => self.send(&delivery).await,
        };
        permit.request_ended();
        let decision = decide(&self.settings.policy, delivery.history, record.outcome, self.clock.schedule());
        let owner = Arc::clone(&self.owner);
        let finish = FinishAttempt { key: delivery.key.clone(), owner, attempt: record, decision };
        match self.finish(&finish, lease_until).await {
            Some(FinishOutcome::Applied { switched_off }) => written(&delivery, &finish, switched_off),
            Some(FinishOutcome::LeaseLost) => {
                metrics::attempt_unwritten();
                tracing::warn!(event = %delivery.key.event, webhook = %delivery.key.webhook, attempt = delivery.attempt,
                    "the delivery had ended or been taken over meanwhile, so the attempt stands in the log and changes nothing");
            }
            None => metrics::attempt_unwritten(),
        }
        // Also after a finish whose answer was lost: it may have been written.
        if let Decision::Retry { at } = decision {
            self.agenda.note(at);
        }
    }

    async fn send(&self, delivery: &ClaimedDelivery) -> AttemptRecord {
        let started_at = self.clock.now();
        let in_flight = InFlight::begin();
        let response = self.transport.post(request(delivery, self.settings.attempt_timeout)).await;
        drop(in_flight);
        metrics::request_ended(response.duration);
        AttemptRecord {
            number: delivery.attempt,
            started_at,
            duration: response.duration,
            outcome: response.outcome,
            error: response.error,
            response_body: response.body,
        }
    }

    /// Writes the result, and goes on trying until the lease is about to end; then the delivery is somebody else's to
    /// take over, and `None` comes back. Whatever the error is: it may be of another write in the same commit.
    async fn finish(&self, finish: &FinishAttempt, lease_until: Timestamp) -> Option<FinishOutcome> {
        let mut pause = FIRST_FINISH_PAUSE;
        loop {
            let error = match self.committer.finish_attempt(finish.clone()).await {
                Ok(outcome) => return Some(outcome),
                Err(error) => error,
            };
            if self.expires_within(pause, lease_until) {
                tracing::error!(event = %finish.key.event, webhook = %finish.key.webhook,
                    attempt = finish.attempt.number, %error,
                    "an attempt's result could not be written; it will stand in the log as interrupted");
                return None;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_FINISH_PAUSE);
        }
    }

    fn expires_within(&self, time: Duration, lease_until: Timestamp) -> bool {
        self.clock.schedule().checked_add(time).unwrap_or(Timestamp::MAX) > lease_until
    }
}

/// What is written of an attempt that another owner, or we before a restart, began and never finished.
fn interrupted(number: u32, started_at: Timestamp) -> AttemptRecord {
    AttemptRecord {
        number,
        started_at,
        duration: Duration::ZERO,
        outcome: Outcome::Failed(FailureKind::Interrupted),
        error: "the sender stopped before the attempt's result was written; the request may have arrived".to_owned(),
        response_body: bytes::Bytes::new(),
    }
}

/// Tells the metrics and the log; of the target only scheme and host (S19).
fn written(delivery: &ClaimedDelivery, finish: &FinishAttempt, switched_off: bool) {
    let (record, key) = (&finish.attempt, &delivery.key);
    let (target, status) = (|| delivery.webhook.url.origin(), record.outcome.http_status());
    metrics::attempt_written(record.outcome, finish.decision, switched_off);
    if finish.decision == Decision::Delivered {
        tracing::debug!(event = %key.event, webhook = %key.webhook, attempt = record.number, status, host = target(),
            "delivered");
    } else {
        tracing::info!(event = %key.event, webhook = %key.webhook, attempt = record.number, status,
            error = record.error, next = next(finish.decision), host = target(), "an attempt failed");
    }
    if switched_off {
        tracing::warn!(organization = %key.organization, webhook = %key.webhook, event = %key.event, host = target(),
            "the webhook was switched off, because every attempt of this event failed (R10)");
    }
}

/// What follows from a failure, for the log.
fn next(decision: Decision) -> String {
    match decision {
        Decision::Delivered => "none: it is delivered".to_owned(),
        Decision::Retry { at } => format!("another attempt, due {at}"),
        Decision::Exhausted { .. } => "none: it is exhausted".to_owned(),
    }
}
