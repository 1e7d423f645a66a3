//! Received deliveries: storing them once, and showing them.

use std::collections::BTreeMap;

use hikyaku_core::ids::OrganizationId;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{self, millis, number, read_text, sound, text};
use super::lanes::{self, LaneColumns, NewWork};
use super::quarantine;
use super::transaction::{Parameters, Transaction};
use crate::store::{
    EffectState, EffectView, Found, InboxQuery, InboxRowDetail, InboxRowView, LaneKey, NewRow, RecordOutcome, RowPlace,
    RowPosition, RowState, StoreError,
};

/// Most bytes of bodies in one statement, but for a single body that is larger.
const MAX_BODY_BYTES: usize = 16 << 20;

/// Whoever records the same id at the same time is waited for. Positions are in the order in which the rows are given.
const INSERT_IDS: &str = "INSERT INTO inbox_ids (organization, provider, delivery, due_since, position)
    SELECT organization, provider, delivery, due_since, position
    FROM (SELECT a.*, NEXTVAL('inbox_positions') AS position
        FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[]) WITH ORDINALITY
            a (organization, provider, delivery, due_since, n) ORDER BY n) a
    ORDER BY organization COLLATE \"C\", provider COLLATE \"C\", delivery COLLATE \"C\"
    ON CONFLICT (organization, provider, delivery) DO NOTHING
    RETURNING organization, provider, delivery, position";
const INSERT_ROWS: &str = "INSERT INTO inbox_rows (organization, position, due_since, provider, delivery, source, type,
        key, micros, rank, event, received_at, state, reason)
    SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::TEXT[], $5::TEXT[], $6::TEXT[], $7::TEXT[],
        $8::TEXT[], $9::BIGINT[], $10::BIGINT[], $11::TEXT[], $12::BIGINT[], $13::TEXT[], $14::TEXT[])";
const INSERT_BODIES: &str = "INSERT INTO inbox_bodies (organization, position, due_since, body)
    SELECT * FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[])";
const INSERT_WORK: &str = "INSERT INTO work
        (organization, route, provider, lane, micros, rank, event, delivery, due_since, position, failures, error)
    SELECT a.*, 0, '' FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[], $6::BIGINT[], $7::TEXT[],
        $8::TEXT[], $9::BIGINT[], $10::BIGINT[]) a";

/// The list by each of its indexes. What else a query asks for is looked for among the rows that the index gives, no more
/// of them than may be looked at; the last of these comes too, whether it is meant or not.
macro_rules! list {
    ($filter:literal) => {
        concat!(
            "SELECT * FROM (SELECT r.position, r.provider, r.source, r.delivery, r.type, r.key, r.micros, r.received_at,
            r.state, r.reason, r.n,
            ($3::TEXT IS NULL OR r.state = $3) AND ($4::TEXT IS NULL OR r.source = $4) AND ($7::TEXT IS NULL
                OR EXISTS (SELECT FROM effects e WHERE e.organization = $1 AND e.due_since = r.due_since
                    AND e.position = r.position AND e.route = $7 AND ($3 IS NULL OR e.state = $3))
                OR (($3 IS NULL OR $3 = 'waiting') AND EXISTS (SELECT FROM work w WHERE w.organization COLLATE \"POSIX\" = $1
                    AND w.provider COLLATE \"POSIX\" = r.provider AND w.delivery COLLATE \"POSIX\" = r.delivery
                    AND w.route COLLATE \"POSIX\" = $7))) AS meant
        FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY position DESC) AS n FROM inbox_rows
            WHERE organization = $1 AND ",
            $filter,
            " AND position < $5 ORDER BY position DESC LIMIT $8) r) r
    WHERE meant OR n = $8 ORDER BY position DESC LIMIT $6"
        )
    };
}
pub(super) const LIST_OF_KEY: &str = list!("key = $2::TEXT");
pub(super) const LIST_OF_STATE: &str = list!("$2::TEXT IS NULL AND state = $3");
pub(super) const LIST_OF_SOURCE: &str = list!("$2::TEXT IS NULL AND source = $4");
pub(super) const LIST: &str = list!("$2::TEXT IS NULL");
const ROW: &str = "SELECT r.position, r.provider, r.source, r.delivery, r.type, r.key, r.micros, r.received_at, r.state,
        r.reason, r.due_since, b.body
    FROM inbox_ids i
    JOIN inbox_rows r ON r.organization = i.organization AND r.due_since = i.due_since AND r.position = i.position
    LEFT JOIN inbox_bodies b ON b.organization = i.organization AND b.due_since = i.due_since AND b.position = i.position
    WHERE i.organization = $1 AND i.provider = $2 AND i.delivery = $3";
const EFFECTS: &str = "SELECT route, state, failures, detail, ended_at FROM effects
    WHERE organization = $1 AND due_since = $2 AND position = $3";
/// The lane's time stands only while nobody holds it.
const WAITING_EFFECTS: &str = "SELECT w.route, w.failures, w.error, l.due_at
    FROM work w LEFT JOIN LATERAL (SELECT due_at FROM lanes l WHERE l.organization = w.organization AND l.route = w.route
            AND l.provider = w.provider AND l.lane = w.lane AND l.owner IS NULL LIMIT 1) l ON TRUE
    WHERE w.organization COLLATE \"POSIX\" = $1 AND w.provider COLLATE \"POSIX\" = $2 AND w.delivery COLLATE \"POSIX\" = $3";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    INSERT_IDS,
    INSERT_ROWS,
    INSERT_BODIES,
    INSERT_WORK,
    LIST_OF_KEY,
    LIST_OF_STATE,
    LIST_OF_SOURCE,
    LIST,
    ROW,
    EFFECTS,
    WAITING_EFFECTS,
];

/// A received delivery that has its place.
pub(super) struct Placed<'a> {
    pub(super) row: &'a NewRow,
    pub(super) position: i64,
    pub(super) state: RowState,
}

