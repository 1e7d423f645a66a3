//! One HTTP request to somebody else's server: the name resolved by ourselves, every address vetted (S1-S7), one
//! deadline over the whole (S8), a bounded look at the answer (S9). The sender's attempts and the inbox's `http`
//! destinations go through here, and so do readings from a provider's API; what an outcome means is decided elsewhere.

mod client;
mod connector;
mod dial;
mod failure;
mod listening;
mod pool;
mod resolve;
#[cfg(test)]
pub(crate) mod tests;
mod tls;

use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use hikyaku_core::delivery::Outcome;
use url::Url;

pub use client::Client;
pub use resolve::{Resolve, ResolveError, SystemResolver};
pub use tls::TlsError;
pub(crate) use tls::tls_settings;

/// Most bytes of a response body that are read (S9).
pub const MAX_RESPONSE_BODY_BYTES: usize = 16 * 1024;

/// A request to be made.
#[derive(Debug, Clone)]
pub struct Request {
    /// Where to.
    pub url: Url,
    /// All headers but those that belong to HTTP itself.
    pub headers: HeaderMap,
    /// The bytes to send.
    pub body: Bytes,
    /// From now until a status must have come.
    pub timeout: Duration,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status, or why none came.
    pub outcome: Outcome,
    /// For people: what went wrong, without secrets; empty after an answer.
    pub error: String,
    /// The response's headers; empty where none came.
    pub headers: HeaderMap,
    /// The first bytes of the body, at most [`MAX_RESPONSE_BODY_BYTES`]; of an [`Exchange`], all of it.
    pub body: Bytes,
    /// How long it took.
    pub duration: Duration,
}

/// Makes requests: the one seam between us and the network, so that whoever sends can be tested without it.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Makes one request, never more: no redirect is followed (S5) and nothing is sent again behind the caller's back.
    /// Comes back within the request's timeout.
    async fn post(&self, request: Request) -> Response;
}

#[async_trait]
impl Transport for Client {
    async fn post(&self, request: Request) -> Response {
        Client::post(self, request).await
    }
}

/// Asks other people's APIs: the answer counts only as a whole.
#[async_trait]
pub trait Exchange: Send + Sync + 'static {
    /// Makes one request, never more, as [`Transport::post`] does. The whole answer must come within the request's timeout
    /// and have no more than `max_body_bytes`; else the outcome is a failure, whatever status came.
    async fn exchange(&self, method: Method, request: Request, max_body_bytes: usize) -> Response;
}

#[async_trait]
impl Exchange for Client {
    async fn exchange(&self, method: Method, request: Request, max_body_bytes: usize) -> Response {
        Client::exchange(self, method, request, max_body_bytes).await
    }
}
