//! Whether a delivery is the provider's (C11).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use hikyaku_core::signature::{Secret, receiptroller, standard};

use crate::{MAX_BODY_BYTES, Verified};

/// What a receiver verifies deliveries with. Cheap to clone.
#[derive(Clone)]
pub struct Verifier {
    scheme: Arc<Scheme>,
    max_body_bytes: usize,
}

enum Scheme {
    ReceiptRoller(Vec<Secret>),
    Standard(Vec<standard::VerifyingKey>),
}

/// Why a secret cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// There is none, so that nothing would ever be accepted.
    #[error("no secret is given; set the one that the provider shows for the webhook")]
    None,
    /// It is empty, so that anybody could sign with it.
    #[error("the secret is empty; set the one that the provider shows for the webhook")]
    Empty,
    /// It is not one of Standard Webhooks.
    #[error("the secret {0}")]
    Standard(#[from] standard::InvalidKey),
}

/// Why a delivery was not accepted. For your log; the sender is only told 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignature {
    /// By ReceiptRoller's scheme.
    #[error(transparent)]
    ReceiptRoller(#[from] receiptroller::InvalidSignature),
    /// By Standard Webhooks.
    #[error(transparent)]
    Standard(#[from] standard::InvalidSignature),
}

impl Verifier {
    /// Takes deliveries signed by ReceiptRoller's scheme: `X-RR-Signature: sha256=<hex>` over the raw body.
    ///
    /// Give the old secret beside the new one while it is being changed: a retry keeps its first signature (T8).
    ///
    /// # Errors
    /// If there is no secret, or an empty one.
    pub fn new<S: Into<String>>(secrets: impl IntoIterator<Item = S>) -> Result<Self, InvalidSecret> {
        let secrets: Vec<_> = secrets.into_iter().map(Secret::new).collect();
        if secrets.iter().any(|secret| secret.reveal().is_empty()) {
            return Err(InvalidSecret::Empty);
        }
        if secrets.is_empty() { Err(InvalidSecret::None) } else { Ok(Self::by(Scheme::ReceiptRoller(secrets))) }
    }

    /// Takes deliveries signed by Standard Webhooks, under secrets (`whsec_…`) or public keys (`whpk_…`).
    ///
    /// How old an attempt is plays no part: what comes twice is known by its id, and a late retry is legitimate (T7).
    ///
    /// # Errors
    /// If there is no key, or one that is not of this scheme.
    pub fn standard_webhooks<S: AsRef<str>>(keys: impl IntoIterator<Item = S>) -> Result<Self, InvalidSecret> {
        let parse = |key: S| standard::VerifyingKey::parse(key.as_ref());
        let keys = keys.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err(InvalidSecret::None) } else { Ok(Self::by(Scheme::Standard(keys))) }
    }

    fn by(scheme: Scheme) -> Self {
        Self { scheme: Arc::new(scheme), max_body_bytes: MAX_BODY_BYTES }
    }

    /// Sets how many bytes of a body the extractor takes, instead of [`MAX_BODY_BYTES`]; a larger one is answered 413.
    /// Stay above what the provider sends: to it, 413 is a failure like any other.
    #[must_use]
    pub fn with_max_body_bytes(mut self, limit: usize) -> Self {
        self.max_body_bytes = limit;
        self
    }

    /// How many bytes of a body are taken.
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    /// Verifies the raw `body`, and reads from it what can be read. `header` gives a header's value by its lower-case
    /// name: `|name| headers.get(name).map(|value| value.as_bytes())`.
    ///
    /// Once this is `Ok`, no answer but 200 (saved) and 503 (could not be saved) is right (T6).
    ///
    /// # Errors
    /// If the signature is under none of the secrets. Answer 401, and mind that a provider to which that happens for 71
    /// minutes switches the webhook off (T2).
    pub fn verify<'h>(
        &self,
        header: impl Fn(&'static str) -> Option<&'h [u8]>,
        body: impl Into<Bytes>,
    ) -> Result<Verified, InvalidSignature> {
        let body = body.into();
        let text = |name| header(name).and_then(|value| std::str::from_utf8(value).ok());
        match &*self.scheme {
            Scheme::ReceiptRoller(secrets) => {
                receiptroller::verify(secrets, header(receiptroller::SIGNATURE_HEADER), &body)?;
                Ok(Verified::with_unsigned_id(text(receiptroller::DELIVERY_HEADER), body))
            }
            Scheme::Standard(keys) => {
                let id = text(standard::ID_HEADER);
                let (timestamp, signature) = (text(standard::TIMESTAMP_HEADER), text(standard::SIGNATURE_HEADER));
                standard::verify(keys, standard::Headers { id, timestamp, signature }, &body)?;
                Ok(Verified::with_signed_id(id, body))
            }
        }
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match &*self.scheme {
            Scheme::ReceiptRoller(_) => "ReceiptRoller",
            Scheme::Standard(_) => "Standard Webhooks",
        };
        write!(f, "Verifier({scheme})")
    }
}