/// Stores received deliveries with their work, but for those whose ids are known (C6, T1).
pub(super) async fn record_all(
    transaction: &Transaction<'_>,
    rows: &[NewRow],
) -> Result<Vec<RecordOutcome>, StoreError> {
    let mut outcomes = vec![RecordOutcome::Duplicate; rows.len()];
    let mut placed = Vec::new();
    for (n, position) in take_ids(transaction, rows).await? {
        let Some((row, outcome)) = rows.get(n).zip(outcomes.get_mut(n)) else { continue };
        let state = if row.routes.is_empty() { RowState::Parked } else { RowState::Waiting };
        placed.push(Placed { row, position, state });
        *outcome = RecordOutcome::Stored;
    }
    if placed.is_empty() {
        return Ok(outcomes);
    }
    let work: Vec<_> =
        placed.iter().flat_map(|placed| placed.row.routes.iter().map(|route| work_of(placed, route))).collect();
    lanes::open(transaction, &work).await?;
    tokio::try_join!(put(transaction, &placed), insert_work(transaction, &work))?;
    Ok(outcomes)
}

/// Takes the rows' ids; the places of those that nobody had taken, with their positions in the inbox.
async fn take_ids(transaction: &Transaction<'_>, rows: &[NewRow]) -> Result<BTreeMap<usize, i64>, StoreError> {
    let mut ids = BTreeMap::new();
    for (n, row) in rows.iter().enumerate() {
        ids.entry([text(row.organization.as_str()), text(&row.provider), text(&row.delivery)]).or_insert(n);
    }
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    // Of equal ids the first counts, and the order of the rows is that of the inbox.
    let firsts: BTreeMap<_, _> = ids.iter().map(|(id, n)| (*n, id)).collect();
    let [organizations, providers, deliveries] =
        [0, 1, 2].map(|part| firsts.values().map(|id| &id[part]).collect::<Vec<_>>());
    let due: Vec<_> = firsts.keys().filter_map(|n| rows.get(*n)).map(|row| millis(row.due_at)).collect();
    let taken = transaction.query(INSERT_IDS, &[&organizations, &providers, &deliveries, &due]).await?;
    let mut places = BTreeMap::new();
    for row in taken {
        let id: [&str; 3] = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
        if let Some(n) = ids.get(&id.map(std::borrow::Cow::Borrowed)) {
            places.insert(*n, row.try_get(3)?);
        }
    }
    Ok(places)
}

fn work_of<'a>(placed: &Placed<'a>, route: &str) -> NewWork<'a> {
    let NewRow { delivery, version, due_at, .. } = placed.row;
    NewWork { lane: LaneKey::of(placed.row, route), delivery, version, due_at: *due_at, position: placed.position }
}

