//! `hikyaku deliveries list` and `hikyaku events tail`.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{CommandLine, line};
use crate::harness::{Config, Receiver, Server, within};

#[tokio::test]
async fn deliveries_are_searched() {
    let server = Server::start(Config::default()).await;
    let (api, cli) = (server.api(), CommandLine::of(&server));
    let (good, bad) = (Receiver::always(200).await, Receiver::always(503).await);
    let webhook = api.webhook(&good.url("/")).await;
    api.webhook(&bad.url("/")).await;
    let id = api.publish("sale.created", r#"{"id":"k1"}"#).await;
    api.ended(&id).await;
    let listed = cli.prints(&["deliveries", "list", "--type", "sale.*"]).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(line(&listed, &webhook.id).contains("delivered"), "{listed}");
    for (filter, count) in [
        (&["--webhook", &webhook.id][..], 1),
        (&["--event", &id], 2),
        (&["--event", "none"], 0),
        (&["--state", "exhausted"], 1),
        (&["--http-status", "5xx"], 1),
        (&["--error", "dns"], 0),
        (&["--key", "k1"], 2),
        (&["--key", "k2"], 0),
        (&["--to", "2000-01-01T00:00:00+09:00"], 0),
        (&["--from", "2000-01-01T00:00:00+09:00", "--limit", "1"], 1),
    ] {
        let rows = cli.json_lines(&[&["deliveries", "list"], filter].concat()).await;
        assert_eq!(rows.len(), count, "{filter:?}: {rows:?}");
    }
    assert_eq!(cli.run(&["deliveries", "list", "--state", "lost"]).await.code, 1);
    let failed = cli.json_lines(&["webhooks", "log", &webhook.id, "--http-status", "200", "--type", "sale.*"]).await;
    assert_eq!(failed.len(), 1);
}

/// A command that runs until it is stopped.
struct Following {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Following {
    fn start(cli: &CommandLine, arguments: &[&str]) -> Self {
        let mut child = cli.command(arguments).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    async fn line(&mut self) -> String {
        let mut lines = self.lines.take().unwrap();
        let read = spawn_blocking(move || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            (line, lines)
        });
        let (line, lines) = within("a line", read).await.unwrap();
        self.lines = Some(lines);
        line
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // Where it has ended already, there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_tail_shows_what_comes_and_what_becomes_of_it() {
    let server = Server::start(Config::default()).await;
    let (api, cli, receiver) = (server.api(), CommandLine::of(&server), Receiver::always(200).await);
    api.webhook(&receiver.url("/")).await;
    let before = api.publish("sale.before", "1").await;
    api.ended(&before).await;

    let mut people = Following::start(&cli, &["events", "tail"]);
    assert!(people.line().await.starts_with("PUBLISHED"), "the headings come when it follows");
    let mut program = Following::start(&cli, &["events", "tail", "--type", "sale.*", "--json"]);
    // It says nothing when it begins to follow, so events are published until it shows one.
    let (mut published, mut seen) = (Vec::new(), None);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
    let shown = program.line();
    tokio::pin!(shown);
    while seen.is_none() {
        tokio::select! {
            line = &mut shown => seen = Some(line),
            _ = ticks.tick() => {
                api.publish("other.kind", "2").await;
                published.push(api.publish("sale.after", "3").await);
            }
        }
    }
    let seen: Value = serde_json::from_str(&seen.unwrap()).unwrap();
    assert_eq!(seen["eventType"], "sale.after");
    assert!(published.iter().any(|id| seen["deliveryId"] == json!(id)), "{seen}");
    loop {
        let line = people.line().await;
        assert!(!line.contains("sale.before"), "{line}");
        if line.contains("sale.after") && line.contains("delivered") {
            break;
        }
    }
}

#[tokio::test]
async fn a_tail_outlasts_its_server() {
    let mut server = Server::start(Config::default()).await;
    let mut tail = Following::start(&CommandLine::of(&server), &["events", "tail"]);
    tail.line().await;
    let told = tail.child.stderr.take().unwrap();
    server.kill9().await;
    let line = spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line).unwrap();
        line
    });
    assert_eq!(within("a line", line).await.unwrap(), "The server gives no answer; it is asked again until it does.\n");
    assert!(tail.child.try_wait().unwrap().is_none(), "it goes on");
}
