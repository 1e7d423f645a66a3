//! Showing events and the backlog; and the ping.

use std::collections::BTreeMap;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::columns;
use super::undelivered::{self, FIRST_RUN};
use crate::store::{AttemptRecord, Backlog, DeliveryView, EventView, RouteBacklog, StoreError};

const EVENT: &str = "SELECT type, timestamp, body, created_at FROM events WHERE organization = ?1 AND id = ?2";
const WAITING: &str = "SELECT webhook, due_at, owner IS NOT NULL, run FROM waiting
    WHERE organization = ?1 AND created_at = ?2 AND event = ?3";
const ENDED: &str = "SELECT webhook, state, reason, run FROM deliveries WHERE organization = ?1 AND event = ?2";
const ATTEMPTS: &str =
    "SELECT run, number, started_at, duration_micros, http_status, failure, error, response_body, webhook
    FROM attempts WHERE organization = ?1 AND event = ?2 ORDER BY webhook, run, number";
pub(super) const DELIVERY_BACKLOG: &str = "SELECT COUNT(*), MIN(due_at) FROM waiting";
const DELIVERIES_LEASED: &str = "SELECT COUNT(*), NULL FROM waiting WHERE owner IS NOT NULL";
/// The index holds nothing else; left to itself, SQLite might read all that was not delivered.
const HELD_BACKLOG: &str = "SELECT COUNT(*), NULL FROM undelivered INDEXED BY undelivered_held
    WHERE kind = 'held' AND organization > ''";
pub(super) const EFFECT_BACKLOG: &str = "SELECT (SELECT COUNT(*) FROM work), MIN(due_at) FROM lanes";
pub(super) const LANE_BACKLOG: &str = "SELECT organization, route, COUNT(*) FROM lanes GROUP BY organization, route";
pub(super) const ROUTE_BACKLOG: &str = "SELECT organization, route, COUNT(*), SUM(failures > 0), MIN(due_since)
    FROM work GROUP BY organization, route";
const WEBHOOKS_OFF: &str = "SELECT COUNT(*), MIN(off_since) FROM webhooks WHERE off_since IS NOT NULL";
const PING: &str = "INSERT INTO pings (id, count) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET count = count + 1";

/// The statements of this file. Those of the backlog read all that is hot, by an index, and nothing of history.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    EVENT,
    WAITING,
    ENDED,
    ATTEMPTS,
    DELIVERY_BACKLOG,
    DELIVERIES_LEASED,
    HELD_BACKLOG,
    EFFECT_BACKLOG,
    LANE_BACKLOG,
    ROUTE_BACKLOG,
    WEBHOOKS_OFF,
    PING,
];

