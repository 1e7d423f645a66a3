//! `/v1/caller`: what the token of a request opens, for programs that are given one and no more, such as the console.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::token::Scope;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::problem::Problem;

/// Read what the caller may reach.
///
/// Of whatever token this request carries, or of none where none is needed.
#[utoipa::path(
    get,
    path = "/v1/caller",
    operation_id = "readCaller",
    tag = "tokens",
    responses((status = 200, description = "What it opens.", body = Caller)),
)]
pub(super) async fn read(Shared(state): Shared<Arc<State>>, request: Request) -> Result<Json<Caller>, Problem> {
    let scope = state.access.scope(request.method(), request.headers()).await?;
    let configured = || state.sources.iter().map(|source| source.organization.to_string()).collect::<BTreeSet<_>>();
    let own = scope.organization().map(OrganizationId::to_string);
    Ok(Json(Caller {
        token_required: !state.access.is_open(),
        admin: scope == Scope::Admin,
        organizations: own.iter().cloned().chain(own.is_none().then(configured).into_iter().flatten()).collect(),
        organization: own,
    }))
}

/// What a caller may reach.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Caller {
    /// Whether callers need a token at all.
    token_required: bool,
    /// Whether everything is open to it.
    admin: bool,
    /// The one organization that is open to it; `null` for an admin.
    #[schema(required)]
    organization: Option<String>,
    /// The organizations that are known by name: its own, or for an admin those of the configuration's sources. There may be more.
    organizations: Vec<String>,
}
