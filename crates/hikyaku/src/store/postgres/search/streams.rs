//! Streams of deliveries, each in the order of the list.

use std::collections::VecDeque;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{EventId, WebhookId};
use jiff::Timestamp;
use tokio_postgres::Row;

use crate::store::postgres::columns::{self, text};
use crate::store::postgres::transaction::{Parameters, Transaction};
use crate::store::search_sources::{Place, Source};
use crate::store::{DeliveryQuery, StoreError};

/// Rows that a stream reads at a time.
const PIECE_ROWS: usize = 128;
const PIECE: i64 = PIECE_ROWS as i64;
/// Events of which all deliveries are read at a time.
const PIECE_EVENTS: usize = 16;
const EVENTS_AT_A_TIME: i64 = PIECE_EVENTS as i64;

// That `created_at` is bounded by itself too keeps newer partitions out.
const EVENTS: &str = "SELECT created_at, id, type FROM events
    WHERE organization = $1 AND created_at <= $2 AND (created_at, id) <= ($2, $3)
    ORDER BY created_at DESC, id DESC LIMIT $4";
const EVENTS_OF_KEY: &str = "SELECT created_at, id, type FROM events
    WHERE organization = $1 AND key = $5 AND created_at <= $2 AND (created_at, id) <= ($2, $3)
    ORDER BY created_at DESC, id DESC LIMIT $4";
