//! What was received: by state, source and key; one row with its effects and its key's history; and doing something
//! about one row.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use futures_util::future::try_join_all;
use minijinja::{Value, context};
use serde_json::json;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::{InPath, InQuery, query as pairs};
use super::session::Visitor;
use super::shapes::{Intervened, List, Row, RowDetail, Source};
use super::tree;

/// Rows on a page.
const PAGE_ROWS: &str = "50";
/// Rows of a key's history; of each of them its effects are read.
const HISTORY_ROWS: &str = "30";

/// What can be done to rows in a state.
fn actions(state: &str) -> &'static [&'static str] {
    match state {
        "dead" => &["replay", "discard"],
        "done" | "stale" | "discarded" => &["replay"],
        "parked" | "quarantined" => &["release", "discard"],
        "waiting" => &["discard"],
        _ => &[],
    }
}

/// The rows.
pub(super) async fn list(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    let filter = query.only(&["state", "source", "key", "route", "cursor"]);
    let (rows, sources) = (format!("{}?limit={PAGE_ROWS}&{filter}", path.api(&["inbox"])), path.api(&["sources"]));
    let (rows, sources) = tokio::try_join!(
        console.api.get::<List<Row>>(&visitor, &rows),
        console.api.get::<List<Source>>(&visitor, &sources),
    )?;
    let [state, source, key, route] = ["state", "source", "key", "route"].map(|name| query.text(name));
    let is_untouched = filter.is_empty() && rows.items.is_empty();
    let values = context! {
        rows => rows.items, next => rows.next_cursor, until => rows.searched_to, sources => sources.items, state, source, key, route, is_untouched,
        actions => actions(state).to_vec(),
        filter => query.only(&["state", "source", "key", "route"]),
    };
    Ok(Page::of(path.organization(), "inbox", "inbox.html", values))
}

/// One row.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    let (source, delivery) = (path.text("source"), path.text("delivery"));
    let detail: RowDetail = console.api.get(&visitor, &path.api(&["inbox", source, delivery])).await?;
    let history = history(&console, &visitor, &path, &detail.row).await?;
    let tree = (detail.body_encoding == "utf-8").then(|| tree::of(&detail.body)).flatten();
    let actions = actions(&detail.row.state).to_vec();
    let values = context! { tree, history, actions, row => detail, reason => query.text("reason") };
    Ok(Page::of(path.organization(), "inbox", "row.html", values))
}

/// What was received with the row's key through its source, in the order in which it happened, whenever it came.
async fn history(console: &Console, visitor: &Visitor, path: &InPath, of: &Row) -> Result<Vec<Value>, Failure> {
    if of.key.is_empty() {
        return Ok(Vec::new());
    }
    let of_key = pairs([("key", of.key.as_str()), ("source", path.text("source")), ("limit", HISTORY_ROWS)]);
    let mut rows: List<Row> = console.api.get(visitor, &format!("{}?{of_key}", path.api(&["inbox"]))).await?;
    rows.items.sort_by(|a, b| (&a.timestamp, &a.received_at).cmp(&(&b.timestamp, &b.received_at)));
    let with_effects = rows.items.into_iter().map(|row| async move {
        let at = path.api(&["inbox", &row.source, &row.delivery_id]);
        let effects = match console.api.get::<RowDetail>(visitor, &at).await {
            Ok(detail) => detail.effects,
            // It has aged meanwhile.
            Err(Failure::Refused(_)) => Vec::new(),
            Err(failure) => return Err(failure),
        };
        Ok(context! { is_this => row.delivery_id == of.delivery_id, row, effects })
    });
    try_join_all(with_effects).await
}

/// Replays, releases or discards one row.
pub(super) async fn act(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    let (source, delivery, action) = (path.text("source"), path.text("delivery"), form.text("action"));
    let body = match action {
        "discard" => Some(json!({"reason": form.text("reason")})),
        "replay" | "release" => None,
        _ => return Err(Failure::Odd),
    };
    let (at, page) = (path.api(&["inbox", source, delivery, action]), path.console(&["inbox", source, delivery]));
    match console.api.call::<Intervened>(&visitor, Method::POST, &at, body.as_ref()).await {
        // What was quarantined has another id once it is released.
        Ok(_) if delivery.starts_with("quarantined:") && action == "release" => {
            Ok(Answer::go(path.console(&["inbox"])))
        }
        Ok(_) => Ok(Answer::go(page)),
        Err(failure) => failure.back(&page, &[("reason", form.text("reason"))]),
    }
}
