//! Sealing (S15): secrets stand in a store's files encrypted under a key that is not in them. Whoever gets a copy of the
//! files, of a disk or of a backup, gets no secret.
//!
//! A store seals at its edge: what goes through its trait is open. Sealed text names the key, and is bound to its place,
//! so that it cannot be put into another row. Text that is not sealed is read as it stands, so that a store can begin
//! without a key and get one later.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};

use crate::clock;

/// Bytes of a sealing key.
pub const SEALING_KEY_BYTES: usize = 32;
/// Most keys that can be known at once: the present one, and older ones that are going out of use.
pub const MAX_SEALING_KEYS: usize = 8;
/// Bytes of a key's digest that name it.
const KEY_ID_BYTES: usize = 4;
/// What sealed text begins with.
const SEALED: &str = "sealed:1:";
/// What open text begins with that would otherwise look like something else.
const OPEN: &str = "open:";

/// Why a text is no sealing key. It does not repeat the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be {SEALING_KEY_BYTES} random bytes in hexadecimal or Base64; `openssl rand -hex {SEALING_KEY_BYTES}` makes a good one"
)]
pub struct InvalidSealingKey;

/// Why sealed text cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was sealed under a key that is not known here.
    #[error("it is sealed under the key {0}, which is not configured")]
    UnknownKey(String),
    /// It was changed, or belongs elsewhere.
    #[error("sealed text was changed or moved")]
    Broken,
}

/// A key to seal with.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    key: LessSafeKey,
}

impl SealingKey {
    /// Takes 32 bytes in hexadecimal or Base64.
    pub fn parse(text: &str) -> Result<Self, InvalidSealingKey> {
        let text = text.as_bytes();
        let decoded =
            HEXLOWER_PERMISSIVE.decode(text).or_else(|_| BASE64.decode(text)).map_err(|_| InvalidSealingKey)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &decoded).map_err(|_| InvalidSealingKey)?;
        let digest = digest(&SHA256, &[b"hikyaku sealing key ", &decoded[..]].concat());
        Ok(Self { id: HEXLOWER.encode(&digest.as_ref()[..KEY_ID_BYTES]), key: LessSafeKey::new(key) })
    }

    /// What names it, in sealed text and in messages.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

/// Seals under one key and opens what was sealed under any; without a key it leaves everything as it is.
#[derive(Debug, Clone, Default)]
pub struct Seal(Vec<SealingKey>);

impl Seal {
    /// The first key seals; the others only open.
    pub fn new(keys: Vec<SealingKey>) -> Self {
        Self(keys)
    }

    /// Its keys, the one that seals first.
    pub fn keys(&self) -> &[SealingKey] {
        &self.0
    }

    /// What is to be stored of `text` at `place`.
    pub(in crate::store) fn seal(&self, text: &str, place: &Place<'_>) -> String {
        let Some(SealingKey { id, key }) = self.0.first() else { return unsealed(text) };
        let nonce: [u8; NONCE_LEN] = clock::random();
        let mut sealed = text.as_bytes().to_vec();
        let aad = Aad::from(place.bytes());
        // It fails only for texts of gigabytes.
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).expect("a secret is short");
        format!("{SEALED}{id}:{}", BASE64.encode(&[&nonce[..], &sealed].concat()))
    }

    /// The text that is stored as `stored` at `place`.
    pub(in crate::store) fn open(&self, stored: &str, place: &Place<'_>) -> Result<String, SealError> {
        let Some(sealed) = stored.strip_prefix(SEALED) else {
            return Ok(stored.strip_prefix(OPEN).unwrap_or(stored).to_owned());
        };
        let (id, encoded) = sealed.split_once(':').ok_or(SealError::Broken)?;
        let key = self.0.iter().find(|key| key.id == id).ok_or_else(|| SealError::UnknownKey(id.to_owned()))?;
        let mut bytes = BASE64.decode(encoded.as_bytes()).map_err(|_| SealError::Broken)?;
        let (nonce, sealed) = bytes.split_first_chunk_mut::<NONCE_LEN>().ok_or(SealError::Broken)?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key.key.open_in_place(nonce, Aad::from(place.bytes()), sealed).map_err(|_| SealError::Broken)?;
        String::from_utf8(opened.to_vec()).map_err(|_| SealError::Broken)
    }

    /// Whether text is stored as this would store it, and not open or under an older key.
    pub(in crate::store) fn is_current(&self, stored: &str) -> bool {
        let seals_with =
            |key: &SealingKey| stored.strip_prefix(SEALED).is_some_and(|sealed| sealed.starts_with(&key.id));
        self.0.first().map_or(!stored.starts_with(SEALED), seals_with)
    }
}

