//! `hikyaku webhooks`.

use serde_json::json;

use super::{CommandLine, line, member};
use crate::harness::{Config, Receiver, Reply, Server};

#[tokio::test]
async fn webhooks_are_registered_shown_changed_and_deleted() {
    let server = Server::start(Config::default()).await;
    let cli = CommandLine::of(&server);
    assert_eq!(cli.json(&["webhooks", "list"]).await, json!({"items": []}));

    let create = ["webhooks", "create", "http://127.0.0.1:9/a", "--events", "sale.*,order.created"];
    let ran = cli.run(&[&create[..], &["--description", "the \u{1b}[31mtill"]].concat()).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("only time"), "{ran:?}");
    assert!(member(&ran.stdout, "secret").starts_with("whsec_"), "{ran:?}");
    let id = member(&ran.stdout, "id");

    let shown = cli.prints(&["webhooks", "show", id]).await;
    assert_eq!(member(&shown, "events"), "sale.*, order.created");
    assert_eq!(member(&shown, "description"), "the \\u{1b}[31mtill", "nothing steers the terminal");
    assert!(!shown.contains("secret"), "{shown}");
    assert_eq!(cli.json(&["webhooks", "show", id]).await["description"], "the \u{1b}[31mtill");

    let updated =
        cli.json(&["webhooks", "update", id, "--url", "http://127.0.0.1:9/b", "--set", "description=x"]).await;
    assert_eq!(updated["url"], "http://127.0.0.1:9/b");
    assert_eq!((&updated["description"], &updated["events"]), (&json!("x"), &json!(["sale.*", "order.created"])));

    assert_eq!(member(&cli.prints(&["webhooks", "disable", id]).await, "offReason"), "paused");
    let listed = cli.prints(&["webhooks", "list"]).await;
    assert!(line(&listed, "DESCRIPTION").starts_with("ID ") && line(&listed, id).contains("  false   2"), "{listed}");
    assert_eq!(cli.json(&["webhooks", "enable", id]).await["active"], true);

    assert_eq!(cli.prints(&["webhooks", "delete", id]).await, format!("{id} is deleted.\n"));
    let gone = cli.run(&["webhooks", "show", id]).await;
    assert_eq!((gone.code, gone.stdout.as_str()), (5, ""));
    assert!(gone.stderr.contains(id) && gone.stderr.contains("--organization"), "{gone:?}");
}

#[tokio::test]
async fn a_log_is_read_over_its_pages() {
    let server = Server::start(Config::default()).await;
    let (api, cli, receiver) = (server.api(), CommandLine::of(&server), Receiver::always(204).await);
    let webhook = api.webhook(&receiver.url("/")).await;
    let events: Vec<_> = (0..201).map(|n| format!(r#"{{"id":"e{n}","type":"a.b","data":{n}}}"#)).collect();
    api.publish_batch(&events).await.expect(202);
    for n in 0..201 {
        api.ended(&format!("e{n}")).await;
    }
    let log = ["webhooks", "log", &webhook.id];
    let two = cli.run(&[&log[..], &["--limit", "2"]].concat()).await;
    assert_eq!((two.code, two.stdout.lines().count()), (0, 3), "{two:?}");
    assert!(two.stderr.contains("--all"), "{two:?}");
    let all = cli.run(&[&log[..], &["--all"]].concat()).await;
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (202, ""));
    let rows = cli.json_lines(&[&log[..], &["--limit", "201"]].concat()).await;
    assert_eq!(rows.len(), 201);
    assert!(rows.iter().all(|row| row["httpStatus"] == 204));
}

#[tokio::test]
async fn settings_are_given_by_their_names_and_a_secret_is_changed() {
    let server = Server::start(Config::default()).await;
    let cli = CommandLine::of(&server);
    let create =
        ["webhooks", "create", "http://127.0.0.1:9/", "--set", "timeoutSeconds=5", "--set", "disableAfter=never"];
    let created = cli.json(&create).await;
    assert_eq!((&created["timeoutSeconds"], &created["disableAfter"]), (&json!(5), &json!("never")));
    let id = created["id"].as_str().unwrap();
    let limit = r#"rateLimit={"perSecond":2.5,"burst":20}"#;
    let updated = cli.prints(&["webhooks", "update", id, "--set", limit, "--set", "timeoutSeconds=null"]).await;
    assert_eq!(member(&updated, "rateLimit"), r#"{"perSecond":2.5,"burst":20}"#);
    assert!(!updated.contains("timeoutSeconds"), "null puts it back: {updated}");

    let rotated = cli.run(&["webhooks", "rotate-secret", id, "--overlap", "60"]).await;
    assert_eq!(rotated.code, 0, "{rotated:?}");
    assert!(rotated.stderr.contains("only time"), "{rotated:?}");
    let secret = member(&rotated.stdout, "secret");
    assert!(secret.starts_with("whsec_") && created["secret"] != secret);
    assert!(!member(&rotated.stdout, "previousSecretUntil").is_empty());
    assert!(!cli.prints(&["webhooks", "show", id]).await.contains("whsec_"));
}

/// The server is played, so that what it says of the endpoint is known.
#[tokio::test]
async fn a_test_that_is_not_taken_exits_1_and_shows_what_the_server_says() {
    for (delivered, code) in [(true, 0), (false, 1)] {
        let answer = json!({"delivered": delivered, "httpStatus": 401, "advice": "Check the signature."});
        let mut server = Receiver::start(move |_| Reply::Answer(200, answer.to_string().into_bytes())).await;
        let url = server.url("");
        let cli = CommandLine::at(([127, 0, 0, 1], 1).into()).env("HIKYAKU_SERVER", &url);
        let ran = cli.run(&["webhooks", "test", "wh_1"]).await;
        assert_eq!((ran.code, ran.stderr.is_empty()), (code, delivered), "{ran:?}");
        assert_eq!(member(&ran.stdout, "advice"), "Check the signature.");
        let asked = server.next().await;
        assert_eq!((asked.method(), asked.path()), ("POST", "/v1/organizations/acme/webhooks/wh_1/test"));
    }
}
