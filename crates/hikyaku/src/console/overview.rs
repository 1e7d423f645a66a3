//! The first page: whether everything is all right, in one sentence, and what is not.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State as Shared};
use futures_util::future::try_join_all;
use hikyaku_core::timestamp;
use jiff::{SignedDuration, Timestamp};
use minijinja::{Value, context};
use serde::de::DeserializeOwned;

use super::page::{Failure, Page};
use super::path::{InPath, query};
use super::session::Visitor;
use super::shapes::{Attempt, FoundDelivery, List, Reconciliation, Route, Row, Source, Webhook};
use super::{Console, activity};

/// After this a provider has tried again what was refused, if it was the provider (R8); some of it is left for its clock.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(50);
/// How far back failures are counted.
const RECENT: Duration = Duration::from_secs(24 * 60 * 60);
/// Webhooks whose logs the chart is made of, those that are off first.
const CHART_WEBHOOKS: usize = 20;
/// So many are counted exactly; more are "more than that many".
const MOST_COUNTED: &str = "200";

/// What the page is made of.
struct State {
    webhooks: List<Webhook>,
    delivered: List<FoundDelivery>,
    waiting: List<FoundDelivery>,
    exhausted: List<FoundDelivery>,
    sources: List<Source>,
    routes: List<Route>,
    reconciliations: List<Reconciliation>,
    received: List<Row>,
    dead: List<Row>,
    parked: List<Row>,
    quarantined: List<Row>,
}

/// The overview.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
) -> Result<Page, Failure> {
    let recent = console.clock.now().checked_sub(RECENT).map(timestamp::format).unwrap_or_default();
    let state = read(&console, &visitor, &path, &recent).await?;
    let mut charted: Vec<_> = state.webhooks.items.iter().collect();
    charted.sort_by_key(|webhook| webhook.active);
    let logs = charted.into_iter().take(CHART_WEBHOOKS).map(|webhook| {
        let log = format!("{}?limit={MOST_COUNTED}", path.api(&["webhooks", &webhook.id, "log"]));
        list::<Attempt>(&console, &visitor, log)
    });
    let activity = activity::of(console.clock.now(), &try_join_all(logs).await?, &state.delivered, &state.received);
    let concerns = concerns(&state, &path);
    let verdict = match (concerns.iter().any(|concern| concern.is_bad), concerns.is_empty()) {
        (true, _) => "bad",
        (false, false) => "warn",
        (false, true) => "good",
    };
    let State { webhooks, waiting, exhausted, sources, routes, reconciliations, received, .. } = state;
    let is_new = webhooks.items.is_empty() && received.items.is_empty();
    let off = webhooks.items.iter().filter(|webhook| !webhook.active).count();
    let values = context! {
        verdict, is_new, off, activity,
        concerns => concerns.into_iter().map(|concern| concern.value).collect::<Vec<_>>(),
        webhooks => webhooks.items.len(),
        waiting => counted(&waiting), exhausted => counted(&exhausted),
        effects => routes.items.iter().map(|route| route.waiting).sum::<u64>(),
        sources => sources.items.iter().map(|source| context! { refusals => refusals(source), ..Value::from(source) }).collect::<Vec<_>>(),
        server_delays => console.retry_delays.clone(), routes => routes.items, reconciliations => reconciliations.items,
        recent => query([("from", recent.as_str())]),
    };
    Ok(Page::of(path.organization(), "overview", "overview.html", values))
}

async fn read(console: &Console, visitor: &Visitor, path: &InPath, recent: &str) -> Result<State, Failure> {
    let deliveries = |state: &str| {
        let query =
            query([("state", state), ("from", if state == "waiting" { "" } else { recent }), ("limit", MOST_COUNTED)]);
        format!("{}?{}", path.api(&["deliveries"]), query.replace("from=&", ""))
    };
    let rows = |state: &str| {
        let filter = if state.is_empty() { String::new() } else { format!("state={state}&") };
        format!("{}?{filter}limit={MOST_COUNTED}", path.api(&["inbox"]))
    };
    let (
        webhooks,
        delivered,
        waiting,
        exhausted,
        sources,
        routes,
        reconciliations,
        received,
        dead,
        parked,
        quarantined,
    ) = tokio::try_join!(
        list(console, visitor, path.api(&["webhooks"])),
        list(console, visitor, deliveries("delivered")),
        list(console, visitor, deliveries("waiting")),
        list(console, visitor, deliveries("exhausted")),
        list(console, visitor, path.api(&["sources"])),
        list(console, visitor, path.api(&["routes"])),
        list(console, visitor, path.api(&["reconcile"])),
        list(console, visitor, rows("")),
        list(console, visitor, rows("dead")),
        list(console, visitor, rows("parked")),
        list(console, visitor, rows("quarantined")),
    )?;
    Ok(State {
        webhooks,
        delivered,
        waiting,
        exhausted,
        sources,
        routes,
        reconciliations,
        received,
        dead,
        parked,
        quarantined,
    })
}