/// Stores rows and their bodies.
pub(super) async fn put(transaction: &Transaction<'_>, placed: &[Placed<'_>]) -> Result<(), StoreError> {
    insert_rows(transaction, placed).await?;
    let mut left = placed;
    while !left.is_empty() {
        let mut bytes = 0;
        let fit = left.iter().take_while(|placed| {
            bytes += placed.row.body.len();
            bytes <= MAX_BODY_BYTES
        });
        let (now, later) = left.split_at(fit.count().max(1));
        insert_bodies(transaction, now).await?;
        left = later;
    }
    Ok(())
}

async fn insert_rows(transaction: &Transaction<'_>, placed: &[Placed<'_>]) -> Result<(), StoreError> {
    let rows = || placed.iter().map(|placed| placed.row);
    let organizations: Vec<_> = rows().map(|row| row.organization.as_str()).collect();
    let positions: Vec<_> = placed.iter().map(|placed| placed.position).collect();
    let due_since: Vec<_> = rows().map(|row| millis(row.due_at)).collect();
    let providers: Vec<_> = rows().map(|row| text(&row.provider)).collect();
    let deliveries: Vec<_> = rows().map(|row| text(&row.delivery)).collect();
    let sources: Vec<_> = rows().map(|row| text(&row.source)).collect();
    let types: Vec<_> = rows().map(|row| text(&row.event_type)).collect();
    let keys: Vec<_> = rows().map(|row| text(&row.key)).collect();
    let micros: Vec<_> = rows().map(|row| row.version.micros).collect();
    let ranks: Vec<_> = rows().map(|row| row.version.rank as i64).collect();
    let events: Vec<_> = rows().map(|row| text(&row.version.event)).collect();
    let received_at: Vec<_> = rows().map(|row| millis(row.received_at)).collect();
    let states: Vec<_> = placed.iter().map(|placed| placed.state.as_str()).collect();
    let reasons: Vec<_> = rows().map(|row| text(&row.park_reason)).collect();
    let parameters: [&(dyn ToSql + Sync); 14] = [
        &organizations,
        &positions,
        &due_since,
        &providers,
        &deliveries,
        &sources,
        &types,
        &keys,
        &micros,
        &ranks,
        &events,
        &received_at,
        &states,
        &reasons,
    ];
    transaction.execute(INSERT_ROWS, &parameters).await?;
    Ok(())
}

async fn insert_bodies(transaction: &Transaction<'_>, placed: &[Placed<'_>]) -> Result<(), StoreError> {
    let organizations: Vec<_> = placed.iter().map(|placed| placed.row.organization.as_str()).collect();
    let positions: Vec<_> = placed.iter().map(|placed| placed.position).collect();
    let due_since: Vec<_> = placed.iter().map(|placed| millis(placed.row.due_at)).collect();
    let bodies: Vec<_> = placed.iter().map(|placed| &placed.row.body[..]).collect();
    transaction.execute(INSERT_BODIES, &[&organizations, &positions, &due_since, &bodies]).await?;
    Ok(())
}

/// Adds work to its lanes, which are there and locked.
pub(super) async fn insert_work(transaction: &Transaction<'_>, work: &[NewWork<'_>]) -> Result<(), StoreError> {
    if work.is_empty() {
        return Ok(());
    }
    let lanes: LaneColumns<'_> = work.iter().map(|new| &new.lane).collect();
    let micros: Vec<_> = work.iter().map(|new| new.version.micros).collect();
    let ranks: Vec<_> = work.iter().map(|new| new.version.rank as i64).collect();
    let events: Vec<_> = work.iter().map(|new| text(&new.version.event)).collect();
    let deliveries: Vec<_> = work.iter().map(|new| text(new.delivery)).collect();
    let due_since: Vec<_> = work.iter().map(|new| millis(new.due_at)).collect();
    let positions: Vec<_> = work.iter().map(|new| new.position).collect();
    let work = lanes.and([&micros, &ranks, &events, &deliveries, &due_since, &positions]);
    transaction.execute(INSERT_WORK, &work).await?;
    Ok(())
}

