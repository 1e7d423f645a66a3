use super::*;
use crate::delivery::FailureKind;
use crate::event::EventPattern;
use crate::ids::{EventId, OrganizationId, WebhookId};
use crate::signature::Secret;
use crate::webhook::{Settings, WebhookUrl};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn webhook(pattern: &str, created: i64, off: Option<Off>) -> Webhook {
    Webhook {
        organization: OrganizationId::parse("acme").unwrap(),
        id: WebhookId::parse("w").unwrap(),
        url: WebhookUrl::parse("https://example.com/").unwrap(),
        events: vec![EventPattern::parse(pattern).unwrap()],
        description: String::new(),
        secret: Secret::new("a-secret-of-twenty-four-bytes"),
        previous_secret: None,
        off,
        exhausted: 0,
        settings: Settings::default(),
        created_at: at(created),
    }
}

fn paused() -> Off {
    Off { since: at(50), reason: OffReason::Paused }
}

fn exhausted() -> Off {
    Off { since: at(60), reason: OffReason::Exhausted(EventId::parse("e0").unwrap()) }
}

/// Explains an event of the type `sale.created` from second 100.
fn why(webhook: Option<&Webhook>, delivery: Option<Delivery<'_>>, missed: Option<&Off>) -> Explanation {
    let event_type = EventType::parse("sale.created").unwrap();
    explain(&Situation {
        event_type: &event_type,
        published_at: at(100),
        is_about_it: false,
        webhook,
        delivery,
        missed,
    })
}

fn delivery(state: DeliveryState, outcomes: &[Outcome]) -> Delivery<'_> {
    Delivery { state, in_flight: false, next_attempt_at: None, reason: "", outcomes, delivered_before: None }
}

#[test]
fn an_event_that_was_never_for_the_webhook_is_explained() {
    let (off, dead) = (paused(), exhausted());
    for (webhook, missed, code, parts) in [
        (None, None, Code::UnknownWebhook, vec!["no such webhook", "removed", "mistyped"]),
        (Some(webhook("order.*", 0, None)), None, Code::NotSubscribed, vec!["\"sale.created\"", "Add the type"]),
        (Some(webhook("order.*", 200, None)), None, Code::NotSubscribed, vec!["does not subscribe"]),
        (Some(webhook("*", 200, None)), None, Code::CreatedLater, vec!["1970-01-01T00:03:20.000Z", "Resend"]),
        (Some(webhook("*", 101, None)), None, Code::CreatedLater, vec!["after the event"]),
        (Some(webhook("*", 100, None)), None, Code::SubscribedLater, vec!["When it was published"]),
        (Some(webhook("*", 0, None)), None, Code::SubscribedLater, vec!["When it was published", "Resend"]),
        (Some(webhook("*", 0, Some(paused()))), None, Code::SubscribedLater, vec!["did not subscribe"]),
        (
            Some(webhook("*", 0, Some(paused()))),
            Some(&off),
            Code::WebhookOff,
            vec!["is off since 1970-01-01T00:00:50.000Z because somebody paused it", "Switch it on"],
        ),
        (
            Some(webhook("*", 0, Some(exhausted()))),
            Some(&dead),
            Code::WebhookOff,
            vec!["since 1970-01-01T00:01:00.000Z because every attempt of the event e0 failed"],
        ),
        (
            Some(webhook("*", 0, None)),
            Some(&dead),
            Code::Missed,
            vec!["was off since 1970-01-01T00:01:00.000Z", "recover"],
        ),
        (Some(webhook("order.*", 0, None)), Some(&off), Code::Missed, vec!["paused"]),
    ] {
        let explanation = why(webhook.as_ref(), None, missed);
        assert_eq!(explanation.code, code, "{explanation:?}");
        for part in parts {
            assert!(explanation.sentence.contains(part), "{part:?} is not in {explanation:?}");
        }
    }
}

