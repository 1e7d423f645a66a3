//! What the inbox counts. Labels have few values each: sources and routes are those of the configuration.

use jiff::Timestamp;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const DELIVERIES: &str = "hikyaku_inbox_deliveries_total";
const SIGNATURE_FAILURES: &str = "hikyaku_inbox_signature_failures_total";
const SWITCHED_OFF_AT: &str = "hikyaku_inbox_switched_off_timestamp_seconds";
const EFFECTS: &str = "hikyaku_inbox_effects_total";

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
}

/// A delivery to a source was answered. `source` is empty if there is none of that name: the name is the caller's
/// invention, and no label.
pub(super) fn answered(source: &str, answer: &'static str) {
    counter!(DELIVERIES, "source" => source.to_owned(), "answer" => answer).increment(1);
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
