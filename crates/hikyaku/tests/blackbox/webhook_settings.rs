//! What is set per webhook, its signature scheme, and its secrets: R8, R10, R11, T8, S12, S15.

use hikyaku_core::signature::standard::{self, VerifyingKey};
use hikyaku_core::signature::{Secret, receiptroller};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Api, Config, Receiver, Reply, Seen, Server, Webhook, on_postgres, statuses};

/// A key to seal with, and the variable that sets it.
const SEALING_KEY: (&str, &str) =
    ("HIKYAKU_SEALING_KEY", "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00");

async fn rotate(api: &Api, webhook: &Webhook, body: &str) -> Value {
    api.call(Method::POST, &["webhooks", &webhook.id, "rotate-secret"], body).await.expect(200)
}

fn signed_by(seen: &Seen, secret: &str) -> bool {
    receiptroller::verify(&[Secret::new(secret)], Some(seen.signature().as_bytes()), &seen.body).is_ok()
}

#[tokio::test]
async fn r8_r10_r11_a_webhook_has_its_own_schedule_and_disable_rule() {
    let (server, receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    let own = json!({"url": receiver.url("/own"), "retryDelays": [0.01], "disableAfter": 2});
    let (own, plain) = (api.webhook_with(own).await, api.webhook(&receiver.url("/plain")).await);
    for (event, still_on) in [("first", true), ("second", false)] {
        let published = api.publish_raw(json!({"id": event, "type": "sale.created", "data": {}}).to_string()).await;
        published.expect(202);
        let ended = api.ended(event).await;
        let of = |webhook: &Webhook| {
            let all = ended["deliveries"].as_array().unwrap();
            all.iter().find(|delivery| delivery["webhookId"] == *webhook.id).cloned()
        };
        assert_eq!(statuses(&of(&own).unwrap()), [500, 500]);
        assert_eq!(api.read_webhook(&own).await["active"], still_on, "after the {event}");
        assert_eq!(of(&plain).map(|delivery| statuses(&delivery).len()), still_on.then_some(4));
        assert_eq!(api.read_webhook(&plain).await["active"], false, "R11 is the default");
    }
}

#[tokio::test]
async fn s12_custom_headers_travel_and_reserved_ones_are_refused() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    for name in ["Host", "content-length", "Transfer-Encoding", "X-RR-Signature", "x-rr-delivery", "Webhook-Id"] {
        let body = json!({"url": receiver.url("/"), "headers": {name: "x"}}).to_string();
        let refused = api.call(Method::POST, &["webhooks"], body).await;
        assert!(refused.problem(400).contains("is reserved"), "{refused:?}");
    }
    let headers = json!({"Authorization": "Bearer of-the-receiver", "X-Shop": "Kyoto"});
    let webhook = api.webhook_with(json!({"url": receiver.url("/"), "headers": headers})).await;
    api.publish("sale.created", "{}").await;
    let seen = receiver.next().await;
    assert_eq!(seen.header("authorization"), Some("Bearer of-the-receiver"));
    assert_eq!(seen.header("x-shop"), Some("Kyoto"));
    assert!(signed_by(&seen, &webhook.secret));
}

#[tokio::test]
async fn t8_r9_a_retry_keeps_the_first_signature_through_a_rotation_and_a_restart() {
    let config = Config::default().retry_delays(["1500ms", "100ms", "100ms"]).env(SEALING_KEY.0, SEALING_KEY.1);
    let mut server = Server::start(config).await;
    let mut receiver = Receiver::start(|seen| Reply::status(if seen.attempt == 1 { 500 } else { 200 })).await;
    let api = server.api();
    let webhook = api.webhook(&receiver.url("/")).await;
    let before = api.publish("sale.created", "{}").await;
    let first = receiver.next().await;
    let new = rotate(&api, &webhook, "").await["secret"].as_str().unwrap().to_owned();
    server.restart().await;
    let after = server.api().publish("sale.created", "{}").await;
    server.api().ended(&before).await;
    server.api().ended(&after).await;
    for seen in receiver.seen() {
        let old = seen.delivery() == before;
        assert_eq!((signed_by(&seen, &webhook.secret), signed_by(&seen, &new)), (old, !old), "{}", seen.head);
        assert!(!old || (seen.signature() == first.signature() && seen.body == first.body));
    }
}

