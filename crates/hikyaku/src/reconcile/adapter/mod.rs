//! What a provider's list looks like: how a piece of it is asked for, and what an answer says. Nothing here makes a call. A
//! new provider is one file here, and one line in [`Kind`] and [`Kind::adapter`].

mod generic;
mod receiptroller;
mod receipts;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::http::HeaderMap;
use hikyaku_core::gap::Period;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use crate::provider_api::Call;
pub use generic::{Generic, Paging, Place, Template};
pub use receiptroller::{Lister, What};
pub use receipts::Receipts;

/// Items that one page is asked for: as many as ReceiptRoller gives.
pub const ITEMS_PER_PAGE: usize = 1000;
/// What is compared before the progress is saved as such.
const SLICE: Duration = Duration::from_secs(24 * 3600);

/// An item of a list.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its business key: the same as in the events about it.
    pub key: String,
    /// The time by which the list is ordered and cut.
    pub listed_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// The type of the event that would tell of it.
    pub event_type: String,
    /// What the list says of it.
    pub data: Box<RawValue>,
    /// Whether that is an event as the provider would have sent it; else it is an event's `data`.
    pub is_event: bool,
}

/// One answer.
#[derive(Debug, Default)]
pub struct Page {
    /// What could be read.
    pub items: Vec<Item>,
    /// How many items could not, and why not the first.
    pub unreadable: (u64, String),
    /// How many the whole list has, where it says so.
    pub total: Option<u64>,
    /// How the next page is asked for, if there is one.
    pub next: Option<String>,
}

impl Page {
    /// A page of what could be read and what could not.
    fn of(read: impl Iterator<Item = Result<Item, String>>) -> Self {
        let mut page = Self::default();
        for item in read {
            match item {
                Ok(item) => page.items.push(item),
                Err(reason) => {
                    page.unreadable.0 += 1;
                    page.unreadable.1 = Some(page.unreadable.1).filter(|first| !first.is_empty()).unwrap_or(reason);
                }
            }
        }
        page
    }
}

/// A provider's list.
pub trait Adapter: Send + Sync + 'static {
    /// The first piece of a period that can be asked for, not larger than is to be compared at a time.
    fn first_slice(&self, period: Period) -> Period {
        period.split_at_most(SLICE).0
    }

    /// Whether a piece can be asked for in smaller ones.
    fn can_split(&self) -> bool {
        true
    }

    /// Whether an event of this type is about something that the list of its time must have.
    fn must_list(&self, event_type: &str) -> bool;

    /// How a page is asked for: the first one, or the one that a page before named.
    ///
    /// # Errors
    /// Says what about the settings or the provider's last answer makes no URL.
    fn call(&self, piece: Period, next: Option<&str>) -> Result<Call, String>;

    /// Reads the answer. It may hold items from beyond the piece.
    ///
    /// # Errors
    /// Says why it is no such list.
    fn page(&self, asked: &Call, headers: &HeaderMap, body: &[u8]) -> Result<Page, String>;
}

/// Which list, as configured.
#[derive(Debug, Clone)]
pub enum Kind {
    /// ReceiptRoller's transactions or orders of a period (assumed).
    ReceiptRoller(Lister),
    /// ReceiptRoller's receipts of a month (documented).
    Receipts(Receipts),
    /// Any other.
    Generic(Box<Generic>),
}

impl Kind {
    /// What reads it.
    pub fn adapter(&self) -> Box<dyn Adapter> {
        match self.clone() {
            Self::ReceiptRoller(lister) => Box::new(lister),
            Self::Receipts(receipts) => Box::new(receipts),
            Self::Generic(generic) => generic,
        }
    }
}

/// A page as ReceiptRoller writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Paged {
    items: Vec<Box<RawValue>>,
    current_page: u64,
    total_items: u64,
    total_pages: u64,
}

impl Paged {
    fn read(body: &[u8], item: impl Fn(Box<RawValue>) -> Result<Item, String>) -> Result<Page, String> {
        let read: Self = serde_json::from_slice(body).map_err(|error| format!("the list cannot be read: {error}"))?;
        let next = (read.current_page < read.total_pages).then(|| (read.current_page + 1).to_string());
        Ok(Page { total: Some(read.total_items), next, ..Page::of(read.items.into_iter().map(item)) })
    }
}

/// An address below a base.
fn below(base: &Url, parts: &[&str]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(parts);
    }
    url
}
