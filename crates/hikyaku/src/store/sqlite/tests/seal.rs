//! S15: what a copy of the files gives away.

use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Setting, Webhook};
use jiff::Timestamp;

use super::*;
use crate::store::conformance::fixture::{acme, at, find_webhook, webhook, webhook_id};
use crate::store::seal::SealingKey;
use crate::store::{Rotation, WebhookChange};

/// Both clocks stand at this second.
struct Fixed(i64);

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        at(self.0)
    }

    fn schedule(&self) -> Timestamp {
        at(self.0)
    }
}

fn key(digit: &str) -> SealingKey {
    SealingKey::parse(&digit.repeat(64)).unwrap()
}

fn open_sealed(path: &Path, keys: &[SealingKey], seconds: i64) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Seal::new(keys.to_vec()), &Fixed(seconds))
}

const SECRETS: [&str; 3] = ["the-first-secret-of-w", "the-second-secret-of-w", "Bearer-of-a-custom-header"];

/// Writes all that is secret of a webhook, and gives it as it then is.
async fn write_secrets(store: &SqliteStore) -> Webhook {
    let settings = Setting::Headers(serde_json::from_str(&format!(r#"{{"authorization":"{}"}}"#, SECRETS[2])).unwrap());
    store.create_webhook(Webhook { secret: Secret::new(SECRETS[0]), ..webhook("w") }).await.unwrap();
    let rotation = Some(Rotation { secret: Secret::new(SECRETS[1]), overlap: std::time::Duration::from_secs(100) });
    let change = WebhookChange { rotation, settings: vec![settings], ..WebhookChange::default() };
    store.update_webhook(&acme(), &webhook_id("w"), change, at(0)).await.unwrap().unwrap()
}

/// Which secrets a copy of the store's files holds in the open.
fn found_in_files(directory: &Path) -> Vec<&'static str> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let bytes = files.collect::<Vec<_>>().concat();
    let holds = |secret: &&str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    SECRETS.into_iter().filter(holds).collect()
}

#[tokio::test]
async fn s15_no_secret_stands_in_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open_sealed(&path, &[key("a")], 0).unwrap();
    let written = write_secrets(&store).await;
    assert_eq!(found_in_files(directory.path()), [""; 0], "while it is open");
    drop(store);
    assert_eq!(found_in_files(directory.path()), [""; 0]);
    assert_eq!(find_webhook(&open_sealed(&path, &[key("a")], 0).unwrap(), "w").await, written);
}

#[tokio::test]
async fn s15_what_stood_open_is_sealed_at_the_next_start_with_a_key_and_leaves_no_trace() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let store = open_sealed(&path, &[], 0).unwrap();
    let written = write_secrets(&store).await;
    drop(store);
    assert_eq!(found_in_files(directory.path()), SECRETS, "the search finds what is there");
    let store = open_sealed(&path, &[key("a")], 0).unwrap();
    assert_eq!(find_webhook(&store, "w").await, written);
    assert_eq!(found_in_files(directory.path()), [""; 0]);
}

#[tokio::test]
async fn s15_a_store_does_not_open_without_its_key_and_says_which() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    write_secrets(&open_sealed(&path, &[key("a")], 0).unwrap()).await;
    for keys in [vec![], vec![key("b")]] {
        let error = open_sealed(&path, &keys, 0).unwrap_err();
        assert!(matches!(error, OpenError::Sealed { .. }), "{error}");
        for part in [key("a").id(), "sealing_key", "old_sealing_keys"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}

#[tokio::test]
async fn s15_a_key_is_replaced_by_naming_the_old_one_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let written = write_secrets(&open_sealed(&path, &[key("a")], 0).unwrap()).await;
    assert_eq!(find_webhook(&open_sealed(&path, &[key("b"), key("a")], 0).unwrap(), "w").await, written);
    assert_eq!(find_webhook(&open_sealed(&path, &[key("b")], 0).unwrap(), "w").await, written);
    assert!(open_sealed(&path, &[key("a")], 0).is_err());
}

#[tokio::test]
async fn s15_a_secret_whose_time_is_over_is_forgotten_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = path_in(directory.path());
    let written = write_secrets(&open_sealed(&path, &[], 0).unwrap()).await;
    assert_eq!(find_webhook(&open_sealed(&path, &[], 99).unwrap(), "w").await, written);
    let store = open_sealed(&path, &[], 100).unwrap();
    assert_eq!(find_webhook(&store, "w").await, Webhook { previous_secret: None, ..written });
    assert_eq!(found_in_files(directory.path()), SECRETS[1..], "it is overwritten, not only let go");
}
