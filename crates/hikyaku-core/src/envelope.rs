//! What the inbox reads from a body that somebody else wrote. Nothing here fails: what is signed is stored (T6), so
//! whatever cannot be read is simply not known.

use jiff::Timestamp;

use crate::{json, timestamp};

/// Longest business key that is used as one, in bytes; a longer one is not known.
pub const MAX_KEY_BYTES: usize = 512;
/// Longest event type that is used as one, in bytes; a longer one is not known.
pub const MAX_TYPE_BYTES: usize = 256;

/// What could be read of a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Whether the body is JSON at all.
    pub is_json: bool,
    /// `/id`: equal to the delivery id where the provider keeps its word (R21).
    pub id: Option<String>,
    /// `/type`.
    pub event_type: Option<String>,
    /// `/timestamp`: when the event was sent out; the same in every retry (R20).
    pub timestamp: Option<Timestamp>,
    /// The business key, by the shape of `data` rather than by the type's name: an order's `/data/order_id`, else
    /// `/data/id` (R24). Opaque: bars, empty parts and month 13 are somebody else's business.
    pub key: Option<String>,
}

/// The business key of a body, by the shape of `data`: an order's `/data/order_id`, else `/data/id` (R24).
pub fn business_key(body: &[u8]) -> Option<String> {
    short(body, "/data/order_id", MAX_KEY_BYTES).or_else(|| short(body, "/data/id", MAX_KEY_BYTES))
}

fn text(body: &[u8], path: &str) -> Option<String> {
    json::pointer(body, path).and_then(json::text_or_number)
}

/// A text that is neither empty nor too long to be used.
fn short(body: &[u8], path: &str, limit_bytes: usize) -> Option<String> {
    text(body, path).filter(|text| !text.is_empty() && text.len() <= limit_bytes)
}

impl Envelope {
    /// Reads a ReceiptRoller body: `{"id","type","timestamp","data"}`.
    pub fn read(body: &[u8]) -> Self {
        Self {
            is_json: json::pointer(body, "").is_some(),
            id: text(body, "/id"),
            event_type: short(body, "/type", MAX_TYPE_BYTES),
            timestamp: text(body, "/timestamp").as_deref().and_then(timestamp::parse),
            key: business_key(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r24_the_key_is_found_by_shape_not_by_name() {
        let key = |body: &str| Envelope::read(body.as_bytes()).key;
        let sale = r#"{"type":"order.created","data":{"id":"t1|2026-13||9"}}"#;
        let order = r#"{"type":"sale.created","data":{"id":"x","order_id":29383937493038367292}}"#;
        assert_eq!(key(sale).as_deref(), Some("t1|2026-13||9"));
        assert_eq!(key(order).as_deref(), Some("29383937493038367292"));
        let long = format!(r#"{{"data":{{"id":"{}"}}}}"#, "x".repeat(MAX_KEY_BYTES + 1));
        for none in [r#"{"data":{}}"#, r#"{"data":{"id":""}}"#, r#"{"data":{"id":{}}}"#, r#"{"data":null}"#, &long] {
            assert_eq!(key(none), None, "{none}");
        }
    }

    #[test]
    fn t6_no_body_is_an_error() {
        for body in [&b""[..], b"null", b"12", b"\"text\"", b"\x00", b"\xff\xfe", b"{\"id\":", b"[[[["] {
            let read = Envelope::read(body);
            assert_eq!((read.id, read.event_type, read.timestamp, read.key), (None, None, None, None));
        }
        assert!(Envelope::read(b"null").is_json);
        assert!(!Envelope::read(b"nul").is_json);
    }

    #[test]
    fn r20_the_timestamp_may_be_text_or_number() {
        for body in [r#"{"timestamp":"1970-01-01T09:00:00+09:00"}"#, r#"{"timestamp":0}"#] {
            assert_eq!(Envelope::read(body.as_bytes()).timestamp, Some(Timestamp::UNIX_EPOCH), "{body}");
        }
    }
}