async fn list<T: DeserializeOwned>(console: &Console, visitor: &Visitor, path: String) -> Result<List<T>, Failure> {
    console.api.get(visitor, &path).await
}

/// How many there are, as people read it.
fn counted<T>(list: &List<T>) -> String {
    let more = if list.next_cursor.is_some() { "+" } else { "" };
    format!("{}{more}", list.items.len())
}

/// How a source's signatures fail, where none has verified since the first that did not: `one` (which may be anybody's),
/// `some`, or `lasting` for longer than it takes the provider to try again (R8).
fn refusals(source: &Source) -> Option<&'static str> {
    let at = |text: &Option<String>| text.as_deref()?.parse::<Timestamp>().ok();
    let (first, last) = (at(&source.refused_since)?, at(&source.last_refused_at)?);
    Some(match last.duration_since(first) {
        lasts if lasts >= FIRST_RETRY => "lasting",
        lasts if lasts.is_zero() => "one",
        _ => "some",
    })
}

/// Something that is not as it should be.
struct Concern {
    /// Whether something is lost or will be, unless somebody acts.
    is_bad: bool,
    value: Value,
}

/// Everything that somebody should look at, the worst first.
fn concerns(state: &State, path: &InPath) -> Vec<Concern> {
    let mut found = Vec::new();
    let mut add = |is_bad: bool, key: &'static str, what: String, at: Option<&str>, href: String| {
        found.push(Concern { is_bad, value: context! { is_bad, key, what, at, href } });
    };
    for webhook in state.webhooks.items.iter().filter(|webhook| !webhook.active) {
        let is_bad = webhook.off_reason.as_deref() == Some("exhausted");
        let key = if is_bad { "concern.webhook_off" } else { "concern.webhook_paused" };
        add(is_bad, key, webhook.url.clone(), webhook.off_since.as_deref(), path.console(&["webhooks", &webhook.id]));
    }
    for source in state.sources.items.iter().filter(|source| refusals(source).is_some_and(|kind| kind != "one")) {
        let (key, at) = match &source.switched_off_at {
            Some(at) => ("concern.source_ends", at),
            None => ("concern.source_refused", source.refused_since.as_ref().unwrap_or(&source.name)),
        };
        let is_bad = refusals(source) == Some("lasting");
        add(is_bad, key, source.name.clone(), Some(at), format!("{}#sources", path.console(&[])));
    }
    for (key, state, rows) in [
        ("concern.rows_dead", "dead", &state.dead),
        ("concern.rows_parked", "parked", &state.parked),
        ("concern.rows_quarantined", "quarantined", &state.quarantined),
    ] {
        if !rows.items.is_empty() {
            add(state == "dead", key, counted(rows), None, format!("{}?state={state}", path.console(&["inbox"])));
        }
    }
    for route in state.routes.items.iter().filter(|route| route.failing > 0) {
        let at = route.last_error.as_ref().map(|error| error.at.as_str());
        add(false, "concern.route_failing", route.name.clone(), at, format!("{}#routes", path.console(&[])));
    }
    for of in &state.reconciliations.items {
        let href = path.console(&["reconcile"]);
        if let Some(since) = &of.not_active_since {
            add(true, "concern.provider_off", of.source.clone(), Some(since), href.clone());
        }
        let Some(cycle) = &of.cycle else { continue };
        if !cycle.problem.is_empty() {
            add(true, "concern.reconcile_stopped", of.name.clone(), None, href);
        } else if cycle.missing > cycle.repaired {
            add(true, "concern.reconcile_gap", (cycle.missing - cycle.repaired).to_string(), None, href);
        }
    }
    found.sort_by_key(|concern| !concern.is_bad);
    found
}
