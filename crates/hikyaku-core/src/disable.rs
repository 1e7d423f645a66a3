//! When a webhook is switched off (R10, R11, R17).

use std::fmt;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::delivery::History;

/// Highest number of exhausted events that can be set.
pub const MAX_DISABLE_AFTER: u32 = 1000;

/// How many exhausted events, with no success between them, switch a webhook off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisableAfter {
    /// So many: 1 to [`MAX_DISABLE_AFTER`].
    Events(u32),
    /// None ever do.
    Never,
}

impl Default for DisableAfter {
    /// By the contract one is enough (R11).
    fn default() -> Self {
        Self::Events(1)
    }
}

/// Whether a delivery that has used up its attempts counts towards switching its webhook off.
///
/// By the contract every one does (R11). The exceptions are ours. In the spirit of R17, an attempt that *we* spoiled (our
/// crash, our lack of sockets) says nothing about the receiver, so a delivery with such an attempt among its own never
/// counts. Nor does a run that somebody asked for (R13): whoever sends an old event again to see whether the endpoint is
/// well must not switch it off for all events by that.
pub fn counts(history: History) -> bool {
    history.spoiled_by_us == 0 && !history.on_request
}

/// Whether so many exhausted events since the last success, or since it was switched on, switch a webhook off.
pub fn switches_off(after: DisableAfter, exhausted: u32) -> bool {
    match after {
        DisableAfter::Events(most) => exhausted >= most,
        DisableAfter::Never => false,
    }
}

impl Serialize for DisableAfter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Events(number) => serializer.serialize_u32(*number),
            Self::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for DisableAfter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrNever;
        impl Visitor<'_> for NumberOrNever {
            type Value = DisableAfter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 1 to {MAX_DISABLE_AFTER}, or \"never\"")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<DisableAfter, E> {
                match u32::try_from(number) {
                    Ok(number @ 1..=MAX_DISABLE_AFTER) => Ok(DisableAfter::Events(number)),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<DisableAfter, E> {
                match word {
                    "never" => Ok(DisableAfter::Never),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(NumberOrNever)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r10_r11_so_many_exhausted_events_switch_off() {
        assert!(switches_off(DisableAfter::default(), 1));
        for (after, exhausted, off) in [(3, 2, false), (3, 3, true), (3, 4, true), (1, 0, false)] {
            assert_eq!(switches_off(DisableAfter::Events(after), exhausted), off, "{exhausted} of {after}");
        }
        assert!(!switches_off(DisableAfter::Never, u32::MAX));
    }

    #[test]
    fn r11_the_setting_is_read_as_it_is_written() {
        let read = serde_json::from_str::<DisableAfter>;
        for (text, after) in [
            ("1", DisableAfter::Events(1)),
            ("1000", DisableAfter::Events(MAX_DISABLE_AFTER)),
            (r#""never""#, DisableAfter::Never),
        ] {
            assert_eq!(read(text).unwrap(), after);
            assert_eq!(serde_json::to_string(&after).unwrap(), text);
        }
        for wrong in ["0", "1001", "4294967297", "-1", r#""Never""#, "true"] {
            let refused = read(wrong).unwrap_err().to_string();
            assert!(refused.contains("a whole number from 1 to 1000, or \"never\""), "{wrong}: {refused}");
        }
    }
}
