//! The shops: invented sales, returns and orders that happen one after another, the same ones for the same seed.
//!
//! Nothing here knows of webhooks. What happens is a list in time; what the provider's lists and reads answer is what
//! has happened by then.

mod data;
mod goods;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use hikyaku_core::provider::receiptroller;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use serde_json::{Value, json};

pub use data::Data;
use goods::Basket;

/// What the shops are like.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Two worlds with one seed are the same.
    pub seed: u64,
    /// The shops' organization at the provider.
    pub organization: String,
    /// Shops.
    pub stores: u32,
    /// Terminals of each shop.
    pub terminals_per_store: u32,
    /// Sales and returns in an hour, on average.
    pub sales_per_hour: f64,
    /// New orders in an hour, on average.
    pub orders_per_hour: f64,
    /// From an order's arrival to its first step, and from each to the next: at least and less than, in seconds.
    pub order_steps: Range<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            organization: "org-sandbox".to_owned(),
            stores: 2,
            terminals_per_store: 2,
            sales_per_hour: 120.0,
            orders_per_hour: 12.0,
            order_steps: 60..1800,
        }
    }
}

/// Something that happened in a shop, and what the provider's event about it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Happening {
    /// When.
    pub at: Timestamp,
    /// The event type.
    pub event_type: &'static str,
    /// The business key: `data.id` of a sale, `data.order_id` of an order (R24).
    pub key: String,
    /// The event's `data`.
    pub data: Data,
}

/// A sale or a return as the provider keeps it.
#[derive(Debug, Clone)]
pub struct Sale {
    /// When it was rung up; the lists are by this time.
    pub at: Timestamp,
    /// From when on the lists have it. Later than `at` where it came in late.
    pub listed_at: Timestamp,
    /// As an event and the list of a period give it.
    pub data: Data,
}

/// An order as the provider keeps it.
#[derive(Debug, Clone)]
pub struct Order {
    /// When it last changed.
    pub changed_at: Timestamp,
    /// As an event and a read give it.
    pub data: Data,
}

/// An order's next step.
struct Step {
    order: String,
    status: &'static str,
}

/// One in so many baskets is brought back.
const RETURNS: u32 = 25;
/// One in so many orders is cancelled instead of made.
const CANCELLATIONS: u32 = 6;

/// The shops and all that has happened in them so far.
pub struct World {
    settings: Settings,
    rng: Rng,
    next_sale: Timestamp,
    next_order: Timestamp,
    /// Steps of orders to come, by time; the number keeps two of one instant apart.
    steps: BTreeMap<(Timestamp, u64), Step>,
    /// Numbers given out so far.
    count: u64,
    /// By when they were rung up; of one instant, in the order in which they came in.
    sales: Vec<Sale>,
    /// The place of the sale that came in last.
    last_sale: usize,
    orders: BTreeMap<String, Order>,
}

impl World {
    /// Opens the shops at `start`.
    pub fn open(settings: Settings, start: Timestamp) -> Self {
        let rng = Rng::with_seed(settings.seed);
        let mut world = Self {
            settings,
            rng,
            next_sale: start,
            next_order: start,
            steps: BTreeMap::new(),
            count: 0,
            sales: Vec::new(),
            last_sale: 0,
            orders: BTreeMap::new(),
        };
        world.next_sale = world.after(start, world.settings.sales_per_hour);
        world.next_order = world.after(start, world.settings.orders_per_hour);
        world
    }

