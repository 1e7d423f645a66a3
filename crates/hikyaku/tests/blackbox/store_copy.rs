//! A store that is moved: from a file to PostgreSQL, and back.

use std::process::{Command, Output};

use tokio::task::spawn_blocking;

use crate::harness::{Config, Receiver, Server, TestDatabase, event_body, eventually, forward_to, statuses};

/// Runs `hikyaku store copy`; a database's URL goes in by a variable.
async fn copy(from: &str, to: &str) -> Output {
    let hidden =
        |url: &str, name: &str| if url.starts_with("postgres") { format!("env:{name}") } else { url.to_owned() };
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.args(["store", "copy", &hidden(from, "SOURCE"), &hidden(to, "TARGET")]);
    command.env_clear().env("SOURCE", from).env("TARGET", to);
    spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn copied(from: &str, to: &str) -> String {
    let output = copy(from, to).await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a publish and a delivery look like from outside.
async fn shown(server: &Server, event: &str) -> [String; 3] {
    let api = server.api();
    let inbox = api.inbox(&[]).await.iter().map(ToString::to_string).collect();
    let row = api.inbox_row("receiptroller", "e1").await.unwrap();
    [api.event(event).await.to_string(), inbox, row.to_string()]
}

#[tokio::test]
async fn c6_c9_a_store_that_moves_to_postgresql_and_back_loses_nothing_and_does_nothing_twice() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create().await);
    let file = |name: &str| format!("sqlite:{}", dir.path().join(name).display());
    let (hook, books) = (Receiver::by_attempt(&[500, 200]).await, Receiver::always(200).await);
    let config = Config::default().retry_delays(["2s", "2s", "2s"]).with(&forward_to(&books.url("/")));
    let keys = ["01".repeat(32), "23".repeat(32)];
    let config = config.env("HIKYAKU_SEALING_KEY", &keys[0]);
    let body = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k"}"#);

    let mut server = Server::node(&file("first.db"), config.clone()).await;
    let api = server.api();
    let webhook = api.webhook(&hook.url("/")).await;
    let event = api.publish("sale.created", r#"{"id":"k"}"#).await;
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    api.settled("receiptroller", "e1").await;
    eventually("the first attempt to end", async || {
        let log = api.log(&webhook, &[]).await;
        (!log["items"].as_array()?.is_empty()).then_some(())
    })
    .await;
    let refused = copy(&file("first.db"), &database.url()).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by another process"), "{refused:?}");
    assert!(server.sigterm().await.success());

    let report = copied(&file("first.db"), &database.url()).await;
    assert!(report.contains("inbox_rows") && !report.contains("DIFFERS"), "{report}");
    // Its secrets were copied as they stood, and are sealed under the next key now.
    let config = config.env("HIKYAKU_SEALING_KEY", &keys[1]).env("HIKYAKU_OLD_SEALING_KEYS", &keys[0]);
    let mut server = Server::node(&database.url(), config.clone()).await;
    let api = server.api();
    let ended = api.ended_one(&event).await;
    assert_eq!(statuses(&ended), [500, 200], "the retries went on: {ended}");
    assert_eq!(api.deliver_signed("e1", &body).await, 200);
    let other = event_body("e2", "sale.created", "2026-11-30T09:16:00.000Z", r#"{"id":"l"}"#);
    assert_eq!(api.deliver_signed("e2", &other).await, 200);
    api.settled("receiptroller", "e2").await;
    assert_eq!(api.inbox(&[]).await.len(), 2, "the repeated delivery was known");
    assert_eq!(books.count(), 2, "every delivery took effect once");
    let before = shown(&server, &event).await;
    assert!(server.sigterm().await.success());

    assert_eq!(copied(&database.url(), &file("second.db")).await.lines().count(), report.lines().count());
    let server = Server::node(&file("second.db"), config).await;
    assert_eq!(shown(&server, &event).await, before);
    let again = server.api().publish("sale.created", r#"{"id":"m"}"#).await;
    server.api().ended_one(&again).await;
}
