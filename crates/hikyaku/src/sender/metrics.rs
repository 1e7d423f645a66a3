//! What the sender counts. Labels have few values each: no ids, no hosts.

use std::time::Duration;

use hikyaku_core::delivery::{Decision, Outcome};
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

const DELIVERIES: &str = "hikyaku_deliveries_total";
const ATTEMPTS: &str = "hikyaku_attempts_total";
const ATTEMPT_DURATION: &str = "hikyaku_attempt_duration_seconds";
const ATTEMPT_DELAY: &str = "hikyaku_attempt_delay_seconds";
const IN_FLIGHT: &str = "hikyaku_attempts_in_flight";
const SWITCHED_OFF: &str = "hikyaku_webhooks_switched_off_total";
const UNWRITTEN: &str = "hikyaku_attempts_unwritten_total";

/// Says what each metric means; once, when there is a sender.
pub(super) fn describe() {
    describe_counter!(DELIVERIES, "Deliveries that ended, by outcome");
    describe_counter!(ATTEMPTS, "Attempts that ended, by class of status or kind of failure");
    describe_histogram!(ATTEMPT_DURATION, Unit::Seconds, "From the start of a request until its end");
    describe_histogram!(ATTEMPT_DELAY, Unit::Seconds, "From when an attempt was due until its request began");
    describe_gauge!(IN_FLIGHT, "Requests under way");
    describe_counter!(SWITCHED_OFF, "Webhooks switched off because an event used up its attempts");
    describe_counter!(UNWRITTEN, "Attempts whose result was lost, because the store or the lease was");
    // A counter that first appears with its first count hides that count from `rate()`.
    gauge!(IN_FLIGHT).increment(0);
    counter!(SWITCHED_OFF).absolute(0);
    counter!(UNWRITTEN).absolute(0);
    for outcome in ["delivered", "exhausted", "cancelled"] {
        counter!(DELIVERIES, "outcome" => outcome).absolute(0);
    }
}

/// A request under way, for as long as this lives.
pub(super) struct InFlight;

impl InFlight {
    /// Counts one more, which begins so long after it was due.
    pub(super) fn begin(delay: Duration) -> Self {
        histogram!(ATTEMPT_DELAY).record(delay);
        gauge!(IN_FLIGHT).increment(1);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!(IN_FLIGHT).decrement(1);
    }
}

/// A request has ended.
pub(super) fn request_ended(duration: Duration) {
    histogram!(ATTEMPT_DURATION).record(duration);
}

/// An attempt is written, and this follows from it.
pub(super) fn attempt_written(outcome: Outcome, decision: Decision, switched_off: bool) {
    counter!(ATTEMPTS, "result" => result(outcome)).increment(1);
    match decision {
        Decision::Retry { .. } => {}
        Decision::Delivered => counter!(DELIVERIES, "outcome" => "delivered").increment(1),
        Decision::Exhausted { .. } => counter!(DELIVERIES, "outcome" => "exhausted").increment(1),
    }
    if switched_off {
        counter!(SWITCHED_OFF).increment(1);
    }
}

/// So many deliveries have ended because their webhook was removed.
pub(super) fn cancelled(deliveries: u32) {
    counter!(DELIVERIES, "outcome" => "cancelled").increment(u64::from(deliveries));
}

/// An attempt could not be written under its lease.
pub(super) fn attempt_unwritten() {
    counter!(UNWRITTEN).increment(1);
}

fn result(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Answered(200..=299) => "2xx",
        Outcome::Answered(300..=399) => "3xx",
        Outcome::Answered(400..=499) => "4xx",
        Outcome::Answered(500..=599) => "5xx",
        Outcome::Answered(_) => "other",
        Outcome::Failed(kind) => kind.as_str(),
    }
}
