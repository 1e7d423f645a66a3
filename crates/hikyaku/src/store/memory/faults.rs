//! How a store in memory is made to fail; for tests and simulation.

#[cfg(doc)]
use super::MemoryStore;
#[cfg(doc)]
use crate::store::Store;
use crate::store::StoreError;

/// What [`MemoryStore::fail_next`] and [`MemoryStore::set_down`] can make fail; for tests and simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Store::commit`].
    Commit,
    /// Creating, changing and removing a webhook.
    ChangeWebhook,
    /// [`Store::webhooks`].
    Webhooks,
    /// [`Store::claim_deliveries`].
    ClaimDeliveries,
    /// [`Store::claim_lanes`].
    ClaimLanes,
    /// Resending, and beginning, stepping and cancelling recoveries.
    Recover,
    /// Reading events, deliveries, logs, the inbox and the backlog.
    Read,
    /// [`Store::intervene`] and [`Store::quarantine`].
    Intervene,
    /// [`Store::drop_aged`].
    DropAged,
    /// [`Store::beat`] and [`Store::last_beat`].
    Beat,
    /// [`Store::reconcile_state`] and [`Store::save_reconcile`].
    Reconcile,
    /// All that has to do with API tokens.
    Tokens,
    /// [`Store::ping`].
    Ping,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Commit,
        Self::ChangeWebhook,
        Self::Webhooks,
        Self::ClaimDeliveries,
        Self::ClaimLanes,
        Self::Recover,
        Self::Read,
        Self::Intervene,
        Self::DropAged,
        Self::Beat,
        Self::Reconcile,
        Self::Tokens,
        Self::Ping,
    ];
}

/// How an operation fails; for tests and simulation.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It does nothing and answers with this error.
    Before(StoreError),
    /// It does all it was asked and answers with this error all the same, as when the answer to a commit is lost.
    After(StoreError),
}
