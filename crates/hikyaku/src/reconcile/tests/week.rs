//! The whole: a provider with every fault, the inbox, and reconciliation; at the end both sides are equal.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::shop::{Shop, Wanted, key};
use crate::clock::Stopwatch;
use crate::sandbox::faults::Plan;

const HOUR: Duration = Duration::from_secs(3600);
/// A folder into which each week writes what it was, for whoever does not see what passing tests print.
const REPORT: &str = "HIKYAKU_TEST_REPORT";

/// What was compared.
struct Compared {
    sales: usize,
    orders: usize,
    repaired: u64,
}

/// Lets a shop be open for so long, then has both lists compared once: no more than that may be needed.
async fn equal_after(wanted: Wanted, length: Duration) -> Compared {
    let shop = Shop::open(&wanted);
    tokio::time::sleep(length).await;
    shop.close_the_shops();
    // Sales that come into the list late have come, and a trouble of the API is over.
    tokio::time::sleep(3 * HOUR + HOUR / 2).await;
    shop.one_cycle().await;
    shop.assert_equal();
    let cycles = shop.reconciler.cycles(&key("sales"), None, 1000).await.unwrap();
    let repaired: u64 = cycles.iter().map(|cycle| cycle.counts.repaired).sum();
    assert!(repaired > 10, "there was nothing to repair: {repaired}");
    let engine = shop.sandbox.engine();
    let (from, to) = (Timestamp::MIN, Timestamp::MAX);
    let (sales, orders) = (engine.world.sales_between(from, to, to).len(), engine.world.orders_between(from, to).len());
    Compared { sales, orders, repaired }
}

/// A week of about 20,000 sales and 2,000 orders.
fn week(seed: u64) {
    // Started outside of the runtime it shows real time.
    let real = Stopwatch::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let wanted = Wanted {
        seed,
        sales_per_hour: 119.0,
        orders_per_hour: 12.0,
        plan: Plan::all(),
        outages: &[30..32, 90..97],
        page_items: 500,
    };
    let Compared { sales, orders, repaired } = runtime.block_on(equal_after(wanted, 7 * 24 * HOUR));
    assert!(sales > 19_000 && orders > 1_800, "too little for a week: {sales} sales, {orders} orders");
    let told = format!(
        "seed {seed:2}: a week of {sales} sales and {orders} orders, {repaired} of the sales repaired, ends with both \
         sides equal after {:.1} s\n",
        real.elapsed().as_secs_f64()
    );
    print!("{told}");
    if let Some(folder) = std::env::var_os(REPORT) {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(Path::new(&folder).join(format!("week-{seed:02}")), told).unwrap();
    }
}

/// A test for each seed, so that they run side by side.
macro_rules! weeks {
    ($($name:ident: $seed:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                super::week($seed);
            }
        )*
    };
}

mod t4_a_week_with_every_fault_ends_with_equal_tables {
    weeks! {
        seed_1: 1, seed_2: 2, seed_3: 3, seed_4: 4, seed_5: 5, seed_6: 6, seed_7: 7, seed_8: 8, seed_9: 9, seed_10: 10,
    }
}

#[tokio::test(start_paused = true)]
async fn t4_a_day_with_every_fault_ends_with_equal_tables() {
    let wanted = Wanted {
        seed: 1,
        sales_per_hour: 120.0,
        orders_per_hour: 12.0,
        plan: Plan::all(),
        outages: &[9..12, 18..19],
        page_items: 100,
    };
    equal_after(wanted, 24 * HOUR).await;
}
