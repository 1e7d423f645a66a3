//! The public API, called in this process as by any program, with the visitor's own token.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::page::{Failure, Problem};
use super::session::Visitor;

/// Most bytes of an answer that are read: more than any one that the API gives (an event's data is at most 16 MiB).
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The API.
pub(super) struct Api {
    router: TowerToHyperService<Router>,
}

impl Api {
    /// Calls this one.
    pub(super) fn new(router: Router) -> Self {
        Self { router: TowerToHyperService::new(router) }
    }

    /// Reads something.
    pub(super) async fn get<T: DeserializeOwned>(&self, visitor: &Visitor, path: &str) -> Result<T, Failure> {
        self.call(visitor, Method::GET, path, None).await
    }

    /// Does something; without a body where `body` is `None`.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Failure> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(host) = &visitor.host {
            request = request.header(header::HOST, host);
        }
        if let Some(token) = &visitor.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request =
            request.body(body).map_err(|error| Failure::Broken(format!("{path} cannot be asked for: {error}")))?;
        let Ok(answer) = self.router.call(request).await;
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), MAX_ANSWER_BYTES).await;
        let bytes = bytes.map_err(|error| Failure::Broken(format!("the answer of {path} broke off: {error}")))?;
        read(status, &bytes).map_err(|error| error.unwrap_or_else(|error| Failure::Broken(format!("{path}: {error}"))))
    }
}

/// What an answer says. An error of the outer kind is the API's, one of the inner kind is about the answer itself.
fn read<T: DeserializeOwned>(status: StatusCode, bytes: &[u8]) -> Result<T, Result<Failure, serde_json::Error>> {
    if status == StatusCode::UNAUTHORIZED {
        return Err(Ok(Failure::SignIn));
    }
    if !status.is_success() {
        let problem = serde_json::from_slice::<Problem>(bytes).map_err(Err)?;
        return Err(Ok(Failure::Refused(problem)));
    }
    // No content is read as nothing.
    serde_json::from_slice(if bytes.is_empty() { b"null" } else { bytes }).map_err(Err)
}
