//! When to try again: the sender's fixed schedule (R7, R8), and the growing pauses of the inbox's own work (C15).

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use serde::{Deserialize, Serialize};

use crate::webhook::seconds;

/// Most delays a schedule may have.
pub const MAX_RETRY_DELAYS: usize = 20;
/// Shortest single delay that can be set: with none at all, a failing endpoint gets its attempts as one volley.
pub const MIN_RETRY_DELAY: Duration = Duration::from_millis(1);
/// Longest single delay: a week. Longer than that nobody waits for a webhook, and sums stay far from overflow.
pub const MAX_RETRY_DELAY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Longest time by which an answer may postpone the next attempt: a day.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);
/// Longest `Retry-After` that is read, in bytes: a date has 29 (S25).
const MAX_RETRY_AFTER_BYTES: usize = 32;

/// Reads `Retry-After`: seconds, or a date as HTTP writes it, which is compared with `now` by the wall clock. `None` where
/// it is neither; a date that has passed is no wait.
pub fn parse_retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.is_empty() || value.len() > MAX_RETRY_AFTER_BYTES {
        return None;
    }
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number holds ask for longer than anybody waits.
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(value).ok().filter(|_| value.ends_with(" GMT"))?;
    Some(Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO))
}

/// The pauses between a delivery's attempts, each counted from the end of the attempt before (R8). As JSON it is a list
/// of seconds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<f64>")]
pub struct RetrySchedule(Vec<Duration>);

/// Why a list of delays is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// More than [`MAX_RETRY_DELAYS`].
    #[error("has {0} delays; at most {MAX_RETRY_DELAYS} are allowed")]
    TooMany(usize),
    /// One is longer than [`MAX_RETRY_DELAY`].
    #[error("has a delay of {0:?}; at most a week is allowed")]
    TooLong(Duration),
    /// One is negative, or no number of seconds that anybody could wait.
    #[error("has the delay {0}, which is no length of time to the millisecond")]
    NotALength(String),
}

impl Default for RetrySchedule {
    /// The contract's: four attempts, the last about 71 minutes after the first (R7, R8).
    fn default() -> Self {
        Self([60, 600, 3600].map(Duration::from_secs).to_vec())
    }
}

impl RetrySchedule {
    /// Takes the delays in their order.
    pub fn new(delays: Vec<Duration>) -> Result<Self, InvalidSchedule> {
        if delays.len() > MAX_RETRY_DELAYS {
            return Err(InvalidSchedule::TooMany(delays.len()));
        }
        match delays.iter().find(|d| **d > MAX_RETRY_DELAY) {
            Some(delay) => Err(InvalidSchedule::TooLong(*delay)),
            None => Ok(Self(delays)),
        }
    }

    /// The shortest of the delays; `None` where there are none.
    pub fn shortest(&self) -> Option<Duration> {
        self.0.iter().min().copied()
    }

    /// Attempts a delivery gets at most: one more than there are delays (R7).
    pub fn max_attempts(&self) -> u32 {
        // At most MAX_RETRY_DELAYS + 1, so the cast cannot cut anything off.
        self.0.len() as u32 + 1
    }

    /// The pause after the `ended`-th attempt (counted from 1), or `None` when that was the last.
    pub fn delay_after(&self, ended: u32) -> Option<Duration> {
        self.0.get(usize::try_from(ended.checked_sub(1)?).ok()?).copied()
    }
}

impl TryFrom<Vec<f64>> for RetrySchedule {
    type Error = InvalidSchedule;
    fn try_from(numbers: Vec<f64>) -> Result<Self, InvalidSchedule> {
        let length = |number| seconds::read(number).ok_or_else(|| InvalidSchedule::NotALength(number.to_string()));
        Self::new(numbers.into_iter().map(length).collect::<Result<_, _>>()?)
    }
}

impl Serialize for RetrySchedule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|delay| seconds::Number(*delay)))
    }
}

/// Growing pauses with jitter, for work we retry on our own side (C15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// When this long has passed since the work was received, it is dead.
    pub give_up_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(3600),
            give_up_after: Duration::from_secs(3 * 24 * 3600),
        }
    }
}

