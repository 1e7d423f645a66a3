//! `/v1/organizations/{organization}/webhooks`: the registered endpoints.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::{OrganizationId, WebhookId};
use hikyaku_core::operational::Notice;
use hikyaku_core::signature::{MAX_SECRET_BYTES, MIN_SECRET_BYTES, Scheme, Secret};
use hikyaku_core::webhook::{
    MAX_DESCRIPTION_BYTES, MAX_EVENT_PATTERNS, Off, OffReason, Setting, Settings, Webhook, WebhookUrl,
};
use jiff::Timestamp;

use super::State;
use super::body::read_json;
use super::fields::{A_STRING, Fields};
use super::openapi::requests::{self, NewWebhook};
use super::problem::{FieldError, Kind, Problem};
use super::request::{InPath, Query};
use super::settings;
use super::view::{Items, WebhookView, WebhookWithSecret};
use crate::clock;
use crate::store::{NewEvent, SwitchNotice, WebhookChange};

/// The fields that can be changed, besides the settings.
const CHANGEABLE: [&str; 4] = ["url", "events", "description", "active"];
/// Largest body that describes a webhook, in bytes.
const MAX_WEBHOOK_BYTES: usize = 64 * 1024;
/// Most webhooks of one organization: a bound on what one event becomes in one commit, and on the list. Creates that
/// run at the same time may exceed it by their number.
const MAX_WEBHOOKS: usize = 10_000;

/// Register a webhook.
///
/// Answers with the webhook and its secret, which is shown this once.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/webhooks",
    operation_id = "createWebhook",
    tag = "webhooks",
    request_body = NewWebhook,
    responses(
        (status = 201, description = "It gets events from now on.", body = WebhookWithSecret,
            headers(("location" = String, description = "Its path."))),
        (status = 409, description = "A problem: too-many-webhooks."),
        (status = 422, description = "A problem: unusable-url."),
    ),
)]
pub(super) async fn create(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let body = read_json(request, MAX_WEBHOOK_BYTES).await?;
    let mut fields = Fields::of_body(&body, &[&["secret"], &CHANGEABLE[..], &settings::FIELDS].concat())?;
    fields.require(&["url"]);
    let scheme = settings::scheme(&fields);
    let secret = fields.parse("secret", |text| check_secret(text, scheme));
    let change = read_change(fields)?;
    let url = usable_url(&state, change.url.as_deref().unwrap_or_default()).await?;
    if state.store.webhooks(&organization).await?.len() >= MAX_WEBHOOKS {
        let detail = format!("The organization has {MAX_WEBHOOKS} webhooks, the most there can be; remove one first.");
        return Err(Problem::new(Kind::TooManyWebhooks, detail));
    }
    let now = state.clock.now();
    let mut settings = Settings::default();
    change.settings.into_iter().for_each(|setting| settings.set(setting));
    let webhook = Webhook {
        id: WebhookId::generate(now, clock::random()),
        url,
        events: change.events.unwrap_or_else(|| vec![EventPattern::All]),
        description: change.description.unwrap_or_default(),
        secret: secret.unwrap_or_else(|| settings.signature.generate(clock::random())),
        previous_secret: None,
        off: (change.active == Some(false)).then_some(Off { since: now, reason: OffReason::Paused }),
        exhausted: 0,
        settings,
        created_at: now,
        organization,
    };
    state.store.create_webhook(webhook.clone()).await?;
    let location = format!("/v1/organizations/{}/webhooks/{}", webhook.organization, webhook.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(WebhookWithSecret::of(&webhook, state.clock.now())))
        .into_response())
}

