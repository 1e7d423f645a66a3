//! The store in one SQLite file, with nothing to install: the default.
//!
//! One thread writes: it owns the only connection that may, takes one job after another, and runs each as one
//! transaction (BEGIN IMMEDIATE, fsynced before it is answered). Reads run beside it on a few connections of their
//! own, each a short statement or two over one snapshot, so that the write-ahead log can always be folded back. The
//! file belongs to one process at a time; several nodes need a database server.

mod claim;
mod columns;
mod copy;
mod errors;
mod finish;
mod inbox;
mod interventions;
mod lanes;
mod log;
mod open;
mod outages;
mod publish;
mod quarantine;
mod queues;
mod read;
mod readers;
mod reconcile;
mod recoveries;
mod removals;
mod reseal;
mod retention;
mod search;
mod tokens;
mod undelivered;
mod webhook_row;
mod webhooks;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, TokenId, WebhookId};
use hikyaku_core::token::{ApiToken, TokenHash};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;
use tokio::sync::Mutex;

use super::{
    Backlog, Beat, Cycle, DeliveryClaim, DeliveryClaims, DeliveryPosition, DeliveryQuery, DeliveryRow, DropStep,
    Dropped, DutyClaim, EventView, Found, Group, GroupOutcome, InboxQuery, InboxRowDetail, InboxRowView, Intervened,
    Intervention, KnownKey, KnownKeysQuery, LaneClaim, LaneClaims, LogEntry, LogPosition, LogQuery, MissedEvents,
    MissedQuery, NewRecovery, Outage, OutageQuery, QuarantineOutcome, Quarantined, ReconcileKey, ReconcileState,
    RecoverOutcome, Recovery, RecoveryKey, RecoveryStep, RecoveryStepped, ResendOutcome, RowPlace, Store, StoreError,
    TimedKey, TimedKeysQuery, TokenQuery, WebhookChange,
};
use crate::clock::Clock;
use crate::store::duties::Duties;
use crate::store::seal::Seal;
#[cfg(test)]
pub(super) use copy::LAYOUTS as COPY_LAYOUTS;
pub(super) use copy::SqliteCopy;
pub use open::OpenError;
pub(crate) use open::write_ahead;
use queues::Queues;
use readers::Readers;
use webhooks::WebhookCache;
use writer::{Transaction, Writer};

/// The store in one SQLite file. Dropping it waits until everything handed over is written.
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    webhooks: Arc<WebhookCache>,
    queues: Arc<Queues>,
    /// One claim at a time: two would find the same deliveries, and one of them go away with few.
    claiming_deliveries: Mutex<()>,
    /// The same for lanes.
    claiming_lanes: Mutex<()>,
    /// In memory, because the file belongs to one process at a time.
    duties: Duties,
}

impl SqliteStore {
    /// Opens the store in the file at `path`, and creates it where there is none. Only one process may have it open;
    /// what the last one had under lease is due at once, because that process is gone. `seal` is what secrets
    /// are sealed with; what is not yet sealed, is now. Blocks while it works.
    pub fn open(path: &Path, seal: Seal, clock: &dyn Clock) -> Result<Self, OpenError> {
        let opened = open::open(path, Some(&seal), clock)?;
        let webhooks = Arc::new(WebhookCache::new(seal));
        let queues = opened.queues;
        let writer = (opened.writer, opened.lock, opened.file, opened.wal_path);
        let writer = Writer::start(writer.0, writer.1, writer.2, writer.3, webhooks.clone(), queues.clone())
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let readers = Readers::new(opened.readers);
        let (claiming_deliveries, claiming_lanes, duties) = Default::default();
        Ok(Self { writer, readers, webhooks, queues, claiming_deliveries, claiming_lanes, duties })
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

fn commit(transaction: &mut Transaction<'_>, group: &Group) -> Result<GroupOutcome, StoreError> {
    let mut outcome = GroupOutcome::default();
    for finish in &group.finish_attempts {
        outcome.finish_attempts.push(finish::finish_attempt(transaction, finish)?);
    }
    for finish in &group.finish_lanes {
        outcome.finish_lanes.push(lanes::finish_lane(transaction, finish)?);
    }
    for publish in &group.publish {
        outcome.publish.push(publish::publish(transaction, publish)?);
    }
    for row in &group.record {
        outcome.record.push(inbox::record(transaction, row)?);
    }
    Ok(outcome)
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, group: Group) -> Result<GroupOutcome, StoreError> {
        self.writer.run(move |transaction| commit(transaction, &group)).await
    }

    async fn create_webhook(&self, webhook: Webhook) -> Result<(), StoreError> {
        self.writer.run(move |transaction| webhooks::create(transaction, webhook)).await
    }

    async fn update_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        change: WebhookChange,
        at: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let (organization, id) = (organization.clone(), id.clone());
        self.writer.run(move |transaction| webhooks::update(transaction, &organization, &id, change, at)).await
    }

