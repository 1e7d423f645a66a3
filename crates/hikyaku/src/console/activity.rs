//! What went on lately, for the chart of the overview: counts by step of time.
//!
//! The API gives pages, newest first. A page that is cut ends the chart's time where its oldest item is, so that within
//! that time every count is whole.

use std::time::Duration;

use jiff::Timestamp;
use minijinja::{Value, context};

use super::shapes::{Attempt, List, Row};

/// Longest time that is shown: a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Steps of the chart.
const STEPS: usize = 24;
/// Shortest time that is shown, in milliseconds: a step is not shorter than a minute.
const SHORTEST_MS: i64 = STEPS as i64 * 60_000;

/// The chart up to `now`, from the logs of webhooks and from what was received.
pub(super) fn of(now: Timestamp, logs: &[List<Attempt>], received: &List<Row>) -> Value {
    let now = now.as_millisecond();
    let attempts: Vec<_> =
        logs.iter().flat_map(|log| &log.items).filter_map(|one| Some((ms(&one.started_at)?, one))).collect();
    let rows: Vec<_> = received.items.iter().filter_map(|row| ms(&row.received_at)).collect();
    let cut = logs.iter().filter(|log| log.next_cursor.is_some()).filter_map(|log| ms(&log.items.last()?.started_at));
    let cut_rows = received.next_cursor.as_ref().and_then(|_| ms(&received.items.last()?.received_at));
    let longest = now - i64::try_from(LONGEST.as_millis()).unwrap_or(i64::MAX);
    let whole_from = cut.chain(cut_rows).max().unwrap_or(longest).max(longest);
    let oldest = attempts.iter().map(|(at, _)| *at).chain(rows.iter().copied()).min().unwrap_or(now);
    let begin = whole_from.max(oldest).min(now - SHORTEST_MS);
    let step = ((now - begin) / STEPS as i64).max(1);
    let place =
        |at: i64| usize::try_from((at - begin) / step).ok().filter(|_| at >= begin).map(|place| place.min(STEPS - 1));
    let mut steps = vec![(0_u64, 0_u64, 0_u64); STEPS];
    for (at, attempt) in &attempts {
        let Some(place) = place(*at) else { continue };
        match attempt.is_success() {
            true => steps[place].0 += 1,
            false => steps[place].1 += 1,
        }
    }
    rows.iter().filter_map(|at| place(*at)).for_each(|place| steps[place].2 += 1);
    let mut durations: Vec<_> =
        attempts.iter().filter(|(at, _)| *at >= begin).map(|(_, one)| one.duration_ms).collect();
    durations.sort_unstable();
    let sum = |pick: fn(&(u64, u64, u64)) -> u64| steps.iter().map(pick).sum::<u64>();
    let (accepted, failed, received) = (sum(|step| step.0), sum(|step| step.1), sum(|step| step.2));
    let show = |at: i64| Timestamp::from_millisecond(at).map(|at| at.to_string()).unwrap_or_default();
    let of_step = |(place, step_of): (usize, &(u64, u64, u64))| {
        context! { at => show(begin + place as i64 * step), accepted => step_of.0, failed => step_of.1, received => step_of.2 }
    };
    context! {
        from => show(begin), accepted, failed, received,
        rate => (accepted + failed > 0).then(|| ((1000 * accepted / (accepted + failed)) as f64 / 10.0).to_string()),
        median => durations.get(durations.len() / 2).map(|ms| *ms as f64 / 1000.0),
        steps => steps.iter().enumerate().map(of_step).collect::<Vec<_>>(),
    }
}

fn ms(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(times: &[&str], is_cut: bool) -> List<Attempt> {
        let attempt = |at: &&str| Attempt {
            run: 1,
            attempt: 1,
            http_status: if at.ends_with("9Z") { 500 } else { 200 },
            error: None,
            error_kind: None,
            started_at: (*at).to_owned(),
            duration_ms: 10,
            response_body: String::new(),
            delivery_id: None,
            event_type: None,
        };
        List { items: times.iter().map(attempt).collect(), next_cursor: is_cut.then(String::new), searched_to: None }
    }

    #[test]
    fn within_the_time_that_is_shown_every_count_is_whole() {
        let now = "2026-12-01T12:00:00Z".parse().unwrap();
        let none = List { items: Vec::new(), next_cursor: None, searched_to: None };
        let long = log(
            &["2026-12-01T11:59:00Z", "2026-12-01T11:00:00Z", "2026-12-01T02:00:09Z", "2026-11-29T00:00:00Z"],
            false,
        );
        let short = log(&["2026-12-01T11:30:09Z", "2026-12-01T10:00:00Z"], true);
        let count = |chart: &Value, name: &str| chart.get_attr(name).unwrap().as_i64().unwrap();
        let whole = of(now, std::slice::from_ref(&long), &none);
        assert_eq!((count(&whole, "accepted"), count(&whole, "failed")), (2, 1), "a day, and not what was before it");
        let cut = of(now, &[long, short], &none);
        assert_eq!(cut.get_attr("from").unwrap().as_str(), Some("2026-12-01T10:00:00Z"));
        assert_eq!((count(&cut, "accepted"), count(&cut, "failed")), (3, 1), "nothing from before the cut");
    }
}
