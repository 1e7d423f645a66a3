//! The bearer token in front of the API and the metrics.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hikyaku_core::signature::Secret;
use ring::hmac;

use super::problem::{Kind, Problem};

/// Knows the token without comparing it byte by byte: two MACs are compared, in constant time and at a fixed length
/// (S13).
#[derive(Clone)]
pub(super) struct Guard {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Guard {
    pub(super) fn new(token: &Secret) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.reveal().as_bytes());
        let tag = hmac::sign(&key, token.reveal().as_bytes());
        Self { key, tag }
    }

    fn lets_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(b"Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && hmac::verify(&self.key, token, self.tag.as_ref()).is_ok()
    }
}

/// Lets a request through if it carries the token.
pub(super) async fn require_token(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    if guard.lets_in(request.headers()) {
        return next.run(request).await;
    }
    let detail = "Send \"authorization: Bearer TOKEN\" with the token of the server's configuration.";
    Problem::new(Kind::Unauthorized, detail).into_response()
}
