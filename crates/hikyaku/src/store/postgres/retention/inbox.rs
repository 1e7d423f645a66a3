//! Old received deliveries, with their bodies and effects.

use std::borrow::Cow;

use super::Step;
use crate::store::postgres::columns::{self, millis};
use crate::store::postgres::days::Day;
use crate::store::postgres::transaction::Parameters;
use crate::store::{InboxPlace, RowPosition, StoreError};

/// Whether the row of the id `i` has work left.
macro_rules! kept {
    () => {
        "(SELECT 1 FROM work AS w WHERE w.organization COLLATE \"POSIX\" = i.organization
            AND w.provider COLLATE \"POSIX\" = i.provider AND w.delivery COLLATE \"POSIX\" = i.delivery LIMIT 1) IS NOT NULL"
    };
}
/// Deletes what belongs to rows of one day: the parameters are their organizations, their times and their positions, and
/// the day's bounds.
macro_rules! of_each {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " AS t USING UNNEST($1::TEXT[], $2::BIGINT[], $3::BIGINT[]) AS gone (organization, due_since, position)
            WHERE t.organization = gone.organization AND t.due_since = gone.due_since AND t.position = gone.position
                AND t.due_since >= $4 AND t.due_since < $5"
        )
    };
}
const NEXT: &str = "SELECT due_since FROM inbox_ids
    WHERE position IS NOT NULL AND (due_since, position) >= ($1, $2) AND due_since < $3
    ORDER BY due_since, position LIMIT 1";
const KEPT_OF_DAYS: &str = "SELECT EXISTS (SELECT 1 FROM work WHERE due_since >= $1 AND due_since < $2)";
const ROWS: &str = concat!(
    "SELECT organization, provider, delivery, due_since, position, ",
    kept!(),
    ",
        (SELECT COUNT(*) FROM effects AS t WHERE t.organization = i.organization AND t.due_since = i.due_since
            AND t.position = i.position AND t.due_since >= $4 AND t.due_since < $5)
    FROM inbox_ids AS i
    WHERE position IS NOT NULL AND (due_since, position) >= ($1, $2) AND due_since < $3
    ORDER BY due_since, position LIMIT $6"
);
const LOCK_IDS: &str = "SELECT 1
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) AS old (organization, provider, delivery)
    JOIN inbox_ids AS i ON i.organization = old.organization AND i.provider = old.provider AND i.delivery = old.delivery
    ORDER BY i.organization, i.provider, i.delivery FOR UPDATE OF i";
/// A row may have been given another beginning meanwhile.
const STILL_OLD: &str = concat!(
    "SELECT old.number FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::BIGINT[])
        WITH ORDINALITY AS old (organization, provider, delivery, due_since, position, number)
    JOIN inbox_ids AS i ON i.organization = old.organization AND i.provider = old.provider AND i.delivery = old.delivery
        AND i.due_since = old.due_since AND i.position = old.position
    WHERE NOT ",
    kept!(),
    " ORDER BY old.number"
);
const DROP_EFFECTS: &str = of_each!("effects");
const DROP_BODIES: &str = of_each!("inbox_bodies");
const DROP_ROWS: &str = of_each!("inbox_rows");
const DROP_QUARANTINED: &str = "DELETE FROM quarantine AS q
    USING UNNEST($1::TEXT[], $2::BIGINT[]) AS gone (organization, position)
    WHERE q.organization = gone.organization AND q.position = gone.position";
const DROP_IDS: &str = "DELETE FROM inbox_ids AS i
    USING UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) AS gone (organization, provider, delivery)
    WHERE i.organization = gone.organization AND i.provider = gone.provider AND i.delivery = gone.delivery
        AND i.due_since < $4";
const KEEP_IDS: &str = "UPDATE inbox_ids AS i SET position = NULL
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[]) AS gone (organization, provider, delivery)
    WHERE i.organization = gone.organization AND i.provider = gone.provider AND i.delivery = gone.delivery
        AND i.due_since >= $4";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[
    NEXT,
    KEPT_OF_DAYS,
    ROWS,
    LOCK_IDS,
    STILL_OLD,
    DROP_EFFECTS,
    DROP_BODIES,
    DROP_ROWS,
    DROP_QUARANTINED,
    DROP_IDS,
    KEEP_IDS,
];

