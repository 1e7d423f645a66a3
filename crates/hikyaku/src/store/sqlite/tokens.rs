//! API tokens.

use hikyaku_core::ids::{OrganizationId, TokenId};
use hikyaku_core::token::{ApiToken, Scope, TokenHash};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::columns::{self, millis, sound};
use super::writer::Transaction;
use crate::store::{StoreError, TokenQuery};

macro_rules! select {
    ($filter:literal) => {
        concat!("SELECT id, organization, name, hash, created_at, revoked_at FROM tokens WHERE ", $filter)
    };
}
const CREATE: &str = "INSERT INTO tokens (id, organization, name, hash, created_at, revoked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const FIND_VALID: &str = select!("hash = ?1 AND revoked_at IS NULL");
const FIND: &str = select!("id = ?1 AND (?2 IS NULL OR organization = ?2)");
const REVOKE: &str = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
const LIST: &str = select!("id < ?1 ORDER BY id DESC LIMIT ?2");
const LIST_OF_ORGANIZATION: &str = select!("id < ?1 AND organization = ?3 ORDER BY id DESC LIMIT ?2");
const ANY_VALID: &str = "SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked_at IS NULL)";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[CREATE, FIND_VALID, FIND, REVOKE, LIST, LIST_OF_ORGANIZATION, ANY_VALID];

/// Sorts after every id: ids are visible ASCII.
const AFTER_ALL_IDS: char = '\u{7f}';

/// Keeps a new token.
pub(super) fn create(transaction: &mut Transaction<'_>, token: &ApiToken) -> Result<(), StoreError> {
    transaction.db.prepare_cached(CREATE)?.execute(params![
        token.id.as_str(),
        token.scope.organization().map(OrganizationId::as_str),
        token.name,
        token.hash.as_bytes(),
        millis(token.created_at),
        token.revoked_at.map(millis),
    ])?;
    Ok(())
}

/// The token with this hash, unless it is revoked.
pub(super) fn find_valid(db: &Connection, hash: &TokenHash) -> Result<Option<ApiToken>, StoreError> {
    let mut statement = db.prepare_cached(FIND_VALID)?;
    let mut rows = statement.query([hash.as_bytes()])?;
    rows.next()?.map(token).transpose()
}

/// Revokes a token; `false` where there is none. One that is revoked already keeps its time.
pub(super) fn revoke(
    transaction: &mut Transaction<'_>,
    organization: Option<&OrganizationId>,
    id: &TokenId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let whose = organization.map(OrganizationId::as_str);
    let found = transaction.db.prepare_cached(FIND)?.query_row(params![id.as_str(), whose], |_| Ok(())).optional()?;
    if found.is_none() {
        return Ok(false);
    }
    transaction.db.prepare_cached(REVOKE)?.execute(params![id.as_str(), millis(at)])?;
    Ok(true)
}

/// A page of tokens, newest first.
pub(super) fn list(db: &Connection, query: &TokenQuery) -> Result<Vec<ApiToken>, StoreError> {
    let before = query.before.as_ref().map_or_else(|| AFTER_ALL_IDS.to_string(), |id| id.as_str().to_owned());
    let (sql, organization) = match &query.organization {
        None => (LIST, None),
        Some(organization) => (LIST_OF_ORGANIZATION, Some(organization.as_str())),
    };
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = match organization {
        None => statement.query(params![before, query.limit])?,
        Some(organization) => statement.query(params![before, query.limit, organization])?,
    };
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(token(row)?);
    }
    Ok(tokens)
}

/// Whether there is a token that is not revoked.
pub(super) fn any_valid(db: &Connection) -> Result<bool, StoreError> {
    Ok(db.prepare_cached(ANY_VALID)?.query_row([], |row| row.get(0))?)
}

fn token(row: &Row<'_>) -> Result<ApiToken, StoreError> {
    let organization: Option<String> = row.get(1)?;
    let organization =
        organization.map(|name| sound("tokens.organization", OrganizationId::parse(name))).transpose()?;
    let hash: Vec<u8> = row.get(3)?;
    Ok(ApiToken {
        id: sound("tokens.id", TokenId::parse(row.get::<_, String>(0)?))?,
        scope: organization.map_or(Scope::Admin, Scope::Organization),
        name: row.get(2)?,
        hash: sound("tokens.hash", TokenHash::from_bytes(&hash).ok_or("has another length than a SHA-256"))?,
        created_at: columns::time(row, 4)?,
        revoked_at: columns::optional_time(row, 5)?,
    })
}
