//! Dropping what is old, in steps of bounded size that take their turn with all other writes.

use rusqlite::{Connection, OptionalExtension, params};

use super::columns::{self, millis, sound};
use super::lanes;
use super::quarantine;
use crate::store::{Aged, DropStep, Dropped, EventPlace, InboxPlace, LaneKey, RowPosition, StoreError, VersionPlace};
use hikyaku_core::ids::{EventId, OrganizationId};
use jiff::Timestamp;

const NEXT_ORGANIZATION: &str = "SELECT organization FROM events WHERE organization > ?1
    ORDER BY organization LIMIT 1";
const EVENTS: &str = "SELECT created_at, id FROM events
    WHERE organization = ?1 AND (created_at, id) >= (?2, ?3) ORDER BY created_at, id LIMIT ?4";
const WAITS: &str = "SELECT EXISTS (SELECT 1 FROM waiting WHERE organization = ?1 AND created_at = ?2 AND event = ?3)
    OR EXISTS (SELECT 1 FROM undelivered WHERE organization = ?1 AND event = ?3 AND kind = 'held')";
const DELIVERIES: &str = "SELECT webhook FROM deliveries WHERE organization = ?1 AND event = ?2
    UNION ALL SELECT webhook FROM undelivered WHERE organization = ?1 AND event = ?2 LIMIT ?3";
const DROP_ATTEMPTS: &str = "DELETE FROM attempts WHERE organization = ?1 AND event = ?2 AND webhook = ?3";
const DROP_DELIVERY: &str = "DELETE FROM deliveries WHERE organization = ?1 AND event = ?2 AND webhook = ?3";
const DROP_NOTE: &str = "DELETE FROM undelivered WHERE organization = ?1 AND event = ?2 AND webhook = ?3";
const DROP_EVENT: &str = "DELETE FROM events WHERE organization = ?1 AND id = ?2";
const INBOX_ROWS: &str = "SELECT due_since, position, organization, provider, delivery FROM inbox_rows
    WHERE (due_since, position) >= (?1, ?2) ORDER BY due_since, position LIMIT ?3";
const HAS_WORK: &str = "SELECT EXISTS
    (SELECT 1 FROM work WHERE organization = ?1 AND provider = ?2 AND delivery = ?3)";
const DROP_EFFECTS: &str = "DELETE FROM effects WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
const DROP_BODY: &str = "DELETE FROM inbox_bodies WHERE position = ?1";
const DROP_ROW: &str = "DELETE FROM inbox_rows WHERE position = ?1";
const KEEP_ID: &str = "INSERT INTO known_ids (organization, provider, delivery, due_since) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO NOTHING";
const IDS: &str = "SELECT organization, provider, delivery FROM known_ids WHERE due_since < ?1
    ORDER BY due_since LIMIT ?2";
const DROP_ID: &str = "DELETE FROM known_ids WHERE organization = ?1 AND provider = ?2 AND delivery = ?3";
const VERSIONS: &str = "SELECT applied_at, organization, route, provider, lane FROM applied
    WHERE (applied_at, organization, route, provider, lane) >= (?1, ?2, ?3, ?4, ?5) AND applied_at < ?6
    ORDER BY applied_at, organization, route, provider, lane LIMIT ?7";
const HAS_LANE: &str = "SELECT EXISTS
    (SELECT 1 FROM lanes WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4)";
const DROP_VERSION: &str = "DELETE FROM applied WHERE organization = ?1 AND route = ?2 AND provider = ?3 AND lane = ?4";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[
    NEXT_ORGANIZATION,
    EVENTS,
    WAITS,
    DELIVERIES,
    DROP_ATTEMPTS,
    DROP_DELIVERY,
    DROP_NOTE,
    DROP_EVENT,
    INBOX_ROWS,
    HAS_WORK,
    DROP_EFFECTS,
    DROP_BODY,
    DROP_ROW,
    KEEP_ID,
    IDS,
    DROP_ID,
    VERSIONS,
    HAS_LANE,
    DROP_VERSION,
];

