//! Of which webhooks something is due.

use std::collections::BTreeSet;
use std::ops::Bound;

use jiff::Timestamp;

use super::Turn;
use crate::store::StoreError;
use crate::store::postgres::columns::{self, millis};
use crate::store::postgres::removals::WebhookKey;
use crate::store::postgres::transaction::Transaction;

/// As long as no more deliveries than these are due, their webhooks are read off them.
const FEW: usize = 1_000;
/// Webhooks that are visited at a time.
pub(super) const PIECE_WEBHOOKS: usize = 256;
/// Deliveries that are looked at to find when the next is due of a webhook of which nothing is due now.
const MAX_LATER: usize = 100;

// What waits for a webhook that was removed waits for being cancelled only. PostgreSQL takes an `IS NULL` for rare, and
// would sort the whole table where it expects to find few; and limits stand as numbers, because it takes one that it does
// not know for a tenth of the table.
pub(in crate::store::postgres) const ANY_DUE: &str = "SELECT TRUE FROM waiting w WHERE due_at <= $1
        AND COALESCE((SELECT FALSE FROM removals r
            WHERE r.organization = w.organization AND r.webhook = w.webhook), TRUE)
    ORDER BY due_at LIMIT 1";
const FEW_DUE: &str = "SELECT organization, webhook FROM waiting w WHERE due_at <= $1
        AND COALESCE((SELECT FALSE FROM removals r
            WHERE r.organization = w.organization AND r.webhook = w.webhook), TRUE)
    ORDER BY due_at LIMIT 1001";
/// From webhook to webhook by the index, whatever waits for each.
const WALK: &str = "WITH RECURSIVE walk AS (
        (SELECT organization, webhook FROM waiting WHERE (organization, webhook) > ($1, $2)
            ORDER BY organization, webhook LIMIT 1)
        UNION ALL
        SELECT next.organization, next.webhook FROM walk, LATERAL (
            SELECT w.organization, w.webhook FROM waiting w
            WHERE (w.organization, w.webhook) > (walk.organization, walk.webhook)
            ORDER BY w.organization, w.webhook LIMIT 1) next)
    SELECT organization, webhook FROM walk
    WHERE (SELECT TRUE FROM waiting w
            WHERE w.organization = walk.organization AND w.webhook = walk.webhook AND w.due_at <= $3
            ORDER BY w.due_at, w.event LIMIT 1)
        AND (SELECT TRUE FROM removals r
            WHERE r.organization = walk.organization AND r.webhook = walk.webhook) IS NULL
    LIMIT 256";
const COUNT_DUE: &str = "SELECT (SELECT COUNT(*) FROM (
            SELECT 1 FROM waiting w WHERE w.organization = k.organization AND w.webhook = k.webhook AND w.due_at <= $4
            ORDER BY w.due_at, w.event LIMIT k.most) due)
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::BIGINT[]) WITH ORDINALITY k (organization, webhook, most, place)
    ORDER BY k.place";
pub(in crate::store::postgres) const LATER: &str = "SELECT due_at, (SELECT TRUE FROM waiting d
            WHERE d.organization = w.organization AND d.webhook = w.webhook AND d.due_at <= $1
            ORDER BY d.due_at, d.event LIMIT 1) IS NULL
    FROM waiting w WHERE due_at > $1
        AND COALESCE((SELECT FALSE FROM removals r
            WHERE r.organization = w.organization AND r.webhook = w.webhook), TRUE)
    ORDER BY due_at LIMIT 100";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[ANY_DUE, FEW_DUE, WALK, COUNT_DUE, LATER];

/// Whether anything is due.
pub(super) async fn is_any_due(transaction: &Transaction<'_>, now: Timestamp) -> Result<bool, StoreError> {
    Ok(transaction.optional(ANY_DUE, &[&millis(now)]).await?.is_some())
}

/// The webhooks of which something is due, in their order.
pub(super) struct Queues {
    now: i64,
    /// All of them, where they are known.
    few: Option<BTreeSet<WebhookKey>>,
}

impl Queues {
    /// Looks what is due.
    pub(super) async fn find(transaction: &Transaction<'_>, now: Timestamp) -> Result<Self, StoreError> {
        let now = millis(now);
        let rows = transaction.query(FEW_DUE, &[&now]).await?;
        let is_few = rows.len() <= FEW;
        let keys = rows.iter().map(|row| Ok((columns::organization(row, 0)?, columns::webhook_id(row, 1)?)));
        let few = if is_few { Some(keys.collect::<Result<_, StoreError>>()?) } else { None };
        Ok(Self { now, few })
    }

    /// The next of them after one, or from the first.
    pub(super) async fn after(
        &self,
        transaction: &Transaction<'_>,
        after: Option<&WebhookKey>,
    ) -> Result<Vec<WebhookKey>, StoreError> {
        if let Some(few) = &self.few {
            let after = after.map_or(Bound::Unbounded, Bound::Excluded);
            return Ok(few.range((after, Bound::Unbounded)).take(PIECE_WEBHOOKS).cloned().collect());
        }
        // No name is empty.
        let (organization, webhook) = after.map_or(("", ""), |(organization, id)| (organization.as_str(), id.as_str()));
        let rows = transaction.query(WALK, &[&organization, &webhook, &self.now]).await?;
        rows.iter().map(|row| Ok((columns::organization(row, 0)?, columns::webhook_id(row, 1)?))).collect()
    }
}

/// How much is due of each webhook, counted up to one more than could be taken of it.
pub(super) async fn count_due(
    transaction: &Transaction<'_>,
    now: Timestamp,
    turns: &[Turn],
) -> Result<Vec<u32>, StoreError> {
    let organizations: Vec<_> = turns.iter().map(|turn| turn.webhook.organization.as_str()).collect();
    let webhooks: Vec<_> = turns.iter().map(|turn| turn.webhook.id.as_str()).collect();
    let most: Vec<_> = turns.iter().map(|turn| i64::from(turn.slots) + 1).collect();
    let rows = transaction.query(COUNT_DUE, &[&organizations, &webhooks, &most, &millis(now)]).await?;
    rows.iter().map(|row| columns::number(row, 0)).collect()
}

/// When the earliest delivery is due of the webhooks of which nothing is due now. Where that is far behind what waits for
/// others, it is too early: then there is nothing to claim, and whoever asks again is told the next.
pub(super) async fn next_due(transaction: &Transaction<'_>, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
    let rows = transaction.query(LATER, &[&millis(now)]).await?;
    for row in &rows {
        if row.try_get(1)? {
            return columns::time(row, 0).map(Some);
        }
    }
    rows.last().filter(|_| rows.len() == MAX_LATER).map(|row| columns::time(row, 0)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_have_the_limits_that_are_counted_by() {
        for (sql, limit) in [(FEW_DUE, FEW + 1), (WALK, PIECE_WEBHOOKS), (LATER, MAX_LATER)] {
            assert!(sql.ends_with(&format!("LIMIT {limit}")), "{sql}");
        }
    }
}
