//! What a person does about inbox rows, each in the transaction of its batch.

use hikyaku_core::ordering::Version;
use rusqlite::{Connection, params};

use super::columns::{self, millis, sound};
use super::inbox::{add_work, record};
use super::lanes::{close_lane, end_row, find_work, parts, set_state};
use super::quarantine;
use super::writer::Transaction;
use crate::store::{
    Act, EffectState, EndedRow, Intervened, Intervention, LaneKey, RecordOutcome, RowState, StoreError,
};

const FIND: &str = "SELECT position, key, micros, rank, event, state FROM inbox_rows
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
const TAKE_EFFECT: &str = "DELETE FROM effects
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3 AND route = ?4 AND state = ?5";
const BEGIN: &str = "UPDATE inbox_rows SET state = 'waiting', reason = '', due_since = ?2 WHERE position = ?1";
const EXPLAIN: &str = "UPDATE inbox_rows SET state = ?2, reason = ?3 WHERE position = ?1";
const WAITING: &str = "SELECT route FROM work INDEXED BY work_row
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3 AND (?4 IS NULL OR route = ?4) ORDER BY route";
/// Whether a row at this place in its lane is one of those that a lease which lasts was taken for.
const IS_TAKEN: &str = "SELECT EXISTS (SELECT 1 FROM lanes l
    JOIN work f INDEXED BY work_row ON f.organization = l.organization AND f.provider = l.provider
        AND f.delivery = l.begun AND f.route = l.route
    JOIN work t INDEXED BY work_row ON t.organization = l.organization AND t.provider = l.provider
        AND t.delivery = l.taken_to AND t.route = l.route
    WHERE l.organization = ?1 AND l.route = ?2 AND l.provider = ?3 AND l.lane = ?4
        AND l.owner IS NOT NULL AND l.due_at > ?5
        AND (?6, ?7, ?8, ?9) >= (f.micros, f.rank, f.event, f.delivery)
        AND (?6, ?7, ?8, ?9) <= (t.micros, t.rank, t.event, t.delivery))";
/// A lease that has ended is taken from whoever had it: what they still write of the lane is refused. One that lasts was
/// taken for other rows, and stays.
const FREE: &str = "UPDATE lanes SET owner = NULL, due_at = MIN(due_at, ?5)
    WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4 AND (owner IS NULL OR due_at <= ?5)";
const DISCARD_DEAD: &str = "UPDATE effects SET state = 'discarded', detail = ?5, ended_at = ?6
    WHERE organization = ?1 AND provider = ?2 AND delivery = ?3 AND state = 'dead' AND (?4 IS NULL OR route = ?4)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[FIND, TAKE_EFFECT, BEGIN, EXPLAIN, WAITING, IS_TAKEN, FREE, DISCARD_DEAD];

/// The row that somebody does something about.
struct Found<'a> {
    db: &'a Connection,
    asked: &'a Intervention,
    position: i64,
    key: String,
    version: Version,
    state: RowState,
}

/// Does it, or says why not.
pub(super) fn intervene(transaction: &mut Transaction<'_>, asked: &Intervention) -> Result<Intervened, StoreError> {
    let Some(found) = find(transaction.db, asked)? else { return Ok(Intervened::NoSuchRow) };
    match &asked.act {
        Act::Replay { effects } => found.replay(effects),
        Act::Release { routes, park_reason } => found.release(routes, park_reason),
        Act::Discard { route, reason } => found.discard(route.as_deref(), reason),
        Act::Admit(row) if found.state == RowState::Quarantined => {
            quarantine::drop_row(transaction.db, found.position)?;
            Ok(match record(transaction, row)? {
                RecordOutcome::Stored => Intervened::Done,
                RecordOutcome::Duplicate => Intervened::Duplicate,
            })
        }
        Act::Admit(_) => Ok(Intervened::Unfit(found.state)),
    }
}

fn find<'a>(db: &'a Connection, asked: &'a Intervention) -> Result<Option<Found<'a>>, StoreError> {
    let mut statement = db.prepare_cached(FIND)?;
    let mut rows = statement.query([asked.organization.as_str(), &asked.provider, &asked.delivery])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let state: String = row.get(5)?;
    Ok(Some(Found {
        db,
        asked,
        position: row.get(0)?,
        key: row.get(1)?,
        version: columns::version(row, 2)?,
        state: sound("inbox_rows.state", RowState::parse(&state).ok_or("holds a word that has no meaning"))?,
    }))
}

