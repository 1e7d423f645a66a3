//! Doing something about many received rows: what it would be first; then it is done a piece at a time, and each piece says
//! how far it has come. Whoever goes away leaves it there: what is done is done, and the rest is as it was.

use std::mem;
use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use jiff::SignedDuration;
use minijinja::context;
use minijinja::value::Serde;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page, Problem};
use super::path::InPath;
use super::session::Visitor;
use super::shapes::{Many, Unchanged};

/// How long a request goes on before it says how far it has come.
const PIECE_TIME: SignedDuration = SignedDuration::from_secs(1);
/// Rows that stay as they are which are named, of each reason.
const FEW_UNCHANGED: usize = 5;
/// Most reasons that are told apart; of others it is only counted how many rows they concern.
const MOST_REASONS: usize = 10;
/// By what the rows are chosen.
const FILTER: [&str; 4] = ["state", "source", "key", "route"];

/// How far it has come, which the page hands to the next request.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress {
    /// How many rows were found before anything was done; there may be more.
    of: u64,
    /// How many were changed.
    changed: u64,
    /// How many stay as they are.
    kept: u64,
    reasons: Vec<Reason>,
    /// Where it goes on.
    cursor: Option<String>,
}

/// Why rows stay as they are: how many, and the first of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reason {
    detail: String,
    n: u64,
    rows: Vec<Unchanged>,
}

impl Progress {
    fn add(&mut self, piece: Many) {
        self.changed += piece.changed;
        self.cursor = piece.next_cursor;
        for mut row in piece.unchanged {
            self.kept += 1;
            let detail = mem::take(&mut row.detail);
            let is_full = self.reasons.len() == MOST_REASONS;
            match self.reasons.iter_mut().find(|reason| reason.detail == detail) {
                Some(reason) => {
                    reason.n += 1;
                    reason.rows.extend((reason.rows.len() < FEW_UNCHANGED).then_some(row));
                }
                None if !is_full => {
                    self.reasons.push(Reason { detail, n: 1, rows: vec![row] });
                }
                None => (),
            }
        }
        self.of = self.of.max(self.changed + self.kept);
    }
}

/// Shows what would be done to many rows, or goes on doing it.
pub(super) async fn act(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    if !["replay", "release", "discard"].contains(&form.text("action")) {
        return Err(Failure::Odd);
    }
    match form.text("sure") {
        "" => preview(&console, &visitor, &path, &form).await,
        "yes" => go_on(&console, &visitor, &path, &form).await,
        _ => Err(Failure::Odd),
    }
}

/// What is asked of the API.
fn asked(form: &Form, is_preview: bool) -> Value {
    let mut body = json!({"preview": is_preview});
    for name in FILTER.into_iter().filter(|name| !form.text(name).is_empty()) {
        body[name] = form.text(name).into();
    }
    if form.text("action") == "discard" {
        // A preview needs none yet.
        body["reason"] = if is_preview { "-" } else { form.text("reason") }.into();
    }
    body
}

async fn preview(console: &Console, visitor: &Visitor, path: &InPath, form: &Form) -> Result<Answer, Failure> {
    let at = path.api(&["inbox", form.text("action")]);
    match console.api.call::<Many>(visitor, Method::POST, &at, Some(&asked(form, true))).await {
        Ok(many) => {
            let progress = Progress { of: many.matched, ..Progress::default() };
            Ok(page(path, form, &progress, Some(&many), None))
        }
        Err(failure) => back(failure, path, form),
    }
}

async fn go_on(console: &Console, visitor: &Visitor, path: &InPath, form: &Form) -> Result<Answer, Failure> {
    let at = path.api(&["inbox", form.text("action")]);
    let mut progress: Progress = match form.text("progress") {
        "" => Progress::default(),
        text => serde_json::from_str(text).map_err(|_| Failure::Odd)?,
    };
    let begun = console.clock.schedule();
    loop {
        let mut body = asked(form, false);
        if let Some(cursor) = &progress.cursor {
            body["cursor"] = cursor.as_str().into();
        }
        match console.api.call::<Many>(visitor, Method::POST, &at, Some(&body)).await {
            Ok(piece) => progress.add(piece),
            // Nothing was done yet: back to where it was asked for.
            Err(failure) if progress.changed + progress.kept == 0 => return back(failure, path, form),
            Err(Failure::Refused(problem)) => return Ok(page(path, form, &progress, None, Some(&problem))),
            Err(failure) => return Err(failure),
        }
        if progress.cursor.is_none() || console.clock.schedule().duration_since(begun) >= PIECE_TIME {
            return Ok(page(path, form, &progress, None, None));
        }
    }
}

fn back(failure: Failure, path: &InPath, form: &Form) -> Result<Answer, Failure> {
    failure.back(&path.console(&["inbox"]), &FILTER.map(|name| (name, form.text(name))))
}

/// The page: what would be done, or how far it has come, and what it broke off for.
fn page(path: &InPath, form: &Form, progress: &Progress, preview: Option<&Many>, broken: Option<&Problem>) -> Answer {
    let [state, source, key, route] = FILTER.map(|name| form.text(name));
    let values = context! {
        action => form.text("action"), state, source, key, route, reason => form.text("reason"),
        preview => preview, done => progress.changed + progress.kept, progress => Serde(progress),
        handed_on => serde_json::to_string(progress).unwrap_or_default(),
        broken => broken.map(|problem| format!("problem.{}", problem.kind())),
    };
    Page::of(path.organization(), "inbox", "many.html", values).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_is_counted_by_its_reason_over_all_pieces() {
        let mut progress = Progress { of: 3, ..Progress::default() };
        for piece in 0..30 {
            let unchanged =
                |detail: String| Unchanged { source: "till".into(), delivery_id: piece.to_string(), detail };
            let unchanged = vec![unchanged("the same".into()), unchanged(format!("reason {piece}"))];
            let next_cursor = (piece < 29).then(|| piece.to_string());
            progress.add(Many { matched: 5, changed: 3, rows: Vec::new(), unchanged, next_cursor });
        }
        assert_eq!((progress.changed, progress.kept, progress.of), (90, 60, 150));
        assert_eq!((progress.reasons.len(), progress.cursor.as_deref()), (MOST_REASONS, None));
        assert_eq!((progress.reasons[0].n, progress.reasons[0].rows.len()), (30, FEW_UNCHANGED));
    }
}
