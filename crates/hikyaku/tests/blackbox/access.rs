//! Who may call: tokens made by the command line and by the API, and what never leaves the program (S16, S19).

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Api, Config, Receiver, Server, on_postgres};

/// The token of the configuration.
const CONFIGURED: &str = "configured-0123456789abcdef0123456789abcdef";

/// Runs `hikyaku token …` in a directory.
fn token(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.current_dir(directory).arg("token").args(arguments);
    for name in ["HIKYAKU_TOKEN", "HIKYAKU_SERVER", "HIKYAKU_CONFIG"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().unwrap()
}

/// What it printed; it must have succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Why it failed, with this exit code.
#[track_caller]
fn failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Calls a path below `/v1` with a token, or without one.
async fn call(api: &Api, token: &str, method: Method, segments: &[&str], body: &Value) -> (u16, Value) {
    let url = api.url(&[&["v1"], segments].concat());
    let authorization = format!("Bearer {token}");
    let headers: &[_] = if token.is_empty() { &[] } else { &[("authorization", authorization.as_str())] };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let answer = api.try_send(method, url, headers, body).await.unwrap();
    (answer.status, answer.json)
}

const WEBHOOKS: [&str; 3] = ["organizations", "acme", "webhooks"];

#[tokio::test]
async fn s16_a_token_made_before_the_start_opens_the_server_and_one_revoked_through_it_does_not() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let store = ["--store", "sqlite:hikyaku.db"];
    let run = |arguments: &[&str], environment: &[(&str, &str)]| token(directory.path(), arguments, environment);
    let nothing = failure(&run(&[&["list"][..], &store].concat(), &[]), 1);
    assert!(nothing.contains("there is no store at hikyaku.db"), "{nothing}");
    let admin = printed(&run(&[&["create", "--admin", "--name", "root"][..], &store].concat(), &[]));
    assert!(admin.starts_with("hik_admin_"), "{admin}");

    let server = Server::start_in(directory.clone(), Config::default()).await;
    let (api, url) = (server.api(), format!("http://{}", server.addr()));
    assert_eq!(call(&api, "", Method::GET, &WEBHOOKS, &Value::Null).await.0, 401);
    assert_eq!(call(&api, &admin, Method::GET, &WEBHOOKS, &Value::Null).await.0, 200);

    let (as_admin, on) = ([("HIKYAKU_TOKEN", admin.as_str()), ("HIKYAKU_SERVER", url.as_str())], ["--server", &url]);
    let acme = printed(&run(&["create", "--organization", "acme", "--name", "shop"], &as_admin));
    assert_eq!(call(&api, &acme, Method::GET, &WEBHOOKS, &Value::Null).await.0, 200);
    let listed = printed(&run(&["list"], &as_admin));
    let line = listed.lines().find(|line| line.contains("shop")).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("acme") && listed.contains("everything") && !listed.contains("hik_"), "{listed}");
    let id = line.split(' ').next().unwrap();

    let as_acme = [("HIKYAKU_TOKEN", acme.as_str())];
    assert!(failure(&run(&[&["list"][..], &on].concat(), &as_acme), 4).contains("403"));
    let own = printed(&run(&[&["list", "--organization", "acme"][..], &on].concat(), &as_acme));
    assert!(own.contains("shop") && !own.contains("root"), "{own}");
    assert!(failure(&run(&[&["list"][..], &on].concat(), &[]), 4).contains("401"));

    printed(&run(&["revoke", id], &as_admin));
    assert_eq!(call(&api, &acme, Method::GET, &WEBHOOKS, &Value::Null).await.0, 401);
    assert!(failure(&run(&["revoke", "tok_none"], &as_admin), 5).contains("no token"));
}

