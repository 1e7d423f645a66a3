//! A registered endpoint, and what a URL must be like to be one.

mod headers;
mod settings;

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use url::Url;

use crate::disable;
use crate::event::EventPattern;
use crate::ids::{EventId, OrganizationId, WebhookId};
use crate::operational::is_operational;
use crate::signature::Secret;

pub(crate) use settings::seconds;

pub use headers::{CustomHeaders, InvalidHeader, MAX_HEADER_NAME_BYTES, MAX_HEADER_VALUE_BYTES, MAX_HEADERS};
pub use settings::{
    InvalidSetting, MAX_BURST, MAX_IN_FLIGHT, MAX_RATE_HUNDREDTHS, MAX_TIMEOUT, MIN_TIMEOUT, MaxInFlight, RateLimit,
    Setting, Settings, Timeout, WhileInactive,
};

/// Longest webhook URL, in bytes.
pub const MAX_URL_BYTES: usize = 2048;
/// Most event patterns of one webhook.
pub const MAX_EVENT_PATTERNS: usize = 100;
/// Longest time for which the secret before a rotation can stay good: 30 days.
pub const MAX_SECRET_OVERLAP: Duration = Duration::from_secs(30 * 24 * 3600);
/// Longest description, in bytes.
pub const MAX_DESCRIPTION_BYTES: usize = 1024;

/// Why a text cannot be a webhook's URL, whatever address it leads to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUrl {
    /// It is longer than [`MAX_URL_BYTES`].
    #[error("is {0} bytes long; at most {MAX_URL_BYTES} are allowed")]
    TooLong(usize),
    /// It is no absolute URL.
    #[error("is not an absolute URL: {0}")]
    NotAUrl(String),
    /// Its scheme is neither http nor https.
    #[error("has the scheme {0:?}; only https (and http where the configuration allows it) can be delivered to")]
    Scheme(String),
    /// It has a user name or password.
    #[error("carries a user name or password; they would end up in logs; a token belongs into a header")]
    Credentials,
    /// It has a fragment.
    #[error("has a fragment (#…), which is never sent to a server; remove it")]
    Fragment,
    /// It has the port 0.
    #[error("has the port 0, where nobody can listen")]
    PortZero,
}

/// An absolute http(s) URL with a host, no credentials and no fragment (S3: its host is a typed value).
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookUrl(Url);

impl WebhookUrl {
    /// Takes a text as a webhook's URL, or says why it cannot be one.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        if text.len() > MAX_URL_BYTES {
            return Err(InvalidUrl::TooLong(text.len()));
        }
        let url = Url::parse(text).map_err(|error| InvalidUrl::NotAUrl(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidUrl::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidUrl::Credentials);
        }
        if url.fragment().is_some() {
            return Err(InvalidUrl::Fragment);
        }
        if url.port() == Some(0) {
            return Err(InvalidUrl::PortZero);
        }
        Ok(Self(url))
    }

    /// The URL itself.
    pub fn as_url(&self) -> &Url {
        &self.0
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Scheme and host only: all that a log may say of a target (S19), since paths and queries carry tokens.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookUrl({}/…)", self.origin())
    }
}

/// Why a webhook is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffReason {
    /// Somebody set `active: false`.
    Paused,
    /// A delivery of this event used up its attempts (R10).
    Exhausted(EventId),
}

/// Since when and why a webhook gets no events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Off {
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: OffReason,
}

/// The secret before the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousSecret {
    /// The secret.
    pub secret: Secret,
    /// When the present one took its place.
    pub rotated_at: Timestamp,
    /// From when on it is good for nothing.
    pub until: Timestamp,
}

/// A registered endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    /// Whose it is.
    pub organization: OrganizationId,
    /// Its id.
    pub id: WebhookId,
    /// Where deliveries go.
    pub url: WebhookUrl,
    /// Which events it gets.
    pub events: Vec<EventPattern>,
    /// For people.
    pub description: String,
    /// What deliveries are signed with.
    pub secret: Secret,
    /// What they were signed with before the last rotation, while that is still good (T8).
    pub previous_secret: Option<PreviousSecret>,
    /// `None` while it is active; off, it gets no new events (R12), but retries that wait go on (R14).
    pub off: Option<Off>,
    /// Exhausted events since the last success, or since it was switched on (R11).
    pub exhausted: u32,
    /// What is set for it.
    pub settings: Settings,
    /// When it was registered.
    pub created_at: Timestamp,
}

impl Webhook {
    /// Whether an event published now is delivered to it.
    pub fn takes(&self, event_type: &str) -> bool {
        self.off.is_none() && self.subscribes_to(event_type)
    }

