//! S15: what a copy of the database gives away.

use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::Webhook;

use super::*;
use crate::store::conformance::fixture::{acme, at, find_webhook, webhook, webhook_id};
use crate::store::seal::SealingKey;
use crate::store::{Rotation, WebhookChange};

const SECRETS: [&str; 2] = ["the-first-secret-of-w", "the-second-secret-of-w"];

fn key(digit: &str) -> SealingKey {
    SealingKey::parse(&digit.repeat(64)).unwrap()
}

async fn open(database: &TestDatabase, keys: &[SealingKey]) -> Result<PostgresStore, OpenError> {
    let options = Options { connections: 2, ..Options::default() };
    PostgresStore::open(&database.url(), Seal::new(keys.to_vec()), &SystemClock::start(), options).await
}

/// Registers a webhook with two secrets, and gives it as it then is.
async fn write_secrets(store: &PostgresStore) -> Webhook {
    store.create_webhook(Webhook { secret: Secret::new(SECRETS[0]), ..webhook("w") }).await.unwrap();
    let rotation = Some(Rotation { secret: Secret::new(SECRETS[1]), overlap: std::time::Duration::from_secs(100) });
    let change = WebhookChange { rotation, ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("w"), change, at(0)).await.unwrap().unwrap()
}

/// Which secrets the table holds in the open.
async fn open_secrets(database: &TestDatabase) -> Vec<&'static str> {
    let rows = database.client().await.query("SELECT webhooks::TEXT FROM webhooks", &[]).await.unwrap();
    let text: String = rows.iter().map(|row| row.get::<_, String>(0)).collect();
    SECRETS.into_iter().filter(|secret| text.contains(secret)).collect()
}

#[tokio::test]
async fn s15_what_stood_open_is_sealed_at_the_next_start_with_a_key() {
    let database = TestDatabase::create().await;
    let written = write_secrets(&open(&database, &[]).await.unwrap()).await;
    assert_eq!(open_secrets(&database).await, SECRETS, "the search finds what is there");
    let sealed = open(&database, &[key("a")]).await.unwrap();
    assert_eq!(open_secrets(&database).await, [""; 0]);
    assert_eq!(find_webhook(&sealed, "w").await, written);
}

#[tokio::test]
async fn s15_a_key_is_replaced_by_naming_the_old_one_once_and_a_wrong_one_is_named() {
    let database = TestDatabase::create().await;
    let written = write_secrets(&open(&database, &[key("a")]).await.unwrap()).await;
    for other in [&[key("b")][..], &[]] {
        let error = open(&database, other).await.unwrap_err();
        assert!(matches!(&error, OpenError::Sealed { .. }) && error.to_string().contains(key("a").id()), "{error}");
    }
    assert_eq!(find_webhook(&open(&database, &[key("b"), key("a")]).await.unwrap(), "w").await, written);
    assert_eq!(find_webhook(&open(&database, &[key("b")]).await.unwrap(), "w").await, written);
}
