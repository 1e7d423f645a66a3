//! What ReceiptRoller alone has.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// The zone by whose months ReceiptRoller names sales unless something else is set: Japan's, which has had one offset and
/// no summer time since 1952.
pub fn shop_zone() -> TimeZone {
    TimeZone::fixed(Offset::constant(9))
}

/// The business key of a sale that was read from the provider's list, which gives its parts: what `data.id` is in the
/// sale's event (R24). Whatever month comes in an event is taken as it is.
pub fn sale_key(terminal: &str, sold_at: Timestamp, transaction: &str, zone: &TimeZone) -> String {
    let (year, month) = month_of(sold_at, zone);
    format!("{terminal}|{year:04}-{month:02}|{transaction}")
}

/// The year and the month that a zone's clocks show.
pub fn month_of(at: Timestamp, zone: &TimeZone) -> (i16, i8) {
    let there = zone.to_datetime(at);
    (there.year(), there.month())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::provider::{Headers, Preset, Verifier};
    use crate::timestamp;

    /// The key in an event, of which the provider has computed the month.
    fn pushed(id: &str) -> Option<String> {
        let body = format!(r#"{{"type":"sale.created","data":{{"id":"{id}"}}}}"#);
        Verifier::new(Preset::ReceiptRoller.profile(), &[]).read(&Headers::default(), body.as_bytes()).key
    }

    #[test]
    fn case15_a_sale_around_a_months_end_has_one_key_from_push_and_from_list() {
        for (sold_at, month) in [
            ("2026-11-30T23:30:00-05:00", "2026-12"),
            ("2026-12-01T00:30:00+14:00", "2026-11"),
            ("2026-12-01T00:30:00+09:00", "2026-12"),
            ("2026-11-30T15:00:00Z", "2026-12"),
            ("2026-11-30T14:59:59.999Z", "2026-11"),
            ("2026-12-31T23:30:00-05:00", "2027-01"),
        ] {
            let listed = sale_key("T01", timestamp::parse(sold_at).unwrap(), "1001", &shop_zone());
            assert_eq!(pushed(&format!("T01|{month}|1001")), Some(listed), "{sold_at}");
        }
    }

    #[test]
    fn case15_the_zone_can_be_another_and_a_pushed_month_is_nobodys_to_judge() {
        let sold_at = timestamp::parse("2026-12-01T00:30:00+14:00").unwrap();
        assert_eq!(sale_key("T01", sold_at, "1", &TimeZone::fixed(Offset::constant(14))), "T01|2026-12|1");
        for id in ["T01|2026-13|1", "T01||1", "||"] {
            assert_eq!(pushed(id).as_deref(), Some(id));
        }
    }

    proptest! {
        #[test]
        fn case15_the_offset_in_which_a_time_is_written_changes_no_key(second in 0_i64..4_000_000_000, quarters in -48_i32..=56) {
            let at = Timestamp::from_second(second).unwrap();
            let offset = Offset::from_seconds(quarters * 900).unwrap();
            let written = at.display_with_offset(offset).to_string();
            let read = timestamp::parse(&written).unwrap();
            prop_assert_eq!(sale_key("T", read, "1", &shop_zone()), sale_key("T", at, "1", &shop_zone()));
        }
    }
}
