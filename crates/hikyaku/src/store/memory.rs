//! The reference model: the whole store in memory, behind one lock. What another store answers differently is a defect
//! of the other. It forgets everything when the process ends, so it serves tests and simulation only.

mod deliveries;
mod faults;
mod inbox;
mod interventions;
mod known;
mod outages;
mod reconcile;
mod retention;
mod search;
mod tokens;
mod undelivered;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use hikyaku_core::ids::{DeliveryKey, EventId, OrganizationId, TokenId, WebhookId};
use hikyaku_core::token::{ApiToken, TokenHash};
use hikyaku_core::webhook::Webhook;
use jiff::Timestamp;

use super::duties::Duties;
use super::{
    Backlog, Beat, Cycle, DeliveryClaim, DeliveryClaims, DeliveryPosition, DeliveryQuery, DeliveryRow, DropStep,
    Dropped, DutyClaim, EventView, Found, Group, GroupOutcome, InboxQuery, InboxRowDetail, InboxRowView, Intervened,
    Intervention, KnownKey, KnownKeysQuery, LaneClaim, LaneClaims, LogEntry, LogPosition, LogQuery, MissedEvents,
    MissedQuery, NewRecovery, Outage, OutageQuery, QuarantineOutcome, Quarantined, ReconcileKey, ReconcileState,
    RecoverOutcome, Recovery, RecoveryKey, RecoveryStep, RecoveryStepped, ResendOutcome, RowPlace, Store, StoreError,
    TimedKey, TimedKeysQuery, TokenQuery, WebhookChange,
};
pub use faults::{Fault, Operation, Way};

