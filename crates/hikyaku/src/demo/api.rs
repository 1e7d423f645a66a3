//! The demo speaks to the program as anyone would: over HTTP.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::{HeaderMap, Method};
use serde_json::Value;

use crate::client::{Client, ClientError};

/// A client for one server on loopback.
#[derive(Debug, Clone)]
pub(super) struct Api(Client);

impl Api {
    /// A client for the server at this address.
    pub(super) fn new(server: SocketAddr) -> Result<Self, ClientError> {
        Ok(Self(Client::new(&format!("http://{server}"), None)?))
    }

    /// Calls a path below the demo's organization, and gives back the answer's JSON.
    pub(super) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let path = format!("/v1/organizations/default/{path}");
        Ok(self.0.call(method, &path, body).await?.json)
    }

    /// Hands a delivery on to the inbox as it came, and gives back the status it answered.
    pub(super) async fn forward(&self, source: &str, headers: &HeaderMap, body: Bytes) -> u16 {
        let names = ["x-rr-delivery", "x-rr-signature", "content-type"].map(HeaderName::from_static);
        let headers: Vec<_> =
            names.into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone()))).collect();
        let answer = self.0.exchange(Method::POST, &format!("/in/{source}"), &headers, body).await;
        answer.map_or(502, |(status, _)| status)
    }
}
