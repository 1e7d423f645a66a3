//! The console at `/console`: what happened, seen at a glance, for people. Every page is made here, on the server, of
//! answers of the public API, which is called in this process with the token of whoever has signed in: what the console
//! can do, a program can do with the same token. It knows no store, no sender and no inbox.
//!
//! A handler gives a [`Page`] or a [`Failure`]; what all pages have in common is added around it (`frame`).

mod activity;
mod api;
mod assets;
mod deliveries;
mod event;
mod form;
mod frame;
mod home;
mod inbox;
mod many;
mod overview;
mod page;
mod path;
mod reconcile;
mod said;
mod session;
mod shapes;
mod sparkline;
mod tail;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod tree;
mod webhook;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use tokio::sync::Mutex;

use api::Api;
use page::{Failure, Page};
use tail::Watchers;

use crate::clock::SharedClock;

/// What the handlers work with.
struct Console {
    api: Api,
    clock: SharedClock,
    /// The server's pauses between attempts, in seconds: those of webhooks that have none of their own (R8).
    retry_delays: Vec<f64>,
    /// Who watches what happens.
    watchers: Arc<Watchers>,
    /// Held while a webhook is registered, so that of two forms that come at once the second sees what the first has made.
    registering: Mutex<()>,
}

/// The console's routes, to be merged into those of the API that it calls. `retry_delays` are the server's pauses between
/// attempts, by which it shows when they are due.
pub fn router(api: Router, clock: SharedClock, retry_delays: &[Duration]) -> Router {
    let console = Arc::new(Console {
        api: Api::new(api),
        clock,
        retry_delays: retry_delays.iter().map(Duration::as_secs_f64).collect(),
        watchers: Arc::default(),
        registering: Mutex::default(),
    });
    Router::new()
        .route("/console", get(home::start))
        .route("/console/", get(home::start))
        .route("/console/sign-in", get(session::ask).post(session::sign_in))
        .route("/console/sign-out", post(session::sign_out))
        .route("/console/language", post(session::set_language))
        .route("/console/organizations", get(home::organizations).post(home::choose))
        .route("/console/o/{organization}", get(overview::show))
        .route("/console/o/{organization}/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/console/o/{organization}/webhooks/{webhook}", get(webhook::show))
        .route("/console/o/{organization}/webhooks/{webhook}/switch", post(webhook::switch))
        .route("/console/o/{organization}/webhooks/{webhook}/test", post(webhook::test))
        .route("/console/o/{organization}/webhooks/{webhook}/recover", post(webhook::recover))
        .route("/console/o/{organization}/webhooks/{webhook}/recoveries/{recovery}", get(webhook::recovery))
        .route("/console/o/{organization}/webhooks/{webhook}/secret", get(webhook::secret).post(webhook::rotate))
        .route("/console/o/{organization}/deliveries", get(deliveries::search))
        .route("/console/o/{organization}/deliveries/{event}/{webhook}/resend", post(event::resend))
        .route("/console/o/{organization}/events/{event}", get(event::show))
        .route("/console/o/{organization}/inbox", get(inbox::list).post(many::act))
        .route("/console/o/{organization}/inbox/{source}/{delivery}", get(inbox::show).post(inbox::act))
        .route("/console/o/{organization}/reconcile", get(reconcile::show))
        .route("/console/o/{organization}/reconcile/{reconcile}/run", post(reconcile::run))
        .route("/console/o/{organization}/tail", get(tail::show))
        .route("/console/o/{organization}/tail/stream", get(tail::stream))
        .route("/console/{*rest}", any(nothing))
        .method_not_allowed_fallback(nothing)
        .layer(from_fn_with_state(Arc::clone(&console), frame::around))
        // Files are the same for everybody, and come as they are.
        .route("/console/assets/{file}", get(assets::serve))
        .with_state(console)
}

async fn nothing() -> Result<Page, Failure> {
    Err(Failure::Nothing)
}
