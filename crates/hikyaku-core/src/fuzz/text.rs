//! What is read of a delivery: its envelope, values in it, times and names.

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use super::target::split;
use crate::envelope::{Envelope, MAX_KEY_BYTES, MAX_TYPE_BYTES};
use crate::event::{EventPattern, EventType, render_body};
use crate::ids::{EventId, MAX_ID_BYTES, OrganizationId};
use crate::provider::{Content, Field};
use crate::retry::parse_retry_after;
use crate::{json, timestamp as times};

/// A delivered body.
pub(super) fn envelope(bytes: &[u8]) {
    let read = Envelope::read(bytes);
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // Its nesting is bounded in one reading and not in the other, which skips what it does not look for.
    let is_value = serde_json::from_slice::<Value>(text).is_ok();
    assert!(read.is_json || !is_value, "JSON was taken for none");
    if !read.is_json {
        assert_eq!(read, Envelope::default(), "something was read of what is no JSON");
        return;
    }
    assert!(read.id.as_ref().is_none_or(|id| (1..=MAX_ID_BYTES).contains(&id.len())));
    assert!(read.event_type.as_ref().is_none_or(|kind| (1..=MAX_TYPE_BYTES).contains(&kind.len())));
    assert!(read.key.as_ref().is_none_or(|key| (1..=MAX_KEY_BYTES).contains(&key.len())));
    assert_eq!(Envelope::read(&[text, b" \n"].concat()), read, "blanks at the end have changed it");
    // What we would send of it is read as it was meant.
    let (Some(id), Some(kind), Some(at)) = (read.id, read.event_type, read.timestamp) else { return };
    let (Ok(id), Ok(kind)) = (EventId::parse(id), EventType::parse(kind)) else { return };
    let Some(data) = json::pointer(text, "/data") else { return };
    let at = Timestamp::from_millisecond(at.as_millisecond()).expect("it was one with more digits");
    let again = Envelope::read(&render_body(&id, &kind, at, data));
    assert_eq!((again.id.as_deref(), again.event_type.as_deref()), (Some(id.as_str()), Some(kind.as_str())));
    assert_eq!((again.timestamp, again.key), (Some(at), read.key));
}

/// A JSON pointer on the first line, and what it points into.
pub(super) fn pointer(bytes: &[u8]) {
    let (path, text) = split(bytes, b"\n");
    let Ok(path) = std::str::from_utf8(path) else { return };
    let found = json::pointer(text, path);
    assert!(found.is_none() || json::is_pointer(path));
    // Together with others it finds what it finds alone, and so do they.
    let several = [path, "", "/data", "/data/id", path, "/0"];
    let together = json::pointer(text, "").map(|root| json::all_within(root, &several));
    for (place, path) in several.into_iter().enumerate() {
        let one = together.as_ref().and_then(|all| all[place]).map(RawValue::get);
        assert_eq!(one, json::pointer(text, path).map(RawValue::get), "{path}");
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if let Some(found) = found {
        assert!(
            text.windows(found.get().len()).any(|part| part == found.get().as_bytes()),
            "it is not as it was written"
        );
        json::text_or_number(found);
    }
    // What another reading finds there; it knows no numbers that no machine holds, and no deep nesting.
    let Ok(whole) = serde_json::from_slice::<Value>(text) else { return };
    let expected = whole.pointer(path).filter(|_| json::is_pointer(path));
    let found = found.and_then(|found| serde_json::from_str::<Value>(found.get()).ok());
    assert_eq!(found.as_ref(), expected, "{path} in {whole}");
}

/// A time, as an event, a list or `Retry-After` writes it.
pub(super) fn timestamp(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let now = Timestamp::from_second(1_796_030_100).expect("it is a time");
    assert!(parse_retry_after(text, now).is_none() || !text.trim().is_empty());
    let Some(at) = times::parse(text) else { return };
    assert!(text.len() <= times::MAX_TIMESTAMP_BYTES);
    let written = times::format(at);
    assert_eq!(written.len(), "2026-11-30T09:15:00.000Z".len(), "{written}");
    let again = times::parse(&written).expect("we read what we write");
    assert_eq!((times::format(again), again.as_millisecond()), (written, at.as_millisecond()));
}

/// A name on each line: ids, types, patterns, fields and what is signed.
pub(super) fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<_> = text.split('\n').collect();
    for line in &lines {
        if let Ok(id) = EventId::parse(*line) {
            assert!(id.as_str() == *line && line.bytes().all(|byte| byte.is_ascii_graphic()));
        }
        if let Ok(organization) = OrganizationId::parse(*line) {
            assert!(!organization.as_str().contains(['/', '%', '?', '#']), "{organization} leads elsewhere in a path");
        }
        if let Ok(content) = Content::parse(line) {
            assert_eq!(Content::parse(&content.to_string()).as_ref(), Ok(&content));
        }
        if let Ok(field) = Field::parse(line) {
            assert_eq!(Field::parse(&field.to_string()).as_ref(), Ok(&field));
        }
        let Ok(pattern) = EventPattern::parse_received(line) else { continue };
        assert_eq!(EventPattern::parse_received(&pattern.to_string()).as_ref(), Ok(&pattern));
        for kind in &lines {
            assert_eq!(pattern.matches(kind), is_meant(line, kind), "{line} and {kind}");
        }
    }
}

/// The rule of patterns, in other words.
fn is_meant(pattern: &str, kind: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => kind.starts_with(prefix) && (prefix.is_empty() || kind.len() > prefix.len()),
        None => pattern == kind,
    }
}
