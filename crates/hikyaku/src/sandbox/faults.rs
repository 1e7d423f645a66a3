//! What goes wrong, and when: a plan in TOML.
//!
//! ```toml
//! [[fault]]
//! kind = "duplicate"      # of one event in twenty, the delivery comes twice
//! share = 0.05
//! [[fault]]
//! kind = "restart"        # every two hours the provider restarts and loses its retries (R16)
//! every = "2h"
//! ```
//!
//! All times are the sandbox's own: with `--time-scale 60`, `2h` are two minutes.

use std::time::Duration;

use fastrand::Rng;
use jiff::civil::Time;
use jiff::{SignedDuration, Span, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use super::world::{JAPAN, in_japan};

/// Most faults in a plan.
pub const MAX_FAULTS: usize = 100;
/// Most sales in a burst.
pub const MAX_BURST: u32 = 100_000;
/// The longest time that a plan may name: a month.
pub const MAX_LENGTH: Duration = Duration::from_secs(31 * 24 * 3600);
/// How long a delay, a late sale or trouble with the API takes where the plan does not say.
const DEFAULT_LENGTH: Duration = Duration::from_secs(20 * 60);
/// Sales of a burst where the plan does not say.
const DEFAULT_BURST: u32 = 100;

/// What can go wrong with an event or its delivery: each in a share of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventFault {
    /// The first attempt comes twice at once, answered or not (R1).
    Duplicate,
    /// It comes after the next few events.
    Reorder,
    /// It comes up to `by` later.
    Delay,
    /// It never comes (R1).
    Drop,
    /// A stranger sends a changed body under the same signature beside it.
    Tampered,
    /// A stranger sends it without a signature beside it.
    Unsigned,
    /// A stranger sends it, signed with another secret, beside it.
    WrongSignature,
    /// The body comes in small pieces with pauses between. Over plain HTTP only.
    SlowDrip,
    /// The body is odd JSON: spacing, repeated keys, numbers that no float holds, controls and markup in texts.
    OddJson,
    /// It carries the timestamp of the event before it about the same object.
    EqualTimestamps,
    /// The lists have the sale only `by` later.
    LateSale,
}

/// What can happen at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimedFault {
    /// The provider restarts: what waits is lost (R15-R18).
    Restart,
    /// Every webhook gets the `secret` of the plan.
    RotatedSecret,
    /// `count` sales at one instant.
    Burst,
    /// A sale in the last millisecond of the month in Japan and one in the first of the next: at that time, whatever else
    /// the plan says of when.
    MonthBoundary,
    /// The API answers 503 for `by`.
    ApiErrors,
    /// The API answers 429 for `by`.
    ApiLimit,
    /// For `by`, a page after the first finds that a late sale has slipped in before it.
    ShiftingPages,
}

/// What a fault is, in the plan's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Kind {
    Event(EventFault),
    Timed(TimedFault),
}

/// One entry of a plan, as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    kind: toml::Spanned<String>,
    share: Option<f64>,
    #[serde(default, deserialize_with = "length")]
    at: Option<Duration>,
    #[serde(default, deserialize_with = "length")]
    every: Option<Duration>,
    #[serde(default, deserialize_with = "length")]
    by: Option<Duration>,
    count: Option<u32>,
    secret: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    fault: Vec<Entry>,
}

/// Reads a length of time, as in `90s` or `1h 30m`.
fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_length(&text).map(Some).map_err(serde::de::Error::custom)
}

/// Reads a length of time, as in `90s` or `1h 30m`; at least a millisecond, at most [`MAX_LENGTH`].
///
/// # Errors
/// Says how it is written.
pub fn parse_length(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    let fits = |length: &Duration| (Duration::from_millis(1)..=MAX_LENGTH).contains(length);
    parsed
        .filter(fits)
        .ok_or_else(|| format!("{text:?} is not a length of time such as 90s, 20m or 1h 30m, up to 31 days"))
}

/// A fault of events.
#[derive(Debug, Clone, PartialEq)]
struct Shared {
    fault: EventFault,
    share: f64,
    by: Duration,
}

/// A fault at times.
#[derive(Debug, Clone, PartialEq)]
struct Timed {
    fault: TimedFault,
    /// After the start.
    at: Duration,
    every: Option<Duration>,
    detail: Detail,
}

/// What a fault at a time needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// How long it lasts.
    pub by: Duration,
    /// How many there are.
    pub count: u32,
    /// The new secret.
    pub secret: String,
}

/// Everything that goes wrong.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    shared: Vec<Shared>,
    timed: Vec<Timed>,
}