/// An event with its deliveries and their attempts, or `None`.
pub(super) fn event(
    db: &Connection,
    organization: &OrganizationId,
    id: &EventId,
) -> Result<Option<EventView>, StoreError> {
    let mut statement = db.prepare_cached(EVENT)?;
    let mut rows = statement.query([organization.as_str(), id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let names = [organization.as_str(), id.as_str()];
    let mut deliveries = deliveries(db, names, row.get(3)?)?;
    let (held, missed) = undelivered::of_event(db, names)?;
    deliveries.extend(held.into_iter().map(|held| (held.webhook.clone(), self::held(held.webhook))));
    attempts(db, names, &mut deliveries)?;
    Ok(Some(EventView {
        id: id.clone(),
        event_type: columns::event_type(row, 0)?,
        timestamp: columns::time(row, 1)?,
        created_at: columns::time(row, 3)?,
        body: columns::body(row, 2)?,
        deliveries: deliveries.into_values().collect(),
        missed,
    }))
}

fn deliveries(
    db: &Connection,
    [organization, event]: [&str; 2],
    created_at: i64,
) -> Result<BTreeMap<WebhookId, DeliveryView>, StoreError> {
    let mut found = BTreeMap::new();
    let mut statement = db.prepare_cached(WAITING)?;
    let mut rows = statement.query(params![organization, created_at, event])?;
    while let Some(row) = rows.next()? {
        let delivery = waiting(row)?;
        found.insert(delivery.webhook.clone(), delivery);
    }
    let mut statement = db.prepare_cached(ENDED)?;
    let mut rows = statement.query([organization, event])?;
    while let Some(row) = rows.next()? {
        let delivery = ended(row)?;
        found.insert(delivery.webhook.clone(), delivery);
    }
    Ok(found)
}

fn waiting(row: &Row<'_>) -> Result<DeliveryView, StoreError> {
    let in_flight: bool = row.get(2)?;
    Ok(DeliveryView {
        webhook: columns::webhook_id(row, 0)?,
        state: DeliveryState::Waiting,
        run: row.get(3)?,
        next_attempt_at: if in_flight { None } else { columns::optional_time(row, 1)? },
        in_flight,
        reason: String::new(),
        attempts: Vec::new(),
    })
}

fn ended(row: &Row<'_>) -> Result<DeliveryView, StoreError> {
    Ok(DeliveryView {
        webhook: columns::webhook_id(row, 0)?,
        state: columns::delivery_state(row, 1)?,
        run: row.get(3)?,
        next_attempt_at: None,
        in_flight: false,
        reason: row.get(2)?,
        attempts: Vec::new(),
    })
}

fn held(webhook: WebhookId) -> DeliveryView {
    DeliveryView {
        webhook,
        state: DeliveryState::Held,
        run: FIRST_RUN,
        next_attempt_at: None,
        in_flight: false,
        reason: String::new(),
        attempts: Vec::new(),
    }
}

fn attempts(
    db: &Connection,
    event: [&str; 2],
    deliveries: &mut BTreeMap<WebhookId, DeliveryView>,
) -> Result<(), StoreError> {
    let mut statement = db.prepare_cached(ATTEMPTS)?;
    let mut rows = statement.query(event)?;
    while let Some(row) = rows.next()? {
        if let Some(delivery) = deliveries.get_mut(&columns::webhook_id(row, 8)?) {
            delivery.attempts.push(attempt(row)?);
        }
    }
    Ok(())
}

/// An attempt from the first eight columns.
pub(super) fn attempt(row: &Row<'_>) -> Result<AttemptRecord, StoreError> {
    Ok(AttemptRecord {
        run: row.get(0)?,
        number: row.get(1)?,
        started_at: columns::time(row, 2)?,
        duration: columns::micros_duration(row.get(3)?),
        outcome: columns::outcome(row, 4)?,
        error: row.get(6)?,
        response_body: columns::body(row, 7)?,
    })
}

/// How much waits.
pub(super) fn backlog(db: &Connection) -> Result<Backlog, StoreError> {
    let (deliveries, oldest_delivery_due) = count_and_oldest(db, DELIVERY_BACKLOG)?;
    let (deliveries_leased, _) = count_and_oldest(db, DELIVERIES_LEASED)?;
    let (deliveries_held, _) = count_and_oldest(db, HELD_BACKLOG)?;
    let (effects, oldest_effect_due) = count_and_oldest(db, EFFECT_BACKLOG)?;
    let (lanes, routes) = (lanes_by_route(db)?, routes(db)?);
    let (webhooks_off, _) = count_and_oldest(db, WEBHOOKS_OFF)?;
    Ok(Backlog {
        deliveries,
        deliveries_leased,
        oldest_delivery_due,
        deliveries_held,
        effects,
        oldest_effect_due,
        lanes,
        routes,
        webhooks_off,
    })
}

fn routes(db: &Connection) -> Result<BTreeMap<(OrganizationId, String), RouteBacklog>, StoreError> {
    let mut statement = db.prepare_cached(ROUTE_BACKLOG)?;
    let mut rows = statement.query([])?;
    let mut routes = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (effects, failing): (i64, i64) = (row.get(2)?, row.get(3)?);
        let (effects, failing) = (effects.unsigned_abs(), failing.unsigned_abs());
        let backlog = RouteBacklog { effects, failing, oldest: columns::optional_time(row, 4)? };
        routes.insert((columns::organization(row, 0)?, row.get(1)?), backlog);
    }
    Ok(routes)
}

fn lanes_by_route(db: &Connection) -> Result<BTreeMap<(OrganizationId, String), u64>, StoreError> {
    let mut statement = db.prepare_cached(LANE_BACKLOG)?;
    let mut rows = statement.query([])?;
    let mut lanes = BTreeMap::new();
    while let Some(row) = rows.next()? {
        lanes.insert((columns::organization(row, 0)?, row.get(1)?), row.get::<_, i64>(2)?.unsigned_abs());
    }
    Ok(lanes)
}

fn count_and_oldest(db: &Connection, sql: &str) -> Result<(u64, Option<Timestamp>), StoreError> {
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok((0, None)) };
    Ok((row.get::<_, i64>(0)?.unsigned_abs(), columns::optional_time(row, 1)?))
}

/// Writes something harmless.
pub(super) fn ping(db: &Connection) -> Result<(), StoreError> {
    db.prepare_cached(PING)?.execute([])?;
    Ok(())
}