    /// Whether an event published now is not delivered to it only because it is off (R12).
    pub fn misses(&self, event_type: &str) -> bool {
        self.off.is_some() && self.subscribes_to(event_type)
    }

    /// Whether it wants events of this type, be it on or off. Operational ones are wanted only by name or prefix: who
    /// asks for all events means the platform's.
    pub fn subscribes_to(&self, event_type: &str) -> bool {
        let named = |pattern: &EventPattern| *pattern != EventPattern::All || !is_operational(event_type);
        self.events.iter().any(|pattern| pattern.matches(event_type) && named(pattern))
    }

    /// Switches it on, or off because somebody wants it; one that is off already keeps the older reason.
    pub fn set_active(&mut self, active: bool, at: Timestamp) {
        if active {
            self.off = None;
            self.exhausted = 0;
        } else {
            self.off.get_or_insert(Off { since: at, reason: OffReason::Paused });
        }
    }

    /// Gives it a new secret; the present one stays good for `overlap`, and one from before it for no longer (S15).
    pub fn rotate_secret(&mut self, secret: Secret, overlap: Duration, at: Timestamp) {
        let secret = std::mem::replace(&mut self.secret, secret);
        let until = at.checked_add(overlap).unwrap_or(Timestamp::MAX);
        self.previous_secret = Some(PreviousSecret { secret, rotated_at: at, until });
        self.forget_secrets(at);
    }

    /// Forgets what is good for nothing any more.
    pub fn forget_secrets(&mut self, now: Timestamp) {
        self.previous_secret.take_if(|previous| previous.until <= now);
    }

    /// The secret of a scheme that carries one signature. A retry keeps the one of its delivery's first attempt (R9, T8)
    /// for as long as that is good; `first_attempt_at` is `None` in the first attempt.
    pub fn secret_of(&self, first_attempt_at: Option<Timestamp>, now: Timestamp) -> &Secret {
        let began_before =
            |previous: &&PreviousSecret| first_attempt_at.is_some_and(|first| first < previous.rotated_at);
        self.good_previous(now).filter(began_before).map_or(&self.secret, |previous| &previous.secret)
    }

    /// All secrets that are good now, the present one first, for a scheme that carries several signatures.
    pub fn secrets(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        [&self.secret].into_iter().chain(self.good_previous(now).map(|previous| &previous.secret))
    }

    /// The previous secret, while it is good.
    pub fn good_previous(&self, now: Timestamp) -> Option<&PreviousSecret> {
        self.previous_secret.as_ref().filter(|previous| now < previous.until)
    }