const EVENT: &str = "SELECT created_at FROM event_ids WHERE organization = $1 AND id = $2";
const ALL_WAITING: &str = "SELECT created_at, event, webhook, due_at, owner IS NOT NULL FROM waiting
    WHERE organization = $1 AND (created_at, event, webhook) < ($2, $3, $4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT $5";
const FAILED: &str = "SELECT created_at, event, webhook, state, reason FROM deliveries
    WHERE organization = $1 AND state = $6 AND state <> 'delivered'
        AND created_at <= $2 AND (created_at, event, webhook) < ($2, $3, $4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT $5";
const ALL_HELD: &str = "SELECT created_at, event, webhook FROM undelivered
    WHERE organization = $1 AND kind = 'held' AND (created_at, event, webhook) < ($2, $3, $4)
    ORDER BY created_at DESC, event DESC, webhook DESC LIMIT $5";
const WAITING_OF_EVENTS: &str = "SELECT w.created_at, w.event, w.webhook, w.due_at, w.owner IS NOT NULL
    FROM UNNEST($3::BIGINT[], $4::TEXT[]) k (created_at, event),
        LATERAL (SELECT * FROM waiting w WHERE w.organization = $1 AND w.created_at = k.created_at
            AND w.event = k.event AND ($2::TEXT IS NULL OR w.webhook = $2) OFFSET 0) w";
const ENDED_OF_EVENTS: &str = "SELECT d.created_at, d.event, d.webhook, d.state, d.reason
    FROM UNNEST($3::BIGINT[], $4::TEXT[]) k (created_at, event),
        LATERAL (SELECT * FROM deliveries d WHERE d.organization = $1 AND d.created_at = k.created_at
            AND d.event = k.event AND ($2::TEXT IS NULL OR d.webhook = $2) OFFSET 0) d";
const HELD_OF_EVENTS: &str = "SELECT u.created_at, u.event, u.webhook
    FROM UNNEST($3::TEXT[]) k (event),
        LATERAL (SELECT * FROM undelivered u WHERE u.organization = $1 AND u.event = k.event AND u.kind = 'held'
            AND ($2::TEXT IS NULL OR u.webhook = $2) OFFSET 0) u";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] =
    &[EVENTS, EVENTS_OF_KEY, EVENT, ALL_WAITING, FAILED, ALL_HELD, WAITING_OF_EVENTS, ENDED_OF_EVENTS, HELD_OF_EVENTS];

/// Something that a stream brings: a delivery, or an event that was passed over.
pub(super) struct Candidate {
    pub(super) place: Place,
    pub(super) delivery: Option<Delivery>,
}

/// How a delivery stands.
pub(super) struct Delivery {
    pub(super) state: DeliveryState,
    pub(super) due_at: Option<Timestamp>,
    pub(super) in_flight: bool,
    pub(super) reason: String,
}

/// One stream, with what was read of it ahead.
pub(super) struct Stream {
    source: Source,
    ahead: VecDeque<Candidate>,
    /// Everything to come is behind this place.
    after: Place,
    ended: bool,
}

/// An event on the way of a stream.
struct Passed {
    end: Place,
    is_wanted: bool,
}

impl Stream {
    pub(super) fn new(source: Source, query: &DeliveryQuery) -> Self {
        Self { source, ahead: VecDeque::new(), after: Place::first(query), ended: false }
    }

    /// What comes next, once the stream is filled.
    pub(super) fn front(&self) -> Option<&Candidate> {
        self.ahead.front()
    }

    /// Takes what comes next.
    pub(super) fn pop(&mut self) -> Option<Candidate> {
        self.ahead.pop_front()
    }

    /// Reads on until something comes next, or the stream has ended.
    pub(super) async fn fill(
        &mut self,
        transaction: &Transaction<'_>,
        query: &DeliveryQuery,
    ) -> Result<(), StoreError> {
        while self.ahead.is_empty() && !self.ended {
            match self.source {
                Source::Event => self.read_one(transaction, query).await?,
                Source::Events | Source::EventsOfKey => self.read_events(transaction, query).await?,
                Source::Waiting => self.read_rows(transaction, query, ALL_WAITING, None, waiting).await?,
                Source::Held => self.read_rows(transaction, query, ALL_HELD, None, held).await?,
                Source::Failed(state) => self.read_rows(transaction, query, FAILED, Some(state), ended).await?,
            }
        }
        Ok(())
    }

    async fn read_rows(
        &mut self,
        transaction: &Transaction<'_>,
        query: &DeliveryQuery,
        sql: &str,
        state: Option<DeliveryState>,
        read: Read,
    ) -> Result<(), StoreError> {
        let (organization, word) = (query.organization.as_str(), state.map(DeliveryState::as_str));
        let Place { created_at, event, webhook } = &self.after;
        let all: Parameters<'_> = &[&organization, created_at, event, webhook, &PIECE, &word];
        let parameters = if word.is_some() { all } else { &all[..5] };
        for row in transaction.query(sql, parameters).await? {
            self.ahead.push_back(read(&row)?);
        }
        self.ended = self.ahead.len() < PIECE_ROWS;
        if let Some(last) = self.ahead.back() {
            self.after = last.place.clone();
        }
        Ok(())
    }

    /// Reads the deliveries of the one event that is asked for.
    async fn read_one(&mut self, transaction: &Transaction<'_>, query: &DeliveryQuery) -> Result<(), StoreError> {
        self.ended = true;
        let id = query.event.as_ref().map(EventId::as_str).unwrap_or_default();
        let Some(row) = transaction.optional(EVENT, &[&query.organization.as_str(), &id]).await? else {
            return Ok(());
        };
        let event = Place { created_at: row.try_get(0)?, event: id.to_owned(), webhook: String::new() };
        let found = of_events(transaction, query, &[&event]).await?;
        self.ahead.extend(found.into_iter().filter(|candidate| candidate.place < self.after));
        Ok(())
    }

    /// Reads events, and of those that can be meant the deliveries.
    async fn read_events(&mut self, transaction: &Transaction<'_>, query: &DeliveryQuery) -> Result<(), StoreError> {
        let events = self.events(transaction, query).await?;
        self.ended = events.len() < PIECE_EVENTS;
        let wanted: Vec<_> = events.iter().filter(|event| event.is_wanted).map(|event| &event.end).collect();
        let mut found = of_events(transaction, query, &wanted).await?;
        let passed = events.iter().map(|event| Candidate { place: event.end.clone(), delivery: None });
        found.extend(passed);
        found.retain(|candidate| candidate.place < self.after);
        found.sort_by(|a, b| b.place.cmp(&a.place));
        self.ahead.extend(found);
        if let Some(last) = events.last() {
            self.after = last.end.clone();
        }
        Ok(())
    }

    /// The next events. The one that the stream begins at may have deliveries to come.
    async fn events(&self, transaction: &Transaction<'_>, query: &DeliveryQuery) -> Result<Vec<Passed>, StoreError> {
        let (organization, key) = (query.organization.as_str(), query.key.as_deref().map(text));
        let Place { created_at, event, .. } = &self.after;
        let all: Parameters<'_> = &[&organization, created_at, event, &EVENTS_AT_A_TIME, &key];
        let rows = match self.source {
            Source::EventsOfKey => transaction.query(EVENTS_OF_KEY, all).await?,
            _ => transaction.query(EVENTS, &all[..4]).await?,
        };
        let passed = |row: &Row| {
            let end = Place { created_at: row.try_get(0)?, event: row.try_get(1)?, webhook: String::new() };
            let event_type: &str = row.try_get(2)?;
            let is_wanted = query.event_type.as_ref().is_none_or(|pattern| pattern.matches(event_type));
            Ok(Passed { end, is_wanted })
        };
        rows.iter().map(passed).collect()
    }
}

/// The deliveries of these events, to the webhook that is asked for if one is, in the order of the list.
async fn of_events(
    transaction: &Transaction<'_>,
    query: &DeliveryQuery,
    events: &[&Place],
) -> Result<Vec<Candidate>, StoreError> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let (organization, webhook) = (query.organization.as_str(), query.webhook.as_ref().map(WebhookId::as_str));
    let created: Vec<_> = events.iter().map(|event| event.created_at).collect();
    let ids: Vec<_> = events.iter().map(|event| event.event.as_str()).collect();
    let (by_place, by_id): (Parameters<'_>, Parameters<'_>) =
        (&[&organization, &webhook, &created, &ids], &[&organization, &webhook, &ids]);
    let (waits, has_ended, is_held) = tokio::join!(
        transaction.query(WAITING_OF_EVENTS, by_place),
        transaction.query(ENDED_OF_EVENTS, by_place),
        transaction.query(HELD_OF_EVENTS, by_id),
    );
    let mut found = Vec::new();
    for (rows, read) in [(waits?, waiting as Read), (has_ended?, ended as Read), (is_held?, held as Read)] {
        for row in &rows {
            found.push(read(row)?);
        }
    }
    found.sort_by(|a, b| b.place.cmp(&a.place));
    Ok(found)
}

/// Makes a candidate of a row.
type Read = fn(&Row) -> Result<Candidate, StoreError>;

fn candidate(row: &Row, delivery: Delivery) -> Result<Candidate, StoreError> {
    let place = Place { created_at: row.try_get(0)?, event: row.try_get(1)?, webhook: row.try_get(2)? };
    Ok(Candidate { place, delivery: Some(delivery) })
}

fn waiting(row: &Row) -> Result<Candidate, StoreError> {
    let (due_at, in_flight) = (columns::optional_time(row, 3)?, row.try_get(4)?);
    candidate(row, Delivery { state: DeliveryState::Waiting, due_at, in_flight, reason: String::new() })
}

fn ended(row: &Row) -> Result<Candidate, StoreError> {
    let (state, reason) = (columns::delivery_state(row, 3)?, row.try_get(4)?);
    candidate(row, Delivery { state, due_at: None, in_flight: false, reason })
}

fn held(row: &Row) -> Result<Candidate, StoreError> {
    let delivery = Delivery { state: DeliveryState::Held, due_at: None, in_flight: false, reason: String::new() };
    candidate(row, delivery)
}
