//! [`Verified`] as an extractor of `axum`.

use std::time::Duration;

use ::axum::body::{Body, HttpBody};
use ::axum::extract::{FromRef, FromRequest, Request};
use ::axum::http::StatusCode;
use ::axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::{InvalidSignature, Verified, Verifier};

/// From the end of a request's head until its body must have come (S11). A provider gives up after 10 seconds.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of a body that is too large is still read and thrown away: a client that is cut off while it sends does not
/// see the answer.
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;
/// How long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a request brought no verified delivery. Take `Result<Verified, Rejection>` in your handler to log it: refusing
/// what the provider itself sent costs the webhook (T2).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Its signature is under none of the secrets: 401.
    #[error("{0}")]
    Unauthorized(#[from] InvalidSignature),
    /// Its body is too large, so that it was not even hashed: 413.
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    /// Its body came too slowly: 408.
    #[error("the body did not arrive within {} s", BODY_TIMEOUT.as_secs())]
    Slow,
    /// The connection broke before the body's end: 400, if anybody is still there.
    #[error("the connection broke before the body's end")]
    Incomplete,
}

impl Rejection {
    /// What is answered.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Incomplete => StatusCode::BAD_REQUEST,
        }
    }
}

/// Answers with the status alone: a stranger need not learn what was wrong with a signature.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        self.status().into_response()
    }
}

/// Verifies the raw body with the router's [`Verifier`]. Once it is verified nothing here refuses it (T6).
impl<S: Send + Sync> FromRequest<S> for Verified
where
    Verifier: FromRef<S>,
{
    type Rejection = Rejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejection> {
        let verifier = Verifier::from_ref(state);
        let (head, body) = request.into_parts();
        let body = read(body, verifier.max_body_bytes()).await?;
        Ok(verifier.verify(|name| head.headers.get(name).map(|value| value.as_bytes()), body)?)
    }
}

/// Takes a body of at most `limit` bytes, as it comes.
async fn read(mut body: Body, limit: usize) -> Result<Bytes, Rejection> {
    if body.size_hint().lower() > limit as u64 {
        discard(body).await;
        return Err(Rejection::TooLarge(limit));
    }
    match timeout(BODY_TIMEOUT, Limited::new(&mut body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(Rejection::TooLarge(limit))
        }
        Ok(Err(_)) => Err(Rejection::Incomplete),
        Err(_) => Err(Rejection::Slow),
    }
}

async fn discard(body: Body) {
    // Whether it ends, breaks or goes on: the answer is the same.
    let _ = timeout(DISCARD_TIMEOUT, Limited::new(body, MAX_DISCARDED_BYTES).collect()).await;
}
