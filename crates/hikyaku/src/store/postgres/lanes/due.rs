//! Taking lanes that are due, with their first rows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::{LaneColumns, nth};
use crate::store::postgres::columns::{self, after, millis, number, read_text, text};
use crate::store::postgres::database::Database;
use crate::store::postgres::looks::{Looks, Written};
use crate::store::postgres::transaction::Transaction;
use crate::store::{ClaimedLane, EFFECT_INTERRUPTED, LaneClaim, LaneClaims, LaneKey, StoreError, WorkRow};

/// After how long lanes are looked for again that are due but locked: somebody adds to them, takes them or ends their
/// work at this moment.
const LOCKED_PAUSE: Duration = Duration::from_millis(20);

/// Those that somebody else has locked are left to them.
const DUE: &str = "SELECT l.organization, l.route, l.provider, l.lane, l.begun
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[], $5::BIGINT[]) s (organization, route, slots, since)
    CROSS JOIN LATERAL (SELECT * FROM lanes
        WHERE organization COLLATE \"POSIX\" = s.organization AND route COLLATE \"POSIX\" = s.route AND due_at >= s.since AND due_at <= $4
        ORDER BY due_at LIMIT s.slots FOR UPDATE SKIP LOCKED) l";
/// Before lanes are taken: the rows that were first when they were taken before, and that were left without an end.
const INTERRUPT: &str = "UPDATE work w SET failures = w.failures + 1, error = $6
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::TEXT[]) WITH ORDINALITY
            a (organization, route, provider, lane, delivery, n),
        LATERAL (SELECT ctid AS tuple FROM work w
            WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                AND w.delivery COLLATE \"POSIX\" = a.delivery AND w.route COLLATE \"POSIX\" = a.route AND w.lane = a.lane LIMIT 1) found
    WHERE w.ctid = found.tuple
    RETURNING a.n";
/// The claim takes the lane's first row up to the one at its number, or all where there are not so many.
const TAKE: &str = "UPDATE lanes l SET owner = $5, due_at = $6, claim = NEXTVAL('lane_claims'),
        begun = (SELECT w.delivery FROM work w
            WHERE w.organization = l.organization AND w.route = l.route AND w.provider = l.provider AND w.lane = l.lane
            ORDER BY w.micros, w.rank, w.event, w.delivery LIMIT 1),
        taken_to = COALESCE(
            (SELECT w.delivery FROM work w
                WHERE w.organization = l.organization AND w.route = l.route AND w.provider = l.provider AND w.lane = l.lane
                ORDER BY w.micros, w.rank, w.event, w.delivery LIMIT 1 OFFSET $7::BIGINT - 1),
            (SELECT w.delivery FROM work w
                WHERE w.organization = l.organization AND w.route = l.route AND w.provider = l.provider AND w.lane = l.lane
                ORDER BY w.micros DESC, w.rank DESC, w.event DESC, w.delivery DESC LIMIT 1))
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY
            a (organization, route, provider, lane, n),
        LATERAL (SELECT ctid AS tuple FROM lanes l
            WHERE l.organization = a.organization AND l.route = a.route AND l.provider = a.provider AND l.lane = a.lane LIMIT 1) found
    WHERE l.ctid = found.tuple
    RETURNING a.n, l.claim";
const APPLIED: &str = "SELECT a.n, p.micros, p.rank, p.event
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY a (organization, route, provider, lane, n)
    JOIN applied p
        ON p.organization = a.organization AND p.route = a.route AND p.provider = a.provider AND p.lane = a.lane";
/// The first rows of each lane. A body that is not asked for is empty; one that is asked for and not there is NULL.
const ROWS: &str = "SELECT a.n, w.delivery, r.source, r.type, r.key, w.micros, w.rank, w.event, w.failures, r.received_at,
        r.due_since, CASE WHEN $6 AND NOT w.is_last THEN ''::BYTEA ELSE b.body END
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY a (organization, route, provider, lane, n)
    CROSS JOIN LATERAL (
        SELECT *, LEAD(delivery) OVER (ORDER BY micros, rank, event, delivery) IS NULL AS is_last
        FROM (SELECT * FROM work
            WHERE organization = a.organization AND route = a.route AND provider = a.provider AND lane = a.lane
            ORDER BY micros, rank, event, delivery LIMIT $5) first) w
    JOIN inbox_rows r ON r.organization = w.organization AND r.due_since = w.due_since AND r.position = w.position
    LEFT JOIN inbox_bodies b ON b.organization = w.organization AND b.due_since = w.due_since
        AND b.position = w.position AND (w.is_last OR NOT $6)
    ORDER BY a.n, w.micros, w.rank, w.event, w.delivery";
/// Of each route: when the next lane is due that is not due yet, and since when one is due that was not taken.
const NEXT: &str = "SELECT
        (SELECT l.due_at FROM lanes l
            WHERE l.organization COLLATE \"POSIX\" = s.organization AND l.route COLLATE \"POSIX\" = s.route
                AND l.due_at > $4 AND l.due_at <= $5
            ORDER BY l.due_at LIMIT 1),
        (SELECT l.due_at FROM lanes l
            WHERE l.organization COLLATE \"POSIX\" = s.organization AND l.route COLLATE \"POSIX\" = s.route
                AND l.due_at >= s.since AND l.due_at <= $4
            ORDER BY l.due_at LIMIT 1)
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[]) WITH ORDINALITY s (organization, route, since, n) ORDER BY s.n";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[DUE, INTERRUPT, TAKE, APPLIED, ROWS, NEXT];

