//! Every error answer, as a problem document (RFC 9457): `application/problem+json` with `type`, `title`, `status` and
//! `detail`, and where it helps `errors`, `line` and `column`, or `ids`.
//!
//! A problem is written for the caller. What only the operator may know goes into the log at the place where the
//! problem is made.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hikyaku_core::ids::{EventId, OrganizationId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::store::StoreError;

/// When to come back while the store is not available or too many tests are under way, in seconds.
const RETRY_AFTER_SECONDS: u16 = 1;
/// Most entries in `errors`; a batch can be wrong in thousands of places.
pub(super) const MAX_FIELD_ERRORS: usize = 100;
/// Most characters of one text in a problem document, so that no request has itself sent back.
const MAX_DETAIL_CHARS: usize = 600;

/// What kind of problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    NotJson,
    InvalidRequest,
    InvalidQuery,
    InvalidPath,
    IncompleteBody,
    AmbiguousLength,
    Unauthorized,
    InvalidSignature,
    Forbidden,
    ForeignOrigin,
    NoSuchPath,
    NotFound,
    MethodNotAllowed,
    SlowBody,
    EventConflict,
    DeliveryWaiting,
    AboutItself,
    RecoveryRunning,
    WebhookOff,
    RowUnfit,
    RowUnderWay,
    StillParked,
    StillUnverified,
    SourceGone,
    TooManyWebhooks,
    TooManyTests,
    TooLarge,
    UnsupportedMediaType,
    UnsupportedEncoding,
    UnusableUrl,
    Internal,
    OutcomeUnknown,
    Unavailable,
}

impl Kind {
    /// All kinds with their status, the last part of their `type`, and their title. The types stay as they are:
    /// programs compare them.
    fn row(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::NotJson => (S::BAD_REQUEST, "not-json", "The body is not JSON"),
            Self::InvalidRequest => (S::BAD_REQUEST, "invalid-request", "The request is not valid"),
            Self::InvalidQuery => (S::BAD_REQUEST, "invalid-query", "The query string is not valid"),
            Self::InvalidPath => (S::BAD_REQUEST, "invalid-path", "The path is not valid"),
            Self::IncompleteBody => (S::BAD_REQUEST, "incomplete-body", "The body did not arrive whole"),
            Self::AmbiguousLength => (S::BAD_REQUEST, "ambiguous-length", "It is in doubt where the body ends"),
            Self::Unauthorized => (S::UNAUTHORIZED, "unauthorized", "A valid token is needed"),
            Self::InvalidSignature => (S::UNAUTHORIZED, "invalid-signature", "The signature does not verify"),
            Self::Forbidden => (S::FORBIDDEN, "forbidden", "The token does not reach this"),
            Self::ForeignOrigin => (S::FORBIDDEN, "foreign-origin", "The request may come from another site's page"),
            Self::NoSuchPath => (S::NOT_FOUND, "no-such-path", "There is nothing at this path"),
            Self::NotFound => (S::NOT_FOUND, "not-found", "Not found"),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not allowed here"),
            Self::SlowBody => (S::REQUEST_TIMEOUT, "slow-body", "The body came too slowly"),
            Self::EventConflict => (S::CONFLICT, "event-conflict", "The event id is taken"),
            Self::DeliveryWaiting => (S::CONFLICT, "delivery-waiting", "The delivery has not ended"),
            Self::AboutItself => (S::CONFLICT, "about-itself", "The event tells of the webhook itself"),
            Self::RecoveryRunning => (S::CONFLICT, "recovery-running", "Another recovery runs"),
            Self::WebhookOff => (S::CONFLICT, "webhook-off", "The webhook is off"),
            Self::RowUnfit => (S::CONFLICT, "row-unfit", "The row's state does not allow this"),
            Self::RowUnderWay => (S::CONFLICT, "row-under-way", "An effect of the row may be taking place"),
            Self::StillParked => (S::CONFLICT, "still-parked", "Nothing can use the row still"),
            Self::StillUnverified => (S::CONFLICT, "still-unverified", "The signature still does not verify"),
            Self::SourceGone => (S::CONFLICT, "source-gone", "The row's source is not configured"),
            Self::TooManyWebhooks => (S::CONFLICT, "too-many-webhooks", "There are too many webhooks"),
            Self::TooLarge => (S::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (S::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The body is not declared as JSON")
            }
            Self::UnsupportedEncoding => (S::UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", "The body is compressed"),
            Self::TooManyTests => (S::TOO_MANY_REQUESTS, "too-many-tests", "Too many tests are under way"),
            Self::UnusableUrl => (S::UNPROCESSABLE_ENTITY, "unusable-url", "Nothing can be delivered to this URL"),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, "internal", "The server failed"),
            Self::OutcomeUnknown => {
                (S::INTERNAL_SERVER_ERROR, "outcome-unknown", "It is not known whether the change was stored")
            }
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, "unavailable", "The store is not available"),
        }
    }
}

/// What is wrong with one field, or one parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FieldError {
    /// Where, as in `events[3].type`.
    pub(super) field: String,
    /// What is wrong with it.
    pub(super) detail: String,
}

