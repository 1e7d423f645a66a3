//! How deliveries are signed, by each scheme, and through a rotation.

use hikyaku_core::signature::standard::{self, Headers, VerifyingKey};
use hikyaku_core::signature::{Scheme, receiptroller};
use hikyaku_core::webhook::Setting;
use tokio::time::sleep;

use super::*;
use crate::store::Rotation;

const NEW_SECRET: &str = "whsec_new_secret_of_the_tests_0123";
const TWO_HOURS: Duration = Duration::from_secs(2 * 3600);

fn rotation(secret: &str, overlap: Duration) -> WebhookChange {
    WebhookChange { rotation: Some(Rotation { secret: Secret::new(secret), overlap }), ..WebhookChange::default() }
}

/// Which of two secrets signed a request by the ReceiptRoller scheme.
fn signer(sent: &Sent) -> &'static str {
    let signature = sent.headers.get("x-rr-signature").unwrap().as_bytes();
    let signs = |secret: &str| receiptroller::verify(&[Secret::new(secret)], Some(signature), &sent.body).is_ok();
    match (signs(SECRET), signs(NEW_SECRET)) {
        (true, false) => "old",
        (false, true) => "new",
        other => panic!("{other:?}"),
    }
}

fn signers(world: &World, event: &str) -> Vec<(u64, &'static str)> {
    let sent = world.wire.sent();
    sent.iter().filter(|sent| sent.event == event).map(|sent| (sent.at.as_secs(), signer(sent))).collect()
}

#[tokio::test(start_paused = true)]
async fn t8_r9_a_retry_keeps_the_first_signature_through_a_rotation() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    world.publish("before").await;
    sleep(secs(30)).await;
    world.change("shop", rotation(NEW_SECRET, secs(24 * 3600))).await;
    sleep(secs(1)).await;
    world.publish("after").await;
    sleep(TWO_HOURS).await;
    assert_eq!(signers(&world, "before"), [(0, "old"), (60, "old"), (660, "old"), (4260, "old")]);
    assert!(signers(&world, "after").iter().all(|(_, signer)| *signer == "new"));
}

#[tokio::test(start_paused = true)]
async fn s15_after_the_overlap_the_old_secret_signs_nothing() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    world.publish("before").await;
    sleep(secs(30)).await;
    world.change("shop", rotation(NEW_SECRET, secs(600))).await;
    sleep(TWO_HOURS).await;
    assert_eq!(signers(&world, "before"), [(0, "old"), (60, "old"), (660, "new"), (4260, "new")]);
}

#[tokio::test(start_paused = true)]
async fn t8_what_was_due_but_not_begun_before_the_rotation_is_signed_anew() {
    let world = World::start(|_| status(500));
    world.webhook("shop").await;
    world.change("shop", rotation(NEW_SECRET, secs(24 * 3600))).await;
    world.publish("e1").await;
    sleep(TWO_HOURS).await;
    assert_eq!(signers(&world, "e1").len(), 4);
    assert!(signers(&world, "e1").iter().all(|(_, signer)| *signer == "new"));
}

fn verify(keys: &[VerifyingKey], sent: &Sent) -> Result<i64, standard::InvalidSignature> {
    let header = |name| sent.headers.get(name).map(|value| value.to_str().unwrap());
    let headers = Headers {
        id: header(standard::ID_HEADER),
        timestamp: header(standard::TIMESTAMP_HEADER),
        signature: header(standard::SIGNATURE_HEADER),
    };
    standard::verify(keys, headers, &sent.body)
}

/// Two events around a rotation by a scheme of Standard Webhooks; gives what was sent, and the two keys to verify with.
async fn rotated(scheme: Scheme) -> (Vec<Sent>, [VerifyingKey; 2], World) {
    let world = World::start(|sent| status(if sent.nth == 1 { 500 } else { 200 }));
    let secrets = [scheme.generate([1; 32]), scheme.generate([2; 32])];
    let mut settings = webhook::Settings::default();
    settings.set(Setting::Signature(scheme));
    let webhook = Webhook { secret: secrets[0].clone(), ..webhook("shop", settings) };
    world.store.create_webhook(webhook).await.unwrap();
    world.publish("before").await;
    sleep(secs(30)).await;
    world.change("shop", rotation(secrets[1].reveal(), secs(3600))).await;
    world.publish("during").await;
    sleep(TWO_HOURS).await;
    world.publish("after").await;
    sleep(TWO_HOURS).await;
    let key = |secret: &Secret| {
        let public = scheme.public_key(secret);
        VerifyingKey::parse(public.as_deref().unwrap_or(secret.reveal())).unwrap()
    };
    (world.wire.sent(), [key(&secrets[0]), key(&secrets[1])], world)
}

#[tokio::test(start_paused = true)]
async fn standard_webhooks_carries_both_signatures_during_a_rotation() {
    for (scheme, version) in [(Scheme::StandardWebhooks, "v1,"), (Scheme::StandardWebhooksEd25519, "v1a,")] {
        let (sent, [old, new], world) = rotated(scheme).await;
        assert_eq!(sent.len(), 6);
        let (old, new) = ([old], [new]);
        for sent in sent {
            let good = (verify(&old, &sent).is_ok(), verify(&new, &sent).is_ok());
            let expected = match (sent.event.as_str(), sent.nth) {
                ("before", 1) => (true, false),
                ("after", _) => (false, true),
                _ => (true, true),
            };
            assert_eq!(good, expected, "{scheme:?} {} {}", sent.event, sent.nth);
            let signatures = sent.headers[standard::SIGNATURE_HEADER].to_str().unwrap().to_owned();
            assert!(signatures.split(' ').all(|signature| signature.starts_with(version)), "{signatures}");
            // The attempt's own time, which receivers of this scheme compare with their clocks.
            let at = verify(if expected.1 { &new } else { &old }, &sent).unwrap();
            let started = world.clock.started.as_second();
            assert!((at - started).abs_diff(sent.at.as_secs() as i64) <= 1, "{at} {started}");
            assert_eq!(sent.headers[standard::ID_HEADER], sent.event.as_str());
            assert_eq!(sent.headers["x-rr-delivery"], sent.event.as_str());
            assert!(!sent.headers.contains_key("x-rr-signature"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_does_not_fit_its_scheme_is_our_failure() {
    let world = World::start(|_| status(200));
    world.webhook("shop").await;
    let settings = vec![Setting::Signature(Scheme::StandardWebhooksEd25519)];
    world.change("shop", WebhookChange { settings, ..WebhookChange::default() }).await;
    world.publish("e1").await;
    sleep(TWO_HOURS).await;
    let delivery = world.delivery("e1", "shop").await;
    assert_eq!(log(&delivery), ["local"; 4]);
    assert!(delivery.attempts[0].error.contains("32 bytes in Base64"), "{}", delivery.attempts[0].error);
    assert!(!delivery.attempts[0].error.contains(SECRET));
    assert!(world.is_on("shop").await && world.wire.sent().is_empty());
}
