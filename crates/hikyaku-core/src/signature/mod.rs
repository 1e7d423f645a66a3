//! Signatures, one file per scheme, with signing beside verifying so that the two cannot drift apart.

pub mod receiptroller;

use std::fmt;

/// The key of an HMAC: a secret's UTF-8 bytes as they stand. Never printed.
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

    /// A new secret from random bytes, as text with a prefix that says what it is.
    pub fn generate(random: [u8; 32]) -> Self {
        let hex: String = random.iter().map(|b| format!("{b:02x}")).collect();
        Self(format!("whsec_{hex}"))
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
