//! `/v1/organizations/{organization}/webhooks/{webhook}/log`: a webhook's attempts, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use hikyaku_core::ids::{OrganizationId, WebhookId};

use super::State;
use super::filters::MAX_SEARCHED_ROWS;
use super::openapi::requests::{InPage, Outcomes, Period};
use super::page::{Cursor, Page};
use super::problem::Problem;
use super::request::{InPath, Query};
use super::view::LogItem;
use crate::store::{LogEntry, LogPosition, LogQuery, OutcomeFilter};

/// Read a webhook's log.
///
/// Its attempts that ended, newest first; also of a webhook that has been deleted, as long as its log is kept.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/log",
    operation_id = "readWebhookLog",
    tag = "webhooks",
    params(Outcomes, Period, InPage),
    responses((status = 200, description = "A page of attempts.", body = Page<LogItem>)),
)]
pub(super) async fn list(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<LogItem>>, Problem> {
    let organization = path.organization()?;
    let webhook = path.webhook(&organization)?;
    let query = query.only(&["type", "httpStatus", "error", "from", "to", "limit", "cursor"])?;
    let limit = query.limit()?;
    let (from, to) = query.stretch()?;
    let lines = LogQuery {
        organization: organization.clone(),
        webhook: webhook.clone(),
        event_type: query.event_type()?,
        outcome: query.outcome()?,
        from,
        to,
        before: query.cursor(LogPosition::decode)?,
        limit: limit + 1,
        look_at: MAX_SEARCHED_ROWS,
    };
    let found = state.store.log(lines).await?;
    if found.rows.is_empty() && found.searched_to.is_none() {
        require_webhook(&state, &organization, &webhook).await?;
    }
    let searched_to = found.searched_to.map(|place| (place.started_at, query.next(&place)));
    let page = Page::new(found.rows, limit, |row| query.next(&position(row)), |row| LogItem::of(&row));
    Ok(Json(page.searched_to(searched_to)))
}

/// Refuses a webhook that has never been: nothing of it is in the log.
async fn require_webhook(state: &State, organization: &OrganizationId, id: &WebhookId) -> Result<(), Problem> {
    let known = state.store.webhooks(organization).await?.iter().any(|webhook| webhook.id == *id);
    let any_line = async || -> Result<bool, Problem> {
        let all = LogQuery {
            organization: organization.clone(),
            webhook: id.clone(),
            event_type: None,
            outcome: OutcomeFilter::default(),
            from: None,
            to: None,
            before: None,
            limit: 1,
            look_at: 1,
        };
        Ok(!state.store.log(all).await?.rows.is_empty())
    };
    if known || any_line().await? { Ok(()) } else { Err(Problem::not_found("webhook", id.as_str(), organization)) }
}

fn position(row: &LogEntry) -> LogPosition {
    LogPosition {
        started_at: row.attempt.started_at,
        event: row.event.clone(),
        run: row.attempt.run,
        number: row.attempt.number,
    }
}
