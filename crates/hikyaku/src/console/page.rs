//! What handlers give: a page, a way to go, or why there is neither. `frame` makes answers of them.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use minijinja::Value;
use serde::{Deserialize, Serialize};

use super::path::query;

/// The parameter that says what was refused: a problem's kind.
pub(super) const REFUSED: &str = "refused";

/// A page before its frame is around it.
#[derive(Debug, Clone)]
pub(super) struct Page {
    /// Its template.
    pub(super) template: &'static str,
    /// What the template shows.
    pub(super) values: Value,
    /// Whose things it shows; empty for none.
    pub(super) organization: String,
    /// Which part of the console it belongs to.
    pub(super) section: &'static str,
    /// The status that it is answered with.
    pub(super) status: StatusCode,
    /// Where it can be read again, if that is not where the request went.
    pub(super) here: Option<String>,
}

impl Page {
    /// A page that belongs to no organization.
    pub(super) fn new(template: &'static str, values: Value) -> Self {
        Self { template, values, organization: String::new(), section: "", status: StatusCode::OK, here: None }
    }

    /// A page of an organization, in a section of the console.
    pub(super) fn of(organization: String, section: &'static str, template: &'static str, values: Value) -> Self {
        Self { organization, section, ..Self::new(template, values) }
    }

    /// The same, which can be read again there.
    pub(super) fn at(self, here: String) -> Self {
        Self { here: Some(here), ..self }
    }

    /// The same, as the answer to what was refused.
    pub(super) fn refusing(self, status: u16) -> Self {
        Self { status: StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY), ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// What follows on a form: a page, or somewhere to go.
#[derive(Debug)]
pub(super) enum Answer {
    /// This page.
    Page(Box<Page>),
    /// Another page, to be asked for; with a cookie to be set.
    Go(String, Option<HeaderValue>),
}

impl Answer {
    /// To a path of the console.
    pub(super) fn go(to: impl Into<String>) -> Self {
        Self::Go(to.into(), None)
    }

    /// The same, with a cookie.
    pub(super) fn with_cookie(self, cookie: Option<HeaderValue>) -> Self {
        match self {
            Self::Go(to, _) => Self::Go(to, cookie),
            page => page,
        }
    }
}

impl From<Page> for Answer {
    fn from(page: Page) -> Self {
        Self::Page(Box::new(page))
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Self::Page(page) => page.into_response(),
            Self::Go(to, cookie) => {
                let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response();
                if let Some(cookie) = cookie {
                    response.headers_mut().append(header::SET_COOKIE, cookie);
                }
                response
            }
        }
    }
}

/// A problem document of the API (RFC 9457), as far as people are told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Problem {
    /// Which one: `/problems/not-found`.
    pub(super) r#type: String,
    /// Its status.
    pub(super) status: u16,
    /// What is wrong, in English.
    pub(super) detail: String,
}

impl Problem {
    /// The last part of its type: `not-found`.
    pub(super) fn kind(&self) -> &str {
        self.r#type.rsplit('/').next().unwrap_or_default()
    }
}

/// Why there is no page.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// The API takes a token, and this visitor has none that it takes.
    SignIn,
    /// The API refused.
    Refused(Problem),
    /// A form that none of our pages has sent, or one that is too old (S21).
    Foreign,
    /// A field has a value that our forms do not send.
    Odd,
    /// There is no such page.
    Nothing,
    /// As many watch already as may.
    Busy,
    /// A defect of ours, for the log.
    Broken(String),
}

impl Failure {
    /// Back to the page that the form stands on, which says why nothing was done and keeps what was typed. What is no
    /// refusal, or is one of the whole page, stays what it is.
    pub(super) fn back(self, page: &str, typed: &[(&str, &str)]) -> Result<Answer, Self> {
        let Self::Refused(problem) = &self else { return Err(self) };
        if !matches!(problem.status, 400 | 409 | 422 | 429) {
            return Err(self);
        }
        let typed = typed.iter().copied().filter(|(_, value)| !value.is_empty());
        Ok(Answer::go(format!("{page}?{}", query([(REFUSED, problem.kind())].into_iter().chain(typed)))))
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
