//! How a provider signs, as data.

use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use ring::hmac;

use super::field::is_header_name;
use super::{Content, Field};
use crate::signature::Secret;
use crate::signature::standard::{InvalidKey as InvalidStandardKey, VerifyingKey};

/// How a provider signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// The header that carries the signature, in lower case; empty where everybody chooses an own one.
    pub header: String,
    /// What stands before a signature in it, as `sha256=`; often nothing.
    pub prefix: String,
    /// What separates several parts of it; `None` where it holds one signature and nothing else.
    pub separator: Option<char>,
    /// What is computed.
    pub algorithm: Algorithm,
    /// How its result is written.
    pub encoding: Encoding,
    /// What key a secret stands for.
    pub key: KeyForm,
    /// What it is computed over.
    pub content: Content,
    /// What `{timestamp}` stands for in it.
    pub timestamp: Option<Field>,
    /// What `{url}` stands for in it: the URL under which the provider knows the receiver.
    pub url: Option<String>,
}

/// What is computed with a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-1, which old providers have left.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// Nothing: the header carries the secret itself. It says who sent, and nothing about what.
    SharedSecret,
}

/// How a signature is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal digits, in either case.
    Hex,
    /// Base64 with its padding.
    Base64,
}

/// What key a secret stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// Its UTF-8 bytes as they stand.
    Text,
    /// Standard Webhooks: `whsec_` and Base64 for an HMAC key, `whpk_` and Base64 for an ed25519 public key, whose
    /// signatures have the prefix `v1a,`.
    Standard,
}

/// Why a secret is no key of a scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// It has not the form that Standard Webhooks asks for.
    #[error("{0}")]
    Standard(#[from] InvalidStandardKey),
    /// It could not come in a header.
    #[error("must be visible ASCII characters, as it comes in a header")]
    NotAHeader,
}

/// What verifies under one secret.
pub(super) enum Key {
    /// Computes the same and compares.
    Mac(hmac::Key),
    /// Compares with the secret itself.
    Shared(Vec<u8>),
    /// Verifies with a public key.
    Public(VerifyingKey),
}

impl Scheme {
    /// Whether a secret can be used with this scheme; if not, what is wrong with it.
    pub fn check(&self, secret: &Secret) -> Result<(), InvalidKey> {
        self.key_of(secret).map(drop)
    }

    /// Whether a text can be the name of [`Scheme::header`].
    pub fn is_header(name: &str) -> bool {
        is_header_name(name)
    }

    pub(super) fn key_of(&self, secret: &Secret) -> Result<Key, InvalidKey> {
        let text = secret.reveal();
        let Some(mac) = self.algorithm.mac() else {
            let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
            return if is_visible { Ok(Key::Shared(text.into())) } else { Err(InvalidKey::NotAHeader) };
        };
        match self.key {
            KeyForm::Text => Ok(Key::Mac(hmac::Key::new(mac, text.as_bytes()))),
            KeyForm::Standard => Ok(match VerifyingKey::parse(text)? {
                VerifyingKey::Hmac(key) => Key::Mac(key),
                public => Key::Public(public),
            }),
        }
    }
}

impl Algorithm {
    fn mac(self) -> Option<hmac::Algorithm> {
        match self {
            Self::HmacSha1 => Some(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Self::HmacSha256 => Some(hmac::HMAC_SHA256),
            Self::HmacSha512 => Some(hmac::HMAC_SHA512),
            Self::SharedSecret => None,
        }
    }
}

impl Encoding {
    /// The bytes of a signature of exactly this form: no character too many, no padding left out (S13).
    pub(super) fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok(),
            Self::Base64 => BASE64.decode(text.as_bytes()).ok(),
        }
    }
}