/// What a node remembers of a route between its claims.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::store::postgres) struct LaneLook {
    looks: Looks,
    /// Since when a lane is due that was left, if one was.
    left: Option<i64>,
}

impl LaneLook {
    /// From which due time on lanes are looked for.
    fn from(self, now: i64, written: Option<i64>) -> Option<i64> {
        let from = self.looks.from(now)?;
        self.left.into_iter().chain(written).chain([from]).min()
    }
}

/// How far back lanes were looked for, by organization and route.
pub(in crate::store::postgres) type LaneLooks = HashMap<(OrganizationId, String), LaneLook>;

/// What a node remembers between its claims.
#[derive(Debug, Default)]
pub(in crate::store::postgres) struct Memory {
    looks: Mutex<LaneLooks>,
    pub(in crate::store::postgres) written: Written,
}

/// A claim, and what is remembered: how far back lanes were looked for, and from when on some may be due since.
pub(in crate::store::postgres) type Asked = (LaneClaim, LaneLooks, Option<i64>);

/// Takes due lanes, with their first rows.
pub(in crate::store::postgres) async fn take_due(
    db: &Database,
    memory: &Memory,
    claim: LaneClaim,
) -> Result<LaneClaims, StoreError> {
    let looks = memory.looks.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let written = memory.written.take();
    let claimed = claim_from(db, (claim, looks, written)).await;
    let (claims, looks) = claimed.inspect_err(|_| memory.written.give_back(written))?;
    memory.looks.lock().unwrap_or_else(PoisonError::into_inner).extend(looks);
    Ok(claims)
}

async fn claim_from(db: &Database, asked: Asked) -> Result<(LaneClaims, LaneLooks), StoreError> {
    let none = db.look(&asked, |transaction, asked| Box::pin(none_due(transaction, asked)));
    match none.await? {
        Some(none) => Ok(none),
        None => db.write(asked, |transaction, asked| Box::pin(claim(transaction, asked))).await,
    }
}

/// The answer to a claim when no lane is due, or `None` when one is.
async fn none_due(
    transaction: &Transaction<'_>,
    (claim, before, written): &Asked,
) -> Result<Option<(LaneClaims, LaneLooks)>, StoreError> {
    let (next_due, looks) = next_due(transaction, claim, &Routes::new(claim, before, *written), &[]).await?;
    let is_any_due = looks.values().any(|look| look.left.is_some());
    Ok((!is_any_due).then(|| (LaneClaims { lanes: Vec::new(), next_due }, looks)))
}

/// Takes due lanes, with their first rows; and how far back they were looked for.
pub(in crate::store::postgres) async fn claim(
    transaction: &Transaction<'_>,
    (claim, before, written): &Asked,
) -> Result<(LaneClaims, LaneLooks), StoreError> {
    let routes = Routes::new(claim, before, *written);
    let mut found = due(transaction, claim, &routes).await?;
    interrupt(transaction, &mut found).await?;
    let mut lanes: Vec<_> = found.into_iter().map(|found| found.lane).collect();
    take(transaction, claim, &mut lanes).await?;
    let (next_due, looks) = next_due(transaction, claim, &routes, &lanes).await?;
    Ok((LaneClaims { lanes, next_due }, looks))
}

/// The routes of a claim as columns of a statement's parameters, and what is remembered of each.
struct Routes<'a> {
    organizations: Vec<&'a str>,
    names: Vec<Cow<'a, str>>,
    looks: Vec<LaneLook>,
    /// From when on lanes are looked for; `None`: all of them are.
    from: Vec<Option<i64>>,
    since: Vec<i64>,
}

impl<'a> Routes<'a> {
    fn new(claim: &'a LaneClaim, before: &LaneLooks, written: Option<i64>) -> Self {
        let known = |slot: &(OrganizationId, String, u32)| before.get(&(slot.0.clone(), slot.1.clone())).copied();
        let looks: Vec<_> = claim.slots.iter().map(|slot| known(slot).unwrap_or_default()).collect();
        let from: Vec<_> = looks.iter().map(|look| look.from(millis(claim.now), written)).collect();
        Self {
            organizations: claim.slots.iter().map(|slot| slot.0.as_str()).collect(),
            names: claim.slots.iter().map(|slot| text(&slot.1)).collect(),
            since: from.iter().map(|from| from.unwrap_or(i64::MIN)).collect(),
            looks,
            from,
        }
    }
}

/// A lane that is due, and locked.
struct DueLane {
    lane: ClaimedLane,
    /// The delivery that was first when it was taken before, if no end of that was written.
    begun: Option<String>,
}

