//! How values stand in columns. A column that holds what this program cannot have written is damage, and says which.
//!
//! PostgreSQL's texts cannot hold the character NUL, and what comes from outside can. Such texts go through [`text`] and
//! [`read_text`], which keep every text apart from every other, and their order by bytes.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::delivery::{DeliveryState, FailureKind, Outcome};
use hikyaku_core::event::EventType;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use hikyaku_core::ordering::{Rank, Version};
use jiff::Timestamp;
use tokio_postgres::Row;

pub(super) use crate::store::search_sources::ceil_millis;
use crate::store::{EffectState, RecoveryState, RowState, StoreError, UndeliveredKind, Which};

/// A point in time as it is stored: milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// A duration as it is stored: microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The point in time that lies so long after another.
pub(super) fn after(at: Timestamp, duration: Duration) -> Timestamp {
    at.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

/// A text from outside as it is stored: NUL becomes two characters 1, and 1 becomes 1 and 2.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', '\x01']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\x01', "\x01\x02").replace('\0', "\x01\x01"))
}

/// A text from outside as it was.
pub(super) fn read_text(row: &Row, index: usize) -> Result<String, StoreError> {
    Ok(as_it_was(row.try_get(index)?))
}

/// A text from outside as it was, if there is one.
pub(super) fn read_optional_text(row: &Row, index: usize) -> Result<Option<String>, StoreError> {
    Ok(row.try_get::<_, Option<String>>(index)?.map(as_it_was))
}

fn as_it_was(stored: String) -> String {
    if !stored.contains('\x01') {
        return stored;
    }
    let mut parts = stored.split('\x01');
    let mut text = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        match part.strip_prefix('\x02') {
            Some(rest) => text.extend(["\x01", rest]),
            // The second of two characters 1 ends an empty part.
            None => text.extend(["\0", parts.next().unwrap_or_default()]),
        }
    }
    text
}

/// What was read, or which column is damaged.
pub(super) fn sound<T, E: Display>(column: &str, read: Result<T, E>) -> Result<T, StoreError> {
    read.map_err(|error| StoreError::Damaged(format!("{column}: {error}")))
}

fn known<T>(column: &str, found: Option<T>) -> Result<T, StoreError> {
    sound(column, found.ok_or("holds a word or number that has no meaning"))
}

/// A number that is never negative and fits its type.
pub(super) fn number<T: TryFrom<i64>>(row: &Row, index: usize) -> Result<T, StoreError> {
    let stored: i64 = row.try_get(index)?;
    known("a number", T::try_from(stored).ok())
}

/// A place in a list that a statement was given, from PostgreSQL's, which count from 1.
pub(super) fn place(row: &Row, index: usize) -> Result<usize, StoreError> {
    let stored: i64 = row.try_get(index)?;
    known("a place in a list", usize::try_from(stored - 1).ok())
}

pub(super) fn time(row: &Row, index: usize) -> Result<Timestamp, StoreError> {
    sound("a point in time", Timestamp::from_millisecond(row.try_get(index)?))
}

pub(super) fn optional_time(row: &Row, index: usize) -> Result<Option<Timestamp>, StoreError> {
    let millis: Option<i64> = row.try_get(index)?;
    millis.map(|millis| sound("a point in time", Timestamp::from_millisecond(millis))).transpose()
}

pub(super) fn duration(row: &Row, index: usize) -> Result<Duration, StoreError> {
    Ok(Duration::from_micros(number(row, index)?))
}

pub(super) fn organization(row: &Row, index: usize) -> Result<OrganizationId, StoreError> {
    sound("organization", OrganizationId::parse(row.try_get::<_, String>(index)?))
}

pub(super) fn webhook_id(row: &Row, index: usize) -> Result<WebhookId, StoreError> {
    sound("webhook", WebhookId::parse(row.try_get::<_, String>(index)?))
}

pub(super) fn event_id(row: &Row, index: usize) -> Result<EventId, StoreError> {
    sound("event", EventId::parse(row.try_get::<_, String>(index)?))
}

pub(super) fn event_type(row: &Row, index: usize) -> Result<EventType, StoreError> {
    sound("type", EventType::parse(row.try_get::<_, String>(index)?))
}

pub(super) fn body(row: &Row, index: usize) -> Result<Bytes, StoreError> {
    Ok(Bytes::from(row.try_get::<_, Vec<u8>>(index)?))
}

/// A version from three columns: microseconds, rank, event.
pub(super) fn version(row: &Row, first: usize) -> Result<Version, StoreError> {
    let rank = known("rank", Rank::from_number(row.try_get(first + 1)?))?;
    Ok(Version { micros: row.try_get(first)?, rank, event: read_text(row, first + 2)? })
}

/// An outcome as it is stored: the status, 0 where none came, and why none came.
pub(super) fn outcome_columns(outcome: Outcome) -> (i64, Option<&'static str>) {
    match outcome {
        Outcome::Answered(status) => (i64::from(status), None),
        Outcome::Failed(kind) => (0, Some(kind.as_str())),
    }
}

/// An outcome from two columns: status and failure.
pub(super) fn outcome(row: &Row, first: usize) -> Result<Outcome, StoreError> {
    match word::<Option<&str>>(row, first + 1)? {
        None => Ok(Outcome::Answered(number(row, first)?)),
        Some(word) => Ok(Outcome::Failed(known("failure", FailureKind::parse(word))?)),
    }
}

fn word<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, StoreError> {
    Ok(row.try_get(index)?)
}

pub(super) fn delivery_state(row: &Row, index: usize) -> Result<DeliveryState, StoreError> {
    known("state", DeliveryState::parse(word(row, index)?))
}

pub(super) fn row_state(row: &Row, index: usize) -> Result<RowState, StoreError> {
    known("state", RowState::parse(word(row, index)?))
}

pub(super) fn effect_state(row: &Row, index: usize) -> Result<EffectState, StoreError> {
    use EffectState::{Dead, Discarded, Done, Stale, Waiting};
    let word: &str = word(row, index)?;
    known("state", [Waiting, Done, Stale, Dead, Discarded].into_iter().find(|state| state.as_str() == word))
}

pub(super) fn undelivered_kind(row: &Row, index: usize) -> Result<UndeliveredKind, StoreError> {
    use UndeliveredKind::{Exhausted, Held, Missed};
    let word: &str = word(row, index)?;
    known("kind", [Missed, Exhausted, Held].into_iter().find(|kind| kind.as_str() == word))
}

pub(super) fn which(row: &Row, index: usize) -> Result<Which, StoreError> {
    let word: &str = word(row, index)?;
    known("which", Which::ALL.into_iter().find(|which| which.as_str() == word))
}

pub(super) fn recovery_state(row: &Row, index: usize) -> Result<RecoveryState, StoreError> {
    let word: &str = word(row, index)?;
    known("state", RecoveryState::ALL.into_iter().find(|state| state.as_str() == word))
}
