//! What reconciliation tells the metrics.

use metrics::{counter, describe_counter, describe_gauge, gauge};

use crate::store::{CycleCounts, ReconcileKey};

/// Counts items by what they were.
const ITEMS: &str = "hikyaku_reconcile_items_total";
/// Counts ended cycles.
const CYCLES: &str = "hikyaku_reconcile_cycles_total";
/// Counts how often a cycle could not go on.
const STOPS: &str = "hikyaku_reconcile_stops_total";
/// Counts calls of providers' APIs.
const CALLS: &str = "hikyaku_reconcile_calls_total";
/// The time up to which everything was compared.
const MARK: &str = "hikyaku_reconcile_mark_seconds";
/// Whether the provider's webhook is on.
const ACTIVE: &str = "hikyaku_reconcile_webhook_active";

pub(super) fn describe() {
    describe_counter!(ITEMS, "Items of providers' lists that were compared, by reconciliation and by what they were.");
    describe_counter!(CYCLES, "Cycles of reconciliations that ended.");
    describe_counter!(STOPS, "How often a reconciliation could not go on and was tried again later.");
    describe_counter!(CALLS, "Calls of providers' APIs by reconciliations.");
    describe_gauge!(MARK, "The time up to which a reconciliation has compared everything, in seconds since 1970.");
    describe_gauge!(ACTIVE, "Whether the provider's webhook that is watched is on: 1, or 0.");
}

/// Lets everything be seen from the start: what is not there cannot be told from what is not counted.
pub(super) fn begin(key: &ReconcileKey) {
    found(key, &CycleCounts::default());
    for name in [CYCLES, STOPS, CALLS] {
        counter!(name, "reconcile" => key.name.clone()).increment(0);
    }
    gauge!(MARK, "reconcile" => key.name.clone()).set(0.0);
}

pub(super) fn found(key: &ReconcileKey, counts: &CycleCounts) {
    for (what, count) in [
        ("known", counts.known),
        ("missing", counts.missing),
        ("repaired", counts.repaired),
        ("different", counts.different),
        ("unknown", counts.unknown),
    ] {
        counter!(ITEMS, "reconcile" => key.name.clone(), "what" => what).increment(count);
    }
}

pub(super) fn ended(key: &ReconcileKey, mark: Option<jiff::Timestamp>) {
    counter!(CYCLES, "reconcile" => key.name.clone()).increment(1);
    if let Some(mark) = mark {
        gauge!(MARK, "reconcile" => key.name.clone()).set(mark.as_second() as f64);
    }
}

pub(super) fn stopped(key: &ReconcileKey) {
    counter!(STOPS, "reconcile" => key.name.clone()).increment(1);
}

pub(super) fn called(key: &ReconcileKey, calls: u32) {
    counter!(CALLS, "reconcile" => key.name.clone()).increment(u64::from(calls));
}

pub(super) fn active(key: &ReconcileKey, is_active: bool) {
    gauge!(ACTIVE, "reconcile" => key.name.clone()).set(f64::from(u8::from(is_active)));
}
