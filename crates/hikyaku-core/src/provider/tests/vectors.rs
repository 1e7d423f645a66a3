//! The values that providers and their libraries publish (`tests/vectors/run` renews and compares them).

use serde::Deserialize;
use std::collections::BTreeMap;

use super::*;
use crate::signature::standard::SigningKey;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    name: String,
    provider: String,
    secret: String,
    url: Option<String>,
    headers: BTreeMap<String, String>,
    body: String,
    checked_with: String,
    id: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    /// In seconds since 1970.
    timestamp: Option<i64>,
    key: Option<String>,
}

impl Vector {
    fn verifier(&self, secrets: &[&str]) -> Verifier {
        let (_, preset) = Preset::ALL.iter().find(|(name, _)| *name == self.provider).unwrap();
        let mut profile = preset.profile();
        profile.scheme.url.clone_from(&self.url);
        Verifier::new(profile, &secrets.iter().map(|secret| Secret::new(*secret)).collect::<Vec<_>>())
    }

    fn headers(&self) -> Headers<'_> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../vectors.json")).unwrap()
}

/// Another secret of the form that the preset has.
const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[test]
fn c11_every_published_signature_verifies_under_its_secret_and_no_other() {
    for vector in vectors() {
        let name = format!("{} ({})", vector.name, vector.checked_with);
        let verify = |secrets: &[&str], body: &[u8]| {
            vector.verifier(secrets).verify(&vector.headers(), body, Timestamp::UNIX_EPOCH)
        };
        let body = vector.body.as_bytes();
        assert_eq!(verify(&[&vector.secret], body), Ok(Verified { secret: 0 }), "{name}");
        assert_eq!(verify(&[OTHER, &vector.secret], body), Ok(Verified { secret: 1 }), "{name}");
        assert_eq!(verify(&[OTHER], body), Err(Refusal::Mismatch), "{name}");
        assert_eq!(verify(&[], body), Err(Refusal::Mismatch), "{name}");
        for place in 0..body.len() {
            let mut changed = body.to_vec();
            changed[place] ^= 1;
            assert_eq!(verify(&[&vector.secret], &changed), Err(Refusal::Mismatch), "{name}");
        }
    }
}

#[test]
fn every_published_delivery_says_what_it_is() {
    for vector in vectors() {
        let read = vector.verifier(&[]).read(&vector.headers(), vector.body.as_bytes());
        assert_eq!(read.id, vector.id, "{}", vector.name);
        assert_eq!(read.event_type, vector.event_type, "{}", vector.name);
        assert_eq!(read.timestamp.map(Timestamp::as_second), vector.timestamp, "{}", vector.name);
        assert_eq!(read.key, vector.key, "{}", vector.name);
    }
}

#[test]
fn only_slack_asks_whether_somebody_is_there() {
    for vector in vectors() {
        let expected = (vector.name == "slack-challenge").then(|| "3eZbrw1aBm2r".to_owned());
        assert_eq!(vector.verifier(&[]).challenge(vector.body.as_bytes()), expected, "{}", vector.name);
    }
    let body = br#"{"type":"url_verification","challenge":"x"}"#;
    for (name, preset) in Preset::ALL {
        assert_eq!(verifier(*preset, &[]).challenge(body).is_some(), *name == "slack", "{name}");
    }
}

/// The value that the Standard Webhooks project publishes for ed25519.
#[test]
fn c11_a_public_key_verifies_what_its_private_key_signed() {
    let seed = "VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
    let signature = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==";
    let public = SigningKey::ed25519(&Secret::new(seed)).unwrap().public().unwrap();
    let with = |signature: &str| {
        let id = ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek");
        let headers = headers(&[id, ("webhook-timestamp", "1614265330"), ("webhook-signature", signature)]);
        let verifier = verifier(Preset::StandardWebhooks, &[OTHER, &public]);
        verifier.verify(&headers, br#"{"test": 2432232314}"#, Timestamp::UNIX_EPOCH)
    };
    assert_eq!(with(signature), Ok(Verified { secret: 1 }));
    assert_eq!(with(&format!("v1,AAAA {signature}")), Ok(Verified { secret: 1 }));
    assert_eq!(with(&signature.replace("v1a,", "v1,")), Err(Refusal::Malformed("webhook-signature".into())));
    assert_eq!(with(&signature.replace("tQ9V", "tQ9W")), Err(Refusal::Mismatch));
}
