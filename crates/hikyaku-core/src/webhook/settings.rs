//! What can be set per webhook. The defaults are the contract's; where a setting is not given, the server's holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::headers::CustomHeaders;
use crate::delivery::Policy;
use crate::disable::DisableAfter;
use crate::retry::RetrySchedule;
use crate::signature::Scheme;

/// Shortest timeout of an attempt.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest timeout of an attempt; leases are made for no more.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(30);
/// Most attempts under way to one webhook that can be allowed.
pub const MAX_IN_FLIGHT: u32 = 256;
/// Highest rate, in hundredths of attempts per second; the lowest is one hundredth.
pub const MAX_RATE_HUNDREDTHS: u32 = 100_000;
/// Most attempts that a rate lets start at the same moment.
pub const MAX_BURST: u32 = 1000;

/// What can be set per webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// The pauses between attempts (R7, R8).
    pub retry_delays: Option<RetrySchedule>,
    /// From the start of an attempt until its status must have come (R4).
    #[serde(rename = "timeoutSeconds")]
    pub timeout: Option<Timeout>,
    /// Attempts under way at a time.
    pub max_in_flight: Option<MaxInFlight>,
    /// How fast attempts may follow each other; without it, as fast as they can.
    pub rate_limit: Option<RateLimit>,
    /// Headers that every delivery carries besides ours (S12).
    pub headers: CustomHeaders,
    /// Whether `Retry-After` of a 429 or 503 may postpone the next attempt; by the contract it does not.
    pub respect_retry_after: bool,
    /// How many exhausted events in a row switch it off (R11).
    pub disable_after: DisableAfter,
    /// What becomes of events that match while it is off (R12).
    pub while_inactive: WhileInactive,
    /// How deliveries are signed.
    pub signature: Scheme,
    /// Whether deliveries carry the trace context in which the event was published.
    pub trace_context: bool,
}

/// One setting with its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// [`Settings::retry_delays`].
    RetryDelays(Option<RetrySchedule>),
    /// [`Settings::timeout`].
    Timeout(Option<Timeout>),
    /// [`Settings::max_in_flight`].
    MaxInFlight(Option<MaxInFlight>),
    /// [`Settings::rate_limit`].
    RateLimit(Option<RateLimit>),
    /// [`Settings::headers`], all of them.
    Headers(CustomHeaders),
    /// [`Settings::respect_retry_after`].
    RespectRetryAfter(bool),
    /// [`Settings::disable_after`].
    DisableAfter(DisableAfter),
    /// [`Settings::while_inactive`].
    WhileInactive(WhileInactive),
    /// [`Settings::signature`].
    Signature(Scheme),
    /// [`Settings::trace_context`].
    TraceContext(bool),
}

impl Settings {
    /// Changes one setting and leaves the others.
    pub fn set(&mut self, setting: Setting) {
        match setting {
            Setting::RetryDelays(delays) => self.retry_delays = delays,
            Setting::Timeout(timeout) => self.timeout = timeout,
            Setting::MaxInFlight(most) => self.max_in_flight = most,
            Setting::RateLimit(limit) => self.rate_limit = limit,
            Setting::Headers(headers) => self.headers = headers,
            Setting::RespectRetryAfter(respect) => self.respect_retry_after = respect,
            Setting::DisableAfter(after) => self.disable_after = after,
            Setting::WhileInactive(what) => self.while_inactive = what,
            Setting::Signature(scheme) => self.signature = scheme,
            Setting::TraceContext(carry) => self.trace_context = carry,
        }
    }

    /// What a delivery is judged by; where nothing is set, by the server's policy.
    pub fn policy(&self, server: &Policy) -> Policy {
        Policy {
            schedule: self.retry_delays.as_ref().unwrap_or(&server.schedule).clone(),
            respect_retry_after: self.respect_retry_after,
        }
    }

    /// How many due deliveries may be taken at once while none is known to be under way: `each`, or half of what is
    /// allowed here, which leaves the other half to what is published meanwhile.
    pub fn claim_share(&self, each: u32) -> u32 {
        let share = self.max_in_flight.map_or(each, |most| most.get().div_ceil(2));
        self.rate_limit.map_or(share, |limit| share.min(limit.burst().div_ceil(2)))
    }
}

