//! What was compared with providers' lists: a calendar of days, the cycles, and comparing now.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::Method;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use minijinja::{Value, context};
use serde_json::json;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::{InPath, InQuery};
use super::session::Visitor;
use super::shapes::{Cycle, List, Reconciliation};

/// Days in the calendar: five weeks.
const CALENDAR_DAYS: i32 = 35;
/// Cycles that the calendar is made of: more than five weeks of five a day.
const CYCLES: u32 = 200;
/// Cycles in the table.
const TABLE_CYCLES: usize = 20;

/// The comparisons.
pub(super) async fn show(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    query: InQuery,
) -> Result<Page, Failure> {
    let all: List<Reconciliation> = console.api.get(&visitor, &path.api(&["reconcile"])).await?;
    let today = TimeZone::UTC.to_datetime(console.clock.now()).date();
    let mut items = Vec::new();
    for of in all.items {
        let cycles = format!("{}?limit={CYCLES}", path.api(&["reconcile", &of.name, "cycles"]));
        let mut cycles: List<Cycle> = console.api.get(&visitor, &cycles).await?;
        let days = calendar(&cycles.items, today);
        let under_way = of.cycle.as_ref().filter(|cycle| cycle.ended_at.is_none()).map(progress);
        cycles.items.truncate(TABLE_CYCLES);
        items.push(context! { of, days, under_way, cycles => cycles.items });
    }
    let (of, from, to) = (query.text("of"), query.text("from"), query.text("to"));
    let values = context! { items, typed => context! { of, from, to } };
    Ok(Page::of(path.organization(), "reconcile", "reconcile.html", values))
}

/// How far a cycle is, from 0 to 1.
fn progress(cycle: &Cycle) -> f64 {
    let at = |text: &str| text.parse::<Timestamp>().map_or(0.0, |at| at.as_millisecond() as f64);
    let (from, to, done) = (at(&cycle.period.from), at(&cycle.period.to), at(&cycle.done_to));
    if to > from { ((done - from) / (to - from)).clamp(0.0, 1.0) } else { 1.0 }
}

/// The last days in UTC, oldest first: what was compared on which period's day, and what was missing. What a cycle found
/// counts on the day on which its period ends.
fn calendar(cycles: &[Cycle], today: Date) -> Vec<Value> {
    let day_of = |at: &str| at.parse::<Timestamp>().ok().map(|at| TimeZone::UTC.to_datetime(at).date());
    let days = (0..CALENDAR_DAYS).rev().filter_map(|back| today.checked_sub(back.days()).ok());
    let day = |day: Date| {
        let covers = |cycle: &&Cycle| {
            day_of(&cycle.period.from).is_some_and(|from| from <= day)
                && day_of(&cycle.done_to).is_some_and(|to| day <= to)
        };
        let covering: Vec<_> = cycles.iter().filter(covers).collect();
        let ending = covering.iter().filter(|cycle| day_of(&cycle.period.to) == Some(day));
        let (missing, repaired) =
            ending.fold((0, 0), |(missing, repaired), cycle| (missing + cycle.missing, repaired + cycle.repaired));
        let state = match (covering.is_empty(), missing) {
            (true, _) => "none",
            (false, 0) => "good",
            (false, missing) if missing <= repaired => "repaired",
            _ => "gap",
        };
        context! { date => day.to_string(), number => day.day(), state, missing, repaired }
    };
    days.map(day).collect()
}

/// Compares now: a period, or what the next cycle would.
pub(super) async fn run(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    path: InPath,
    form: Form,
) -> Result<Answer, Failure> {
    // A day of the form is that day in UTC, to its end.
    let day = |name: &str| match form.text(name) {
        "" => Ok(None),
        day => day.parse::<Date>().map(Some).map_err(|_| Failure::Odd),
    };
    let body = match (day("from")?, day("to")?) {
        (Some(from), to) => {
            let to = to.unwrap_or(from);
            let end = to.checked_add(1.day()).unwrap_or(to);
            json!({"from": format!("{from}T00:00:00Z"), "to": format!("{end}T00:00:00Z")})
        }
        (None, None) => json!({}),
        // An end without a beginning is no period.
        (None, Some(_)) => return Err(Failure::Odd),
    };
    let (name, page) = (path.text("reconcile"), path.console(&["reconcile"]));
    let at = path.api(&["reconcile", name, "run"]);
    match console.api.call::<Reconciliation>(&visitor, Method::POST, &at, Some(&body)).await {
        Ok(_) => Ok(Answer::go(page)),
        Err(failure) => failure.back(&page, &[("of", name), ("from", form.text("from")), ("to", form.text("to"))]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::Period;
    use super::*;

    fn cycle(from: &str, to: &str, done: &str, missing: u64, repaired: u64) -> Cycle {
        Cycle {
            number: 1,
            period: Period { from: from.to_owned(), to: to.to_owned() },
            done_to: done.to_owned(),
            started_at: to.to_owned(),
            ended_at: None,
            listed: 10,
            known: 10 - missing,
            missing,
            repaired,
            different: 0,
            unknown: 0,
            calls: 1,
            problem: String::new(),
        }
    }

    #[test]
    fn the_calendar_shows_which_days_were_compared_and_where_something_was_missing() {
        let cycles = [
            cycle("2026-11-27T23:00:00.000Z", "2026-11-28T04:00:00.000Z", "2026-11-28T04:00:00.000Z", 2, 1),
            cycle("2026-11-29T00:00:00.000Z", "2026-11-30T04:00:00.000Z", "2026-11-29T12:00:00.000Z", 3, 3),
            cycle("2026-11-26T00:00:00.000Z", "2026-11-26T04:00:00.000Z", "2026-11-26T04:00:00.000Z", 3, 3),
        ];
        let days = calendar(&cycles, "2026-12-01".parse().unwrap());
        assert_eq!(days.len(), 35);
        let state = |date: &str| {
            let day = days.iter().find(|day| day.get_attr("date").unwrap().as_str() == Some(date)).unwrap();
            day.get_attr("state").unwrap().to_string()
        };
        for (date, expected) in [
            ("2026-11-26", "repaired"),
            ("2026-11-27", "good"),
            ("2026-11-28", "gap"),
            ("2026-11-29", "good"),
            ("2026-11-30", "none"),
            ("2026-12-01", "none"),
        ] {
            assert_eq!(state(date), expected, "{date}");
        }
        assert!((progress(&cycles[1]) - 12.0 / 28.0).abs() < 1e-9);
    }
}