async fn due(
    transaction: &Transaction<'_>,
    claim: &LaneClaim,
    routes: &Routes<'_>,
) -> Result<Vec<DueLane>, StoreError> {
    let slots: Vec<_> = claim.slots.iter().map(|slot| i64::from(slot.2)).collect();
    let Routes { organizations, names, since, .. } = routes;
    let rows = transaction.query(DUE, &[organizations, names, &slots, &millis(claim.now), since]).await?;
    let due = |row: &Row| {
        let (organization, route) = (columns::organization(row, 0)?, read_text(row, 1)?);
        let key = LaneKey { organization, route, provider: read_text(row, 2)?, lane: read_text(row, 3)? };
        let begun: Option<&str> = row.try_get(4)?;
        let begun = begun.map(|_| read_text(row, 4)).transpose()?;
        Ok(DueLane { lane: ClaimedLane { key, claim: 0, applied: None, interrupted: None, rows: Vec::new() }, begun })
    };
    rows.iter().map(due).collect()
}

/// Counts a failure of what was left without an end.
async fn interrupt(transaction: &Transaction<'_>, found: &mut [DueLane]) -> Result<(), StoreError> {
    let mut begun: Vec<_> = found.iter_mut().filter(|found| found.begun.is_some()).collect();
    if begun.is_empty() {
        return Ok(());
    }
    let lanes: LaneColumns<'_> = begun.iter().map(|found| &found.lane.key).collect();
    let deliveries: Vec<_> = begun.iter().map(|found| text(found.begun.as_deref().unwrap_or_default())).collect();
    let left = transaction.query(INTERRUPT, &lanes.and([&deliveries, &EFFECT_INTERRUPTED])).await?;
    for row in left {
        if let Some(DueLane { lane, begun }) = begun.get_mut(nth(&row)?) {
            lane.interrupted = begun.take();
        }
    }
    Ok(())
}

/// Takes these lanes, and reads what they hold.
async fn take(transaction: &Transaction<'_>, claim: &LaneClaim, lanes: &mut [ClaimedLane]) -> Result<(), StoreError> {
    if lanes.is_empty() {
        return Ok(());
    }
    let columns: LaneColumns<'_> = lanes.iter().map(|lane| &lane.key).collect();
    let (owner, lease_end) = (&*claim.lease.owner, millis(after(claim.now, claim.lease.duration)));
    let most = i64::from(claim.rows_each);
    let (key, lease) = (columns.and([]), columns.and([&owner, &lease_end, &most]));
    let portion = columns.and([&most, &claim.last_body_only]);
    let (taken, applied, rows) = tokio::try_join!(
        transaction.query(TAKE, &lease),
        transaction.query(APPLIED, &key),
        transaction.query(ROWS, &portion),
    )?;
    drop((key, lease, portion));
    for row in taken {
        if let Some(lane) = lanes.get_mut(nth(&row)?) {
            lane.claim = number(&row, 1)?;
        }
    }
    for row in applied {
        if let Some(lane) = lanes.get_mut(nth(&row)?) {
            lane.applied = Some(columns::version(&row, 1)?);
        }
    }
    for row in rows {
        if let Some(lane) = lanes.get_mut(nth(&row)?) {
            lane.rows.push(work_row(&row)?);
        }
    }
    Ok(())
}

fn work_row(row: &Row) -> Result<WorkRow, StoreError> {
    Ok(WorkRow {
        delivery: read_text(row, 1)?,
        source: read_text(row, 2)?,
        event_type: read_text(row, 3)?,
        key: read_text(row, 4)?,
        version: columns::version(row, 5)?,
        failures: number(row, 8)?,
        received_at: columns::time(row, 9)?,
        due_since: columns::time(row, 10)?,
        body: columns::body(row, 11)?,
    })
}

async fn next_due(
    transaction: &Transaction<'_>,
    claim: &LaneClaim,
    routes: &Routes<'_>,
    taken: &[ClaimedLane],
) -> Result<(Option<Timestamp>, LaneLooks), StoreError> {
    let Routes { organizations, names, looks, from, since } = routes;
    let (now, until) = (millis(claim.now), millis(claim.until));
    let (mut next, mut looked) = (None, LaneLooks::new());
    let rows = transaction.query(NEXT, &[organizations, names, since, &now, &until]).await?;
    for ((row, (organization, route, slots)), (look, from)) in rows.iter().zip(&claim.slots).zip(looks.iter().zip(from))
    {
        let of_route = taken.iter().filter(|lane| lane.key.organization == *organization && lane.key.route == *route);
        let left: Option<i64> = row.try_get(1)?;
        // With a slot left over, whatever is still due was locked by somebody.
        let is_locked = of_route.count() < *slots as usize && left.is_some();
        let again = is_locked.then(|| after(claim.now, LOCKED_PAUSE));
        next = next.into_iter().chain(again).chain(columns::optional_time(row, 0)?).min();
        let looks = look.looks.and(now, *from);
        looked.insert((organization.clone(), route.clone()), LaneLook { looks, left });
    }
    Ok((next, looked))
}
