//! What each node does, and how the schema comes to be.

use std::process::{Command, Output};

use super::*;
use crate::harness::{TestDatabase, event_body, forward_to};

/// A node that does only this; several roles have commas between them.
pub(super) fn in_role(roles: &str) -> Config {
    Config::default().env("HIKYAKU_ROLES", roles)
}

async fn status(api: &Api, method: Method, segments: &[&str]) -> u16 {
    api.try_send(method, api.url(segments), &[], Vec::new()).await.unwrap().status
}

/// Runs a command on the database.
fn hikyaku(url: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    let directory = tempfile::tempdir().unwrap();
    command.current_dir(directory.path()).env_clear().args(arguments).args(["--store", url]).output().unwrap()
}

#[tokio::test]
async fn a_node_that_answers_and_one_that_sends_deliver_together() {
    let database = TestDatabase::create().await;
    let front = Server::node(&database.url(), in_role("api")).await;
    let back = Server::node(&database.url(), in_role("sender")).await;
    let mut receiver = Receiver::always(200).await;
    let api = front.api();
    api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    assert_eq!(receiver.next().await.delivery(), id);
    assert_eq!(api.ended_one(&id).await["state"], "delivered");
    for (server, segments, expected) in [
        (&front, &["in", "receiptroller"][..], 404),
        (&back, &["in", "receiptroller"], 404),
        (&back, &["v1", "organizations", "acme", "events"], 404),
    ] {
        assert_eq!(status(&server.api(), Method::POST, segments).await, expected, "{segments:?}");
    }
    for server in [&front, &back] {
        for path in ["healthz", "readyz", "metrics"] {
            assert_eq!(status(&server.api(), Method::GET, &[path]).await, 200, "{path}");
        }
    }
}

#[tokio::test]
async fn a_node_that_receives_and_one_that_works_bring_a_delivery_to_its_end() {
    let database = TestDatabase::create().await;
    let mut business = Receiver::always(200).await;
    let tables = forward_to(&business.url("/"));
    let door = Server::node(&database.url(), in_role("inbox").with(&tables)).await;
    let _worker = Server::node(&database.url(), in_role("worker").with(&tables)).await;
    let looks = Server::node(&database.url(), in_role("api").with(&tables)).await;
    let body = event_body("d1", "sale.created", "2026-07-01T09:30:00.000Z", "{}");
    assert_eq!(door.api().deliver_signed("d1", &body).await, 200);
    assert_eq!(business.next().await.body, body.as_bytes());
    assert_eq!(looks.api().settled("receiptroller", "d1").await["state"], "done");
    assert_eq!(status(&door.api(), Method::GET, &["v1", "organizations", "acme", "inbox"]).await, 404);
}

#[tokio::test]
async fn a_schema_is_made_by_the_command_where_a_start_may_not_make_it() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let config = Config::default().env("HIKYAKU_DATABASE__MIGRATE", "false");
    let (code, said) = Server::refused_node(&url, &config);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("hikyaku migrate"), "{said}");
    for _ in 0..2 {
        let migrated = hikyaku(&url, &["migrate"]);
        assert!(migrated.status.success(), "{migrated:?}");
    }
    let made = hikyaku(&url, &["token", "create", "--admin", "--name", "root"]);
    let token = String::from_utf8(made.stdout).unwrap();
    assert!(token.starts_with("hik_admin_"), "{}", String::from_utf8_lossy(&made.stderr));
    let api = Server::node(&url, config).await;
    let authorization = format!("Bearer {}", token.trim());
    for (headers, expected) in [(&[][..], 401), (&[("authorization", authorization.as_str())], 200)] {
        let webhooks = api.api().url(&["v1", "organizations", "acme", "webhooks"]);
        assert_eq!(api.api().try_send(Method::GET, webhooks, headers, Vec::new()).await.unwrap().status, expected);
    }
}

/// Waits until a node asks for a token.
async fn asks_for_a_token(server: &Server) {
    let api = server.api();
    eventually("the node to ask for a token", async || {
        let asked = status(&api, Method::GET, &["v1", "organizations", "acme", "webhooks"]).await;
        (asked == 401).then_some(())
    })
    .await;
}

#[tokio::test]
async fn s16_the_first_token_closes_every_node_whoever_made_it() {
    for is_made_by_a_node in [true, false] {
        let database = TestDatabase::create().await;
        let url = database.url();
        let (first, second) =
            (Server::node(&url, Config::default()).await, Server::node(&url, Config::default()).await);
        let webhooks = ["v1", "organizations", "acme", "webhooks"];
        assert_eq!(status(&second.api(), Method::GET, &webhooks).await, 200);
        if is_made_by_a_node {
            let (api, body) = (first.api(), br#"{"name":"root","admin":true}"#.to_vec());
            let json = [("content-type", "application/json")];
            let made = api.try_send(Method::POST, api.url(&["v1", "tokens"]), &json, body).await.unwrap();
            assert_eq!(made.status, 201, "{made:?}");
            assert_eq!(status(&first.api(), Method::GET, &webhooks).await, 401, "at once where it is made");
        } else {
            let made = hikyaku(&url, &["token", "create", "--admin", "--name", "root"]);
            assert!(made.status.success(), "{made:?}");
        }
        asks_for_a_token(&first).await;
        asks_for_a_token(&second).await;
    }
}

#[tokio::test]
async fn nodes_that_start_at_the_same_moment_on_an_empty_database_all_work() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let start = || Server::node(&url, Config::default());
    let (first, second, third) = tokio::join!(start(), start(), start());
    let mut receiver = Receiver::always(200).await;
    first.api().webhook(&receiver.url("/")).await;
    for server in [first, second, third] {
        let id = server.api().publish("sale.created", "{}").await;
        assert_eq!(receiver.next().await.delivery(), id);
    }
}