/// Why a value cannot be set.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidSetting {
    /// The timeout is out of bounds.
    #[error("{0} is not from {min} to {max} seconds", min = MIN_TIMEOUT.as_secs(), max = MAX_TIMEOUT.as_secs())]
    Timeout(f64),
    /// The cap is out of bounds.
    #[error("{0} is not from 1 to {MAX_IN_FLIGHT}")]
    InFlight(u32),
    /// The rate is out of bounds, or finer than hundredths.
    #[error("perSecond is {0}, not from 0.01 to {max}, with two decimals at most", max = MAX_RATE_HUNDREDTHS / 100)]
    Rate(f64),
    /// The burst is out of bounds.
    #[error("burst is {0}, not from 1 to {MAX_BURST}")]
    Burst(u32),
}

/// From the start of an attempt until its status must have come: [`MIN_TIMEOUT`] to [`MAX_TIMEOUT`], to the millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Timeout(Duration);

impl Timeout {
    /// The length of time.
    pub fn get(self) -> Duration {
        self.0
    }
}

impl TryFrom<f64> for Timeout {
    type Error = InvalidSetting;
    fn try_from(seconds: f64) -> Result<Self, InvalidSetting> {
        let length = seconds::read(seconds).filter(|length| (MIN_TIMEOUT..=MAX_TIMEOUT).contains(length));
        length.map(Self).ok_or(InvalidSetting::Timeout(seconds))
    }
}

impl Serialize for Timeout {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        seconds::Number(self.0).serialize(serializer)
    }
}

/// Attempts under way at a time: 1 to [`MAX_IN_FLIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct MaxInFlight(u32);

impl MaxInFlight {
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for MaxInFlight {
    type Error = InvalidSetting;
    fn try_from(most: u32) -> Result<Self, InvalidSetting> {
        if (1..=MAX_IN_FLIGHT).contains(&most) { Ok(Self(most)) } else { Err(InvalidSetting::InFlight(most)) }
    }
}

impl From<MaxInFlight> for u32 {
    fn from(most: MaxInFlight) -> u32 {
        most.0
    }
}

/// How fast attempts may follow each other: a rate, and how many may start at the same moment after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RateNumbers", into = "RateNumbers")]
pub struct RateLimit {
    hundredths_per_second: u32,
    burst: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RateNumbers {
    per_second: f64,
    burst: u32,
}

impl RateLimit {
    /// Takes a rate in attempts per second, with two decimals at most, and a burst.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, InvalidSetting> {
        let hundredths = (per_second * 100.0).round();
        let is_exact = (per_second * 100.0 - hundredths).abs() < 1e-6;
        if !is_exact || !(1.0..=f64::from(MAX_RATE_HUNDREDTHS)).contains(&hundredths) {
            return Err(InvalidSetting::Rate(per_second));
        }
        if !(1..=MAX_BURST).contains(&burst) {
            return Err(InvalidSetting::Burst(burst));
        }
        // Within 1 to MAX_RATE_HUNDREDTHS, and whole.
        Ok(Self { hundredths_per_second: hundredths as u32, burst })
    }

    /// The pause from one attempt to the next at this rate.
    pub fn interval(self) -> Duration {
        Duration::from_secs(100) / self.hundredths_per_second
    }

    /// How many may start at the same moment.
    pub fn burst(self) -> u32 {
        self.burst
    }
}

impl TryFrom<RateNumbers> for RateLimit {
    type Error = InvalidSetting;
    fn try_from(numbers: RateNumbers) -> Result<Self, InvalidSetting> {
        Self::new(numbers.per_second, numbers.burst)
    }
}

impl From<RateLimit> for RateNumbers {
    fn from(limit: RateLimit) -> Self {
        Self { per_second: f64::from(limit.hundredths_per_second) / 100.0, burst: limit.burst }
    }
}

/// What becomes of events that match while the webhook is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhileInactive {
    /// They do not come later (R12).
    #[default]
    Drop,
    /// They are held, and sent when it is switched on again.
    Hold,
}

