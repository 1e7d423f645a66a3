//! What the inbox counts. Labels have few values each: sources and routes are those of the configuration.

use std::time::Duration;

use jiff::Timestamp;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::destination::Effect;
use super::fetch::Fetched;

const DELIVERIES: &str = "hikyaku_inbox_deliveries_total";
const SIGNATURE_FAILURES: &str = "hikyaku_inbox_signature_failures_total";
const SWITCHED_OFF_AT: &str = "hikyaku_inbox_switched_off_timestamp_seconds";
const EFFECTS: &str = "hikyaku_inbox_effects_total";
const ACK_DURATION: &str = "hikyaku_inbox_ack_duration_seconds";
const DESTINATION_DURATION: &str = "hikyaku_inbox_destination_duration_seconds";
const READINGS: &str = "hikyaku_inbox_readings_total";

/// What readings come to.
const READ: &str = "read";
const GONE: &str = "gone";
const FAILED: &str = "failed";
const UNASKABLE: &str = "unaskable";

/// Says what each metric means; once, when there is an inbox.
pub(super) fn describe() {
    describe_counter!(DELIVERIES, "Deliveries that came in, by source and answer");
    describe_counter!(SIGNATURE_FAILURES, "Signatures that did not verify, by source");
    describe_gauge!(
        SWITCHED_OFF_AT,
        Unit::Seconds,
        "When the provider switches its webhook off if nothing changes, as Unix time, by source; 0 while all is well"
    );
    describe_counter!(EFFECTS, "What effects of inbox rows came to, by route");
    describe_histogram!(ACK_DURATION, Unit::Seconds, "From a whole delivery to its answer, by source and answer");
    describe_histogram!(DESTINATION_DURATION, Unit::Seconds, "How long destinations took, by route and result");
    describe_counter!(READINGS, "Readings of present states from providers, by result");
    for result in [READ, GONE, FAILED, UNASKABLE] {
        counter!(READINGS, "result" => result).increment(0);
    }
}

/// A delivery to a source was answered. `source` is empty if there is none of that name: the name is the caller's
/// invention, and no label.
pub(super) fn answered(source: &str, answer: &'static str, took: Duration) {
    counter!(DELIVERIES, "source" => source.to_owned(), "answer" => answer).increment(1);
    histogram!(ACK_DURATION, "source" => source.to_owned(), "answer" => answer).record(took);
}

/// A signature of a source did not verify.
pub(super) fn signature_failed(source: &str) {
    counter!(SIGNATURE_FAILURES, "source" => source.to_owned()).increment(1);
}

/// When a source's provider is expected to switch its webhook off.
pub(super) fn switched_off_at(source: &str, at: Option<Timestamp>) {
    gauge!(SWITCHED_OFF_AT, "source" => source.to_owned()).set(at.map_or(0.0, |at| at.as_second() as f64));
}

/// An effect has ended, or failed and is tried again.
pub(super) fn effect(route: &str, state: &'static str) {
    counter!(EFFECTS, "route" => route.to_owned(), "state" => state).increment(1);
}

/// A destination has answered.
pub(super) fn destination(route: &str, effect: &Effect, took: Duration) {
    let result = match effect {
        Effect::Done(_) => "done",
        Effect::Stale(_) => "stale",
        Effect::Later { .. } => "later",
        Effect::Failed { .. } => "failed",
        Effect::Refused(_) => "refused",
    };
    histogram!(DESTINATION_DURATION, "route" => route.to_owned(), "result" => result).record(took);
}

/// A provider was asked for a present state.
pub(super) fn reading(fetched: &Fetched) {
    let result = match fetched {
        Fetched::State(_) => READ,
        Fetched::Gone(_) => GONE,
        Fetched::Failed { .. } => FAILED,
        Fetched::Unaskable(_) => UNASKABLE,
    };
    counter!(READINGS, "result" => result).increment(1);
}
