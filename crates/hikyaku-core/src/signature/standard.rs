//! Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature`, which carries one signature or several,
//! separated by spaces. `v1` is HMAC-SHA256 and `v1a` is ed25519, both over `{id}.{timestamp}.{body}` and in Base64.
//!
//! The timestamp is that of the attempt, and a retry carries its own: receivers of this scheme refuse what is older than
//! a few minutes. What stays the same in every attempt is the id (R9 is about the ReceiptRoller scheme).
//!
//! An id may hold a `.`, which the scheme's authors advise against. Our bodies begin with `{`, so that there is still one
//! way only to take the signed bytes apart into an id, a number and a body.

use data_encoding::BASE64;
use ring::hmac;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::Secret;

/// The header that carries the event's id.
pub const ID_HEADER: &str = "webhook-id";
/// The header that carries the attempt's time, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header that carries the signatures.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// What an HMAC secret begins with.
pub(super) const HMAC_PREFIX: &str = "whsec_";
/// What an ed25519 secret begins with.
pub(super) const PRIVATE_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";
/// Bytes of an HMAC key that the scheme allows.
const HMAC_KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Bytes of an ed25519 seed, and of a public key.
const ED25519_KEY_BYTES: usize = 32;
/// Most signatures of one header that are looked at.
const MAX_SIGNATURES: usize = 16;

/// Why a text is no key of this scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It cannot be an HMAC secret.
    #[error("is not \"whsec_\" followed by 24 to 64 bytes in Base64")]
    Hmac,
    /// It cannot be an ed25519 secret.
    #[error("is not \"whsk_\" followed by 32 bytes in Base64")]
    Private,
    /// It cannot be an ed25519 public key.
    #[error("is not \"whpk_\" followed by 32 bytes in Base64")]
    Public,
}

/// Why a signature was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignature {
    /// One of the three headers is missing.
    #[error("one of the headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER} is missing")]
    Missing,
    /// The timestamp is no number of seconds.
    #[error("the {TIMESTAMP_HEADER} header is not a number of seconds")]
    Timestamp,
    /// No signature in it belongs to any of the keys and this delivery.
    #[error("no signature belongs to a known key and this id, timestamp and body")]
    Mismatch,
}

/// What signs.
pub enum SigningKey {
    /// `v1`.
    Hmac(hmac::Key),
    /// `v1a`.
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// Takes a secret as an HMAC key; it may go without its prefix.
    pub fn hmac(secret: &Secret) -> Result<Self, InvalidKey> {
        Ok(Self::Hmac(hmac_key(secret.reveal()).ok_or(InvalidKey::Hmac)?))
    }

    /// Takes a secret as an ed25519 key; it may go without its prefix.
    pub fn ed25519(secret: &Secret) -> Result<Self, InvalidKey> {
        let seed = decode(secret.reveal(), PRIVATE_PREFIX).ok_or(InvalidKey::Private)?;
        Ed25519KeyPair::from_seed_unchecked(&seed).map(Self::Ed25519).map_err(|_| InvalidKey::Private)
    }

    /// What receivers verify with, as text; only of ed25519, where it may be shown to anybody.
    pub fn public(&self) -> Option<String> {
        match self {
            Self::Hmac(_) => None,
            Self::Ed25519(pair) => Some(format!("{PUBLIC_PREFIX}{}", BASE64.encode(pair.public_key().as_ref()))),
        }
    }

    /// One signature, as it stands in the header.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let content = content(id, timestamp, body);
        match self {
            Self::Hmac(key) => format!("v1,{}", BASE64.encode(hmac::sign(key, &content).as_ref())),
            Self::Ed25519(pair) => format!("v1a,{}", BASE64.encode(pair.sign(&content).as_ref())),
        }
    }
}

/// What verifies.
pub enum VerifyingKey {
    /// `v1`.
    Hmac(hmac::Key),
    /// `v1a`.
    Ed25519(UnparsedPublicKey<Vec<u8>>),
}

impl VerifyingKey {
    /// Takes `whsec_…` (or no prefix) as an HMAC secret and `whpk_…` as an ed25519 public key.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        if text.starts_with(PUBLIC_PREFIX) {
            let key = decode(text, PUBLIC_PREFIX).filter(|key| key.len() == ED25519_KEY_BYTES);
            return Ok(Self::Ed25519(UnparsedPublicKey::new(&ED25519, key.ok_or(InvalidKey::Public)?)));
        }
        Ok(Self::Hmac(hmac_key(text).ok_or(InvalidKey::Hmac)?))
    }

    /// Whether one signature of the header is this key's, after strict decoding.
    fn matches(&self, signature: &str, content: &[u8]) -> bool {
        let Some((version, encoded)) = signature.split_once(',') else { return false };
        let Ok(given) = BASE64.decode(encoded.as_bytes()) else { return false };
        version == self.version() && self.verify(content, &given)
    }

    /// Whether a decoded signature is this key's. Compared in constant time (S13).
    pub(crate) fn verify(&self, content: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Hmac(key) => hmac::verify(key, content, signature).is_ok(),
            Self::Ed25519(key) => key.verify(content, signature).is_ok(),
        }
    }

    fn version(&self) -> &'static str {
        match self {
            Self::Hmac(_) => "v1",
            Self::Ed25519(_) => "v1a",
        }
    }
}

