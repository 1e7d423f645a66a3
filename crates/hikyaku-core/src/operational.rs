//! Operational events: what the sender tells an organization of its own webhooks, published like any event. A webhook
//! subscribes to them by their names or prefixes, never by `*`, and gets none about itself.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::delivery::Outcome;
use crate::event::EventType;
use crate::ids::{EventId, WebhookId};
use crate::timestamp;
use crate::webhook::{OffReason, WebhookUrl};

/// What the types of operational events begin with. Nobody else publishes such types.
const PREFIXES: [&str; 2] = ["webhook.", "delivery."];
/// How long a day is: what could be told often is told once in it.
const DAY_SECONDS: i64 = 24 * 3600;

/// Whether only the sender itself makes events of this type.
pub fn is_operational(event_type: &str) -> bool {
    PREFIXES.iter().any(|prefix| event_type.starts_with(prefix))
}

/// The webhook that an operational event is about; `None` of any other event.
pub fn about(event_type: &str, body: &[u8]) -> Option<WebhookId> {
    #[derive(Deserialize)]
    struct Body {
        data: About,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct About {
        webhook_id: String,
    }
    let body: Body = is_operational(event_type).then(|| serde_json::from_slice(body).ok()).flatten()?;
    WebhookId::parse(&body.data.webhook_id).ok()
}

/// The type of the event that a test delivery carries.
pub fn test_type() -> EventType {
    known("webhook.test")
}

/// Its `data`.
pub fn test_data(webhook: &WebhookId) -> Box<RawValue> {
    let data = TestData { webhook_id: webhook.as_str(), detail: "A test of the endpoint: nothing has happened." };
    raw(&data)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TestData<'a> {
    webhook_id: &'a str,
    detail: &'static str,
}

fn raw(data: &impl Serialize) -> Box<RawValue> {
    to_raw_value(data).expect("texts and numbers can be written as JSON")
}

fn known(name: &str) -> EventType {
    EventType::parse(name).expect("the names of operational events are event types")
}

/// What happened to a webhook.
#[derive(Debug, Clone)]
pub enum Notice<'a> {
    /// It was switched off (R10), or paused.
    Disabled(&'a OffReason),
    /// It was switched on.
    Enabled,
    /// A delivery to it used up its attempts (R7).
    Exhausted(Exhausted<'a>),
}

/// A delivery that used up its attempts.
#[derive(Debug, Clone)]
pub struct Exhausted<'a> {
    /// Of which event.
    pub event: &'a EventId,
    /// Of which type.
    pub event_type: &'a EventType,
    /// Which run of the delivery.
    pub run: u32,
    /// How many attempts the run had.
    pub attempts: u32,
    /// What the last one came to.
    pub outcome: Outcome,
    /// For people: what went wrong in the last one; empty after an answer.
    pub error: &'a str,
}

/// The `data` of an operational event. Of the URL it has the origin only (S19): other endpoints get it.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    webhook_id: &'a str,
    origin: String,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<&'a str>,
    #[serde(flatten)]
    exhausted: Option<ExhaustedData<'a>>,
    detail: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExhaustedData<'a> {
    event_type: &'a str,
    run: u32,
    attempts: u32,
    http_status: u16,
    error_kind: Option<&'static str>,
    error: Option<&'a str>,
}

impl Notice<'_> {
    /// The event's type.
    pub fn event_type(&self) -> EventType {
        known(match self {
            Self::Disabled(_) => "webhook.disabled",
            Self::Enabled => "webhook.enabled",
            Self::Exhausted(_) => "delivery.exhausted",
        })
    }

    /// The event's `data`: which webhook, when by the wall clock, and why.
    pub fn data(&self, webhook: &WebhookId, url: &WebhookUrl, at: Timestamp) -> Box<RawValue> {
        let base = Data {
            webhook_id: webhook.as_str(),
            origin: url.origin(),
            at: timestamp::format(at),
            detail: self.detail(),
            ..Data::default()
        };
        let data = match self {
            Self::Enabled => base,
            Self::Disabled(OffReason::Paused) => Data { reason: Some("paused"), ..base },
            Self::Disabled(OffReason::Exhausted(event)) => {
                Data { reason: Some("exhausted"), event_id: Some(event.as_str()), ..base }
            }
            Self::Exhausted(exhausted) => {
                Data { event_id: Some(exhausted.event.as_str()), exhausted: Some(exhausted.data()), ..base }
            }
        };
        raw(&data)
    }

    /// One sentence for the person who reads it.
    fn detail(&self) -> String {
        match self {
            Self::Enabled => "The webhook was switched on.".to_owned(),
            Self::Disabled(OffReason::Paused) => "Somebody paused the webhook; it gets no new events.".to_owned(),
            Self::Disabled(OffReason::Exhausted(event)) => format!(
                "The webhook was switched off because every attempt of the event {event} failed. Mend the endpoint, \
                 switch the webhook on, and recover what it missed."
            ),
            Self::Exhausted(exhausted) => format!(
                "All {} attempts of the event {} failed. Mend the endpoint, then resend the delivery.",
                exhausted.attempts, exhausted.event
            ),
        }
    }
}