/// List webhooks.
///
/// All of the organization's, oldest first.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/webhooks",
    operation_id = "listWebhooks",
    tag = "webhooks",
    responses((status = 200, description = "All of them.", body = Items<WebhookView>)),
)]
pub(super) async fn list(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Items<WebhookView>>, Problem> {
    query.only(&[])?;
    let webhooks = state.store.webhooks(&path.organization()?).await?;
    let now = state.clock.now();
    Ok(Json(Items { items: webhooks.iter().map(|webhook| WebhookView::of(webhook, now)).collect() }))
}

/// Read a webhook.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/webhooks/{webhook}",
    operation_id = "readWebhook",
    tag = "webhooks",
    responses((status = 200, description = "The webhook.", body = WebhookView)),
)]
pub(super) async fn read(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<WebhookView>, Problem> {
    let organization = path.organization()?;
    Ok(Json(WebhookView::of(&*find(&state, &path, &organization).await?, state.clock.now())))
}

/// The webhook that the path names.
pub(super) async fn find(state: &State, path: &InPath, organization: &OrganizationId) -> Result<Arc<Webhook>, Problem> {
    let id = path.webhook(organization)?;
    let webhooks = state.store.webhooks(organization).await?;
    webhooks.iter().find(|webhook| webhook.id == id).cloned().ok_or_else(|| not_found(path, organization))
}

/// Change a webhook.
///
/// What is not given stays. Retries that wait go to the new URL; switching off does not stop them.
// R14
#[utoipa::path(
    patch,
    path = "/v1/organizations/{organization}/webhooks/{webhook}",
    operation_id = "changeWebhook",
    tag = "webhooks",
    request_body = requests::WebhookChange,
    responses(
        (status = 200, description = "The webhook as it is now.", body = WebhookView),
        (status = 422, description = "A problem: unusable-url."),
    ),
)]
pub(super) async fn change(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<WebhookView>, Problem> {
    let organization = path.organization()?;
    let id = path.webhook(&organization)?;
    let body = read_json(request, MAX_WEBHOOK_BYTES).await?;
    let given = read_change(Fields::of_body(&body, &[&CHANGEABLE[..], &settings::FIELDS].concat())?)?;
    let url = match &given.url {
        Some(text) => Some(usable_url(&state, text).await?),
        None => None,
    };
    let Given { events, description, active, settings, .. } = given;
    let now = state.clock.now();
    if settings.iter().any(|setting| matches!(setting, Setting::Signature(_))) {
        check_scheme(&*find(&state, &path, &organization).await?, &settings, now)?;
    }
    let notice = match active {
        Some(active) => switch_notice(&state, &organization, &id, url.as_ref(), active, now).await?,
        None => None,
    };
    let change = WebhookChange { url, events, description, active, settings, rotation: None, notice };
    let changed = state.store.update_webhook(&organization, &id, change, now).await?;
    // What was held for it may go now, and so may the notice.
    state.sender.wake_recoveries();
    state.sender.wake();
    changed.map(|webhook| Json(WebhookView::of(&webhook, now))).ok_or_else(|| not_found(&path, &organization))
}

/// What other webhooks are told if the change switches this one on or off; the store knows whether it does.
async fn switch_notice(
    state: &State,
    organization: &OrganizationId,
    id: &WebhookId,
    url: Option<&WebhookUrl>,
    active: bool,
    now: Timestamp,
) -> Result<Option<SwitchNotice>, Problem> {
    let webhooks = state.store.webhooks(organization).await?;
    let Some(webhook) = webhooks.iter().find(|webhook| webhook.id == *id) else { return Ok(None) };
    let notice = if active { Notice::Enabled } else { Notice::Disabled(&OffReason::Paused) };
    let event = NewEvent::operational(&notice, id, url.unwrap_or(&webhook.url), now, clock::random());
    Ok(Some(SwitchNotice { event, due_at: state.clock.schedule() }))
}

/// Delete a webhook.
///
/// Its waiting deliveries are cancelled; its log stays.
#[utoipa::path(
    delete,
    path = "/v1/organizations/{organization}/webhooks/{webhook}",
    operation_id = "deleteWebhook",
    tag = "webhooks",
    responses((status = 204, description = "It is gone.")),
)]
pub(super) async fn remove(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<StatusCode, Problem> {
    let organization = path.organization()?;
    let id = path.webhook(&organization)?;
    match state.sender.remove_webhook(&organization, &id).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_found(&path, &organization)),
    }
}

