//! The description of the API (OpenAPI 3.1), made from the code: every handler says in its `#[utoipa::path]` what it
//! takes and answers, and every shape is described by its own type. What follows from the kind of a request is added
//! in `complete.rs`.
//!
//! A new endpoint is one line in [`Description`]. The tests say what is missing, and `docs/openapi.json` is the whole
//! as it stands.

mod complete;
pub(super) mod requests;
pub(super) mod settings;
#[cfg(test)]
mod tests;
pub(super) mod words;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use utoipa::OpenApi;

use self::complete::Whole;
use super::problem::Document;
use super::{
    caller, deliveries, docs, events, explain, health, inbox, interventions, log, outages, receive, reconcile,
    recoveries, rotate, routes, sources, tokens, trial, webhooks,
};

/// Everything that the description lists.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Hikyaku",
        description = "Sends and receives webhooks so that nothing is lost. After a 2xx, what was asked for is on disk. \
                       Names are camelCase, times RFC 3339 in UTC with milliseconds, and every error is a problem \
                       document (RFC 9457) whose `type` programs may compare. Fields may be added to answers; in \
                       requests, what is not known is refused. A request that is no HTTP/1.1, or whose line and headers \
                       are larger than 32 KiB (431), is answered without a document.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "this server")),
    tags(
        (name = "webhooks", description = "Endpoints that get events."),
        (name = "events", description = "What is published, and what became of it."),
        (name = "deliveries", description = "One event for one webhook."),
        (name = "recoveries", description = "What a webhook missed, and getting it after all."),
        (name = "inbox", description = "What was received, and what became of it."),
        (name = "tokens", description = "What opens this API."),
        (name = "operation", description = "Health, metrics, and this description."),
    ),
    paths(
        webhooks::create,
        webhooks::list,
        webhooks::read,
        webhooks::change,
        webhooks::remove,
        log::list,
        rotate::rotate_secret,
        trial::test,
        recoveries::missed,
        recoveries::recover,
        recoveries::read,
        recoveries::cancel,
        events::publish,
        events::publish_batch,
        events::read,
        events::read_named_batch,
        explain::explain,
        deliveries::list,
        deliveries::resend,
        receive::receive,
        inbox::list,
        inbox::read,
        inbox::body,
        interventions::replay,
        interventions::release,
        interventions::discard,
        interventions::replay_many,
        interventions::release_many,
        interventions::discard_many,
        sources::list,
        routes::list_routes,
        routes::list_destinations,
        outages::list,
        reconcile::list,
        reconcile::cycles,
        reconcile::run,
        caller::read,
        tokens::list_own,
        tokens::create_own,
        tokens::revoke_own,
        tokens::list_all,
        tokens::create_any,
        tokens::revoke_any,
        health::alive,
        health::ready,
        health::scrape,
        describe,
        docs::page,
        docs::style,
        docs::script,
    ),
    components(schemas(Document)),
    modifiers(&Whole),
)]
struct Description;

/// The description as it is served: one JSON document.
static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let mut text = Description::openapi().to_pretty_json().expect("names, texts and numbers can be written as JSON");
    text.push('\n');
    text
});

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "readDescription",
    tag = "operation",
    responses((status = 200, description = "OpenAPI 3.1", body = Object)),
    security(()),
)]
pub(super) async fn describe() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}
