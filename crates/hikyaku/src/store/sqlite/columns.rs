//! How values stand in columns. A column that holds what this program cannot have written is damage, and says which.

use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{DeliveryState, FailureKind, Outcome};
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::{Rank, Version};
use jiff::Timestamp;
use rusqlite::Row;

pub(super) use crate::store::search_sources::ceil_millis;
use crate::store::{EffectState, RecoveryState, StoreError, UndeliveredKind, Which};

/// A point in time as it is stored: milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// A duration from its column.
pub(super) fn micros_duration(micros: i64) -> Duration {
    Duration::from_micros(micros.unsigned_abs())
}

/// A duration as it is stored: microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The point in time that lies so long after another.
pub(super) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// What was read, or which column is damaged.
pub(super) fn sound<T, E: Display>(column: &str, read: Result<T, E>) -> Result<T, StoreError> {
    read.map_err(|error| StoreError::Damaged(format!("{column}: {error}")))
}

fn known<T>(column: &str, found: Option<T>) -> Result<T, StoreError> {
    sound(column, found.ok_or("holds a word or number that has no meaning"))
}

pub(super) fn time(row: &Row<'_>, index: usize) -> Result<Timestamp, StoreError> {
    sound("a point in time", Timestamp::from_millisecond(row.get(index)?))
}

pub(super) fn optional_time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, StoreError> {
    let millis: Option<i64> = row.get(index)?;
    millis.map(|millis| sound("a point in time", Timestamp::from_millisecond(millis))).transpose()
}

pub(super) fn organization(row: &Row<'_>, index: usize) -> Result<OrganizationId, StoreError> {
    sound("organization", OrganizationId::parse(row.get::<_, String>(index)?))
}

pub(super) fn webhook_id(row: &Row<'_>, index: usize) -> Result<WebhookId, StoreError> {
    sound("webhook", WebhookId::parse(row.get::<_, String>(index)?))
}

pub(super) fn event_id(row: &Row<'_>, index: usize) -> Result<EventId, StoreError> {
    sound("event", EventId::parse(row.get::<_, String>(index)?))
}

pub(super) fn event_type(row: &Row<'_>, index: usize) -> Result<EventType, StoreError> {
    sound("type", EventType::parse(row.get::<_, String>(index)?))
}

pub(super) fn body(row: &Row<'_>, index: usize) -> Result<Bytes, StoreError> {
    Ok(Bytes::from(row.get::<_, Vec<u8>>(index)?))
}

/// A version from three columns: microseconds, rank, event.
pub(super) fn version(row: &Row<'_>, first: usize) -> Result<Version, StoreError> {
    let rank = known("rank", Rank::from_number(row.get(first + 1)?))?;
    Ok(Version { micros: row.get(first)?, rank, event: row.get(first + 2)? })
}

/// An outcome as it is stored: the status, 0 where none came, and why none came.
pub(super) fn outcome_columns(outcome: Outcome) -> (u16, Option<&'static str>) {
    match outcome {
        Outcome::Answered(status) => (status, None),
        Outcome::Failed(kind) => (0, Some(kind.as_str())),
    }
}

/// An outcome from two columns: status and failure.
pub(super) fn outcome(row: &Row<'_>, first: usize) -> Result<Outcome, StoreError> {
    let failure: Option<String> = row.get(first + 1)?;
    match failure {
        None => Ok(Outcome::Answered(row.get(first)?)),
        Some(word) => Ok(Outcome::Failed(known("failure", FailureKind::parse(&word))?)),
    }
}

pub(super) fn delivery_state(row: &Row<'_>, index: usize) -> Result<DeliveryState, StoreError> {
    let word: String = row.get(index)?;
    known("state", DeliveryState::parse(&word))
}

pub(super) fn effect_state(row: &Row<'_>, index: usize) -> Result<EffectState, StoreError> {
    use EffectState::{Dead, Discarded, Done, Stale, Waiting};
    let word: String = row.get(index)?;
    known("state", [Waiting, Done, Stale, Dead, Discarded].into_iter().find(|state| state.as_str() == word))
}

pub(super) fn undelivered_kind(row: &Row<'_>, index: usize) -> Result<UndeliveredKind, StoreError> {
    use UndeliveredKind::{Exhausted, Held, Missed};
    let word: String = row.get(index)?;
    known("kind", [Missed, Exhausted, Held].into_iter().find(|kind| kind.as_str() == word))
}

pub(super) fn which(row: &Row<'_>, index: usize) -> Result<Which, StoreError> {
    let word: String = row.get(index)?;
    known("which", Which::ALL.into_iter().find(|which| which.as_str() == word))
}

pub(super) fn recovery_state(row: &Row<'_>, index: usize) -> Result<RecoveryState, StoreError> {
    let word: String = row.get(index)?;
    known("state", RecoveryState::ALL.into_iter().find(|state| state.as_str() == word))
}