pub(super) fn not_found(path: &InPath, organization: &OrganizationId) -> Problem {
    Problem::not_found("webhook", path.text("webhook"), organization)
}

/// The fields that creating and changing a webhook have in common.
struct Given {
    url: Option<String>,
    events: Option<Vec<EventPattern>>,
    description: Option<String>,
    active: Option<bool>,
    settings: Vec<Setting>,
}

fn read_change(mut fields: Fields<'_>) -> Result<Given, Problem> {
    let given = Given {
        url: fields.get("url", A_STRING),
        events: read_patterns(&mut fields),
        description: fields.parse("description", |text| match text.len() {
            0..=MAX_DESCRIPTION_BYTES => Ok(text),
            length => Err(format!("is {length} bytes long; at most {MAX_DESCRIPTION_BYTES} are allowed")),
        }),
        active: fields.get("active", "true or false"),
        settings: settings::read(&mut fields),
    };
    fields.finish()?;
    Ok(given)
}

fn read_patterns(fields: &mut Fields<'_>) -> Option<Vec<EventPattern>> {
    let texts: Vec<String> = fields.get("events", "a list of strings such as [\"sale.created\", \"order.*\"]")?;
    if !(1..=MAX_EVENT_PATTERNS).contains(&texts.len()) {
        fields.fail("events", &format!("must have from 1 to {MAX_EVENT_PATTERNS} entries; [\"*\"] takes every event"));
        return None;
    }
    let mut patterns = Vec::new();
    for (at, text) in texts.into_iter().enumerate() {
        match EventPattern::parse(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => fields.fail(&format!("events[{at}]"), &error.to_string()),
        }
    }
    Some(patterns)
}

/// S15: a secret that somebody chose is long enough, a text that can be copied from a screen, and can sign by its scheme,
/// if that is known.
pub(super) fn check_secret(text: String, scheme: Option<Scheme>) -> Result<Secret, String> {
    if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&text.len()) {
        return Err(format!(
            "is {} bytes long; from {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} are allowed; without it one is made",
            text.len()
        ));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("contains a space or control character".to_owned());
    }
    let secret = Secret::new(text);
    match scheme.map(|scheme| scheme.check(&secret)) {
        Some(Err(error)) => Err(error.to_string()),
        _ => Ok(secret),
    }
}

/// Whether a webhook's secrets, as far as they are good now, can sign by the scheme that is set.
fn check_scheme(webhook: &Webhook, settings: &[Setting], now: Timestamp) -> Result<(), Problem> {
    let mut errors = Vec::new();
    for setting in settings {
        let Setting::Signature(scheme) = setting else { continue };
        let unfit = webhook.secrets(now).map(|secret| scheme.check(secret).err()).collect::<Vec<_>>();
        let detail = match unfit.as_slice() {
            [Some(error), ..] => {
                format!("does not fit the webhook's secret, which {error}; register a webhook of its own for it")
            }
            [None, Some(error)] => format!(
                "does not fit the webhook's previous secret, which {error} and is good for a while yet; set it when \
                 previousSecretUntil has passed, or rotate the secret with \"overlap\": 0 first"
            ),
            _ => continue,
        };
        errors.push(FieldError::new("signature", &detail));
    }
    if errors.is_empty() { Ok(()) } else { Err(errors.into()) }
}

/// S1-S7: refuses what could not be delivered to anyway. Every attempt judges the address anew (S4).
async fn usable_url(state: &State, text: &str) -> Result<WebhookUrl, Problem> {
    let unusable = |reason: &dyn std::fmt::Display| Problem::new(Kind::UnusableUrl, format!("The URL {reason}."));
    let url = WebhookUrl::parse(text).map_err(|error| unusable(&error))?;
    state.client.vet(url.as_url()).await.map_err(|refusal| unusable(&format!("cannot be used: {refusal}")))?;
    Ok(url)
}