/// A provider switched off the webhook that it sends to a source of the inbox (T4).
#[derive(Debug, Clone)]
pub struct SourceDisabled<'a> {
    /// The source.
    pub source: &'a str,
    /// The reconciliation that noticed.
    pub reconcile: &'a str,
    /// The webhook's id at the provider.
    pub webhook: &'a str,
    /// When it was last seen to be on.
    pub active_at: Option<Timestamp>,
    /// Whether it was switched on again.
    pub is_reenabled: bool,
}

/// No signature of what comes to a source of the inbox verifies any more (T2).
#[derive(Debug, Clone)]
pub struct SourceUnverified<'a> {
    /// The source.
    pub source: &'a str,
    /// Since when.
    pub since: Timestamp,
    /// When the provider switches its webhook off for that, where that is known.
    pub switched_off_at: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UnverifiedData<'a> {
    source: &'a str,
    at: String,
    since: String,
    switched_off_at: Option<String>,
    detail: &'static str,
}

impl SourceUnverified<'_> {
    /// The event's type.
    pub fn event_type() -> EventType {
        known("webhook.source_unverified")
    }

    /// The event's id: the same all day (UTC), because anybody can cause it.
    pub fn event_id(&self, at: Timestamp) -> String {
        let day = at.as_second().div_euclid(DAY_SECONDS);
        hashed("source-unverified", &format!("{}\n{day}", self.source))
    }

    /// The event's `data`, as of `at` by the wall clock.
    pub fn data(&self, at: Timestamp) -> Box<RawValue> {
        raw(&UnverifiedData {
            source: self.source,
            at: timestamp::format(at),
            since: timestamp::format(self.since),
            switched_off_at: self.switched_off_at.map(timestamp::format),
            detail: "No signature of what comes to this source verifies: compare its `secrets` with the secret at the provider.",
        })
    }
}

/// An id made of what names the thing that it tells.
fn hashed(kind: &str, named: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, named.as_bytes());
    format!("{kind}-{}", data_encoding::HEXLOWER.encode(&digest.as_ref()[..16]))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SourceData<'a> {
    source: &'a str,
    reconcile: &'a str,
    provider_webhook_id: &'a str,
    at: String,
    active_at: Option<String>,
    is_reenabled: bool,
    detail: &'static str,
}

impl SourceDisabled<'_> {
    /// The event's type.
    pub fn event_type() -> EventType {
        known("webhook.source_disabled")
    }

    /// The event's id: the same however often the same is noticed, so that it is told once. One that was never seen to be on
    /// is told once a day.
    pub fn event_id(&self, at: Timestamp) -> String {
        let since = self.active_at.map_or_else(|| at.as_second().div_euclid(DAY_SECONDS), Timestamp::as_millisecond);
        hashed("source-disabled", &format!("{}\n{}\n{}\n{since}", self.source, self.reconcile, self.webhook))
    }

    /// The event's `data`, as of `at` by the wall clock.
    pub fn data(&self, at: Timestamp) -> Box<RawValue> {
        raw(&SourceData {
            source: self.source,
            reconcile: self.reconcile,
            provider_webhook_id: self.webhook,
            at: timestamp::format(at),
            active_at: self.active_at.map(timestamp::format),
            is_reenabled: self.is_reenabled,
            detail: match self.is_reenabled {
                true => {
                    "The provider had switched off the webhook that sends to this source; it was switched on again."
                }
                false => "The provider has switched off the webhook that sends to this source: nothing comes any more.",
            },
        })
    }
}

