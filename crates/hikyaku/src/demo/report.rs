//! What the demo counts in the end, and whether both sides are equal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use hikyaku_core::ordering::{Verdict, Version, judge};
use hyper::Method;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::DemoError;
use super::api::Api;
use super::endpoints::Endpoint;
use super::shop::{Published, Row};
use crate::sandbox::world::World;

/// Rows of one table, beside what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    name: &'static str,
    rows: Vec<Row>,
    expected: Vec<Row>,
}

/// The demo's figures, read from the program's own API and from the destination's file.
#[derive(Debug, Clone)]
pub(super) struct Report {
    published: usize,
    delivered: usize,
    attempts: usize,
    duplicates: u32,
    stale: usize,
    exhausted: usize,
    switched_off: String,
    not_sent: usize,
    tables: [Table; 2],
    shop: Shop,
}

/// The second act's figures: what the provider says, beside what came of it.
#[derive(Debug, Clone)]
pub(super) struct Shop {
    delivered: usize,
    lost: usize,
    repaired: u64,
    tables: [Table; 2],
}

impl Shop {
    /// Reads both sides after all has ended.
    pub(super) fn read(
        world: &World,
        books: &Path,
        lost: usize,
        delivered: usize,
        repaired: u64,
    ) -> Result<Self, DemoError> {
        let books = Connection::open_with_flags(books, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let all = (Timestamp::MIN, Timestamp::MAX);
        let sales = world.sales_between(all.0, all.1, all.1).into_iter().map(|sale| Row::of_sale(&sale.data.value()));
        let orders = world.orders_between(all.0, all.1).into_iter().map(|order| Row::of_order(&order.data.value()));
        let tables = [
            Table::read("shop_sales", "sold_at", &books, sales.collect())?,
            Table::read("shop_orders", "status", &books, orders.collect())?,
        ];
        Ok(Self { delivered, lost, repaired, tables })
    }
}

impl Report {
    /// Gathers everything after all has ended.
    pub(super) async fn gather(
        api: &Api,
        dir: &Path,
        published: &[Published],
        [books, old_system]: [&str; 2],
        endpoint: &Endpoint,
        shop: Shop,
    ) -> Result<Self, DemoError> {
        let (mut delivered, mut attempts, mut exhausted, mut not_sent) = (0, 0, 0, 0);
        for event in published {
            let event = api.call(Method::GET, &format!("events/{}", event.version.event), None).await?;
            let state = |webhook: &str| delivery(&event, webhook).and_then(|d| d["state"].as_str());
            delivered += usize::from(state(books) == Some("delivered"));
            exhausted += usize::from(state(old_system) == Some("exhausted"));
            not_sent += usize::from(state(old_system).is_none());
            let tried = |webhook: &str| delivery(&event, webhook)?["attempts"].as_array().map(Vec::len);
            attempts += [books, old_system].iter().filter_map(|webhook| tried(webhook)).sum::<usize>();
        }
        let off = api.call(Method::GET, &format!("webhooks/{old_system}"), None).await?;
        let connection = Connection::open_with_flags(dir.join("books.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        Ok(Self {
            published: published.len(),
            delivered,
            attempts,
            duplicates: endpoint.seen(|seen| seen.handed_on - seen.taken.len() as u32),
            stale: count_stale(api).await?,
            exhausted,
            switched_off: format!("old system, after {}", off["offEvent"].as_str().unwrap_or("nothing")),
            not_sent,
            tables: [
                Table::read(
                    "sales",
                    "sold_at",
                    &connection,
                    newest(published.iter().filter(|p| !p.happening.is_order())),
                )?,
                Table::read(
                    "orders",
                    "status",
                    &connection,
                    newest(published.iter().filter(|p| p.happening.is_order())),
                )?,
            ],
            shop,
        })
    }

    /// Whether every event was delivered and the tables hold exactly what was published.
    pub(super) fn both_sides_are_equal(&self) -> bool {
        self.delivered == self.published && self.tables.iter().chain(&self.shop.tables).all(Table::is_equal)
    }
}

fn delivery<'a>(event: &'a Value, webhook: &str) -> Option<&'a Value> {
    event["deliveries"].as_array()?.iter().find(|delivery| delivery["webhookId"] == *webhook)
}

