//! One attempt of one delivery: a request, a decision, a finish under the lease.

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::RETRY_AFTER;
use hikyaku_core::delivery::{Decision, FailureKind, Outcome, decide};
use hikyaku_core::retry::parse_retry_after;
use hikyaku_core::signature::standard::InvalidKey;
use jiff::Timestamp;
use tokio::time::sleep;

use super::Sender;
use super::metrics::{self, InFlight};
use super::request::request;
use super::slots::Permit;
use crate::crash;
use crate::store::{AttemptRecord, ClaimedDelivery, FinishAttempt, FinishOutcome};
use crate::trace;

/// The pause before a finish is tried a second time; it doubles with each further one.
const FIRST_FINISH_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between tries of a finish.
const LONGEST_FINISH_PAUSE: Duration = Duration::from_secs(1);

impl Sender {
    /// Starts the attempt that a delivery is leased for, in a task that ends with the lease's business. The lease was
    /// asked for at `asked`.
    pub(super) fn start(self: &Arc<Self>, delivery: ClaimedDelivery, permit: Permit, asked: Timestamp) {
        let sender = Arc::clone(self);
        let lease_until = self.lease_until(asked, &delivery.webhook);
        self.tasks.spawn(async move { sender.attempt(delivery, permit, lease_until).await });
    }

    async fn attempt(&self, delivery: ClaimedDelivery, mut permit: Permit, lease_until: Timestamp) {
        let (record, retry_after) = match delivery.interrupted {
            Some(began) => (interrupted(&delivery, began), None),
            None if self.expires_within(self.timeout(&delivery.webhook), lease_until) => {
                // Whoever takes it over writes it down as interrupted; a request now could run beside theirs.
                tracing::warn!(event = %delivery.key.event, webhook = %delivery.key.webhook, attempt = delivery.attempt,
                    "the store answered so late that the lease is too short for an attempt");
                return metrics::attempt_unwritten();
            }
            None => {
                permit.use_token();
                self.send(&delivery).await
            }
        };
        permit.request_ended();
        let policy = delivery.webhook.settings.policy(&self.settings.policy);
        let decision = decide(&policy, delivery.history, record.outcome, retry_after, self.clock.schedule());
        let owner = Arc::clone(&self.owner);
        let notices = self.notices(&delivery, &record, decision);
        let (key, created_at) = (delivery.key.clone(), delivery.created_at);
        let finish = FinishAttempt { key, created_at, owner, attempt: record, decision, notices };
        match self.finish(&finish, lease_until).await {
            Some(FinishOutcome::Applied { switched_off }) => written(&delivery, &finish, switched_off),
            Some(FinishOutcome::LeaseLost) => {
                metrics::attempt_unwritten();
                tracing::warn!(event = %delivery.key.event, webhook = %delivery.key.webhook, attempt = delivery.attempt,
                    "the delivery had ended or been taken over meanwhile, so the attempt stands in the log and changes nothing");
            }
            None => metrics::attempt_unwritten(),
        }
        if finish.notices.is_some() {
            self.wake();
        }
        // Also after a finish whose answer was lost: it may have been written.
        if let Decision::Retry { at } = decision {
            self.agenda.note(at);
        }
    }

    /// Makes the request. Gives what goes into the log, and for how long the answer asked to be left alone.
    async fn send(&self, delivery: &ClaimedDelivery) -> (AttemptRecord, Option<Duration>) {
        let started_at = self.clock.now();
        let (place, span) = begin_span(delivery, started_at);
        let request = match request(delivery, self.timeout(&delivery.webhook), started_at, place) {
            Ok(request) => request,
            Err(error) => return (unsigned(delivery, started_at, error), None),
        };
        let delay = self.clock.schedule().duration_since(delivery.due_at);
        let in_flight = InFlight::begin(delay.try_into().unwrap_or_default());
        crash::point("attempt.begun");
        let response = self.transport.post(request).await;
        crash::point("attempt.answered");
        drop(in_flight);
        metrics::request_ended(response.duration);
        end_span(span, response.outcome, &response.error);
        let asked = response.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = asked.and_then(|value| parse_retry_after(value, self.clock.now()));
        let record = AttemptRecord {
            run: delivery.run,
            number: delivery.attempt,
            started_at,
            duration: response.duration,
            outcome: response.outcome,
            error: response.error,
            response_body: response.body,
        };
        (record, retry_after)
    }

    /// Writes the result, and goes on trying until the lease is about to end; then the delivery is somebody else's to
    /// take over, and `None` comes back. Whatever the error is: it may be of another write in the same commit.
    async fn finish(&self, finish: &FinishAttempt, lease_until: Timestamp) -> Option<FinishOutcome> {
        let mut pause = FIRST_FINISH_PAUSE;
        loop {
            let error = match self.committer.finish_attempt(finish.clone()).await {
                Ok(outcome) => {
                    crash::point("attempt.committed");
                    return Some(outcome);
                }
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

/// An attempt's place in its event's trace, if anybody asks for it, and its span there.
fn begin_span(delivery: &ClaimedDelivery, now: Timestamp) -> (Option<trace::Context>, trace::Span) {
    if !trace::is_on() && !delivery.webhook.settings.trace_context {
        return (None, trace::Span::none());
    }
    let key = &delivery.key;
    let event = trace::Context::of(trace::EVENT, &[key.organization.as_str(), key.event.as_str()]);
    let place = event.child();
    let mut span = trace::Span::start("attempt", trace::Kind::Client, place, Some(event), now);
    span.tell("hikyaku.organization", key.organization.as_str());
    span.tell("hikyaku.event.id", key.event.as_str());
    span.tell("hikyaku.event.type", delivery.event_type.as_str());
    span.tell("hikyaku.webhook.id", key.webhook.as_str());
    span.tell_number("hikyaku.attempt", delivery.attempt);
    span.tell("http.request.method", "POST");
    span.tell("server.address", delivery.webhook.url.as_url().host_str().unwrap_or_default());
    (Some(place), span)
}

fn end_span(mut span: trace::Span, outcome: Outcome, error: &str) {
    span.tell_number("http.response.status_code", outcome.http_status().into());
    match outcome {
        Outcome::Answered(200..=299) => {}
        Outcome::Answered(_) => span.fail("no success"),
        Outcome::Failed(kind) => {
            span.tell("error.type", kind.as_str());
            span.fail(error);
        }
    }
    span.end();
}

/// What is written of an attempt that another owner, or we before a restart, began and never finished.
fn interrupted(delivery: &ClaimedDelivery, started_at: Timestamp) -> AttemptRecord {
    AttemptRecord {
        run: delivery.run,
        number: delivery.attempt,
        started_at,
        duration: Duration::ZERO,
        outcome: Outcome::Failed(FailureKind::Interrupted),
        error: "the sender stopped before the attempt's result was written; the request may have arrived".to_owned(),
        response_body: bytes::Bytes::new(),
    }
}

/// What is written of an attempt that could not be signed: a defect of ours, so it is on no account of the receiver's.
fn unsigned(delivery: &ClaimedDelivery, started_at: Timestamp, error: InvalidKey) -> AttemptRecord {
    AttemptRecord {
        run: delivery.run,
        number: delivery.attempt,
        started_at,
        duration: Duration::ZERO,
        outcome: Outcome::Failed(FailureKind::Local),
        error: format!("no request was made: the webhook's secret {error}; rotate it"),
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