#[tokio::test]
async fn s16_the_command_line_finds_the_server_that_has_the_store_open() {
    if on_postgres() {
        return; // A database is open to the command line beside any server.
    }
    let directory = Arc::new(tempfile::tempdir().unwrap());
    let server = Server::start_in(directory.clone(), Config::default()).await;
    // The configuration says port 0, and only the server knows which it took.
    let said = failure(&token(directory.path(), &["create", "--admin"], &[]), 1);
    assert!(said.contains("--server"), "{said}");
    let listen = server.addr().to_string();
    let made = printed(&token(directory.path(), &["create", "--admin", "--listen", &listen], &[]));
    assert_eq!(call(&server.api(), &made, Method::GET, &["tokens"], &Value::Null).await.0, 200);
    assert_eq!(call(&server.api(), "", Method::GET, &["tokens"], &Value::Null).await.0, 401);
}

#[tokio::test]
async fn s16_only_the_hash_of_a_token_is_in_the_store() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let mut server = Server::start(Config::default()).await;
    let body = json!({"admin": true, "name": "a-name-to-be-found"});
    let (status, made) = call(&server.api(), "", Method::POST, &["tokens"], &body).await;
    assert_eq!(status, 201);
    let shown = made["token"].as_str().unwrap();
    server.sigterm().await;
    let holds = |needle: &str| {
        ["hikyaku.db", "hikyaku.db-wal"].iter().any(|name| {
            let bytes = fs::read(server.path(name)).unwrap_or_default();
            bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        })
    };
    assert!(holds("a-name-to-be-found") && holds(made["id"].as_str().unwrap()));
    let random = shown.trim_start_matches("hik_admin_");
    assert!(random.len() >= 2 * 16, "128 bits in hexadecimal digits");
    assert!(!holds(random) && !holds(&random[..16]));
}

#[tokio::test]
async fn s19_no_token_and_no_header_reaches_the_log_at_any_level() {
    let config = Config::default()
        .env("HIKYAKU_LOG", "trace")
        .env("HIKYAKU_API__TOKEN", CONFIGURED)
        .with("[[source]]\nname = \"shop\"\nprovider = \"receiptroller\"\nsecrets = [\"env:HIKYAKU_API__TOKEN\"]");
    let mut server = Server::start(config).await;
    let (api, mut receiver) = (server.api(), Receiver::always(200).await);
    let body = json!({"organization": "acme", "name": "till"});
    let (_, made) = call(&api, CONFIGURED, Method::POST, &["tokens"], &body).await;
    let acme = made["token"].as_str().unwrap();
    let webhook = json!({"url": receiver.url("/?key=a-secret-in-a-url")});
    assert_eq!(call(&api, acme, Method::POST, &WEBHOOKS, &webhook).await.0, 201);
    let event = json!({"type": "a.b", "data": "a-secret-in-data"});
    assert_eq!(call(&api, acme, Method::POST, &["organizations", "acme", "events"], &event).await.0, 202);
    receiver.next().await;
    for wrong in ["hik_a-wrong-token", "not-even-like-a-token", &format!("{acme}0")] {
        assert_eq!(call(&api, wrong, Method::GET, &WEBHOOKS, &Value::Null).await.0, 401);
    }
    let id = made["id"].as_str().unwrap();
    assert_eq!(call(&api, CONFIGURED, Method::DELETE, &["tokens", id], &Value::Null).await.0, 204);
    server.sigterm().await;
    let log = server.log();
    assert!(log.contains("a token was made") && log.contains("a token was revoked") && log.contains(id), "{log}");
    let secrets = [CONFIGURED, acme, "hik_", "Bearer", "not-even-like", "a-secret-in-a-url", "a-secret-in-data"];
    for secret in secrets {
        assert!(!log.contains(secret), "{secret} stands in the log:\n{log}");
    }
}

#[tokio::test]
async fn a_server_without_tokens_says_so_and_one_with_a_token_does_not() {
    let open = Server::start(Config::default()).await;
    assert!(open.log().contains("no API token exists"));
    let closed = Server::start(Config::default().env("HIKYAKU_API__TOKEN", CONFIGURED)).await;
    assert!(!closed.log().contains("no API token exists"));
}
