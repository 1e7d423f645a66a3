//! The schema, brought up to date one step after another.
//!
//! A step may only add: the program of the version before goes on working while a rolling update is under way, which is
//! what `works_from` of the newest step promises.

use crate::crash;
use crate::store::StoreError;

use super::OpenError;
use super::transaction::Transaction;

/// A step of the schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Its statements.
    pub(super) sql: &'static str,
    /// The oldest schema whose program still works with this one.
    pub(super) works_from: i64,
}

/// All steps, in their order; the first makes version 1.
pub(super) const STEPS: &[Step] = &[Step { sql: include_str!("../migrations/postgres/0001_first.sql"), works_from: 1 }];

const PREPARE: &str = "CREATE TABLE IF NOT EXISTS schema_steps (
        version    BIGINT NOT NULL PRIMARY KEY,
        works_from BIGINT NOT NULL,
        applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
    );
    LOCK TABLE schema_steps IN SHARE ROW EXCLUSIVE MODE";
const IS_PREPARED: &str = "SELECT to_regclass('schema_steps') IS NOT NULL";
const IS_UNFINISHED_COPY: &str = "SELECT to_regclass('unfinished_copy') IS NOT NULL";
const ENCODING: &str = "SELECT current_setting('server_encoding')";
const PRESENT: &str = "SELECT version, works_from FROM schema_steps ORDER BY version DESC LIMIT 1";
const NOTE: &str = "INSERT INTO schema_steps (version, works_from) VALUES ($1, $2)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[ENCODING, IS_PREPARED, IS_UNFINISHED_COPY, PRESENT, NOTE];

/// Which schema a database has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The newest step that was applied; 0: none.
    pub version: i64,
    /// The oldest schema whose program works with it.
    pub works_from: i64,
}

/// Applies what is missing of `steps`; the schema before.
pub(super) async fn migrate(transaction: &Transaction<'_>, steps: &[Step]) -> Result<SchemaVersion, StoreError> {
    transaction.batch(PREPARE).await?;
    let before = newest(transaction).await?;
    let done = usize::try_from(before.version).unwrap_or(usize::MAX);
    for (step, version) in steps.iter().zip(1_i64..).skip(done) {
        transaction.batch(step.sql).await?;
        crash::point("postgres.migrating");
        transaction.execute(NOTE, &[&version, &step.works_from]).await?;
    }
    Ok(before)
}

/// How the database writes texts down.
pub(super) async fn encoding(transaction: &Transaction<'_>) -> Result<String, StoreError> {
    Ok(transaction.one(ENCODING, &[]).await?.try_get(0)?)
}

/// The schema that the database has.
pub(super) async fn present(transaction: &Transaction<'_>) -> Result<SchemaVersion, StoreError> {
    if !transaction.one(IS_PREPARED, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(SchemaVersion { version: 0, works_from: 0 });
    }
    newest(transaction).await
}

/// Whether another store is being copied into the database, or such a copy broke off.
pub(super) async fn is_unfinished_copy(transaction: &Transaction<'_>) -> Result<bool, StoreError> {
    Ok(transaction.one(IS_UNFINISHED_COPY, &[]).await?.try_get(0)?)
}

async fn newest(transaction: &Transaction<'_>) -> Result<SchemaVersion, StoreError> {
    let found = transaction.optional(PRESENT, &[]).await?;
    let Some(row) = found else { return Ok(SchemaVersion { version: 0, works_from: 0 }) };
    Ok(SchemaVersion { version: row.try_get(0)?, works_from: row.try_get(1)? })
}

/// Whether a program whose own schema is `own` works with this one.
pub(super) fn check(url: &str, found: SchemaVersion, own: i64) -> Result<(), OpenError> {
    let url = url.to_owned();
    if found.version < own {
        return Err(OpenError::NotMigrated { url, found: found.version, own });
    }
    if found.works_from > own {
        return Err(OpenError::TooNew { url, found: found.version, own });
    }
    Ok(())
}
