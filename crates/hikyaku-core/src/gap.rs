//! Which periods of a provider's list are read, and what a listed item means beside what is known here.

use std::cmp::Ordering;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// The shortest period: providers compare by whole seconds, if not finer.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A half-open period, `[from, to)`, that begins and ends with a whole second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// Its first instant.
    pub from: Timestamp,
    /// The first instant after it.
    pub to: Timestamp,
}

impl Period {
    /// The smallest period of whole seconds that holds all of `[from, to)`; `None` where that is empty.
    pub fn around(from: Timestamp, to: Timestamp) -> Option<Self> {
        let (from, to) = (floor(from), ceil(to));
        (from < to).then_some(Self { from, to })
    }

    /// The period that a cycle at `now` compares, where everything before `mark` was compared by earlier ones.
    ///
    /// It begins `overlap` before the mark, because a list may get an item late; without a mark, `lookback` before now. Both
    /// ends lie on whole seconds, and the second of the mark is read again: of a second that was not over, nothing is known.
    pub fn next(mark: Option<Timestamp>, overlap: Duration, lookback: Duration, now: Timestamp) -> Self {
        let to = floor(now);
        let before = |at: Timestamp, length: Duration| at.checked_sub(length).unwrap_or(Timestamp::MIN);
        let from = floor(mark.map_or_else(|| before(now, lookback), |mark| before(mark.min(now), overlap)));
        // A clock that was set back leaves nothing to read; one second is always there.
        Self { from: from.min(to), to: to.max(after(from.min(to), SECOND)) }
    }

    /// Its first part of at most `length` (whole seconds), and the rest, if there is one.
    pub fn split_at_most(self, length: Duration) -> (Self, Option<Self>) {
        let length = SignedDuration::from_secs(i64::try_from(length.as_secs()).unwrap_or(i64::MAX)).max(SECOND);
        self.split(after(self.from, length))
    }

    /// Its two halves; `None` where it is one second.
    pub fn halves(self) -> Option<(Self, Self)> {
        let half = SignedDuration::from_secs(self.to.duration_since(self.from).as_secs() / 2);
        let (first, rest) = if half.is_zero() { (self, None) } else { self.split(after(self.from, half)) };
        rest.map(|rest| (first, rest))
    }

    /// The smallest period that holds both.
    pub fn and(self, other: Self) -> Self {
        Self { from: self.from.min(other.from), to: self.to.max(other.to) }
    }

    /// Whether it holds an instant.
    pub fn holds(self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }

    fn split(self, at: Timestamp) -> (Self, Option<Self>) {
        if at >= self.to {
            return (self, None);
        }
        (Self { to: at, ..self }, Some(Self { from: at, ..self }))
    }
}

fn floor(at: Timestamp) -> Timestamp {
    let floored = Timestamp::from_second(at.as_nanosecond().div_euclid(1_000_000_000) as i64);
    floored.unwrap_or(Timestamp::MIN)
}

fn ceil(at: Timestamp) -> Timestamp {
    let floored = floor(at);
    if floored == at { at } else { after(floored, SECOND) }
}

fn after(at: Timestamp, length: SignedDuration) -> Timestamp {
    at.checked_add(length).unwrap_or(Timestamp::MAX)
}

/// What a listed item is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing of its key ever came.
    Missing,
    /// It is as we know it.
    Known,
    /// We know something else of it; and what is to be done about that.
    Different(Entry),
}

/// How a listed item is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// As a version of its own time.
    AtItsTime,
    /// As the version that follows the one of these microseconds since 1970: both are of one time, and the list was read
    /// later.
    After(i64),
    /// For those alone who read the present state: something newer came.
    ForReadings,
}

/// What is known here of a listed item's key.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The newest version that came, in microseconds since 1970; `None` where that is forgotten.
    pub micros: Option<i64>,
    /// The `data` that it came with; `None` where that cannot be looked at any more.
    pub data: Option<Value>,
}

