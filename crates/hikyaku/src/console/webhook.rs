//! One webhook: how it stands, what to do where it is off, its log, what it missed, a test, a new secret.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use minijinja::{Value, context};
use serde_json::json;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page, REFUSED};
use super::path::{InPath, InQuery};
use super::session::Visitor;
use super::shapes::{Attempt, List, Missed, Recovery, Trial, Webhook};
use super::sparkline;
use super::webhooks::STRIP_ATTEMPTS;

/// Lines of the log on a page.
const LOG_LINES: &str = "25";
/// Missed events that are shown before they are recovered.
const PREVIEW: &str = "10";

/// The webhook.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    page(&console, &visitor, &path, &query, Value::from(())).await
}

async fn page(
    console: &Console,
    visitor: &Visitor,
    path: &InPath,
    query: &InQuery,
    trial: Value,
) -> Result<Page, Failure> {
    let id = path.text("webhook");
    let filter = query.only(&["httpStatus", "error", "cursor"]);
    let log = format!("{}?limit={LOG_LINES}&{filter}", path.api(&["webhooks", id, "log"]));
    let strip = format!("{}?limit={STRIP_ATTEMPTS}", path.api(&["webhooks", id, "log"]));
    let missed = format!("{}?limit={PREVIEW}", path.api(&["webhooks", id, "missed"]));
    let webhook = path.api(&["webhooks", id]);
    let (webhook, log, strip, missed) = tokio::try_join!(
        console.api.get::<Webhook>(visitor, &webhook),
        console.api.get::<List<Attempt>>(visitor, &log),
        console.api.get::<List<Attempt>>(visitor, &strip),
        console.api.get::<Missed>(visitor, &missed),
    )?;
    let (next, until) = (log.next_cursor, log.searched_to);
    let values = context! {
        webhook, trial, missed, next, until, server_delays => console.retry_delays.clone(),
        log => log.items, strip => sparkline::of(&strip.items),
        status => query.text("httpStatus"), error => query.text("error"), is_later => !query.text("cursor").is_empty(),
    };
    Ok(Page::of(path.organization(), "webhooks", "webhook.html", values))
}

/// Switches it on or off.
pub(super) async fn switch(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    let active: bool = form.text("active").parse().map_err(|_| Failure::Odd)?;
    let (at, page) = (path.api(&["webhooks", path.text("webhook")]), path.console(&["webhooks", path.text("webhook")]));
    match console.api.call::<Webhook>(&visitor, Method::PATCH, &at, Some(&json!({"active": active}))).await {
        Ok(_) => Ok(Answer::go(page)),
        Err(failure) => failure.back(&page, &[]),
    }
}

/// Sends it a test, and shows what the endpoint said.
pub(super) async fn test(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    _: Form,
) -> Result<Answer, Failure> {
    let (webhook, here) = (path.text("webhook"), path.console(&["webhooks", path.text("webhook")]));
    let at = path.api(&["webhooks", webhook, "test"]);
    match console.api.call::<Trial>(&visitor, Method::POST, &at, None).await {
        Ok(trial) => {
            let page = page(&console, &visitor, &path, &InQuery::empty(), Value::from(trial)).await?;
            Ok(page.at(here).into())
        }
        Err(failure) => failure.back(&here, &[]),
    }
}

/// Sends after all what it missed, from the oldest event on.
pub(super) async fn recover(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    _: Form,
) -> Result<Answer, Failure> {
    let webhook = path.text("webhook");
    let missed = format!("{}?limit=1", path.api(&["webhooks", webhook, "missed"]));
    let missed: Missed = console.api.get(&visitor, &missed).await?;
    let Some(oldest) = missed.items.first() else {
        return Ok(Answer::go(path.console(&["webhooks", webhook])));
    };
    let body = json!({"which": "all", "from": oldest.timestamp});
    let at = path.api(&["webhooks", webhook, "recover"]);
    match console.api.call::<Recovery>(&visitor, Method::POST, &at, Some(&body)).await {
        Ok(recovery) => Ok(Answer::go(path.console(&["webhooks", webhook, "recoveries", &recovery.id]))),
        Err(failure) => failure.back(&path.console(&["webhooks", webhook]), &[]),
    }
}

/// How far a recovery is.
pub(super) async fn recovery(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Page, Failure> {
    let (webhook, recovery) = (path.text("webhook"), path.text("recovery"));
    let (webhook, at) = (path.api(&["webhooks", webhook]), path.api(&["webhooks", webhook, "recoveries", recovery]));
    let (webhook, recovery) =
        tokio::try_join!(console.api.get::<Webhook>(&visitor, &webhook), console.api.get::<Recovery>(&visitor, &at),)?;
    Ok(Page::of(path.organization(), "webhooks", "recovery.html", context! { webhook, recovery }))
}

/// What a new secret means, before there is one.
pub(super) async fn secret(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Page, Failure> {
    let webhook: Webhook = console.api.get(&visitor, &path.api(&["webhooks", path.text("webhook")])).await?;
    Ok(Page::of(path.organization(), "webhooks", "secret.html", context! { webhook, step => "ask" }))
}

/// Makes the new secret, and shows it this once.
pub(super) async fn rotate(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    let overlap: u32 = form.text("overlap").parse().map_err(|_| Failure::Odd)?;
    let id = path.text("webhook");
    let before: Webhook = console.api.get(&visitor, &path.api(&["webhooks", id])).await?;
    // The page that shows the secret was loaded again: another one would end the first, and the old one with it.
    if before.previous_secret_until.as_deref().unwrap_or_default() != form.text("previous") {
        return Ok(Answer::go(format!("{}?{REFUSED}=made-already", path.console(&["webhooks", id, "secret"]))));
    }
    let at = path.api(&["webhooks", id, "rotate-secret"]);
    let webhook: Webhook = console.api.call(&visitor, Method::POST, &at, Some(&json!({"overlap": overlap}))).await?;
    Ok(Page::of(path.organization(), "webhooks", "secret.html", context! { webhook, step => "rotated" }).into())
}