/// A row that may be dropped, by the columns of its id.
struct OldRow {
    organization: String,
    provider: String,
    delivery: String,
    due_since: i64,
    position: i64,
}

/// Goes along the received deliveries from the oldest, day by day. Gives the place where it stopped for having touched as
/// many rows as it may.
pub(super) async fn drop(step: &mut Step<'_>, from: Option<InboxPlace>) -> Result<Option<InboxPlace>, StoreError> {
    let mut at = from.map_or((i64::MIN, i64::MIN), |place| (millis(place.due_since), place.position.0));
    loop {
        let next = step.transaction.optional(NEXT, &[&at.0, &at.1, &step.before]).await?;
        let Some(next) = next else { return Ok(None) };
        let day = Day::of(columns::time(&next, 0)?);
        let stopped = drop_of(step, day, at).await?;
        if stopped.is_some() {
            return Ok(stopped);
        }
        at = (day.end(), i64::MIN);
    }
}

async fn drop_of(step: &mut Step<'_>, day: Day, at: (i64, i64)) -> Result<Option<InboxPlace>, StoreError> {
    let goes_whole = step.goes_whole(day, KEPT_OF_DAYS).await?;
    let before = day.end().min(step.before);
    let asked: Parameters<'_> = &[&at.0, &at.1, &before, &day.start(), &day.end(), &step.limit()];
    let (mut old, mut stopped) = (Vec::new(), None);
    for row in step.transaction.query(ROWS, asked).await? {
        let place = InboxPlace { due_since: columns::time(&row, 3)?, position: RowPosition(row.try_get(4)?) };
        if step.left == 0 {
            stopped = Some(place);
            break;
        }
        step.touch(1);
        if row.try_get(5)? {
            continue;
        }
        // Texts go back to the database as they came from it.
        let (organization, provider, delivery) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        old.push(OldRow { organization, provider, delivery, due_since: row.try_get(3)?, position: place.position.0 });
        if !goes_whole {
            step.touch(1 + columns::number::<u64>(&row, 6)?);
        }
    }
    forget(step, day, goes_whole, old).await?;
    Ok(stopped)
}

/// Forgets these rows of a day, but for those that have got work meanwhile.
async fn forget(step: &mut Step<'_>, day: Day, goes_whole: bool, mut old: Vec<OldRow>) -> Result<(), StoreError> {
    let transaction = step.transaction;
    let [organizations, providers, deliveries] = ids_of(&old);
    transaction.query(LOCK_IDS, &[&organizations, &providers, &deliveries]).await?;
    let (times, positions) = places_of(&old);
    let asked: Parameters<'_> = &[&organizations, &providers, &deliveries, &times, &positions];
    let still = transaction.query(STILL_OLD, asked).await?;
    // Counted from 1.
    let still = still.iter().map(|row| columns::number::<usize>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    let mut number = 0;
    old.retain(|_| {
        number += 1;
        still.binary_search(&number).is_ok()
    });

    let [organizations, providers, deliveries] = ids_of(&old);
    let (times, positions) = places_of(&old);
    if !goes_whole {
        let each: Parameters<'_> = &[&organizations, &times, &positions, &day.start(), &day.end()];
        let (effects, bodies, rows) = tokio::join!(
            transaction.execute(DROP_EFFECTS, each),
            transaction.execute(DROP_BODIES, each),
            transaction.execute(DROP_ROWS, each)
        );
        effects.and(bodies).and(rows)?;
    }
    let ids: Parameters<'_> = &[&organizations, &providers, &deliveries, &step.ids_before];
    let places: Parameters<'_> = &[&organizations, &positions];
    let (quarantined, dropped, kept) = tokio::join!(
        transaction.execute(DROP_QUARANTINED, places),
        transaction.execute(DROP_IDS, ids),
        transaction.execute(KEEP_IDS, ids)
    );
    quarantined?;
    step.dropped.inbox_rows += dropped? + kept?;
    Ok(())
}

fn ids_of(rows: &[OldRow]) -> [Vec<Cow<'_, str>>; 3] {
    let column = |of: fn(&OldRow) -> &String| rows.iter().map(|row| Cow::from(of(row))).collect();
    [column(|row| &row.organization), column(|row| &row.provider), column(|row| &row.delivery)]
}

fn places_of(rows: &[OldRow]) -> (Vec<i64>, Vec<i64>) {
    rows.iter().map(|row| (row.due_since, row.position)).collect()
}
