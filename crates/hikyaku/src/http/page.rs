//! Lists that are read page by page, and the cursors between the pages.

use data_encoding::BASE64URL_NOPAD;
use hikyaku_core::ids::{EventId, TokenId, WebhookId};
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use crate::store::{DeliveryPosition, LogPosition, MissedPosition, RowPosition};

/// One page of a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page<T> {
    /// The page's rows.
    items: Vec<T>,
    /// Given back as `cursor` it brings the next page; `null` on the last.
    #[schema(required)]
    next_cursor: Option<String>,
    /// Only where the request had looked at as much as it may before its page was full: everything newer than this has
    /// been searched, and `nextCursor` goes on from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    searched_to: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of at most `limit` rows from `rows`, of which there is one more if another page follows.
    pub(super) fn new<R>(mut rows: Vec<R>, limit: u32, cursor: impl Fn(&R) -> String, item: impl Fn(R) -> T) -> Self {
        let limit = limit as usize;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(cursor);
        Self { items: rows.into_iter().map(item).collect(), next_cursor, searched_to: None }
    }

    /// The page of a search that ended at this time and with this cursor, because it had looked at as much as it may.
    pub(super) fn searched_to(mut self, place: Option<(Timestamp, String)>) -> Self {
        // A page that is full goes on after its last row.
        if let Some((at, cursor)) = place.filter(|_| self.next_cursor.is_none()) {
            self.searched_to = Some(timestamp::format(at));
            self.next_cursor = Some(cursor);
        }
        self
    }
}

/// A place in a list, as a text that callers hand back and do not look into.
pub(super) trait Cursor: Sized {
    fn encode(&self) -> String;
    /// Reads what [`Cursor::encode`] has written down before it made it unreadable, and may read more than that.
    fn read(plain: &str) -> Option<Self>;
    /// `None` for a text that [`Cursor::encode`] has not made.
    fn decode(text: &str) -> Option<Self> {
        Self::read(&open(text)?).filter(|place| place.encode() == text)
    }
}

impl Cursor for LogPosition {
    fn encode(&self) -> String {
        seal(&format!("{}:{}:{}:{}", self.started_at.as_millisecond(), self.run, self.number, self.event))
    }

    fn read(plain: &str) -> Option<Self> {
        let mut parts = plain.splitn(4, ':');
        let started_at = Timestamp::from_millisecond(parts.next()?.parse().ok()?).ok()?;
        let (run, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { started_at, run, number, event: EventId::parse(parts.next()?).ok()? })
    }
}

impl Cursor for MissedPosition {
    fn encode(&self) -> String {
        seal(&format!("{}:{}", self.timestamp.as_millisecond(), self.event))
    }

    fn read(plain: &str) -> Option<Self> {
        let (timestamp, event) = plain.split_once(':')?;
        let timestamp = Timestamp::from_millisecond(timestamp.parse().ok()?).ok()?;
        Some(Self { timestamp, event: EventId::parse(event).ok()? })
    }
}

impl Cursor for DeliveryPosition {
    fn encode(&self) -> String {
        let webhook = self.webhook.as_ref().map_or("", WebhookId::as_str);
        seal(&format!("{}:{webhook}:{}", self.created_at.as_millisecond(), self.event))
    }

    fn read(plain: &str) -> Option<Self> {
        let mut parts = plain.splitn(3, ':');
        let created_at = Timestamp::from_millisecond(parts.next()?.parse().ok()?).ok()?;
        let webhook = match parts.next()? {
            "" => None,
            id => Some(WebhookId::parse(id).ok()?),
        };
        Some(Self { created_at, event: EventId::parse(parts.next()?).ok()?, webhook })
    }
}

impl Cursor for RowPosition {
    fn encode(&self) -> String {
        seal(&self.0.to_string())
    }

    fn read(plain: &str) -> Option<Self> {
        plain.parse().ok().map(Self)
    }
}

impl Cursor for Timestamp {
    fn encode(&self) -> String {
        seal(&self.as_millisecond().to_string())
    }

    fn read(plain: &str) -> Option<Self> {
        Self::from_millisecond(plain.parse().ok()?).ok()
    }
}

