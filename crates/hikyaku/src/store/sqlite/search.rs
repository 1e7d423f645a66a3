//! Searching deliveries.
//!
//! A search merges streams of deliveries, each read from one index in the order of the list, piece by piece. What a
//! query asks for beyond its streams is looked for among what they bring. So every query is served by one of a few
//! statements, no one of them sorts, and the work of a search is bounded by what it may look at.

use std::collections::VecDeque;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{EventId, WebhookId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::columns::{self, ceil_millis, micros_duration, sound};
use crate::store::search_sources::{Place, Source, sources, states_take};
use crate::store::{DeliveryPosition, DeliveryQuery, DeliveryRow, Found, LastAttempt, StoreError};

/// Rows that a stream reads at a time.
const PIECE_ROWS: usize = 128;

const EVENTS: &str = "SELECT created_at, id, type FROM events
    WHERE organization = ?1 AND (created_at, id) <= (?2, ?3) ORDER BY created_at DESC, id DESC LIMIT ?4";
const EVENTS_OF_KEY: &str = "SELECT created_at, id, type FROM events
    WHERE organization = ?1 AND key = ?5 AND (created_at, id) <= (?2, ?3)
    ORDER BY created_at DESC, id DESC LIMIT ?4";
const ALL_WAITING: &str = "SELECT created_at, event, webhook, due_at, owner IS NOT NULL FROM waiting
    WHERE organization = ?1 AND (created_at, event, webhook) < (?2, ?3, ?4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT ?5";
const FAILED: &str = "SELECT created_at, event, webhook, state, reason FROM deliveries
    WHERE organization = ?1 AND state = ?6 AND state <> 'delivered'
        AND (created_at, event, webhook) < (?2, ?3, ?4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT ?5";
const EVENT: &str = "SELECT created_at FROM events WHERE organization = ?1 AND id = ?2";
// The deliveries of one event: each statement has the same parameters, whether it needs the event's time or not.
const WAITING_OF_EVENT: &str = "SELECT created_at, event, webhook, due_at, owner IS NOT NULL FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3";
const ENDED_OF_EVENT: &str = "SELECT created_at, event, webhook, state, reason FROM deliveries
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3";
const WAITING_ONE: &str = "SELECT created_at, event, webhook, due_at, owner IS NOT NULL FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4";
const ENDED_ONE: &str = "SELECT created_at, event, webhook, state, reason FROM deliveries
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4";
const ALL_HELD: &str = "SELECT created_at, event, webhook FROM undelivered
    WHERE organization = ?1 AND kind = 'held' AND (created_at, event, webhook) < (?2, ?3, ?4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT ?5";
const HELD_OF_EVENT: &str = "SELECT created_at, event, webhook FROM undelivered
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND kind = 'held'";
const HELD_ONE: &str = "SELECT created_at, event, webhook FROM undelivered
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3 AND webhook = ?4 AND kind = 'held'";
const TYPE: &str = "SELECT type FROM events WHERE organization = ?1 AND id = ?2";
const HAS_KEY: &str = "SELECT key IS ?3 FROM events WHERE organization = ?1 AND id = ?2";
const ATTEMPTS: &str = "SELECT started_at, duration_micros, http_status, failure FROM attempts
    WHERE organization = ?1 AND event = ?2 AND webhook = ?3 ORDER BY run, number";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    EVENTS,
    EVENTS_OF_KEY,
    ALL_WAITING,
    FAILED,
    EVENT,
    WAITING_OF_EVENT,
    ENDED_OF_EVENT,
    WAITING_ONE,
    ENDED_ONE,
    ALL_HELD,
    HELD_OF_EVENT,
    HELD_ONE,
    TYPE,
    HAS_KEY,
    ATTEMPTS,
];

/// A page of deliveries.
pub(super) fn deliveries(
    db: &Connection,
    query: &DeliveryQuery,
) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError> {
    let mut search = Search { db, query };
    let mut streams: Vec<_> = sources(query).into_iter().map(|source| Stream::new(source, query)).collect();
    let mut found = Found { rows: Vec::new(), searched_to: None };
    let oldest = query.from.map_or(i64::MIN, ceil_millis);
    let mut looked_at = 0;
    while found.rows.len() < query.limit as usize
        && let Some(candidate) = search.next(&mut streams)?
    {
        if candidate.place.created_at < oldest {
            break;
        }
        let place = candidate.place.clone();
        found.rows.extend(search.judge(candidate)?);
        looked_at += 1;
        if looked_at == query.look_at {
            found.searched_to = Some(place.position()?);
            break;
        }
    }
    Ok(found)
}

/// Something that a stream brings: a delivery, or an event that was passed over.
struct Candidate {
    place: Place,
    /// The event's type, where it was read on the way.
    event_type: Option<String>,
    delivery: Option<Delivery>,
}

/// How a delivery stands.
struct Delivery {
    state: DeliveryState,
    due_at: Option<Timestamp>,
    in_flight: bool,
    reason: String,
}

/// One stream, with what was read of it ahead.
struct Stream {
    source: Source,
    ahead: VecDeque<Candidate>,
    /// Everything to come is behind this place.
    after: Place,
    ended: bool,
}

impl Stream {
    fn new(source: Source, query: &DeliveryQuery) -> Self {
        Self { source, ahead: VecDeque::new(), after: Place::first(query), ended: false }
    }
}

struct Search<'a> {
    db: &'a Connection,
    query: &'a DeliveryQuery,
}

impl Search<'_> {
    /// The next candidate of all streams, in the order of the list.
    fn next(&mut self, streams: &mut [Stream]) -> Result<Option<Candidate>, StoreError> {
        for stream in &mut *streams {
            while stream.ahead.is_empty() && !stream.ended {
                self.read_on(stream)?;
            }
        }
        let newest = streams.iter_mut().max_by(|a, b| {
            let place = |stream: &Stream| stream.ahead.front().map(|candidate| candidate.place.clone());
            place(a).cmp(&place(b))
        });
        Ok(newest.and_then(|stream| stream.ahead.pop_front()))
    }

    /// Reads the next piece of a stream.
    fn read_on(&mut self, stream: &mut Stream) -> Result<(), StoreError> {
        match stream.source {
            Source::Event => self.read_one(stream),
            Source::Events | Source::EventsOfKey => self.read_events(stream),
            Source::Waiting => self.read_rows(stream, ALL_WAITING, None, waiting),
            Source::Held => self.read_rows(stream, ALL_HELD, None, held),
            Source::Failed(state) => self.read_rows(stream, FAILED, Some(state), ended),
        }
    }

    fn read_rows(
        &mut self,
        stream: &mut Stream,
        sql: &str,
        state: Option<DeliveryState>,
        read: Read,
    ) -> Result<(), StoreError> {
        let (organization, after, word) =
            (self.query.organization.as_str(), stream.after.clone(), state.map(DeliveryState::as_str));
        let mut parameters: Vec<&dyn ToSql> =
            vec![&organization, &after.created_at, &after.event, &after.webhook, &PIECE];
        parameters.extend(word.as_ref().map(|word| word as &dyn ToSql));
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query(&parameters[..])?;
        while let Some(row) = rows.next()? {
            stream.ahead.push_back(read(row)?);
        }
        stream.ended = stream.ahead.len() < PIECE_ROWS;
        if let Some(last) = stream.ahead.back() {
            stream.after = last.place.clone();
        }
        Ok(())
    }

    /// Reads the deliveries of the one event that is asked for.
    fn read_one(&mut self, stream: &mut Stream) -> Result<(), StoreError> {
        stream.ended = true;
        let id = self.query.event.as_ref().map(EventId::as_str).unwrap_or_default();
        let mut statement = self.db.prepare_cached(EVENT)?;
        let found = statement.query_row([self.query.organization.as_str(), id], |row| row.get(0)).optional()?;
        found.map_or(Ok(()), |created_at| self.read_event(stream, (created_at, id), None))
    }

    /// Reads events, and of those that can be meant the deliveries, until there is a piece of them.
    fn read_events(&mut self, stream: &mut Stream) -> Result<(), StoreError> {
        let events = self.events(stream)?;
        stream.ended = events.len() < PIECE_ROWS;
        for (created_at, event, event_type) in events {
            if stream.ahead.len() >= PIECE_ROWS {
                stream.ended = false;
                break;
            }
            let end = Place { created_at, event, webhook: String::new() };
            let wanted = self.query.event_type.as_ref().is_none_or(|pattern| pattern.matches(&event_type));
            if wanted {
                self.read_event(stream, (created_at, &end.event), Some(&event_type))?;
            }
            if end < stream.after {
                stream.ahead.push_back(Candidate { place: end.clone(), event_type: None, delivery: None });
                stream.after = end;
            }
        }
        Ok(())
    }

    /// The next events of a stream. The one that it has come to is read again, since some of its deliveries may be to
    /// come.
    fn events(&self, stream: &Stream) -> Result<Vec<(i64, String, String)>, StoreError> {
        let (organization, after) = (self.query.organization.as_str(), &stream.after);
        let mut parameters: Vec<&dyn ToSql> = vec![&organization, &after.created_at, &after.event, &PIECE];
        let of_key = stream.source == Source::EventsOfKey;
        parameters.extend(self.query.key.as_ref().filter(|_| of_key).map(|key| key as &dyn ToSql));
        let mut statement = self.db.prepare_cached(if of_key { EVENTS_OF_KEY } else { EVENTS })?;
        let rows = statement.query_map(&parameters[..], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Reads the deliveries of one event that are still to come.
    fn read_event(
        &mut self,
        stream: &mut Stream,
        (created_at, event): (i64, &str),
        event_type: Option<&str>,
    ) -> Result<(), StoreError> {
        let organization = self.query.organization.as_str();
        let webhook = self.query.webhook.as_ref().map(WebhookId::as_str);
        let mut parameters: Vec<&dyn ToSql> = vec![&organization, &created_at, &event];
        parameters.extend(webhook.as_ref().map(|webhook| webhook as &dyn ToSql));
        let one = webhook.is_some();
        let places: [(&str, Read); 3] = [
            (if one { WAITING_ONE } else { WAITING_OF_EVENT }, waiting),
            (if one { ENDED_ONE } else { ENDED_OF_EVENT }, ended),
            (if one { HELD_ONE } else { HELD_OF_EVENT }, held),
        ];
        let mut found = Vec::new();
        for (sql, read) in places {
            let mut statement = self.db.prepare_cached(sql)?;
            let mut rows = statement.query(&parameters[..])?;
            while let Some(row) = rows.next()? {
                found.push(read(row)?);
            }
        }
        found.retain(|candidate| candidate.place < stream.after);
        found.sort_by(|a, b| b.place.cmp(&a.place));
        for candidate in &mut found {
            candidate.event_type = event_type.map(str::to_owned);
        }
        stream.ahead.extend(found);
        Ok(())
    }

    /// The candidate as a row, if it is asked for.
    fn judge(&self, candidate: Candidate) -> Result<Option<DeliveryRow>, StoreError> {
        let Candidate { place, event_type, delivery: Some(delivery) } = candidate else { return Ok(None) };
        let query = self.query;
        let other_webhook = query.webhook.as_ref().is_some_and(|webhook| webhook.as_str() != place.webhook);
        if other_webhook || !states_take(query, delivery.state) {
            return Ok(None);
        }
        let event_type = event_type.map_or_else(|| self.event_type(&place.event), Ok)?;
        if query.event_type.as_ref().is_some_and(|pattern| !pattern.matches(&event_type)) {
            return Ok(None);
        }
        if query.event.is_some() && query.key.is_some() && !self.has_key(&place.event)? {
            return Ok(None);
        }
        let (attempts, last) = self.attempts(&place)?;
        if !query.last.is_empty() && !last.is_some_and(|last| query.last.takes(last.outcome)) {
            return Ok(None);
        }
        let DeliveryPosition { created_at, event, webhook } = place.position()?;
        let webhook = webhook.ok_or_else(|| StoreError::Damaged(format!("a delivery of {event} has no webhook")))?;
        let Delivery { state, due_at, in_flight, reason } = delivery;
        let event_type = sound("type", hikyaku_core::event::EventType::parse(event_type))?;
        let next_attempt_at = due_at.filter(|_| !in_flight);
        Ok(Some(DeliveryRow {
            event,
            event_type,
            created_at,
            webhook,
            state,
            next_attempt_at,
            in_flight,
            reason,
            attempts,
            last,
        }))
    }

    fn event_type(&self, event: &str) -> Result<String, StoreError> {
        let mut statement = self.db.prepare_cached(TYPE)?;
        let found = statement.query_row([self.query.organization.as_str(), event], |row| row.get(0)).optional()?;
        found.ok_or_else(|| StoreError::Damaged(format!("a delivery's event {event} is missing")))
    }

    fn has_key(&self, event: &str) -> Result<bool, StoreError> {
        let mut statement = self.db.prepare_cached(HAS_KEY)?;
        let wanted = params![self.query.organization.as_str(), event, self.query.key];
        Ok(statement.query_row(wanted, |row| row.get(0)).optional()?.unwrap_or(false))
    }

    /// How many attempts have ended, and the last of them.
    fn attempts(&self, place: &Place) -> Result<(u32, Option<LastAttempt>), StoreError> {
        let mut statement = self.db.prepare_cached(ATTEMPTS)?;
        let mut rows = statement.query([self.query.organization.as_str(), &place.event, &place.webhook])?;
        let (mut count, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            count += 1;
            last = Some(LastAttempt {
                started_at: columns::time(row, 0)?,
                duration: micros_duration(row.get(1)?),
                outcome: columns::outcome(row, 2)?,
            });
        }
        Ok((count, last))
    }
}

const PIECE: i64 = PIECE_ROWS as i64;

/// Makes a candidate of a row.
type Read = fn(&Row<'_>) -> Result<Candidate, StoreError>;

fn place(row: &Row<'_>) -> Result<Place, StoreError> {
    Ok(Place { created_at: row.get(0)?, event: row.get(1)?, webhook: row.get(2)? })
}

fn waiting(row: &Row<'_>) -> Result<Candidate, StoreError> {
    let due_at = columns::optional_time(row, 3)?;
    let delivery = Delivery { state: DeliveryState::Waiting, due_at, in_flight: row.get(4)?, reason: String::new() };
    Ok(Candidate { place: place(row)?, event_type: None, delivery: Some(delivery) })
}

fn ended(row: &Row<'_>) -> Result<Candidate, StoreError> {
    let state = columns::delivery_state(row, 3)?;
    let delivery = Delivery { state, due_at: None, in_flight: false, reason: row.get(4)? };
    Ok(Candidate { place: place(row)?, event_type: None, delivery: Some(delivery) })
}

fn held(row: &Row<'_>) -> Result<Candidate, StoreError> {
    let delivery = Delivery { state: DeliveryState::Held, due_at: None, in_flight: false, reason: String::new() };
    Ok(Candidate { place: place(row)?, event_type: None, delivery: Some(delivery) })
}
