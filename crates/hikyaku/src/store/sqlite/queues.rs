//! When each webhook's next delivery is due: what leads a claim straight to the webhooks of which something is.
//!
//! It stands in memory and says nothing that `waiting` does not: it is read from there when the file is opened, and every
//! transaction that changes what waits for a webhook reads that webhook's line anew before its commit. Nobody else writes
//! to the file. It takes a few hundred bytes per webhook for which anything waits, however much does.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hikyaku_core::ids::{OrganizationId, WebhookId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::columns::{self, millis};
use crate::store::StoreError;

// Not one statement with `(organization, webhook) > (?1, ?2)`: SQLite would step over every row of the webhook at hand.
const NEXT_WEBHOOK: &str = "SELECT organization, webhook FROM waiting
    WHERE organization = ?1 AND webhook > ?2 ORDER BY webhook LIMIT 1";
const NEXT_ORGANIZATION: &str = "SELECT organization, webhook FROM waiting
    WHERE organization > ?1 ORDER BY organization, webhook LIMIT 1";
/// What waits for a webhook that was removed waits for being cancelled only.
const NEXT_DUE: &str = "SELECT due_at FROM waiting WHERE organization = ?1 AND webhook = ?2
        AND NOT EXISTS (SELECT 1 FROM removals WHERE organization = ?1 AND webhook = ?2)
    ORDER BY due_at LIMIT 1";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[NEXT_WEBHOOK, NEXT_ORGANIZATION, NEXT_DUE];

/// Which webhook, of whom.
pub(super) type WebhookKey = (OrganizationId, WebhookId);

/// The webhooks for which something waits, as of the last commit.
#[derive(Default)]
pub(super) struct Queues(Mutex<State>);

#[derive(Default)]
struct State {
    /// When the first of a webhook's deliveries is due, in milliseconds.
    next: HashMap<Arc<WebhookKey>, i64>,
    /// Those that were not due yet when somebody last asked.
    later: BTreeSet<(i64, Arc<WebhookKey>)>,
    /// Those that were.
    due: BTreeSet<Arc<WebhookKey>>,
}

impl State {
    fn set(&mut self, webhook: Arc<WebhookKey>, due_at: Option<i64>) {
        if self.next.get(&webhook).copied() == due_at {
            return;
        }
        if let Some((webhook, due_at)) = self.next.remove_entry(&webhook) {
            self.due.remove(&webhook);
            self.later.remove(&(due_at, webhook));
        }
        if let Some(due_at) = due_at {
            self.next.insert(Arc::clone(&webhook), due_at);
            self.later.insert((due_at, webhook));
        }
    }

    /// Moves over what has become due, so that nothing is looked at twice for it.
    fn pass(&mut self, now: i64) {
        while let Some(first) = self.later.pop_first() {
            if first.0 > now {
                self.later.insert(first);
                return;
            }
            self.due.insert(first.1);
        }
    }
}

impl Queues {
    /// Reads what waits.
    pub(super) fn load(db: &Connection) -> Result<Arc<Self>, StoreError> {
        let queues = Arc::new(Self::default());
        let mut all = QueueView::new(Arc::clone(&queues));
        let mut after: Option<WebhookKey> = None;
        while let Some(webhook) = next_webhook(db, after.as_ref())? {
            all.touch(&webhook.0, &webhook.1);
            after = Some(webhook);
        }
        all.settle(db)?;
        all.committed();
        Ok(queues)
    }

    /// The first webhook after `after`, in their order, of which something is due.
    pub(super) fn next_due(&self, after: Option<&WebhookKey>, now: Timestamp) -> Option<Arc<WebhookKey>> {
        let now = millis(now);
        let mut state = self.lock();
        state.pass(now);
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut due = state.due.range::<WebhookKey, _>((after, Bound::Unbounded));
        due.find(|webhook| state.next.get(*webhook).is_some_and(|due_at| *due_at <= now)).cloned()
    }

    /// When something is due next of the webhooks of which nothing is due now.
    pub(super) fn next_later(&self, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.lock();
        state.pass(millis(now));
        state.later.first().and_then(|(due_at, _)| Timestamp::from_millisecond(*due_at).ok())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can stop half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next_webhook(db: &Connection, after: Option<&WebhookKey>) -> Result<Option<WebhookKey>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| Ok((columns::organization(row, 0), columns::webhook_id(row, 1)));
    let both = |(organization, webhook)| Ok((organization?, webhook?));
    if let Some((organization, webhook)) = after {
        let next = [organization.as_str(), webhook.as_str()];
        let next = db.prepare_cached(NEXT_WEBHOOK)?.query_row(next, read).optional()?;
        if let Some(next) = next {
            return both(next).map(Some);
        }
    }
    // No name is empty.
    let organization = after.map_or("", |(organization, _)| organization.as_str());
    db.prepare_cached(NEXT_ORGANIZATION)?.query_row([organization], read).optional()?.map(both).transpose()
}

/// The queues that one transaction changes; what it made of them becomes visible to others by its commit.
pub(super) struct QueueView {
    committed: Arc<Queues>,
    touched: HashSet<WebhookKey>,
    /// Of those, what was read before the commit.
    settled: Vec<(WebhookKey, Option<i64>)>,
}

impl QueueView {
    /// Nothing changed yet.
    pub(super) fn new(committed: Arc<Queues>) -> Self {
        Self { committed, touched: HashSet::new(), settled: Vec::new() }
    }

    /// Notes that what waits for a webhook was changed.
    pub(super) fn touch(&mut self, organization: &OrganizationId, webhook: &WebhookId) {
        self.touched.insert((organization.clone(), webhook.clone()));
    }

    /// Reads what was touched, as it is just before the commit.
    pub(super) fn settle(&mut self, db: &Connection) -> Result<(), StoreError> {
        self.settled.clear();
        let mut statement = db.prepare_cached(NEXT_DUE)?;
        for webhook in &self.touched {
            let key = [webhook.0.as_str(), webhook.1.as_str()];
            let due_at = statement.query_row(key, |row| row.get(0)).optional()?;
            self.settled.push((webhook.clone(), due_at));
        }
        Ok(())
    }

    /// The transaction is committed: what it read is so.
    pub(super) fn committed(&mut self) {
        let mut state = self.committed.lock();
        for (webhook, due_at) in self.settled.drain(..) {
            state.set(Arc::new(webhook), due_at);
        }
        self.touched.clear();
    }

    /// The transaction never was. What it touched is read again with the next one, which costs little.
    pub(super) fn rolled_back(&mut self) {
        self.settled.clear();
    }

    /// Nobody knows whether it is committed. Whatever may be due is looked at, and the next transaction reads it again.
    pub(super) fn unknown(&mut self) {
        let mut state = self.committed.lock();
        for (webhook, due_at) in self.settled.drain(..) {
            let earlier = state.next.get(&webhook).copied().into_iter().chain(due_at).min();
            state.set(Arc::new(webhook), earlier);
        }
    }
}