/// A page of the inbox, newest first.
pub(super) async fn list(
    transaction: &Transaction<'_>,
    query: &InboxQuery,
) -> Result<Found<InboxRowView, RowPlace>, StoreError> {
    let InboxQuery { organization, source, state, key, route, before, limit, look_at } = query;
    let organization = organization.as_str();
    let [key, source, route] = [key, source, route].map(|asked| asked.as_deref().map(text));
    let state = state.map(RowState::as_str);
    let before = before.map_or(i64::MAX, |before| before.0);
    let (limit, look_at) = (i64::from(*limit), i64::from(*look_at));
    let parameters: [&(dyn ToSql + Sync); 8] =
        [&organization, &key, &state, &source, &before, &limit, &route, &look_at];
    let mut found = Found { rows: Vec::new(), searched_to: None };
    for row in transaction.query(statement(query), &parameters).await? {
        let view = view(&row)?;
        let (number, is_meant): (i64, bool) = (row.try_get(10)?, row.try_get(11)?);
        if number == look_at {
            found.searched_to = Some(RowPlace { position: view.position, received_at: view.received_at });
        }
        if is_meant {
            found.rows.push(view);
        }
    }
    Ok(found)
}

/// The statement whose index leaves the fewest rows to look at: a key has few, and nearly all rows end as done.
fn statement(query: &InboxQuery) -> &'static str {
    match query {
        InboxQuery { key: Some(_), .. } => LIST_OF_KEY,
        InboxQuery { state: Some(RowState::Done), source: Some(_), .. } => LIST_OF_SOURCE,
        InboxQuery { state: Some(_), .. } => LIST_OF_STATE,
        InboxQuery { source: Some(_), .. } => LIST_OF_SOURCE,
        _ => LIST,
    }
}

/// One row with its body and its effects, or `None`.
pub(super) async fn detail(
    transaction: &Transaction<'_>,
    organization: &OrganizationId,
    provider: &str,
    delivery: &str,
) -> Result<Option<InboxRowDetail>, StoreError> {
    let (organization, provider, delivery) = (organization.as_str(), text(provider), text(delivery));
    let Some(row) = transaction.optional(ROW, &[&organization, &provider, &delivery]).await? else { return Ok(None) };
    let (position, due_since): (i64, i64) = (row.try_get(0)?, row.try_get(10)?);
    let place: Parameters<'_> = &[&organization, &due_since, &position];
    let id: Parameters<'_> = &[&organization, &provider, &delivery];
    let (headers, ended, waiting) = tokio::try_join!(
        quarantine::headers(transaction, organization, position),
        transaction.query(EFFECTS, place),
        transaction.query(WAITING_EFFECTS, id),
    )?;
    let effects = ended.iter().map(ended_effect).chain(waiting.iter().map(waiting_effect));
    let mut effects = effects.collect::<Result<Vec<_>, _>>()?;
    effects.sort_by(|a, b| a.route.cmp(&b.route));
    Ok(Some(InboxRowDetail { row: view(&row)?, body: columns::body(&row, 11)?, headers: headers.into(), effects }))
}

fn ended_effect(row: &Row) -> Result<EffectView, StoreError> {
    Ok(EffectView {
        route: read_text(row, 0)?,
        state: columns::effect_state(row, 1)?,
        failures: number(row, 2)?,
        next_attempt_at: None,
        detail: read_text(row, 3)?,
        ended_at: columns::optional_time(row, 4)?,
    })
}

fn waiting_effect(row: &Row) -> Result<EffectView, StoreError> {
    Ok(EffectView {
        route: read_text(row, 0)?,
        state: EffectState::Waiting,
        failures: number(row, 1)?,
        next_attempt_at: columns::optional_time(row, 3)?,
        detail: read_text(row, 2)?,
        ended_at: None,
    })
}

fn view(row: &Row) -> Result<InboxRowView, StoreError> {
    Ok(InboxRowView {
        position: RowPosition(row.try_get(0)?),
        provider: read_text(row, 1)?,
        source: read_text(row, 2)?,
        delivery: read_text(row, 3)?,
        event_type: read_text(row, 4)?,
        key: read_text(row, 5)?,
        timestamp: sound("inbox_rows.micros", Timestamp::from_microsecond(row.try_get(6)?))?,
        received_at: columns::time(row, 7)?,
        state: columns::row_state(row, 8)?,
        reason: read_text(row, 9)?,
    })
}