impl Cursor for TokenId {
    fn encode(&self) -> String {
        seal(self.as_str())
    }

    fn read(plain: &str) -> Option<Self> {
        Self::parse(plain).ok()
    }
}

/// A cycle's number.
pub(super) struct CycleNumber(pub(super) i64);

impl Cursor for CycleNumber {
    fn encode(&self) -> String {
        seal(&self.0.to_string())
    }

    fn read(plain: &str) -> Option<Self> {
        plain.parse().ok().map(Self)
    }
}

fn seal(text: &str) -> String {
    BASE64URL_NOPAD.encode(text.as_bytes())
}

fn open(text: &str) -> Option<String> {
    String::from_utf8(BASE64URL_NOPAD.decode(text.as_bytes()).ok()?).ok()
}

/// Reads a text as a place in each of the lists.
///
/// # Panics
/// Where something that is no cursor is taken for one.
#[cfg(feature = "fuzz")]
pub(crate) fn read_as_any_cursor(text: &str) {
    fn read<C: Cursor>(text: &str) {
        assert!(C::decode(text).is_none_or(|place| place.encode() == text), "{text:?} is taken for a cursor");
        if let Some(place) = C::read(text) {
            assert!(C::decode(&place.encode()).is_some(), "{text:?} is a place whose cursor is none");
        }
    }
    read::<LogPosition>(text);
    read::<MissedPosition>(text);
    read::<DeliveryPosition>(text);
    read::<RowPosition>(text);
    read::<Timestamp>(text);
    read::<TokenId>(text);
    read::<CycleNumber>(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_nothing_else_is_one() {
        let position = LogPosition {
            started_at: Timestamp::from_millisecond(1_796_030_100_250).unwrap(),
            event: EventId::parse("t1|2026-13:|9/%").unwrap(),
            run: 2,
            number: 4,
        };
        assert_eq!(LogPosition::decode(&position.encode()), Some(position.clone()));
        for webhook in [None, Some(WebhookId::parse("wh_1").unwrap())] {
            let (created_at, event) = (position.started_at, EventId::parse("t1|2026-13:|9/%").unwrap());
            let position = DeliveryPosition { created_at, event, webhook };
            assert_eq!(DeliveryPosition::decode(&position.encode()), Some(position));
        }
        assert_eq!(RowPosition::decode(&RowPosition(-7).encode()), Some(RowPosition(-7)));
        let token = TokenId::parse("tok_1").unwrap();
        assert_eq!(TokenId::decode(&token.encode()), Some(token));
        assert_eq!(TokenId::decode("tok_1"), None);
        for other_spelling in ["+7", "07", "-0"] {
            assert_eq!(RowPosition::decode(&seal(other_spelling)), None, "{other_spelling}");
        }
        let missed = MissedPosition { timestamp: Timestamp::UNIX_EPOCH, event: EventId::parse("a:b").unwrap() };
        assert_eq!(MissedPosition::decode(&missed.encode()), Some(missed));
        for bad in [
            "",
            "x",
            "%%%",
            "////",
            &seal("1:1:2"),
            &seal("1:1:x:e"),
            &seal("99999999999999999:1:1:e"),
            &seal("1:1:1:"),
        ] {
            assert_eq!(LogPosition::decode(bad), None, "{bad}");
            assert_eq!(RowPosition::decode(bad), None, "{bad}");
            assert!(MissedPosition::decode(bad).is_none_or(|position| position.encode() == bad), "{bad}");
        }
        for bad in ["", "x", "////", &seal("1:wh_1"), &seal("1:w h:e"), &seal("x:wh_1:e"), &seal("1:wh_1:")] {
            assert_eq!(DeliveryPosition::decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn only_the_last_page_has_no_cursor() {
        let page = |rows: Vec<i32>| Page::new(rows, 2, i32::to_string, |row| row);
        let full = page(vec![3, 2, 1]);
        assert_eq!((full.items, full.next_cursor.as_deref()), (vec![3, 2], Some("2")));
        assert_eq!(page(vec![3, 2]).next_cursor, None);
        assert_eq!(page(vec![]).next_cursor, None);
    }
}
