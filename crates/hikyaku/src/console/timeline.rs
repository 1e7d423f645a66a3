//! When a delivery's attempts were, on the axis of when they were to be: by the webhook's own pauses, else by the server's
//! (R8: 0, 1, 11 and 71 minutes after the first). The planned attempts stand at equal distances, because pauses usually
//! grow tenfold; what lies between two of them is where its share of that pause is.

use jiff::Timestamp;
use minijinja::{Value, context};

use super::shapes::{Attempt, Delivery};

/// Where the axis begins and ends, in percent of the width.
const BEGIN: f64 = 4.0;
const END: f64 = 90.0;
/// Where whatever was later than planned is shown at last.
const LATE: f64 = 97.0;
/// Most steps that have their time written below them, beside the first.
const MOST_NAMED: usize = 5;

/// The axis and the attempts of a delivery's last run; `pauses` are those between its attempts, in seconds.
pub(super) fn of(delivery: &Delivery, pauses: &[f64]) -> Value {
    let planned = planned(pauses);
    let of_run: Vec<_> = delivery.attempts.iter().filter(|attempt| attempt.run == delivery.run).collect();
    let first = of_run.first().and_then(|attempt| seconds(&attempt.started_at));
    let after = |at: &str| Some(seconds(at)? - first?);
    let mark = |attempt: &&Attempt| {
        let after = after(&attempt.started_at).unwrap_or(0.0).max(0.0);
        context! { x => place(&planned, after), after, attempt => attempt.attempt, ok => attempt.is_success() }
    };
    let next = delivery.next_attempt_at.as_deref().map(|at| after(at).unwrap_or(0.0).max(0.0));
    let named = pauses.len().div_ceil(MOST_NAMED).max(1);
    let tick = |(step, after): (usize, &f64)| context! { x => place(&planned, *after), after => *after, is_named => step % named == 0 };
    let ticks: Vec<_> = planned.iter().enumerate().map(tick).collect();
    context! {
        begin => BEGIN, end => END, ticks,
        marks => of_run.iter().map(mark).collect::<Vec<_>>(),
        next => next.map(|after| context! { x => place(&planned, after), after }),
    }
}

/// Seconds after the first attempt at which each is planned.
fn planned(pauses: &[f64]) -> Vec<f64> {
    let mut at = 0.0;
    let later = pauses.iter().map(|pause| {
        at += pause;
        at
    });
    std::iter::once(0.0).chain(later.collect::<Vec<_>>()).collect()
}

/// Where a moment is on the axis, in percent.
fn place(planned: &[f64], after: f64) -> f64 {
    let last = planned.len() - 1;
    let share = match planned.windows(2).position(|pair| after < pair[1]) {
        Some(step) => step as f64 + (after - planned[step]) / (planned[step + 1] - planned[step]),
        None if after <= planned[last] + 1.0 => last as f64,
        // A retry may come a little after its time; what was long after it is at the end.
        None => return ((END + 1.0) + (after - planned[last]).log10()).clamp(END, LATE),
    };
    let width = if last == 0 { 0.0 } else { (END - BEGIN) / last as f64 };
    ((BEGIN + share * width) * 10.0).round() / 10.0
}

fn seconds(at: &str) -> Option<f64> {
    at.parse::<Timestamp>().ok().map(|at| at.as_millisecond() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r8_the_axis_is_that_of_the_contract() {
        let planned = planned(&[60.0, 600.0, 3600.0]);
        assert_eq!(planned, [0.0, 60.0, 660.0, 4260.0]);
        let width = (END - BEGIN) / 3.0;
        let round = |x: f64| (x * 10.0).round() / 10.0;
        for (after, share) in
            [(0.0, 0.0), (30.0, 0.5), (60.0, 1.0), (360.0, 1.5), (660.0, 2.0), (4260.0, 3.0), (4261.0, 3.0)]
        {
            assert_eq!(place(&planned, after), round(BEGIN + share * width), "{after}");
        }
        assert!(place(&planned, 5000.0) > END && place(&planned, 1e9) == LATE);
        assert_eq!(place(&[0.0], 0.0), BEGIN, "one attempt alone");
    }
}
