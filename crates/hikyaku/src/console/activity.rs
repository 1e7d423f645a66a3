//! What went on lately, for the chart of the overview: counts by step of time.
//!
//! The API gives pages, newest first. A page that is cut ends the chart's time where its oldest item is, so that within
//! that time every count is whole.

use std::time::Duration;

use jiff::Timestamp;
use minijinja::{Value, context};

use super::shapes::{Attempt, FoundDelivery, List, Row};

/// Longest time that is shown: a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Steps of the chart.
const STEPS: usize = 24;
/// Shortest time that is shown, in milliseconds: a step is not shorter than a minute.
const SHORTEST_MS: i64 = STEPS as i64 * 60_000;

/// What happened in one step of the chart.
#[derive(Debug, Clone, Default)]
struct Step {
    accepted: u64,
    failed: u64,
    received: u64,
    /// How long answers took, in milliseconds.
    answers: Vec<i64>,
    /// How long after their publish events were accepted, in milliseconds.
    delays: Vec<i64>,
}

/// The steps of the chart.
struct Steps {
    begin: i64,
    length: i64,
    steps: Vec<Step>,
}

impl Steps {
    /// The step that a moment is in.
    fn at(&mut self, at: i64) -> Option<&mut Step> {
        let place = usize::try_from((at - self.begin) / self.length).ok().filter(|_| at >= self.begin)?;
        self.steps.get_mut(place.min(STEPS - 1))
    }
}

/// The chart up to `now`, from the logs of webhooks, from the newest deliveries that were accepted, and from what was received.
pub(super) fn of(
    now: Timestamp,
    logs: &[List<Attempt>],
    delivered: &List<FoundDelivery>,
    received: &List<Row>,
) -> Value {
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
    let length = ((now - begin) / STEPS as i64).max(1);
    let mut steps = Steps { begin, length, steps: vec![Step::default(); STEPS] };
    for (at, attempt) in attempts {
        let Some(step) = steps.at(at) else { continue };
        *if attempt.is_success() { &mut step.accepted } else { &mut step.failed } += 1;
        step.answers.push(i64::try_from(attempt.duration_ms).unwrap_or(i64::MAX));
    }
    for (at, delay) in delivered.items.iter().filter_map(delay) {
        steps.at(at).into_iter().for_each(|step| step.delays.push(delay));
    }
    rows.into_iter().for_each(|at| steps.at(at).into_iter().for_each(|step| step.received += 1));
    shown(&steps)
}

/// When a delivery was accepted, and how long after its event's publish.
fn delay(of: &FoundDelivery) -> Option<(i64, i64)> {
    let last = of.last_attempt.as_ref()?;
    let accepted_at = ms(&last.started_at)? + i64::try_from(last.duration_ms).ok()?;
    Some((accepted_at, (accepted_at - ms(&of.created_at)?).max(0)))
}

fn shown(Steps { begin, length, steps }: &Steps) -> Value {
    let show = |at: i64| Timestamp::from_millisecond(at).map(|at| at.to_string()).unwrap_or_default();
    let of_step = |(place, step): (usize, &Step)| {
        let Step { accepted, failed, received, answers, delays } = step;
        let (answer, delay) = (median(answers.clone()), median(delays.clone()));
        context! { at => show(begin + place as i64 * length), accepted, failed, received, answer, delay }
    };
    let sum = |pick: fn(&Step) -> u64| steps.iter().map(pick).sum::<u64>();
    let all = |pick: fn(&Step) -> &Vec<i64>| median(steps.iter().flat_map(pick).copied().collect());
    let (accepted, failed, received) = (sum(|step| step.accepted), sum(|step| step.failed), sum(|step| step.received));
    context! {
        from => show(*begin), accepted, failed, received,
        rate => (accepted + failed > 0).then(|| ((1000 * accepted / (accepted + failed)) as f64 / 10.0).to_string()),
        answer => all(|step| &step.answers), delay => all(|step| &step.delays),
        steps => steps.iter().enumerate().map(of_step).collect::<Vec<_>>(),
    }
}

/// The median of times in milliseconds, in seconds.
fn median(mut times: Vec<i64>) -> Option<f64> {
    times.sort_unstable();
    times.get(times.len() / 2).map(|ms| *ms as f64 / 1000.0)
}

fn ms(at: &str) -> Option<i64> {
    at.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::super::shapes::LastAttempt;
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
        let none = List::empty();
        let delivered = |created_at: &str, started_at: &str| FoundDelivery {
            delivery_id: "e".into(),
            event_type: "t".into(),
            webhook_id: "w".into(),
            created_at: created_at.into(),
            state: "delivered".into(),
            next_attempt_at: None,
            attempts: 1,
            last_attempt: Some(LastAttempt {
                http_status: 200,
                error_kind: None,
                started_at: started_at.into(),
                duration_ms: 500,
            }),
        };
        let items = vec![
            delivered("2026-12-01T11:58:58Z", "2026-12-01T11:59:00Z"),
            delivered("2026-12-01T10:59:59Z", "2026-12-01T11:00:00Z"),
            delivered("2026-11-01T00:00:00Z", "2026-11-01T00:09:00Z"),
        ];
        let sent = List { items, ..List::empty() };
        let long = log(
            &["2026-12-01T11:59:00Z", "2026-12-01T11:00:00Z", "2026-12-01T02:00:09Z", "2026-11-29T00:00:00Z"],
            false,
        );
        let short = log(&["2026-12-01T11:30:09Z", "2026-12-01T10:00:00Z"], true);
        let count = |chart: &Value, name: &str| chart.get_attr(name).unwrap().as_i64().unwrap();
        let whole = of(now, std::slice::from_ref(&long), &sent, &none);
        assert_eq!((count(&whole, "accepted"), count(&whole, "failed")), (2, 1), "a day, and not what was before it");
        let seconds = |chart: &Value, name: &str| f64::try_from(chart.get_attr(name).unwrap()).ok();
        assert_eq!((seconds(&whole, "answer"), seconds(&whole, "delay")), (Some(0.01), Some(2.5)));
        let cut = of(now, &[long, short], &List::empty(), &none);
        assert_eq!(cut.get_attr("from").unwrap().as_str(), Some("2026-12-01T10:00:00Z"));
        assert_eq!((count(&cut, "accepted"), count(&cut, "failed")), (3, 1), "nothing from before the cut");
        assert_eq!(seconds(&cut, "delay"), None);
    }
}
