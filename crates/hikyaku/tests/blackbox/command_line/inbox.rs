//! `hikyaku inbox`: looking, and doing something about what was found.

use serde_json::json;

use super::{CommandLine, line};
use crate::harness::{Config, Server, event_body, source};

const TIMESTAMP: &str = "2026-11-30T09:15:00.000Z";

/// A server with so many parked rows.
async fn with_parked(count: usize) -> (Server, CommandLine) {
    let server = Server::start(Config::default().with(&source())).await;
    for n in 0..count {
        let (delivery, kind) = (format!("e{n}"), if n == 0 { "order.created" } else { "sale.created" });
        let body = event_body(&delivery, kind, TIMESTAMP, "{}");
        assert_eq!(server.api().deliver_signed(&delivery, body).await, 200);
    }
    let cli = CommandLine::of(&server);
    (server, cli)
}

#[tokio::test]
async fn one_row_is_discarded_and_then_there_is_nothing_more_to_do_about_it() {
    let (_server, cli) = with_parked(1).await;
    let discard = ["inbox", "discard", "receiptroller", "e0", "--reason", "a test"];
    assert!(cli.prints(&discard).await.contains("done"));
    let shown = cli.json(&["inbox", "show", "receiptroller", "e0"]).await;
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("discarded"), &json!("a test")));
    let again = cli.run(&discard).await;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("The row is discarded"), "{again:?}");
    assert_eq!(cli.run(&["inbox", "replay", "receiptroller", "nothing"]).await.code, 5);
    assert_eq!(cli.json(&["inbox", "list", "--state", "discarded", "--limit", "1"]).await["deliveryId"], "e0");
}

#[tokio::test]
async fn many_rows_are_shown_and_touched_only_after_a_yes() {
    // More than the server does in one piece.
    let (_server, cli) = with_parked(205).await;
    let discard = ["inbox", "discard", "--state", "parked", "--type", "sale.*", "--reason", "tests"];
    let preview = cli.prints(&[&discard[..], &["--preview"]].concat()).await;
    assert!(preview.ends_with("and 184 more\n204 rows\n"), "{preview}");
    line(&preview, "e204");
    let nobody = cli.run(&discard).await;
    assert_eq!(nobody.code, 2, "{nobody:?}");
    assert!(nobody.stderr.contains("--yes"), "{nobody:?}");
    assert_eq!(cli.json_lines(&["inbox", "list", "--state", "parked", "--all"]).await.len(), 205);

    let done = cli.json(&[&discard[..], &["--yes"]].concat()).await;
    assert_eq!(done, json!({"preview": false, "matched": 204, "changed": 204, "unchanged": []}));
    assert_eq!(cli.json(&["inbox", "list", "--state", "parked"]).await["deliveryId"], "e0");
    let released = cli.prints(&["inbox", "release", "--state", "parked", "--yes"]).await;
    assert!(released.contains("receiptroller e0: It stays parked"), "{released}");
    assert!(released.ends_with("release: none of 1 rows; nothing was done, for the reasons above\n"), "{released}");
    let none = cli.prints(&["inbox", "replay", "--state", "dead", "--yes"]).await;
    assert!(none.ends_with("0 rows\nNo row is left to replay: nothing was done.\n"), "{none}");
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_told_and_changes_nothing() {
    let (_server, cli) = with_parked(1).await;
    for (arguments, code) in [
        (&["inbox", "replay"][..], 2),
        (&["inbox", "replay", "receiptroller"], 2),
        (&["inbox", "replay", "receiptroller", "e0", "--state", "dead"], 2),
        (&["inbox", "replay", "receiptroller", "e0", "--key", "k"], 2),
        (&["inbox", "discard", "receiptroller", "e0"], 2),
        (&["inbox", "replay", "--state", "parked", "--yes"], 1),
        (&["inbox", "replay", "--state", "dead", "--route", "gone", "--yes"], 1),
    ] {
        let ran = cli.run(arguments).await;
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
    }
    assert_eq!(cli.json(&["inbox", "list", "--state", "parked"]).await["deliveryId"], "e0");
}

#[tokio::test]
async fn t2_sources_are_listed_with_how_they_stand() {
    let (server, cli) = with_parked(1).await;
    assert_eq!(server.api().deliver("receiptroller", &[], b"{}").await, 401);
    let sources = cli.prints(&["inbox", "sources"]).await;
    assert!(line(&sources, "receiptroller").contains("refuse"), "{sources}");
    assert!(sources.contains("SWITCHED OFF AT") && sources.contains("x-rr-signature"), "{sources}");
    assert!(cli.json(&["inbox", "sources"]).await["items"][0]["switchedOffAt"].is_string());
}
