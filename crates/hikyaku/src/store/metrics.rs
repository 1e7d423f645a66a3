//! What the committer counts.

use std::time::Duration;

use metrics::{Unit, describe_histogram, histogram};

use super::StoreError;

const COMMIT_DURATION: &str = "hikyaku_store_commit_duration_seconds";
const COMMIT_WRITES: &str = "hikyaku_store_commit_writes";

/// Says what each metric means; once, when there is a committer.
pub(super) fn describe() {
    describe_histogram!(COMMIT_DURATION, Unit::Seconds, "How long commits took, by their result");
    describe_histogram!(COMMIT_WRITES, Unit::Count, "How many writes shared a commit");
}

/// A commit of so many writes has ended.
pub(super) fn committed<A>(outcome: &Result<A, StoreError>, duration: Duration, writes: usize) {
    let result = match outcome {
        Ok(_) => "ok",
        Err(StoreError::Unavailable(_)) => "unavailable",
        Err(StoreError::Unknown(_)) => "unknown",
        Err(StoreError::Damaged(_)) => "damaged",
    };
    histogram!(COMMIT_DURATION, "result" => result).record(duration);
    histogram!(COMMIT_WRITES).record(writes as f64);
}
