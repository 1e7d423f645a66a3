//! Searching deliveries.
//!
//! A search merges streams of deliveries, each read from one index in the order of the list, piece by piece. What a
//! query asks for beyond its streams is looked for among what they bring, again a piece at a time, since every statement
//! is a way to the database and back. No statement sorts more than a piece, and the work of a search is bounded by what
//! it may look at.

pub(super) mod details;
pub(super) mod streams;

use super::columns::{ceil_millis, sound};
use super::transaction::Transaction;
use crate::store::search_sources::{Place, sources, states_take};
use crate::store::{DeliveryPosition, DeliveryQuery, DeliveryRow, Found, StoreError};
use details::{Detail, details};
use streams::{Candidate, Delivery, Stream};

/// Candidates that are judged at a time.
const PIECE_CANDIDATES: usize = 64;

/// A page of deliveries.
pub(super) async fn deliveries(
    transaction: &Transaction<'_>,
    query: &DeliveryQuery,
) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError> {
    let mut streams: Vec<_> = sources(query).into_iter().map(|source| Stream::new(source, query)).collect();
    let mut found = Found { rows: Vec::new(), searched_to: None };
    let oldest = query.from.map_or(i64::MIN, ceil_millis);
    let mut looked_at = 0;
    while found.rows.len() < query.limit as usize {
        let mut candidates = Vec::new();
        while candidates.len() < PIECE_CANDIDATES
            && let Some(candidate) = next(transaction, query, &mut streams).await?
            && candidate.place.created_at >= oldest
        {
            candidates.push(candidate);
        }
        let is_last = candidates.len() < PIECE_CANDIDATES;
        let details = details(transaction, query, &candidates).await?;
        for (candidate, detail) in candidates.into_iter().zip(details) {
            let place = candidate.place.clone();
            found.rows.extend(judge(query, candidate, detail)?);
            looked_at += 1;
            if looked_at == query.look_at {
                found.searched_to = Some(place.position()?);
                return Ok(found);
            }
            if found.rows.len() == query.limit as usize {
                return Ok(found);
            }
        }
        if is_last {
            break;
        }
    }
    Ok(found)
}

/// The next candidate of all streams, in the order of the list.
async fn next(
    transaction: &Transaction<'_>,
    query: &DeliveryQuery,
    streams: &mut [Stream],
) -> Result<Option<Candidate>, StoreError> {
    for stream in &mut *streams {
        stream.fill(transaction, query).await?;
    }
    let place = |stream: &Stream| stream.front().map(|candidate| candidate.place.clone());
    let newest = streams.iter_mut().max_by(|a, b| place(a).cmp(&place(b)));
    Ok(newest.and_then(Stream::pop))
}

/// Whether a delivery can be meant, as far as is known without its details.
fn may_be_meant(query: &DeliveryQuery, place: &Place, delivery: &Delivery) -> bool {
    query.webhook.as_ref().is_none_or(|webhook| webhook.as_str() == place.webhook) && states_take(query, delivery.state)
}

/// The candidate as a row, if it is asked for.
fn judge(
    query: &DeliveryQuery,
    candidate: Candidate,
    detail: Option<Detail>,
) -> Result<Option<DeliveryRow>, StoreError> {
    let Candidate { place, delivery: Some(delivery), .. } = candidate else { return Ok(None) };
    let Some(Detail { event_type, key, attempts, last }) = detail else { return Ok(None) };
    let by_type = query.event_type.as_ref().is_none_or(|pattern| pattern.matches(&event_type));
    let by_key = query.key.is_none() || query.key == key;
    let by_outcome = query.last.is_empty() || last.is_some_and(|last| query.last.takes(last.outcome));
    if !(by_type && by_key && by_outcome) {
        return Ok(None);
    }
    let DeliveryPosition { created_at, event, webhook } = place.position()?;
    let webhook = webhook.ok_or_else(|| StoreError::Damaged(format!("a delivery of {event} has no webhook")))?;
    let Delivery { state, due_at, in_flight, reason } = delivery;
    Ok(Some(DeliveryRow {
        event,
        event_type: sound("type", hikyaku_core::event::EventType::parse(event_type))?,
        created_at,
        webhook,
        state,
        next_attempt_at: due_at.filter(|_| !in_flight),
        in_flight,
        reason,
        attempts,
        last,
    }))
}
