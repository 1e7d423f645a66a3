//! `POST …/webhooks/{webhook}/rotate-secret`: a new secret, beside which the old one stays good for a while.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State as Shared};
use hikyaku_core::webhook::MAX_SECRET_OVERLAP;

use super::State;
use super::body::read_json;
use super::fields::Fields;
use super::openapi::requests::NewSecret;
use super::problem::Problem;
use super::request::InPath;
use super::view::WebhookWithSecret;
use super::webhooks::{check_secret, find, not_found};
use crate::clock;
use crate::store::{Rotation, WebhookChange};

/// Largest body, in bytes.
const MAX_BYTES: usize = 4 * 1024;
/// How long the old secret stays good if nothing is said.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(24 * 3600);

/// Rotate a webhook's secret.
///
/// The old secret stays good for a while. The answer shows the new one this once. There may be no body at all.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/rotate-secret",
    operation_id = "rotateSecret",
    tag = "webhooks",
    request_body = Option<NewSecret>,
    responses((status = 200, description = "The webhook with its new secret.", body = WebhookWithSecret)),
)]
pub(super) async fn rotate_secret(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<WebhookWithSecret>, Problem> {
    let organization = path.organization()?;
    let webhook = find(&state, &path, &organization).await?;
    let scheme = webhook.settings.signature;
    let body = read_json(request, MAX_BYTES).await?;
    let body = if body.is_empty() { &b"{}"[..] } else { &body };
    let mut fields = Fields::of_body(body, &["overlap", "secret"])?;
    let overlap = read_overlap(&mut fields);
    let secret = fields.parse("secret", |text| check_secret(text, Some(scheme)));
    fields.finish()?;
    let secret = secret.unwrap_or_else(|| scheme.generate(clock::random()));
    let rotation = Some(Rotation { secret, overlap });
    let change = WebhookChange { rotation, ..WebhookChange::default() };
    let changed = state.store.update_webhook(&organization, &webhook.id, change, state.clock.now()).await?;
    let changed = changed.ok_or_else(|| not_found(&path, &organization))?;
    Ok(Json(WebhookWithSecret::of(&changed, state.clock.now())))
}

fn read_overlap(fields: &mut Fields<'_>) -> Duration {
    let most = MAX_SECRET_OVERLAP.as_secs();
    let expected = format!("a whole number of seconds from 0 to {most}");
    let Some(seconds) = fields.get::<u64>("overlap", &expected) else { return DEFAULT_OVERLAP };
    if seconds > most {
        fields.fail("overlap", &format!("must be {expected}, not {seconds}"));
    }
    Duration::from_secs(seconds)
}
