//! Showing events and the backlog.

use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, read_text};
use super::transaction::Transaction;
use super::undelivered::{self, FIRST_RUN};
use crate::store::{AttemptRecord, Backlog, DeliveryView, EventView, RouteBacklog, StoreError, Upkeep};

const DAY: &str = "SELECT created_at FROM event_ids WHERE organization = $1 AND id = $2";
const EVENT: &str = "SELECT type, timestamp, body, created_at FROM events
    WHERE organization = $1 AND created_at = $2 AND id = $3";
const WAITING: &str = "SELECT webhook, due_at, owner IS NOT NULL, run FROM waiting
    WHERE organization = $1 AND created_at = $2 AND event = $3";
const ENDED: &str = "SELECT webhook, state, reason, run FROM deliveries
    WHERE organization = $1 AND created_at = $2 AND event = $3";
const ATTEMPTS: &str =
    "SELECT run, number, started_at, duration_micros, http_status, failure, error, response_body, webhook
    FROM attempts WHERE organization = $1 AND created_at = $2 AND event = $3 ORDER BY webhook, run, number";
pub(super) const DELIVERY_BACKLOG: &str = "SELECT COUNT(*), MIN(due_at), COUNT(owner) FROM waiting";
pub(super) const HELD_BACKLOG: &str = "SELECT COUNT(*), NULL::BIGINT FROM undelivered WHERE kind = 'held'";
pub(super) const EFFECT_BACKLOG: &str = "SELECT (SELECT COUNT(*) FROM work), (SELECT MIN(due_at) FROM lanes)";
pub(super) const LANE_BACKLOG: &str = "SELECT organization, route, COUNT(*) FROM lanes GROUP BY organization, route";
pub(super) const ROUTE_BACKLOG: &str = "SELECT organization, route, COUNT(*),
        COUNT(*) FILTER (WHERE failures > 0), MIN(due_since)
    FROM work GROUP BY organization, route";
pub(super) const WEBHOOKS_OFF: &str = "SELECT COUNT(*), MIN(off_since) FROM webhooks WHERE off_since IS NOT NULL";

/// Of sessions of other users PostgreSQL tells nothing to whoever has not `pg_read_all_stats`.
pub(super) const OLDEST_TRANSACTION: &str = "SELECT (extract(epoch FROM clock_timestamp() - MIN(since)) * 1000)::BIGINT
    FROM (SELECT xact_start AS since FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) open";
pub(super) const ENDED_ROWS: &str = "SELECT SUM(pg_stat_get_dead_tuples(hot::regclass))::BIGINT
    FROM UNNEST(ARRAY['waiting', 'work', 'lanes']) hot";

/// The statements of this file. Those of the backlog read all that is hot, and nothing of history.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    DAY,
    EVENT,
    WAITING,
    ENDED,
    ATTEMPTS,
    DELIVERY_BACKLOG,
    HELD_BACKLOG,
    EFFECT_BACKLOG,
    LANE_BACKLOG,
    ROUTE_BACKLOG,
    WEBHOOKS_OFF,
    OLDEST_TRANSACTION,
    ENDED_ROWS,
];

/// An event with its deliveries and their attempts, or `None`.
pub(super) async fn event(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    id: &EventId,
) -> Result<Option<EventView>, StoreError> {
    let names = [organization.as_str(), id.as_str()];
    let Some(day) = transaction.optional(DAY, &[&names[0], &names[1]]).await? else { return Ok(None) };
    let created_at = day.try_get(0)?;
    let Some(row) = transaction.optional(EVENT, &[&names[0], &created_at, &names[1]]).await? else { return Ok(None) };
    let mut deliveries = deliveries(transaction, names, created_at).await?;
    let (held, missed) = undelivered::of_event(transaction, names).await?;
    deliveries.extend(held.into_iter().map(|held| (held.webhook.clone(), self::held(held.webhook))));
    for row in transaction.query(ATTEMPTS, &[&names[0], &created_at, &names[1]]).await? {
        if let Some(delivery) = deliveries.get_mut(&columns::webhook_id(&row, 8)?) {
            delivery.attempts.push(attempt(&row, 0)?);
        }
    }
    Ok(Some(EventView {
        id: id.clone(),
        event_type: columns::event_type(&row, 0)?,
        timestamp: columns::time(&row, 1)?,
        created_at: columns::time(&row, 3)?,
        body: columns::body(&row, 2)?,
        deliveries: deliveries.into_values().collect(),
        missed,
    }))
}