/// Lengths of time as JSON numbers of seconds, to the millisecond.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Serialize, Serializer};

    /// Milliseconds by which a number may miss a whole one for want of digits.
    const ROUNDING: f64 = 1.0e-4;

    /// A number of seconds as a length of time; `None` where it is negative, has no end, or is no whole number of
    /// milliseconds.
    pub(crate) fn read(seconds: f64) -> Option<Duration> {
        let exact = seconds * 1000.0;
        let millis = exact.round();
        // Beyond the largest exact integer nothing is meant.
        ((0.0..=9.0e15).contains(&millis) && (exact - millis).abs() < ROUNDING)
            .then(|| Duration::from_millis(millis as u64))
    }

    /// Writes whole seconds without a fraction.
    pub(crate) struct Number(pub(crate) Duration);

    impl Serialize for Number {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self.0.subsec_nanos() {
                0 => serializer.serialize_u64(self.0.as_secs()),
                _ => serializer.serialize_f64(self.0.as_secs_f64()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_contract() {
        let settings: Settings = serde_json::from_str("{}").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.disable_after, DisableAfter::Events(1));
        assert_eq!(settings.while_inactive, WhileInactive::Drop);
        assert_eq!(settings.signature, Scheme::ReceiptRoller);
        assert!(!settings.respect_retry_after && !settings.trace_context && settings.headers.is_empty());
    }

    #[test]
    fn settings_read_back_as_they_were_written() {
        let text = r#"{"retryDelays":[0.2,60,3600],"timeoutSeconds":1.5,"maxInFlight":256,"rateLimit":{"perSecond":0.01,"burst":1000},"headers":{"authorization":"Bearer x"},"respectRetryAfter":true,"disableAfter":"never","whileInactive":"hold","signature":"standard-webhooks-ed25519","traceContext":true}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.timeout.unwrap().get(), Duration::from_millis(1500));
        assert_eq!(settings.rate_limit.unwrap().interval(), Duration::from_secs(100));
        assert_eq!(serde_json::to_string(&settings).unwrap(), text);
    }

    #[test]
    fn a_setting_that_is_set_changes_and_is_gone_by() {
        let mut settings = Settings::default();
        let server = Policy { schedule: RetrySchedule::default(), respect_retry_after: true };
        assert_eq!(settings.policy(&server), Policy { respect_retry_after: false, ..server.clone() });
        assert_eq!(settings.claim_share(9), 9);
        let schedule: RetrySchedule = serde_json::from_str("[1,2]").unwrap();
        settings.set(Setting::RetryDelays(Some(schedule.clone())));
        settings.set(Setting::RespectRetryAfter(true));
        assert_eq!(settings.policy(&server), Policy { schedule, respect_retry_after: true });
        settings.set(Setting::MaxInFlight(Some(MaxInFlight::try_from(7).unwrap())));
        assert_eq!(settings.claim_share(9), 4, "half of it, and the odd one");
        settings.set(Setting::RateLimit(Some(RateLimit::new(2.5, 3).unwrap())));
        assert_eq!(settings.claim_share(9), 2);
        let limit = settings.rate_limit.unwrap();
        assert_eq!((limit.interval(), limit.burst()), (Duration::from_millis(400), 3));
        assert_eq!(settings.max_in_flight.unwrap().get(), 7);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let long = format!(r#"{{"retryDelays":[{}1]}}"#, "1,".repeat(crate::retry::MAX_RETRY_DELAYS));
        for (text, part) in [
            (long.as_str(), "at most 20"),
            (r#"{"retryDelays":[604801]}"#, "at most a week"),
            (r#"{"retryDelays":[-1]}"#, "no length of time"),
            (r#"{"timeoutSeconds":0.999}"#, "not from 1 to 30 seconds"),
            (r#"{"timeoutSeconds":30.001}"#, "not from 1 to 30 seconds"),
            (r#"{"timeoutSeconds":-5}"#, "not from 1 to 30 seconds"),
            (r#"{"maxInFlight":0}"#, "not from 1 to 256"),
            (r#"{"maxInFlight":257}"#, "not from 1 to 256"),
            (r#"{"rateLimit":{"perSecond":0,"burst":1}}"#, "perSecond is 0"),
            (r#"{"rateLimit":{"perSecond":1000.01,"burst":1}}"#, "perSecond is 1000.01"),
            (r#"{"rateLimit":{"perSecond":0.015,"burst":1}}"#, "two decimals"),
            (r#"{"rateLimit":{"perSecond":1,"burst":0}}"#, "burst is 0"),
            (r#"{"rateLimit":{"perSecond":1,"burst":1001}}"#, "burst is 1001"),
            (r#"{"rateLimit":{"perSecond":1}}"#, "missing field `burst`"),
            (r#"{"disableAfter":0}"#, "from 1 to 1000"),
            (r#"{"disableAfter":"always"}"#, "\"never\""),
            (r#"{"whileInactive":"keep"}"#, "unknown variant"),
            (r#"{"signature":"none"}"#, "unknown variant"),
        ] {
            let error = serde_json::from_str::<Settings>(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
