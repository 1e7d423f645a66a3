//! What one node does at a time.

use super::*;
use crate::harness::{TestDatabase, source};

const TAKEN: &str = "this node does it from now on";
/// A comparison whose provider gives no answer.
const RECONCILE: &str = r#"
[[reconcile]]
name = "sales"
source = "receiptroller"
adapter = "receiptroller-transactions"
url = "http://127.0.0.1:9"
provider_organization = "shop"
token = "a-token"
"#;

/// The duties that a node has said to have taken.
fn taken(server: &Server) -> Vec<String> {
    let lines = server.log();
    let lines = lines.lines().filter(|line| line.contains(TAKEN));
    let mut taken: Vec<_> = ["reconcile", "retention"]
        .into_iter()
        .filter(|duty| lines.clone().any(|line| line.contains(&format!("\"duty\":\"{duty}\""))))
        .map(str::to_owned)
        .collect();
    taken.sort();
    taken
}

#[tokio::test]
async fn what_only_one_node_does_is_taken_over_when_it_is_killed() {
    let database = TestDatabase::create().await;
    let config = Config::default().with(&source()).with(RECONCILE);
    let both = ["reconcile", "retention"];
    let mut first = Server::node(&database.url(), config.clone()).await;
    eventually("the first node to have both duties", async || (taken(&first) == both).then_some(())).await;
    let second = Server::node(&database.url(), config).await;
    let client = database.client().await;
    // It has asked for them at its start, when its clock was set; nothing of it is to be seen but that it has not got them.
    second.api().webhook("http://127.0.0.1:9/").await;
    assert_eq!(taken(&second), [""; 0]);
    first.kill9().await;
    let killed = client.query_one("SELECT EXTRACT(EPOCH FROM clock_timestamp())::FLOAT8", &[]).await.unwrap();
    eventually("the second node to have both duties", async || (taken(&second) == both).then_some(())).await;
    let done = client.query_one("SELECT EXTRACT(EPOCH FROM clock_timestamp())::FLOAT8", &[]).await.unwrap();
    let seconds = done.get::<_, f64>(0) - killed.get::<_, f64>(0);
    assert!(seconds < 30.0, "{seconds}");
}

#[tokio::test]
async fn a_node_that_is_asked_to_stop_leaves_its_duties_to_the_other() {
    let database = TestDatabase::create().await;
    let mut first = Server::node(&database.url(), Config::default()).await;
    eventually("the first node to have the duty", async || taken(&first).contains(&"retention".into()).then_some(()))
        .await;
    let second = Server::node(&database.url(), Config::default()).await;
    assert_eq!(first.sigterm().await.code(), Some(0));
    eventually("the second to have it", async || taken(&second).contains(&"retention".into()).then_some(())).await;
}
