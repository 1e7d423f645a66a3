//! Asking a provider's API: login, bearer token, deadline and bounds, for whoever reads states or lists there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::json;
use hikyaku_core::retry::parse_retry_after;
use hikyaku_core::signature::Secret;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use crate::clock::SharedClock;
use crate::outbound::{Exchange, Request, Response};

/// Largest answer of a login that is read, in bytes.
const MAX_LOGIN_BYTES: usize = 64 * 1024;

/// What opens a provider's API.
#[derive(Debug, Clone)]
pub enum Credential {
    /// A bearer token as it is.
    Token(Secret),
    /// A login that gives a bearer token: `POST` of `{"userName","password"}`, answered `{"token"}`.
    Login {
        /// Where to log in.
        url: Url,
        /// As whom.
        user: String,
        /// With what.
        password: Secret,
    },
}

/// A call of the API.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Where.
    pub url: Url,
    /// JSON; nothing is sent where it is empty.
    pub body: Bytes,
}

impl Call {
    /// A reading.
    pub fn get(url: Url) -> Self {
        Self { method: Method::GET, url, body: Bytes::new() }
    }
}

/// Why a call brought nothing; a later one may bring more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people.
    pub error: String,
    /// Not before this long has passed, where the provider says so.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without a time.
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), retry_after: None }
    }
}

/// A provider's API.
pub struct ProviderApi {
    credential: Option<Credential>,
    timeout: Duration,
    max_body_bytes: usize,
    exchange: Arc<dyn Exchange>,
    clock: SharedClock,
    /// What the last login gave.
    token: Mutex<Option<Secret>>,
    calls: AtomicU32,
}

impl ProviderApi {
    /// `timeout` bounds one call, a login included; `max_body_bytes` is the largest answer that is taken. `exchange` refuses
    /// no address that an operator may have chosen, but those of S7.
    pub fn new(
        credential: Option<Credential>,
        timeout: Duration,
        max_body_bytes: usize,
        exchange: Arc<dyn Exchange>,
        clock: SharedClock,
    ) -> Self {
        let (token, calls) = Default::default();
        Self { credential, timeout, max_body_bytes, exchange, clock, token, calls }
    }

    /// Makes a call, and where the token of an earlier login is no longer taken, logs in and makes it once more. What
    /// comes is any answer at all, whatever its status.
    ///
    /// # Errors
    /// None came in time.
    pub async fn call(&self, call: &Call) -> Result<Response, Failure> {
        match timeout(self.timeout, self.ask(call)).await {
            Ok(Ok(Response { outcome: Outcome::Failed(_), error, .. })) => {
                Err(Failure::new(format!("the provider's API could not be read: {error}")))
            }
            Ok(answered) => answered,
            Err(_) => Err(Failure::new(format!("the provider's API did not answer within {:?}", self.timeout))),
        }
    }

    /// Makes a call that is to succeed, and gives the answer's body.
    ///
    /// # Errors
    /// It did not, or none came in time.
    pub async fn read(&self, call: &Call) -> Result<Response, Failure> {
        let response = self.call(call).await?;
        match response.outcome.http_status() {
            200..=299 => Ok(response),
            status => Err(self.refused(&format!("API at {}", place(&call.url)), status, &response)),
        }
    }

    /// Calls so far, logins excepted: what a provider's quota counts.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How long the provider asks us to wait; only an overloaded one may ask.
    pub fn retry_after(&self, status: u16, response: &Response) -> Option<Duration> {
        let value = response.headers.get(RETRY_AFTER).filter(|_| matches!(status, 429 | 503))?;
        parse_retry_after(value.to_str().ok()?, self.clock.now())
    }

    fn refused(&self, what: &str, status: u16, response: &Response) -> Failure {
        let error = format!("the provider's {what} answered {status}");
        Failure { error, retry_after: self.retry_after(status, response) }
    }

    async fn ask(&self, call: &Call) -> Result<Response, Failure> {
        let token = self.token(None).await?;
        let response = self.send(call, token.as_ref()).await;
        let can_log_in = matches!(self.credential, Some(Credential::Login { .. }));
        if response.outcome != Outcome::Answered(401) || !can_log_in {
            return Ok(response);
        }
        let fresh = self.token(token.as_ref()).await?;
        Ok(self.send(call, fresh.as_ref()).await)
    }

    /// The token to present, another one than `refused`. Who comes while somebody logs in waits for what that brings.
    async fn token(&self, refused: Option<&Secret>) -> Result<Option<Secret>, Failure> {
        let (url, user, password) = match &self.credential {
            None => return Ok(None),
            Some(Credential::Token(token)) => return Ok(Some(token.clone())),
            Some(Credential::Login { url, user, password }) => (url, user, password),
        };
        let mut held = self.token.lock().await;
        let is_refused = |token: &Secret| refused.is_some_and(|refused| refused.reveal() == token.reveal());
        if held.as_ref().is_none_or(is_refused) {
            *held = None;
            *held = Some(self.log_in(url, user, password).await?);
        }
        Ok(held.clone())
    }

    async fn log_in(&self, url: &Url, user: &str, password: &Secret) -> Result<Secret, Failure> {
        let body = json!({"userName": user, "password": password.reveal()}).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request { url: url.clone(), headers, body: body.into(), timeout: self.timeout };
        let response = self.exchange.exchange(Method::POST, request, MAX_LOGIN_BYTES).await;
        let token = || json::pointer(&response.body, "/token").and_then(json::text_or_number);
        match response.outcome {
            Outcome::Answered(200..=299) => match token().filter(|token| bearer(token).is_some()) {
                Some(token) => Ok(Secret::new(token)),
                None => Err(Failure::new("the provider's login answered without a token")),
            },
            Outcome::Answered(status) => {
                let Failure { error, retry_after } = self.refused("login", status, &response);
                Err(Failure { error: format!("{error}; look at user and password"), retry_after })
            }
            Outcome::Failed(_) => {
                Err(Failure::new(format!("the provider's login could not be reached: {}", response.error)))
            }
        }
    }

    async fn send(&self, call: &Call, token: Option<&Secret>) -> Response {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if !call.body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(value) = token.and_then(|token| bearer(token.reveal())) {
            headers.insert(AUTHORIZATION, value);
        }
        let request = Request { url: call.url.clone(), headers, body: call.body.clone(), timeout: self.timeout };
        self.exchange.exchange(call.method.clone(), request, self.max_body_bytes).await
    }
}

/// A token as a header's value, if it can be one.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Where a call goes, without what it asks for.
fn place(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}
