//! Old events, with their deliveries, attempts and notes.
//!
//! An event goes whole, however many deliveries it has: nobody waits here for a longer transaction.

use hikyaku_core::ids::EventId;

use super::Step;
use crate::store::postgres::columns::{self, millis};
use crate::store::postgres::days::Day;
use crate::store::postgres::transaction::Parameters;
use crate::store::{EventPlace, StoreError};

/// Whether anything of the event `e` waits or is held.
macro_rules! kept {
    () => {
        "((SELECT 1 FROM waiting AS w WHERE w.organization = e.organization AND w.created_at = e.created_at
            AND w.event = e.id LIMIT 1) IS NOT NULL
        OR (SELECT 1 FROM undelivered AS u WHERE u.organization = e.organization AND u.event = e.id
            AND u.kind = 'held' LIMIT 1) IS NOT NULL)"
    };
}
/// A statement about the rows of a table that belong to events of one day: the parameters are their organizations, their
/// times and their ids, and the day's bounds.
macro_rules! of_each {
    ($table:literal, $event:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " AS t USING UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[]) AS gone (organization, created_at, id)
            WHERE t.organization = gone.organization AND t.created_at = gone.created_at AND t.",
            $event,
            " = gone.id AND t.created_at >= $4 AND t.created_at < $5"
        )
    };
}
const NEXT: &str = "SELECT created_at FROM event_ids
    WHERE (created_at, organization, id) >= ($1, $2, $3) AND created_at < $4
    ORDER BY created_at, organization, id LIMIT 1";
/// From organization to organization by the key: an index by time alone would cost every delivery.
const KEPT_OF_DAYS: &str = "WITH RECURSIVE walk AS (
        (SELECT organization FROM waiting ORDER BY organization LIMIT 1)
        UNION ALL
        SELECT next.organization FROM walk, LATERAL (
            SELECT w.organization FROM waiting w
            WHERE w.organization > walk.organization ORDER BY w.organization LIMIT 1) next)
    SELECT EXISTS (SELECT 1 FROM walk, LATERAL (SELECT 1 FROM waiting w
            WHERE w.organization = walk.organization AND w.created_at >= $1 AND w.created_at < $2 LIMIT 1) kept)
    OR EXISTS (SELECT 1 FROM undelivered WHERE kind = 'held' AND created_at >= $1 AND created_at < $2)";
const EVENTS: &str = concat!(
    "SELECT organization, id, created_at, ",
    kept!(),
    ",
        (SELECT COUNT(*) FROM deliveries AS d WHERE d.organization = e.organization AND d.created_at = e.created_at
            AND d.event = e.id AND d.created_at >= $5 AND d.created_at < $6),
        (SELECT COUNT(*) FROM attempts AS a WHERE a.organization = e.organization AND a.created_at = e.created_at
            AND a.event = e.id AND a.created_at >= $5 AND a.created_at < $6),
        (SELECT COUNT(*) FROM undelivered AS u WHERE u.organization = e.organization AND u.event = e.id)
    FROM event_ids AS e
    WHERE (created_at, organization, id) >= ($1, $2, $3) AND created_at < $4
    ORDER BY created_at, organization, id LIMIT $7"
);
const LOCK_IDS: &str = "SELECT 1 FROM UNNEST($1::TEXT[], $2::TEXT[]) AS old (organization, id)
    JOIN event_ids AS e ON e.organization = old.organization AND e.id = old.id
    ORDER BY e.organization, e.id FOR UPDATE OF e";
const LOCK_NOTES: &str = "SELECT 1 FROM UNNEST($1::TEXT[], $2::TEXT[]) AS old (organization, id)
    JOIN undelivered AS u ON u.organization = old.organization AND u.event = old.id
    ORDER BY u.organization, u.event, u.webhook FOR UPDATE OF u";
const STILL_OLD: &str = concat!(
    "SELECT old.place FROM UNNEST($1::TEXT[], $2::BIGINT[], $3::TEXT[])
        WITH ORDINALITY AS old (organization, created_at, id, place)
    JOIN event_ids AS e ON e.organization = old.organization AND e.id = old.id AND e.created_at = old.created_at
    WHERE NOT ",
    kept!(),
    " ORDER BY old.place"
);
const DROP_ATTEMPTS: &str = of_each!("attempts", "event");
const DROP_DELIVERIES: &str = of_each!("deliveries", "event");
const DROP_EVENTS: &str = of_each!("events", "id");
const DROP_NOTES: &str = of_each!("undelivered", "event");
const DROP_IDS: &str = of_each!("event_ids", "id");

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[
    NEXT,
    KEPT_OF_DAYS,
    EVENTS,
    LOCK_IDS,
    LOCK_NOTES,
    STILL_OLD,
    DROP_ATTEMPTS,
    DROP_DELIVERIES,
    DROP_EVENTS,
    DROP_NOTES,
    DROP_IDS,
];

