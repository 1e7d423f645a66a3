//! One event: who got it and who not, and why; every attempt in its time; what was sent and what came back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use hikyaku_core::event::EventPattern;
use minijinja::{Value, context};

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::InPath;
use super::session::Visitor;
use super::shapes::{Attempt, Delivery, Event, Explained, List, Webhook};
use super::{timeline, tree};

/// The event.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Page, Failure> {
    let id = path.text("event");
    let (event, why) = (path.api(&["events", id]), path.api(&["events", id, "explain"]));
    let webhooks = path.api(&["webhooks"]);
    let (event, why, webhooks) = tokio::try_join!(
        console.api.get::<Event>(&visitor, &event),
        console.api.get::<List<Explained>>(&visitor, &why),
        console.api.get::<List<Webhook>>(&visitor, &webhooks),
    )?;
    let webhooks: BTreeMap<_, _> = webhooks.items.into_iter().map(|webhook| (webhook.id.clone(), webhook)).collect();
    let items = why.items.iter().map(|explained| {
        let delivery = event.deliveries.iter().find(|delivery| delivery.webhook_id == explained.webhook_id);
        item(&event, explained, delivery, webhooks.get(&explained.webhook_id), &console.retry_delays)
    });
    // What concerns the event comes before whom it did not concern.
    let (mut items, others): (Vec<_>, Vec<_>) = items.partition(|(is_concerned, _)| *is_concerned);
    items.extend(others);
    let body = body(&event);
    let values = context! {
        event => context! { id => event.id, type => event.r#type, timestamp => event.timestamp },
        items => items.into_iter().map(|(_, value)| value).collect::<Vec<_>>(),
        tree => tree::of(&body), body,
        is_settled => event.deliveries.iter().all(|delivery| delivery.state != "waiting"),
    };
    Ok(Page::of(path.organization(), "deliveries", "event.html", values))
}

/// What one webhook has to do with the event; whether it has anything to do with it.
fn item(
    event: &Event,
    explained: &Explained,
    delivery: Option<&Delivery>,
    webhook: Option<&Webhook>,
    server_delays: &[f64],
) -> (bool, Value) {
    let pauses = webhook.and_then(|webhook| webhook.retry_delays.as_deref()).unwrap_or(server_delays);
    let of_run = |delivery: &Delivery| -> Vec<Attempt> {
        delivery.attempts.iter().filter(|attempt| attempt.run == delivery.run).cloned().collect()
    };
    let outcomes = delivery.map(of_run).unwrap_or_default();
    let is_concerned = delivery.is_some() || matches!(explained.code.as_str(), "webhookOff" | "missed" | "held");
    let value = context! {
        explained => explained, webhook => webhook, delivery => delivery, is_concerned,
        timeline => delivery.filter(|delivery| !delivery.attempts.is_empty()).map(|delivery| timeline::of(delivery, pauses)),
        n => outcomes.len(), outcomes,
        why => format!("why.{}", explained.code),
        can_resend => explained.code != "aboutItself" && webhook.is_some_and(|webhook| can_resend(event, delivery, webhook)),
    };
    (is_concerned, value)
}

/// Whether it makes sense to send it once more: the webhook had it and its attempts have ended, or would get it today.
fn can_resend(event: &Event, delivery: Option<&Delivery>, webhook: &Webhook) -> bool {
    let wants =
        |pattern: &String| EventPattern::parse(pattern.as_str()).is_ok_and(|pattern| pattern.matches(&event.r#type));
    match delivery {
        Some(delivery) => delivery.state != "waiting",
        None => webhook.active && webhook.events.iter().any(wants),
    }
}

/// The body as it goes to receivers (R19), with the bytes of `data` as they were published.
fn body(event: &Event) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "{{\"id\":{},\"type\":{},\"timestamp\":{},\"data\":{}}}",
        quoted(&event.id),
        quoted(&event.r#type),
        quoted(&event.timestamp),
        event.data.get()
    )
}

/// Sends it again.
pub(super) async fn resend(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    _: Form,
) -> Result<Answer, Failure> {
    let (event, webhook) = (path.text("event"), path.text("webhook"));
    let at = path.api(&["deliveries", event, webhook, "resend"]);
    let page = path.console(&["events", event]);
    match console.api.call::<serde_json::Value>(&visitor, Method::POST, &at, None).await {
        Ok(_) => Ok(Answer::go(page)),
        Err(failure) => failure.back(&page, &[]),
    }
}
