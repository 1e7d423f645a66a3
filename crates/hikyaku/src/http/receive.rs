//! `POST /in/{source}`: the inbox's door.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::body;
use super::openapi::requests::SignedBy;
use super::openapi::words;
use super::problem::{Kind, Problem};
use super::request::InPath;
use crate::inbox::Received;

// C14
/// What a provider is answered with after its delivery is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Receipt {
    // C12
    #[schema(schema_with = words::receipt)]
    status: &'static str,
    /// Only when the provider asked whether somebody is there: what it wants to hear.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    challenge: Option<String>,
}

/// Receive a delivery.
///
/// For the provider. The bytes are taken as they come, whatever the headers say of them: what is signed is stored.
// C11: 401 when the signature does not verify. S11: 413 before anything is computed over the body. T6: the bytes.
#[utoipa::path(
    post,
    path = "/in/{source}",
    operation_id = "receive",
    tag = "inbox",
    params(SignedBy),
    request_body(content = inline(words::Bytes), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "It is stored, now or before.", body = Receipt),
        (status = 401, description = "A problem: invalid-signature."),
        (status = 503, description = "A problem: unavailable."),
    ),
    security(()),
)]
pub(super) async fn receive(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<Receipt>, Problem> {
    let source = path.text("source");
    let (head, body) = request.into_parts();
    let body = body::read(body, state.inbox.max_body_bytes()).await?;
    match state.inbox.receive(source, &head.headers, body).await.map_err(Problem::of_delivery)? {
        Received::Stored => Ok(Json(Receipt { status: "stored", challenge: None })),
        Received::Duplicate => Ok(Json(Receipt { status: "duplicate", challenge: None })),
        Received::Quarantined => Ok(Json(Receipt { status: "quarantined", challenge: None })),
        Received::Challenge(text) => Ok(Json(Receipt { status: "challenge", challenge: Some(text) })),
        Received::Unauthorized(reason) => {
            Err(Problem::new(Kind::InvalidSignature, format!("Nothing was stored: {reason}.")))
        }
        Received::UnknownSource => {
            Err(Problem::new(Kind::NotFound, format!("There is no source {source:?}; nothing was stored.")))
        }
    }
}
