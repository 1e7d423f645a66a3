//! `/v1/organizations/{organization}/events/{event}/explain`: why a webhook got an event, or did not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use hikyaku_core::explain::{self, Explanation, Situation};
use hikyaku_core::operational::about;
use hikyaku_core::webhook::Webhook;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::openapi::words;
use super::problem::Problem;
use super::request::{InPath, Query};
use super::view::{Items, on_the_wall};
use crate::clock::Clock;
use crate::store::{DeliveryView, EventView};

/// Explain who got an event, and who not.
///
/// One explanation for each of the organization's webhooks, oldest first, and for those that were removed since; or for
/// the one that is named.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/events/{event}/explain",
    operation_id = "explainEvent",
    tag = "events",
    params(("webhook" = Option<String>, Query, description = "Only this webhook.")),
    responses((status = 200, description = "The explanations.", body = Items<Explained>)),
)]
pub(super) async fn explain(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Items<Explained>>, Problem> {
    let organization = path.organization()?;
    let id = path.event(&organization)?;
    let query = query.only(&["webhook"])?;
    let Some(event) = state.store.event(&organization, &id).await? else {
        return Err(Problem::not_found("event", id.as_str(), &organization));
    };
    let webhooks = state.store.webhooks(&organization).await?;
    let asked: Vec<&str> = match query.text("webhook") {
        Some(webhook) => vec![webhook],
        None => all(&event, &webhooks),
    };
    let of = |id: &&str| {
        let webhook = webhooks.iter().find(|webhook| webhook.id.as_str() == *id);
        explained(&event, id, webhook.map(Arc::as_ref), state.clock.as_ref())
    };
    Ok(Json(Items { items: asked.iter().map(of).collect() }))
}

/// The webhooks that there are, and those that were.
fn all<'a>(event: &'a EventView, webhooks: &'a [Arc<Webhook>]) -> Vec<&'a str> {
    let present = webhooks.iter().map(|webhook| webhook.id.as_str());
    let delivered = event.deliveries.iter().map(|delivery| delivery.webhook.as_str());
    let is_removed = |id: &&str| !webhooks.iter().any(|webhook| webhook.id.as_str() == *id);
    present.chain(delivered.filter(is_removed)).collect()
}

fn explained(event: &EventView, id: &str, webhook: Option<&Webhook>, clock: &dyn Clock) -> Explained {
    let delivery = event.deliveries.iter().find(|delivery| delivery.webhook.as_str() == id);
    let outcomes = delivery.map(outcomes).unwrap_or_default();
    let situation = Situation {
        event_type: &event.event_type,
        published_at: event.created_at,
        is_about_it: about(event.event_type.as_str(), &event.body).is_some_and(|about| about.as_str() == id),
        webhook,
        delivery: delivery.map(|delivery| explain::Delivery {
            state: delivery.state,
            in_flight: delivery.in_flight,
            next_attempt_at: delivery.next_attempt_at.map(|due| on_the_wall(due, clock)),
            reason: &delivery.reason,
            outcomes: &outcomes,
            delivered_before: delivered_before(delivery),
        }),
        missed: event.missed.iter().find(|missed| missed.webhook.as_str() == id).map(|missed| &missed.off),
    };
    Explained { webhook_id: id.to_owned(), explanation: explain::explain(&situation) }
}

/// What the attempts of the last run came to.
fn outcomes(delivery: &DeliveryView) -> Vec<hikyaku_core::delivery::Outcome> {
    let of_run = delivery.attempts.iter().filter(|attempt| attempt.run == delivery.run);
    of_run.map(|attempt| attempt.outcome).collect()
}

/// The last run before the present one that was delivered, and the answer's status.
fn delivered_before(delivery: &DeliveryView) -> Option<(u32, u16)> {
    let mut earlier = delivery.attempts.iter().filter(|attempt| attempt.run < delivery.run);
    let delivered = earlier.rfind(|attempt| attempt.outcome.is_success())?;
    Some((delivered.run, delivered.outcome.http_status()))
}

/// An explanation, and of which webhook.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explained {
    /// Of which webhook.
    webhook_id: String,
    #[serde(flatten)]
    #[schema(value_type = Why)]
    explanation: Explanation,
}

/// Why: the description of [`Explanation`].
#[derive(ToSchema)]
#[schema(as = Explanation)]
#[expect(dead_code, reason = "it is described and never made")]
struct Why {
    #[schema(schema_with = words::explanation_code)]
    code: String,
    /// For people.
    sentence: String,
}
