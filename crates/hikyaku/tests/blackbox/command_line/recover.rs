//! What a webhook did not get: `webhooks missed`, `recover`, `deliveries resend` and `explain`.

use serde_json::{Value, json};

use super::{CommandLine, line, member};
use crate::harness::{Api, Config, Receiver, Server, Webhook};

const LONG_AGO: [&str; 2] = ["--from", "2000-01-01T00:00:00Z"];

/// A webhook that was off while these many events came.
async fn that_missed(api: &Api, receiver: &Receiver, count: usize) -> Webhook {
    let webhook = api.webhook(&receiver.url("/")).await;
    api.patch(&webhook, json!({"active": false})).await;
    let events: Vec<_> = (0..count).map(|n| format!(r#"{{"id":"e{n}","type":"a.b","data":{n}}}"#)).collect();
    api.publish_batch(&events).await.expect(202);
    webhook
}

#[tokio::test]
async fn what_was_missed_is_shown_then_recovered_to_the_last() {
    let server = Server::start(Config::default()).await;
    let (api, cli, mut receiver) = (server.api(), CommandLine::of(&server), Receiver::always(200).await);
    let webhook = that_missed(&api, &receiver, 30).await;
    let id = webhook.id.as_str();
    let missed = cli.prints(&["webhooks", "missed", id, "--limit", "5"]).await;
    assert_eq!(missed.lines().count(), 1 + 5 + 1, "{missed}");
    assert!(missed.ends_with("30 missed, 0 exhausted\n"), "{missed}");
    let pages = cli.json_lines(&["webhooks", "missed", id, "--all"]).await;
    assert_eq!((pages.len(), &pages[0]["countMissed"]), (1, &json!(30)));

    let recover = [&["webhooks", "recover", id][..], &LONG_AGO].concat();
    let off = cli.run(&recover).await;
    assert_eq!(off.code, 1, "{off:?}");
    assert!(off.stderr.contains("hikyaku webhooks enable"), "{off:?}");

    cli.prints(&["webhooks", "enable", id]).await;
    let ran = cli.run(&recover).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!((member(&ran.stdout, "state"), member(&ran.stdout, "recovered")), ("done", "30"));
    assert!(ran.stderr.ends_with("30 of 30 due again\n"), "{ran:?}");
    receiver.next_many(30).await;

    let recovery = member(&ran.stdout, "id");
    assert_eq!(cli.json(&["webhooks", "recovery", id, recovery]).await["total"], 30);
    assert_eq!(cli.run(&["webhooks", "recovery", id, "rec_none"]).await.code, 5);
    let none = cli.json(&[&recover[..], &["--which", "missed"]].concat()).await;
    assert_eq!((&none["state"], &none["total"]), (&json!("done"), &json!(0)));
    let backwards = cli.run(&[&recover[..], &["--to", "1999-01-01T00:00:00Z"]].concat()).await;
    assert_eq!(backwards.code, 1, "{backwards:?}");
}

#[tokio::test]
async fn an_event_is_explained_and_resent() {
    let server = Server::start(Config::default()).await;
    let (api, cli, mut receiver) = (server.api(), CommandLine::of(&server), Receiver::always(200).await);
    let (webhook, other) = (
        that_missed(&api, &receiver, 1).await,
        api.webhook_with(json!({"url": receiver.url("/other"), "events": ["x.y"]})).await,
    );
    let explained = cli.prints(&["explain", "e0"]).await;
    assert!(line(&explained, &webhook.id).contains("webhookOff"), "{explained}");
    assert!(line(&explained, &other.id).contains("notSubscribed"), "{explained}");
    let one: Value = cli.json(&["explain", "e0", "--webhook", &webhook.id]).await;
    assert_eq!(one["items"].as_array().unwrap().len(), 1);
    assert_eq!(cli.run(&["explain", "none"]).await.code, 5);

    let resent = cli.prints(&["deliveries", "resend", "e0", &webhook.id]).await;
    assert_eq!(member(&resent, "webhookId"), webhook.id);
    assert_eq!(receiver.next().await.header("x-rr-delivery"), Some("e0"));
    api.ended("e0").await;
    let again = cli.json(&["deliveries", "resend", "e0", &webhook.id]).await;
    assert_eq!(again["state"], "waiting");
    receiver.next().await;
    assert_eq!(cli.run(&["deliveries", "resend", "none", &webhook.id]).await.code, 5);
}
