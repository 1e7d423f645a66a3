//! `hikyaku events` and `hikyaku inbox`.

use std::fs;

use super::{CommandLine, line, member};
use crate::harness::{Config, Receiver, SOURCE_SECRET, Server, source};

#[tokio::test]
async fn data_is_published_and_shown_to_the_byte() {
    let server = Server::start(Config::default()).await;
    let (cli, mut receiver) = (CommandLine::of(&server), Receiver::always(503).await);
    let webhook = server.api().webhook(&receiver.url("/")).await;
    let data = r#"{"total": 1.10, "huge":123456789012345678901234567890, "b":1,"a":2}"#;
    let file = server.path("data.json");
    fs::write(&file, format!("{data}\n")).unwrap();
    let given = format!("@{}", file.display());
    let publish = ["events", "publish", "--type", "sale.created", "--id", "s/1", "--data"];
    let published = cli.prints(&[&publish[..], &[&given]].concat()).await;
    assert_eq!((member(&published, "id"), member(&published, "deliveries")), ("s/1", "1"));
    let again = cli.json(&[&publish[..], &[data]].concat()).await;
    assert_eq!(again["id"], "s/1", "the same content under the same id is no error");
    let other = cli.run(&[&publish[..], &["{}"]].concat()).await;
    assert_eq!(other.code, 1);
    assert!(other.stderr.contains("409") && other.stderr.contains("s/1"), "{other:?}");

    let sent = receiver.next().await;
    assert!(String::from_utf8(sent.body).unwrap().contains(data));
    server.api().ended("s/1").await;
    let shown = cli.prints(&["events", "show", "s/1"]).await;
    assert_eq!(member(&shown, "data"), data);
    assert!(line(&shown, "exhausted").starts_with(&webhook.id), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.split_whitespace().any(|word| word == "503")).count(), 4, "{shown}");
    assert!(cli.prints(&["events", "show", "s/1", "--json"]).await.contains(data));
}

#[tokio::test]
async fn a_file_is_published_in_batches_and_can_be_published_again() {
    let server = Server::start(Config::default()).await;
    let cli = CommandLine::of(&server);
    let file = server.path("events.jsonl");
    let lines: String = (0..1_001).map(|n| format!("{{\"id\":\"e{n}\",\"type\":\"a.b\",\"data\":{n}}}\n")).collect();
    fs::write(&file, &lines).unwrap();
    let publish = ["events", "publish", "--file", file.to_str().unwrap()];
    assert_eq!(cli.prints(&publish).await, "1001 events are stored\n");
    assert_eq!(cli.prints(&publish).await, "1001 events are stored, 1001 of them since before\n");
    assert_eq!(cli.json_lines(&publish).await[1_000]["id"], "e1000");

    fs::write(&file, format!("{lines}{{\"type\":\"a\",\"data\":0}}\n")).unwrap();
    let refused = cli.run(&publish).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    assert!(
        refused.stderr.contains("1000 events are stored before line 1001") && refused.stderr.contains("line 1002"),
        "{refused:?}"
    );
    fs::write(&file, "{\"type\":\"a.b\",\"data\":0}\n{\n").unwrap();
    let broken = cli.run(&publish).await;
    assert_eq!(broken.code, 2);
    assert!(broken.stderr.contains("line 2 is no JSON"), "{broken:?}");
}

#[tokio::test]
async fn what_was_received_is_listed_and_shown() {
    let server = Server::start(Config::default().with(&source())).await;
    let (api, cli) = (server.api(), CommandLine::of(&server));
    let body = r#"{"id":"d1","type":"refund.made","timestamp":"2026-11-30T09:15:00.000Z","data":{"id":"k1"}}"#;
    assert_eq!(api.deliver_signed("d1", body).await, 200);
    api.settled("receiptroller", "d1").await;
    let listed = cli.prints(&["inbox", "list", "--state", "parked", "--key", "k1"]).await;
    assert!(line(&listed, "d1").contains("refund.made"), "{listed}");
    assert_eq!(cli.json_lines(&["inbox", "list"]).await[0]["deliveryId"], "d1");
    assert!(cli.json_lines(&["inbox", "list", "--state", "dead"]).await.is_empty());
    let shown = cli.prints(&["inbox", "show", "receiptroller", "d1"]).await;
    assert_eq!(member(&shown, "body"), body);
    assert!(!shown.contains(SOURCE_SECRET));
    assert_eq!(cli.json(&["inbox", "show", "receiptroller", "d1"]).await["body"], body);
}
