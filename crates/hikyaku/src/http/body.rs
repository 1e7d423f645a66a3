//! Reading a request's body: bounded in bytes and in time (S11), never decompressed (S10).

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;

use super::problem::{Kind, Problem};

/// From the end of a request's head until its body must have come (S11).
pub(super) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of a body that is too large is still read and thrown away: a client that is cut off while it sends does
/// not see the answer that says why.
const MAX_DISCARDED_BYTES: usize = 1024 * 1024;
/// How long that may take.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

/// Takes a request's body where it is JSON by its headers, of at most `limit` bytes.
pub(super) async fn read_json(request: Request, limit: usize) -> Result<Bytes, Problem> {
    check_encoding(request.headers())?;
    check_media_type(request.headers())?;
    read(request.into_body(), limit).await
}

/// Takes a body of at most `limit` bytes, as it comes.
pub(super) async fn read(mut body: Body, limit: usize) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > limit as u64 {
        discard(body).await;
        return Err(too_large(limit));
    }
    match timeout(BODY_TIMEOUT, Limited::new(&mut body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large(limit))
        }
        Ok(Err(_)) => Err(Problem::new(Kind::IncompleteBody, "The connection broke before the body's end.")),
        Err(_) => {
            let detail = format!("The body must arrive within {} s.", BODY_TIMEOUT.as_secs());
            Err(Problem::new(Kind::SlowBody, detail))
        }
    }
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Kind::TooLarge, format!("At most {limit} bytes are taken here; nothing was stored."))
}

async fn discard(body: Body) {
    // Whether it ends, breaks or goes on: the answer is the same.
    let _ = timeout(DISCARD_TIMEOUT, Limited::new(body, MAX_DISCARDED_BYTES).collect()).await;
}

fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let compressed = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .find(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    match compressed {
        Some(encoding) => Err(Problem::new(
            Kind::UnsupportedEncoding,
            format!("The body has the content-encoding {encoding:?}; send it as it is."),
        )),
        None => Ok(()),
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default().to_ascii_lowercase();
    let essence = text.split(';').next().unwrap_or_default().trim();
    if matches!(essence, "application/json" | "text/json") || essence.ends_with("+json") {
        return Ok(());
    }
    let detail = format!("The body has the content-type {value:?}; send \"content-type: application/json\".");
    Err(Problem::new(Kind::UnsupportedMediaType, detail))
}
