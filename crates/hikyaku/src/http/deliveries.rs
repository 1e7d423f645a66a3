//! `/v1/organizations/{organization}/deliveries`: what was sent, searched; and one event for one webhook.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hikyaku_core::delivery::DeliveryState;
use hikyaku_core::ids::{DeliveryKey, EventId, WebhookId};
use hikyaku_core::operational::about;

use super::State;
use super::fields::read_nothing;
use super::filters::MAX_SEARCHED_ROWS;
use super::openapi::requests::{DeliveryFilter, InPage, Nothing, Outcomes, Period};
use super::page::{Cursor, Page};
use super::problem::{Kind, Problem};
use super::request::{InPath, Query};
use super::view::{DeliveryItem, DeliveryJson};
use crate::store::{DeliveryPosition, DeliveryQuery, ResendOutcome};

/// The parameters that are known.
const PARAMETERS: [&str; 11] =
    ["webhook", "event", "type", "state", "httpStatus", "error", "key", "from", "to", "limit", "cursor"];

/// Search the deliveries.
///
/// Those of the newest events first. Statuses and errors are those of a delivery's last attempt; the time is that of its
/// event's publish.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/deliveries",
    operation_id = "listDeliveries",
    tag = "deliveries",
    params(DeliveryFilter, Outcomes, Period, InPage),
    responses((status = 200, description = "A page of deliveries.", body = Page<DeliveryItem>)),
)]
pub(super) async fn list(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<DeliveryItem>>, Problem> {
    let query = query.only(&PARAMETERS)?;
    let limit = query.limit()?;
    let states = format!("one of {}", DeliveryState::ALL.map(DeliveryState::as_str).join(", "));
    let (from, to) = query.stretch()?;
    let found = state.store.deliveries(DeliveryQuery {
        organization: path.organization()?,
        webhook: query.parse("webhook", "the id of a webhook", |text| WebhookId::parse(text).ok())?,
        event: query.parse("event", "the id of an event", |text| EventId::parse(text).ok())?,
        event_type: query.event_type()?,
        state: query.parse("state", &states, DeliveryState::parse)?,
        last: query.outcome()?,
        key: query.text("key").map(str::to_owned),
        from,
        to,
        after: query.cursor(DeliveryPosition::decode)?,
        limit: limit + 1,
        look_at: MAX_SEARCHED_ROWS,
    });
    let found = found.await?;
    let searched_to = found.searched_to.map(|place| (place.created_at, query.next(&place)));
    let page = Page::new(
        found.rows,
        limit,
        |row| query.next(&row.position()),
        |row| DeliveryItem::of(&row, state.clock.as_ref()),
    );
    Ok(Json(page.searched_to(searched_to)))
}

/// Send an event to a webhook again.
///
/// With the same id and bytes, in a new run of attempts. The webhook may be off, and may never have been meant by the
/// event.
// R13
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/deliveries/{event}/{webhook}/resend",
    operation_id = "resendDelivery",
    tag = "deliveries",
    request_body = Option<Nothing>,
    responses(
        (status = 202, description = "The new run has begun.", body = DeliveryJson),
        (status = 409, description = "A problem: delivery-waiting, about-itself."),
    ),
)]
pub(super) async fn resend(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let (event, webhook) = (path.event(&organization)?, path.webhook(&organization)?);
    read_nothing(request).await?;
    let key = DeliveryKey { organization, event, webhook };
    refuse_news_of_itself(&state, &key).await?;
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

/// No webhook gets news of itself, on request neither.
async fn refuse_news_of_itself(state: &State, key: &DeliveryKey) -> Result<(), Problem> {
    let event = state.store.event(&key.organization, &key.event).await?;
    let about = event.and_then(|event| about(event.event_type.as_str(), &event.body));
    if about.as_ref() != Some(&key.webhook) {
        return Ok(());
    }
    let detail = format!(
        "The event {:?} tells of the webhook {:?} itself, and no webhook gets news of itself; nothing was changed.",
        key.event.as_str(),
        key.webhook.as_str()
    );
    Err(Problem::new(Kind::AboutItself, detail))
}

async fn shown(state: &State, key: &DeliveryKey) -> Result<Response, Problem> {
    let event = state.store.event(&key.organization, &key.event).await?;
    let delivery = event.iter().flat_map(|event| &event.deliveries).find(|delivery| delivery.webhook == key.webhook);
    let delivery = delivery.map(|delivery| DeliveryJson::of(delivery, state.clock.as_ref()));
    Ok((StatusCode::ACCEPTED, Json(delivery)).into_response())
}
