//! ReceiptRoller's lists of a period: sales and orders. Both are assumed: its public documentation has neither.

use axum::http::HeaderMap;
use hikyaku_core::gap::Period;
use hikyaku_core::{json, timestamp};
use jiff::Timestamp;
use serde_json::value::RawValue;
use url::Url;

use super::{Adapter, Item, Page, Paged, below};
use crate::provider_api::Call;

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// `GET /{organization}/transactions`: sales by when they were rung up.
    Transactions,
    /// `GET /{organization}/orders`: orders by when they last changed.
    Orders,
}

/// A list of a half-open period, by pages.
#[derive(Debug, Clone)]
pub struct Lister {
    /// Where the API begins.
    pub base: Url,
    /// The organization there.
    pub organization: String,
    /// What is listed.
    pub what: What,
    /// Items that one page is asked for.
    pub page_items: usize,
}

impl Lister {
    fn item(&self, data: Box<RawValue>) -> Result<Item, String> {
        let (path, key, event_type, times) = match self.what {
            What::Transactions => ("sale", "/id", "sale.created", ["/terminalTransactionDateTime", "/timestamp"]),
            What::Orders => ("order", "/order_id", "order.updated", ["/updatedAt", "/timestamp"]),
        };
        let at = |pointer: &str| json::within(&data, pointer).and_then(json::text_or_number);
        let key = at(key).filter(|key| !key.is_empty()).ok_or_else(|| format!("the {path} has no text at {key}"))?;
        let time = |pointer: &str| at(pointer).and_then(|text| timestamp::parse(&text));
        let listed_at = times.into_iter().find_map(time);
        let listed_at = listed_at.ok_or_else(|| format!("the {path} {key:.80?} has no time at {}", times[0]))?;
        let changed_at = if self.what == What::Transactions { time("/timestamp") } else { None };
        let changed_at = changed_at.unwrap_or(listed_at);
        Ok(Item { key, listed_at, changed_at, event_type: event_type.to_owned(), data, is_event: false })
    }
}

impl Adapter for Lister {
    fn must_list(&self, event_type: &str) -> bool {
        // An order stands where it last changed, so that its older events point at nothing.
        self.what == What::Transactions && event_type == "sale.created"
    }

    fn call(&self, piece: Period, next: Option<&str>) -> Result<Call, String> {
        let list = if self.what == What::Transactions { "transactions" } else { "orders" };
        let mut url = below(&self.base, &[&self.organization, list]);
        url.query_pairs_mut()
            .append_pair("from", &written(piece.from))
            .append_pair("to", &written(piece.to))
            .append_pair("currentPage", next.unwrap_or("1"))
            .append_pair("itemsPerPage", &self.page_items.to_string());
        Ok(Call::get(url))
    }

    fn page(&self, _asked: &Call, _headers: &HeaderMap, body: &[u8]) -> Result<Page, String> {
        Paged::read(body, |data| self.item(data))
    }
}

fn written(at: Timestamp) -> String {
    timestamp::format(at)
}
