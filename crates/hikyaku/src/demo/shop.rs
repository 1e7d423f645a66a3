//! Invented sales and orders, shaped like the provider's public receipt documentation. The same every time.

use hikyaku_core::ordering::Version;
use serde_json::{Value, json};

/// Sales in a demo.
pub(super) const SALES: usize = 139;
/// Orders in a demo; each is created, changed, and one in three is cancelled: see [`orders`].
pub(super) const ORDERS: usize = 26;

/// Something that happened in the shop.
#[derive(Debug, Clone)]
pub(super) struct Happening {
    /// The event type.
    pub(super) event_type: &'static str,
    /// The event's `data`.
    pub(super) data: Value,
    /// For people: what it is.
    pub(super) label: String,
}

/// What the business side must know in the end of one object: compared with the destination's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Its business key.
    pub(super) key: String,
    /// Its amount, in yen.
    pub(super) total: i64,
    /// When it was sold, or the order's status.
    pub(super) detail: String,
}

/// A happening that was published, with its place in its object's history.
#[derive(Debug, Clone)]
pub(super) struct Published {
    /// What happened.
    pub(super) happening: Happening,
    /// Its version, from the publish's answer.
    pub(super) version: Version,
}

impl Happening {
    /// Whether it is about an order.
    pub(super) fn is_order(&self) -> bool {
        self.event_type.starts_with("order.")
    }

    /// What its object's row must be if this is the newest.
    pub(super) fn row(&self) -> Row {
        if self.is_order() { Row::of_order(&self.data) } else { Row::of_sale(&self.data) }
    }
}

impl Row {
    /// The row of a sale.
    pub(super) fn of_sale(data: &Value) -> Self {
        let [key, detail] = [text(data, "/id"), text(data, "/terminalTransactionDateTime")];
        Self { key, total: amount(data, "/paymentSummary/grandTotal"), detail }
    }

    /// The row of an order.
    pub(super) fn of_order(data: &Value) -> Self {
        Self { key: text(data, "/order_id"), total: amount(data, "/total"), detail: text(data, "/status") }
    }
}

fn text(data: &Value, pointer: &str) -> String {
    data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn amount(data: &Value, pointer: &str) -> i64 {
    data.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// All that happens, in its order: sales and orders mixed.
pub(super) fn happenings() -> Vec<Happening> {
    let (mut sales, mut orders) = ((0..SALES).map(sale), orders().into_iter());
    let mut all = Vec::with_capacity(2 * SALES);
    loop {
        let before = all.len();
        all.extend(sales.by_ref().take(7));
        all.extend(orders.by_ref().take(3));
        if all.len() == before {
            return all;
        }
    }
}

fn sale(n: usize) -> Happening {
    let items = ["ほうじ茶ラテ", "抹茶フィナンシェ", "あんバタートースト", "季節のタルト"];
    let (terminal, number) = (n % 3 + 1, 1000 + n);
    let (price, quantity) = (380 + 40 * (n % 9), 1 + n % 3);
    let total = price * quantity;
    let minute = n * 4 % 60;
    let at = format!("2026-11-{:02}T{:02}:{minute:02}:00Z", 1 + n / 30, 1 + n % 9);
    let data = json!({
        "id": format!("T{terminal:02}|2026-11|{number}"),
        "organizationId": "org-demo", "receiptId": format!("r-{number}"), "transactionType": 1, "cancelType": 0,
        "terminalTransactionId": format!("{terminal:02}{number}"), "terminalTransactionDateTime": at, "timestamp": at,
        "terminalId": format!("T{terminal:02}"), "transactionId": number.to_string(),
        "store": {"storeId": "s-1", "storeCode": "001", "storeName": "飛脚茶房 日本橋店"},
        "staff": {"staffId": "st-1", "staffName": "佐藤"}, "customer": null,
        "paymentSummary": {"grandTotal": total, "subTotal": total, "deposit": 10_000, "change": 10_000 - total,
            "taxes": [{"taxRate": 8, "tax": total * 8 / 108}]},
        "itemDetailLines": [{"lineId": 1, "itemId": format!("i-{}", n % 4), "productName": items[n % 4],
            "price": price, "salesPrice": price, "quantity": quantity, "taxRate": 8}],
    });
    Happening { event_type: "sale.created", data, label: format!("sale {number}, ¥{total}") }
}

/// Orders interleaved, so that the changes of one order lie some events apart.
fn orders() -> Vec<Happening> {
    let created = (0..ORDERS).map(|n| (n, "order.created", "received", 0));
    let updated = (0..ORDERS).map(|n| (n + 1, "order.updated", "preparing", 1));
    let cancelled = (0..ORDERS).step_by(3).map(|n| (n + 2, "order.cancelled", "cancelled", 2));
    let mut all: Vec<_> = created.chain(updated).chain(cancelled).collect();
    all.sort_by_key(|(at, ..)| *at);
    all.into_iter().map(|(at, event_type, status, step)| order(at - step, event_type, status)).collect()
}

fn order(n: usize, event_type: &'static str, status: &str) -> Happening {
    let id = format!("W-{}", 5000 + n);
    let total = 1200 + 150 * (n % 7);
    let data = json!({
        "order_id": id, "status": status, "total": total, "storeId": "s-1",
        "lines": [{"productName": "お弁当（梅）", "price": total, "quantity": 1}],
    });
    Happening { event_type, data, label: format!("order {id} {status}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hundred_things_happen_and_every_object_ends_in_one_state() {
        let all = happenings();
        assert_eq!(all.len(), 200);
        let position =
            |event_type, key: &str| all.iter().position(|h| h.event_type == event_type && h.row().key == key).unwrap();
        for n in 0..ORDERS {
            let key = format!("W-{}", 5000 + n);
            assert!(position("order.created", &key) < position("order.updated", &key), "{key}");
        }
    }
}