async fn deliveries(
    transaction: &Transaction<'_>,
    [organization, event]: [&str; 2],
    created_at: i64,
) -> Result<BTreeMap<WebhookId, DeliveryView>, StoreError> {
    let mut found = BTreeMap::new();
    for row in transaction.query(WAITING, &[&organization, &created_at, &event]).await? {
        let delivery = waiting(&row)?;
        found.insert(delivery.webhook.clone(), delivery);
    }
    for row in transaction.query(ENDED, &[&organization, &created_at, &event]).await? {
        let delivery = ended(&row)?;
        found.insert(delivery.webhook.clone(), delivery);
    }
    Ok(found)
}

fn waiting(row: &Row) -> Result<DeliveryView, StoreError> {
    let in_flight: bool = row.try_get(2)?;
    Ok(DeliveryView {
        webhook: columns::webhook_id(row, 0)?,
        state: DeliveryState::Waiting,
        run: columns::number(row, 3)?,
        next_attempt_at: if in_flight { None } else { columns::optional_time(row, 1)? },
        in_flight,
        reason: String::new(),
        attempts: Vec::new(),
    })
}

fn ended(row: &Row) -> Result<DeliveryView, StoreError> {
    Ok(DeliveryView {
        webhook: columns::webhook_id(row, 0)?,
        state: columns::delivery_state(row, 1)?,
        run: columns::number(row, 3)?,
        next_attempt_at: None,
        in_flight: false,
        reason: row.try_get(2)?,
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

/// An attempt from eight columns.
pub(super) fn attempt(row: &Row, first: usize) -> Result<AttemptRecord, StoreError> {
    Ok(AttemptRecord {
        run: columns::number(row, first)?,
        number: columns::number(row, first + 1)?,
        started_at: columns::time(row, first + 2)?,
        duration: columns::duration(row, first + 3)?,
        outcome: columns::outcome(row, first + 4)?,
        error: read_text(row, first + 6)?,
        response_body: columns::body(row, first + 7)?,
    })
}

/// How much waits.
pub(super) async fn backlog(transaction: &Transaction<'_>) -> Result<Backlog, StoreError> {
    let waiting = transaction.one(DELIVERY_BACKLOG, &[]).await?;
    let (deliveries_held, _) = count_and_oldest(transaction, HELD_BACKLOG).await?;
    let (effects, oldest_effect_due) = count_and_oldest(transaction, EFFECT_BACKLOG).await?;
    let (webhooks_off, _) = count_and_oldest(transaction, WEBHOOKS_OFF).await?;
    Ok(Backlog {
        deliveries: columns::number(&waiting, 0)?,
        deliveries_leased: columns::number(&waiting, 2)?,
        oldest_delivery_due: columns::optional_time(&waiting, 1)?,
        deliveries_held,
        effects,
        oldest_effect_due,
        lanes: lanes_by_route(transaction).await?,
        routes: routes(transaction).await?,
        webhooks_off,
    })
}

async fn routes(transaction: &Transaction<'_>) -> Result<BTreeMap<(OrganizationId, String), RouteBacklog>, StoreError> {
    let mut routes = BTreeMap::new();
    for row in transaction.query(ROUTE_BACKLOG, &[]).await? {
        let (effects, failing) = (columns::number(&row, 2)?, columns::number(&row, 3)?);
        let backlog = RouteBacklog { effects, failing, oldest: columns::optional_time(&row, 4)? };
        routes.insert((columns::organization(&row, 0)?, read_text(&row, 1)?), backlog);
    }
    Ok(routes)
}

async fn lanes_by_route(transaction: &Transaction<'_>) -> Result<BTreeMap<(OrganizationId, String), u64>, StoreError> {
    let mut lanes = BTreeMap::new();
    for row in transaction.query(LANE_BACKLOG, &[]).await? {
        lanes.insert((columns::organization(&row, 0)?, read_text(&row, 1)?), columns::number(&row, 2)?);
    }
    Ok(lanes)
}

async fn count_and_oldest(transaction: &Transaction<'_>, sql: &str) -> Result<(u64, Option<Timestamp>), StoreError> {
    let row = transaction.one(sql, &[]).await?;
    Ok((columns::number(&row, 0)?, columns::optional_time(&row, 1)?))
}

/// What keeps the database from cleaning up.
pub(super) async fn upkeep(transaction: &Transaction<'_>) -> Result<Upkeep, StoreError> {
    let open = transaction.one(OLDEST_TRANSACTION, &[]).await?.try_get::<_, Option<i64>>(0)?;
    let ended_rows = columns::number(&transaction.one(ENDED_ROWS, &[]).await?, 0)?;
    let oldest_transaction = open.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default()));
    Ok(Upkeep { oldest_transaction, ended_rows })
}
