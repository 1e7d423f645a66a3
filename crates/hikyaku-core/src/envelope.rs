//! What the inbox reads from a delivery that somebody else wrote. Nothing here fails: what is signed is stored (T6), so
//! whatever cannot be read is simply not known.

use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::ids::MAX_ID_BYTES;
use crate::json;
use crate::provider::{Headers, Preset, Verifier};

/// Longest business key that is used as one, in bytes; a longer one is not known.
pub const MAX_KEY_BYTES: usize = 512;
/// Longest event type that is used as one, in bytes; a longer one is not known.
pub const MAX_TYPE_BYTES: usize = 256;

/// What could be read of a delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Whether the body is JSON at all.
    pub is_json: bool,
    /// Whether the body is a JSON object.
    pub is_object: bool,
    /// The delivery's id.
    pub id: Option<String>,
    /// Two ids that differ where they should not.
    pub contradiction: Option<Contradiction>,
    /// The event's type.
    pub event_type: Option<String>,
    /// When the event was sent out; the same in every retry (R20).
    pub timestamp: Option<Timestamp>,
    /// The business key.
    pub key: Option<String>,
}

/// A header that nothing signs names another id than the signed body. R21 makes the two equal, so whoever sends another
/// one may have copied the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The header's name.
    pub header: String,
    /// The id in it.
    pub unsigned: String,
    /// The id in the body.
    pub signed: String,
}

impl Envelope {
    /// Reads a ReceiptRoller body alone: `{"id","type","timestamp","data"}`. Deliveries, which have headers too, are read
    /// by [`Verifier::read`].
    pub fn read(body: &[u8]) -> Self {
        Verifier::new(Preset::ReceiptRoller.profile(), &[]).read(&Headers::default(), body)
    }
}

/// The business key of a ReceiptRoller event, by the shape of its `data` rather than by the type's name: an order's
/// `/order_id`, else `/id` (R24).
pub fn business_key(data: &RawValue) -> Option<String> {
    let values = json::all_within(data, &["/order_id", "/id"]).into_iter().flatten();
    values.filter_map(json::text_or_number).find(|key| is_key(key))
}

pub(crate) fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control)
}

pub(crate) fn is_type(word: &str) -> bool {
    !word.is_empty() && word.len() <= MAX_TYPE_BYTES
}

pub(crate) fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_BYTES
}
