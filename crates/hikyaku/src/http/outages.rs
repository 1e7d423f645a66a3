//! `/v1/outages`: when nothing could be received for longer than providers repeat.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::openapi::requests::InPage;
use super::page::{Cursor, Page};
use super::problem::Problem;
use super::request::Query;
use crate::store::{Outage, OutageQuery};

/// List outages.
///
/// Times, longer than providers repeat their deliveries, in which nothing could be received; newest first. What was sent
/// then has to be read from the providers.
#[utoipa::path(
    get,
    path = "/v1/outages",
    operation_id = "listOutages",
    tag = "inbox",
    params(InPage),
    responses((status = 200, description = "A page of outages.", body = Page<OutageItem>)),
)]
pub(super) async fn list(Shared(state): Shared<Arc<State>>, query: Query) -> Result<Json<Page<OutageItem>>, Problem> {
    let query = query.only(&["limit", "cursor"])?;
    let (limit, before) = (query.limit()?, query.cursor(Timestamp::decode)?);
    let outages = state.store.outages(OutageQuery { before, limit: limit + 1 }).await?;
    Ok(Json(Page::new(outages, limit, |outage| query.next(&outage.from), OutageItem::of)))
}

/// An outage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outage)]
pub(super) struct OutageItem {
    /// The last sign of life before it.
    #[schema(format = DateTime)]
    from: String,
    /// The first after it.
    #[schema(format = DateTime)]
    to: String,
    /// How long it was.
    seconds: i64,
}

impl OutageItem {
    fn of(outage: Outage) -> Self {
        let Outage { from, to } = outage;
        Self { from: timestamp::format(from), to: timestamp::format(to), seconds: to.duration_since(from).as_secs() }
    }
}