/// Does one step.
pub(super) fn drop_aged(db: &Connection, step: &DropStep) -> Result<Dropped, StoreError> {
    let (before, ids_before) = (millis(step.before), millis(step.ids_before));
    let mut dropping = Dropping { db, before, ids_before, left: step.max_rows, dropped: Dropped::default() };
    dropping.dropped.next = match &step.what {
        Aged::Events(from) => dropping.events(from.as_ref())?.map(|place| Aged::Events(Some(place))),
        Aged::InboxRows(from) => dropping.inbox_rows(*from)?.map(|place| Aged::InboxRows(Some(place))),
        Aged::Ids => dropping.ids()?,
        Aged::Versions(from) => dropping.versions(from.as_ref())?.map(|place| Aged::Versions(Some(place))),
    };
    Ok(dropping.dropped)
}

struct Dropping<'a> {
    db: &'a Connection,
    before: i64,
    ids_before: i64,
    /// Rows that this step may still touch.
    left: u32,
    dropped: Dropped,
}

impl Dropping<'_> {
    fn touch(&mut self, rows: usize) {
        self.left = self.left.saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX));
    }

    /// Goes along the organizations, and along each one's events from the oldest. Gives the place where it stopped for
    /// having touched as many rows as it may.
    fn events(&mut self, from: Option<&EventPlace>) -> Result<Option<EventPlace>, StoreError> {
        // No name is empty, and so no organization comes before the first one.
        let mut organization = from.map_or_else(String::new, |place| place.organization.to_string());
        let mut at =
            from.map_or((i64::MIN, String::new()), |place| (millis(place.created_at), place.event.to_string()));
        loop {
            if !organization.is_empty()
                && let Some((created_at, event)) = self.events_of(&organization, at)?
            {
                return Ok(Some(EventPlace {
                    organization: sound("organization", OrganizationId::parse(organization))?,
                    created_at: sound("created_at", Timestamp::from_millisecond(created_at))?,
                    event: sound("event", EventId::parse(event))?,
                }));
            }
            let mut statement = self.db.prepare_cached(NEXT_ORGANIZATION)?;
            let next: Option<String> = statement.query_row([&organization], |row| row.get(0)).optional()?;
            let Some(next) = next else { return Ok(None) };
            (organization, at) = (next, (i64::MIN, String::new()));
            self.touch(1);
        }
    }

    fn events_of(&mut self, organization: &str, from: (i64, String)) -> Result<Option<(i64, String)>, StoreError> {
        let mut statement = self.db.prepare_cached(EVENTS)?;
        // One more than can be touched, so that there is always a place to stop at.
        let limit = i64::from(self.left) + 1;
        let events =
            statement.query_map(params![organization, from.0, from.1, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let events: Vec<(i64, String)> = events.collect::<Result<_, _>>()?;
        for (created_at, event) in events {
            if self.left == 0 {
                return Ok(Some((created_at, event)));
            }
            if created_at >= self.before {
                return Ok(None);
            }
            if !self.drop_event(organization, created_at, &event)? {
                return Ok(Some((created_at, event)));
            }
        }
        Ok(None)
    }

    /// Drops an event unless something of it waits; `false` where there was more of it than may be touched.
    fn drop_event(&mut self, organization: &str, created_at: i64, event: &str) -> Result<bool, StoreError> {
        self.touch(1);
        let place = params![organization, created_at, event];
        let waits: bool = self.db.prepare_cached(WAITS)?.query_row(place, |row| row.get(0))?;
        if waits {
            return Ok(true);
        }
        let mut statement = self.db.prepare_cached(DELIVERIES)?;
        let webhooks = statement.query_map(params![organization, event, i64::from(self.left) + 1], |row| row.get(0))?;
        for webhook in webhooks.collect::<Result<Vec<String>, _>>()? {
            let key = [organization, event, &webhook];
            let attempts = self.db.prepare_cached(DROP_ATTEMPTS)?.execute(key)?;
            let deliveries = self.db.prepare_cached(DROP_DELIVERY)?.execute(key)?;
            let notes = self.db.prepare_cached(DROP_NOTE)?.execute(key)?;
            self.dropped.attempts += attempts as u64;
            self.dropped.deliveries += deliveries as u64;
            self.touch(attempts + deliveries + notes);
            if self.left == 0 {
                return Ok(false);
            }
        }
        self.dropped.events += self.db.prepare_cached(DROP_EVENT)?.execute([organization, event])? as u64;
        Ok(true)
    }

    /// Goes along the received deliveries from the oldest.
    fn inbox_rows(&mut self, from: Option<InboxPlace>) -> Result<Option<InboxPlace>, StoreError> {
        let (due_since, position) = from.map_or((i64::MIN, i64::MIN), |at| (millis(at.due_since), at.position.0));
        let mut statement = self.db.prepare_cached(INBOX_ROWS)?;
        let mut rows = statement.query(params![due_since, position, i64::from(self.left) + 1])?;
        let mut old = Vec::new();
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(0)? >= self.before {
                break;
            }
            let place = InboxPlace { due_since: columns::time(row, 0)?, position: RowPosition(row.get(1)?) };
            old.push((place, [row.get(2)?, row.get(3)?, row.get::<_, String>(4)?]));
        }
        drop(rows);
        for (place, id) in old {
            if self.left == 0 {
                return Ok(Some(place));
            }
            self.drop_row(&place, [&id[0], &id[1], &id[2]])?;
        }
        Ok(None)
    }

    /// Drops a received delivery unless it has work left.
    fn drop_row(&mut self, place: &InboxPlace, id: [&str; 3]) -> Result<(), StoreError> {
        self.touch(1);
        let has_work: bool = self.db.prepare_cached(HAS_WORK)?.query_row(id, |row| row.get(0))?;
        if has_work {
            return Ok(());
        }
        let effects = self.db.prepare_cached(DROP_EFFECTS)?.execute(id)?;
        quarantine::forget(self.db, place.position.0)?;
        self.db.prepare_cached(DROP_BODY)?.execute([place.position.0])?;
        self.dropped.inbox_rows += self.db.prepare_cached(DROP_ROW)?.execute([place.position.0])? as u64;
        let due_since = millis(place.due_since);
        if due_since >= self.ids_before {
            self.db.prepare_cached(KEEP_ID)?.execute(params![id[0], id[1], id[2], due_since])?;
        }
        self.touch(effects + 1);
        Ok(())
    }

    /// Drops the oldest ids that outlived their rows.
    fn ids(&mut self) -> Result<Option<Aged>, StoreError> {
        let mut statement = self.db.prepare_cached(IDS)?;
        let ids =
            statement.query_map(params![self.before, self.left], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]));
        for id in ids?.collect::<Result<Vec<[String; 3]>, _>>()? {
            self.dropped.ids += self.db.prepare_cached(DROP_ID)?.execute(id)? as u64;
            self.touch(1);
        }
        Ok((self.left == 0).then_some(Aged::Ids))
    }

    /// Goes along the versions from the one that took effect first.
    fn versions(&mut self, from: Option<&VersionPlace>) -> Result<Option<VersionPlace>, StoreError> {
        let (at, lane) = match from {
            Some(VersionPlace { applied_at, lane }) => (millis(*applied_at), lanes::parts(lane)),
            None => (i64::MIN, [""; 4]),
        };
        let mut statement = self.db.prepare_cached(VERSIONS)?;
        let limit = i64::from(self.left) + 1;
        let mut rows = statement.query(params![at, lane[0], lane[1], lane[2], lane[3], self.before, limit])?;
        let mut old = Vec::new();
        while let Some(row) = rows.next()? {
            let (organization, route) = (columns::organization(row, 1)?, row.get(2)?);
            let lane = LaneKey { organization, route, provider: row.get(3)?, lane: row.get(4)? };
            old.push(VersionPlace { applied_at: columns::time(row, 0)?, lane });
        }
        drop(rows);
        for place in old {
            if self.left == 0 {
                return Ok(Some(place));
            }
            self.touch(1);
            let lane = lanes::parts(&place.lane);
            let has_work: bool = self.db.prepare_cached(HAS_LANE)?.query_row(lane, |row| row.get(0))?;
            if !has_work {
                self.dropped.versions += self.db.prepare_cached(DROP_VERSION)?.execute(lane)? as u64;
            }
        }
        Ok(None)
    }
}