    async fn delete_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        let (organization, id) = (organization.clone(), id.clone());
        self.writer.run(move |transaction| removals::remove(transaction, &organization, &id, at)).await
    }

    async fn step_removals(&self, max_rows: u32) -> Result<Option<u32>, StoreError> {
        if self.readers.run(removals::next).await?.is_none() {
            return Ok(None);
        }
        self.writer.run(move |transaction| removals::step(transaction.db, max_rows)).await
    }

    async fn forget_secrets(&self, now: Timestamp, max_rows: u32) -> Result<u32, StoreError> {
        if self.readers.run(move |db| webhooks::with_old_secrets(db, now, 1)).await?.is_empty() {
            return Ok(0);
        }
        self.writer.run(move |transaction| webhooks::forget_secrets(transaction, now, max_rows)).await
    }

    async fn webhooks(&self, organization: &OrganizationId) -> Result<Arc<[Arc<Webhook>]>, StoreError> {
        if let Some(known) = self.webhooks.get(organization) {
            return Ok(known);
        }
        // Only the writer fills the cache: it alone knows that no change comes between reading and remembering.
        let organization = organization.clone();
        self.writer.run(move |transaction| transaction.webhooks.of(transaction.db, &organization)).await
    }

    async fn claim_deliveries(&self, claim: DeliveryClaim) -> Result<DeliveryClaims, StoreError> {
        let _alone = self.claiming_deliveries.lock().await;
        let claim = Arc::new(claim);
        let (asked, webhooks, queues) = (claim.clone(), self.webhooks.clone(), self.queues.clone());
        let found = self.readers.run(move |db| claim::find(db, &webhooks, &queues, &asked)).await?;
        let now = claim.now;
        let mut claims = if found.is_empty() {
            found.into_claims()
        } else {
            self.writer.run(move |transaction| claim::take(transaction, &claim, found)).await?
        };
        claims.next_due = self.queues.next_later(now);
        Ok(claims)
    }

    async fn claim_lanes(&self, claim: LaneClaim) -> Result<LaneClaims, StoreError> {
        let _alone = self.claiming_lanes.lock().await;
        let claim = Arc::new(claim);
        let asked = claim.clone();
        let mut found = self.readers.run(move |db| lanes::find(db, &asked)).await?;
        if found.lanes.is_empty() {
            return Ok(found);
        }
        let (rows_each, last_body_only) = (claim.rows_each, claim.last_body_only);
        found = self.writer.run(move |transaction| lanes::take(transaction, &claim, found)).await?;
        // Leased lanes only gain rows until they are finished. If this reading fails, they are due when the lease ends.
        self.readers.run(move |db| lanes::fill(db, found, rows_each, last_body_only)).await
    }

    async fn resend(&self, key: &DeliveryKey, due_at: Timestamp) -> Result<ResendOutcome, StoreError> {
        let key = key.clone();
        self.writer.run(move |transaction| undelivered::resend(transaction, &key, due_at)).await
    }

    async fn missed(&self, query: MissedQuery) -> Result<MissedEvents, StoreError> {
        self.readers.run(move |db| undelivered::missed(db, &query)).await
    }

    async fn recover(&self, recovery: NewRecovery) -> Result<RecoverOutcome, StoreError> {
        self.writer.run(move |transaction| recoveries::begin(transaction, &recovery)).await
    }

    async fn recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        let key = key.clone();
        self.readers.run(move |db| recoveries::read(db, &key)).await
    }

    async fn cancel_recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        let key = key.clone();
        self.writer.run(move |transaction| recoveries::cancel(transaction.db, &key)).await
    }

    async fn step_recoveries(&self, step: RecoveryStep) -> Result<RecoveryStepped, StoreError> {
        let asked = step.clone();
        if !self.readers.run(move |db| recoveries::any_runs(db, &asked)).await? {
            return Ok(RecoveryStepped::default());
        }
        self.writer.run(move |transaction| recoveries::step(transaction, &step)).await
    }

    async fn event(&self, organization: &OrganizationId, id: &EventId) -> Result<Option<EventView>, StoreError> {
        let (organization, id) = (organization.clone(), id.clone());
        self.readers.run(move |db| read::event(db, &organization, &id)).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError> {
        self.readers.run(move |db| search::deliveries(db, &query)).await
    }

    async fn log(&self, query: LogQuery) -> Result<Found<LogEntry, LogPosition>, StoreError> {
        self.readers.run(move |db| log::log(db, &query)).await
    }

    async fn drop_aged(&self, step: DropStep) -> Result<Dropped, StoreError> {
        self.writer.run(move |transaction| retention::drop_aged(transaction.db, &step)).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Found<InboxRowView, RowPlace>, StoreError> {
        self.readers.run(move |db| inbox::list(db, &query)).await
    }

    async fn inbox_row(
        &self,
        organization: &OrganizationId,
        provider: &str,
        delivery: &str,
    ) -> Result<Option<InboxRowDetail>, StoreError> {
        let (organization, provider, delivery) = (organization.clone(), provider.to_owned(), delivery.to_owned());
        self.readers.run(move |db| inbox::detail(db, &organization, &provider, &delivery)).await
    }

    async fn last_beat(&self) -> Result<Option<Timestamp>, StoreError> {
        self.readers.run(outages::last_beat).await
    }

    async fn beat(&self, beat: Beat) -> Result<(), StoreError> {
        self.writer.run(move |transaction| outages::beat(transaction.db, &beat)).await
    }

    async fn outages(&self, query: OutageQuery) -> Result<Vec<Outage>, StoreError> {
        self.readers.run(move |db| outages::list(db, &query)).await
    }

    async fn known_keys(&self, query: KnownKeysQuery) -> Result<Vec<Option<KnownKey>>, StoreError> {
        self.readers.run(move |db| reconcile::known_keys(db, &query)).await
    }

    async fn timed_keys(&self, query: TimedKeysQuery) -> Result<Vec<TimedKey>, StoreError> {
        self.readers.run(move |db| reconcile::timed_keys(db, &query)).await
    }

    async fn reconcile_state(&self, key: &ReconcileKey) -> Result<ReconcileState, StoreError> {
        let key = key.clone();
        self.readers.run(move |db| reconcile::state(db, &key)).await
    }

    async fn save_reconcile(
        &self,
        key: &ReconcileKey,
        before: &ReconcileState,
        state: ReconcileState,
    ) -> Result<bool, StoreError> {
        let (key, before) = (key.clone(), before.clone());
        self.writer.run(move |transaction| reconcile::save(transaction.db, &key, &before, &state)).await
    }

    async fn reconcile_cycles(
        &self,
        key: &ReconcileKey,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Cycle>, StoreError> {
        let key = key.clone();
        self.readers.run(move |db| reconcile::cycles(db, &key, before, limit)).await
    }

    async fn quarantine(&self, new: Quarantined) -> Result<QuarantineOutcome, StoreError> {
        // Anybody can send what does not verify: what is not to be kept takes none of the writer's time.
        let new = Arc::new(new);
        let asked = new.clone();
        match self.readers.run(move |db| quarantine::objection(db, &asked)).await? {
            Some(objection) => Ok(objection),
            None => self.writer.run(move |transaction| quarantine::keep(transaction.db, &new)).await,
        }
    }

    async fn intervene(&self, batch: Vec<Intervention>) -> Result<Vec<Intervened>, StoreError> {
        let all = move |transaction: &mut Transaction<'_>| {
            batch.iter().map(|asked| interventions::intervene(transaction, asked)).collect()
        };
        self.writer.run(all).await
    }

    async fn create_token(&self, token: ApiToken) -> Result<(), StoreError> {
        self.writer.run(move |transaction| tokens::create(transaction, &token)).await
    }

    async fn valid_token(&self, hash: &TokenHash) -> Result<Option<ApiToken>, StoreError> {
        let hash = *hash;
        self.readers.run(move |db| tokens::find_valid(db, &hash)).await
    }

    async fn revoke_token(
        &self,
        organization: Option<&OrganizationId>,
        id: &TokenId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (organization, id) = (organization.cloned(), id.clone());
        self.writer.run(move |transaction| tokens::revoke(transaction, organization.as_ref(), &id, at)).await
    }

    async fn tokens(&self, query: TokenQuery) -> Result<Vec<ApiToken>, StoreError> {
        self.readers.run(move |db| tokens::list(db, &query)).await
    }

    async fn any_valid_token(&self) -> Result<bool, StoreError> {
        self.readers.run(tokens::any_valid).await
    }

    async fn take_duty(&self, claim: DutyClaim) -> Result<bool, StoreError> {
        Ok(self.duties.take(&claim))
    }

    async fn leave_duty(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        self.duties.leave(name, owner);
        Ok(())
    }

    async fn shared_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.readers.run(read::backlog).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.writer.run(|transaction| read::ping(transaction.db)).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.writer.fold().await
    }
}