impl Backoff {
    /// When to try again after `failures` failures in a row, or `None` when it is time to give up.
    ///
    /// The pause doubles from `first` up to `longest`, and a draw in `0.0..=1.0` takes away up to half of it, so that
    /// a thousand rows that failed together do not come back together.
    pub fn next(&self, failures: u32, received_at: Timestamp, now: Timestamp, draw: f64) -> Option<Timestamp> {
        let doublings = failures.saturating_sub(1).min(31);
        let pause = self.first.saturating_mul(1 << doublings).min(self.longest);
        let pause = pause.mul_f64(1.0 - draw.clamp(0.0, 1.0) / 2.0);
        let at = now.checked_add(pause).ok()?;
        let deadline = received_at.checked_add(self.give_up_after).ok()?;
        (at <= deadline).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r7_r8_the_default_is_four_attempts_over_seventy_one_minutes() {
        let schedule = RetrySchedule::default();
        let delays: Vec<_> = (1..=4).map(|n| schedule.delay_after(n).map(|d| d.as_secs())).collect();
        assert_eq!(delays, [Some(60), Some(600), Some(3600), None]);
        assert_eq!(schedule.max_attempts(), 4);
        assert_eq!(delays.iter().flatten().sum::<u64>(), 71 * 60);
        assert_eq!(schedule.delay_after(0), None);
    }

    #[test]
    fn a_schedule_beyond_its_bounds_is_refused() {
        assert!(RetrySchedule::new(vec![Duration::ZERO; MAX_RETRY_DELAYS]).is_ok());
        assert!(RetrySchedule::new(vec![Duration::ZERO; MAX_RETRY_DELAYS + 1]).is_err());
        assert!(RetrySchedule::new(vec![MAX_RETRY_DELAY + Duration::from_nanos(1)]).is_err());
    }

    #[test]
    fn r8_the_shortest_delay_may_stand_anywhere() {
        let schedule = |seconds: &[u64]| RetrySchedule::new(seconds.iter().copied().map(Duration::from_secs).collect());
        for (delays, shortest) in [(&[60, 5, 600][..], Some(5)), (&[7], Some(7)), (&[], None)] {
            assert_eq!(schedule(delays).unwrap().shortest(), shortest.map(Duration::from_secs), "{delays:?}");
        }
    }

    #[test]
    fn s25_retry_after_is_seconds_or_a_short_date_of_http() {
        let now = Timestamp::from_second(784_111_777).unwrap(); // Sun, 06 Nov 1994 08:49:37 GMT
        for (value, seconds) in [
            ("0", Some(0)),
            (" 120 ", Some(120)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 +0100", None),
            ("Mon, 06 Nov 1994 08:50:37 GMT", None),
            ("Sunday, 06-Nov-94 08:50:37 GMT", None),
            ("1994-11-06T08:50:37Z", None),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("00000000000000000000000000000120", Some(120)),
            ("000000000000000000000000000000120", None),
        ] {
            assert_eq!(parse_retry_after(value, now), seconds.map(Duration::from_secs), "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn backoff_stays_within_half_and_whole_of_its_pause(failures in 1u32..200, draw in 0.0f64..=1.0) {
            let backoff = Backoff::default();
            let now = Timestamp::UNIX_EPOCH;
            let at = backoff.next(failures, now, now, draw).unwrap();
            let pause = Duration::try_from(at.duration_since(now)).unwrap();
            let whole = backoff.first.saturating_mul(1 << (failures - 1).min(31)).min(backoff.longest);
            prop_assert!(pause <= whole && pause >= whole / 2);
        }

        #[test]
        fn backoff_gives_up_only_after_its_time(age in 0i64..400_000, failures in 1u32..200) {
            let backoff = Backoff::default();
            let received = Timestamp::UNIX_EPOCH;
            let now = Timestamp::from_second(age).unwrap();
            let next = backoff.next(failures, received, now, 0.0);
            if age + 3600 <= 3 * 24 * 3600 { prop_assert!(next.is_some()); }
            if age > 3 * 24 * 3600 { prop_assert!(next.is_none()); }
        }
    }
}
