//! What is on the shelves, and what a basket of it looks like on a receipt.

use fastrand::Rng;
use serde_json::{Value, json};

/// Goods and their prices in yen, tax included.
const GOODS: [(&str, u64); 8] = [
    ("ほうじ茶ラテ", 480),
    ("抹茶フィナンシェ", 320),
    ("あんバタートースト", 560),
    ("季節のタルト", 680),
    ("お弁当（梅）", 1280),
    ("玄米茶 100g", 1080),
    ("手ぬぐい「飛脚」", 1650),
    ("どら焼き 5個入", 1350),
];
const STORES: [&str; 4] = ["飛脚茶房 日本橋店", "飛脚茶房 京都店", "飛脚茶房 博多店", "飛脚茶房 小樽店"];
const STAFF: [&str; 4] = ["佐藤", "鈴木", "髙橋", "𠮷田"];
/// Food is taxed at 8 %.
const TAX_RATE: u64 = 8;
/// Most lines of a basket.
const MAX_LINES: usize = 4;
/// Most pieces of one good in a basket.
const MAX_PIECES: u64 = 3;

/// What somebody buys.
pub(super) struct Basket {
    lines: Vec<(usize, u64)>,
}

impl Basket {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let count = rng.usize(1..=MAX_LINES);
        Self { lines: (0..count).map(|_| (rng.usize(..GOODS.len()), rng.u64(1..=MAX_PIECES))).collect() }
    }

    fn total(&self) -> u64 {
        self.lines.iter().map(|(good, pieces)| GOODS[*good].1 * pieces).sum()
    }

    /// The part of a receipt that comes from the basket. What comes back is counted below zero.
    pub(super) fn receipt(&self, is_return: bool) -> Value {
        let total = self.total();
        let deposit = if is_return { total } else { total.next_multiple_of(1000) };
        let sign = if is_return { -1 } else { 1 };
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX) * sign;
        let lines = self.lines.iter().enumerate().map(|(n, (good, pieces))| {
            let (name, price) = GOODS[*good];
            json!({
                "lineId": n + 1, "itemId": format!("i-{good}"), "productCode": format!("49000000{good:05}"),
                "productName": name, "price": price, "salesPrice": price, "quantity": signed(*pieces),
                "taxRate": TAX_RATE,
            })
        });
        json!({
            "itemDetailLines": lines.collect::<Vec<_>>(),
            "paymentSummary": {
                "grandTotal": signed(total), "subTotal": signed(total), "deposit": signed(deposit),
                "change": signed(deposit - total),
                "taxes": [{"taxRate": TAX_RATE, "tax": signed(total * TAX_RATE / (100 + TAX_RATE))}],
            },
        })
    }

    /// The part of an order that comes from the basket.
    pub(super) fn order(&self) -> Value {
        let lines = self.lines.iter().map(|(good, pieces)| {
            let (name, price) = GOODS[*good];
            json!({"productName": name, "price": price, "quantity": pieces})
        });
        json!({"total": self.total(), "lines": lines.collect::<Vec<_>>()})
    }
}

/// A shop, as receipts name it.
pub(super) fn store(number: u32) -> Value {
    let name = STORES[(number as usize - 1) % STORES.len()];
    json!({"storeId": format!("s-{number}"), "storeCode": format!("{number:03}"), "storeName": name})
}

/// Whoever was at the till.
pub(super) fn staff(rng: &mut Rng) -> Value {
    let number = rng.usize(..STAFF.len());
    json!({"staffId": format!("st-{}", number + 1), "staffName": STAFF[number]})
}
