//! `/console`: to the organization that the visitor works in.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use minijinja::context;
use serde_json::Value;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::{below, of_api};
use super::session::Visitor;
use super::shapes::Caller;

/// The organization of whoever has but one, and of a program that has but one.
const DEFAULT: &str = "default";

/// Goes to the visitor's organization; asks which, where there are several.
pub(super) async fn start(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Answer, Failure> {
    let caller: Caller = console.api.get(&visitor, "/v1/caller").await?;
    let only = match &caller.organizations[..] {
        [] => Some(DEFAULT),
        [only] => Some(only.as_str()),
        _ => None,
    };
    Ok(Answer::go(only.map_or_else(|| "/console/organizations".to_owned(), |only| below("/console/o", &[only]))))
}

/// The organizations that are known by name, and a field for any other.
pub(super) async fn organizations(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Page, Failure> {
    names(&console, &visitor, "", None).await
}

/// The same, with a name that cannot be opened, and why.
async fn names(console: &Console, visitor: &Visitor, typed: &str, refused: Option<String>) -> Result<Page, Failure> {
    let caller: Caller = console.api.get(visitor, "/v1/caller").await?;
    let mut names = caller.organizations;
    if caller.organization.is_none() && !names.iter().any(|name| name == DEFAULT) {
        names.insert(0, DEFAULT.to_owned());
    }
    Ok(Page::new(
        "organizations.html",
        context! { names, typed, why_not => refused, is_free => caller.organization.is_none() },
    ))
}

/// Goes to the organization that was named.
pub(super) async fn choose(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    form: Form,
) -> Result<Answer, Failure> {
    let name = form.text("organization");
    if name.is_empty() {
        return Ok(Answer::go("/console/organizations"));
    }
    match console.api.get::<Value>(&visitor, &of_api(name, &["webhooks"])).await {
        Err(Failure::Refused(problem)) if matches!(problem.status, 400 | 403) => {
            let key = format!("problem.{}", problem.kind());
            Ok(names(&console, &visitor, name, Some(key)).await?.refusing(problem.status).into())
        }
        answer => answer.map(|_| Answer::go(below("/console/o", &[name]))),
    }
}
