//! What every test uses: the program, the endpoints around it, a client for its API, and the ledgers.

mod api;
mod books;
mod cluster;
mod door;
mod inbound;
mod ledger;
mod ledger_tests;
mod load;
mod postgres;
mod proxy;
mod receiver;
mod request;
mod rng;
mod sandbox;
mod server;
mod tls;

use std::time::Duration;

pub(crate) use api::{Answer, Api, Webhook, deliveries, items, statuses};
pub(crate) use books::Books;
pub(crate) use cluster::Cluster;
pub(crate) use inbound::{
    SOURCE_SECRET, Sale, event_body, forward_to, fresh_sales_table, sales_to_sql, signed, source,
};
pub(crate) use ledger::{Effect, Ledgers, LoggedAttempt, Published, Wire, expected_body};
pub(crate) use load::{Balancer, Load};
pub(crate) use postgres::TestDatabase;
pub(crate) use proxy::{Cut, Proxy};
pub(crate) use receiver::{Receiver, Reply, gated};
pub(crate) use request::Seen;
pub(crate) use rng::XorShift;
pub(crate) use sandbox::Sandbox;
pub(crate) use server::{Config, Server, on_postgres};
pub(crate) use tls::{TlsReceiver, certificate_for};

/// How long a test waits for what must come. Generous: it is only ever used up by a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Where nobody listens, on any machine. (A port that was free a moment ago may be another test's by now.)
pub(crate) const NOBODY: &str = "127.0.0.1:1";

/// Waits for `future`, and fails the test with `what` when it does not come.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain for {what}"))
}

/// Writes a line for whoever runs all tests: what passing tests print is not seen everywhere.
#[cfg(feature = "crash-points")]
pub(crate) fn report(name: &str, line: &str) {
    eprintln!("{line}");
    if let Some(folder) = std::env::var_os("HIKYAKU_TEST_REPORT") {
        std::fs::write(std::path::Path::new(&folder).join(name), format!("{line}\n")).unwrap();
    }
}

/// Asks again and again until the answer is `Some`. The program sends no signal when it has written a result, so the
/// only way to learn of it from outside is to ask.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    const PAUSE: Duration = Duration::from_millis(15);
    let mut ticks = tokio::time::interval(PAUSE);
    within(what, async {
        loop {
            ticks.tick().await;
            if let Some(answer) = ask().await {
                return answer;
            }
        }
    })
    .await
}
