//! Reading the present state of a business key from the provider's API, for routes whose order is `fetch` (C3).

mod template;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::json;
use hikyaku_core::retry::parse_retry_after;
use hikyaku_core::signature::Secret;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::Source;
use crate::clock::SharedClock;
use crate::outbound::{Exchange, Request, Response};
use crate::store::WorkRow;
pub use template::UrlTemplate;

/// Largest answer of a login that is read, in bytes.
const MAX_LOGIN_BYTES: usize = 64 * 1024;

/// How a source's provider is asked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where a key's state stands. The operator chose it, so no address is refused but those of S7.
    pub url: UrlTemplate,
    /// What opens it; `None` asks without.
    pub credential: Option<Credential>,
    /// How long one reading may take, a login included.
    pub timeout: Duration,
    /// Largest state that is taken, in bytes.
    pub max_body_bytes: usize,
}

impl Settings {
    /// How long a reading may take unless something else is said.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
    /// Largest state that is taken unless something else is said, in bytes.
    pub const DEFAULT_MAX_BODY_BYTES: usize = 1024 * 1024;
}

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

/// What a reading brought.
#[derive(Debug)]
pub(super) enum Fetched {
    /// The present state: a JSON object.
    State(Bytes),
    /// The provider does not have it.
    Gone(String),
    /// Nothing, and a later reading may bring more.
    Failed {
        /// What went wrong, for people.
        error: String,
        /// Not before this long has passed, where the provider says so.
        retry_after: Option<Duration>,
    },
    /// It cannot be asked for.
    Unaskable(String),
}

/// Reads states for one source.
pub struct Fetcher {
    settings: Settings,
    organization: OrganizationId,
    exchange: Arc<dyn Exchange>,
    clock: SharedClock,
    /// What the last login gave.
    token: Mutex<Option<Secret>>,
}

impl Fetcher {
    /// A fetcher for a source, if its provider can be asked. `exchange` refuses no address that an operator may have
    /// chosen, but those of S7.
    pub fn of(source: &Source, exchange: Arc<dyn Exchange>, clock: SharedClock) -> Option<Self> {
        let (settings, organization) = (source.fetch.clone()?, source.organization.clone());
        Some(Self { settings, organization, exchange, clock, token: Mutex::default() })
    }

    /// Where a row's state would be read.
    pub(super) fn url(&self, row: &WorkRow) -> Result<Url, String> {
        self.settings.url.fill(&self.organization, row)
    }

    /// Reads the state that a row is about, as it is now. Comes back within the setting's timeout.
    pub(super) async fn fetch(&self, row: &WorkRow) -> Fetched {
        let url = match self.url(row) {
            Ok(url) => url,
            Err(reason) => return Fetched::Unaskable(reason),
        };
        match timeout(self.settings.timeout, self.ask(&url)).await {
            Ok(Ok(response)) => self.judge(response),
            Ok(Err(error)) => error,
            Err(_) => failed(format!("the provider's API did not answer within {:?}", self.settings.timeout)),
        }
    }

    fn judge(&self, response: Response) -> Fetched {
        match response.outcome {
            Outcome::Answered(200..=299) => match json::pointer(&response.body, "") {
                Some(state) if state.get().starts_with('{') => Fetched::State(response.body),
                _ => failed("the provider's API answered with something that is no JSON object".to_owned()),
            },
            Outcome::Answered(status @ (404 | 410)) => {
                Fetched::Gone(format!("the provider's API does not have it (it answered {status})"))
            }
            Outcome::Answered(status) => Fetched::Failed {
                error: format!("the provider's API answered {status}"),
                retry_after: self.retry_after(status, &response),
            },
            Outcome::Failed(_) => failed(format!("the provider's API could not be read: {}", response.error)),
        }
    }

    /// How long the provider asks us to wait; only an overloaded one may ask.
    fn retry_after(&self, status: u16, response: &Response) -> Option<Duration> {
        let value = response.headers.get(RETRY_AFTER).filter(|_| matches!(status, 429 | 503))?;
        parse_retry_after(value.to_str().ok()?, self.clock.now())
    }

    /// Asks, and where the token of an earlier login is no longer taken, logs in and asks once more.
    async fn ask(&self, url: &Url) -> Result<Response, Fetched> {
        let token = self.token(None).await?;
        let response = self.get(url, token.as_ref()).await;
        let can_log_in = matches!(self.settings.credential, Some(Credential::Login { .. }));
        if response.outcome != Outcome::Answered(401) || !can_log_in {
            return Ok(response);
        }
        let fresh = self.token(token.as_ref()).await?;
        Ok(self.get(url, fresh.as_ref()).await)
    }

    /// The token to present, another one than `refused`. Who comes while somebody logs in waits for what that brings.
    async fn token(&self, refused: Option<&Secret>) -> Result<Option<Secret>, Fetched> {
        let (url, user, password) = match &self.settings.credential {
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

    async fn log_in(&self, url: &Url, user: &str, password: &Secret) -> Result<Secret, Fetched> {
        let body = json!({"userName": user, "password": password.reveal()}).to_string();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request { url: url.clone(), headers, body: body.into(), timeout: self.settings.timeout };
        let response = self.exchange.exchange(Method::POST, request, MAX_LOGIN_BYTES).await;
        let token = || json::pointer(&response.body, "/token").and_then(json::text_or_number);
        match response.outcome {
            Outcome::Answered(200..=299) => match token().filter(|token| bearer(token).is_some()) {
                Some(token) => Ok(Secret::new(token)),
                None => Err(failed("the provider's login answered without a token".to_owned())),
            },
            Outcome::Answered(status) => Err(Fetched::Failed {
                error: format!("the provider's login answered {status}; look at user and password"),
                retry_after: self.retry_after(status, &response),
            }),
            Outcome::Failed(_) => Err(failed(format!("the provider's login could not be reached: {}", response.error))),
        }
    }

    async fn get(&self, url: &Url, token: Option<&Secret>) -> Response {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(value) = token.and_then(|token| bearer(token.reveal())) {
            headers.insert(AUTHORIZATION, value);
        }
        let request = Request { url: url.clone(), headers, body: Bytes::new(), timeout: self.settings.timeout };
        self.exchange.exchange(Method::GET, request, self.settings.max_body_bytes).await
    }
}

fn failed(error: String) -> Fetched {
    Fetched::Failed { error, retry_after: None }
}

/// A token as a header's value, if it can be one.
pub fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}
