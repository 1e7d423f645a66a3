//! `/docs`: the description as a page to read and to try. All of it comes from this binary, and it asks no other host.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The page loads and reaches nothing but this server, and runs no script that stands in a page (S20). RapiDoc writes
/// its colours as style elements, so those are allowed.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
const PAGE: &str = include_str!("../../assets/docs/page.html");

/// What the page loads.
const STYLE: &[u8] = include_bytes!("../../assets/docs/page.css");
const SCRIPT: &[u8] = include_bytes!("../../assets/docs/rapidoc-min.js");

/// This description as a page.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "readDocs",
    tag = "operation",
    responses((status = 200, description = "The page.", body = String, content_type = "text/html")),
    security(()),
)]
pub(super) async fn page() -> Response {
    answer("text/html; charset=utf-8", PAGE.as_bytes())
}

/// That page's style.
#[utoipa::path(
    get,
    path = "/docs/page.css",
    operation_id = "readDocsStyle",
    tag = "operation",
    responses((status = 200, description = "The style.", body = String, content_type = "text/css")),
    security(()),
)]
pub(super) async fn style() -> Response {
    answer("text/css; charset=utf-8", STYLE)
}

/// That page's script.
#[utoipa::path(
    get,
    path = "/docs/rapidoc-min.js",
    operation_id = "readDocsScript",
    tag = "operation",
    responses((status = 200, description = "The script.", body = String, content_type = "text/javascript")),
    security(()),
)]
pub(super) async fn script() -> Response {
    answer("text/javascript; charset=utf-8", SCRIPT)
}

fn answer(kind: &'static str, bytes: &'static [u8]) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // A new version of the program brings new files under the same names.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, bytes).into_response()
}
