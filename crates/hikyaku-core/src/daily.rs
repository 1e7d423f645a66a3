//! Times of day at which something is due, by the clock of a place.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Most times of a day.
pub const MAX_TIMES: usize = 24;

/// How long a day is that no clock is set on.
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Times of day, at least one, and where they are these times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daily {
    times: Vec<Time>,
    zone: TimeZone,
}

impl Daily {
    /// These times, in any order; `None` where there are none, or more than [`MAX_TIMES`].
    pub fn new(mut times: Vec<Time>, zone: TimeZone) -> Option<Self> {
        times.sort_unstable();
        times.dedup();
        (1..=MAX_TIMES).contains(&times.len()).then_some(Self { times, zone })
    }

    /// The first of these times after an instant. One that a clock leaves out, as it is set forward, is as much later; one
    /// that it shows twice is the first of the two.
    pub fn next(&self, after: Timestamp) -> Timestamp {
        let today = after.to_zoned_datetime(self.zone.clone()).date();
        let days = std::iter::successors(Some(today), |day| day.tomorrow().ok()).take(3);
        let mut all = days.flat_map(|day| self.times.iter().map(move |time| day.to_datetime(*time)));
        let next = all.find_map(|at| self.zone.to_timestamp(at).ok().filter(|at| *at > after));
        // There is always one, but at the end of time.
        next.unwrap_or_else(|| after.saturating_add(DAY).unwrap_or(Timestamp::MAX))
    }

    /// The times as they are written, the earliest first.
    pub fn times(&self) -> impl Iterator<Item = String> {
        self.times.iter().map(|time| format!("{:02}:{:02}", time.hour(), time.minute()))
    }

    /// Where they are these times.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// Reads a time of day as in `03:30`; nothing else is one.
pub fn parse_time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i8>().ok().filter(|_| is_number)
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daily(times: &[&str], zone: TimeZone) -> Daily {
        Daily::new(times.iter().map(|time| parse_time(time).unwrap()).collect(), zone).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_next_time_is_after_now_by_the_clock_of_the_place() {
        let tokyo = daily(&["15:00", "03:30"], TimeZone::fixed(jiff::tz::offset(9)));
        for (after, next) in [
            ("2026-11-30T18:29:59.999Z", "2026-11-30T18:30:00Z"),
            ("2026-11-30T18:30:00Z", "2026-12-01T06:00:00Z"),
            ("2026-12-31T06:00:00Z", "2026-12-31T18:30:00Z"),
        ] {
            assert_eq!(tokyo.next(at(after)), at(next), "{after}");
        }
        assert_eq!(tokyo.times().collect::<Vec<_>>(), ["03:30", "15:00"]);
        assert!(tokyo.next(Timestamp::MAX) == Timestamp::MAX);
        assert_eq!(*tokyo.zone(), TimeZone::fixed(jiff::tz::offset(9)));
    }

    #[test]
    fn a_clock_that_is_set_costs_no_day_and_gives_none_twice() {
        // Forward on the second Sunday of March at 2:00, back on the first of November at 2:00.
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let daily = daily(&["01:30", "02:30"], zone);
        let mut now = at("2026-03-08T05:00:00Z");
        let mut next = || {
            now = daily.next(now);
            now
        };
        assert_eq!(
            [next(), next(), next()],
            ["2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z", "2026-03-09T05:30:00Z"].map(at)
        );
        now = at("2026-11-01T05:00:00Z");
        let mut next = || {
            now = daily.next(now);
            now
        };
        assert_eq!(
            [next(), next(), next()],
            ["2026-11-01T05:30:00Z", "2026-11-01T07:30:00Z", "2026-11-02T06:30:00Z"].map(at)
        );
    }

    #[test]
    fn a_time_of_day_is_two_digits_twice() {
        assert_eq!(parse_time("23:59").map(|time| (time.hour(), time.minute())), Some((23, 59)));
        for wrong in ["", "3:30", "03:3", "24:00", "03:60", "03:30:00", "+3:30", "03.30", "aa:bb"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
        assert_eq!(Daily::new(Vec::new(), TimeZone::UTC), None);
    }
}
