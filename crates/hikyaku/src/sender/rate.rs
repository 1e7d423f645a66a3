//! How fast attempts at one webhook may follow each other: a token bucket, kept as the one point in time at which it is
//! full again. All times are of the schedule clock.

use std::time::Duration;

use hikyaku_core::webhook::RateLimit;
use jiff::Timestamp;

/// Tokens are waited for in batches that take about this long to come, so that a high rate does not cost a claim for
/// every single attempt.
const BATCH: Duration = Duration::from_millis(20);

/// The bucket of one webhook.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    limit: RateLimit,
    full_at: Timestamp,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, full_at: Timestamp::MIN }
    }

    /// Holds another limit from now on; what was taken stays taken.
    pub(super) fn set(&mut self, limit: RateLimit) {
        self.limit = limit;
    }

    /// How many attempts may start now.
    pub(super) fn tokens(&self, now: Timestamp) -> u32 {
        let missing = self.until_full(now).as_nanos().div_ceil(self.limit.interval().as_nanos());
        self.limit.burst().saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }

    /// Takes one token, whether there is one or not.
    pub(super) fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(now).checked_add(self.limit.interval()).unwrap_or(Timestamp::MAX);
    }

    /// Gives back a token that was not used.
    pub(super) fn give_back(&mut self) {
        self.full_at = self.full_at.checked_sub(self.limit.interval()).unwrap_or(Timestamp::MIN);
    }

    /// Whether it holds all that it can.
    pub(super) fn is_full(&self, now: Timestamp) -> bool {
        self.full_at <= now
    }

    /// When there is a batch of tokens to be had.
    pub(super) fn next(&self) -> Timestamp {
        let interval = self.limit.interval();
        let in_a_batch = u32::try_from(BATCH.as_nanos() / interval.as_nanos()).unwrap_or(u32::MAX);
        let missing_then = self.limit.burst() - in_a_batch.clamp(1, self.limit.burst());
        self.full_at.checked_sub(interval * missing_then).unwrap_or(Timestamp::MIN)
    }

    fn until_full(&self, now: Timestamp) -> Duration {
        Duration::try_from(self.full_at.duration_since(now)).unwrap_or(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_767_225_600_000 + millis).unwrap()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(RateLimit::new(2.0, 3).unwrap());
        assert_eq!((bucket.tokens(at(0)), bucket.is_full(at(0))), (3, true));
        (0..3).for_each(|_| bucket.take(at(0)));
        for (millis, tokens) in [(0, 0), (499, 0), (500, 1), (999, 1), (1000, 2), (1500, 3), (9000, 3)] {
            assert_eq!(bucket.tokens(at(millis)), tokens, "after {millis} ms");
        }
        assert_eq!(bucket.next(), at(500));
        bucket.give_back();
        assert_eq!((bucket.tokens(at(0)), bucket.is_full(at(999)), bucket.is_full(at(1000))), (1, false, true));
    }

    #[test]
    fn a_high_rate_is_waited_for_in_batches_and_a_low_one_token_by_token() {
        let empty = |per_second, burst| {
            let mut bucket = Bucket::new(RateLimit::new(per_second, burst).unwrap());
            (0..burst).for_each(|_| bucket.take(at(0)));
            bucket.next()
        };
        assert_eq!(empty(1000.0, 1000), at(20));
        assert_eq!(empty(1000.0, 5), at(5), "there is never more to wait for than the bucket holds");
        assert_eq!(empty(0.01, 1), at(100_000));
    }

    proptest! {
        #[test]
        fn no_window_ever_holds_more_than_the_burst_and_its_rate(
            hundredths in 1u32..100_000, burst in 1u32..6, steps in proptest::collection::vec(0i64..2_000, 1..40),
        ) {
            let limit = RateLimit::new(f64::from(hundredths) / 100.0, burst).unwrap();
            let mut bucket = Bucket::new(limit);
            let (mut now, mut taken) = (0, Vec::new());
            for step in steps {
                now += step;
                while bucket.tokens(at(now)) > 0 {
                    bucket.take(at(now));
                    taken.push(now);
                }
                prop_assert!(bucket.next() > at(now));
            }
            for (n, from) in taken.iter().enumerate() {
                for (m, until) in taken.iter().enumerate().skip(n) {
                    let allowed = f64::from(burst) + (until - from) as f64 / 1000.0 * f64::from(hundredths) / 100.0;
                    prop_assert!((m - n + 1) as f64 <= allowed + 1e-6, "{} from {from} until {until}", m - n + 1);
                }
            }
        }
    }
}
