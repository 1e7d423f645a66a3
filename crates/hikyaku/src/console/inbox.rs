//! What was received: by state, source and key; one row with its effects and its key's history; and doing something about
//! one row or about many, which are shown before.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use minijinja::{Value, context};
use serde_json::json;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::{InPath, InQuery, query as pairs};
use super::session::Visitor;
use super::shapes::{Intervened, List, Many, Row, RowDetail, Source, Unchanged};
use super::tree;

/// Rows on a page.
const PAGE_ROWS: &str = "50";
/// Rows of a key's history; of each of them its effects are read.
const HISTORY_ROWS: &str = "30";
/// Most requests of the API for one press of a button; each does up to 200 rows. What is left is left to the next press.
const MAX_STEPS: usize = 50;

/// Rows that stay as they are which are named, of each reason.
const FEW_UNCHANGED: usize = 10;

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
    let (state, source, key) = (query.text("state"), query.text("source"), query.text("key"));
    let is_untouched = filter.is_empty() && rows.items.is_empty();
    let values = context! {
        rows => rows.items, next => rows.next_cursor, sources => sources.items, state, source, key, is_untouched,
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
    let row: RowDetail = console.api.get(&visitor, &path.api(&["inbox", source, delivery])).await?;
    let mut history = Vec::new();
    if !row.key.is_empty() {
        let of_key = pairs([("key", row.key.as_str()), ("source", source), ("limit", HISTORY_ROWS)]);
        let mut rows: List<Row> = console.api.get(&visitor, &format!("{}?{of_key}", path.api(&["inbox"]))).await?;
        // In the order in which they happened, whenever they came.
        rows.items.sort_by(|a, b| (&a.timestamp, &a.received_at).cmp(&(&b.timestamp, &b.received_at)));
        for item in rows.items {
            let effects = match console
                .api
                .get::<RowDetail>(&visitor, &path.api(&["inbox", &item.source, &item.delivery_id]))
                .await
            {
                Ok(detail) => detail.effects,
                // It has aged meanwhile.
                Err(Failure::Refused(_)) => Vec::new(),
                Err(failure) => return Err(failure),
            };
            history.push(context! { is_this => item.delivery_id == row.delivery_id, row => item, effects });
        }
    }
    let tree = (row.body_encoding == "utf-8").then(|| tree::of(&row.body)).flatten();
    let values =
        context! { tree, history, actions => actions(&row.state).to_vec(), row, reason => query.text("reason") };
    Ok(Page::of(path.organization(), "inbox", "row.html", values))
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

/// Shows what would be done to many rows, or does it.
pub(super) async fn act_on_many(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    let action = form.text("action");
    let is_preview = match form.text("sure") {
        "" => true,
        "yes" => false,
        _ => return Err(Failure::Odd),
    };
    if !["replay", "release", "discard"].contains(&action) {
        return Err(Failure::Odd);
    }
    let mut body = json!({"state": form.text("state"), "preview": is_preview});
    for name in ["source", "key", "route"].into_iter().filter(|name| !form.text(name).is_empty()) {
        body[name] = form.text(name).into();
    }
    if action == "discard" {
        // A preview needs none yet.
        body["reason"] = if is_preview { "-" } else { form.text("reason") }.into();
    }
    let at = path.api(&["inbox", action]);
    let mut many = match console.api.call::<Many>(&visitor, Method::POST, &at, Some(&body)).await {
        Ok(many) => many,
        Err(failure) => {
            let filter = ["state", "source", "key", "route"].map(|name| (name, form.text(name)));
            return failure.back(&path.console(&["inbox"]), &filter);
        }
    };
    let mut changed = many.changed;
    for _ in 1..MAX_STEPS {
        let Some(cursor) = many.next_cursor.take().filter(|_| !is_preview) else { break };
        body["cursor"] = cursor.into();
        let step: Many = console.api.call(&visitor, Method::POST, &at, Some(&body)).await?;
        changed += step.changed;
        many.next_cursor = step.next_cursor;
        many.unchanged.extend(step.unchanged);
    }
    let values = context! {
        // Where nothing could be done, going on would do the same again.
        action, is_preview, changed, matched => many.matched, is_more => many.next_cursor.is_some() && changed > 0,
        rows => many.rows, unchanged => by_reason(many.unchanged),
        state => form.text("state"), source => form.text("source"), key => form.text("key"), reason => form.text("reason"),
    };
    Ok(Page::of(path.organization(), "inbox", "many.html", values).into())
}

/// What stays as it is, by why: how many, and the first of them.
fn by_reason(unchanged: Vec<Unchanged>) -> Vec<Value> {
    let mut reasons: BTreeMap<String, Vec<Unchanged>> = BTreeMap::new();
    for one in unchanged {
        reasons.entry(one.detail.clone()).or_default().push(one);
    }
    let of_reason = |(detail, mut rows): (String, Vec<Unchanged>)| {
        let n = rows.len();
        rows.truncate(FEW_UNCHANGED);
        context! { detail, n, rows }
    };
    reasons.into_iter().map(of_reason).collect()
}