/// A store that keeps everything in memory. See the module's documentation.
#[derive(Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    way: Option<Arc<dyn Way>>,
    faults: Mutex<BTreeMap<Operation, VecDeque<Fault>>>,
    down: Mutex<BTreeSet<Operation>>,
    hung: AtomicBool,
    calls: Mutex<BTreeMap<Operation, u64>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next call of `operation` fail. Several faults of one operation befall its calls one after another.
    pub fn fail_next(&self, operation: Operation, fault: Fault) {
        lock(&self.faults).entry(operation).or_default().push_back(fault);
    }

    /// Makes `operation` unavailable until it is set up again; faults that are planted stay for later.
    pub fn set_down(&self, operation: Operation, down: bool) {
        let mut operations = lock(&self.down);
        if down {
            operations.insert(operation);
        } else {
            operations.remove(&operation);
        }
    }

    /// How often `operation` was called; for tests.
    pub fn calls(&self, operation: Operation) -> u64 {
        lock(&self.calls).get(&operation).copied().unwrap_or_default()
    }

    /// Runs one operation as one transaction, unless something befalls it on the way or a fault is planted for it.
    async fn run<A: Send>(
        &self,
        operation: Operation,
        act: impl FnOnce(&mut State) -> A + Send,
    ) -> Result<A, StoreError> {
        if let Some(way) = &self.way {
            way.there(operation).await?;
        }
        let answer = self.apply(operation, act)?;
        if let Some(way) = &self.way {
            way.back(operation).await?;
        }
        Ok(answer)
    }

    fn apply<A>(&self, operation: Operation, act: impl FnOnce(&mut State) -> A) -> Result<A, StoreError> {
        *lock(&self.calls).entry(operation).or_default() += 1;
        if lock(&self.down).contains(&operation) {
            return Err(StoreError::Unavailable("it was set down by a test".into()));
        }
        let fault = lock(&self.faults).get_mut(&operation).and_then(VecDeque::pop_front);
        if let Some(Fault::Before(error)) = fault {
            return Err(error);
        }
        let answer = act(&mut lock(&self.state));
        match fault {
            Some(Fault::After(error)) => Err(error),
            _ => Ok(answer),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that panicked elsewhere while it held the lock must not hide its own message behind a second panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type WebhookKey = (OrganizationId, WebhookId);

#[derive(Debug, Clone, Default)]
struct State {
    webhooks: BTreeMap<WebhookKey, Arc<Webhook>>,
    deliveries: deliveries::Deliveries,
    recoveries: undelivered::Recoveries,
    inbox: inbox::Inbox,
    outages: outages::Outages,
    reconciles: reconcile::Reconciles,
    tokens: tokens::Tokens,
    duties: Duties,
}

impl State {
    fn commit(&mut self, group: Group) -> GroupOutcome {
        GroupOutcome {
            finish_attempts: group.finish_attempts.into_iter().map(|finish| self.finish_attempt(finish)).collect(),
            finish_lanes: group.finish_lanes.into_iter().map(|finish| self.inbox.finish(finish)).collect(),
            publish: group.publish.into_iter().map(|publish| self.publish(publish)).collect(),
            record: group.record.into_iter().map(|row| self.inbox.record(row)).collect(),
        }
    }

    fn create_webhook(&mut self, webhook: Webhook) -> Result<(), StoreError> {
        let key = (webhook.organization.clone(), webhook.id.clone());
        if self.webhooks.contains_key(&key) {
            return Err(StoreError::Damaged(format!("the new webhook's id {} is taken", key.1)));
        }
        self.webhooks.insert(key, Arc::new(webhook));
        Ok(())
    }

    fn update_webhook(&mut self, key: &WebhookKey, mut change: WebhookChange, at: Timestamp) -> Option<Webhook> {
        let notice = change.notice.take();
        let webhook = self.webhooks.get_mut(key)?;
        let was_off = webhook.off.is_some();
        let is_asked_on = change.active == Some(true);
        *webhook = Arc::new(change.apply(Webhook::clone(webhook), at));
        let changed = Webhook::clone(webhook);
        if is_asked_on {
            self.release(key, at);
        }
        if let Some(notice) = notice.filter(|_| was_off != changed.off.is_some()) {
            self.publish(notice.into_publish(key.0.clone(), key.1.clone()));
        }
        Some(changed)
    }

    fn delete_webhook(&mut self, key: &WebhookKey) -> Option<u32> {
        self.webhooks.remove(key)?;
        self.recoveries.forget(key);
        Some(self.deliveries.cancel(key, "webhookDeleted"))
    }

    fn webhooks(&self, organization: &OrganizationId) -> Arc<[Arc<Webhook>]> {
        let mut webhooks: Vec<_> =
            self.webhooks.values().filter(|webhook| webhook.organization == *organization).cloned().collect();
        webhooks.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        webhooks.into()
    }

    fn backlog(&self) -> Backlog {
        let (effects, oldest_effect_due) = self.inbox.backlog();
        let (lanes, routes) = (self.inbox.lanes_by_route(), self.inbox.routes());
        let webhooks_off = self.webhooks.values().filter(|webhook| webhook.off.is_some()).count() as u64;
        Backlog { effects, oldest_effect_due, lanes, routes, webhooks_off, ..self.deliveries.backlog() }
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, group: Group) -> Result<GroupOutcome, StoreError> {
        if self.hung.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        self.run(Operation::Commit, |state| state.commit(group)).await
    }

    async fn create_webhook(&self, webhook: Webhook) -> Result<(), StoreError> {
        self.run(Operation::ChangeWebhook, |state| state.create_webhook(webhook)).await?
    }

    async fn update_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        change: WebhookChange,
        at: Timestamp,
    ) -> Result<Option<Webhook>, StoreError> {
        let key = (organization.clone(), id.clone());
        self.run(Operation::ChangeWebhook, |state| state.update_webhook(&key, change, at)).await
    }

    async fn delete_webhook(
        &self,
        organization: &OrganizationId,
        id: &WebhookId,
        _at: Timestamp,
    ) -> Result<Option<u32>, StoreError> {
        let key = (organization.clone(), id.clone());
        self.run(Operation::ChangeWebhook, |state| state.delete_webhook(&key)).await
    }

    async fn step_removals(&self, _max_rows: u32) -> Result<Option<u32>, StoreError> {
        // Here nothing is ever left, however much there was.
        Ok(None)
    }

    async fn forget_secrets(&self, now: Timestamp, max_rows: u32) -> Result<u32, StoreError> {
        self.run(Operation::ChangeWebhook, |state| retention::forget_secrets(&mut state.webhooks, now, max_rows)).await
    }

    async fn webhooks(&self, organization: &OrganizationId) -> Result<Arc<[Arc<Webhook>]>, StoreError> {
        self.run(Operation::Webhooks, |state| state.webhooks(organization)).await
    }

    async fn claim_deliveries(&self, claim: DeliveryClaim) -> Result<DeliveryClaims, StoreError> {
        self.run(Operation::ClaimDeliveries, |state| state.claim_deliveries(&claim)).await
    }

    async fn claim_lanes(&self, claim: LaneClaim) -> Result<LaneClaims, StoreError> {
        self.run(Operation::ClaimLanes, |state| state.inbox.claim(&claim)).await
    }

    async fn resend(&self, key: &DeliveryKey, due_at: Timestamp) -> Result<ResendOutcome, StoreError> {
        self.run(Operation::Recover, |state| state.resend(key, due_at)).await
    }

    async fn missed(&self, query: MissedQuery) -> Result<MissedEvents, StoreError> {
        self.run(Operation::Read, |state| state.deliveries.missed(query)).await
    }

    async fn recover(&self, recovery: NewRecovery) -> Result<RecoverOutcome, StoreError> {
        self.run(Operation::Recover, |state| state.recover(recovery)).await
    }

    async fn recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        self.run(Operation::Read, |state| state.recoveries.get(key)).await
    }

    async fn cancel_recovery(&self, key: &RecoveryKey) -> Result<Option<Recovery>, StoreError> {
        self.run(Operation::Recover, |state| state.recoveries.cancel(key)).await
    }

    async fn step_recoveries(&self, step: RecoveryStep) -> Result<RecoveryStepped, StoreError> {
        self.run(Operation::Recover, |state| state.step_recoveries(&step)).await
    }

    async fn event(&self, organization: &OrganizationId, id: &EventId) -> Result<Option<EventView>, StoreError> {
        self.run(Operation::Read, |state| state.deliveries.event(organization, id)).await
    }

    async fn deliveries(&self, query: DeliveryQuery) -> Result<Found<DeliveryRow, DeliveryPosition>, StoreError> {
        self.run(Operation::Read, |state| state.deliveries.search(&query)).await
    }

    async fn log(&self, query: LogQuery) -> Result<Found<LogEntry, LogPosition>, StoreError> {
        self.run(Operation::Read, |state| state.deliveries.log(&query)).await
    }

    async fn drop_aged(&self, step: DropStep) -> Result<Dropped, StoreError> {
        self.run(Operation::DropAged, |state| state.drop_aged(&step)).await
    }

    async fn inbox(&self, query: InboxQuery) -> Result<Found<InboxRowView, RowPlace>, StoreError> {
        self.run(Operation::Read, |state| state.inbox.list(&query)).await
    }

    async fn inbox_row(
        &self,
        organization: &OrganizationId,
        provider: &str,
        delivery: &str,
    ) -> Result<Option<InboxRowDetail>, StoreError> {
        self.run(Operation::Read, |state| state.inbox.detail(organization, provider, delivery)).await
    }

    async fn last_beat(&self) -> Result<Option<Timestamp>, StoreError> {
        self.run(Operation::Beat, |state| state.outages.last_beat()).await
    }

    async fn beat(&self, beat: Beat) -> Result<(), StoreError> {
        self.run(Operation::Beat, |state| state.outages.beat(beat)).await
    }

    async fn outages(&self, query: OutageQuery) -> Result<Vec<Outage>, StoreError> {
        self.run(Operation::Read, |state| state.outages.list(&query)).await
    }

    async fn known_keys(&self, query: KnownKeysQuery) -> Result<Vec<Option<KnownKey>>, StoreError> {
        self.run(Operation::Read, |state| state.inbox.known_keys(&query)).await
    }

    async fn timed_keys(&self, query: TimedKeysQuery) -> Result<Vec<TimedKey>, StoreError> {
        self.run(Operation::Read, |state| state.inbox.timed_keys(&query)).await
    }

    async fn reconcile_state(&self, key: &ReconcileKey) -> Result<ReconcileState, StoreError> {
        self.run(Operation::Reconcile, |state| state.reconciles.state(key)).await
    }

    async fn save_reconcile(
        &self,
        key: &ReconcileKey,
        before: &ReconcileState,
        new: ReconcileState,
    ) -> Result<bool, StoreError> {
        self.run(Operation::Reconcile, |state| state.reconciles.save(key, before, new)).await
    }

    async fn reconcile_cycles(
        &self,
        key: &ReconcileKey,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Cycle>, StoreError> {
        self.run(Operation::Read, |state| state.reconciles.cycles(key, before, limit)).await
    }

    async fn quarantine(&self, new: Quarantined) -> Result<QuarantineOutcome, StoreError> {
        self.run(Operation::Intervene, |state| state.inbox.quarantine(new)).await
    }

    async fn intervene(&self, batch: Vec<Intervention>) -> Result<Vec<Intervened>, StoreError> {
        let all = |state: &mut State| batch.into_iter().map(|asked| state.inbox.intervene(asked)).collect();
        self.run(Operation::Intervene, all).await
    }

    async fn create_token(&self, token: ApiToken) -> Result<(), StoreError> {
        self.run(Operation::Tokens, |state| state.tokens.create(token)).await?
    }

    async fn valid_token(&self, hash: &TokenHash) -> Result<Option<ApiToken>, StoreError> {
        self.run(Operation::Tokens, |state| state.tokens.find_valid(hash)).await
    }

    async fn revoke_token(
        &self,
        organization: Option<&OrganizationId>,
        id: &TokenId,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        self.run(Operation::Tokens, |state| state.tokens.revoke(organization, id, at)).await
    }

    async fn tokens(&self, query: TokenQuery) -> Result<Vec<ApiToken>, StoreError> {
        self.run(Operation::Tokens, |state| state.tokens.list(&query)).await
    }

    async fn any_valid_token(&self) -> Result<bool, StoreError> {
        self.run(Operation::Tokens, |state| state.tokens.any_valid()).await
    }

    async fn take_duty(&self, claim: DutyClaim) -> Result<bool, StoreError> {
        self.run(Operation::Duty, |state| state.duties.take(&claim)).await
    }

    async fn leave_duty(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        self.run(Operation::Duty, |state| state.duties.leave(name, owner)).await
    }

    async fn shared_time(&self) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    async fn backlog(&self) -> Result<Backlog, StoreError> {
        self.run(Operation::Read, |state| state.backlog()).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.run(Operation::Ping, |_| ()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
