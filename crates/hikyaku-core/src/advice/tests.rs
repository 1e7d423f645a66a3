use jiff::Timestamp;

use super::*;
use crate::event::EventPattern;
use crate::ids::{OrganizationId, WebhookId};
use crate::signature::Secret;
use crate::webhook::{Settings, WebhookUrl};

fn webhook(signature: Scheme) -> Webhook {
    Webhook {
        organization: OrganizationId::parse("acme").unwrap(),
        id: WebhookId::parse("w").unwrap(),
        url: WebhookUrl::parse("https://shop.example/hook").unwrap(),
        events: vec![EventPattern::All],
        description: String::new(),
        secret: Secret::new("whsec_never_shown"),
        previous_secret: None,
        off: None,
        exhausted: 0,
        settings: Settings { signature, ..Settings::default() },
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn of(outcome: Outcome, location: Option<&str>, content_type: Option<&str>) -> String {
    let webhook = webhook(Scheme::ReceiptRoller);
    advice(&Tested { webhook: &webhook, outcome, location, content_type })
}

#[test]
fn every_failure_has_its_own_advice() {
    for (kind, part) in [
        (FailureKind::Dns, "the spelling of shop.example"),
        (FailureKind::Connect, "listens on port 443"),
        (FailureKind::Tls, "intermediate certificates"),
        (FailureKind::Reset, "look for a crash"),
        (FailureKind::Protocol, "speaks HTTP/1.1 on port 443"),
        (FailureKind::TargetRefused, "sender.targets"),
        (FailureKind::Timeout, "Answer first"),
        (FailureKind::Local, "not to blame"),
        (FailureKind::Interrupted, "not to blame"),
    ] {
        let advice = of(Outcome::Failed(kind), None, None);
        assert!(advice.contains(part), "{kind}: {advice}");
    }
}

#[test]
fn a_reset_without_tls_may_mean_that_the_port_speaks_it() {
    let plain =
        Webhook { url: WebhookUrl::parse("http://shop.example:8443/").unwrap(), ..webhook(Scheme::ReceiptRoller) };
    let outcome = Outcome::Failed(FailureKind::Reset);
    let advice = advice(&Tested { webhook: &plain, outcome, location: None, content_type: None });
    assert!(advice.contains("If port 8443 speaks TLS, let the URL begin with https"), "{advice}");
    let advice = of(Outcome::Failed(FailureKind::Reset), None, None);
    assert!(!advice.contains("https"), "it does already: {advice}");
}

#[test]
fn a_status_says_what_to_look_at() {
    for (status, part) in [
        (200, "nothing to do"),
        (204, "nothing to do"),
        (400, "webhook.test"),
        (401, "x-rr-signature"),
        (403, "x-rr-signature"),
        (404, "to the last slash"),
        (405, "allow POST"),
        (408, "gave up waiting"),
        (410, "to the last slash"),
        (413, "too large"),
        (415, "application/json"),
        (418, "from 200 to 299"),
        (422, "webhook.test"),
        (429, "rateLimit"),
        (500, "look into its log"),
        (502, "behind it runs"),
        (504, "behind it runs"),
        (599, "look into its log"),
    ] {
        let advice = of(Outcome::Answered(status), None, None);
        assert!(advice.contains(part), "{status}: {advice}");
    }
}

/// S5: it is told, not followed.
#[test]
fn s5_a_redirect_names_the_url_to_set() {
    let long = format!("/{}", "x".repeat(MAX_TARGET_BYTES));
    for (location, part) in [
        (Some("https://www.shop.example/hook"), "to https://www.shop.example/hook, set"),
        (Some("/hook/"), "to https://shop.example/hook/, set"),
        (Some("http://["), "really at"),
        (Some(long.as_str()), "really at"),
        (None, "really at"),
    ] {
        let advice = of(Outcome::Answered(301), location, None);
        assert!(advice.contains("not followed") && advice.contains(part), "{location:?}: {advice}");
    }
}

#[test]
fn a_page_for_people_is_suspicious_whatever_its_status() {
    for (status, content_type, part, expected) in [
        (200, "text/html", "says 200 to everything", true),
        (403, "Text/HTML; charset=utf-8", "a login in front", true),
        (200, "application/json", "HTML", false),
        (403, "text/htmlx", "HTML", false),
    ] {
        let advice = of(Outcome::Answered(status), None, Some(content_type));
        assert_eq!(advice.contains(part), expected, "{status} {content_type}: {advice}");
    }
}

#[test]
fn a_refusal_is_explained_by_the_webhooks_own_scheme() {
    for (scheme, header, algorithm) in [
        (Scheme::ReceiptRoller, "x-rr-signature", "hex"),
        (Scheme::StandardWebhooks, "webhook-signature", "base64"),
        (Scheme::StandardWebhooksEd25519, "webhook-signature", "ed25519"),
    ] {
        let webhook = webhook(scheme);
        let (location, content_type) = (None, None);
        let tested = Tested { webhook: &webhook, outcome: Outcome::Answered(401), location, content_type };
        let advice = advice(&tested);
        assert!(advice.contains(header) && advice.contains(algorithm), "{advice}");
        assert!(!advice.contains("never_shown"));
    }
}
