//! Webhook administration and the delivery log (assumed, in the provider's verbs). There is nothing to send an event
//! again (R13).

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use hikyaku_core::event::EventPattern;
use hikyaku_core::signature::Secret;
use hikyaku_core::timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{Answer, Refusal, Second, Shared, parse, refuse};
use crate::sandbox::provider::{LogLine, Webhook};

/// Lines of the delivery log in one answer, at most.
const MAX_LINES: usize = 1000;

/// A webhook as a call gives it; what is left out stays, or is the default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    id: Option<String>,
    url: Option<String>,
    events: Option<Vec<EventPattern>>,
    active: Option<bool>,
    secret: Option<String>,
    memo: Option<String>,
}

fn show(webhook: &Webhook) -> Value {
    json!({
        "id": webhook.id, "url": webhook.url.as_str(), "events": webhook.events, "active": webhook.active,
        "secret": webhook.secret.reveal(), "memo": webhook.memo,
    })
}

/// `POST /{organizationId}/webhooks`.
pub(super) async fn list(State(sandbox): Shared) -> Json<Value> {
    let engine = sandbox.engine();
    Json(json!({"items": engine.provider.webhooks().map(show).collect::<Vec<_>>()}))
}

/// `GET /{organizationId}/webhook/{id}`.
pub(super) async fn read(State(sandbox): Shared, Path((_, id)): Second) -> Answer {
    sandbox.engine().provider.webhook(&id).map(|webhook| Json(show(webhook))).ok_or_else(|| no_such(&id))
}

/// `POST /{organizationId}/webhook/create`.
pub(super) async fn create(State(sandbox): Shared, body: Bytes) -> Answer {
    let given: Given = parse(&body)?;
    let Some(url) = usable(given.url)? else {
        return refuse(StatusCode::BAD_REQUEST, "url is needed");
    };
    if given.id.is_some() {
        return refuse(StatusCode::BAD_REQUEST, "a new webhook's id is given by the provider");
    }
    let mut engine = sandbox.engine();
    let webhook = Webhook {
        id: engine.provider.new_webhook_id(),
        url,
        events: given.events.unwrap_or_else(|| vec![EventPattern::All]),
        active: given.active.unwrap_or(true),
        secret: given.secret.map_or_else(|| engine.provider.new_secret(), Secret::new),
        memo: given.memo.unwrap_or_default(),
    };
    let shown = show(&webhook);
    if engine.provider.put(webhook) {
        Ok(Json(shown))
    } else {
        refuse(StatusCode::CONFLICT, "there are too many webhooks")
    }
}

/// `POST /{organizationId}/webhook/update`. Waiting retries stay as they are (R14), and go to the new address.
pub(super) async fn update(State(sandbox): Shared, body: Bytes) -> Answer {
    let given: Given = parse(&body)?;
    let id = given.id.unwrap_or_default();
    let url = usable(given.url)?;
    let mut engine = sandbox.engine();
    let Some(old) = engine.provider.webhook(&id).cloned() else { return Err(no_such(&id)) };
    let webhook = Webhook {
        id,
        url: url.unwrap_or(old.url),
        events: given.events.unwrap_or(old.events),
        active: given.active.unwrap_or(old.active),
        secret: given.secret.map_or(old.secret, Secret::new),
        memo: given.memo.unwrap_or(old.memo),
    };
    let shown = show(&webhook);
    engine.provider.put(webhook);
    Ok(Json(shown))
}

/// `GET /{organizationId}/webhook/{id}/log`: the delivery log, newest first.
pub(super) async fn log(State(sandbox): Shared, Path((_, id)): Second) -> Answer {
    let engine = sandbox.engine();
    if engine.provider.webhook(&id).is_none() {
        return Err(no_such(&id));
    }
    let line = |line: &LogLine| {
        json!({
            "deliveryId": line.delivery, "type": line.event_type, "attempt": line.attempt,
            "timestamp": timestamp::format(line.at), "httpStatus": line.http_status,
        })
    };
    Ok(Json(json!({"items": engine.provider.log_of(&id).take(MAX_LINES).map(line).collect::<Vec<_>>()})))
}

fn usable(url: Option<String>) -> Result<Option<Url>, Refusal> {
    let Some(text) = url else { return Ok(None) };
    match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Some(url)),
        _ => refuse(
            StatusCode::BAD_REQUEST,
            format!("url is {text:.200?}, which is not an address that begins with http:// or https://"),
        ),
    }
}

fn no_such(id: &str) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no webhook {id:.80?}"))
}
