//! Numbers by their digits: what a binary number cannot hold is no other number (case 3).

/// Longest whole number that is written out, in digits; one of 64 bits has 19.
const MAX_WHOLE_DIGITS: usize = 40;

/// Whether two spellings, both as JSON has numbers, mean exactly the same number.
pub(super) fn same_number(one: &str, other: &str) -> bool {
    match (Decimal::read(one), Decimal::read(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// A number as `0.DIGITS × 10^exponent`, without zeros at either end; zero has no digits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number in the spelling of JSON; `None` for any other text.
    pub(super) fn read(text: &str) -> Option<Self> {
        // The grammar is serde's; what is left is to take the number apart.
        serde_json::from_str::<&serde_json::value::RawValue>(text).ok().filter(|raw| raw.get() == text)?;
        let (negative, unsigned) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let point = i64::try_from(whole.len()).ok()? - i64::try_from(all.len() - digits.len()).ok()?;
        let digits = digits.trim_end_matches('0');
        if digits.is_empty() {
            return Some(Self { negative: false, digits: String::new(), exponent: 0 });
        }
        let exponent = exponent.parse::<i64>().ok()?.checked_add(point)?;
        Some(Self { negative, digits: digits.to_owned(), exponent })
    }

    /// Whether a column of so many digits, `scale` of them behind the point, has room for it once it is rounded to them.
    pub(super) fn fits(&self, precision: i64, scale: i64) -> bool {
        let room = precision - scale;
        if self.digits.is_empty() || self.exponent != room {
            return self.digits.is_empty() || self.exponent < room;
        }
        // One digit more is needed where all that stay are nines and what goes rounds them up.
        let (kept, gone) = self.digits.split_at(self.digits.len().min(usize::try_from(precision).unwrap_or(0)));
        let is_full = kept.bytes().all(|digit| digit == b'9');
        !(is_full && gone.bytes().next().is_some_and(|digit| digit >= b'5'))
    }

    /// The digits of a whole number, however it was written; `None` for one with a fraction, or one too long for any column
    /// of whole numbers.
    pub(super) fn whole(&self) -> Option<String> {
        let length = usize::try_from(self.exponent).ok().filter(|length| *length <= MAX_WHOLE_DIGITS)?;
        if self.digits.is_empty() {
            return Some("0".to_owned());
        }
        let sign = if self.negative { "-" } else { "" };
        (self.digits.len() <= length).then(|| format!("{sign}{:0<length$}", self.digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_fits_where_its_digits_do_after_rounding() {
        for (number, precision, scale, expected) in [
            ("9999.99", 6, 2, true),
            ("9999.994", 6, 2, true),
            ("9999.995", 6, 2, false),
            ("-10000", 6, 2, false),
            ("0", 1, 1, true),
            ("0.95", 1, 1, false),
            ("0.94", 1, 1, true),
            ("1e3", 4, 0, true),
            ("1e4", 4, 0, false),
            ("12345", 3, -2, true),
            ("99950", 3, -2, false),
        ] {
            assert_eq!(Decimal::read(number).unwrap().fits(precision, scale), expected, "{number}");
        }
    }
}
