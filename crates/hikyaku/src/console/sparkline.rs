//! How a webhook's last attempts went, in a strip: one bar for each, as high as it was slow; what failed has another form,
//! not only another colour.

use minijinja::{Value, context};

use super::shapes::Attempt;

/// Height of the strip, in pixels.
const HEIGHT: f64 = 28.0;
/// Width of a bar and the gap behind it, in pixels.
const STEP: f64 = 5.0;
/// Lowest bar, in pixels: what is fast is seen too.
const LOWEST: f64 = 3.0;

/// The strip, from attempts that stand newest first.
pub(super) fn of(attempts: &[Attempt]) -> Value {
    let slowest = attempts.iter().map(|attempt| attempt.duration_ms).max().unwrap_or(0).max(1) as f64;
    let bar = |(position, attempt): (usize, &Attempt)| {
        let height = (LOWEST + (HEIGHT - LOWEST) * attempt.duration_ms as f64 / slowest).round();
        context! { x => position as f64 * STEP, y => HEIGHT - height, height, ok => attempt.is_success() }
    };
    let bars: Vec<_> = attempts.iter().rev().enumerate().map(bar).collect();
    let failed = attempts.iter().filter(|attempt| !attempt.is_success()).count();
    let mut durations: Vec<_> = attempts.iter().map(|attempt| attempt.duration_ms).collect();
    durations.sort_unstable();
    let median = durations.get(durations.len() / 2).copied().unwrap_or(0);
    context! { width => bars.len() as f64 * STEP, count => bars.len(), bars, failed, median => median as f64 / 1000.0 }
}
