//! `/v1/organizations/{organization}/webhooks/{webhook}/log`: a webhook's attempts, newest first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;

use super::State;
use super::page::{Cursor, Page};
use super::problem::Problem;
use super::request::{InPath, Query};
use super::view::LogItem;
use crate::store::{LogEntry, LogPosition, LogQuery};

/// `GET …/log?limit&cursor`; also of a webhook that has been removed, as long as its log is kept.
pub(super) async fn list(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<LogItem>>, Problem> {
    let organization = path.organization()?;
    let webhook = path.webhook(&organization)?;
    let query = query.only(&["limit", "cursor"])?;
    let (limit, before) = (query.limit()?, query.cursor(LogPosition::decode)?);
    let first_page = before.is_none();
    let (whose, which) = (organization.clone(), webhook.clone());
    let rows = state.store.log(LogQuery { organization: whose, webhook: which, before, limit: limit + 1 }).await?;
    if rows.is_empty() && first_page {
        let webhooks = state.store.webhooks(&organization).await?;
        if !webhooks.iter().any(|known| known.id == webhook) {
            return Err(Problem::not_found("webhook", webhook.as_str(), &organization));
        }
    }
    Ok(Json(Page::new(rows, limit, |row| position(row).encode(), |row| LogItem::of(&row))))
}

fn position(row: &LogEntry) -> LogPosition {
    LogPosition {
        started_at: row.attempt.started_at,
        event: row.event.clone(),
        run: row.attempt.run,
        number: row.attempt.number,
    }
}
