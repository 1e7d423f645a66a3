//! The store in a PostgreSQL database: for many nodes.
//!
//! Every method is one transaction over a pooled connection, and what it needs of the webhooks comes from memory where
//! that is the present version. Nothing depends on which node does what, but for leases, which name their owner. Advisory
//! locks are not used, NOTIFY only for what is not missed without it, and no right beyond that to the schema's own tables.

mod claim;
mod columns;
mod commit;
mod connections;
mod copy;
mod database;
mod days;
mod duties;
mod effects;
mod errors;
mod finish;
mod inbox;
mod interventions;
mod lanes;
mod log;
mod looks;
mod migrate;
mod nudges;
mod open;
mod outages;
mod publish;
mod quarantine;
mod read;
mod reconcile;
mod recoveries;
mod removals;
mod reseal;
mod retention;
mod search;
mod tokens;
mod transaction;
mod undelivered;
mod webhook_row;
mod webhooks;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, TokenId, WebhookId};
use hikyaku_core::token::{ApiToken, TokenHash};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use super::{
    Backlog, Beat, Cycle, DeliveryClaim, DeliveryClaims, DeliveryPosition, DeliveryQuery, DeliveryRow, DropStep,
    Dropped, Due, DutyClaim, EventView, Found, Group, GroupOutcome, InboxQuery, InboxRowDetail, InboxRowView,
    Intervened, Intervention, KnownKey, KnownKeysQuery, LaneClaim, LaneClaims, LogEntry, LogPosition, LogQuery,
    MissedEvents, MissedQuery, NewRecovery, Outage, OutageQuery, QuarantineOutcome, Quarantined, ReconcileKey,
    ReconcileState, RecoverOutcome, Recovery, RecoveryKey, RecoveryStep, RecoveryStepped, ResendOutcome, RowPlace,
    Store, StoreError, TimedKey, TimedKeysQuery, TokenQuery, Upkeep, WebhookChange,
};
#[cfg(test)]
pub(super) use copy::LAYOUTS as COPY_LAYOUTS;
pub(super) use copy::PostgresCopy;
use database::Database;
use days::{Day, Days};
pub use migrate::SchemaVersion;
use nudges::Nudges;
pub use open::{OpenError, Options, migrate};
use webhooks::WebhookCache;

/// Groups that are committed at a time: while one waits for the database, the next is made ready. A third made nothing
/// faster (docs/performance.md).
const COMMITS_AT_ONCE: usize = 2;

/// The store in a PostgreSQL database.
pub struct PostgresStore {
    db: Database,
    webhooks: Arc<WebhookCache>,
    /// Of which days history has its place.
    days: Arc<Days>,
    /// Where due deliveries are looked for, and due lanes.
    deliveries: claim::Memory,
    lanes: lanes::due::Memory,
    nudges: Nudges,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn commits_at_once(&self) -> usize {
        COMMITS_AT_ONCE
    }

    async fn commit(&self, group: Group) -> Result<GroupOutcome, StoreError> {
        let times: Vec<_> = commit::times(&group).collect();
        let (deliveries, lanes) = (commit::due_deliveries(&group), commit::due_lanes(&group));
        let written = self.write_dated(times, group, |transaction, group| Box::pin(commit::commit(transaction, group)));
        let outcome = written.await;
        self.deliveries.written.note(deliveries);
        self.lanes.written.note(lanes);
        outcome
    }

    async fn create_webhook(&self, webhook: Webhook) -> Result<(), StoreError> {
        self.db.write(webhook, |transaction, webhook| Box::pin(webhooks::create(transaction, webhook))).await
    }

