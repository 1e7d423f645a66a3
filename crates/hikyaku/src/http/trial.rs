//! `/v1/organizations/{organization}/webhooks/{webhook}/test`: a test delivery, and what to make of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use hikyaku_core::advice::{Tested, advice};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::webhook::Webhook;
use serde::Serialize;

use super::State;
use super::problem::{Kind, Problem};
use super::request::InPath;
use super::webhooks;
use crate::sender::Trial;

/// `POST …/test`: sends a `webhook.test` event now and answers 200 with what the endpoint said, whatever that is.
pub(super) async fn test(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<TrialJson>, Problem> {
    let organization = path.organization()?;
    let webhook = webhooks::find(&state, &path, &organization).await?;
    match state.sender.test(Arc::clone(&webhook)).await {
        Some(trial) => Ok(Json(TrialJson::of(&trial, &webhook))),
        None => {
            let detail = "Too many test deliveries are under way; nothing was sent. Test again in a moment.";
            Err(Problem::new(Kind::TooManyTests, detail))
        }
    }
}

/// What a test delivery came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TrialJson {
    /// The id that the endpoint saw.
    event_id: String,
    /// Whether it answered 2xx (R2).
    delivered: bool,
    /// 0 where no status came (R6).
    http_status: u16,
    /// As of any attempt; `null` after an answer.
    error_kind: Option<&'static str>,
    /// For people; `null` after an answer.
    error: Option<String>,
    duration_ms: u64,
    /// The response's first bytes; what is not UTF-8 in them is shown as U+FFFD.
    response_body: String,
    /// For people: what to check or to change.
    advice: String,
}

impl TrialJson {
    fn of(Trial { event, response }: &Trial, webhook: &Webhook) -> Self {
        let header = |name| response.headers.get(name).and_then(|value| value.to_str().ok());
        let (location, content_type) = (header(LOCATION), header(CONTENT_TYPE));
        let error_kind = match response.outcome {
            Outcome::Answered(_) => None,
            Outcome::Failed(kind) => Some(kind.as_str()),
        };
        Self {
            event_id: event.to_string(),
            delivered: response.outcome.is_success(),
            http_status: response.outcome.http_status(),
            error_kind,
            error: error_kind.map(|_| response.error.clone()),
            duration_ms: u64::try_from(response.duration.as_millis()).unwrap_or(u64::MAX),
            response_body: String::from_utf8_lossy(&response.body).into_owned(),
            advice: advice(&Tested { webhook, outcome: response.outcome, location, content_type }),
        }
    }
}
