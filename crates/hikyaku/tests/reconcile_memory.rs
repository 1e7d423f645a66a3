//! How much memory a reconciliation takes, in a process of its own: whatever the list's length, about a page.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot read")]

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::{HeaderMap, Method};
use hikyaku::clock::{self, SharedClock, SystemClock};
use hikyaku::outbound::{Exchange, Request, Response};
use hikyaku::reconcile::adapter::{Item, Kind, Lister, What};
use hikyaku::reconcile::{Door, Entered, Reconciler, Seen, Settings, Tools};
use hikyaku::store::memory::MemoryStore;
use hikyaku::store::{ReconcileKey, StoreError};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use url::Url;

/// What 100,000 items may need beyond what 1,000 do.
const MAX_MORE_BYTES: u64 = 64 * 1024 * 1024;
const PAGE_ITEMS: usize = 1000;

fn start() -> Timestamp {
    timestamp::parse("2026-11-30T00:00:00Z").unwrap()
}

/// A list of so many sales in the last 20 hours, evenly.
struct Provider(u64);

impl Provider {
    fn at(&self, number: u64) -> Timestamp {
        let nanos = 20 * 3600 * 1_000_000_000 / i128::from(self.0) * i128::from(number);
        let first = start().as_nanosecond() - 21 * 3600 * 1_000_000_000;
        Timestamp::from_nanosecond(first + nanos).unwrap()
    }
}

#[async_trait]
impl Exchange for Provider {
    async fn exchange(&self, _: Method, request: Request, _: usize) -> Response {
        let of = |name: &str| request.url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        let (from, to) = (timestamp::parse(&of("from")).unwrap(), timestamp::parse(&of("to")).unwrap());
        let page: usize = of("currentPage").parse().unwrap();
        let listed: Vec<u64> = (0..self.0).filter(|number| (from..to).contains(&self.at(*number))).collect();
        let padding = "x".repeat(1000);
        let item = |number: &u64| {
            let at = timestamp::format(self.at(*number));
            format!(r#"{{"id":"T1|2026-11|{number}","timestamp":"{at}","note":"{padding}"}}"#)
        };
        let items: Vec<_> = listed.iter().skip((page - 1) * PAGE_ITEMS).take(PAGE_ITEMS).map(item).collect();
        let (total, pages) = (listed.len(), listed.len().div_ceil(PAGE_ITEMS));
        let body = format!(
            r#"{{"items":[{}],"currentPage":{page},"itemsPerPage":{PAGE_ITEMS},"totalItems":{total},"totalPages":{pages}}}"#,
            items.join(",")
        );
        let (error, headers, duration) = (String::new(), HeaderMap::new(), Duration::ZERO);
        Response { outcome: Outcome::Answered(200), error, headers, body: body.into(), duration }
    }
}

/// Counts what goes in, and keeps nothing.
#[derive(Default)]
struct Counting(AtomicU64);

#[async_trait]
impl Door for Counting {
    async fn enter(&self, _: &str, _: &Item, _: Entry) -> Result<Entered, StoreError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Entered::Stored)
    }

    async fn is_healthy(&self, _: &str) -> bool {
        true
    }

    async fn switched_off(&self, _: &OrganizationId, _: &Seen) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The most memory that this process has had so far, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn reconcile(items: u64) {
    let organization = OrganizationId::parse("default").unwrap();
    let settings = Settings {
        name: "sales".into(),
        organization: organization.clone(),
        source: "shop".into(),
        provider: "receiptroller".into(),
        list: Kind::ReceiptRoller(Lister {
            base: Url::parse("https://shop.example").unwrap(),
            organization: "org".into(),
            what: What::Transactions,
            page_items: PAGE_ITEMS,
        }),
        credential: None,
        timeout: Settings::DEFAULT_TIMEOUT,
        every: Settings::DEFAULT_EVERY,
        daily: None,
        overlap: Settings::DEFAULT_OVERLAP,
        lookback: Settings::DEFAULT_LOOKBACK,
        call_budget: Settings::DEFAULT_CALL_BUDGET,
        watch: None,
    };
    let real: SharedClock = Arc::new(SystemClock::start());
    let door = Arc::new(Counting::default());
    let tools = Tools {
        store: Arc::new(MemoryStore::new()),
        clock: clock::fast(real, 1, start()),
        exchange: Arc::new(Provider(items)),
        door: door.clone(),
    };
    let reconciler = Reconciler::new(vec![settings], &tools);
    let stop = CancellationToken::new();
    let running = tokio::spawn(reconciler.clone().run(stop.clone()));
    let key = ReconcileKey { organization, name: "sales".into() };
    while reconciler.cycles(&key, None, 1).await.unwrap().first().is_none_or(|cycle| cycle.ended_at.is_none()) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop.cancel();
    running.await.unwrap();
    assert_eq!(door.0.load(Ordering::Relaxed), items);
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_items_need_little_more_memory_than_a_thousand() {
    reconcile(1000).await;
    let small = peak();
    reconcile(100_000).await;
    let more = peak() - small;
    println!("100,000 items needed {} KiB more than 1,000", more / 1024);
    assert!(more < MAX_MORE_BYTES, "{more} bytes more");
}