fn unsealed(text: &str) -> String {
    if text.starts_with(SEALED) || text.starts_with(OPEN) { format!("{OPEN}{text}") } else { text.to_owned() }
}

/// Where a text stands.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Place<'a> {
    /// Whose row.
    pub(in crate::store) organization: &'a str,
    /// Which row.
    pub(in crate::store) row: &'a str,
    /// In which column.
    pub(in crate::store) column: &'a str,
}

impl Place<'_> {
    /// No part holds the byte between them.
    fn bytes(&self) -> Vec<u8> {
        [self.organization, self.row, self.column].join("\0").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { organization: "acme", row: "w", column: "webhooks.secret" };

    fn key(byte: u8) -> SealingKey {
        SealingKey::parse(&HEXLOWER.encode(&[byte; 32])).unwrap()
    }

    #[test]
    fn s15_what_is_sealed_opens_in_its_place_and_nowhere_else() {
        let seal = Seal::new(vec![key(1)]);
        for text in ["", "whsec_x", "領収書", "sealed:1:x", "open:x"] {
            let stored = seal.seal(text, &PLACE);
            assert!(
                stored.starts_with(&format!("sealed:1:{}:", key(1).id()))
                    && (text.is_empty() || !stored[18..].contains(text))
            );
            assert_ne!(stored, seal.seal(text, &PLACE), "no nonce comes twice");
            assert_eq!(seal.open(&stored, &PLACE), Ok(text.to_owned()));
            for elsewhere in [
                Place { organization: "rival", ..PLACE },
                Place { row: "v", ..PLACE },
                Place { column: "webhooks.settings", ..PLACE },
            ] {
                assert_eq!(seal.open(&stored, &elsewhere), Err(SealError::Broken));
            }
        }
    }

    #[test]
    fn s15_a_changed_text_does_not_open() {
        let seal = Seal::new(vec![key(1)]);
        let stored = seal.seal("secret", &PLACE);
        let start = stored.rfind(':').unwrap() + 1;
        let bytes = BASE64.decode(&stored.as_bytes()[start..]).unwrap();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let changed = format!("{}{}", &stored[..start], BASE64.encode(&changed));
            assert_eq!(seal.open(&changed, &PLACE), Err(SealError::Broken), "byte {at}");
        }
        for broken in [&stored[..start], "sealed:1:", "sealed:1:x", &stored[..stored.len() - 4]] {
            assert!(seal.open(broken, &PLACE).is_err(), "{broken}");
        }
    }

    #[test]
    fn an_older_key_opens_and_the_present_one_seals() {
        let (old, both) = (Seal::new(vec![key(1)]), Seal::new(vec![key(2), key(1)]));
        let stored = old.seal("secret", &PLACE);
        assert_eq!(both.open(&stored, &PLACE).as_deref(), Ok("secret"));
        assert!(old.is_current(&stored) && !both.is_current(&stored) && !both.is_current("secret"));
        assert!(both.is_current(&both.seal("secret", &PLACE)));
        let unknown = SealError::UnknownKey(key(1).id().to_owned());
        assert_eq!(Seal::new(vec![key(2)]).open(&stored, &PLACE), Err(unknown.clone()));
        assert_eq!(Seal::default().open(&stored, &PLACE), Err(unknown));
    }

    #[test]
    fn without_a_key_texts_stand_open_whatever_they_look_like() {
        let none = Seal::default();
        for (text, stored) in [("secret", "secret"), ("sealed:1:ab:x", "open:sealed:1:ab:x"), ("open:x", "open:open:x")]
        {
            assert_eq!(none.seal(text, &PLACE), stored);
            assert_eq!(none.open(stored, &PLACE).as_deref(), Ok(text));
            assert!(none.is_current(stored));
        }
    }

    #[test]
    fn a_key_is_32_bytes_in_hexadecimal_or_base64_and_is_not_printed() {
        let hex = HEXLOWER.encode(&[0xab; 32]);
        let same = [hex.clone(), hex.to_uppercase(), BASE64.encode(&[0xab; 32])];
        let ids: Vec<_> = same.iter().map(|text| SealingKey::parse(text).unwrap().id().to_owned()).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 8));
        assert_eq!(format!("{:?}", key(0xab)), format!("SealingKey({})", ids[0]));
        for bad in ["", "secret", &hex[..62], &format!("{hex}00"), &BASE64.encode(&[1; 31])] {
            assert!(SealingKey::parse(bad).is_err(), "{bad}");
        }
    }
}
