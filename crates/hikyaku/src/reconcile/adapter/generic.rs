//! Any list of any provider, by what was configured: a URL with gaps, how it goes on, and where in an answer what stands.

use axum::http::HeaderMap;
use axum::http::header::LINK;
use hikyaku_core::event::EventType;
use hikyaku_core::gap::Period;
use hikyaku_core::{json, timestamp};
use serde_json::value::RawValue;
use url::Url;

use super::{Adapter, Item, Page};
use crate::provider_api::Call;

/// Most items of one answer that are looked at.
const MAX_ITEMS_PER_PAGE: usize = 10_000;

/// A list as configured.
#[derive(Debug, Clone)]
pub struct Generic {
    /// Where it is, without what names a page.
    pub url: Template,
    /// How it goes on.
    pub paging: Paging,
    /// Where in an answer the items are: a JSON pointer to an array.
    pub items: String,
    /// Where in an answer it says how many items the whole list has.
    pub total: Option<String>,
    /// Where in an item its business key is.
    pub key: String,
    /// Where in an item the time is by which the list is cut.
    pub timestamp: String,
    /// Where in an item the time of its last change is; else the time by which the list is cut.
    pub changed_at: Option<String>,
    /// The type of the event that an item is, or would be.
    pub event_type: Place,
    /// Whether the items are events as the provider would have sent them; else each is an event's `data`.
    pub items_are_events: bool,
}

/// Something that is the same for all items, or stands in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It is this.
    Fixed(String),
    /// It stands there: a JSON pointer.
    Pointer(String),
}

/// How a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paging {
    /// By number: the next page is asked for until one has fewer items than this.
    Pages {
        /// The query parameter, from 1 on.
        parameter: String,
        /// Items on a full page.
        size: usize,
    },
    /// By what an answer says.
    Cursor {
        /// The query parameter.
        parameter: String,
        /// Where it stands: in the answer, or (`of_last_item`) in its last item.
        pointer: String,
        /// Whether the pointer is into the last item.
        of_last_item: bool,
        /// Where the answer says `true` if there is more; without it there is more where there is a cursor.
        more: Option<String>,
    },
    /// By the answer's `Link` header with `rel="next"`.
    Link,
}

/// A URL whose path and query have the gaps `{from}`, `{to}` (RFC 3339), `{from_epoch}` and `{to_epoch}` (seconds).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(String);

impl Template {
    /// Reads a template. The error says what it must be, to follow its name.
    ///
    /// # Errors
    /// It is no URL, has an unknown gap, or has one before its path; or it names no period.
    pub fn parse(text: &str) -> Result<Self, String> {
        let template = Self(text.to_owned());
        let sample = Period { from: jiff::Timestamp::UNIX_EPOCH, to: jiff::Timestamp::MAX };
        let url = template.fill(sample)?;
        let (other, base) = (template.fill(Period { to: sample.from, ..sample })?, url.origin());
        let gap_at = text.find('{').unwrap_or(text.len());
        let path_at = text.find("://").and_then(|at| text[at + 3..].find('/').map(|slash| at + 3 + slash));
        if url == other || !matches!(url.scheme(), "http" | "https") || path_at.is_none_or(|path| path > gap_at) {
            return Err(format!(
                "must be a URL with a path and the gaps {{from}} and {{to}} (or {{from_epoch}}, {{to_epoch}}), not {text:?}"
            ));
        }
        if !url.username().is_empty() || url.password().is_some() || !base.is_tuple() {
            return Err("must not hold a user or a password; see `token`".to_owned());
        }
        Ok(template)
    }

    fn fill(&self, piece: Period) -> Result<Url, String> {
        let encoded = |at| timestamp::format(at).replace(':', "%3A");
        let filled = self
            .0
            .replace("{from}", &encoded(piece.from))
            .replace("{to}", &encoded(piece.to))
            .replace("{from_epoch}", &piece.from.as_second().to_string())
            .replace("{to_epoch}", &piece.to.as_second().to_string());
        if filled.contains(['{', '}']) {
            return Err(format!("has a gap that is not known: {:?}", self.0));
        }
        Url::parse(&filled).map_err(|error| format!("is no URL ({error}): {:?}", self.0))
    }
}

impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Generic {
    fn item(&self, data: Box<RawValue>) -> Result<Item, String> {
        let bytes = data.get().as_bytes();
        let text = |pointer: &str| json::pointer(bytes, pointer).and_then(json::text_or_number);
        let need = |pointer: &str| {
            let text = text(pointer).filter(|text| !text.is_empty());
            text.ok_or_else(|| format!("an item has no text or number at {pointer:?}"))
        };
        let time = |pointer: &str| {
            let written = need(pointer)?;
            timestamp::parse(&written)
                .ok_or_else(|| format!("an item has at {pointer:?} {written:.60?}, which is no time"))
        };
        let listed_at = time(&self.timestamp)?;
        let event_type = match &self.event_type {
            Place::Fixed(event_type) => event_type.clone(),
            Place::Pointer(pointer) => need(pointer)?,
        };
        Ok(Item {
            key: need(&self.key)?,
            listed_at,
            changed_at: self.changed_at.as_deref().map_or(Ok(listed_at), time)?,
            event_type: EventType::parse(&event_type).map_err(|error| error.to_string())?.as_str().to_owned(),
            data,
            is_event: self.items_are_events,
        })
    }

    /// How the next page is asked for.
    fn next(
        &self,
        asked: &Call,
        headers: &HeaderMap,
        body: &[u8],
        items: &[Box<RawValue>],
    ) -> Result<Option<String>, String> {
        match &self.paging {
            Paging::Pages { parameter, size } => {
                let is_ours =
                    |(name, value): (_, std::borrow::Cow<'_, str>)| (name == *parameter).then(|| value.parse().ok());
                let page: u64 = asked.url.query_pairs().find_map(is_ours).flatten().unwrap_or(1);
                Ok((items.len() >= *size).then(|| (page + 1).to_string()))
            }
            Paging::Cursor { pointer, of_last_item, more, .. } => {
                let says_more = |at: &String| json::pointer(body, at).is_some_and(|value| value.get() == "true");
                if !more.as_ref().is_none_or(says_more) {
                    return Ok(None);
                }
                let place = if *of_last_item { items.last().map(|item| item.get().as_bytes()) } else { Some(body) };
                let cursor = place.and_then(|place| json::pointer(place, pointer)).and_then(json::text_or_number);
                Ok(cursor.filter(|cursor| !cursor.is_empty()))
            }
            Paging::Link => {
                let links = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
                let Some(next) = links.flat_map(|value| value.split(',')).find_map(next_link) else { return Ok(None) };
                let url = asked.url.join(next).map_err(|error| format!("the next page's link is no URL: {error}"))?;
                // The credential goes there too.
                if url.origin() != asked.url.origin() {
                    return Err("the next page's link leads to another server".to_owned());
                }
                Ok(Some(url.into()))
            }
        }
    }
}

/// The target of a link whose relation is `next`.
fn next_link(link: &str) -> Option<&str> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_next = |parameter: &str| matches!(parameter.trim(), "rel=\"next\"" | "rel=next");
    parameters.split(';').any(is_next).then_some(target)
}

impl Adapter for Generic {
    fn must_list(&self, event_type: &str) -> bool {
        self.changed_at.is_none() && self.event_type == Place::Fixed(event_type.to_owned())
    }

    fn call(&self, piece: Period, next: Option<&str>) -> Result<Call, String> {
        let mut url = self.url.fill(piece)?;
        match (&self.paging, next) {
            (Paging::Link, Some(next)) => url = Url::parse(next).map_err(|error| error.to_string())?,
            (Paging::Link, None) | (Paging::Cursor { .. }, None) => {}
            (Paging::Pages { parameter, .. }, page) => {
                url.query_pairs_mut().append_pair(parameter, page.unwrap_or("1"));
            }
            (Paging::Cursor { parameter, .. }, Some(cursor)) => {
                url.query_pairs_mut().append_pair(parameter, cursor);
            }
        }
        Ok(Call::get(url))
    }

    fn page(&self, asked: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Page, String> {
        let listed =
            json::pointer(body, &self.items).ok_or_else(|| format!("the answer has nothing at {:?}", self.items))?;
        let items: Vec<Box<RawValue>> = serde_json::from_str(listed.get())
            .map_err(|_| format!("the answer has at {:?} something that is no array", self.items))?;
        if items.len() > MAX_ITEMS_PER_PAGE {
            return Err(format!(
                "the answer has {} items; at most {MAX_ITEMS_PER_PAGE} can be taken at a time",
                items.len()
            ));
        }
        let total =
            self.total.as_deref().and_then(|at| json::pointer(body, at)).and_then(|value| value.get().parse().ok());
        let next = self.next(asked, headers, body, &items)?;
        Ok(Page { total, next, ..Page::of(items.into_iter().map(|item| self.item(item))) })
    }
}
