//! The provider's HTTP API. Login and receipts by month are as its public documentation has them; periods, orders,
//! webhook administration and the delivery log are assumed in the same style. Errors are `{"error", "status"}`.
//!
//! Beside it, `/sandbox` is for whoever runs the sandbox: no provider has that.

mod lists;
mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, body::Bytes};
use hikyaku_core::timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Sandbox;
use super::engine::Trouble;

/// Largest request body, in bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a login lasts.
const LOGIN_LASTS: Duration = Duration::from_secs(24 * 3600);
/// Most items on a page.
pub(super) const MAX_ITEMS_PER_PAGE: usize = 1000;

/// An error as the provider writes it.
pub(super) struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1, "status": self.0.as_u16()}))).into_response()
    }
}

pub(super) fn refuse<T>(status: StatusCode, error: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(status, error.into()))
}

type Shared = State<Arc<Sandbox>>;
type Answer = Result<Json<Value>, Refusal>;

/// All routes.
pub(super) fn router(sandbox: Arc<Sandbox>) -> Router {
    let guarded = Router::new()
        .route("/organizations", get(lists::organizations))
        .route("/{organization}/terminals", get(lists::terminals))
        .route("/{organization}/receipts", post(lists::receipts))
        .route("/{organization}/transactions", get(lists::transactions))
        .route("/{organization}/orders", get(lists::orders))
        .route("/{organization}/orders/{order}", get(lists::order))
        .route("/{organization}/webhooks", post(webhooks::list))
        .route("/{organization}/webhook/create", post(webhooks::create))
        .route("/{organization}/webhook/update", post(webhooks::update))
        .route("/{organization}/webhook/{webhook}", get(webhooks::read))
        .route("/{organization}/webhook/{webhook}/log", get(webhooks::log))
        .route_layer(from_fn_with_state(Arc::clone(&sandbox), guard));
    Router::new()
        .route("/account/login", post(login))
        .route("/sandbox", get(look))
        .route("/sandbox/restart", post(restart))
        .merge(guarded)
        .fallback(async |uri: Uri| Refusal(StatusCode::NOT_FOUND, format!("there is nothing at {:.200}", uri.path())))
        .method_not_allowed_fallback(async || {
            Refusal(StatusCode::METHOD_NOT_ALLOWED, "the method is not allowed here".to_owned())
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(sandbox)
}

/// Lets a call pass that has a login, is about the shops' organization, and comes when the API is well.
async fn guard(State(sandbox): Shared, headers: HeaderMap, uri: Uri, request: Request, next: Next) -> Response {
    let now = sandbox.now();
    sandbox.count_call();
    match sandbox.engine().trouble(now) {
        Some(Trouble::Errors) => {
            return Refusal(StatusCode::SERVICE_UNAVAILABLE, "try again later".to_owned()).into_response();
        }
        Some(Trouble::Limit(until)) => {
            let refusal = Refusal(StatusCode::TOO_MANY_REQUESTS, "too many calls".to_owned());
            return ([(RETRY_AFTER, sandbox.seconds_until(until))], refusal).into_response();
        }
        None => {}
    }
    let token = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if !token.is_some_and(|token| sandbox.is_logged_in(token, now)) {
        return Refusal(StatusCode::UNAUTHORIZED, "log in at POST /account/login".to_owned()).into_response();
    }
    let organization = uri.path().split('/').nth(1).unwrap_or_default();
    if organization != "organizations" && organization != sandbox.engine().world.settings().organization {
        return Refusal(StatusCode::NOT_FOUND, format!("there is no organization {organization:.80?}")).into_response();
    }
    next.run(request).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Login {
    user_name: String,
    password: String,
}

async fn login(State(sandbox): Shared, body: Bytes) -> Answer {
    let login: Login = parse(&body)?;
    let now = sandbox.now();
    match sandbox.log_in(&login.user_name, &login.password, now.checked_add(LOGIN_LASTS).unwrap_or(now)) {
        Some((token, expire)) => Ok(Json(json!({"token": token, "expire": timestamp::format(expire)}))),
        None => refuse(StatusCode::UNAUTHORIZED, "the user name or the password is wrong"),
    }
}

async fn look(State(sandbox): Shared) -> Json<Value> {
    let now = sandbox.now();
    let calls = sandbox.calls();
    let engine = sandbox.engine();
    let webhooks: Vec<_> =
        engine.provider.webhooks().map(|webhook| json!({"id": webhook.id, "active": webhook.active})).collect();
    Json(json!({
        "now": timestamp::format(now), "timeScale": sandbox.time_scale(), "apiCalls": calls,
        "organization": engine.world.settings().organization, "retriesWaiting": engine.provider.waiting(), "webhooks": webhooks,
    }))
}

async fn restart(State(sandbox): Shared) -> Json<Value> {
    Json(json!({"retriesLost": sandbox.restart()}))
}

/// Reads a request's JSON.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .or_else(|error| refuse(StatusCode::BAD_REQUEST, format!("the body is not what is expected here: {error}")))
}

/// The second part of a path.
type Second = Path<(String, String)>;

/// A number of seconds as a header.
pub(super) fn seconds(number: u64) -> HeaderValue {
    HeaderValue::from(number)
}