/// Compares a listed item with what is known of its key.
///
/// Events and lists carry different sets of members, so only those count that both have.
pub fn compare(listed: &Value, changed_at: Timestamp, known: Option<&Known>) -> Standing {
    let Some(known) = known else { return Standing::Missing };
    let (Value::Object(listed), Some(Value::Object(data))) = (listed, &known.data) else { return Standing::Known };
    let differs = |(name, value): (&String, &Value)| data.get(name).is_some_and(|ours| ours != value);
    if !listed.iter().any(differs) {
        return Standing::Known;
    }
    // Providers write milliseconds at best; what is finer in a version comes from here.
    let newest = known.micros.map(|micros| (micros, changed_at.as_millisecond().cmp(&micros.div_euclid(1_000))));
    Standing::Different(match newest {
        Some((_, Ordering::Greater)) => Entry::AtItsTime,
        Some((micros, Ordering::Equal)) => Entry::After(micros),
        Some((_, Ordering::Less)) | None => Entry::ForReadings,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn period(from: &str, to: &str) -> Period {
        Period { from: at(from), to: at(to) }
    }

    #[test]
    fn t4_a_cycle_begins_before_the_mark_on_whole_seconds() {
        let now = at("2026-11-30T12:00:00.750Z");
        let first = Period::next(None, 2 * HOUR, 24 * HOUR, now);
        assert_eq!(first, period("2026-11-29T12:00:00Z", "2026-11-30T12:00:00Z"));
        let next = Period::next(Some(first.to), 2 * HOUR, 24 * HOUR, at("2026-11-30T13:00:00.1Z"));
        assert_eq!(next, period("2026-11-30T10:00:00Z", "2026-11-30T13:00:00Z"));
        let without_overlap = Period::next(Some(first.to), Duration::ZERO, HOUR, at("2026-11-30T13:00:00.1Z"));
        assert_eq!(without_overlap.from, first.to, "the second that was not over is read again");
        let set_back = Period::next(Some(now), HOUR, HOUR, at("2026-11-30T09:00:00Z"));
        assert_eq!(set_back, period("2026-11-30T08:00:00Z", "2026-11-30T09:00:00Z"));
        let at_once = Period::next(Some(now), Duration::ZERO, HOUR, now);
        assert_eq!(at_once, period("2026-11-30T12:00:00Z", "2026-11-30T12:00:01Z"));
    }

    #[test]
    fn a_period_that_was_asked_for_is_widened_to_whole_seconds() {
        let asked = Period::around(at("2026-11-30T12:00:00.5Z"), at("2026-11-30T12:00:00.7Z"));
        assert_eq!(asked, Some(period("2026-11-30T12:00:00Z", "2026-11-30T12:00:01Z")));
        assert_eq!(Period::around(at("2026-11-30T12:00:00Z"), at("2026-11-30T12:00:00Z")), None);
        assert_eq!(Period::around(at("2026-11-30T12:00:02Z"), at("2026-11-30T12:00:00Z")), None);
    }

    #[test]
    fn t4_a_period_holds_its_begin_and_not_its_end() {
        let hour = period("2026-11-30T12:00:00Z", "2026-11-30T13:00:00Z");
        for (instant, held) in [
            ("2026-11-30T11:59:59.999Z", false),
            ("2026-11-30T12:00:00Z", true),
            ("2026-11-30T12:59:59.999Z", true),
            ("2026-11-30T13:00:00Z", false),
        ] {
            assert_eq!(hour.holds(at(instant)), held, "{instant}");
        }
    }

    #[test]
    fn c4_only_what_both_have_is_compared() {
        let now = at("2026-11-30T12:00:00Z");
        let known = |data: Value| Known { micros: Some(now.as_microsecond()), data: Some(data) };
        let listed = json!({"id": "a", "total": 2, "more": true});
        assert_eq!(compare(&listed, now, None), Standing::Missing);
        assert_eq!(compare(&listed, now, Some(&known(json!({"id": "a", "odd": 1})))), Standing::Known);
        assert_eq!(compare(&listed, now, Some(&Known { micros: None, data: None })), Standing::Known);
        let other = known(json!({"id": "a", "total": 3}));
        let micros = now.as_microsecond();
        assert_eq!(compare(&listed, now, Some(&other)), Standing::Different(Entry::After(micros)));
        let followed = Known { micros: Some(micros + 1), ..other.clone() };
        assert_eq!(compare(&listed, now, Some(&followed)), Standing::Different(Entry::After(micros + 1)));
        let earlier = now.checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(compare(&listed, earlier, Some(&other)), Standing::Different(Entry::ForReadings));
        let later = now.checked_add(HOUR).unwrap();
        assert_eq!(compare(&listed, later, Some(&other)), Standing::Different(Entry::AtItsTime));
        assert_eq!(compare(&listed, later, Some(&known(listed.clone()))), Standing::Known);
    }

    proptest! {
        /// However a period is cut, every instant lies in exactly one part.
        #[test]
        fn parts_share_nothing_and_leave_nothing_out(from in 0_i64..100_000, length in 1_i64..100_000, cut in 0_u64..100_000) {
            let second = |second| Timestamp::from_second(second).unwrap();
            let whole = Period { from: second(from), to: second(from + length) };
            for (first, rest) in [Some(whole.split_at_most(Duration::from_secs(cut))), whole.halves().map(|(a, b)| (a, Some(b)))].into_iter().flatten() {
                prop_assert_eq!(first.from, whole.from);
                prop_assert!(first.from < first.to);
                prop_assert_eq!(rest.map_or(first.to, |rest| rest.from), first.to);
                prop_assert_eq!(rest.map_or(first.to, |rest| rest.to), whole.to);
                prop_assert!(rest.is_none_or(|rest| rest.from < rest.to));
            }
            prop_assert_eq!(whole.halves().is_none(), length == 1);
        }
    }
}
