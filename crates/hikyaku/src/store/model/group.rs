//! Writes that share one transaction.

use super::{FinishAttempt, FinishLane, FinishOutcome, NewRow, Publish, PublishOutcome, RecordOutcome};

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
