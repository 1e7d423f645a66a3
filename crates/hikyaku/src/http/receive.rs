//! `POST /in/{source}`: the inbox's door.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use serde::Serialize;

use super::State;
use super::body;
use super::problem::{Kind, Problem};
use super::request::InPath;
use crate::inbox::Received;

/// What a provider is answered with 200, after the commit (C14).
#[derive(Debug, Serialize)]
pub(super) struct Receipt {
    /// `stored`, or `duplicate` for an id that was stored before (C12).
    status: &'static str,
}

/// Takes a delivery: 200 when it is stored, now or before; 401 when its signature does not verify (C11); 413 when it is
/// too large, before anything is computed over it (S11). The bytes are taken as they come, whatever the headers say of
/// them: what is signed is stored (T6).
pub(super) async fn receive(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<Receipt>, Problem> {
    let source = path.text("source");
    let (head, body) = request.into_parts();
    let body = body::read(body, state.inbox.max_body_bytes()).await?;
    match state.inbox.receive(source, &head.headers, body).await? {
        Received::Stored => Ok(Json(Receipt { status: "stored" })),
        Received::Duplicate => Ok(Json(Receipt { status: "duplicate" })),
        Received::Unauthorized(reason) => {
            Err(Problem::new(Kind::InvalidSignature, format!("Nothing was stored: {reason}.")))
        }
        Received::UnknownSource => {
            Err(Problem::new(Kind::NotFound, format!("There is no source {source:?}; nothing was stored.")))
        }
    }
}
