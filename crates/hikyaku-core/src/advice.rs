//! What to do after a test delivery, in words for the person who registered the endpoint.

use crate::delivery::{FailureKind, Outcome};
use crate::signature::Scheme;
use crate::webhook::Webhook;

/// Longest redirect target that is repeated, in bytes.
const MAX_TARGET_BYTES: usize = 500;

/// What a test delivery came to.
#[derive(Debug, Clone)]
pub struct Tested<'a> {
    /// Where it went.
    pub webhook: &'a Webhook,
    /// The status, or why none came.
    pub outcome: Outcome,
    /// The answer's `Location`, if it had one.
    pub location: Option<&'a str>,
    /// The answer's `Content-Type`, if it had one.
    pub content_type: Option<&'a str>,
}

/// What to check or to change. The error itself is told beside it, so it is not repeated.
pub fn advice(tested: &Tested<'_>) -> String {
    let advice = match tested.outcome {
        Outcome::Failed(kind) => of_failure(kind, tested.webhook),
        Outcome::Answered(300..=399) => of_redirect(tested),
        Outcome::Answered(status) => of_status(status, tested.webhook.settings.signature),
    };
    match (tested.is_html(), tested.outcome.is_success()) {
        (true, true) => {
            "The endpoint took the test, but answered with an HTML page: make sure that the URL leads to the \
                         code that handles webhooks, and not to a web page that says 200 to everything."
                .to_owned()
        }
        (true, false) => format!(
            "{advice} The answer is an HTML page, so it may come from a proxy, a firewall or a login in front of the \
             endpoint."
        ),
        (false, _) => advice,
    }
}

impl Tested<'_> {
    fn is_html(&self) -> bool {
        let essence = |value: &str| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.content_type.map(essence).is_some_and(|essence| essence == "text/html")
    }
}

fn of_failure(kind: FailureKind, webhook: &Webhook) -> String {
    let url = webhook.url.as_url();
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    match kind {
        FailureKind::Dns => format!(
            "Check the spelling of {host}, and that it has a public A or AAAA record; one that is new can take a while \
             to be seen everywhere."
        ),
        FailureKind::Connect => format!(
            "Check that the server runs, that it listens on port {port} of a public address and not of localhost only, \
             and that no firewall is in between."
        ),
        FailureKind::Tls => format!(
            "The error says which it is. The certificate must be in date, be one for servers, name {host}, come from an \
             authority that the sender's machine trusts, and be sent together with its intermediate certificates: most \
             browsers find a missing one by themselves, this sender does not. The server must take TLS 1.2 or 1.3 on \
             port {port}, and ask for no client certificate; if it speaks no TLS there, correct the URL's port."
        ),
        FailureKind::Reset if url.scheme() == "http" => format!(
            "The connection broke after it was made. If port {port} speaks TLS, let the URL begin with https. Else look \
             for a crash in the endpoint's log, and for a proxy or a firewall that cuts connections."
        ),
        FailureKind::Reset => {
            "The connection broke after it was made: look for a crash in the endpoint's log, and for \
                               a proxy or a firewall that cuts connections."
                .to_owned()
        }
        FailureKind::Protocol => format!(
            "Check that {host} speaks HTTP/1.1 on port {port}, that the URL says https where it means it, and that the \
             answer's headers are of ordinary size."
        ),
        FailureKind::TargetRefused => "Use a URL that leads to a public address over https on port 443, or ask the \
                                       operator of the sender to allow this address in sender.targets."
            .to_owned(),
        FailureKind::Timeout => "Answer first and work afterwards: keep the event, answer 200, and handle it in the \
                                 background. If the endpoint saw nothing of the test, a firewall may drop what comes."
            .to_owned(),
        FailureKind::Local | FailureKind::Interrupted => {
            "The endpoint is not to blame: the sender's operator must look into it. Test again later.".to_owned()
        }
    }
}

/// Redirects are not followed (S5), so the place they lead to has to be registered.
fn of_redirect(tested: &Tested<'_>) -> String {
    let target = tested.location.and_then(|location| tested.webhook.url.as_url().join(location).ok());
    match target.as_ref().map(url::Url::as_str).filter(|target| target.len() <= MAX_TARGET_BYTES) {
        Some(target) => {
            format!("Redirects are not followed. If events belong to {target}, set that as the webhook's URL.")
        }
        None => "Redirects are not followed. Set the URL that the endpoint is really at.".to_owned(),
    }
}

fn of_status(status: u16, scheme: Scheme) -> String {
    match status {
        200..=299 => "The endpoint took the test. There is nothing to do.".to_owned(),
        401 | 403 => format!(
            "The endpoint refused the sender. {} Check the raw body, before any parsing, with the present secret. If \
             it is a login or a firewall that refused, let the sender past it; the webhook's headers can carry a token.",
            signed(scheme)
        ),
        404 | 410 => {
            "Nothing handles this URL: compare its path with the endpoint's route, to the last slash.".to_owned()
        }
        405 => {
            "The URL exists but takes no POST: compare its path with the endpoint's route, and allow POST.".to_owned()
        }
        400 | 422 => {
            "The endpoint did not accept the body. It should take the type \"webhook.test\", and answer 200 to \
                      types and fields that it does not know."
                .to_owned()
        }
        408 => "The endpoint gave up waiting for the request, which is short: look for a proxy in between.".to_owned(),
        413 => "The body is too large for the endpoint, and a test's is small: raise its limit.".to_owned(),
        415 => "The endpoint must take the content type application/json.".to_owned(),
        429 => {
            "The endpoint limits requests: raise its limit, or set the webhook's rateLimit and maxInFlight below it."
                .to_owned()
        }
        502..=504 => {
            "A proxy answered in the endpoint's place: check that the application behind it runs, and answers \
                      in time."
                .to_owned()
        }
        500..=599 => "The endpoint failed: look into its log at the time of the test.".to_owned(),
        _ => "Only an answer from 200 to 299 counts as delivered: let the endpoint answer 200 once it has the event."
            .to_owned(),
    }
}

fn signed(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::ReceiptRoller => {
            "The header x-rr-signature is \"sha256=\" and the HMAC-SHA256 of the body in lower-case hex, keyed with the \
             whole secret as text."
        }
        Scheme::StandardWebhooks => {
            "The header webhook-signature is \"v1,\" and the HMAC-SHA256 of webhook-id, webhook-timestamp and the body, \
             joined by dots, in base64; the key is what follows \"whsec_\" in the secret, decoded from base64."
        }
        Scheme::StandardWebhooksEd25519 => {
            "The header webhook-signature is \"v1a,\" and the ed25519 signature of webhook-id, webhook-timestamp and the \
             body, joined by dots, in base64; it is checked with the webhook's public key."
        }
    }
}

#[cfg(test)]
mod tests;