/// What goes wrong with one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawn {
    /// What.
    pub fault: EventFault,
    /// By how long, drawn up to what the plan says.
    pub by: Duration,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Says what is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        if file.fault.len() > MAX_FAULTS {
            return Err(format!("the plan has {} faults; at most {MAX_FAULTS} are allowed", file.fault.len()));
        }
        let mut plan = Self::default();
        for entry in file.fault {
            let line = text[..entry.kind.span().start].lines().count();
            plan.add(entry).map_err(|reason| format!("line {line}: {reason}"))?;
        }
        Ok(plan)
    }

    /// Every fault at once, in shares that leave most events alone: what a receiver should survive.
    pub fn all() -> Self {
        Self::parse(ALL).expect("the plan of everything is one, as its test says")
    }

    fn add(&mut self, entry: Entry) -> Result<(), String> {
        let kind = entry.kind.get_ref().as_str();
        let parsed: Kind =
            serde::Deserialize::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(kind))
                .map_err(|_| format!("{kind:?} is no kind of fault; there are {}", kinds()))?;
        let by = entry.by.unwrap_or(DEFAULT_LENGTH);
        match parsed {
            Kind::Event(fault) => {
                if entry.at.is_some() || entry.every.is_some() || entry.count.is_some() || entry.secret.is_some() {
                    return Err(format!("{kind:?} happens in a `share` of all events, with `by` at most beside it"));
                }
                let share = entry.share.filter(|share| (0.0..=1.0).contains(share));
                let share = share.ok_or_else(|| format!("{kind:?} needs a `share` of events, from 0.0 to 1.0"))?;
                self.shared.push(Shared { fault, share, by });
            }
            Kind::Timed(fault) => {
                if entry.share.is_some() {
                    return Err(format!("{kind:?} happens `at` a time or `every` so often, not in a share of events"));
                }
                let at = entry.at.or(entry.every).or((fault == TimedFault::MonthBoundary).then_some(Duration::ZERO));
                let at = at.ok_or_else(|| format!("{kind:?} needs `at` or `every`, as in every = \"2h\""))?;
                let count = entry.count.unwrap_or(DEFAULT_BURST);
                if count == 0 || count > MAX_BURST {
                    return Err(format!("`count` must be between 1 and {MAX_BURST}"));
                }
                if (fault == TimedFault::RotatedSecret)
                    != entry.secret.as_ref().is_some_and(|secret| !secret.is_empty())
                {
                    return Err(
                        "`secret` belongs to \"rotated-secret\", which needs it: the receiver must know it".to_owned()
                    );
                }
                let detail = Detail { by, count, secret: entry.secret.unwrap_or_default() };
                self.timed.push(Timed { fault, at, every: entry.every, detail });
            }
        }
        Ok(())
    }

    /// What goes wrong with the next event. The draws are the same whatever the outcome, so that one fault more or less
    /// in a plan moves no other.
    pub fn draw(&self, rng: &mut Rng) -> Vec<Drawn> {
        let mut drawn = Vec::new();
        for shared in &self.shared {
            let (hit, part) = (rng.f64() < shared.share, rng.f64());
            if hit {
                drawn.push(Drawn { fault: shared.fault, by: shared.by.mul_f64(part).max(Duration::from_millis(1)) });
            }
        }
        drawn
    }

    /// The first faults at times, for a sandbox that starts at `start`.
    pub fn agenda(&self, start: Timestamp) -> Agenda {
        let entries = self.timed.iter().map(|timed| {
            let at = match timed.fault {
                TimedFault::MonthBoundary => month_end(start),
                _ => start.checked_add(timed.at).unwrap_or(Timestamp::MAX),
            };
            (at, timed.clone())
        });
        Agenda { entries: entries.collect() }
    }
}

/// The faults at times that are still to come.
#[derive(Debug, Clone, Default)]
pub struct Agenda {
    entries: Vec<(Timestamp, Timed)>,
}

impl Agenda {
    /// When the next one comes.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.entries.iter().map(|(at, _)| *at).min()
    }

    /// Takes one that has come by `now`, and puts the one after it on the list.
    pub fn next(&mut self, now: Timestamp) -> Option<(Timestamp, TimedFault, Detail)> {
        let place = self.entries.iter().enumerate().filter(|(_, (at, _))| *at <= now).min_by_key(|(_, (at, _))| *at)?.0;
        let (at, timed) = self.entries.swap_remove(place);
        let again = match (timed.fault, timed.every) {
            (TimedFault::MonthBoundary, _) => Some(month_end(at.checked_add(Duration::from_secs(1)).unwrap_or(at))),
            (_, Some(every)) => at.checked_add(every).ok(),
            _ => None,
        };
        if let Some(again) = again.filter(|again| *again > at) {
            self.entries.push((again, timed.clone()));
        }
        Some((at, timed.fault, timed.detail))
    }
}

/// The last millisecond of the month in Japan that `at` lies in.
fn month_end(at: Timestamp) -> Timestamp {
    let first = in_japan(at).date().first_of_month();
    let next = first
        .checked_add(Span::new().months(1))
        .ok()
        .and_then(|next| JAPAN.to_timestamp(next.to_datetime(Time::midnight())).ok());
    next.and_then(|next| next.checked_sub(Duration::from_millis(1)).ok()).unwrap_or(Timestamp::MAX)
}

/// The kinds, for messages.
fn kinds() -> String {
    KINDS.join(", ")
}

const KINDS: [&str; 18] = [
    "duplicate",
    "reorder",
    "delay",
    "drop",
    "tampered",
    "unsigned",
    "wrong-signature",
    "slow-drip",
    "odd-json",
    "equal-timestamps",
    "late-sale",
    "restart",
    "rotated-secret",
    "burst",
    "month-boundary",
    "api-errors",
    "api-limit",
    "shifting-pages",
];

/// See [`Plan::all`]. No secret is changed in it: nobody could tell the receiver.
const ALL: &str = r#"
fault = [
    { kind = "duplicate", share = 0.05 },
    { kind = "reorder", share = 0.05 },
    { kind = "delay", share = 0.02, by = "40m" },
    { kind = "drop", share = 0.01 },
    { kind = "tampered", share = 0.01 },
    { kind = "unsigned", share = 0.01 },
    { kind = "wrong-signature", share = 0.01 },
    { kind = "slow-drip", share = 0.01 },
    { kind = "odd-json", share = 0.01 },
    { kind = "equal-timestamps", share = 0.05 },
    { kind = "late-sale", share = 0.01, by = "3h" },
    { kind = "restart", every = "5h 7m" },
    { kind = "burst", every = "11h", count = 200 },
    { kind = "month-boundary" },
    { kind = "api-errors", every = "7h", by = "5m" },
    { kind = "api-limit", every = "13h", by = "5m" },
    { kind = "shifting-pages", every = "3h", by = "30m" },
]
"#;

#[cfg(test)]
mod tests;
