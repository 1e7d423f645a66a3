//! The inbox's lanes: locking, opening and closing them; [`due`] takes those that are due.
//!
//! A lane is there exactly while it has work. Whoever adds work, ends work or takes a lane locks the lane's row before, and
//! looks at its work in a later statement, which sees what all holders of the lock before have committed. Rows are locked
//! in one order everywhere: ids, then lanes, then the inbox's rows, each by their keys.

pub(super) mod due;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::columns::{millis, number, text};
use super::transaction::Transaction;
use crate::store::{Group, LaneKey, StoreError};

const LOCK: &str = "SELECT FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) a (organization, route, provider, lane)
    CROSS JOIN LATERAL (SELECT FROM lanes l
        WHERE l.organization = a.organization AND l.route = a.route AND l.provider = a.provider AND l.lane = a.lane LIMIT 1 FOR UPDATE) l";
/// Locks the lanes that are there, too; a lane that is leased or backs off keeps its time.
const OPEN: &str = "INSERT INTO lanes (organization, route, provider, lane, due_at, owner, claim)
    SELECT organization, route, provider, lane, due_at, NULL, 0
    FROM UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[], $5::BIGINT[]) a (organization, route, provider, lane, due_at)
    ON CONFLICT (organization, route, provider, lane) DO UPDATE SET due_at = lanes.due_at WHERE FALSE";
const CLOSE: &str = "DELETE FROM lanes l
    USING UNNEST($1::TEXT[], $2::TEXT[], $3::TEXT[], $4::TEXT[]) a (organization, route, provider, lane),
        LATERAL (SELECT ctid AS tuple FROM lanes l
            WHERE l.organization = a.organization AND l.route = a.route AND l.provider = a.provider AND l.lane = a.lane LIMIT 1) found
    WHERE l.ctid = found.tuple
        AND (SELECT 1 FROM work w WHERE w.organization = a.organization AND w.route = a.route
            AND w.provider = a.provider AND w.lane = a.lane LIMIT 1) IS NULL";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[LOCK, OPEN, CLOSE];

/// Lanes as columns of a statement's parameters.
#[derive(Default)]
pub(super) struct LaneColumns<'a> {
    organizations: Vec<&'a str>,
    routes: Vec<Cow<'a, str>>,
    providers: Vec<Cow<'a, str>>,
    names: Vec<Cow<'a, str>>,
}

impl LaneColumns<'_> {
    /// The parameters from the first on, with these after them.
    pub(super) fn and<'p, const N: usize>(&'p self, more: [&'p (dyn ToSql + Sync); N]) -> Vec<&'p (dyn ToSql + Sync)> {
        let Self { organizations, routes, providers, names } = self;
        let key: [&(dyn ToSql + Sync); 4] = [organizations, routes, providers, names];
        key.into_iter().chain(more).collect()
    }
}

impl<'a> FromIterator<&'a LaneKey> for LaneColumns<'a> {
    fn from_iter<I: IntoIterator<Item = &'a LaneKey>>(keys: I) -> Self {
        let mut columns = Self::default();
        for key in keys {
            columns.organizations.push(key.organization.as_str());
            columns.routes.push(text(&key.route));
            columns.providers.push(text(&key.provider));
            columns.names.push(text(&key.lane));
        }
        columns
    }
}

/// Locks those of the lanes that are there, in their order.
pub(super) async fn lock<'a>(
    transaction: &Transaction<'_>,
    keys: impl IntoIterator<Item = &'a LaneKey>,
) -> Result<(), StoreError> {
    let lanes: BTreeSet<_> = keys.into_iter().collect();
    let lanes: LaneColumns<'_> = lanes.into_iter().collect();
    transaction.execute(LOCK, &lanes.and([])).await?;
    Ok(())
}

/// Locks all lanes that a group changes, in one order: another group that finishes what this one adds to waits for it.
pub(super) async fn lock_all(transaction: &Transaction<'_>, group: &Group) -> Result<(), StoreError> {
    if group.finish_lanes.is_empty() {
        return Ok(());
    }
    let recorded = group.record.iter().flat_map(|row| row.routes.iter().map(|route| LaneKey::of(row, route)));
    let recorded: Vec<_> = recorded.collect();
    lock(transaction, group.finish_lanes.iter().map(|finish| &finish.key).chain(&recorded)).await
}

/// Work that is added to a lane.
pub(super) struct NewWork<'a> {
    pub(super) lane: LaneKey,
    pub(super) delivery: &'a str,
    pub(super) version: &'a Version,
    pub(super) due_at: Timestamp,
    /// The row's.
    pub(super) position: i64,
}

/// Makes sure that the lanes of this work are there, and stay until the end of this transaction.
pub(super) async fn open(transaction: &Transaction<'_>, work: &[NewWork<'_>]) -> Result<(), StoreError> {
    let mut lanes = BTreeMap::new();
    for new in work {
        lanes.entry(&new.lane).or_insert(millis(new.due_at));
    }
    if lanes.is_empty() {
        return Ok(());
    }
    let columns: LaneColumns<'_> = lanes.keys().copied().collect();
    let due: Vec<_> = lanes.into_values().collect();
    transaction.execute(OPEN, &columns.and([&due])).await?;
    Ok(())
}

/// Ends those of these lanes, locked before, that have no more work.
pub(super) async fn close<'a>(
    transaction: &Transaction<'_>,
    keys: impl IntoIterator<Item = &'a LaneKey>,
) -> Result<(), StoreError> {
    let lanes: LaneColumns<'_> = keys.into_iter().collect();
    transaction.execute(CLOSE, &lanes.and([])).await?;
    Ok(())
}

/// The place that WITH ORDINALITY counted from one.
pub(super) fn nth(row: &Row) -> Result<usize, StoreError> {
    let n: usize = number(row, 0)?;
    Ok(n.saturating_sub(1))
}
