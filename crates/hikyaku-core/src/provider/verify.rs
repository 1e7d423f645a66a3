//! Whether a delivery is a provider's: first of all, over the raw bytes (C11).

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use ring::hmac;

use super::content::Part;
use super::scheme::Key;
use super::{Envelope, Headers, Profile};
use crate::ids::MAX_ID_BYTES;
use crate::signature::Secret;
use crate::{json, timestamp};

/// Longest signature header that is looked at, in bytes.
pub const MAX_SIGNATURE_HEADER_BYTES: usize = 4096;
/// Most signatures of one header that are looked at.
pub const MAX_SIGNATURES: usize = 16;
/// Most of them that are tried with a public key: each costs a hash of the body, where a MAC is computed once for all.
const MAX_PUBLIC_SIGNATURES: usize = 4;
/// Most parts into which a signature header is taken apart, signatures and others.
const MAX_PARTS: usize = 64;
/// What stands before an ed25519 signature of Standard Webhooks.
const ED25519_PREFIX: &str = "v1a,";

/// Why a delivery was not accepted. The receiver's log may say it; so may the answer: it tells nothing about a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no signature header.
    #[error("there is no {0} header")]
    Missing(String),
    /// It comes twice, and nobody could say which one is meant.
    #[error("the {0} header comes more than once")]
    Doubled(String),
    /// It has bytes that are no visible ASCII.
    #[error("the {0} header is not visible ASCII")]
    NotAscii(String),
    /// It is longer than anybody's.
    #[error("the {0} header is longer than {MAX_SIGNATURE_HEADER_BYTES} bytes")]
    TooLong(String),
    /// Nothing in it has the form of a signature.
    #[error("the {0} header holds no signature of the form that this source has")]
    Malformed(String),
    /// Something that is signed beside the body is not there, or not what it must be.
    #[error("the {0}, which is signed together with the body, is missing or not usable")]
    Incomplete(&'static str),
    /// It belongs to another secret or another content.
    #[error("the signature belongs to another secret or another body")]
    Mismatch,
    /// It was signed too long ago, or in the future.
    #[error("it was signed at {signed_at}, which is more than {}s from now", freshness.as_secs())]
    Stale {
        /// The time that was signed.
        signed_at: Timestamp,
        /// How far it may be from now.
        freshness: Duration,
    },
}

/// What a signature has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verified {
    /// Which of the secrets it belongs to, from 0; the first, if several are alike.
    pub secret: usize,
}

/// A profile with the secrets of one source.
pub struct Verifier {
    profile: Profile,
    /// With each secret's place in the list.
    keys: Vec<(usize, Key)>,
    /// Makes two MACs out of two texts that shall be compared, so that the time says nothing about either.
    comparer: hmac::Key,
}

impl Verifier {
    /// Takes several secrets, because they overlap during a change. One that is no key of the scheme (see
    /// [`super::Scheme::check`]) verifies nothing.
    pub fn new(profile: Profile, secrets: &[Secret]) -> Self {
        let keys = secrets.iter().enumerate();
        let keys = keys.filter_map(|(number, secret)| Some((number, profile.scheme.key_of(secret).ok()?))).collect();
        Self { profile, keys, comparer: hmac::Key::new(hmac::HMAC_SHA256, b"compare") }
    }

    /// Verifies the raw body with its headers under any of the secrets (C11); nothing else is read before.
    ///
    /// Signatures are decoded strictly to their fixed length and compared in constant time (S13). Whatever a stranger
    /// sends, each secret costs one MAC over the body at most, or four hashes of it where it is a public key.
    pub fn verify(&self, headers: &Headers<'_>, body: &[u8], now: Timestamp) -> Result<Verified, Refusal> {
        let header = self.signature_header(headers)?;
        let parts = self.parts(header);
        let content = self.content(headers, &parts, body)?;
        let mut is_well_formed = false;
        let mut matching = None;
        // All are tried, whether one before matched or not, so that the time says nothing about which.
        for (number, key) in &self.keys {
            let prefix = if matches!(key, Key::Public(_)) { ED25519_PREFIX } else { &self.profile.scheme.prefix };
            let given = parts.iter().filter_map(|part| part.strip_prefix(prefix)).take(MAX_SIGNATURES);
            match self.matches(key, given, &content) {
                None => {}
                Some(false) => is_well_formed = true,
                Some(true) => {
                    matching.get_or_insert(*number);
                }
            }
        }
        let Some(secret) = matching else {
            let malformed = Refusal::Malformed(self.profile.scheme.header.clone());
            return Err(if is_well_formed || self.keys.is_empty() { Refusal::Mismatch } else { malformed });
        };
        self.check_fresh(headers, &parts, body, now)?;
        Ok(Verified { secret })
    }

    /// Reads what a verified delivery says about itself, as far as it can be read (T6).
    pub fn read(&self, headers: &Headers<'_>, body: &[u8]) -> Envelope {
        let header = self.signature_header(headers).unwrap_or_default();
        self.profile.layout.read(headers, &self.parts(header), body, self.profile.scheme.content.has_id())
    }

