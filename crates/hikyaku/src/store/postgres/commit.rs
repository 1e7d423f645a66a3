//! Writes that share one transaction.

use hikyaku_core::delivery::Decision;
use jiff::Timestamp;

use super::transaction::Transaction;
use super::{effects, finish, inbox, lanes, publish};
use crate::store::{Group, GroupOutcome, StoreError};

/// Writes a whole group, part by part.
pub(super) async fn commit(transaction: &Transaction<'_>, group: &Group) -> Result<GroupOutcome, StoreError> {
    lanes::lock_all(transaction, group).await?;
    Ok(GroupOutcome {
        finish_attempts: finish::finish_attempts(transaction, &group.finish_attempts).await?,
        finish_lanes: effects::finish_lanes(transaction, &group.finish_lanes).await?,
        publish: publish::publish_all(transaction, &group.publish).await?,
        record: inbox::record_all(transaction, &group.record).await?,
    })
}

/// The times of the rows that a group may write into history for the first time of their day.
pub(super) fn times(group: &Group) -> impl Iterator<Item = Timestamp> {
    let notices = group.finish_attempts.iter().filter_map(|finish| finish.notices.as_ref());
    let told = notices.map(|notices| notices.switched_off.created_at);
    let published = group.publish.iter().flat_map(|publish| &publish.events).map(|event| event.created_at);
    told.chain(published).chain(group.record.iter().map(|row| row.due_at))
}

/// When the first delivery is due that a group makes wait.
pub(super) fn due_deliveries(group: &Group) -> Option<Timestamp> {
    let retries = group.finish_attempts.iter().filter_map(|finish| match finish.decision {
        Decision::Retry { at } => Some(at),
        Decision::Delivered | Decision::Exhausted { .. } => None,
    });
    group.publish.iter().map(|publish| publish.due_at).chain(retries).min()
}

/// When the first lane is due to which a group adds work, or leaves some.
pub(super) fn due_lanes(group: &Group) -> Option<Timestamp> {
    let left = group.finish_lanes.iter().flat_map(|finish| {
        let retry = finish.retry.as_ref().map(|retry| retry.due_at);
        retry.into_iter().chain([finish.now])
    });
    group.record.iter().map(|row| row.due_at).chain(left).min()
}
