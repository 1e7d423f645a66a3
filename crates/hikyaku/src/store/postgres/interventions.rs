//! What a person does about inbox rows, each in the transaction of its batch.

use std::borrow::Cow;
use std::collections::BTreeSet;

use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis, number, read_text, text};
use super::effects::{Ending, Place, end_rows, set_states};
use super::inbox::{insert_work, record_all};
use super::lanes::{self, LaneColumns, NewWork};
use super::quarantine;
use super::transaction::{Parameters, Transaction};
use crate::store::{Act, EffectState, Intervened, Intervention, LaneKey, RecordOutcome, RowState, StoreError};

/// Nobody gives the rows another beginning, or drops them, until the end of this transaction.
const LOCK_IDS: &str = "SELECT FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) a (organization, provider, delivery)
    JOIN inbox_ids i ON i.organization = a.organization AND i.provider = a.provider AND i.delivery = a.delivery
    ORDER BY i.organization, i.provider, i.delivery FOR UPDATE OF i";
const LANES: &str = "SELECT w.organization, w.route, w.provider, w.lane
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) a (organization, provider, delivery)
    CROSS JOIN LATERAL (SELECT * FROM work w
            WHERE w.organization COLLATE \"POSIX\" = a.organization AND w.provider COLLATE \"POSIX\" = a.provider
                AND w.delivery COLLATE \"POSIX\" = a.delivery OFFSET 0) w";
const LOCK_ROWS: &str = "SELECT FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) a (organization, provider, delivery)
    JOIN inbox_ids i ON i.organization = a.organization AND i.provider = a.provider AND i.delivery = a.delivery
    JOIN inbox_rows r ON r.organization = i.organization AND r.due_since = i.due_since AND r.position = i.position
    ORDER BY r.organization, r.due_since, r.position FOR UPDATE OF r";
const FIND: &str = "SELECT r.due_since, r.position, r.key, r.micros, r.rank, r.event, r.state
    FROM inbox_ids i
    JOIN inbox_rows r ON r.organization = i.organization AND r.due_since = i.due_since AND r.position = i.position
    WHERE i.organization = $1 AND i.provider = $2 AND i.delivery = $3";
const TAKE_EFFECTS: &str = "DELETE FROM effects e USING UNNEST($4::TEXT[], $5::TEXT[]) a (route, state)
    WHERE e.organization = $1 AND e.due_since = $2 AND e.position = $3 AND e.route = a.route AND e.state = a.state
    RETURNING e.route";
const BEGIN: &str = "UPDATE inbox_rows SET state = 'waiting', reason = '', due_since = $4
    WHERE organization = $1 AND due_since = $2 AND position = $3";
const MOVE_BODY: &str = "UPDATE inbox_bodies SET due_since = $4
    WHERE organization = $1 AND due_since = $2 AND position = $3";
const MOVE_EFFECTS: &str = "UPDATE effects SET due_since = $4
    WHERE organization = $1 AND due_since = $2 AND position = $3";
const MOVE_ID: &str = "UPDATE inbox_ids SET due_since = $4 WHERE organization = $1 AND provider = $2 AND delivery = $3";
const MOVE_WORK: &str = "UPDATE work SET due_since = $4
    WHERE organization COLLATE \"POSIX\" = $1 AND provider COLLATE \"POSIX\" = $2 AND delivery COLLATE \"POSIX\" = $3";
const EXPLAIN: &str = "UPDATE inbox_rows SET state = $4, reason = $5
    WHERE organization = $1 AND due_since = $2 AND position = $3";
/// A row's work, and whether somebody may be making it take effect: whether it is one of those that a lease which lasts
/// was taken for.
const WAITING: &str = "SELECT w.route, w.failures, l.owner IS NOT NULL AND l.due_at > $5
        AND COALESCE((SELECT (w.micros, w.rank, w.event, w.delivery) >= (f.micros, f.rank, f.event, f.delivery) FROM work f
            WHERE f.organization COLLATE \"POSIX\" = l.organization AND f.provider COLLATE \"POSIX\" = l.provider
                AND f.delivery COLLATE \"POSIX\" = l.begun AND f.route COLLATE \"POSIX\" = l.route LIMIT 1), FALSE)
        AND COALESCE((SELECT (w.micros, w.rank, w.event, w.delivery) <= (t.micros, t.rank, t.event, t.delivery) FROM work t
            WHERE t.organization COLLATE \"POSIX\" = l.organization AND t.provider COLLATE \"POSIX\" = l.provider
                AND t.delivery COLLATE \"POSIX\" = l.taken_to AND t.route COLLATE \"POSIX\" = l.route LIMIT 1), FALSE)
    FROM work w CROSS JOIN LATERAL (SELECT * FROM lanes l WHERE l.organization = w.organization AND l.route = w.route
            AND l.provider = w.provider AND l.lane = w.lane LIMIT 1) l
    WHERE w.organization COLLATE \"POSIX\" = $1 AND w.provider COLLATE \"POSIX\" = $2 AND w.delivery COLLATE \"POSIX\" = $3
        AND ($4::TEXT IS NULL OR w.route = $4)
    ORDER BY w.route COLLATE \"POSIX\"";
/// A lease that has ended is taken from whoever had it: what they still write of the lane is refused. One that lasts was
/// taken for other rows, and stays.
const FREE: &str = "UPDATE lanes l SET owner = NULL, due_at = LEAST(l.due_at, $5)
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) a (organization, route, provider, lane),
        LATERAL (SELECT ctid AS tuple FROM lanes l
            WHERE l.organization = a.organization AND l.route = a.route AND l.provider = a.provider AND l.lane = a.lane LIMIT 1) found
    WHERE l.ctid = found.tuple
        AND (l.owner IS NULL OR l.due_at <= $5)";
const DISCARD_DEAD: &str = "UPDATE effects SET state = 'discarded', detail = $5, ended_at = $6
    WHERE organization = $1 AND due_since = $2 AND position = $3 AND state = 'dead' AND ($4::TEXT IS NULL OR route = $4)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    LOCK_IDS,
    LANES,
    LOCK_ROWS,
    FIND,
    TAKE_EFFECTS,
    BEGIN,
    MOVE_BODY,
    MOVE_EFFECTS,
    MOVE_ID,
    MOVE_WORK,
    EXPLAIN,
    WAITING,
    FREE,
    DISCARD_DEAD,
];

/// The times of the rows that these may write.
pub(super) fn times(batch: &[Intervention]) -> Vec<Timestamp> {
    let time = |asked: &Intervention| match &asked.act {
        Act::Replay { .. } | Act::Release { .. } => Some(asked.now),
        Act::Admit(row) => Some(row.due_at),
        Act::Discard { .. } => None,
    };
    batch.iter().filter_map(time).collect()
}

/// Does them one after another, each as far as it can be done.
pub(super) async fn all(transaction: &Transaction<'_>, batch: &[Intervention]) -> Result<Vec<Intervened>, StoreError> {
    lock(transaction, batch).await?;
    let mut outcomes = Vec::with_capacity(batch.len());
    for asked in batch {
        outcomes.push(intervene(transaction, asked).await?);
    }
    Ok(outcomes)
}

/// Locks the rows with the lanes of their work, so that nothing about them changes meanwhile.
async fn lock(transaction: &Transaction<'_>, batch: &[Intervention]) -> Result<(), StoreError> {
    let organizations: Vec<_> = batch.iter().map(|asked| asked.organization.as_str()).collect();
    let providers: Vec<_> = batch.iter().map(|asked| text(&asked.provider)).collect();
    let deliveries: Vec<_> = batch.iter().map(|asked| text(&asked.delivery)).collect();
    transaction.execute(LOCK_IDS, &[&organizations, &providers, &deliveries]).await?;
    let mut lanes = BTreeSet::new();
    for row in transaction.query(LANES, &[&organizations, &providers, &deliveries]).await? {
        let (organization, route) = (columns::organization(&row, 0)?, read_text(&row, 1)?);
        lanes.insert(LaneKey { organization, route, provider: read_text(&row, 2)?, lane: read_text(&row, 3)? });
    }
    lanes::lock(transaction, &lanes).await?;
    transaction.execute(LOCK_ROWS, &[&organizations, &providers, &deliveries]).await?;
    Ok(())
}

/// The row that somebody does something about.
struct Found<'a> {
    transaction: &'a Transaction<'a>,
    asked: &'a Intervention,
    due_since: i64,
    position: i64,
    key: String,
    version: Version,
    state: RowState,
}

/// Does it, or says why not.
async fn intervene<'a>(transaction: &'a Transaction<'a>, asked: &'a Intervention) -> Result<Intervened, StoreError> {
    let Some(found) = find(transaction, asked).await? else { return Ok(Intervened::NoSuchRow) };
    match &asked.act {
        Act::Replay { effects } => found.replay(effects).await,
        Act::Release { routes, park_reason } => found.release(routes, park_reason).await,
        Act::Discard { route, reason } => found.discard(route.as_deref(), reason).await,
        Act::Admit(row) if found.state == RowState::Quarantined => {
            let id = [asked.organization.as_str(), &asked.provider, &asked.delivery];
            quarantine::drop_row(transaction, id, found.due_since, found.position).await?;
            let recorded = record_all(transaction, std::slice::from_ref(&**row)).await?;
            let is_stored = recorded.contains(&RecordOutcome::Stored);
            Ok(if is_stored { Intervened::Done } else { Intervened::Duplicate })
        }
        Act::Admit(_) => Ok(Intervened::Unfit(found.state)),
    }
}

async fn find<'a>(transaction: &'a Transaction<'a>, asked: &'a Intervention) -> Result<Option<Found<'a>>, StoreError> {
    let (organization, provider, delivery) =
        (asked.organization.as_str(), text(&asked.provider), text(&asked.delivery));
    let Some(row) = transaction.optional(FIND, &[&organization, &provider, &delivery]).await? else { return Ok(None) };
    Ok(Some(Found {
        transaction,
        asked,
        due_since: row.try_get(0)?,
        position: row.try_get(1)?,
        key: read_text(&row, 2)?,
        version: columns::version(&row, 3)?,
        state: columns::row_state(&row, 6)?,
    }))
}

