//! `/v1/organizations/{organization}/webhooks/{webhook}/test`: a test delivery, and what to make of it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use hikyaku_core::advice::{Tested, advice};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::webhook::Webhook;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::fields::read_nothing;
use super::openapi::requests::Nothing;
use super::openapi::words;
use super::problem::{Kind, Problem};
use super::request::InPath;
use super::webhooks;
use crate::sender::Trial;

/// Test a webhook.
///
/// Sends a `webhook.test` event now and answers with what the endpoint said, whatever that is.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/test",
    operation_id = "testWebhook",
    tag = "webhooks",
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "What the endpoint said.", body = TrialJson),
        (status = 429, description = "A problem: too-many-tests."),
    ),
)]
pub(super) async fn test(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<TrialJson>, Problem> {
    let organization = path.organization()?;
    read_nothing(request).await?;
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
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TestResult)]
pub(super) struct TrialJson {
    /// The id that the endpoint saw.
    event_id: String,
    // R2
    /// Whether it answered 2xx.
    delivered: bool,
    // R6
    /// The status that came; 0 if none came.
    http_status: u16,
    #[schema(schema_with = words::error_kind_or_null)]
    error_kind: Option<&'static str>,
    /// For people; `null` after an answer.
    #[schema(required)]
    error: Option<String>,
    /// How long it took, in milliseconds.
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