#[tokio::test]
async fn standard_webhooks_deliveries_verify_with_what_the_api_shows() {
    let (server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(200).await);
    let api = server.api();
    for scheme in ["standard-webhooks", "standard-webhooks-ed25519"] {
        let webhook = api.webhook_with(json!({"url": receiver.url("/"), "signature": scheme})).await;
        let shown = api.read_webhook(&webhook).await;
        let rotated = rotate(&api, &webhook, "{}").await;
        let key =
            |shown: &Value, secret: &str| VerifyingKey::parse(shown["publicKey"].as_str().unwrap_or(secret)).unwrap();
        let keys = [key(&shown, &webhook.secret), key(&rotated, rotated["secret"].as_str().unwrap())];
        let id = api.publish("sale.created", "{}").await;
        let seen = receiver.next().await;
        assert_eq!((seen.header("webhook-id"), seen.delivery()), (Some(id.as_str()), id.as_str()));
        let headers = standard::Headers {
            id: seen.header("webhook-id"),
            timestamp: seen.header("webhook-timestamp"),
            signature: seen.header("webhook-signature"),
        };
        for key in &keys {
            let alone = std::slice::from_ref(key);
            assert!(standard::verify(alone, headers, &seen.body).is_ok(), "{scheme}: {}", seen.head);
        }
        assert_eq!(seen.header("x-rr-signature"), None);
        assert_eq!(api.delete(&webhook).await, 204);
    }
}

#[tokio::test]
async fn s15_a_secret_is_shown_once_and_stands_in_no_file_of_the_store() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let mut server = Server::start(Config::default().env(SEALING_KEY.0, SEALING_KEY.1)).await;
    let receiver = Receiver::always(200).await;
    let api = server.api();
    let headers = json!({"authorization": "Bearer custom-header-of-the-test"});
    let webhook = api.webhook_with(json!({"url": receiver.url("/"), "headers": headers})).await;
    let new = rotate(&api, &webhook, "{}").await["secret"].as_str().unwrap().to_owned();
    let event = api.publish("sale.created", "{}").await;
    api.ended(&event).await;
    for shown in [api.read_webhook(&webhook).await, api.get(&["webhooks"], &[]).await.json] {
        let shown = shown.to_string();
        assert!(!shown.contains(&webhook.secret) && !shown.contains(&new), "a secret is shown once: {shown}");
    }
    let stored = || {
        let files = ["hikyaku.db", "hikyaku.db-wal"].map(|name| std::fs::read(server.path(name)).unwrap_or_default());
        files.concat()
    };
    let holds = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    let bytes = stored();
    assert!(holds(&bytes, &webhook.id), "the search finds what is there");
    for secret in [webhook.secret.as_str(), &new, "custom-header-of-the-test"] {
        assert!(!holds(&bytes, secret), "{secret}");
    }
    server.sigterm().await;
    assert!(!holds(&std::fs::read(server.path("hikyaku.db")).unwrap(), &new));
}

#[tokio::test]
async fn s15_a_wrong_sealing_key_is_found_out_at_the_start() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let dir = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let mut server = Server::start_in(dir.clone(), Config::default().env(SEALING_KEY.0, SEALING_KEY.1)).await;
    server.api().webhook("http://127.0.0.1:9/").await;
    assert!(server.sigterm().await.success());
    let binary = env!("CARGO_BIN_EXE_hikyaku");
    let mut command = std::process::Command::new(binary);
    let output = command.args(["serve", "--listen", "127.0.0.1:0"]).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("sealing_key") && said.contains("which is not configured"), "{said}");
}