impl<'a> Found<'a> {
    fn organization(&self) -> &'a str {
        self.asked.organization.as_str()
    }

    fn id(&self) -> [Cow<'a, str>; 2] {
        [text(&self.asked.provider), text(&self.asked.delivery)]
    }

    fn lane(&self, route: &str) -> LaneKey {
        let asked = self.asked;
        LaneKey::in_route(&asked.organization, route, &asked.provider, &self.key, &asked.delivery)
    }

    fn unfit(&self) -> Result<Intervened, StoreError> {
        Ok(Intervened::Unfit(self.state))
    }

    async fn replay(&self, effects: &[(String, EffectState)]) -> Result<Intervened, StoreError> {
        let (routes, states): (Vec<_>, Vec<_>) =
            effects.iter().map(|(route, state)| (text(route), state.as_str())).unzip();
        let organization = self.organization();
        let parameters: Parameters<'_> = &[&organization, &self.due_since, &self.position, &routes, &states];
        let taken = self.transaction.query(TAKE_EFFECTS, parameters).await?;
        if taken.is_empty() {
            return self.unfit();
        }
        let taken = taken.iter().map(|row| read_text(row, 0)).collect::<Result<Vec<_>, _>>()?;
        self.begin(&taken).await
    }

    async fn release(&self, routes: &[String], park_reason: &str) -> Result<Intervened, StoreError> {
        if self.state != RowState::Parked {
            return self.unfit();
        }
        if routes.is_empty() {
            self.explain(RowState::Parked, park_reason).await?;
            return Ok(Intervened::StillParked);
        }
        self.begin(routes).await
    }

    /// Makes the row's work of these routes due. The row moves with all that is its own to the day of this beginning.
    async fn begin(&self, routes: &[String]) -> Result<Intervened, StoreError> {
        let Intervention { delivery, now, .. } = self.asked;
        let work = routes.iter().map(|route| NewWork {
            lane: self.lane(route),
            delivery,
            version: &self.version,
            due_at: *now,
            position: self.position,
        });
        let work: Vec<_> = work.collect();
        lanes::open(self.transaction, &work).await?;
        insert_work(self.transaction, &work).await?;
        let (organization, [provider, delivery], now) = (self.organization(), self.id(), millis(*now));
        for statement in [BEGIN, MOVE_BODY, MOVE_EFFECTS] {
            self.transaction.execute(statement, &[&organization, &self.due_since, &self.position, &now]).await?;
        }
        for statement in [MOVE_ID, MOVE_WORK] {
            self.transaction.execute(statement, &[&organization, &provider, &delivery, &now]).await?;
        }
        Ok(Intervened::Done)
    }

    async fn explain(&self, state: RowState, reason: &str) -> Result<(), StoreError> {
        let (organization, state, reason) = (self.organization(), state.as_str(), text(reason));
        self.transaction.execute(EXPLAIN, &[&organization, &self.due_since, &self.position, &state, &reason]).await?;
        Ok(())
    }

    async fn discard(&self, route: Option<&str>, reason: &str) -> Result<Intervened, StoreError> {
        if matches!(self.state, RowState::Parked | RowState::Quarantined) && route.is_none() {
            quarantine::forget(self.transaction, self.organization(), self.position).await?;
            self.explain(RowState::Discarded, reason).await?;
            return Ok(Intervened::Done);
        }
        let waiting = self.waiting(route).await?;
        if waiting.iter().any(|waiting| waiting.is_held) {
            return Ok(Intervened::UnderWay);
        }
        self.discard_waiting(&waiting, reason).await?;
        let (organization, at) = (self.organization(), millis(self.asked.at));
        let (route, reason) = (route.map(text), text(reason));
        let dead: Parameters<'_> = &[&organization, &self.due_since, &self.position, &route, &reason, &at];
        let dead = self.transaction.execute(DISCARD_DEAD, dead).await?;
        if dead == 0 && waiting.is_empty() {
            return self.unfit();
        }
        let place = Place {
            organization: organization.to_owned(),
            id: self.id().map(Cow::into_owned),
            due_since: self.due_since,
            position: self.position,
        };
        set_states(self.transaction, &[place]).await?;
        Ok(Intervened::Done)
    }

    async fn waiting(&self, route: Option<&str>) -> Result<Vec<Waiting>, StoreError> {
        let (organization, [provider, delivery]) = (self.organization(), self.id());
        let (route, now) = (route.map(text), millis(self.asked.now));
        let found = self.transaction.query(WAITING, &[&organization, &provider, &delivery, &route, &now]).await?;
        let waiting = |row: &Row| {
            let lane = self.lane(&read_text(row, 0)?);
            Ok(Waiting { lane, failures: number(row, 1)?, is_held: row.try_get(2)? })
        };
        found.iter().map(waiting).collect()
    }

    async fn discard_waiting<'w>(&self, waiting: &'w [Waiting], reason: &str) -> Result<(), StoreError> {
        let Intervention { delivery, at, now, .. } = self.asked;
        let ending = |waiting: &'w Waiting| Ending {
            lane: &waiting.lane,
            delivery,
            state: EffectState::Discarded,
            failures: waiting.failures,
            detail: reason,
            at: *at,
        };
        let endings: Vec<_> = waiting.iter().map(ending).collect();
        if endings.is_empty() {
            return Ok(());
        }
        end_rows(self.transaction, &endings).await?;
        let lanes: LaneColumns<'_> = waiting.iter().map(|waiting| &waiting.lane).collect();
        self.transaction.execute(FREE, &lanes.and([&millis(*now)])).await?;
        lanes::close(self.transaction, waiting.iter().map(|waiting| &waiting.lane)).await
    }
}

/// Work of a row that is to be discarded.
struct Waiting {
    lane: LaneKey,
    failures: u32,
    is_held: bool,
}
