//! `/v1/organizations/{organization}/inbox`: what was received, and what became of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hikyaku_core::ids::OrganizationId;

use super::State;
use super::filters::MAX_SEARCHED_ROWS;
use super::openapi::requests::{InPage, InboxFilter};
use super::page::{Cursor, Page};
use super::problem::Problem;
use super::request::{InPath, Query};
use super::view::{RowDetail, RowItem};
use crate::store::{InboxQuery, InboxRowDetail, RowPosition, RowState};

/// Most rows that one request looks at for those of a route: of each, its effects are looked up wherever they are.
const MAX_ROUTED_ROWS: u32 = 1_000;

/// List the inbox.
///
/// What was received, newest first; filters can be combined. One request looks at 4,000 rows at most; where no more than
/// a part of them is meant, the answer says how far it came.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/inbox",
    operation_id = "listInbox",
    tag = "inbox",
    params(InboxFilter, InPage),
    responses((status = 200, description = "A page of rows.", body = Page<RowItem>)),
)]
pub(super) async fn list(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<RowItem>>, Problem> {
    let query = query.only(&["source", "state", "key", "route", "limit", "cursor"])?;
    let limit = query.limit()?;
    let states = RowState::ALL.map(RowState::as_str).join(", ");
    let found = state.store.inbox(InboxQuery {
        source: query.text("source").map(str::to_owned),
        state: query.parse("state", &format!("one of {states}"), RowState::parse)?,
        key: query.text("key").map(str::to_owned),
        route: query.text("route").map(str::to_owned),
        before: query.cursor(RowPosition::decode)?,
        look_at: if query.text("route").is_some() { MAX_ROUTED_ROWS } else { MAX_SEARCHED_ROWS },
        ..InboxQuery::newest(path.organization()?, limit + 1)
    });
    let found = found.await?;
    let searched_to = found.searched_to.map(|place| (place.received_at, query.next(&place.position)));
    let page = Page::new(found.rows, limit, |row| query.next(&row.position), |row| RowItem::of(&row));
    Ok(Json(page.searched_to(searched_to)))
}

/// Read an inbox row.
///
/// The row, its body and its effects.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/inbox/{source}/{delivery}",
    operation_id = "readInboxRow",
    tag = "inbox",
    responses((status = 200, description = "The row.", body = RowDetail)),
)]
pub(super) async fn read(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<RowDetail>, Problem> {
    let detail = find(&state, &path).await?;
    Ok(Json(RowDetail::of(&detail, state.clock.as_ref())))
}

/// Read an inbox row's bytes.
///
/// The body as it came.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/inbox/{source}/{delivery}/body",
    operation_id = "readInboxRowBody",
    tag = "inbox",
    responses((status = 200, description = "The bytes.", content(("application/octet-stream")))),
)]
pub(super) async fn body(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Response, Problem> {
    let detail = find(&state, &path).await?;
    // Somebody else wrote these bytes: no browser may take them for a page of ours (S20).
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    Ok((headers, detail.body).into_response())
}

async fn find(state: &State, path: &InPath) -> Result<InboxRowDetail, Problem> {
    let organization = path.organization()?;
    let (source, delivery) = (path.text("source"), path.text("delivery"));
    let found = state.store.inbox_row(&organization, provider(state, &organization, source), delivery).await?;
    found.ok_or_else(|| Problem::not_found(&format!("delivery from {source:?} with the id"), delivery, &organization))
}

/// The provider behind a source of this organization (S17). A name that is no source is taken as a provider's, so that
/// what a source brought can still be read when it is gone from the configuration.
pub(super) fn provider<'a>(state: &'a State, organization: &OrganizationId, name: &'a str) -> &'a str {
    let source = state.sources.iter().find(|source| source.name == name && source.organization == *organization);
    source.map_or(name, |source| &source.provider)
}
