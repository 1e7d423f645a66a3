//! ReceiptRoller's scheme as assumed: `X-RR-Signature: sha256=<lower-case hex>`, the HMAC-SHA256 of the raw body under
//! the webhook's secret, whose UTF-8 bytes as they stand are the key.

use ring::hmac;

use super::Secret;

/// The header that carries the signature.
pub const SIGNATURE_HEADER: &str = "x-rr-signature";
/// The header that carries the delivery id (R21).
pub const DELIVERY_HEADER: &str = "x-rr-delivery";

const PREFIX: &str = "sha256=";
/// Length of an HMAC-SHA256, in bytes.
const MAC_BYTES: usize = 32;

/// Why a signature was not accepted. The receiver's log may say it; the sender is only told 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSignature {
    /// There is no signature header.
    #[error("there is no {SIGNATURE_HEADER} header")]
    Missing,
    /// It is not `sha256=` and 64 hexadecimal digits.
    #[error("the {SIGNATURE_HEADER} header is not \"sha256=\" followed by 64 hexadecimal digits")]
    Malformed,
    /// It belongs to another secret or another body.
    #[error("the signature belongs to another secret or another body")]
    Mismatch,
}

/// The signature header's value for a body.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    let mac = hmac::sign(&key(secret), body);
    let mut value = String::with_capacity(PREFIX.len() + 2 * MAC_BYTES);
    value.push_str(PREFIX);
    for byte in mac.as_ref() {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        value.push(char::from(DIGITS[usize::from(byte >> 4)]));
        value.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    value
}

/// Verifies the raw body against the header under any of the secrets (C11); several are live during a rotation.
///
/// The header is decoded strictly to a fixed length before anything is compared, and compared in constant time (S13).
pub fn verify(secrets: &[Secret], header: Option<&[u8]>, body: &[u8]) -> Result<(), InvalidSignature> {
    let given = decode(header.ok_or(InvalidSignature::Missing)?).ok_or(InvalidSignature::Malformed)?;
    // Every secret is tried, whether one before it matched or not, so that the time says nothing about which.
    let matches = secrets.iter().filter(|secret| hmac::verify(&key(secret), body, &given).is_ok()).count();
    if matches > 0 { Ok(()) } else { Err(InvalidSignature::Mismatch) }
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes())
}

fn decode(header: &[u8]) -> Option<[u8; MAC_BYTES]> {
    let digits: &[u8; 2 * MAC_BYTES] = header.strip_prefix(PREFIX.as_bytes())?.try_into().ok()?;
    let mut mac = [0; MAC_BYTES];
    for (byte, pair) in mac.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 4231, test case 2: a key and a text that are not ours, with the MAC its authors publish.
    #[test]
    fn the_signature_is_the_one_of_rfc_4231() {
        let value = sign(&Secret::new("Jefe"), b"what do ya want for nothing?");
        assert_eq!(value, "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn s13_a_malformed_header_is_refused_before_anything_is_compared() {
        let secret = [Secret::new("s")];
        let good = sign(&secret[0], b"body");
        let cases = [
            good.replace("sha256=", ""),
            good.replace("sha256=", "sha1="),
            good[..good.len() - 1].to_owned(),
            format!("{good}0"),
            format!(" {good}"),
            good.replacen(|c: char| c.is_ascii_digit() && c != '2', "g", 1),
            "sha256=".to_owned(),
            String::new(),
        ];
        for header in cases {
            assert!(verify(&secret, Some(header.as_bytes()), b"body").is_err(), "{header}");
        }
        assert_eq!(verify(&secret, None, b"body"), Err(InvalidSignature::Missing));
        assert_eq!(verify(&[], Some(good.as_bytes()), b"body"), Err(InvalidSignature::Mismatch));
    }

    proptest! {
        #[test]
        fn c11_what_is_signed_verifies_and_nothing_else_does(
            body in proptest::collection::vec(any::<u8>(), 0..200), secret in ".{1,40}", other in ".{1,40}", flip in any::<usize>(),
        ) {
            let header = sign(&Secret::new(secret.as_str()), &body);
            let both = [Secret::new(other.as_str()), Secret::new(secret.as_str())];
            prop_assert_eq!(verify(&both, Some(header.as_bytes()), &body), Ok(()));
            if other != secret {
                prop_assert_eq!(verify(&both[..1], Some(header.as_bytes()), &body), Err(InvalidSignature::Mismatch));
            }
            if !body.is_empty() {
                let mut changed = body.clone();
                changed[flip % body.len()] ^= 1;
                prop_assert_eq!(verify(&both, Some(header.as_bytes()), &changed), Err(InvalidSignature::Mismatch));
            }
        }
    }
}
