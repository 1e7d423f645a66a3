//! How a store in memory is made to fail; for tests and simulation.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{MemoryStore, lock};
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
    /// Taking and leaving duties.
    Duty,
    /// [`Store::ping`].
    Ping,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 14] = [
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
        Self::Duty,
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

/// What lies between a process and the store; for simulation. Time may pass on it, and a call may never come back.
#[async_trait]
pub trait Way: Send + Sync + 'static {
    /// Before a call takes effect.
    ///
    /// # Errors
    /// Then it takes none, and this is the answer.
    async fn there(&self, operation: Operation) -> Result<(), StoreError>;

    /// After it took effect: nothing has happened in between.
    ///
    /// # Errors
    /// Then this is the answer.
    async fn back(&self, operation: Operation) -> Result<(), StoreError>;
}

impl MemoryStore {
    /// Another way to the same store, on which something may befall each call; for simulation.
    pub fn by_way_of(&self, way: Arc<dyn Way>) -> Self {
        Self { state: Arc::clone(&self.state), way: Some(way), ..Self::default() }
    }

    /// A store of its own that holds what this one holds now; for the exploration of what can follow from a state.
    pub fn fork(&self) -> Self {
        Self { state: Arc::new(Mutex::new(lock(&self.state).clone())), ..Self::default() }
    }

    /// Lets commits never end from now on, as a disk that does not answer does.
    pub fn hang_commits(&self) {
        self.hung.store(true, Ordering::Release);
    }
}
