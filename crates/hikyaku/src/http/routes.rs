//! `…/routes` and `…/destinations`: where received deliveries go, and how that goes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State as Shared;
use hikyaku_core::timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::State;
use super::page::Page;
use super::problem::Problem;
use super::request::InPath;
use crate::inbox::destination::Shown;
use crate::inbox::{LastError, RouteStatus};
use crate::store::RouteBacklog;

/// List the routes.
///
/// As they run: what is configured, what waits, and the last failure. Where so much waits that counting it takes long, the counts
/// may be some seconds old.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/routes",
    operation_id = "listRoutes",
    tag = "inbox",
    responses((status = 200, description = "All of them, by name.", body = Page<RouteItem>)),
)]
pub(super) async fn list_routes(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
) -> Result<Json<Page<RouteItem>>, Problem> {
    let organization = path.organization()?;
    let backlog = state.backlog.read(state.store.as_ref(), state.clock.as_ref()).await?;
    let waiting = |route: &str| backlog.routes.get(&(organization.clone(), route.to_owned())).copied();
    let now = state.clock.schedule();
    let item = |status: RouteStatus| {
        let RouteBacklog { effects, failing, oldest } = waiting(&status.route.name).unwrap_or_default();
        let age = oldest.map(|oldest| now.duration_since(oldest).as_secs().max(0));
        RouteItem::of(status, effects, failing, age)
    };
    Ok(Json(Page::new(state.inbox.routes(&organization), u32::MAX, |_| String::new(), item)))
}

/// List the destinations.
///
/// Those that the organization's routes lead to, as they are configured; secrets are hidden.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/destinations",
    operation_id = "listDestinations",
    tag = "inbox",
    responses((status = 200, description = "All of them, by name.", body = Page<DestinationItem>)),
)]
pub(super) async fn list_destinations(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
) -> Result<Json<Page<DestinationItem>>, Problem> {
    let routes = state.inbox.routes(&path.organization()?);
    let leads_to = |name: &str| {
        let to = routes.iter().filter(|status| status.route.destination == name);
        to.map(|status| status.route.name.clone()).collect::<Vec<_>>()
    };
    let reached = state.destinations.iter().map(|shown| DestinationItem::of(shown, leads_to(&shown.name)));
    let mut items: Vec<_> = reached.filter(|item| !item.routes.is_empty()).collect();
    items.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(Page::new(items, u32::MAX, |_| String::new(), |item| item)))
}

/// A route.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Route)]
pub(super) struct RouteItem {
    /// Its name.
    name: String,
    /// Where its deliveries come in.
    sources: Vec<String>,
    /// The event types that it takes.
    events: Vec<String>,
    /// Where they go.
    destination: String,
    /// What order means to it: `every`, `latest` or `fetch`.
    order: &'static str,
    /// What it does at most once: `delivery` or `key`.
    once: &'static str,
    /// Effects that wait, those under way included.
    waiting: u64,
    /// Those of them that have failed before.
    failing: u64,
    /// Keys that are worked on now.
    under_way: u32,
    /// How long ago the oldest row was received that waits, in seconds; `null` where none does.
    #[schema(required)]
    oldest_seconds: Option<i64>,
    /// The last failure since the start of the server; `null` where there was none.
    #[schema(required)]
    last_error: Option<LastErrorItem>,
}

/// A failure of an effect.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RouteError)]
struct LastErrorItem {
    /// When.
    #[schema(format = DateTime)]
    at: String,
    /// Of which delivery.
    delivery_id: String,
    /// For people.
    error: String,
}

impl RouteItem {
    fn of(status: RouteStatus, waiting: u64, failing: u64, oldest_seconds: Option<i64>) -> Self {
        let RouteStatus { route, under_way, last_error } = status;
        let last_error = last_error.map(|LastError { at, delivery, error }| LastErrorItem {
            at: timestamp::format(at),
            delivery_id: delivery,
            error,
        });
        Self {
            name: route.name,
            sources: route.sources,
            events: route.events.into_iter().map(String::from).collect(),
            destination: route.destination,
            order: route.order.as_str(),
            once: route.once.as_str(),
            waiting,
            failing,
            under_way,
            oldest_seconds,
            last_error,
        }
    }
}

/// A destination.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Destination)]
pub(super) struct DestinationItem {
    /// Its name.
    name: String,
    /// What it is.
    kind: String,
    /// The organization's routes that lead to it.
    routes: Vec<String>,
    /// As configured, but for the secrets.
    #[schema(value_type = Object)]
    settings: Value,
}

impl DestinationItem {
    fn of(shown: &Shown, routes: Vec<String>) -> Self {
        let Shown { name, kind, settings } = shown.clone();
        Self { name, kind, routes, settings: Value::Object(settings) }
    }
}
