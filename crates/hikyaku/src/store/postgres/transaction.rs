//! One transaction, as its statements see it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use deadpool_postgres::Object;
use hikyaku_core::ids::OrganizationId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::errors::{After, after, fails_after_another};
use super::webhooks::WebhookCache;
use crate::store::StoreError;

/// What a statement is given.
pub(super) type Parameters<'p> = &'p [&'p (dyn ToSql + Sync)];

/// One open transaction, or a connection that is read from.
pub(super) struct Transaction<'c> {
    connection: &'c Object,
    /// The webhooks that are kept in memory.
    pub(super) webhooks: &'c WebhookCache,
    /// Organizations whose webhooks it has changed.
    changed: Mutex<BTreeSet<OrganizationId>>,
    /// What the connection is good for; late while it has not answered.
    after: Mutex<After>,
    /// The first error of the database; others may come of it.
    error: Mutex<Option<StoreError>>,
}

impl<'c> Transaction<'c> {
    pub(super) fn new(connection: &'c Object, webhooks: &'c WebhookCache) -> Self {
        Self {
            connection,
            webhooks,
            changed: Mutex::default(),
            after: Mutex::new(After::Usable),
            error: Mutex::default(),
        }
    }

    /// Runs a statement and gives its rows. It is prepared once per connection.
    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, StoreError> {
        self.noted(async { self.connection.query(&self.connection.prepare_cached(sql).await?, parameters).await }).await
    }

    /// Runs a statement that gives one row or none.
    pub(super) async fn optional(&self, sql: &str, parameters: Parameters<'_>) -> Result<Option<Row>, StoreError> {
        self.noted(async { self.connection.query_opt(&self.connection.prepare_cached(sql).await?, parameters).await })
            .await
    }

    /// Runs a statement that gives one row.
    pub(super) async fn one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row, StoreError> {
        self.noted(async { self.connection.query_one(&self.connection.prepare_cached(sql).await?, parameters).await })
            .await
    }

    /// Runs a statement; how many rows it has changed.
    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, StoreError> {
        self.noted(async { self.connection.execute(&self.connection.prepare_cached(sql).await?, parameters).await })
            .await
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), StoreError> {
        self.noted(self.connection.batch_execute(sql)).await
    }

    /// What the connection is good for after the last answer.
    pub(super) fn after(&self) -> After {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn noted<T>(&self, run: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, StoreError> {
        self.note(After::Late);
        let result = run.await;
        let error = match result {
            Ok(answer) => {
                self.note(After::Usable);
                return Ok(answer);
            }
            Err(error) => error,
        };
        // Of several statements under way one fails, and the others only because of it: they have nothing to tell.
        let tells = !fails_after_another(&error);
        if tells {
            self.note(after(&error));
        }
        let error = StoreError::from(error);
        if tells {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.clone());
        }
        Err(error)
    }

    /// Why it failed, if `error` is what its work ended with.
    pub(super) fn cause(&self, error: StoreError) -> StoreError {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(error)
    }

    fn note(&self, after: After) {
        *self.after.lock().unwrap_or_else(PoisonError::into_inner) = after;
    }

    /// Notes that it has changed an organization's webhooks.
    pub(super) fn note_changed(&self, organization: &OrganizationId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(organization.clone());
    }

    /// Whether it has changed an organization's webhooks.
    pub(super) fn has_changed(&self, organization: &OrganizationId) -> bool {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).contains(organization)
    }

    /// It is committed, or may be: what was in memory of what it changed is no longer known.
    pub(super) fn committed(&self) {
        for organization in self.changed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.webhooks.forget(organization);
        }
    }
}