/// An event that may be dropped, and what there is of it.
struct OldEvent {
    place: EventPlace,
    deliveries: u64,
    attempts: u64,
    notes: u64,
}

/// Goes along the events from the oldest, day by day. Gives the place where it stopped for having touched as many rows as
/// it may.
pub(super) async fn drop(step: &mut Step<'_>, from: Option<&EventPlace>) -> Result<Option<EventPlace>, StoreError> {
    let mut at = from.map_or((i64::MIN, "", ""), |place| {
        (millis(place.created_at), place.organization.as_str(), place.event.as_str())
    });
    loop {
        let next = step.transaction.optional(NEXT, &[&at.0, &at.1, &at.2, &step.before]).await?;
        let Some(next) = next else { return Ok(None) };
        let day = Day::of(columns::time(&next, 0)?);
        let stopped = drop_of(step, day, at).await?;
        if stopped.is_some() {
            return Ok(stopped);
        }
        at = (day.end(), "", "");
    }
}

async fn drop_of(step: &mut Step<'_>, day: Day, at: (i64, &str, &str)) -> Result<Option<EventPlace>, StoreError> {
    let goes_whole = step.goes_whole(day, KEPT_OF_DAYS).await?;
    let before = day.end().min(step.before);
    let asked: Parameters<'_> = &[&at.0, &at.1, &at.2, &before, &day.start(), &day.end(), &step.limit()];
    let (mut old, mut stopped) = (Vec::new(), None);
    for row in step.transaction.query(EVENTS, asked).await? {
        let (organization, event) = (columns::organization(&row, 0)?, columns::event_id(&row, 1)?);
        let place = EventPlace { organization, created_at: columns::time(&row, 2)?, event };
        if step.left == 0 {
            stopped = Some(place);
            break;
        }
        step.touch(1);
        if row.try_get(3)? {
            continue;
        }
        let count = |index| columns::number(&row, index);
        let event = OldEvent { place, deliveries: count(4)?, attempts: count(5)?, notes: count(6)? };
        step.touch(event.notes + if goes_whole { 0 } else { event.deliveries + event.attempts });
        old.push(event);
    }
    forget(step, day, goes_whole, old).await?;
    Ok(stopped)
}

/// Forgets these events of a day, but for those of which anything has begun to wait meanwhile.
async fn forget(step: &mut Step<'_>, day: Day, goes_whole: bool, old: Vec<OldEvent>) -> Result<(), StoreError> {
    let transaction = step.transaction;
    let (organizations, times, ids) = columns_of(&old);
    let events: Parameters<'_> = &[&organizations, &ids];
    let (locked, noted) = tokio::join!(transaction.query(LOCK_IDS, events), transaction.query(LOCK_NOTES, events));
    locked.and(noted)?;
    let mut gone = Vec::new();
    for row in transaction.query(STILL_OLD, &[&organizations, &times, &ids]).await? {
        // Places are counted from 1.
        gone.extend(old.get(columns::number::<usize>(&row, 0)?.wrapping_sub(1)));
    }
    let (organizations, times, ids) = columns_of(gone.iter().copied());
    let each: Parameters<'_> = &[&organizations, &times, &ids, &day.start(), &day.end()];
    if !goes_whole {
        let (attempts, deliveries, events) = tokio::join!(
            transaction.execute(DROP_ATTEMPTS, each),
            transaction.execute(DROP_DELIVERIES, each),
            transaction.execute(DROP_EVENTS, each)
        );
        attempts.and(deliveries).and(events)?;
    }
    let (notes, events) = tokio::join!(transaction.execute(DROP_NOTES, each), transaction.execute(DROP_IDS, each));
    notes?;
    step.dropped.events += events?;
    step.dropped.deliveries += gone.iter().map(|event| event.deliveries).sum::<u64>();
    step.dropped.attempts += gone.iter().map(|event| event.attempts).sum::<u64>();
    Ok(())
}

/// Organizations, times and ids.
fn columns_of<'a>(events: impl IntoIterator<Item = &'a OldEvent>) -> (Vec<&'a str>, Vec<i64>, Vec<&'a str>) {
    let columns = events.into_iter().map(|OldEvent { place, .. }| {
        let (organization, id): (_, &EventId) = (place.organization.as_str(), &place.event);
        (organization, millis(place.created_at), id.as_str())
    });
    columns.collect()
}
