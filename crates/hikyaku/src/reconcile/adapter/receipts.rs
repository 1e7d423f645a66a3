//! ReceiptRoller's receipts of a month, as its public documentation has them. A receipt's key stands there in parts.

use axum::http::{HeaderMap, Method};
use hikyaku_core::gap::Period;
use hikyaku_core::provider::receiptroller::{month_of, sale_key};
use hikyaku_core::{json, timestamp};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use url::Url;

use super::{Adapter, Item, Page, Paged, below};
use crate::provider_api::Call;

/// The receipts of a month, by pages.
#[derive(Debug, Clone)]
pub struct Receipts {
    /// Where the API begins.
    pub base: Url,
    /// The organization there.
    pub organization: String,
    /// The zone by whose months receipts are filed and sales named.
    pub zone: TimeZone,
    /// Items that one page is asked for.
    pub page_items: usize,
}

impl Receipts {
    /// When the month that holds an instant is over.
    fn end_of_month(&self, at: Timestamp) -> Option<Timestamp> {
        let (year, month) = month_of(at, &self.zone);
        let next = Date::new(year, month, 1).ok()?.last_of_month().tomorrow().ok()?;
        self.zone.to_timestamp(next.at(0, 0, 0, 0)).ok()
    }

    /// The item: what is in the sale's event, put together from the list's parts.
    fn item(&self, listed: &RawValue) -> Result<Item, String> {
        let bytes = listed.get().as_bytes();
        let part = |pointer: &str| json::pointer(bytes, pointer);
        let text = |name: &str| {
            let pointer = format!("/receipt/{name}");
            let text = part(&pointer).and_then(json::text_or_number).filter(|text| !text.is_empty());
            text.ok_or_else(|| format!("the receipt has no text at {pointer}"))
        };
        let time = |name: &str| {
            let written = text(name)?;
            timestamp::parse(&written)
                .ok_or_else(|| format!("the receipt has at {name} {written:.60?}, which is no time"))
        };
        let listed_at = time("terminalTransactionDateTime")?;
        let key = sale_key(&text("terminalId")?, listed_at, &text("transactionId")?, &self.zone);
        let receipt = part("/receipt").map(RawValue::get).unwrap_or_default().trim_start();
        let rest = receipt.strip_prefix('{').ok_or("the receipt is no object")?;
        let lines = part("/itemDetailLines").map_or("[]", RawValue::get);
        let id = serde_json::to_string(&key).unwrap_or_default();
        // A receipt is never empty: its parts were read above.
        let data = RawValue::from_string(format!(r#"{{"id":{id},"itemDetailLines":{lines},{rest}"#));
        Ok(Item {
            key,
            listed_at,
            changed_at: time("timestamp").unwrap_or(listed_at),
            event_type: "sale.created".to_owned(),
            data: data.map_err(|error| format!("the receipt cannot be read: {error}"))?,
            is_event: false,
        })
    }
}

impl Adapter for Receipts {
    fn first_slice(&self, period: Period) -> Period {
        Period { to: self.end_of_month(period.from).unwrap_or(period.to).min(period.to), ..period }
    }

    fn can_split(&self) -> bool {
        false
    }

    fn must_list(&self, event_type: &str) -> bool {
        event_type == "sale.created"
    }

    fn call(&self, piece: Period, next: Option<&str>) -> Result<Call, String> {
        let (year, month) = month_of(piece.from, &self.zone);
        let page = next.unwrap_or("1");
        let body =
            format!(r#"{{"year":{year},"month":{month},"currentPage":{page},"itemsPerPage":{}}}"#, self.page_items);
        let url = below(&self.base, &[&self.organization, "receipts"]);
        Ok(Call { method: Method::POST, url, body: body.into() })
    }

    fn page(&self, _asked: &Call, _headers: &HeaderMap, body: &[u8]) -> Result<Page, String> {
        Paged::read(body, |listed| self.item(&listed))
    }
}