    /// What a verified delivery has to be answered with, if the provider only wants to see that somebody is there.
    pub fn challenge(&self, body: &[u8]) -> Option<String> {
        let text = |path| json::pointer(body, path).and_then(json::text_or_number);
        let is_asked = self.profile.answers_challenge && text("/type").as_deref() == Some("url_verification");
        is_asked.then(|| text("/challenge"))?
    }

    fn signature_header<'a>(&self, headers: &Headers<'a>) -> Result<&'a str, Refusal> {
        let name = &self.profile.scheme.header;
        let mut values = headers.all(name);
        let value = values.next().ok_or_else(|| Refusal::Missing(name.clone()))?;
        if values.next().is_some() {
            return Err(Refusal::Doubled(name.clone()));
        }
        if value.len() > MAX_SIGNATURE_HEADER_BYTES {
            return Err(Refusal::TooLong(name.clone()));
        }
        let text = std::str::from_utf8(value).ok();
        let is_visible = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        text.filter(is_visible).ok_or_else(|| Refusal::NotAscii(name.clone()))
    }

    fn parts<'a>(&self, header: &'a str) -> Vec<&'a str> {
        match self.profile.scheme.separator {
            Some(separator) => header.split(separator).map(str::trim).take(MAX_PARTS).collect(),
            None => vec![header],
        }
    }

    /// The pieces over which the signature is computed, in their order.
    fn content<'a>(
        &'a self,
        headers: &Headers<'a>,
        parts: &[&'a str],
        body: &'a [u8],
    ) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        let Profile { scheme, layout, .. } = &self.profile;
        let bytes = |text: Cow<'a, str>| match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        let piece = |part: &'a Part| match part {
            Part::Text(text) => Ok(Cow::Borrowed(text.as_bytes())),
            Part::Body => Ok(Cow::Borrowed(body)),
            Part::Url => Ok(Cow::Borrowed(scheme.url.as_deref().unwrap_or_default().as_bytes())),
            Part::Id => {
                let id = layout.id.first().and_then(|field| field.text(headers, parts, body));
                id.filter(|id| can_be_signed_id(id)).map(bytes).ok_or(Refusal::Incomplete("id"))
            }
            Part::Timestamp => {
                let time = scheme.timestamp.as_ref().and_then(|field| field.text(headers, parts, body));
                let time = time.filter(|text| timestamp::parse(text).is_some());
                time.map(bytes).ok_or(Refusal::Incomplete("timestamp"))
            }
        };
        scheme.content.parts().iter().map(piece).collect()
    }

    /// Whether one of the signatures is the key's; `None` if none has the form of one.
    fn matches<'s>(&self, key: &Key, given: impl Iterator<Item = &'s str>, content: &[Cow<'_, [u8]>]) -> Option<bool> {
        let encoding = self.profile.scheme.encoding;
        match key {
            Key::Shared(secret) => {
                let same: Vec<_> = given.map(|value| self.are_equal(value.as_bytes(), secret)).collect();
                (!same.is_empty()).then(|| same.contains(&true))
            }
            Key::Mac(key) => {
                let length = key.algorithm().digest_algorithm().output_len();
                let given: Vec<_> =
                    given.filter_map(|text| encoding.decode(text)).filter(|mac| mac.len() == length).collect();
                if given.is_empty() {
                    return None;
                }
                let mut context = hmac::Context::with_key(key);
                content.iter().for_each(|piece| context.update(piece));
                let mac = context.sign();
                Some(given.iter().filter(|given| self.are_equal(given, mac.as_ref())).count() > 0)
            }
            Key::Public(key) => {
                let given: Vec<_> =
                    given.filter_map(|text| encoding.decode(text)).take(MAX_PUBLIC_SIGNATURES).collect();
                let content = content.concat();
                let matching = given.iter().filter(|given| key.verify(&content, given)).count();
                (!given.is_empty()).then_some(matching > 0)
            }
        }
    }

    /// Compares the MACs of two texts, which are of one length whatever theirs is, in constant time (S13).
    fn are_equal(&self, given: &[u8], expected: &[u8]) -> bool {
        hmac::verify(&self.comparer, given, hmac::sign(&self.comparer, expected).as_ref()).is_ok()
    }

    /// A body that says no time passes: whoever signed it left it out, and nobody else could (T6).
    fn check_fresh(&self, headers: &Headers<'_>, parts: &[&str], body: &[u8], now: Timestamp) -> Result<(), Refusal> {
        let Some(freshness) = self.profile.freshness else { return Ok(()) };
        let text = self.profile.signed_time().and_then(|field| field.text(headers, parts, body));
        let Some(signed_at) = text.as_deref().and_then(timestamp::parse) else { return Ok(()) };
        if now.duration_since(signed_at).unsigned_abs() <= freshness {
            return Ok(());
        }
        Err(Refusal::Stale { signed_at, freshness })
    }
}

/// Whether an id can stand beside the body in what is signed. With a brace in it, the end of the id and the begin of a
/// JSON object could be taken apart in another place, and the signature would hold for another delivery as well.
fn can_be_signed_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.contains(['{', '}'])
}