/// The value of `X-RR-Signature` for a body, as the provider would make it: for tests of your receiver.
pub fn sign(secret: &str, body: &[u8]) -> String {
    receiptroller::sign(&Secret::new(secret), body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"id":"e1","type":"sale.created"}"#;

    fn verify(verifier: &Verifier, headers: &[(&str, &str)]) -> Result<Verified, InvalidSignature> {
        let header = |name| headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_bytes());
        verifier.verify(header, BODY)
    }

    #[test]
    fn c11_only_what_a_live_secret_signed_is_taken() {
        let verifier = Verifier::new(["new", "old"]).unwrap();
        for secret in ["new", "old"] {
            let headers = [("x-rr-signature", sign(secret, BODY)), ("x-rr-delivery", "e1".to_owned())];
            let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
            let taken = verify(&verifier, &headers).unwrap();
            assert_eq!((taken.delivery_id.as_str(), &taken.body[..]), ("e1", BODY));
        }
        let refused = verify(&verifier, &[("x-rr-signature", &sign("other", BODY))]);
        assert_eq!(refused.unwrap_err(), receiptroller::InvalidSignature::Mismatch.into());
        assert_eq!(verify(&verifier, &[]).unwrap_err(), receiptroller::InvalidSignature::Missing.into());
    }

    #[test]
    fn s13_a_secret_that_anybody_knows_is_none() {
        assert_eq!(Verifier::new([""]).unwrap_err(), InvalidSecret::Empty);
        assert_eq!(Verifier::new(["good", ""]).unwrap_err(), InvalidSecret::Empty);
        assert_eq!(Verifier::new::<&str>([]).unwrap_err(), InvalidSecret::None);
        assert_eq!(Verifier::standard_webhooks::<&str>([]).unwrap_err(), InvalidSecret::None);
        assert!(matches!(Verifier::standard_webhooks(["whsec_short"]), Err(InvalidSecret::Standard(_))));
    }

    /// The values are those that the Standard Webhooks project tests its own libraries with.
    #[test]
    fn t7_a_standard_webhook_is_taken_however_old_and_known_by_its_signed_id() {
        let verifier = Verifier::standard_webhooks(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]).unwrap();
        let mut headers = vec![
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ];
        let header = |headers: &[(&str, &'static str)], name| {
            headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_bytes())
        };
        let body = &br#"{"test": 2432232314}"#[..];
        let taken = verifier.verify(|name| header(&headers, name), body).unwrap();
        assert_eq!((taken.delivery_id.as_str(), taken.park), ("msg_p5jXN8AQM9LWM0D4loKWxJek", None));
        headers[0].1 = "msg_other";
        let refused = verifier.verify(|name| header(&headers, name), body);
        assert_eq!(refused.unwrap_err(), standard::InvalidSignature::Mismatch.into());
    }

    #[test]
    fn s19_a_verifier_shows_no_secret() {
        assert_eq!(format!("{:?}", Verifier::new(["secret"]).unwrap()), "Verifier(ReceiptRoller)");
    }
}