/// The three headers of a delivery, as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers<'a> {
    /// [`ID_HEADER`].
    pub id: Option<&'a str>,
    /// [`TIMESTAMP_HEADER`].
    pub timestamp: Option<&'a str>,
    /// [`SIGNATURE_HEADER`].
    pub signature: Option<&'a str>,
}

/// Verifies the raw body against its headers under any of the keys (C11), and gives the attempt's time in seconds since
/// 1970. Whether that is fresh enough is the caller's to judge (T7).
pub fn verify(keys: &[VerifyingKey], headers: Headers<'_>, body: &[u8]) -> Result<i64, InvalidSignature> {
    let (Some(id), Some(timestamp), Some(signatures)) = (headers.id, headers.timestamp, headers.signature) else {
        return Err(InvalidSignature::Missing);
    };
    let seconds: i64 = timestamp.parse().map_err(|_| InvalidSignature::Timestamp)?;
    let content = content(id, seconds, body);
    let pairs = signatures.split(' ').take(MAX_SIGNATURES).flat_map(|one| keys.iter().map(move |key| (key, one)));
    // All are tried, whether one before matched or not, so that the time says nothing about which.
    let matching = pairs.filter(|(key, signature)| key.matches(signature, &content)).count();
    if matching > 0 { Ok(seconds) } else { Err(InvalidSignature::Mismatch) }
}

/// What is signed.
fn content(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let mut content = format!("{id}.{timestamp}.").into_bytes();
    content.extend_from_slice(body);
    content
}

fn hmac_key(text: &str) -> Option<hmac::Key> {
    let key = decode(text, HMAC_PREFIX).filter(|key| HMAC_KEY_BYTES.contains(&key.len()))?;
    Some(hmac::Key::new(hmac::HMAC_SHA256, &key))
}

fn decode(text: &str, prefix: &str) -> Option<Vec<u8>> {
    BASE64.decode(text.strip_prefix(prefix).unwrap_or(text).as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The values that the Standard Webhooks project's own libraries are tested with.
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const HMAC: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const SEED: &str = "VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
    const ED25519: &str =
        "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==";

    fn headers(signature: &str) -> Headers<'_> {
        Headers { id: Some(ID), timestamp: Some("1614265330"), signature: Some(signature) }
    }

    #[test]
    fn the_signatures_are_those_that_the_project_publishes() {
        for secret in [SECRET, SECRET.trim_start_matches("whsec_")] {
            assert_eq!(SigningKey::hmac(&Secret::new(secret)).unwrap().sign(ID, AT, BODY), HMAC);
        }
        for secret in [SEED.to_owned(), format!("whsk_{SEED}")] {
            assert_eq!(SigningKey::ed25519(&Secret::new(secret)).unwrap().sign(ID, AT, BODY), ED25519);
        }
    }

    #[test]
    fn c11_a_published_signature_verifies_among_others_and_nothing_else_does() {
        let public = SigningKey::ed25519(&Secret::new(SEED)).unwrap().public().unwrap();
        let keys = [VerifyingKey::parse(SECRET).unwrap(), VerifyingKey::parse(&public).unwrap()];
        let other = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";
        for good in
            [HMAC.to_owned(), ED25519.to_owned(), format!("{other} v2,{HMAC} {HMAC}"), format!("{ED25519} {HMAC}")]
        {
            assert_eq!(verify(&keys, headers(&good), BODY), Ok(AT), "{good}");
        }
        let mismatches =
            [other, "", "v1,", "v1", &HMAC[..20], &HMAC.replace("v1,", "v1a,"), &ED25519.replace("v1a,", "v1,")];
        for bad in mismatches {
            assert_eq!(verify(&keys, headers(bad), BODY), Err(InvalidSignature::Mismatch), "{bad}");
        }
        assert_eq!(verify(&keys, headers(HMAC), b"{}"), Err(InvalidSignature::Mismatch));
        let later = Headers { timestamp: Some("1614265331"), ..headers(HMAC) };
        assert_eq!(verify(&keys, later, BODY), Err(InvalidSignature::Mismatch));
        let renamed = Headers { id: Some("msg_x"), ..headers(HMAC) };
        assert_eq!(verify(&keys, renamed, BODY), Err(InvalidSignature::Mismatch));
        assert_eq!(verify(&keys[..1], headers(ED25519), BODY), Err(InvalidSignature::Mismatch));
        let odd = Headers { timestamp: Some("hello"), ..headers(HMAC) };
        assert_eq!(verify(&keys, odd, BODY), Err(InvalidSignature::Timestamp));
        for without in [Headers { id: None, ..headers(HMAC) }, Headers { signature: None, ..headers(HMAC) }] {
            assert_eq!(verify(&keys, without, BODY), Err(InvalidSignature::Missing));
        }
    }

    #[test]
    fn s15_a_secret_that_is_too_short_or_no_base64_is_no_key() {
        let encoded = |length| BASE64.encode(&vec![7; length]);
        for (length, good) in [(23, false), (24, true), (64, true), (65, false)] {
            assert_eq!(SigningKey::hmac(&Secret::new(encoded(length))).is_ok(), good, "{length}");
        }
        for (length, good) in [(31, false), (32, true), (33, false)] {
            assert_eq!(SigningKey::ed25519(&Secret::new(encoded(length))).is_ok(), good, "{length}");
            assert_eq!(VerifyingKey::parse(&format!("whpk_{}", encoded(length))).is_ok(), good, "{length}");
        }
        assert!(SigningKey::hmac(&Secret::new("whsec_not-base64-not-base64-not-base64")).is_err());
    }
}