impl Found<'_> {
    fn id(&self) -> [&str; 3] {
        [self.asked.organization.as_str(), &self.asked.provider, &self.asked.delivery]
    }

    fn lane(&self, route: &str) -> LaneKey {
        let asked = self.asked;
        LaneKey::in_route(&asked.organization, route, &asked.provider, &self.key, &asked.delivery)
    }

    fn unfit(&self) -> Result<Intervened, StoreError> {
        Ok(Intervened::Unfit(self.state))
    }

    fn replay(&self, effects: &[(String, EffectState)]) -> Result<Intervened, StoreError> {
        let [organization, provider, delivery] = self.id();
        let mut taken = Vec::new();
        for (route, state) in effects {
            let effect = params![organization, provider, delivery, route, state.as_str()];
            if self.db.prepare_cached(TAKE_EFFECT)?.execute(effect)? > 0 {
                taken.push(route);
            }
        }
        if taken.is_empty() { self.unfit() } else { self.begin(taken) }
    }

    fn release(&self, routes: &[String], park_reason: &str) -> Result<Intervened, StoreError> {
        if self.state != RowState::Parked {
            return self.unfit();
        }
        if routes.is_empty() {
            self.explain(RowState::Parked, park_reason)?;
            return Ok(Intervened::StillParked);
        }
        self.begin(routes)
    }

    /// Makes the row's work of these routes due.
    fn begin<'r>(&self, routes: impl IntoIterator<Item = &'r String>) -> Result<Intervened, StoreError> {
        let now = self.asked.now;
        for route in routes {
            add_work(self.db, &self.lane(route), &self.asked.delivery, &self.version, now)?;
        }
        self.db.prepare_cached(BEGIN)?.execute(params![self.position, millis(now)])?;
        Ok(Intervened::Done)
    }

    fn explain(&self, state: RowState, reason: &str) -> Result<(), StoreError> {
        self.db.prepare_cached(EXPLAIN)?.execute(params![self.position, state.as_str(), reason])?;
        Ok(())
    }

    fn discard(&self, route: Option<&str>, reason: &str) -> Result<Intervened, StoreError> {
        if matches!(self.state, RowState::Parked | RowState::Quarantined) && route.is_none() {
            quarantine::forget(self.db, self.position)?;
            self.explain(RowState::Discarded, reason)?;
            return Ok(Intervened::Done);
        }
        let waiting = self.waiting(route)?;
        for route in &waiting {
            if self.is_taken(route)? {
                return Ok(Intervened::UnderWay);
            }
        }
        for route in &waiting {
            self.discard_waiting(route, reason)?;
        }
        let [organization, provider, delivery] = self.id();
        let dead = params![organization, provider, delivery, route, reason, millis(self.asked.at)];
        let dead = self.db.prepare_cached(DISCARD_DEAD)?.execute(dead)?;
        if dead == 0 && waiting.is_empty() {
            return self.unfit();
        }
        set_state(self.db, self.id())?;
        Ok(Intervened::Done)
    }

    fn waiting(&self, route: Option<&str>) -> Result<Vec<String>, StoreError> {
        let [organization, provider, delivery] = self.id();
        let mut statement = self.db.prepare_cached(WAITING)?;
        let routes = statement.query_map(params![organization, provider, delivery, route], |row| row.get(0))?;
        Ok(routes.collect::<Result<_, _>>()?)
    }

    fn is_taken(&self, route: &str) -> Result<bool, StoreError> {
        let lane = self.lane(route);
        let [organization, route, provider, name] = parts(&lane);
        let (now, delivery) = (millis(self.asked.now), &self.asked.delivery);
        let Version { micros, rank, event } = &self.version;
        let place = params![organization, route, provider, name, now, micros, *rank as i64, event, delivery];
        Ok(self.db.prepare_cached(IS_TAKEN)?.query_row(place, |row| row.get(0))?)
    }

    fn discard_waiting(&self, route: &str, reason: &str) -> Result<(), StoreError> {
        let lane = self.lane(route);
        let (delivery, state) = (self.asked.delivery.clone(), EffectState::Discarded);
        let failures = find_work(self.db, &lane, &delivery)?.map_or(0, |(_, failures)| failures);
        let ended = EndedRow { delivery, state, failures, detail: reason.to_owned() };
        end_row(self.db, &lane, &ended, self.asked.at)?;
        let parameters = params![lane.organization.as_str(), route, lane.provider, lane.lane, millis(self.asked.now)];
        self.db.prepare_cached(FREE)?.execute(parameters)?;
        close_lane(self.db, &lane)
    }
}
