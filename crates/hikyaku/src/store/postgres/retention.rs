//! Dropping what is old, in short transactions.
//!
//! History has a partition for every day. Of a day that is wholly old and of which nothing is kept, only the ids go row by
//! row, with the little that stands outside of history; without its id nothing is found any more. At the end of a round
//! the partitions of days without ids are dropped whole, which costs next to nothing however much is in them. Where
//! anything of a day is kept, and of the day that is old in part, the rest goes row by row and leaves its room to the
//! database's own cleaning; for long ages the round leaves the latter alone (see `whole_before`).
//!
//! Who makes something old wait again (a resend, a recovery, a replay) locks its id or its note first, and so do these
//! transactions; they look once more after that whether it is to be kept.

pub(super) mod events;
pub(super) mod inbox;
pub(super) mod partitions;

use hikyaku_core::ids::OrganizationId;
use tokio_postgres::Row;

use super::columns::{self, millis, read_text, text};
use super::days::Day;
use super::transaction::Transaction;
use crate::store::{Aged, DropStep, Dropped, LaneKey, StoreError, VersionPlace};

const DROP_IDS: &str = "DELETE FROM inbox_ids AS i
    USING (SELECT organization, provider, delivery FROM inbox_ids WHERE position IS NULL AND due_since < $1
        ORDER BY due_since LIMIT $2 FOR UPDATE) AS old
    WHERE i.organization = old.organization AND i.provider = old.provider AND i.delivery = old.delivery";
const VERSIONS: &str = "SELECT applied_at, organization, route, provider, lane,
        (SELECT 1 FROM lanes AS l WHERE l.organization = a.organization AND l.route = a.route
            AND l.provider = a.provider AND l.lane = a.lane) IS NOT NULL
    FROM applied AS a
    WHERE (applied_at, organization, route, provider, lane) >= ($1, $2, $3, $4, $5) AND applied_at < $6
    ORDER BY applied_at, organization, route, provider, lane LIMIT $7";
const DROP_VERSIONS: &str = "DELETE FROM applied AS a
    USING UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) AS old (organization, route, provider, lane)
    WHERE a.organization = old.organization AND a.route = old.route AND a.provider = old.provider
        AND a.lane = old.lane AND a.applied_at < $5";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[DROP_IDS, VERSIONS, DROP_VERSIONS];

/// Does one step.
pub(super) async fn drop_aged(transaction: &Transaction<'_>, asked: &DropStep) -> Result<Dropped, StoreError> {
    let mut step = Step {
        transaction,
        before: millis(asked.before),
        ids_before: millis(asked.ids_before),
        left: asked.max_rows,
        dropped: Dropped::default(),
    };
    step.dropped.next = match &asked.what {
        Aged::Events(from) => events::drop(&mut step, from.as_ref()).await?.map(|place| Aged::Events(Some(place))),
        Aged::InboxRows(from) => inbox::drop(&mut step, *from).await?.map(|place| Aged::InboxRows(Some(place))),
        Aged::Ids => step.ids().await?,
        Aged::Versions(from) => step.versions(from.as_ref()).await?.map(|place| Aged::Versions(Some(place))),
    };
    Ok(step.dropped)
}

/// A step under way.
struct Step<'t> {
    transaction: &'t Transaction<'t>,
    /// What came before is old, and of ids what came before the other.
    before: i64,
    ids_before: i64,
    /// Rows that it may still touch.
    left: u32,
    dropped: Dropped,
}

impl Step<'_> {
    fn touch(&mut self, rows: u64) {
        self.left = self.left.saturating_sub(u32::try_from(rows).unwrap_or(u32::MAX));
    }

    /// How many to look at: one more than can be touched, so that there is always a place to stop at.
    fn limit(&self) -> i64 {
        i64::from(self.left) + 1
    }

    /// Whether a day's partitions will be dropped as soon as its ids are gone. `kept` tells whether anything is kept of the
    /// days from the first parameter to the second.
    async fn goes_whole(&self, day: Day, kept: &str) -> Result<bool, StoreError> {
        if day.end() > self.before {
            return Ok(false);
        }
        let is_kept: bool = self.transaction.one(kept, &[&day.start(), &day.end()]).await?.try_get(0)?;
        Ok(!is_kept)
    }

    /// Drops the oldest ids that outlived their rows.
    async fn ids(&mut self) -> Result<Option<Aged>, StoreError> {
        let dropped = self.transaction.execute(DROP_IDS, &[&self.before, &i64::from(self.left)]).await?;
        self.dropped.ids += dropped;
        self.touch(dropped);
        Ok((self.left == 0).then_some(Aged::Ids))
    }

    /// Goes along the versions from the one that took effect first.
    async fn versions(&mut self, from: Option<&VersionPlace>) -> Result<Option<VersionPlace>, StoreError> {
        let (at, lane) = from
            .map_or((i64::MIN, [""; 4].map(Into::into)), |place| (millis(place.applied_at), lane_columns(&place.lane)));
        let [organization, route, provider, name] = &lane;
        let limit = self.limit();
        let asked =
            self.transaction.query(VERSIONS, &[&at, organization, route, provider, name, &self.before, &limit]).await?;
        let mut old = Vec::new();
        let mut stopped = None;
        for row in &asked {
            let place = version_place(row)?;
            if self.left == 0 {
                stopped = Some(place);
                break;
            }
            self.touch(1);
            if !row.try_get::<_, bool>(5)? {
                old.push(place);
            }
        }
        let column =
            |index: usize| old.iter().map(|place| lane_columns(&place.lane)[index].clone()).collect::<Vec<_>>();
        let (organizations, routes, providers, lanes) = (column(0), column(1), column(2), column(3));
        self.dropped.versions += self
            .transaction
            .execute(DROP_VERSIONS, &[&organizations, &routes, &providers, &lanes, &self.before])
            .await?;
        Ok(stopped)
    }
}

fn lane_columns(lane: &LaneKey) -> [std::borrow::Cow<'_, str>; 4] {
    [lane.organization.as_str().into(), text(&lane.route), text(&lane.provider), text(&lane.lane)]
}

fn version_place(row: &Row) -> Result<VersionPlace, StoreError> {
    let organization: OrganizationId = columns::organization(row, 1)?;
    let (route, provider) = (read_text(row, 2)?, read_text(row, 3)?);
    let lane = LaneKey { organization, route, provider, lane: read_text(row, 4)? };
    Ok(VersionPlace { applied_at: columns::time(row, 0)?, lane })
}