    async fn update_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        change: WebhookChange,
        at: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let time = change.notice.as_ref().map(|notice| notice.event.created_at);
        let update = (organization.clone(), id.clone(), change, at);
        self.write_dated(time, update, |transaction, update| Box::pin(webhooks::update(transaction, update))).await
    }

    async fn delete_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        at: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        let asked = (organization.clone(), id.clone(), at);
        self.db.write(asked, |transaction, asked| Box::pin(removals::remove(transaction, asked))).await
    }

    async fn step_removals(&self, max_rows: u32) -> Result<Option<u32>, StoreError> {
        if self.db.look((), |transaction, ()| Box::pin(removals::next(transaction))).await?.is_none() {
            return Ok(None);
        }
        self.db.write(max_rows, |transaction, max_rows| Box::pin(removals::step(transaction, *max_rows))).await
    }

    async fn forget_secrets(&self, now: Timestamp, max_rows: u32) -> Result<u32, StoreError> {
        let asked = (now, max_rows);
        self.db.write(asked, |transaction, asked| Box::pin(webhooks::forget_secrets(transaction, asked))).await
    }

    async fn webhooks(&self, organization: &OrganizationId) -> Result<Arc<[Arc<Webhook>]>, StoreError> {
        if let Some(known) = self.webhooks.fresh(organization) {
            return Ok(known);
        }
        let read = || self.db.look(organization, |transaction, of| Box::pin(webhooks::of(transaction, of)));
        self.webhooks.read_once(organization, read).await
    }

    async fn claim_deliveries(&self, claim: DeliveryClaim) -> Result<DeliveryClaims, StoreError> {
        claim::deliveries(&self.db, &self.deliveries, claim).await
    }

    async fn claim_lanes(&self, claim: LaneClaim) -> Result<LaneClaims, StoreError> {
        lanes::due::take_due(&self.db, &self.lanes, claim).await
    }

    async fn resend(&self, key: &DeliveryKey, due_at: Timestamp) -> Result<ResendOutcome, StoreError> {
        let asked = (key.clone(), due_at);
        let begun = self.db.write(asked, |transaction, asked| Box::pin(undelivered::resend(transaction, asked))).await;
        self.deliveries.written.note([due_at]);
        begun
    }

    async fn missed(&self, query: MissedQuery) -> Result<MissedEvents, StoreError> {
        self.db.read(query, |transaction, query| Box::pin(undelivered::missed(transaction, query))).await
    }

    async fn recover(&self, recovery: NewRecovery) -> Result<RecoverOutcome, StoreError> {
        self.db.write(recovery, |transaction, recovery| Box::pin(recoveries::begin(transaction, recovery))).await
    }

    async fn recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        self.db.look(key, |transaction, key| Box::pin(recoveries::read(transaction, key))).await
    }

    async fn cancel_recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        self.db.write(key.clone(), |transaction, key| Box::pin(recoveries::cancel(transaction, key))).await
    }

    async fn step_recoveries(&self, step: RecoveryStep) -> Result<RecoveryStepped, StoreError> {
        if !self.db.look(&step, |transaction, step| Box::pin(recoveries::any_runs(transaction, step))).await? {
            return Ok(RecoveryStepped::default());
        }
        let since = recoveries::earliest(&step);
        let stepped = self.db.write(step, |transaction, step| Box::pin(recoveries::step(transaction, step))).await;
        self.deliveries.written.note([since]);
        stepped
    }

    async fn event(&self, organization: &OrganizationId, id: &EventId) -> Result<Option<EventView>, StoreError> {
        let asked = (organization, id);
        self.db.read(asked, |transaction, asked| Box::pin(read::event(transaction, asked.0, asked.1))).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError> {
        self.db.read(query, |transaction, query| Box::pin(search::deliveries(transaction, query))).await
    }

    async fn log(&self, query: LogQuery) -> Result<Found<LogEntry, LogPosition>, StoreError> {
        self.db.read(query, |transaction, query| Box::pin(log::log(transaction, query))).await
    }

    async fn drop_aged(&self, step: DropStep) -> Result<Dropped, StoreError> {
        let (what, before) = (step.what.clone(), step.before);
        let asked = self.db.write(step, |transaction, step| Box::pin(retention::drop_aged(transaction, step)));
        let dropped = asked.await?;
        if dropped.next.is_none() {
            self.drop_days(&what, before).await?;
        }
        Ok(dropped)
    }

    fn whole_before(&self, before: Timestamp) -> Timestamp {
        Timestamp::from_millisecond(Day::of(before).start()).unwrap_or(before)
    }

    async fn prepare(&self, now: Timestamp) -> Result<(), StoreError> {
        let tomorrow = now.checked_add(Duration::from_secs(24 * 3600)).unwrap_or(now);
        self.make_days([now, tomorrow]).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Found<InboxRowView, RowPlace>, StoreError> {
        self.db.read(query, |transaction, query| Box::pin(inbox::list(transaction, query))).await
    }

    async fn inbox_row(
        &self,
        organization: &OrganizationId,
        provider: &str,
        delivery: &str,
    ) -> Result<Option<InboxRowDetail>, StoreError> {
        let asked = (organization, provider, delivery);
        self.db.read(asked, |transaction, asked| Box::pin(inbox::detail(transaction, asked.0, asked.1, asked.2))).await
    }

    async fn last_beat(&self) -> Result<Option<Timestamp>, StoreError> {
        self.db.look((), |transaction, ()| Box::pin(outages::last_beat(transaction))).await
    }

    async fn beat(&self, beat: Beat) -> Result<(), StoreError> {
        self.db.write(beat, |transaction, beat| Box::pin(outages::beat(transaction, beat))).await
    }

    async fn outages(&self, query: OutageQuery) -> Result<Vec<Outage>, StoreError> {
        self.db.look(query, |transaction, query| Box::pin(outages::list(transaction, query))).await
    }

    async fn known_keys(&self, query: KnownKeysQuery) -> Result<Vec<Option<KnownKey>>, StoreError> {
        self.db.read(query, |transaction, query| Box::pin(reconcile::known_keys(transaction, query))).await
    }

    async fn timed_keys(&self, query: TimedKeysQuery) -> Result<Vec<TimedKey>, StoreError> {
        self.db.look(query, |transaction, query| Box::pin(reconcile::timed_keys(transaction, query))).await
    }

    async fn reconcile_state(&self, key: &ReconcileKey) -> Result<ReconcileState, StoreError> {
        self.db.read(key, |transaction, key| Box::pin(reconcile::state(transaction, key))).await
    }

    async fn save_reconcile(
        &self,
        key: &ReconcileKey,
        before: &ReconcileState,
        state: ReconcileState,
    ) -> Result<bool, StoreError> {
        let asked = (key.clone(), before.clone(), state);
        self.db.write(asked, |transaction, asked| Box::pin(reconcile::save(transaction, asked))).await
    }

    async fn reconcile_cycles(
        &self,
        key: &ReconcileKey,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Cycle>, StoreError> {
        let asked = (key, before, limit);
        self.db
            .look(asked, |transaction, asked| Box::pin(reconcile::cycles(transaction, asked.0, asked.1, asked.2)))
            .await
    }

    async fn quarantine(&self, new: Quarantined) -> Result<QuarantineOutcome, StoreError> {
        // Anybody can send what does not verify: what is not to be kept is found out by reading.
        match self.db.look(&new, |transaction, new| Box::pin(quarantine::objection(transaction, new))).await? {
            Some(objection) => Ok(objection),
            None => {
                let time = [quarantine::time(&new)];
                self.write_dated(time, new, |transaction, new| Box::pin(quarantine::keep(transaction, new))).await
            }
        }
    }

    async fn intervene(&self, batch: Vec<Intervention>) -> Result<Vec<Intervened>, StoreError> {
        let times: Vec<_> = interventions::times(&batch).into_iter().collect();
        let due = batch.iter().map(|intervention| intervention.now).min();
        let written =
            self.write_dated(times, batch, |transaction, batch| Box::pin(interventions::all(transaction, batch)));
        let outcome = written.await;
        self.lanes.written.note(due);
        outcome
    }

    async fn create_token(&self, token: ApiToken) -> Result<(), StoreError> {
        self.db.write(token, |transaction, token| Box::pin(tokens::create(transaction, token))).await
    }

    async fn valid_token(&self, hash: &TokenHash) -> Result<Option<ApiToken>, StoreError> {
        self.db.look(hash, |transaction, hash| Box::pin(tokens::find_valid(transaction, hash))).await
    }

    async fn revoke_token(
        &self,
        organization: Option<&OrganizationId>,
        id: &TokenId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let asked = (organization.cloned(), id.clone(), at);
        self.db.write(asked, |transaction, asked| Box::pin(tokens::revoke(transaction, asked))).await
    }

    async fn tokens(&self, query: TokenQuery) -> Result<Vec<ApiToken>, StoreError> {
        self.db.look(query, |transaction, query| Box::pin(tokens::list(transaction, query))).await
    }

    async fn any_valid_token(&self) -> Result<bool, StoreError> {
        self.db.look((), |transaction, ()| Box::pin(tokens::any_valid(transaction))).await
    }

    async fn take_duty(&self, claim: DutyClaim) -> Result<bool, StoreError> {
        self.db.write(claim, |transaction, claim| Box::pin(duties::take(transaction, claim))).await
    }

    async fn leave_duty(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        let asked = (name.to_owned(), owner.to_owned());
        self.db.write(asked, |transaction, asked| Box::pin(duties::leave(transaction, asked))).await
    }

    async fn shared_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.db.look((), |transaction, ()| Box::pin(duties::time(transaction))).await.map(Some)
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.db.read((), |transaction, ()| Box::pin(read::backlog(transaction))).await
    }

    async fn upkeep(&self) -> Result<Upkeep, StoreError> {
        self.db.look((), |transaction, ()| Box::pin(read::upkeep(transaction))).await
    }

    fn nudge(&self, what: Due) {
        self.nudges.give(what);
    }

    async fn nudged(&self, what: Due) {
        self.nudges.get(what).await;
    }

    async fn ping(&self) -> Result<(), StoreError> {
        if self.days.is_failing() {
            return Err(StoreError::Unavailable("the tables of a day could not be made; the log says why".to_owned()));
        }
        // Every transaction that writes writes its number.
        self.db.write((), |_, ()| Box::pin(async { Ok(()) })).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.db.leave().await
    }
}
