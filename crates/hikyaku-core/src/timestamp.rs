//! Reading and writing points in time.
//!
//! We write RFC 3339 in UTC with milliseconds. We read any offset, and epoch seconds or milliseconds, because
//! providers differ; nothing else (S25).

use jiff::Timestamp;

/// Longest text that is looked at as a timestamp, in bytes (S25).
pub const MAX_TIMESTAMP_BYTES: usize = 40;
/// Integers from here on are milliseconds, below it seconds: the second 100,000,000,000 is in the year 5138, the
/// millisecond 100,000,000,000 was in 1973.
const FIRST_MILLISECOND: u64 = 100_000_000_000;
/// When the year 0 begins, in milliseconds; RFC 3339 has no way to write what was before.
const FIRST_YEAR: i64 = -62_167_219_200_000;
/// In a millisecond.
const NANOSECONDS: i128 = 1_000_000;

/// RFC 3339 in UTC with exactly three digits of a second, as in `2026-11-30T09:15:00.000Z`. What is finer is cut off
/// towards 1970, as it is where times are kept.
pub fn format(at: Timestamp) -> String {
    let whole = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    format!("{whole:.3}")
}

/// Reads RFC 3339 with any offset, or an integer of epoch seconds or milliseconds; `None` for anything else.
pub fn parse(text: &str) -> Option<Timestamp> {
    if text.is_empty() || text.len() > MAX_TIMESTAMP_BYTES {
        return None;
    }
    let at: Timestamp = match text.parse::<i64>() {
        Ok(number) => from_epoch(number)?,
        // jiff also reads a bracketed time zone (RFC 9557) and a space for the T; RFC 3339 has no zone name.
        Err(_) if text.contains('[') => return None,
        Err(_) => text.parse().ok()?,
    };
    // To the nanosecond: milliseconds are cut off towards 1970, and what is less than one before the year is in it then.
    (at.as_nanosecond() >= i128::from(FIRST_YEAR) * NANOSECONDS).then_some(at)
}

fn from_epoch(number: i64) -> Option<Timestamp> {
    if number.unsigned_abs() >= FIRST_MILLISECOND {
        Timestamp::from_millisecond(number).ok()
    } else {
        Timestamp::from_second(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_one_instant_is_read_alike() {
        let expected = parse("2026-11-30T09:15:00.250Z").unwrap();
        for text in ["2026-11-30T18:15:00.25+09:00", "2026-11-30T04:15:00.250-05:00", "1796030100250"] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        assert_eq!(parse("1796030100").map(format).as_deref(), Some("2026-11-30T09:15:00.000Z"));
    }

    #[test]
    fn s25_anything_else_is_no_timestamp() {
        // A number, if anybody looked at it.
        let long = format!("{:0>1$}", 1_796_030_100, MAX_TIMESTAMP_BYTES + 1);
        let least = i64::MIN.to_string();
        for text in ["", "yesterday", "2026-11-30", "2026-13-01T00:00:00Z", "1e400", "2026-11-30T00:00:00Z[UTC]"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in [&long, &least] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&long[1..]), Timestamp::from_second(1_796_030_100).ok(), "it is as long as one may be");
    }

    #[test]
    fn what_rfc_3339_cannot_write_is_not_taken() {
        assert_eq!(parse("-62167219200000").map(format).as_deref(), Some("0000-01-01T00:00:00.000Z"));
        for text in [
            "-62167219200001",
            "-000001-12-31T23:59:59.999Z",
            "-000001-12-31T23:59:59.9992Z",
            "0000-01-01T00:00:00+00:01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_finer_than_a_millisecond_is_cut_off_alike_in_writing_and_in_keeping() {
        for text in ["0000-12-30T22:00:00.9499Z", "1969-12-31T23:59:59.9991Z", "2026-11-30T09:15:00.2509Z"] {
            let at = parse(text).unwrap();
            let kept = Timestamp::from_millisecond(at.as_millisecond()).unwrap();
            assert_eq!(parse(&format(at)), Some(kept), "{text}");
        }
    }

    #[test]
    fn the_last_instants_are_as_documented() {
        let last = "9999-12-30T22:00:00.999Z";
        assert_eq!(parse(last).map(format).as_deref(), Some(last));
        assert_eq!(parse("9999-12-31T00:00:00Z"), None);
        assert_eq!(parse("99999999999").map(format).as_deref(), Some("5138-11-16T09:46:39.000Z"));
        assert_eq!(parse("100000000000").map(format).as_deref(), Some("1973-03-03T09:46:40.000Z"));
    }

    #[test]
    fn we_write_milliseconds_always() {
        assert_eq!(format(Timestamp::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
    }
}