#[test]
fn a_delivery_is_explained_in_each_of_its_states() {
    let failures = [500, 503, 404].map(Outcome::Answered);
    let four = [Outcome::Answered(500), Outcome::Failed(FailureKind::Timeout), failures[1], failures[2]];
    let success = [Outcome::Answered(500), Outcome::Answered(204)];
    let due = Delivery { next_attempt_at: Some(at(700)), ..delivery(DeliveryState::Waiting, &failures[..1]) };
    let under_way = Delivery { in_flight: true, ..delivery(DeliveryState::Waiting, &[]) };
    let removed = Delivery { reason: "webhookDeleted", ..delivery(DeliveryState::Cancelled, &failures[..2]) };
    let cases = [
        (due, Code::Waiting, "Attempt 2 is due at 1970-01-01T00:11:40.000Z; 1 attempt failed before it (500)."),
        (delivery(DeliveryState::Waiting, &[]), Code::Waiting, "Attempt 1 is due now."),
        (under_way, Code::InFlight, "Attempt 1 is under way now."),
        (
            delivery(DeliveryState::Delivered, &success),
            Code::Delivered,
            "It was delivered at attempt 2, with the answer 204.",
        ),
        (
            delivery(DeliveryState::Exhausted, &four),
            Code::Exhausted,
            "It did not arrive: all 4 attempts failed (500, timeout, 503, 404). Mend the endpoint, then resend the \
             delivery or recover the webhook.",
        ),
        (
            delivery(DeliveryState::Exhausted, &failures[..1]),
            Code::Exhausted,
            "It did not arrive: the only attempt failed (500). Mend the endpoint, then resend the delivery or recover the \
             webhook.",
        ),
        (
            delivery(DeliveryState::Exhausted, &[Outcome::Failed(FailureKind::Interrupted)]),
            Code::Exhausted,
            "It may not have arrived: the only attempt failed (interrupted), by no fault of the endpoint's. To send it \
             once more, resend the delivery or recover the webhook.",
        ),
        (
            Delivery { delivered_before: Some((1, 204)), ..delivery(DeliveryState::Exhausted, &failures) },
            Code::Delivered,
            "It was delivered in run 1, with the answer 204. It was sent again since, and all 3 attempts failed (500, \
             503, 404).",
        ),
        (
            Delivery { delivered_before: Some((1, 204)), ..delivery(DeliveryState::Waiting, &[]) },
            Code::Waiting,
            "It was delivered in run 1, with the answer 204. It was to be sent again since: Attempt 1 is due now.",
        ),
        (
            Delivery { delivered_before: Some((1, 204)), ..delivery(DeliveryState::Delivered, &success) },
            Code::Delivered,
            "It was delivered at attempt 2, with the answer 204.",
        ),
        (
            removed,
            Code::Cancelled,
            "It was cancelled because the webhook was removed; 2 attempts failed before it (500, 503).",
        ),
        (
            Delivery { reason: "webhookDeleted", ..delivery(DeliveryState::Cancelled, &success[1..]) },
            Code::Cancelled,
            "It was cancelled because the webhook was removed; 1 attempt ended before it (204).",
        ),
    ];
    for (delivery, code, sentence) in cases {
        let explanation = why(None, Some(delivery), None);
        assert_eq!((explanation.code, explanation.sentence.as_str()), (code, sentence));
    }
}

#[test]
fn news_of_the_webhook_itself_has_a_code_of_its_own() {
    let (event_type, webhook) = (EventType::parse("webhook.disabled").unwrap(), webhook("webhook.*", 0, None));
    let situation = Situation {
        event_type: &event_type,
        published_at: at(100),
        is_about_it: true,
        webhook: Some(&webhook),
        delivery: None,
        missed: None,
    };
    let explanation = explain(&situation);
    assert_eq!(explanation.code, Code::AboutItself);
    assert!(explanation.sentence.contains("itself"), "{explanation:?}");
}

#[test]
fn what_is_held_says_why_and_until_when() {
    let held = || Some(delivery(DeliveryState::Held, &[]));
    let off = why(Some(&webhook("*", 0, Some(paused()))), held(), None);
    assert_eq!(off.code, Code::Held);
    assert!(off.sentence.contains("somebody paused it") && off.sentence.contains("switched on"), "{off:?}");
    let on = why(Some(&webhook("*", 0, None)), held(), None);
    assert!(on.sentence.contains("comes by itself") && on.sentence.contains("\"active\": true once more"), "{on:?}");
}

#[test]
fn codes_are_written_in_camel_case() {
    assert_eq!(serde_json::to_string(&Code::NotSubscribed).unwrap(), "\"notSubscribed\"");
    assert_eq!(serde_json::to_string(&Code::InFlight).unwrap(), "\"inFlight\"");
}
