//! What is known of a delivery once it is verified. Nothing here fails: what is signed is saved (T6).

use std::fmt;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use hikyaku_core::envelope::Envelope;
use hikyaku_core::ids::MAX_ID_BYTES;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};

use crate::Version;

/// A delivery whose signature is good.
///
/// With the feature `axum` it is an extractor. Save it, in one transaction with
/// `insert_if_absent`, and answer 200.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// The body, byte for byte as it came.
    pub body: Bytes,
    /// What tells duplicates (C5): the header's id, else the signed body's, else one made of the body.
    pub delivery_id: String,
    /// The body's `type`, if it has one of at most 256 bytes.
    pub event_type: Option<String>,
    /// The body's `timestamp`: when the event was sent out, the same in every retry (R20).
    pub timestamp: Option<Timestamp>,
    /// The business key by the shape of `data`: `data.order_id`, else `data.id` (R24).
    pub key: Option<String>,
    /// Why nothing should be done with it until somebody has looked. Save it all the same, and answer 200.
    pub park: Option<ParkReason>,
}

/// Why a signed delivery cannot be worked off by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParkReason {
    /// The body is not JSON.
    NotJson,
    /// The body is JSON, but no object.
    NotAnObject,
    /// The `X-RR-Delivery` header, which is not signed, differs from the signed `id` (R21): this may be somebody's copy of
    /// that delivery. Its delivery id is made of both, so that it cannot take the place of one that is still to come.
    ContradictedId,
}

impl fmt::Display for ParkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotJson => "the body is not JSON",
            Self::NotAnObject => "the body is JSON, but no object",
            Self::ContradictedId => "the delivery id in the header is not the one in the signed body",
        })
    }
}

impl Verified {
    /// Where the event stands in its object's history; `None` if the body has no timestamp that can be read. Then nothing
    /// tells what is newer, and only the provider's API does (C3).
    pub fn version(&self) -> Option<Version> {
        let event_type = self.event_type.as_deref().unwrap_or_default();
        self.timestamp.map(|at| Version::new(at, event_type, &self.delivery_id))
    }

    /// A delivery whose id in the header is not part of what is signed.
    pub(crate) fn with_unsigned_id(header: Option<&str>, body: Bytes) -> Self {
        let envelope = Envelope::read(&body);
        let (header, signed) = (header.filter(|id| is_usable(id)), envelope.id.as_deref());
        if let (Some(header), Some(signed)) = (header, signed)
            && header != signed
        {
            let id = hash_id(&[header.as_bytes(), b"\n", &body].concat());
            return Self::of(id, envelope, Some(ParkReason::ContradictedId), body);
        }
        let id = header.or(signed.filter(|id| is_usable(id))).map_or_else(|| hash_id(&body), str::to_owned);
        Self::of(id, envelope, None, body)
    }

    /// A delivery whose id in the header is signed with the body.
    pub(crate) fn with_signed_id(header: Option<&str>, body: Bytes) -> Self {
        let id = header.filter(|id| is_usable(id)).map_or_else(|| hash_id(&body), str::to_owned);
        Self::of(id, Envelope::read(&body), None, body)
    }

    fn of(delivery_id: String, envelope: Envelope, park: Option<ParkReason>, body: Bytes) -> Self {
        let park = match park {
            _ if !envelope.is_json => Some(ParkReason::NotJson),
            _ if !envelope.is_object => Some(ParkReason::NotAnObject),
            reason => reason,
        };
        let Envelope { event_type, timestamp, key, .. } = envelope;
        Self { body, delivery_id, event_type, timestamp, key, park }
    }
}

/// Whether a text that somebody sent can be kept as an id.
fn is_usable(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control)
}

fn hash_id(bytes: &[u8]) -> String {
    format!("sha256:{}", HEXLOWER.encode(digest(&SHA256, bytes).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: Option<&str>, body: &'static str) -> Verified {
        Verified::with_unsigned_id(header, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn c5_the_id_is_the_header_s_else_the_body_s_else_made_of_the_body() {
        let body = r#"{"id":"e1"}"#;
        assert_eq!(read(Some("e1"), body).delivery_id, "e1");
        assert_eq!(read(None, body).delivery_id, "e1");
        assert_eq!(read(Some("e2"), r#"{"data":1}"#).delivery_id, "e2");
        let made = read(Some("not\tusable"), "{}");
        assert_eq!((&made.delivery_id, made.park), (&read(None, "{}").delivery_id, None));
        assert!(made.delivery_id.starts_with("sha256:"));
        assert_ne!(made.delivery_id, read(None, "[]").delivery_id);
    }

    #[test]
    fn r21_a_copy_under_another_id_is_parked_and_takes_nobody_s_place() {
        let copy = read(Some("e2"), r#"{"id":"e1"}"#);
        assert_eq!(copy.park, Some(ParkReason::ContradictedId));
        assert!(!["e1", "e2"].contains(&copy.delivery_id.as_str()));
        assert_eq!(copy.delivery_id, read(Some("e2"), r#"{"id":"e1"}"#).delivery_id);
    }

    #[test]
    fn case20_t6_any_signed_body_is_taken_and_parked_with_its_reason() {
        for (body, reason) in [
            ("", Some(ParkReason::NotJson)),
            ("{\"id\":", Some(ParkReason::NotJson)),
            ("null", Some(ParkReason::NotAnObject)),
            ("\"text\"", Some(ParkReason::NotAnObject)),
            ("12", Some(ParkReason::NotAnObject)),
            ("{}", None),
        ] {
            let taken = read(Some("e1"), body);
            assert_eq!((taken.park, &taken.body[..], &*taken.delivery_id), (reason, body.as_bytes(), "e1"));
        }
    }

    #[test]
    fn case3_a_long_number_is_a_key_in_its_own_digits() {
        let taken = read(None, r#"{"type":"order.updated","timestamp":0,"data":{"order_id":29383937493038367292}}"#);
        assert_eq!(taken.key.as_deref(), Some("29383937493038367292"));
        assert_eq!(taken.event_type.as_deref(), Some("order.updated"));
        assert_eq!(taken.version(), Some(Version::new(Timestamp::UNIX_EPOCH, "order.updated", &taken.delivery_id)));
        assert_eq!(read(None, "{}").version(), None);
    }
}
