//! T4: what the provider lost, and that it has stopped sending, with the sandbox as the provider and real processes on both
//! sides.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::command_line::CommandLine;
use crate::harness::{
    Config, Receiver, Reply, Sandbox, Server, eventually, fresh_sales_table, items, sales_to_sql, source,
};

/// So many that a test waits for tens of them only seconds; their retries wait a minute, and so are lost in a restart.
const SALES_PER_HOUR: u32 = 36_000;
/// What of a time says its second.
const SECOND: usize = "2026-11-30T00:00:00".len();
/// Before and after all of a test.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";
const FAR_AWAY: &str = "2100-01-01T00:00:00Z";

/// The newest cycle that has ended, from this number on.
async fn ended(server: &Server, first: i64) -> Value {
    eventually("a cycle to end", async || {
        let page = server.api().get(&["reconcile", "sales", "cycles"], &[("limit", "1")]).await.expect(200);
        let newest = items(&page).pop()?;
        (newest["number"].as_i64() >= Some(first) && newest["endedAt"].is_string()).then_some(newest)
    })
    .await
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no text at {pointer}: {value}"))
}

#[tokio::test]
async fn t4_what_a_restart_of_the_provider_lost_is_in_the_table_after_a_reconciliation() {
    let provider = Sandbox::selling(SALES_PER_HOUR).await;
    let dir = Arc::new(tempfile::tempdir().unwrap());
    fresh_sales_table(dir.path());
    let server = Server::start_in(dir, Config::default().with(&sales_to_sql()).with(&provider.reconcile())).await;
    ended(&server, 1).await;

    // The first attempts fail, and the restart loses the others.
    let mut refusing = Receiver::always(503).await;
    let webhook = provider.webhook(&refusing.url("/in/receiptroller"), true).await;
    let refused = refusing.next_many(20).await;
    assert!(provider.restart().await >= 10, "each waits a minute for its second attempt");
    let url = format!("http://{}/in/receiptroller", server.addr());
    let before = server.effects().len();
    provider.change(&webhook, json!({ "url": url })).await;
    eventually("sales to be pushed", async || (server.effects().len() >= before + 10).then_some(())).await;
    let bodies: Vec<Value> = refused.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    let lost: BTreeSet<_> = bodies.iter().map(|body| text(body, "/data/id").to_owned()).collect();
    // A second that is not over is nobody's to compare.
    let last = bodies.iter().map(|body| &text(body, "/timestamp")[..SECOND]).max().unwrap();
    eventually("another second", async || (provider.now().await[..SECOND] > *last).then_some(())).await;
    let table = || server.sales().into_iter().map(|sale| (sale.id, sale.total.unwrap())).collect::<Vec<_>>();
    let arrived = |table: &[(String, i64)]| table.iter().filter(|(key, _)| lost.contains(key)).count();
    assert!(arrived(&table()) < lost.len(), "the loss is real");

    let cli = CommandLine::of(&server);
    cli.prints(&["reconcile", "run", "--name", "sales"]).await;
    let cycle = ended(&server, 2).await;
    assert!(cycle["missing"].as_u64().unwrap() >= 10 && cycle["missing"] == cycle["repaired"], "{cycle}");
    let (from, to) = (text(&cycle, "/period/from"), text(&cycle, "/period/to"));
    let listed = provider.sales(from, to).await;
    let table = eventually("everything listed to be in the table", async || {
        let table = table();
        listed.iter().all(|sale| table.binary_search(sale).is_ok()).then_some(table)
    })
    .await;
    assert_eq!(arrived(&table), lost.len());
    // What the table has beside them was sold since.
    let since: BTreeSet<_> = provider.sales(to, FAR_AWAY).await.into_iter().collect();
    let others: Vec<_> = table.into_iter().filter(|sale| listed.binary_search(sale).is_err()).collect();
    assert!(others.iter().all(|sale| since.contains(sale)), "{others:?}");
    assert!(provider.sales(LONG_AGO, from).await.is_empty(), "the first cycle reached back before all of them");

    let status = cli.prints(&["reconcile", "status"]).await;
    let line = status.lines().find(|line| line.starts_with("sales")).unwrap_or_else(|| panic!("{status}"));
    let columns: Vec<_> = line.split_whitespace().collect();
    assert_eq!(columns[..3], ["sales", "receiptroller", to], "{status}");
}

/// Slack, as it answers what it takes.
async fn slack() -> Receiver {
    Receiver::start(|_| Reply::Answer(200, b"ok".to_vec())).await
}

#[tokio::test]
async fn t4_that_the_provider_has_switched_the_webhook_off_is_told_once_and_it_is_switched_on_again() {
    let provider = Sandbox::selling(1).await;
    let webhook = provider.webhook("http://127.0.0.1:9/in/receiptroller", false).await;
    let mut chat = slack().await;
    let destination =
        format!("[[destination]]\nname = \"chat\"\nkind = \"slack\"\nurl = \"{}\"\n", chat.url("/services/x"));
    let watch = "[reconcile.watch]\nreenable = true\n";
    let config = Config::default()
        .with(&format!("{}notify = \"chat\"\n{destination}", source()))
        .with(&format!("{}{watch}", provider.reconcile()));
    let mut server = Server::start(config).await;
    let body: Value = serde_json::from_slice(&chat.next().await.body).unwrap();
    let expected = ":warning: 送信元が *receiptroller* への Webhook を無効にしました。有効に戻し、届かなかった分を照合しています。";
    assert_eq!(body["text"], expected);
    // It is told before it is done, so that a crash in between tells nobody less.
    eventually("the webhook is on", async || provider.is_active(&webhook).await.then_some(())).await;
    let [row] = server.api().inbox(&[("source", "hikyaku")]).await.try_into().unwrap();
    assert_eq!((text(&row, "/eventType"), text(&row, "/key")), ("webhook.source_disabled", "receiptroller"));
    assert_eq!(server.api().settled("hikyaku", text(&row, "/deliveryId")).await["state"], "done");
    let routes = items(&server.api().get(&["routes"], &[]).await.expect(200));
    assert_eq!((text(&routes[0], "/name"), text(&routes[0], "/destination")), ("notify:receiptroller", "chat"));
    // It is on: another look has nothing to tell.
    server.restart().await;
    let is_on = "hikyaku_reconcile_webhook_active{reconcile=\"sales\"} 1";
    eventually("a look at the webhook", async || {
        let metrics = reqwest::get(server.api().url(&["metrics"])).await.unwrap().text().await.unwrap();
        metrics.contains(is_on).then_some(())
    })
    .await;
    assert_eq!((chat.seen().len(), server.api().inbox(&[("source", "hikyaku")]).await.len()), (1, 1));
}
