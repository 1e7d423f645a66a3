//! What the provider lists and reads: by page, as it stands at the moment of the call.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::form_urlencoded;

use super::{MAX_ITEMS_PER_PAGE, Refusal, Second, Shared, parse, refuse};
use crate::sandbox::world::month_of;

/// What is listed or read, or why it is not.
type Listed = Result<Response, Refusal>;

/// Items on a page where the call does not say.
const DEFAULT_ITEMS_PER_PAGE: usize = 100;

/// Which part of a list is wanted.
#[derive(Debug, Clone, Copy)]
struct Page {
    current: usize,
    items: usize,
}

impl Page {
    fn new(current: Option<usize>, items: Option<usize>) -> Result<Self, Refusal> {
        let page = Self { current: current.unwrap_or(1), items: items.unwrap_or(DEFAULT_ITEMS_PER_PAGE) };
        if page.current == 0 || page.items == 0 || page.items > MAX_ITEMS_PER_PAGE {
            return refuse(
                StatusCode::BAD_REQUEST,
                "currentPage begins at 1, and itemsPerPage lies between 1 and 1000",
            );
        }
        Ok(page)
    }

    /// The page of a list.
    fn of<'a, T, S: Serialize>(self, all: &'a [T], show: impl Fn(&'a T) -> S) -> Response {
        let skipped = (self.current - 1).saturating_mul(self.items);
        Json(Shown {
            items: all.iter().skip(skipped).take(self.items).map(show).collect::<Vec<_>>(),
            current_page: self.current,
            items_per_page: self.items,
            total_items: all.len(),
            total_pages: all.len().div_ceil(self.items),
        })
        .into_response()
    }
}

/// A page as the provider writes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<S> {
    items: Vec<S>,
    current_page: usize,
    items_per_page: usize,
    total_items: usize,
    total_pages: usize,
}

/// `GET /organizations` (assumed).
pub(super) async fn organizations(State(sandbox): Shared) -> Json<Value> {
    let id = sandbox.engine().world.settings().organization.clone();
    Json(json!({"items": [{"organizationId": id, "organizationName": "飛脚茶房"}]}))
}

/// `GET /{organizationId}/terminals` (assumed).
pub(super) async fn terminals(State(sandbox): Shared) -> Json<Value> {
    let engine = sandbox.engine();
    let terminals = engine.world.terminals();
    let items: Vec<_> =
        terminals.map(|(store, id)| json!({"terminalId": id, "storeId": format!("s-{store}")})).collect();
    Json(json!({"items": items}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Month {
    year: i16,
    month: i8,
    current_page: Option<usize>,
    items_per_page: Option<usize>,
}

/// `POST /{organizationId}/receipts` (documented): the receipts of a month in Japan.
pub(super) async fn receipts(State(sandbox): Shared, body: Bytes) -> Listed {
    let asked: Month = parse(&body)?;
    if !(1..=12).contains(&asked.month) {
        return refuse(StatusCode::BAD_REQUEST, format!("month lies between 1 and 12, and is {}", asked.month));
    }
    let page = Page::new(asked.current_page, asked.items_per_page)?;
    let now = sandbox.now();
    let mut engine = sandbox.engine();
    if page.current > 1
        && let Some(first) = engine.world.first_sale_in((asked.year, asked.month))
    {
        engine.shift_pages(first, now);
    }
    let all = engine.world.sales_between(Timestamp::MIN, Timestamp::MAX, now);
    let of_month: Vec<_> = all.into_iter().filter(|sale| month_of(sale.at) == (asked.year, asked.month)).collect();
    Ok(page.of(&of_month, |sale| {
        // The documented list has the receipt's key in parts, and the lines beside it.
        let mut receipt = sale.data.value();
        let mut take = |name: &str| receipt.as_object_mut().and_then(|members| members.remove(name));
        let (lines, _) = (take("itemDetailLines"), take("id"));
        json!({"receipt": receipt, "itemDetailLines": lines, "subscriptions": []})
    }))
}

/// `from`, `to`, `currentPage` and `itemsPerPage` of a query string.
fn period(uri: &Uri) -> Result<(Timestamp, Timestamp, Page), Refusal> {
    let (mut from, mut to, mut current, mut items) = (None, None, None, None);
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let number = || {
            value
                .parse::<usize>()
                .or_else(|_| refuse(StatusCode::BAD_REQUEST, format!("{name} is {value:.40?}, which is no number")))
        };
        let time = || {
            // An unescaped `+` of an offset arrives as a space, and would be another time if it were dropped.
            let read = timestamp::parse(&value);
            read.ok_or(()).or_else(|()| {
                refuse(
                    StatusCode::BAD_REQUEST,
                    format!("{name} is {value:.60?}, which is no time such as 2026-11-30T00:00:00Z (write + as %2B)"),
                )
            })
        };
        match &*name {
            "from" => from = Some(time()?),
            "to" => to = Some(time()?),
            "currentPage" => current = Some(number()?),
            "itemsPerPage" => items = Some(number()?),
            _ => return refuse(StatusCode::BAD_REQUEST, format!("there is no parameter {name:.40?}")),
        }
    }
    match (from, to) {
        (Some(from), Some(to)) if from < to => Ok((from, to, Page::new(current, items)?)),
        _ => refuse(StatusCode::BAD_REQUEST, "from and to are needed, and from lies before to"),
    }
}

/// `GET /{organizationId}/transactions?from&to` (assumed): the sales of a half-open period, oldest first.
pub(super) async fn transactions(State(sandbox): Shared, uri: Uri) -> Listed {
    let (from, to, page) = period(&uri)?;
    let now = sandbox.now();
    let mut engine = sandbox.engine();
    if page.current > 1 {
        engine.shift_pages(from, now);
    }
    Ok(page.of(&engine.world.sales_between(from, to, now), |sale| &sale.data))
}

/// `GET /{organizationId}/orders?from&to` (assumed): the orders that last changed in a half-open period.
pub(super) async fn orders(State(sandbox): Shared, uri: Uri) -> Listed {
    let (from, to, page) = period(&uri)?;
    let engine = sandbox.engine();
    Ok(page.of(&engine.world.orders_between(from, to), |order| &order.data))
}

/// `GET /{organizationId}/orders/{order_id}` (assumed): an order as it stands (R25).
pub(super) async fn order(State(sandbox): Shared, Path((_, id)): Second) -> Listed {
    let engine = sandbox.engine();
    match engine.world.order(&id) {
        Some(order) => Ok(Json(&order.data).into_response()),
        None => refuse(StatusCode::NOT_FOUND, format!("there is no order {id:.80?}")),
    }
}
