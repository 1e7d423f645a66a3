//! Of which webhooks something is due, and what a node remembers of that between its claims.

use std::collections::BTreeMap;
use std::ops::Bound;

use jiff::Timestamp;
use tokio_postgres::Row;

use super::Turn;
use crate::store::postgres::columns::{self, millis};
use crate::store::postgres::looks::Looks;
use crate::store::postgres::removals::WebhookKey;
use crate::store::postgres::transaction::Transaction;
use crate::store::{DeliveryClaim, StoreError};

/// Due deliveries of which the webhooks are read off; where there are more, it is gone from webhook to webhook.
const MAX_READ: i64 = 20_000;
/// Webhooks that are visited at a time.
pub(super) const PIECE_WEBHOOKS: usize = 256;
/// Deliveries that are looked at to find when the next is due of a webhook of which nothing is due now.
const MAX_LATER: usize = 100;

// What waits for a webhook that was removed waits for being cancelled only. PostgreSQL takes an `IS NULL` for rare, and
// would sort the whole table where it expects to find few; and limits stand as numbers, because it takes one that it does
// not know for a tenth of the table.
pub(in crate::store::postgres) const RECENT: &str = "SELECT organization, webhook, MIN(due_at), COUNT(*)
    FROM (SELECT organization, webhook, due_at FROM waiting w WHERE due_at + 0 >= $1 AND due_at + 0 <= $2
            AND COALESCE((SELECT FALSE FROM removals r
                WHERE r.organization = w.organization AND r.webhook = w.webhook), TRUE)
        ORDER BY due_at + 0 LIMIT 20000) due
    GROUP BY organization, webhook";
