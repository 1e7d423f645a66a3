//! Which of two events about one object is the newer (C4).

use std::fmt;

use hikyaku_core::ordering;
use jiff::Timestamp;

/// When the year 0 begins, in seconds since 1970: before it, texts would not sort like times.
const FIRST_SECOND: i64 = -62_167_219_200;

/// Where an event stands in the history of its object: by timestamp, then by what it does (created, changed, ended),
/// then by its id, so that any two events have an order and every receiver finds the same one (C4).
///
/// It is kept as one text, and texts compare as versions do, byte for byte. So one column beside your data is all that
/// the guard needs, in SQL as well (`TEXT` in SQLite, `text COLLATE "C"` in PostgreSQL):
///
/// ```sql
/// INSERT INTO sales (id, total, version) VALUES (?1, ?2, ?3)
/// ON CONFLICT (id) DO UPDATE SET total = excluded.total, version = excluded.version
/// WHERE excluded.version > sales.version
/// ```
///
/// ```
/// use hikyaku_inbox::{Timestamp, Version, is_newer};
///
/// let at = |second| Timestamp::from_second(second).unwrap();
/// let created = Version::new(at(0), "order.created", "e2");
/// let cancelled = Version::new(at(0), "order.cancelled", "e1");
/// assert_eq!(created.as_str(), "1970-01-01T00:00:00.000000Z 0 e2");
/// assert!(is_newer(Some(created.as_str()), &cancelled), "what ends an object comes after what begins it");
/// assert!(!is_newer(Some(cancelled.as_str()), &created));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(String);

impl Version {
    /// The version of an event of `event_type`, sent out `at`; what is finer than a microsecond counts as a tie.
    pub fn new(at: Timestamp, event_type: &str, delivery_id: &str) -> Self {
        let at = at.max(Timestamp::constant(FIRST_SECOND, 0));
        let version = ordering::Version::new(at, event_type, delivery_id);
        let at = Timestamp::from_microsecond(version.micros).unwrap_or(at);
        Self(format!("{at:.6} {} {}", version.rank as u8, version.event))
    }

    /// The version as text, to be kept beside what it is the version of.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether an event may overwrite what `applied` is the version of; `None` if there is nothing yet (C4).
///
/// Without this guard an upsert by key lets a late retry win over newer state (T3). In SQL, let the database compare, as
/// [`Version`] shows, so that nothing comes between the comparison and the write.
pub fn is_newer(applied: Option<&str>, candidate: &Version) -> bool {
    applied.is_none_or(|applied| candidate.as_str() > applied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TYPES: [&str; 4] = ["order.created", "order.updated", "order.cancelled", "odd"];

    fn at() -> impl Strategy<Value = Timestamp> {
        // Few different ones, so that ties are common; and the ends of what can be written.
        let nanos = prop_oneof![
            0i128..3_000,
            -3_000i128..0,
            Just(-62_167_219_200_000_000_000),
            Just(253_402_207_200_999_999_999)
        ];
        nanos.prop_map(|nanos| Timestamp::from_nanosecond(nanos).unwrap())
    }

    proptest! {
        #[test]
        fn c4_texts_compare_as_the_rules_do(a in at(), b in at(), t in 0usize..4, u in 0usize..4, x in "[a-z|.é]{1,3}", y in "[a-z|.é]{1,3}") {
            let rules = ordering::Version::new(a, TYPES[t], x.as_str()).cmp(&ordering::Version::new(b, TYPES[u], y.as_str()));
            let (a, b) = (Version::new(a, TYPES[t], &x), Version::new(b, TYPES[u], &y));
            prop_assert_eq!(rules, a.cmp(&b));
            prop_assert_eq!(rules.is_lt(), is_newer(Some(a.as_str()), &b));
        }
    }

    #[test]
    fn t3_the_first_event_takes_effect_and_the_same_one_does_not_again() {
        let version = Version::new(Timestamp::UNIX_EPOCH, "sale.created", "e1");
        assert!(is_newer(None, &version));
        assert!(!is_newer(Some(version.as_str()), &version));
    }

    #[test]
    fn a_time_that_cannot_be_written_counts_as_the_first_that_can() {
        assert_eq!(Version::new(Timestamp::MIN, "x", "e").as_str(), "0000-01-01T00:00:00.000000Z 1 e");
    }
}
