//! Signatures, one file per scheme, with signing beside verifying so that the two cannot drift apart.

pub mod receiptroller;
pub mod standard;

use std::fmt;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};

/// How deliveries are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Scheme {
    /// ReceiptRoller's: `X-RR-Signature`.
    #[default]
    #[serde(rename = "receiptroller")]
    ReceiptRoller,
    /// Standard Webhooks with HMAC-SHA256 (`v1`).
    #[serde(rename = "standard-webhooks")]
    StandardWebhooks,
    /// Standard Webhooks with ed25519 (`v1a`).
    #[serde(rename = "standard-webhooks-ed25519")]
    StandardWebhooksEd25519,
}

impl Scheme {
    /// A new secret from random bytes, as text with a prefix that says what it is. A new HMAC secret fits both schemes
    /// that take one.
    pub fn generate(self, random: [u8; 32]) -> Secret {
        let prefix = match self {
            Self::ReceiptRoller | Self::StandardWebhooks => standard::HMAC_PREFIX,
            Self::StandardWebhooksEd25519 => standard::PRIVATE_PREFIX,
        };
        Secret(format!("{prefix}{}", BASE64.encode(&random)))
    }

    /// Whether a secret can sign by this scheme; if not, what is wrong with it.
    pub fn check(self, secret: &Secret) -> Result<(), standard::InvalidKey> {
        match self {
            Self::ReceiptRoller => Ok(()),
            Self::StandardWebhooks => standard::SigningKey::hmac(secret).map(drop),
            Self::StandardWebhooksEd25519 => standard::SigningKey::ed25519(secret).map(drop),
        }
    }

    /// What receivers verify with, where it is not the secret itself.
    pub fn public_key(self, secret: &Secret) -> Option<String> {
        match self {
            Self::ReceiptRoller | Self::StandardWebhooks => None,
            Self::StandardWebhooksEd25519 => standard::SigningKey::ed25519(secret).ok()?.public(),
        }
    }
}

/// A secret as text. What the key is that it stands for is its scheme's to say. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Shortest secret we take for a webhook, in bytes (S15).
pub const MIN_SECRET_BYTES: usize = 24;
/// Longest secret, in bytes.
pub const MAX_SECRET_BYTES: usize = 256;

impl Secret {
    /// Takes a text as a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one place that shows it and the store that keeps it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    #[test]
    fn s15_a_secret_fits_its_scheme_or_is_refused() {
        let schemes = [Scheme::ReceiptRoller, Scheme::StandardWebhooks, Scheme::StandardWebhooksEd25519];
        let hmac = Scheme::StandardWebhooks.generate([7; 32]);
        let ed25519 = Scheme::StandardWebhooksEd25519.generate([7; 32]);
        assert_eq!(Scheme::ReceiptRoller.generate([7; 32]), hmac);
        for (secret, fits) in
            [(Secret::new("till"), [true, false, false]), (hmac, [true, true, false]), (ed25519, [true, false, true])]
        {
            assert_eq!(schemes.map(|scheme| scheme.check(&secret).is_ok()), fits, "{}", secret.reveal());
        }
    }

    /// RFC 8032, 7.1, test 1: a pair of keys that is not ours.
    #[test]
    fn only_ed25519_has_a_public_key() {
        let base64 = |hex: &str| BASE64.encode(&HEXLOWER.decode(hex.as_bytes()).unwrap());
        let private = base64("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let public = base64("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        let secret = Secret::new(format!("{}{private}", standard::PRIVATE_PREFIX));
        let expected = Some(format!("whpk_{public}"));
        assert_eq!(Scheme::StandardWebhooksEd25519.public_key(&secret), expected);
        assert_eq!(Scheme::StandardWebhooks.public_key(&secret), None);
        assert_eq!(Scheme::StandardWebhooksEd25519.public_key(&Secret::new("till")), None);
    }

    #[test]
    fn s19_a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("till")), "Secret(…)");
    }
}
