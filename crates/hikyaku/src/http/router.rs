//! All routes: the table of contents of this side.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};

use super::problem::{Kind, Problem, method_not_allowed, no_such_path};
use super::{
    State, access, caller, deliveries, docs, events, explain, framing, health, inbox, interventions, log, metrics,
    openapi, outages, receive, reconcile, recoveries, rotate, routes, sources, tokens, trial, webhooks,
};
use crate::role::Role;

/// Routes under one guard, and their paths, so that a test can walk them all.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) paths: Vec<&'static str>,
    router: Router<Arc<State>>,
}

impl Routes {
    fn route(mut self, path: &'static str, methods: MethodRouter<Arc<State>>) -> Self {
        self.paths.push(path);
        Self { router: self.router.route(path, methods), ..self }
    }
}

/// What belongs to one organization: for its tokens and admin tokens.
pub(super) fn organization_routes() -> Routes {
    Routes::default()
        .route("/v1/organizations/{organization}/webhooks", get(webhooks::list).post(webhooks::create))
        .route(
            "/v1/organizations/{organization}/webhooks/{webhook}",
            get(webhooks::read).patch(webhooks::change).delete(webhooks::remove),
        )
        .route("/v1/organizations/{organization}/webhooks/{webhook}/rotate-secret", post(rotate::rotate_secret))
        .route("/v1/organizations/{organization}/webhooks/{webhook}/log", get(log::list))
        .route("/v1/organizations/{organization}/webhooks/{webhook}/test", post(trial::test))
        .route("/v1/organizations/{organization}/webhooks/{webhook}/missed", get(recoveries::missed))
        .route("/v1/organizations/{organization}/webhooks/{webhook}/recover", post(recoveries::recover))
        .route(
            "/v1/organizations/{organization}/webhooks/{webhook}/recoveries/{recovery}",
            get(recoveries::read).delete(recoveries::cancel),
        )
        .route("/v1/organizations/{organization}/deliveries/{event}/{webhook}/resend", post(deliveries::resend))
        .route("/v1/organizations/{organization}/events", post(events::publish))
        .route(
            "/v1/organizations/{organization}/events/batch",
            post(events::publish_batch).get(events::read_named_batch),
        )
        .route("/v1/organizations/{organization}/events/{event}", get(events::read))
        .route("/v1/organizations/{organization}/deliveries", get(deliveries::list))
        .route("/v1/organizations/{organization}/events/{event}/explain", get(explain::explain))
        .route("/v1/organizations/{organization}/inbox", get(inbox::list))
        .route("/v1/organizations/{organization}/inbox/{source}/{delivery}", get(inbox::read))
        .route("/v1/organizations/{organization}/inbox/{source}/{delivery}/body", get(inbox::body))
        .route("/v1/organizations/{organization}/inbox/{source}/{delivery}/replay", post(interventions::replay))
        .route("/v1/organizations/{organization}/inbox/{source}/{delivery}/release", post(interventions::release))
        .route("/v1/organizations/{organization}/inbox/{source}/{delivery}/discard", post(interventions::discard))
        .route("/v1/organizations/{organization}/inbox/replay", post(interventions::replay_many))
        .route("/v1/organizations/{organization}/inbox/release", post(interventions::release_many))
        .route("/v1/organizations/{organization}/inbox/discard", post(interventions::discard_many))
        .route("/v1/organizations/{organization}/sources", get(sources::list))
        .route("/v1/organizations/{organization}/routes", get(routes::list_routes))
        .route("/v1/organizations/{organization}/destinations", get(routes::list_destinations))
        .route("/v1/organizations/{organization}/reconcile", get(reconcile::list))
        .route("/v1/organizations/{organization}/reconcile/{reconcile}/cycles", get(reconcile::cycles))
        .route("/v1/organizations/{organization}/reconcile/{reconcile}/run", post(reconcile::run))
        .route("/v1/organizations/{organization}/tokens", get(tokens::list_own).post(tokens::create_own))
        .route("/v1/organizations/{organization}/tokens/{token}", delete(tokens::revoke_own))
}

/// What belongs to no organization: for admin tokens only.
pub(super) fn admin_routes() -> Routes {
    Routes::default()
        .route("/v1/tokens", get(tokens::list_all).post(tokens::create_any))
        .route("/v1/tokens/{token}", delete(tokens::revoke_any))
        .route("/v1/outages", get(outages::list))
}

/// What anybody with a token may ask about it.
pub(super) fn caller_routes() -> Routes {
    Routes::default().route("/v1/caller", get(caller::read))
}

/// What an operator's tools look at, with an admin token.
pub(super) fn metrics_routes() -> Routes {
    Routes::default().route("/metrics", get(health::scrape))
}

/// What providers send to.
pub(super) fn inbox_routes() -> Routes {
    Routes::default().route("/in/{source}", post(receive::receive))
}

/// What an operator's tools look at, with no token.
pub(super) fn health_routes() -> Routes {
    Routes::default().route("/healthz", get(health::alive)).route("/readyz", get(health::ready))
}

/// The API's description.
pub(super) fn docs_routes() -> Routes {
    Routes::default()
        .route("/openapi.json", get(openapi::describe))
        .route("/docs", get(docs::page))
        .route("/docs/page.css", get(docs::style))
        .route("/docs/rapidoc-min.js", get(docs::script))
}

/// The HTTP side of a node, by its roles, to be served on any listener.
pub fn router(state: State) -> Router {
    metrics::describe();
    let state = Arc::new(state);
    let to_organization = from_fn_with_state(Arc::clone(&state), access::to_organization);
    let to_everything = from_fn_with_state(Arc::clone(&state), access::to_everything);
    let mut router = health_routes().router.merge(metrics_routes().router.route_layer(to_everything.clone()));
    if state.roles.has(Role::Inbox) {
        router = router.merge(inbox_routes().router);
    }
    if state.roles.has(Role::Api) {
        router = router
            .merge(docs_routes().router)
            .merge(caller_routes().router)
            .merge(organization_routes().router.route_layer(to_organization))
            .merge(admin_routes().router.route_layer(to_everything));
    }
    guard(router.fallback(no_such_path).method_not_allowed_fallback(method_not_allowed).with_state(state))
}

/// What holds for every route that is served, the console's included: its framing is checked, it is counted, and a panic is
/// answered.
pub fn guard(router: Router) -> Router {
    router.layer(from_fn(guarded))
}

/// One layer for all of it, because every layer costs every request.
async fn guarded(request: Request, next: Next) -> Response {
    let serve = |request| answer_panics(next.run(request));
    framing::check(request, |request| metrics::count(request, serve)).await
}

/// Turns a defect of ours into a 500, so that one request cannot take its connection's other requests with it.
async fn answer_panics(answer: impl Future<Output = Response>) -> Response {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        // The future is not polled again after a panic, and what it shared stays behind locks that say so.
        match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(of_panic(panic.as_ref())),
        }
    })
    .await
}

fn of_panic(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("of unknown kind"), "a request handler panicked");
    let detail = "This is a defect of the server; the operator finds the reason in the log. The change may be stored.";
    Problem::new(Kind::Internal, detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_problem_document_and_the_connection_lives_on() {
        async fn broken() -> Response {
            panic!("on purpose")
        }
        let app = guard(Router::new().route("/", get(broken)));
        let base = crate::http::tests::serve(app).await;
        let client = reqwest::Client::new();
        for _ in 0..2 {
            let answer = client.get(&base).send().await.unwrap();
            assert_eq!(answer.status(), 500);
            assert_eq!(answer.headers()["content-type"], "application/problem+json");
        }
    }
}
