//! From which due time on a node looks for work.
//!
//! What has ended stays in the indexes until it is cleaned up, which a transaction that is open for long prevents, anywhere
//! in the database. Whoever looked from the first due time on would walk past all of it. So a look begins a little before
//! the last one. What another node's clock or a slow commit made due before that is found by a look further back, and
//! whatever else there may be by a look at everything.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

use super::columns::millis;

/// How far before the last look a look begins, in milliseconds: more than clocks differ and a commit takes.
const BACK: i64 = 2_000;
/// How far back a wide look begins: longer than a commit that is tried again may take.
const WIDE_BACK: i64 = 60_000;
/// How often there is a wide look.
const WIDE_EVERY: i64 = 5_000;
/// How often everything is looked at.
const WHOLE_EVERY: i64 = 60_000;

/// When was looked how far back, in milliseconds of the schedule clock; nothing before the first look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Looks(Option<Times>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    last: i64,
    wide: i64,
    whole: i64,
}

impl Looks {
    /// From which due time on is looked at `now`; `None`: at everything.
    pub(super) fn from(self, now: i64) -> Option<i64> {
        let Times { last, wide, whole } = self.0?;
        match () {
            () if now < last || now - whole >= WHOLE_EVERY => None,
            () if now - wide >= WIDE_EVERY => Some((now - WIDE_BACK).min(last - BACK)),
            () => Some(last - BACK),
        }
    }

    /// These and one at `now` that began at `from`.
    pub(super) fn and(self, now: i64, from: Option<i64>) -> Self {
        let all = Times { last: now, wide: now, whole: now };
        let (Some(before), Some(from)) = (self.0, from) else { return Self(Some(all)) };
        let wide = if from <= now - WIDE_BACK { now } else { before.wide };
        Self(Some(Times { last: now, wide, whole: before.whole }))
    }
}

/// The earliest due time that this node itself has written since its last look: a look begins there at the latest.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<Option<i64>>);

impl Written {
    /// Notes due times, whether or not what was written is there.
    pub(super) fn note(&self, due: impl IntoIterator<Item = Timestamp>) {
        let mut earliest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *earliest = due.into_iter().map(millis).chain(*earliest).min();
    }

    /// What was noted, for a look that begins now; to be noted again if that fails.
    pub(super) fn take(&self) -> Option<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&self, taken: Option<i64>) {
        let mut earliest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *earliest = taken.into_iter().chain(*earliest).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_go_back_a_little_and_at_times_far_and_at_times_at_everything() {
        let mut looks = Looks::default();
        let mut look = |now| {
            let from = looks.from(now);
            looks = looks.and(now, from);
            from
        };
        assert_eq!(look(100_000), None);
        assert_eq!(look(101_000), Some(98_000));
        assert_eq!(look(104_999), Some(99_000));
        assert_eq!(look(105_000), Some(45_000));
        assert_eq!(look(109_000), Some(103_000));
        assert_eq!(look(159_999), Some(99_999));
        assert_eq!(look(160_000), None);
        assert_eq!(look(160_001), Some(158_000));
        assert_eq!(look(150_000), None, "a clock that went back");
        assert_eq!(look(400_000), None);
    }

    #[test]
    fn a_wide_look_after_a_rest_begins_before_the_last_one() {
        let looks = Looks::default().and(0, None).and(50_000, Some(-10_000));
        assert_eq!(looks.from(59_000), Some(-1_000));
        assert_eq!(Looks::default().and(0, None).from(59_999), Some(-2_000));
    }
}