async fn count_stale(api: &Api) -> Result<usize, DemoError> {
    let (mut count, mut path) = (0, "inbox?state=stale&limit=100".to_owned());
    loop {
        let page = api.call(Method::GET, &path, None).await?;
        count += page["items"].as_array().map_or(0, Vec::len);
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("inbox?state=stale&limit=100&cursor={cursor}"),
            None => return Ok(count),
        }
    }
}

impl Table {
    fn read(
        name: &'static str,
        detail: &str,
        books: &Connection,
        mut expected: Vec<Row>,
    ) -> Result<Self, rusqlite::Error> {
        let mut statement = books.prepare(&format!("SELECT id, total, {detail} FROM {name} ORDER BY id"))?;
        let row = |row: &rusqlite::Row<'_>| Ok(Row { key: row.get(0)?, total: row.get(1)?, detail: row.get(2)? });
        let rows = statement.query_map([], row)?.collect::<Result<_, _>>()?;
        expected.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(Self { name, rows, expected })
    }

    fn is_equal(&self) -> bool {
        self.rows == self.expected
    }
}

/// The reference: of every object the newest version, found without the store.
fn newest<'a>(published: impl Iterator<Item = &'a Published>) -> Vec<Row> {
    let mut newest: BTreeMap<String, (&Version, Row)> = BTreeMap::new();
    for event in published {
        let row = event.happening.row();
        if judge(newest.get(&row.key).map(|(version, _)| *version), &event.version) == Verdict::Newer {
            newest.insert(row.key.clone(), (&event.version, row));
        }
    }
    newest.into_values().map(|(_, row)| row).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        let mut line = |name: &str, value: &dyn fmt::Display| writeln!(f, "  {name:<27}{value}");
        line("published", &self.published)?;
        line("delivered to books", &format_args!("{} of {}", self.delivered, self.published))?;
        line("attempts", &self.attempts)?;
        line("duplicates dropped", &self.duplicates)?;
        line("stale skipped", &self.stale)?;
        line("exhausted", &format_args!("{} (old system)", self.exhausted))?;
        line("switched off", &self.switched_off)?;
        line("not sent while off", &self.not_sent)?;
        for table in &self.tables {
            let equal = if table.is_equal() { "equal to what was published" } else { "NOT what was published" };
            line(&format!("rows in {}", table.name), &format_args!("{}, {equal}", table.rows.len()))?;
        }
        let shop = &self.shop;
        line("came from the provider", &format_args!("{} deliveries", shop.delivered))?;
        line("retries the provider lost", &shop.lost)?;
        line("fetched from its lists", &shop.repaired)?;
        for table in &shop.tables {
            let equal = if table.is_equal() { "equal to the provider's list" } else { "NOT the provider's list" };
            line(&format!("rows in {}", table.name), &format_args!("{}, {equal}", table.rows.len()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(delivered: usize, row: &str, shop_row: &str) -> Report {
        let listed = |name| Table {
            name,
            rows: vec![Row { key: shop_row.into(), total: 1, detail: String::new() }],
            expected: vec![Row { key: "a".into(), total: 1, detail: String::new() }],
        };
        let table = |name| Table {
            name,
            rows: vec![Row { key: row.into(), total: 1, detail: String::new() }],
            expected: vec![Row { key: "a".into(), total: 1, detail: String::new() }],
        };
        Report {
            published: 2,
            delivered,
            attempts: 2,
            duplicates: 0,
            stale: 0,
            exhausted: 0,
            switched_off: String::new(),
            not_sent: 0,
            tables: [table("sales"), table("orders")],
            shop: Shop { delivered: 1, lost: 1, repaired: 1, tables: [listed("shop_sales"), listed("shop_orders")] },
        }
    }

    #[test]
    fn a_difference_on_either_side_is_noticed() {
        assert!(report(2, "a", "a").both_sides_are_equal());
        assert!(!report(1, "a", "a").both_sides_are_equal());
        assert!(!report(2, "b", "a").both_sides_are_equal());
        assert!(!report(2, "a", "b").both_sides_are_equal());
        assert!(report(2, "b", "a").to_string().contains("NOT what was published"));
        assert!(report(2, "a", "b").to_string().contains("NOT the provider's list"));
    }
}