impl<'a> Exhausted<'a> {
    fn data(&self) -> ExhaustedData<'a> {
        let error_kind = match self.outcome {
            Outcome::Answered(_) => None,
            Outcome::Failed(kind) => Some(kind.as_str()),
        };
        ExhaustedData {
            event_type: self.event_type.as_str(),
            run: self.run,
            attempts: self.attempts,
            http_status: self.outcome.http_status(),
            error_kind,
            error: Some(self.error).filter(|error| !error.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::FailureKind;

    fn data(notice: &Notice<'_>) -> String {
        let url = WebhookUrl::parse("https://shop.example:8443/hook/token?key=1").unwrap();
        notice.data(&WebhookId::parse("wh_1").unwrap(), &url, Timestamp::UNIX_EPOCH).get().to_owned()
    }

    #[test]
    fn r10_s19_a_notice_says_what_happened_and_no_secret_of_the_url() {
        let (event, sale) = (EventId::parse("e\"1").unwrap(), EventType::parse("sale.created").unwrap());
        let (reason, paused) = (OffReason::Exhausted(event.clone()), OffReason::Paused);
        let exhausted = Exhausted {
            event: &event,
            event_type: &sale,
            run: 2,
            attempts: 4,
            outcome: Outcome::Failed(FailureKind::Timeout),
            error: "no answer within 10s",
        };
        for (notice, event_type, expected, what_to_do) in [
            (
                Notice::Disabled(&reason),
                "webhook.disabled",
                r#""reason":"exhausted","eventId":"e\"1","detail":""#,
                "switch the webhook on",
            ),
            (Notice::Disabled(&paused), "webhook.disabled", r#""reason":"paused","detail":""#, "no new events"),
            (Notice::Enabled, "webhook.enabled", r#""detail":""#, "was switched on"),
            (
                Notice::Exhausted(exhausted),
                "delivery.exhausted",
                concat!(
                    r#""eventId":"e\"1","eventType":"sale.created","run":2,"attempts":4,"httpStatus":0,"#,
                    r#""errorKind":"timeout","error":"no answer within 10s","detail":""#
                ),
                "resend the delivery",
            ),
        ] {
            assert_eq!(notice.event_type().as_str(), event_type);
            assert!(is_operational(event_type));
            let start = r#"{"webhookId":"wh_1","origin":"https://shop.example:8443","at":"1970-01-01T00:00:00.000Z","#;
            let written = data(&notice);
            assert!(written.starts_with(&format!("{start}{expected}")), "{written}");
            assert!(written.contains(what_to_do), "{written}");
        }
    }

    #[test]
    fn t4_a_source_that_was_switched_off_is_told_once() {
        let mut seen = SourceDisabled {
            source: "shop",
            reconcile: "sales",
            webhook: "wh-1",
            active_at: Some(Timestamp::UNIX_EPOCH),
            is_reenabled: false,
        };
        let later = Timestamp::from_second(100_000).unwrap();
        let id = seen.event_id(Timestamp::UNIX_EPOCH);
        assert!(is_operational(SourceDisabled::event_type().as_str()));
        assert_eq!(id, seen.event_id(later));
        assert!(seen.data(later).get().contains(r#""providerWebhookId":"wh-1","at":"1970-01-02T03:46:40.000Z""#));
        seen.active_at = Some(later);
        assert_ne!(id, seen.event_id(later));
        assert!(EventId::parse(id).is_ok());
    }

    #[test]
    fn t2_a_source_whose_signatures_fail_is_told_once_a_day() {
        let at = |hours: i64| Timestamp::from_second(hours * 3600).unwrap();
        let seen = SourceUnverified { source: "shop", since: at(1), switched_off_at: Some(at(2)) };
        assert_eq!(seen.event_id(at(1)), seen.event_id(at(23)));
        assert_ne!(seen.event_id(at(1)), seen.event_id(at(24)));
        assert_ne!(seen.event_id(at(1)), SourceUnverified { source: "other", ..seen.clone() }.event_id(at(1)));
        assert!(EventId::parse(seen.event_id(at(1))).is_ok());
        let expected = r#"{"source":"shop","at":"1970-01-01T01:00:00.000Z","since":"1970-01-01T01:00:00.000Z","switchedOffAt":"1970-01-01T02:00:00.000Z","detail":""#;
        assert!(seen.data(at(1)).get().starts_with(expected), "{}", seen.data(at(1)));
    }

    #[test]
    fn an_operational_event_tells_which_webhook_it_is_about_and_no_other_does() {
        let body = format!(r#"{{"id":"e","type":"t.t","data":{}}}"#, data(&Notice::Enabled));
        assert_eq!(about("webhook.enabled", body.as_bytes()), WebhookId::parse("wh_1").ok());
        assert_eq!(about("sale.created", body.as_bytes()), None);
        assert_eq!(about("webhook.enabled", b"{}"), None);
    }

    #[test]
    fn only_types_below_the_two_prefixes_are_operational() {
        for (event_type, expected) in [
            ("webhook.test", true),
            ("delivery.x.y", true),
            ("webhooks.x", false),
            ("deliveryx.y", false),
            ("sale.webhook.x", false),
        ] {
            assert_eq!(is_operational(event_type), expected, "{event_type}");
        }
        assert!(is_operational(test_type().as_str()));
    }
}