/// From webhook to webhook by the index, whatever waits for each.
pub(in crate::store::postgres) const WALK: &str = "WITH RECURSIVE walk AS (
        (SELECT organization COLLATE \"POSIX\" AS organization, webhook COLLATE \"POSIX\" AS webhook FROM waiting
            ORDER BY organization COLLATE \"POSIX\", webhook COLLATE \"POSIX\" LIMIT 1)
        UNION ALL
        SELECT next.organization, next.webhook FROM walk, LATERAL (
            SELECT w.organization COLLATE \"POSIX\" AS organization, w.webhook COLLATE \"POSIX\" AS webhook FROM waiting w
            WHERE (w.organization COLLATE \"POSIX\", w.webhook COLLATE \"POSIX\") > (walk.organization, walk.webhook)
            ORDER BY w.organization COLLATE \"POSIX\", w.webhook COLLATE \"POSIX\" LIMIT 1) next)
    SELECT organization, webhook, (SELECT due_at FROM waiting w
            WHERE w.organization COLLATE \"POSIX\" = walk.organization AND w.webhook COLLATE \"POSIX\" = walk.webhook AND w.due_at <= $1
            ORDER BY w.due_at LIMIT 1)
    FROM walk
    WHERE (SELECT TRUE FROM removals r
            WHERE r.organization = walk.organization COLLATE \"C\" AND r.webhook = walk.webhook COLLATE \"C\") IS NULL";
const COUNT_DUE: &str = "SELECT due.count, due.first
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[], $4::BIGINT[])
            WITH ORDINALITY k (organization, webhook, since, most, place),
        LATERAL (SELECT COUNT(*), MIN(due_at) AS first FROM (
            SELECT due_at FROM waiting w
            WHERE w.organization COLLATE \"POSIX\" = k.organization AND w.webhook COLLATE \"POSIX\" = k.webhook
                AND w.due_at >= k.since AND w.due_at <= $5
            ORDER BY w.due_at LIMIT k.most) due) due
    ORDER BY k.place";
pub(in crate::store::postgres) const LATER: &str = "SELECT organization, webhook, due_at
    FROM waiting w WHERE due_at + 0 > $1 AND due_at + 0 <= $2
        AND COALESCE((SELECT FALSE FROM removals r
            WHERE r.organization = w.organization AND r.webhook = w.webhook), TRUE)
    ORDER BY due_at + 0 LIMIT 100";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[RECENT, WALK, COUNT_DUE, LATER];

/// The webhooks of which something is due, each with a time before which nothing of it is.
#[derive(Debug, Clone, Default)]
pub(in crate::store::postgres) struct Queues {
    due: BTreeMap<WebhookKey, i64>,
    looks: Looks,
}

impl Queues {
    /// These, and what has become due since the last look, or from `written` on.
    pub(super) async fn look(
        &self,
        transaction: &Transaction<'_>,
        now: Timestamp,
        written: Option<i64>,
    ) -> Result<Self, StoreError> {
        let now = millis(now);
        let from = self.looks.from(now).map(|from| written.map_or(from, |written| written.min(from)));
        if let Some(from) = from {
            let rows = transaction.query(RECENT, &[&from, &now]).await?;
            let counts = rows.iter().map(|row| row.try_get::<_, i64>(3)).collect::<Result<Vec<_>, _>>()?;
            if counts.iter().sum::<i64>() < MAX_READ {
                let mut queues = Self { due: self.due.clone(), looks: self.looks.and(now, Some(from)) };
                queues.add(&rows)?;
                return Ok(queues);
            }
        }
        let mut queues = Self { due: BTreeMap::new(), looks: self.looks.and(now, None) };
        queues.add(&transaction.query(WALK, &[&now]).await?)?;
        Ok(queues)
    }

    fn add(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        for row in rows {
            if let Some(first) = row.try_get::<_, Option<i64>>(2)? {
                let since = self.due.entry(webhook(row)?).or_insert(first);
                *since = first.min(*since);
            }
        }
        Ok(())
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// The next of them after one, or from the first.
    pub(super) fn after(&self, after: Option<&WebhookKey>) -> Vec<WebhookKey> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.due.range((after, Bound::Unbounded)).take(PIECE_WEBHOOKS).map(|(key, _)| key.clone()).collect()
    }

    /// Before when nothing is due of a webhook.
    pub(super) fn since(&self, webhook: &WebhookKey) -> i64 {
        self.due.get(webhook).copied().unwrap_or(i64::MIN)
    }

    /// Something is due of a webhook from then on, or (`None`) nothing.
    pub(super) fn set(&mut self, webhook: &WebhookKey, first: Option<i64>) {
        match first {
            Some(first) => _ = self.due.insert(webhook.clone(), first),
            None => _ = self.due.remove(webhook),
        }
    }

    /// When the earliest delivery is due, as far as that matters to the claim, of the webhooks of which nothing is due now.
    /// Where that is far behind what waits for others, it is too early: then there is nothing to claim, and whoever asks
    /// again is told the next.
    pub(super) async fn next_due(
        &self,
        transaction: &Transaction<'_>,
        claim: &DeliveryClaim,
    ) -> Result<Option<Timestamp>, StoreError> {
        let rows = transaction.query(LATER, &[&millis(claim.now), &millis(claim.until)]).await?;
        for row in &rows {
            if !self.due.contains_key(&webhook(row)?) {
                return columns::time(row, 2).map(Some);
            }
        }
        rows.last().filter(|_| rows.len() == MAX_LATER).map(|row| columns::time(row, 2)).transpose()
    }
}

fn webhook(row: &Row) -> Result<WebhookKey, StoreError> {
    Ok((columns::organization(row, 0)?, columns::webhook_id(row, 1)?))
}

/// How much is due of each webhook, counted up to one more than could be taken of it, and since when.
pub(super) async fn count_due(
    transaction: &Transaction<'_>,
    now: Timestamp,
    turns: &[Turn],
) -> Result<Vec<(u32, Option<i64>)>, StoreError> {
    let organizations: Vec<_> = turns.iter().map(|turn| turn.webhook.organization.as_str()).collect();
    let webhooks: Vec<_> = turns.iter().map(|turn| turn.webhook.id.as_str()).collect();
    let since: Vec<_> = turns.iter().map(|turn| turn.since).collect();
    let most: Vec<_> = turns.iter().map(|turn| i64::from(turn.slots) + 1).collect();
    let rows = transaction.query(COUNT_DUE, &[&organizations, &webhooks, &since, &most, &millis(now)]).await?;
    rows.iter().map(|row| Ok((columns::number(row, 0)?, row.try_get(1)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_have_the_limits_that_are_counted_by() {
        assert!(RECENT.contains(&format!("LIMIT {MAX_READ})")), "{RECENT}");
        assert!(LATER.ends_with(&format!("LIMIT {MAX_LATER}")), "{LATER}");
    }
}
