//! The demo speaks to the program as anyone would: over HTTP.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The server could not be reached, or broke off.
    #[error("{0} could not be called: {1}")]
    Connection(String, String),
    /// It answered with an error.
    #[error("{0} answered {1}: {2}")]
    Answer(String, u16, String),
}

/// A client for one server on loopback.
#[derive(Debug, Clone)]
pub(super) struct Api {
    server: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Api {
    /// A client for the server at this address.
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Calls a path below the demo's organization, and gives back the answer's JSON.
    pub(super) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let path = format!("/v1/organizations/default/{path}");
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let failed = |error: &dyn std::fmt::Display| ApiError::Connection(path.clone(), error.to_string());
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(&e))?;
        let response = self.client.request(request).await.map_err(|e| failed(&e))?;
        let status = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
        if !status.is_success() {
            return Err(ApiError::Answer(path, status.as_u16(), String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Hands a delivery on to the inbox as it came, and gives back the status it answered.
    pub(super) async fn forward(&self, headers: &HeaderMap, body: Bytes) -> u16 {
        let mut request =
            Request::builder().method(Method::POST).uri(format!("http://{}/in/receiptroller", self.server));
        for name in ["x-rr-delivery", "x-rr-signature", "content-type"] {
            if let Some(value) = headers.get(name) {
                request = request.header(name, value);
            }
        }
        let Ok(request) = request.body(Full::new(body)) else { return 500 };
        self.client.request(request).await.map_or(502, |response| response.status().as_u16())
    }
}
