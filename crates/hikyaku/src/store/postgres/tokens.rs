//! API tokens.

use hikyaku_core::ids::{OrganizationId, TokenId};
use hikyaku_core::token::{ApiToken, Scope, TokenHash};
use jiff::Timestamp;
use tokio_postgres::Row;

use super::columns::{self, millis, read_text, sound, text};
use super::transaction::Transaction;
use crate::store::{StoreError, TokenQuery};

macro_rules! select {
    ($filter:literal) => {
        concat!("SELECT id, organization, name, hash, created_at, revoked_at FROM tokens WHERE ", $filter)
    };
}
const CREATE: &str = "INSERT INTO tokens (id, organization, name, hash, created_at, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6)";
const FIND_VALID: &str = select!("hash = $1 AND revoked_at IS NULL");
const REVOKE: &str = "UPDATE tokens SET revoked_at = COALESCE(revoked_at, $3)
    WHERE id = $1 AND ($2::TEXT IS NULL OR organization = $2)";
const LIST: &str = select!("id < $1 ORDER BY id DESC LIMIT $2");
const LIST_OF_ORGANIZATION: &str = select!("id < $1 AND organization = $3 ORDER BY id DESC LIMIT $2");
const ANY_VALID: &str = "SELECT (SELECT 1 FROM tokens WHERE revoked_at IS NULL LIMIT 1) IS NOT NULL";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[CREATE, FIND_VALID, REVOKE, LIST, LIST_OF_ORGANIZATION, ANY_VALID];

/// Sorts after every id: ids are visible ASCII.
const AFTER_ALL_IDS: &str = "\u{7f}";

/// Keeps a new token.
pub(super) async fn create(transaction: &Transaction<'_>, token: &ApiToken) -> Result<(), StoreError> {
    transaction
        .execute(
            CREATE,
            &[
                &token.id.as_str(),
                &token.scope.organization().map(OrganizationId::as_str),
                &text(&token.name),
                &token.hash.as_bytes(),
                &millis(token.created_at),
                &token.revoked_at.map(millis),
            ],
        )
        .await?;
    Ok(())
}

/// The token with this hash, unless it is revoked.
pub(super) async fn find_valid(
    transaction: &Transaction<'_>,
    hash: &TokenHash,
) -> Result<Option<ApiToken>, StoreError> {
    let found = transaction.optional(FIND_VALID, &[&hash.as_bytes()]).await?;
    found.as_ref().map(token).transpose()
}

/// Revokes a token; `false` where there is none. One that is revoked already keeps its time.
pub(super) async fn revoke(
    transaction: &Transaction<'_>,
    (organization, id, at): &(Option<OrganizationId>, TokenId, Timestamp),
) -> Result<bool, StoreError> {
    let whose = organization.as_ref().map(OrganizationId::as_str);
    Ok(transaction.execute(REVOKE, &[&id.as_str(), &whose, &millis(*at)]).await? > 0)
}

/// A page of tokens, newest first.
pub(super) async fn list(transaction: &Transaction<'_>, query: &TokenQuery) -> Result<Vec<ApiToken>, StoreError> {
    let before = query.before.as_ref().map_or(AFTER_ALL_IDS, TokenId::as_str);
    let limit = i64::from(query.limit);
    let rows = match &query.organization {
        None => transaction.query(LIST, &[&before, &limit]).await?,
        Some(whose) => transaction.query(LIST_OF_ORGANIZATION, &[&before, &limit, &whose.as_str()]).await?,
    };
    rows.iter().map(token).collect()
}

/// Whether there is a token that is not revoked.
pub(super) async fn any_valid(transaction: &Transaction<'_>) -> Result<bool, StoreError> {
    Ok(transaction.one(ANY_VALID, &[]).await?.try_get(0)?)
}

fn token(row: &Row) -> Result<ApiToken, StoreError> {
    let organization: Option<&str> = row.try_get(1)?;
    let organization =
        organization.map(|name| sound("tokens.organization", OrganizationId::parse(name))).transpose()?;
    let hash: &[u8] = row.try_get(3)?;
    Ok(ApiToken {
        id: sound("tokens.id", TokenId::parse(row.try_get::<_, &str>(0)?))?,
        scope: organization.map_or(Scope::Admin, Scope::Organization),
        name: read_text(row, 2)?,
        hash: sound("tokens.hash", TokenHash::from_bytes(hash).ok_or("has another length than a SHA-256"))?,
        created_at: columns::time(row, 4)?,
        revoked_at: columns::optional_time(row, 5)?,
    })
}
