//! `/v1/organizations/{organization}/deliveries/{event}/{webhook}`: one event for one webhook.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hikyaku_core::ids::DeliveryKey;

use super::State;
use super::problem::{Kind, Problem};
use super::request::InPath;
use super::view::DeliveryJson;
use crate::store::ResendOutcome;

/// `POST …/resend`: sends the event to the webhook again, with the same id and bytes, in a new run of attempts (R13).
/// It gives 202 and the delivery; 409 while the delivery waits or is under way. The webhook may be off, and may never
/// have been meant by the event.
pub(super) async fn resend(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let (event, webhook) = (path.event(&organization)?, path.webhook(&organization)?);
    let key = DeliveryKey { organization, event, webhook };
    match state.sender.resend(&key).await? {
        ResendOutcome::Begun => shown(&state, &key).await,
        ResendOutcome::NoSuchEvent => Err(Problem::not_found("event", key.event.as_str(), &key.organization)),
        ResendOutcome::NoSuchWebhook => Err(Problem::not_found("webhook", key.webhook.as_str(), &key.organization)),
        ResendOutcome::StillWaiting => Err(Problem::new(
            Kind::DeliveryWaiting,
            format!(
                "The delivery of {:?} to {:?} has attempts left: one is due or under way. It goes on by itself, so \
                 nothing was changed; resend it when it has ended.",
                key.event.as_str(),
                key.webhook.as_str()
            ),
        )),
    }
}

async fn shown(state: &State, key: &DeliveryKey) -> Result<Response, Problem> {
    let event = state.store.event(&key.organization, &key.event).await?;
    let delivery = event.iter().flat_map(|event| &event.deliveries).find(|delivery| delivery.webhook == key.webhook);
    let delivery = delivery.map(|delivery| DeliveryJson::of(delivery, state.clock.as_ref()));
    Ok((StatusCode::ACCEPTED, Json(delivery)).into_response())
}