    /// A delivery of `event` is exhausted and counts against it. Whether this very event switched it off (R10, R11); one
    /// that is off already keeps the older reason.
    pub fn note_exhausted(&mut self, event: &EventId, at: Timestamp) -> bool {
        if self.off.is_some() {
            return false;
        }
        self.exhausted = self.exhausted.saturating_add(1);
        let switches_off = disable::switches_off(self.settings.disable_after, self.exhausted);
        if switches_off {
            self.off = Some(Off { since: at, reason: OffReason::Exhausted(event.clone()) });
        }
        switches_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disable::DisableAfter;

    #[test]
    fn a_url_that_cannot_be_a_webhook_is_refused_and_says_why() {
        let long = format!("https://example.com/{}", "x".repeat(MAX_URL_BYTES));
        for (text, part) in [
            ("ftp://example.com/", "scheme \"ftp\""),
            ("https://user:pass@example.com/", "user name"),
            ("https://user@example.com/", "user name"),
            ("https://:pass@example.com/", "user name"),
            ("https://example.com/#part", "fragment"),
            ("https://example.com:0/", "port 0"),
            ("https://example.com/#", "fragment"),
            ("/relative", "not an absolute URL"),
            ("https://", "not an absolute URL"),
            ("", "not an absolute URL"),
            (&long, "at most 2048"),
        ] {
            let error = WebhookUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_url_may_be_as_long_as_the_limit_says() {
        let begin = "https://example.com/";
        let longest = format!("{begin}{}", "x".repeat(MAX_URL_BYTES - begin.len()));
        assert_eq!(WebhookUrl::parse(&longest).unwrap().as_str(), longest);
    }

    #[test]
    fn r12_what_matches_is_taken_while_it_is_on_and_missed_while_it_is_off() {
        let mut webhook = webhook("sale.*");
        for (event_type, wanted) in [("sale.created", true), ("order.created", false)] {
            webhook.set_active(true, at(1));
            assert_eq!((webhook.takes(event_type), webhook.misses(event_type)), (wanted, false), "{event_type}");
            webhook.set_active(false, at(2));
            assert_eq!((webhook.takes(event_type), webhook.misses(event_type)), (false, wanted), "{event_type}");
            assert_eq!(webhook.subscribes_to(event_type), wanted, "on or off: {event_type}");
        }
    }

    #[test]
    fn operational_events_are_wanted_by_name_or_prefix_only() {
        for (pattern, event_type, wanted) in [
            ("*", "sale.created", true),
            ("*", "webhook.disabled", false),
            ("webhook.*", "webhook.disabled", true),
            ("webhook.disabled", "webhook.disabled", true),
        ] {
            assert_eq!(webhook(pattern).subscribes_to(event_type), wanted, "{pattern} {event_type}");
        }
    }

    #[test]
    fn r10_r11_the_event_that_switches_off_is_told_and_the_older_reason_stays() {
        let mut webhook = webhook("*");
        webhook.settings.disable_after = DisableAfter::Events(2);
        let event = |id: &str| EventId::parse(id).unwrap();
        assert!(!webhook.note_exhausted(&event("e1"), at(1)));
        assert_eq!((webhook.exhausted, &webhook.off), (1, &None));
        assert!(webhook.note_exhausted(&event("e2"), at(2)));
        let off = Some(Off { since: at(2), reason: OffReason::Exhausted(event("e2")) });
        assert_eq!((webhook.exhausted, &webhook.off), (2, &off));
        assert!(!webhook.note_exhausted(&event("e3"), at(3)), "it is off already");
        webhook.set_active(false, at(4));
        assert_eq!((webhook.exhausted, &webhook.off), (2, &off));
        webhook.set_active(true, at(5));
        assert_eq!((webhook.exhausted, &webhook.off), (0, &None));
        webhook.set_active(false, at(6));
        assert_eq!(webhook.off, Some(Off { since: at(6), reason: OffReason::Paused }));
    }

    fn webhook(pattern: &str) -> Webhook {
        Webhook { events: vec![EventPattern::parse(pattern).unwrap()], ..rotated() }
    }

    fn rotated() -> Webhook {
        let mut webhook = Webhook {
            organization: OrganizationId::parse("acme").unwrap(),
            id: WebhookId::parse("w").unwrap(),
            url: WebhookUrl::parse("https://example.com/").unwrap(),
            events: vec![EventPattern::All],
            description: String::new(),
            secret: Secret::new("oldest"),
            previous_secret: None,
            off: None,
            exhausted: 0,
            settings: Settings::default(),
            created_at: at(0),
        };
        webhook.rotate_secret(Secret::new("old"), Duration::from_secs(1000), at(50));
        webhook.rotate_secret(Secret::new("new"), Duration::from_secs(100), at(100));
        webhook
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn t8_a_retry_keeps_its_first_secret_while_that_is_good() {
        let webhook = rotated();
        for (first, now, expected) in [
            (None, 100, "new"),
            (Some(99), 100, "old"),
            (Some(99), 199, "old"),
            (Some(99), 200, "new"),
            (Some(100), 150, "new"),
            (Some(10), 150, "old"),
        ] {
            let secret = webhook.secret_of(first.map(at), at(now));
            assert_eq!(secret.reveal(), expected, "first attempt at {first:?}, now {now}");
        }
    }

    #[test]
    fn s15_two_secrets_are_good_during_a_rotation_and_one_after_it() {
        let mut webhook = rotated();
        let good = |webhook: &Webhook, now| webhook.secrets(at(now)).map(|s| s.reveal().to_owned()).collect::<Vec<_>>();
        assert_eq!(good(&webhook, 199), ["new", "old"]);
        assert_eq!(good(&webhook, 200), ["new"]);
        webhook.forget_secrets(at(199));
        assert!(webhook.previous_secret.is_some());
        webhook.forget_secrets(at(200));
        assert_eq!(webhook.previous_secret, None);
        webhook.rotate_secret(Secret::new("newest"), Duration::ZERO, at(300));
        assert_eq!(webhook.previous_secret, None, "without an overlap the old one is forgotten at once");
        assert_eq!(MAX_SECRET_OVERLAP.as_secs(), 2_592_000, "30 days");
    }

    #[test]
    fn s19_a_url_is_printed_without_its_path() {
        let url = WebhookUrl::parse("https://example.com:8443/hook/token?key=1").unwrap();
        assert_eq!(format!("{url:?}"), "WebhookUrl(https://example.com:8443/…)");
        assert_eq!(url.as_str(), "https://example.com:8443/hook/token?key=1");
    }
}