impl FieldError {
    pub(super) fn new(field: &str, detail: &str) -> Self {
        Self { field: clip(field), detail: clip(detail) }
    }
}

/// An error answer.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    position: Option<(usize, usize)>,
    ids: Vec<EventId>,
}

impl Problem {
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: clip(&detail.into()), errors: Vec::new(), position: None, ids: Vec::new() }
    }

    /// A problem that lies in fields; its detail repeats them in one sentence each.
    pub(super) fn of_fields(kind: Kind, mut errors: Vec<FieldError>) -> Self {
        errors.truncate(MAX_FIELD_ERRORS);
        let sentences: Vec<_> = errors.iter().map(|e| format!("{:?} {}", e.field, e.detail)).collect();
        Self { errors, ..Self::new(kind, sentences.join("; ")) }
    }

    /// Text that does not parse, with the place where it stops to.
    pub(super) fn not_json(error: &serde_json::Error) -> Self {
        let position = Some((error.line(), error.column()));
        Self { position, ..Self::new(Kind::NotJson, format!("The body cannot be read as JSON: {error}.")) }
    }

    /// An id that names nothing, or nothing of this organization (S17).
    pub(super) fn not_found(what: &str, id: &str, organization: &OrganizationId) -> Self {
        Self::new(Kind::NotFound, format!("There is no {what} {id:?} in the organization {:?}.", organization.as_str()))
    }

    /// The id is taken by an event with other content.
    pub(super) fn conflict(id: EventId) -> Self {
        let detail = format!(
            "The event id {:?} belongs to an event with another type, other data or another timestamp; nothing was \
             stored. Publish under a new id, or repeat the first publish exactly.",
            id.as_str()
        );
        Self { ids: vec![id], ..Self::new(Kind::EventConflict, detail) }
    }

    /// A delivery could not be stored; its provider is to send it again.
    pub(super) fn of_delivery(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) => {
                let detail = "The delivery is not known to be stored. Send it again: it is stored once.";
                Self { detail: detail.to_owned(), ..Self::from(error) }
            }
            _ => Self::from(error),
        }
    }

    /// A publish of these events failed in the store. Of an unknown end it tells the ids, which make it safe to repeat.
    pub(super) fn of_publish(error: StoreError, ids: Vec<EventId>) -> Self {
        match error {
            StoreError::Unknown(_) => {
                let detail = "The events may be stored. Publish them again with the ids in \"ids\": what is stored is \
                              not stored twice.";
                Self { ids, detail: detail.to_owned(), ..Self::from(error) }
            }
            _ => Self::from(error),
        }
    }
}

impl From<Vec<FieldError>> for Problem {
    fn from(errors: Vec<FieldError>) -> Self {
        Self::of_fields(Kind::InvalidRequest, errors)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            // It may come with every request of an overload, and nothing is lost.
            StoreError::Unavailable(_) => tracing::warn!(%error, "a request was refused"),
            _ => tracing::error!(%error, "a request failed in the store"),
        }
        match error {
            StoreError::Unavailable(_) => Self::new(
                Kind::Unavailable,
                "The store is busy or away and nothing was changed. Send the request again.",
            ),
            StoreError::Unknown(_) => {
                Self::new(Kind::OutcomeUnknown, "The change may be stored. Read it back before you repeat it.")
            }
            StoreError::Damaged(_) => Self::new(
                Kind::Internal,
                "The store could not carry this out. The operator finds the reason in the log.",
            ),
        }
    }
}

/// Why a request was not carried out (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Document<'a> {
    /// What programs compare: `/problems/` and a name that stays as it is.
    #[schema(pattern = "^/problems/[a-z-]+$", example = "/problems/not-found")]
    r#type: String,
    /// The type, for people.
    title: &'a str,
    /// The answer's status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong, with what, and what to do.
    detail: &'a str,
    /// What is wrong with single fields or parameters.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    /// Where the body stops to be JSON, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    line: Option<usize>,
    /// Where in that line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    column: Option<usize>,
    /// The events in question: in conflict, or to be published again with these ids.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schema(value_type = Vec<String>)]
    ids: &'a [EventId],
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, slug, title) = self.kind.row();
        let document = Document {
            r#type: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            errors: &self.errors,
            line: self.position.map(|(line, _)| line),
            column: self.position.map(|(_, column)| column),
            ids: &self.ids,
        };
        let mut response = (status, axum::Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.kind {
            Kind::Unavailable | Kind::TooManyTests => {
                drop(headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into()))
            }
            Kind::Unauthorized => drop(headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            _ => {}
        }
        response
    }
}

/// The answer where no route is.
pub(super) async fn no_such_path(uri: Uri) -> Problem {
    Problem::new(
        Kind::NoSuchPath,
        format!("Nothing is at {:?}. An id in a path is percent-encoded: \"/\" is written \"%2F\".", uri.path()),
    )
}

/// The answer where a route is, but not for this method; the router adds `Allow`.
pub(super) async fn method_not_allowed(method: axum::http::Method, uri: Uri) -> Problem {
    let detail = format!("{:?} does not take {method}; the header Allow names what it takes.", uri.path());
    Problem::new(Kind::MethodNotAllowed, detail)
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