    /// What the shops are like.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Timestamp {
        let step = self.steps.keys().next().map_or(Timestamp::MAX, |(at, _)| *at);
        self.next_sale.min(self.next_order).min(step)
    }

    /// Lets the next thing happen, if it happens by `now`.
    pub fn next(&mut self, now: Timestamp) -> Option<Happening> {
        let at = self.next_at();
        if at > now || at == Timestamp::MAX {
            return None;
        }
        if at == self.next_sale {
            self.next_sale = self.after(at, self.settings.sales_per_hour);
            return Some(self.sell(at));
        }
        if at == self.next_order {
            self.next_order = self.after(at, self.settings.orders_per_hour);
            return Some(self.take_order(at));
        }
        let (_, step) = self.steps.pop_first()?;
        self.change_order(&step, at)
    }

    /// Rings up a sale (or, now and then, a return) at `at`.
    pub fn sell(&mut self, at: Timestamp) -> Happening {
        let number = self.number();
        let store = self.rng.u32(1..=self.settings.stores);
        let terminal = format!("T{store:02}{:02}", self.rng.u32(1..=self.settings.terminals_per_store));
        let basket = Basket::draw(&mut self.rng);
        let is_return = self.rng.u32(0..RETURNS) == 0;
        let id = sale_key(&terminal, at, &number.to_string());
        let mut data = basket.receipt(is_return);
        let at_text = hikyaku_core::timestamp::format(at);
        let own = json!({
            "id": id, "organizationId": self.settings.organization, "receiptId": format!("r-{number}"),
            "transactionType": if is_return { 2 } else { 1 }, "cancelType": 0,
            "terminalTransactionId": format!("{terminal}-{number}"), "terminalTransactionDateTime": at_text,
            "timestamp": at_text, "terminalId": terminal, "transactionId": number.to_string(),
            "store": goods::store(store), "staff": goods::staff(&mut self.rng), "customer": null,
        });
        merge(&mut data, own);
        let data = Data::of(&data);
        self.last_sale = self.first_after(at);
        self.sales.insert(self.last_sale, Sale { at, listed_at: at, data: data.clone() });
        Happening { at, event_type: "sale.created", key: id, data }
    }

    /// Lets the lists have the last sale only `by` after it was rung up.
    pub fn list_last_sale_late(&mut self, by: Duration) {
        if let Some(sale) = self.sales.get_mut(self.last_sale) {
            sale.listed_at = sale.at.checked_add(by).unwrap_or(Timestamp::MAX);
        }
    }

    fn take_order(&mut self, at: Timestamp) -> Happening {
        let id = format!("W-{}", self.number());
        let store = self.rng.u32(1..=self.settings.stores);
        let basket = Basket::draw(&mut self.rng);
        let mut data = basket.order();
        merge(&mut data, json!({"order_id": id, "status": "received", "storeId": format!("s-{store}")}));
        let steps: &[&str] =
            if self.rng.u32(0..CANCELLATIONS) == 0 { &["cancelled"] } else { &["preparing", "ready", "completed"] };
        let mut step_at = at;
        for status in steps {
            let wait = Duration::from_secs(self.rng.u64(self.settings.order_steps.clone()));
            step_at = step_at.checked_add(wait).unwrap_or(Timestamp::MAX);
            let place = (step_at, self.number());
            self.steps.insert(place, Step { order: id.clone(), status });
        }
        self.put_order(id, "order.created", at, data)
    }

    fn change_order(&mut self, step: &Step, at: Timestamp) -> Option<Happening> {
        let mut data = self.orders.get(&step.order)?.data.value();
        merge(&mut data, json!({"status": step.status}));
        Some(self.put_order(step.order.clone(), "order.updated", at, data))
    }

    fn put_order(&mut self, id: String, event_type: &'static str, at: Timestamp, mut data: Value) -> Happening {
        merge(&mut data, json!({"updatedAt": hikyaku_core::timestamp::format(at)}));
        let data = Data::of(&data);
        self.orders.insert(id.clone(), Order { changed_at: at, data: data.clone() });
        Happening { at, event_type, key: id, data }
    }

    /// The sales of a period, half-open, as a list read at `now` gives them: oldest first.
    pub fn sales_between(&self, from: Timestamp, to: Timestamp, now: Timestamp) -> Vec<&Sale> {
        let place = |at: Timestamp| self.sales.partition_point(|sale| sale.at < at);
        let within = self.sales.get(place(from)..place(to)).unwrap_or_default();
        within.iter().filter(|sale| sale.listed_at <= now).collect()
    }

    /// The place behind the sales that were rung up by `at`.
    fn first_after(&self, at: Timestamp) -> usize {
        self.sales.partition_point(|sale| sale.at <= at)
    }

    /// When the first sale of a month in Japan was rung up.
    pub fn first_sale_in(&self, month: (i16, i8)) -> Option<Timestamp> {
        self.sales.iter().map(|sale| sale.at).find(|at| month_of(*at) == month)
    }

    /// The orders that last changed within a period, half-open: those that changed first come first.
    pub fn orders_between(&self, from: Timestamp, to: Timestamp) -> Vec<&Order> {
        let within = |order: &&Order| order.changed_at >= from && order.changed_at < to;
        let mut orders: Vec<_> = self.orders.values().filter(within).collect();
        orders.sort_by_key(|order| order.changed_at);
        orders
    }

    /// An order as it stands.
    pub fn order(&self, id: &str) -> Option<&Order> {
        self.orders.get(id)
    }

    /// The terminals' ids.
    pub fn terminals(&self) -> impl Iterator<Item = (u32, String)> {
        let terminals = self.settings.terminals_per_store;
        (1..=self.settings.stores).flat_map(move |s| (1..=terminals).map(move |t| (s, format!("T{s:02}{t:02}"))))
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        1000 + self.count
    }

    /// When the next of a kind happens that happens `per_hour` times: independent of what was before it.
    fn after(&mut self, at: Timestamp, per_hour: f64) -> Timestamp {
        if per_hour <= 0.0 {
            return Timestamp::MAX;
        }
        let seconds = -(1.0 - self.rng.f64()).ln() * 3600.0 / per_hour;
        let millis = (seconds * 1000.0).max(1.0) as u64;
        at.checked_add(Duration::from_millis(millis)).unwrap_or(Timestamp::MAX)
    }
}

