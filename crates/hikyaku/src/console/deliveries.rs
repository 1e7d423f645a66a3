//! Finding a thing by what people know of it: an order's number, an event's id, what went wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use minijinja::context;

use super::Console;
use super::page::{Failure, Page};
use super::path::{InPath, InQuery, query as pairs};
use super::session::Visitor;
use super::shapes::{FoundDelivery, List, Row, Source, Webhook};

/// Rows on a page.
const PAGE_ROWS: &str = "50";
/// Received rows beside what was sent.
const FEW_ROWS: &str = "20";

/// Most bytes of what is looked for: more than any id or key has.
const MAX_FIND_BYTES: usize = 4096;
/// Most sources that are asked for a delivery's id.
const MAX_SOURCES: usize = 50;

/// What was sent and what was received about something.
pub(super) async fn search(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    let find = query.text("find");
    let webhooks = path.api(&["webhooks"]);
    let webhooks = console.api.get::<List<Webhook>>(&visitor, &webhooks);
    let (sent, rows, webhooks) =
        tokio::try_join!(sent(&console, &visitor, &path, &query), received(&console, &visitor, &path, find), webhooks)?;
    let urls: BTreeMap<_, _> = webhooks.items.into_iter().map(|webhook| (webhook.id, webhook.url)).collect();
    let is_odd = sent.is_none();
    let found = sent.unwrap_or_else(List::empty);
    let is_nowhere = !find.is_empty() && found.items.is_empty() && rows.as_ref().is_none_or(Vec::is_empty);
    let values = context! {
        find, urls, found => found.items, next => found.next_cursor, until => found.searched_to,
        rows, is_odd, is_nowhere,
        state => query.text("state"), type => query.text("type"), webhook => query.text("webhook"),
        filter => query.only(&["find", "state", "type", "webhook", "httpStatus", "error", "from"]),
    };
    Ok(Page::of(path.organization(), "deliveries", "deliveries.html", values))
}

/// What was sent: of events with this key, and the event with this id. `None` where a filter has a value that cannot be.
async fn sent(
    console: &Console,
    visitor: &Visitor,
    path: &InPath,
    query: &InQuery,
) -> Result<Option<List<FoundDelivery>>, Failure> {
    let find = query.text("find");
    if find.len() > MAX_FIND_BYTES {
        return Ok(Some(List::empty()));
    }
    let filter = query.only(&["state", "webhook", "httpStatus", "error", "from", "cursor"]);
    // One word is meant as all types that begin with it.
    let event_type = match query.text("type") {
        word if word.is_empty() || word == "*" || word.contains('.') => word.to_owned(),
        word => format!("{word}.*"),
    };
    let of = |name: &'static str| {
        let given = [("type", event_type.as_str()), (name, find)].into_iter().filter(|(_, value)| !value.is_empty());
        let at = format!("{}?limit={PAGE_ROWS}&{filter}&{}", path.api(&["deliveries"]), pairs(given));
        async move { possible(console.api.get::<List<FoundDelivery>>(visitor, &at).await) }
    };
    let by_id = async { if find.is_empty() { Ok(None) } else { of("event").await } };
    let (mut found, by_id) = tokio::try_join!(of("key"), by_id)?;
    for item in by_id.into_iter().flat_map(|list| list.items) {
        let Some(found) = &mut found else { break };
        let is_there =
            |known: &FoundDelivery| (&known.delivery_id, &known.webhook_id) == (&item.delivery_id, &item.webhook_id);
        if !found.items.iter().any(is_there) {
            found.items.push(item);
        }
    }
    Ok(found)
}

/// What was received: with this key, and the delivery with this id. `None` where nothing is looked for.
async fn received(
    console: &Console,
    visitor: &Visitor,
    path: &InPath,
    find: &str,
) -> Result<Option<Vec<Row>>, Failure> {
    if find.is_empty() || find.len() > MAX_FIND_BYTES {
        return Ok(None);
    }
    let by_key = format!("{}?limit={FEW_ROWS}&{}", path.api(&["inbox"]), pairs([("key", find)]));
    let sources = path.api(&["sources"]);
    let (by_key, sources) = tokio::try_join!(
        console.api.get::<List<Row>>(visitor, &by_key),
        console.api.get::<List<Source>>(visitor, &sources),
    )?;
    let mut rows = by_key.items;
    // An id is one provider's, through whichever of its sources it came.
    let providers: BTreeMap<_, _> =
        sources.items.into_iter().map(|source| (source.provider, source.name)).take(MAX_SOURCES).collect();
    for source in providers.values() {
        let at = path.api(&["inbox", source, find]);
        let row = match console.api.get::<Row>(visitor, &at).await {
            Err(Failure::Refused(problem)) if matches!(problem.status, 400 | 404) => continue,
            row => row?,
        };
        let is_there = |known: &Row| (&known.source, &known.delivery_id) == (&row.source, &row.delivery_id);
        if !rows.iter().any(is_there) {
            rows.insert(0, row);
        }
    }
    Ok(Some(rows))
}

/// What cannot be is nothing's: `None`.
fn possible<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Refused(problem)) if problem.status == 400 => Ok(None),
        answer => answer.map(Some),
    }
}
