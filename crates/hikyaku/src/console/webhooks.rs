//! The webhooks, those that are off first, and registering one.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use minijinja::{Value, context};
use serde_json::json;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page, Problem};
use super::path::{InPath, InQuery};
use super::session::Visitor;
use super::shapes::{Attempt, List, Webhook};
use super::{sparkline, text};

/// Webhooks on a page.
const PAGE_WEBHOOKS: usize = 25;
/// Attempts in a strip.
pub(super) const STRIP_ATTEMPTS: u32 = 40;

/// The list.
pub(super) async fn list(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    page(&console, &visitor, &path, query.text("after").parse().unwrap_or(0), None).await
}

/// The list, with what is wrong with a webhook that was to be registered.
async fn page(
    console: &Console,
    visitor: &Visitor,
    path: &InPath,
    after: usize,
    refused: Option<Value>,
) -> Result<Page, Failure> {
    let mut all: List<Webhook> = console.api.get(visitor, &path.api(&["webhooks"])).await?;
    all.items.sort_by_key(|webhook| webhook.active);
    let total = all.items.len();
    let mut rows = Vec::new();
    for webhook in all.items.into_iter().skip(after).take(PAGE_WEBHOOKS) {
        let log = format!("{}?limit={STRIP_ATTEMPTS}", path.api(&["webhooks", &webhook.id, "log"]));
        let log: List<Attempt> = console.api.get(visitor, &log).await?;
        rows.push(context! { webhook, strip => sparkline::of(&log.items) });
    }
    let next = after + rows.len();
    let next = (next < total).then_some(next);
    Ok(Page::of(path.organization(), "webhooks", "webhooks.html", context! { rows, total, next, refused }))
}

/// Registers one, and shows its secret, which is shown this once.
pub(super) async fn create(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    let events: Vec<_> =
        form.text("events").split([',', ' ', '\n', '\r']).filter(|pattern| !pattern.is_empty()).collect();
    let body = json!({
        "url": form.text("url"),
        "events": events,
        "description": form.text("description"),
    });
    // The page that shows the secret was loaded again, or it was clicked twice.
    let _alone = console.registering.lock().await;
    let known: List<Webhook> = console.api.get(&visitor, &path.api(&["webhooks"])).await?;
    let is_same = |known: &Webhook| {
        known.url == form.text("url")
            && json!(known.events) == body["events"]
            && known.description == form.text("description")
    };
    if known.items.iter().any(is_same) {
        return Ok(refused(&console, &visitor, &path, &form, None).await?.into());
    }
    match console.api.call::<Webhook>(&visitor, Method::POST, &path.api(&["webhooks"]), Some(&body)).await {
        Ok(webhook) => {
            let values = context! { webhook, step => "made" };
            Ok(Page::of(path.organization(), "webhooks", "secret.html", values).into())
        }
        Err(Failure::Refused(problem)) => Ok(refused(&console, &visitor, &path, &form, Some(&problem)).await?.into()),
        Err(failure) => Err(failure),
    }
}

/// The list, with the form as it was typed and what is wrong with it: what the API says, or that there is one like it.
async fn refused(
    console: &Console,
    visitor: &Visitor,
    path: &InPath,
    form: &Form,
    problem: Option<&Problem>,
) -> Result<Page, Failure> {
    let [url, events, description] = ["url", "events", "description"].map(|name| form.text(name));
    let key = problem.map_or("webhooks.exists".to_owned(), |problem| format!("problem.{}", problem.kind()));
    // What the API says of a field is more than that there is something.
    let key = Some(key).filter(|key| key != "problem.invalid-request" && text::is_known(key));
    let detail = problem.map(|problem| &problem.detail);
    let refused = context! { key, detail, url, events, description };
    let status = problem.map_or(409, |problem| problem.status);
    Ok(page(console, visitor, path, 0, Some(refused)).await?.refusing(status))
}
