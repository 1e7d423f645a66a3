//! `/v1/tokens` and `/v1/organizations/{organization}/tokens`: the API's own tokens (S16). Admin tokens manage all of
//! them, an organization's token those of its organization.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hikyaku_core::ids::{OrganizationId, TokenId};
use hikyaku_core::timestamp;
use hikyaku_core::token::{ApiToken, Scope, check_token_name};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::body::read_json;
use super::fields::Fields;
use super::openapi::requests::{InPage, NewAnyToken, NewToken};
use super::page::{Cursor, Page};
use super::problem::{Kind, Problem};
use super::request::{InPath, Query};
use crate::clock;
use crate::store::{StoreError, TokenQuery};

/// Largest body that describes a token, in bytes.
const MAX_TOKEN_BODY_BYTES: usize = 4 * 1024;

/// Make any token.
///
/// For all organizations, or for one. The answer shows the token this once.
#[utoipa::path(
    post,
    path = "/v1/tokens",
    operation_id = "createAnyToken",
    tag = "tokens",
    request_body = NewAnyToken,
    responses((status = 201, description = "It opens things from now on.", body = CreatedToken)),
)]
pub(super) async fn create_any(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Response, Problem> {
    let body = read_json(request, MAX_TOKEN_BODY_BYTES).await?;
    let mut fields = Fields::of_body(&body, &["organization", "admin", "name"])?;
    let organization = fields.parse("organization", OrganizationId::parse);
    let admin = fields.get("admin", "true or false").unwrap_or(false);
    if admin == fields.raw("organization").is_some() {
        fields.fail("organization", "must be given, or \"admin\" must be true, but not both");
    }
    let name = read_name(fields)?;
    create(&state, organization.map_or(Scope::Admin, Scope::Organization), name).await
}

/// Make a token.
///
/// For this organization. The answer shows the token this once.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/tokens",
    operation_id = "createToken",
    tag = "tokens",
    request_body = NewToken,
    responses((status = 201, description = "It opens things from now on.", body = CreatedToken)),
)]
pub(super) async fn create_own(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let body = read_json(request, MAX_TOKEN_BODY_BYTES).await?;
    let name = read_name(Fields::of_body(&body, &["name"])?)?;
    create(&state, Scope::Organization(organization), name).await
}

/// List all tokens.
///
/// Newest first, revoked ones included.
#[utoipa::path(
    get,
    path = "/v1/tokens",
    operation_id = "listAllTokens",
    tag = "tokens",
    params(InPage),
    responses((status = 200, description = "A page of tokens.", body = Page<TokenView>)),
)]
pub(super) async fn list_all(
    Shared(state): Shared<Arc<State>>,
    query: Query,
) -> Result<Json<Page<TokenView>>, Problem> {
    list(&state, None, query).await
}

/// List tokens.
///
/// Those of this organization, newest first, revoked ones included.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/tokens",
    operation_id = "listTokens",
    tag = "tokens",
    params(InPage),
    responses((status = 200, description = "A page of tokens.", body = Page<TokenView>)),
)]
pub(super) async fn list_own(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<TokenView>>, Problem> {
    list(&state, Some(path.organization()?), query).await
}

/// Revoke any token.
///
/// From the answer on it opens nothing.
#[utoipa::path(
    delete,
    path = "/v1/tokens/{token}",
    operation_id = "revokeAnyToken",
    tag = "tokens",
    responses((status = 204, description = "It is revoked.")),
)]
pub(super) async fn revoke_any(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<StatusCode, Problem> {
    revoke(&state, None, path.text("token")).await
}

/// Revoke a token.
///
/// One of this organization. From the answer on it opens nothing.
#[utoipa::path(
    delete,
    path = "/v1/organizations/{organization}/tokens/{token}",
    operation_id = "revokeToken",
    tag = "tokens",
    responses((status = 204, description = "It is revoked.")),
)]
pub(super) async fn revoke_own(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<StatusCode, Problem> {
    revoke(&state, Some(path.organization()?), path.text("token")).await
}

/// A token, without what it opens things with.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub(super) struct TokenView {
    /// Its id.
    id: String,
    /// For people.
    name: String,
    /// Whether it opens everything.
    admin: bool,
    /// The one organization it opens; not with `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    organization: Option<String>,
    /// When it was made.
    #[schema(format = DateTime)]
    created_at: String,
    /// Since when it opens nothing; only then.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    revoked_at: Option<String>,
}

impl TokenView {
    fn of(token: &ApiToken) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            admin: token.scope == Scope::Admin,
            organization: token.scope.organization().map(OrganizationId::to_string),
            created_at: timestamp::format(token.created_at),
            revoked_at: token.revoked_at.map(timestamp::format),
        }
    }
}

/// A token just made, with the text that is shown this once.
#[derive(Serialize, ToSchema)]
struct CreatedToken<'a> {
    #[serde(flatten)]
    view: TokenView,
    /// What is sent as `authorization: Bearer TOKEN`.
    token: &'a str,
}

fn read_name(mut fields: Fields<'_>) -> Result<String, Problem> {
    let name = fields.parse("name", check_token_name);
    match fields.into_errors() {
        errors if errors.is_empty() => Ok(name.unwrap_or_default()),
        errors => Err(errors.into()),
    }
}

async fn create(state: &State, scope: Scope, name: String) -> Result<Response, Problem> {
    let (kept, token) = ApiToken::issue(scope, name, state.clock.now(), clock::random(), clock::random());
    let made = state.store.create_token(kept.clone()).await;
    // Also where the answer was lost: it may be kept.
    if matches!(made, Ok(()) | Err(StoreError::Unknown(_))) {
        state.access.token_made();
    }
    made?;
    tracing::info!(id = %kept.id, organization = ?kept.scope.organization().map(OrganizationId::as_str), "a token was made");
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let created = Json(CreatedToken { view: TokenView::of(&kept), token: token.reveal() });
    Ok((StatusCode::CREATED, headers, created).into_response())
}

async fn list(
    state: &State,
    organization: Option<OrganizationId>,
    query: Query,
) -> Result<Json<Page<TokenView>>, Problem> {
    let query = query.only(&["limit", "cursor"])?;
    let (limit, before) = (query.limit()?, query.cursor(TokenId::decode)?);
    let rows = state.store.tokens(TokenQuery { organization, before, limit: limit + 1 }).await?;
    Ok(Json(Page::new(rows, limit, |row| query.next(&row.id), |row| TokenView::of(&row))))
}

async fn revoke(state: &State, organization: Option<OrganizationId>, id: &str) -> Result<StatusCode, Problem> {
    let revoked = match TokenId::parse(id) {
        Ok(id) => state.store.revoke_token(organization.as_ref(), &id, state.clock.now()).await,
        // A text that cannot be an id names no token.
        Err(_) => Ok(false),
    };
    // Also where the answer was lost: it may be revoked.
    state.access.token_revoked();
    if revoked? {
        tracing::info!(id, "a token was revoked");
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(match &organization {
        Some(organization) => Problem::not_found("token", id, organization),
        None => Problem::new(Kind::NotFound, format!("There is no token {id:?}.")),
    })
}
