//! What is kept, behind one trait. Its methods are operations of the domain; every one is one transaction, and neither
//! SQL nor a transaction type leaves an implementation. The suite in `conformance` says what an implementation must do,
//! and each one passes it.
//!
//! Rows move from hot to history: a delivery that waits is in one small table, one that has ended in another; the same
//! for the inbox's work. Keys begin with the organization everywhere.

#[cfg(test)]
pub(crate) mod conformance;
mod duties;
mod group;
pub mod memory;
mod metrics;
mod model;
pub mod postgres;
pub mod seal;
mod search_sources;
pub mod sqlite;
pub mod transfer;

use std::sync::Arc;

use async_trait::async_trait;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, TokenId, WebhookId};
use hikyaku_core::token::{ApiToken, TokenHash};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

pub use group::Committer;
pub use model::*;

/// Shared handle to a store.
pub type SharedStore = Arc<dyn Store>;

/// Why a store could not do what it was asked. A commit has three ends: done, not done, and not known.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written: the store is busy, full or away. Trying again later is safe.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The answer to a commit was lost: it may be written or not. Asking for the id, or repeating the same call, tells.
    #[error("the store did not say whether it wrote: {0}")]
    Unknown(String),
    /// The store holds something that this program cannot have written, or refuses a statement: a defect of ours or
    /// damage to the file.
    #[error("the store is damaged or does not fit this program: {0}")]
    Damaged(String),
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes a whole group in one transaction: all of it or nothing. The parts are applied in the order in which
    /// [`Group`] lists them, and each part's answers stand at its own position in [`GroupOutcome`].
    ///
    /// A conflict or a lost lease is an answer, not an error, and keeps nothing else of the group from being written.
    async fn commit(&self, group: Group) -> Result<GroupOutcome, StoreError>;

    /// How many groups it is worth handing over at a time. More than one only where the store itself lets one be committed
    /// while another is written.
    fn commits_at_once(&self) -> usize {
        1
    }

    /// Registers a webhook under a new id; one that is taken is [`StoreError::Damaged`].
    async fn create_webhook(&self, webhook: Webhook) -> Result<(), StoreError>;

    /// Changes a webhook and gives it back as it is now, or `None` where there is none. The change's notice
    /// is published in the same commit, if this switched the webhook on or off. Switching a webhook off that is
    /// off already keeps the older reason; `at` is the wall time of the change. Switching one on begins the release of
    /// what was held for it, as the recovery [`RecoveryId::of_held`](hikyaku_core::ids::RecoveryId::of_held), in the same commit.
    async fn update_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        change: WebhookChange,
        at: Timestamp,
    ) -> Result<Option<Webhook>, StoreError>;

    /// Removes a webhook: nothing is claimed for it any more. Its waiting and held deliveries end as cancelled with the reason
    /// `webhookDeleted`, and what it missed is forgotten: up to [`MAX_REMOVED_AT_ONCE`] of them in the same commit, and what
    /// is left by [`Store::step_removals`]. Its recoveries are forgotten. Its log stays until it ages. How many deliveries this
    /// commit has cancelled; `None` where there is no such webhook.
    async fn delete_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError>;

    /// Cancels up to `max_rows` more of what was left of webhooks that were removed; how many deliveries, or `None` where
    /// nothing is left.
    async fn step_removals(&self, max_rows: u32) -> Result<Option<u32>, StoreError>;

    /// Forgets up to `max_rows` secrets whose time is over at `now`, by the wall clock (S15); how many.
    async fn forget_secrets(&self, now: Timestamp, max_rows: u32) -> Result<u32, StoreError>;

    /// An organization's webhooks, oldest first (by `created_at`, then id). May be answered from a cache that every
    /// change through this process renews before the change is answered.
    async fn webhooks(&self, organization: &OrganizationId) -> Result<Arc<[Arc<Webhook>]>, StoreError>;

    /// Takes due deliveries under a lease: at most the free slots of each webhook, every webhook in its turn, so that a
    /// long queue to one costs the others nothing; of one webhook what was due first. A webhook that is off is served
    /// like any other (R14). What was left behind when its lease ended is taken over: see
    /// [`ClaimedDelivery::interrupted`].
    async fn claim_deliveries(&self, claim: DeliveryClaim) -> Result<DeliveryClaims, StoreError>;

    /// Takes due lanes under a lease: per route at most its free slots, those due first, with the first rows of each
    /// lane in their order. A lane whose lease has ended is due.
    async fn claim_lanes(&self, claim: LaneClaim) -> Result<LaneClaims, StoreError>;

    /// Begins a new run of a delivery that has ended, is held, or never was (R13): its first attempt is due at `due_at`, by
    /// the schedule clock. The webhook may be off: somebody asked.
    async fn resend(&self, key: &DeliveryKey, due_at: Timestamp) -> Result<ResendOutcome, StoreError>;

    /// What a webhook missed and what was exhausted, oldest first, with the counts of the whole period.
    async fn missed(&self, query: MissedQuery) -> Result<MissedEvents, StoreError>;

    /// Begins a recovery: a note of what is to be made due. [`Store::step_recoveries`] does it, piece by piece.
    async fn recover(&self, recovery: NewRecovery) -> Result<RecoverOutcome, StoreError>;

    /// A recovery as it stands, or `None`.
    async fn recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError>;

    /// Stops a recovery that runs, and gives it as it stands, or `None` where there is none.
    async fn cancel_recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError>;

    /// Makes more of the running recoveries' events due, oldest first, each of them once per recovery: so many that
    /// their webhook has no more than `most_due` due deliveries. A webhook that is off gets none.
    async fn step_recoveries(&self, step: RecoveryStep) -> Result<RecoveryStepped, StoreError>;

    /// An event with its deliveries and their attempts, or `None`.
    async fn event(&self, organization: &OrganizationId, id: &EventId) -> Result<Option<EventView>, StoreError>;

    /// Deliveries, those of the newest events first. Where no index leads straight to what is asked for, it looks at no
    /// more than it may, and says how far it came.
    async fn deliveries(&self, query: DeliveryQuery) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError>;

    /// A webhook's attempts, newest first; also of one that has been removed. It looks at no more lines than it may, and
    /// says how far it came.
    async fn log(&self, query: LogQuery) -> Result<Found<LogEntry, LogPosition>, StoreError>;

    /// Drops some of what is old: see [`Aged`] for what is kept all the same.
    async fn drop_aged(&self, step: DropStep) -> Result<Dropped, StoreError>;

    /// The last point in time up to `before` before which events and inbox rows are dropped best: where a store keeps
    /// history by the day and can drop a whole one at next to no cost, a day's beginning.
    fn whole_before(&self, before: Timestamp) -> Timestamp {
        before
    }

    /// Gets ready for what will be written in the day that follows `now`, so that no call waits for it then. Costs nothing
    /// where it was done before.
    async fn prepare(&self, _now: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }

    /// The inbox's rows, newest first. Where no index leads straight to what is asked for, it looks at no more rows than it
    /// may, and says how far it came.
    async fn inbox(&self, query: InboxQuery) -> Result<Found<InboxRowView, RowPlace>, StoreError>;

    /// One inbox row with its body and its effects, or `None`.
    async fn inbox_row(
        &self,
        organization: &OrganizationId,
        provider: &str,
        delivery: &str,
    ) -> Result<Option<InboxRowDetail>, StoreError>;

    /// The last sign of life, by the wall clock; `None` before the first.
    async fn last_beat(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Gives a sign of life, and notes the outage that ends with it. It becomes the last one, whatever the time.
    async fn beat(&self, beat: Beat) -> Result<(), StoreError>;

    /// Outages, those that began last first.
    async fn outages(&self, query: OutageQuery) -> Result<Vec<Outage>, StoreError>;

    /// What is known of business keys, at the keys' own positions; `None` where nothing that could take effect ever came, or
    /// nobody remembers it. Rows that are parked or quarantined could not.
    async fn known_keys(&self, query: KnownKeysQuery) -> Result<Vec<Option<KnownKey>>, StoreError>;

    /// Received rows with a business key by their own timestamps, oldest first, but for those that are parked or quarantined.
    async fn timed_keys(&self, query: TimedKeysQuery) -> Result<Vec<TimedKey>, StoreError>;

    /// How far a reconciliation has come; as at the beginning where nothing was saved.
    async fn reconcile_state(&self, key: &ReconcileKey) -> Result<ReconcileState, StoreError>;

    /// Saves how far a reconciliation has come, its last cycle's report included, if it stands as in `before`; whether it
    /// does. If not, another process has changed it.
    async fn save_reconcile(
        &self,
        key: &ReconcileKey,
        before: &ReconcileState,
        state: ReconcileState,
    ) -> Result<bool, StoreError>;

    /// A reconciliation's cycles, newest first: at most `limit`, of those before the number `before`.
    async fn reconcile_cycles(
        &self,
        key: &ReconcileKey,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Cycle>, StoreError>;

    /// Keeps a delivery aside whose signature did not verify (T2), within the bounds that it carries. What is not kept is
    /// found out without a write.
    async fn quarantine(&self, new: Quarantined) -> Result<QuarantineOutcome, StoreError>;

    /// Does what a person wants done about inbox rows, all in one transaction; each has its answer at its own position.
    /// Work under a lease stays as it is: a replay adds to it, and a discard of it is answered [`Intervened::UnderWay`].
    /// A lease that has ended keeps nobody out: the discard takes it over, and a late finish is refused.
    async fn intervene(&self, batch: Vec<Intervention>) -> Result<Vec<Intervened>, StoreError>;

    /// Keeps a new API token; an id or a hash that is taken is [`StoreError::Damaged`].
    async fn create_token(&self, token: ApiToken) -> Result<(), StoreError>;

    /// The API token with this hash, or `None` where there is none or it is revoked (S16).
    async fn valid_token(&self, hash: &TokenHash) -> Result<Option<ApiToken>, StoreError>;

    /// Revokes an API token, of `organization` or (`None`) whosever, for ever; one that is revoked already keeps the older
    /// time. `false` where there is no such token.
    async fn revoke_token(
        &self,
        organization: Option<&OrganizationId>,
        id: &TokenId,
        at: Timestamp,
    ) -> Result<bool, StoreError>;

    /// API tokens, newest first (by id), revoked ones included.
    async fn tokens(&self, query: TokenQuery) -> Result<Vec<ApiToken>, StoreError>;

    /// Whether there is an API token that is not revoked.
    async fn any_valid_token(&self) -> Result<bool, StoreError>;

    /// Takes a duty, or renews it, if nobody else holds it at `now` (schedule clock); whether it is the claim's owner's now.
    async fn take_duty(&self, claim: DutyClaim) -> Result<bool, StoreError>;

    /// Gives up a duty that `owner` may hold.
    async fn leave_duty(&self, name: &str, owner: &str) -> Result<(), StoreError>;

    /// The time that all processes over this store schedule by, or `None` where there is but one process.
    async fn shared_time(&self) -> Result<Option<Timestamp>, StoreError>;

    /// How much there is of what, for the metrics: cheap, and never a scan of history.
    async fn backlog(&self) -> Result<Backlog, StoreError>;

    /// What keeps the store from cleaning up, for the metrics; nothing does where there is but one process.
    async fn upkeep(&self) -> Result<Upkeep, StoreError> {
        Ok(Upkeep::default())
    }

    /// Tells the other processes over this store that something may be due, if that can be told. It may get lost: they look
    /// by themselves as well.
    fn nudge(&self, _what: Due) {}

    /// Waits until another process tells that something may be due; for ever where nobody can.
    async fn nudged(&self, _what: Due) {
        std::future::pending().await
    }

    /// Whether a commit would succeed now; writes something harmless to know.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Waits for everything handed over and leaves what is stored whole in its one place, so that a copy of that place
    /// is a copy of the store. Called when nothing more will be written; without it nothing is lost either.
    async fn close(&self) -> Result<(), StoreError>;
}
