//! What is around every page: who looks, the layout, and what browsers are told about the page's safety (S20).

use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use minijinja::context;
use url::form_urlencoded;

use super::page::{Answer, Failure, Page, REFUSED};
use super::path::{below, query};
use super::session::Visitor;
use super::{Console, assets, text};

/// A page loads what this server has and nothing else, runs and styles itself by nothing that stands in it, and stands in no
/// other page.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// Where a visitor is told to sign in.
const SIGN_IN: &str = "/console/sign-in";

/// Puts the frame around what a handler gives.
pub(super) async fn around(Shared(_): Shared<Arc<Console>>, mut request: Request, next: Next) -> Response {
    let visitor = Visitor::of(request.headers());
    let asked = request.uri().path_and_query().map_or("/console", |path| path.as_str()).to_owned();
    // Where a form went, there is nothing to be read.
    let here = if request.method().is_safe() { asked.clone() } else { "/console".to_owned() };
    request.extensions_mut().insert(visitor.clone());
    let mut response = next.run(request).await;
    let failure = response.extensions_mut().remove::<Failure>();
    let page = response.extensions_mut().remove::<Page>();
    let mut response = match (failure, page) {
        (Some(failure), _) => answer(failure, &visitor, &asked, &here),
        (None, Some(page)) => render(&page, &visitor, page.here.as_deref().unwrap_or(&asked)),
        (None, None) => response,
    };
    let headers = response.headers_mut();
    if let Some(cookie) = visitor.first_cookie().filter(|_| !headers.contains_key(header::SET_COOKIE)) {
        headers.append(header::SET_COOKIE, cookie);
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn answer(failure: Failure, visitor: &Visitor, asked: &str, here: &str) -> Response {
    let (status, kind, detail) = match failure {
        Failure::SignIn => return Answer::go(format!("{SIGN_IN}?{}", query([("to", here)]))).into_response(),
        Failure::Refused(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
            (status, problem.kind().to_owned(), problem.detail)
        }
        Failure::Foreign => (StatusCode::FORBIDDEN, "foreign-form".to_owned(), String::new()),
        Failure::Odd => (StatusCode::BAD_REQUEST, "odd-form".to_owned(), String::new()),
        Failure::Nothing => (StatusCode::NOT_FOUND, "no-such-page".to_owned(), String::new()),
        Failure::Busy => (StatusCode::TOO_MANY_REQUESTS, "too-many-watchers".to_owned(), String::new()),
        Failure::Broken(error) => {
            tracing::error!(%error, path = asked.split('?').next(), "a page of the console cannot be made");
            (StatusCode::INTERNAL_SERVER_ERROR, "internal".to_owned(), String::new())
        }
    };
    let key = format!("problem.{kind}");
    let key = if text::is_known(&key) { key } else { "problem.other".to_owned() };
    // The organization whose page it would have been, so that the way on is there.
    let organization =
        asked.strip_prefix("/console/o/").and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    let page =
        Page { status, organization: organization.to_owned(), ..Page::new("problem.html", context! { key, detail }) };
    render(&page, visitor, here)
}

fn render(page: &Page, visitor: &Visitor, here: &str) -> Response {
    let Page { template, values, organization, section, status, .. } = page;
    let base = below("/console/o", &[organization]);
    let common = context! {
        lang => visitor.language.code(), base, here, organization, section => *section,
        form_token => visitor.form_token(), signed_in => visitor.token.is_some(), address => visitor.address(),
        ..values.clone()
    };
    let content = text::render(template, &common);
    let whole = content.and_then(|content| {
        let content = minijinja::Value::from_safe_string(content);
        let (title, refused) = (title(template), refused(here));
        text::render("layout.html", &context! { content, title, refused, assets => &*ASSETS, ..common })
    });
    match whole {
        Ok(whole) => (*status, Html(whole)).into_response(),
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), template, "a page of the console cannot be made");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// The sentence about what a form of this page was refused for.
fn refused(here: &str) -> Option<String> {
    let query = form_urlencoded::parse(here.split_once('?')?.1.as_bytes());
    let key = query.into_iter().find(|(name, _)| name == REFUSED).map(|(_, kind)| format!("problem.{kind}"))?;
    Some(if text::is_known(&key) { key } else { "problem.other".to_owned() })
}

/// Where the page's files are.
static ASSETS: LazyLock<minijinja::Value> = LazyLock::new(assets::paths);

/// The text that is a page's title: `webhook.title` for `webhook.html`.
fn title(template: &str) -> String {
    format!("{}.title", template.trim_end_matches(".html"))
}