/// The time zone of the month in a sale's key, where we are who makes it.
pub const JAPAN: Offset = Offset::constant(9);

/// A sale's business key: `{terminal_id}|{yyyy-MM}|{transaction_id}` (R24), with the month as the shop's clock has it.
pub fn sale_key(terminal: &str, at: Timestamp, transaction: &str) -> String {
    receiptroller::sale_key(terminal, at, transaction, &receiptroller::shop_zone())
}

/// The year and the month in Japan.
pub fn month_of(at: Timestamp) -> (i16, i8) {
    receiptroller::month_of(at, &receiptroller::shop_zone())
}

/// An instant as Japan's clocks show it.
pub fn in_japan(at: Timestamp) -> DateTime {
    JAPAN.to_datetime(at)
}

/// Puts `own`'s members into `data`. Both are objects.
fn merge(data: &mut Value, own: Value) {
    if let (Value::Object(data), Value::Object(own)) = (data, own) {
        data.extend(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        "2026-11-30T00:00:00Z".parse().unwrap()
    }

    fn happen(settings: Settings, hours: i64) -> (World, Vec<Happening>) {
        let mut world = World::open(settings, start());
        let end = start().checked_add(Duration::from_secs(hours as u64 * 3600)).unwrap();
        let all = std::iter::from_fn(|| world.next(end)).collect();
        (world, all)
    }

    #[test]
    fn one_seed_is_one_world() {
        let (_, first) = happen(Settings::default(), 24);
        let (_, again) = happen(Settings::default(), 24);
        let (_, other) = happen(Settings { seed: 2, ..Settings::default() }, 24);
        assert_eq!(first, again);
        assert_ne!(first, other);
    }

    #[test]
    fn as_much_happens_as_was_asked_for_and_in_its_order() {
        let (_, all) = happen(Settings { sales_per_hour: 119.0, orders_per_hour: 12.0, ..Settings::default() }, 168);
        let sales = all.iter().filter(|h| h.event_type == "sale.created").count();
        let orders = all.iter().filter(|h| h.event_type == "order.created").count();
        assert!((19_000..21_000).contains(&sales), "{sales}");
        assert!((1_800..2_200).contains(&orders), "{orders}");
        assert!(all.is_sorted_by_key(|h| h.at));
    }

    #[test]
    fn r24_the_lists_and_reads_say_what_the_events_said_last() {
        let (world, all) = happen(Settings::default(), 12);
        let mut last = BTreeMap::new();
        for happening in all {
            last.insert(happening.key, happening.data);
        }
        let (from, to) = (start(), Timestamp::MAX);
        let sales = world.sales_between(from, to, to).into_iter().map(|sale| &sale.data);
        let listed: BTreeMap<_, _> = sales
            .chain(world.orders_between(from, to).into_iter().map(|order| &order.data))
            .map(|data| (hikyaku_core::envelope::business_key(data.raw()).unwrap(), data.clone()))
            .collect();
        assert_eq!(listed, last);
        for (key, data) in last.iter().filter(|(key, _)| key.starts_with("W-")) {
            assert_eq!(world.order(key).unwrap().data, *data);
        }
    }

    #[test]
    fn case15_the_month_in_a_key_is_the_shops() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let one = at("2026-12-01T00:30:00+14:00");
        assert_eq!(sale_key("T1", one, "9"), sale_key("T1", at("2026-11-30T10:30:00Z"), "9"));
        assert_eq!(sale_key("T1", at("2026-11-30T23:30:00-05:00"), "9"), "T1|2026-12|9");
        assert_eq!(sale_key("T1", at("2026-11-30T14:59:59.999Z"), "9"), "T1|2026-11|9");
        assert_eq!(sale_key("T1", at("2026-11-30T15:00:00Z"), "9"), "T1|2026-12|9");
    }

    #[test]
    fn a_late_sale_is_in_the_list_of_its_period_only_later() {
        let mut world = World::open(Settings::default(), start());
        world.sell(start());
        world.list_last_sale_late(Duration::from_secs(7200));
        let to = start().checked_add(Duration::from_secs(1)).unwrap();
        let read_at = |minutes: u64| {
            let now = start().checked_add(Duration::from_secs(60 * minutes)).unwrap();
            world.sales_between(start(), to, now).len()
        };
        assert_eq!((read_at(119), read_at(120)), (0, 1));
    }
}
