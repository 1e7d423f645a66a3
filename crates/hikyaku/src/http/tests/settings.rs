//! The settings of a webhook, flat in its JSON.

use serde_json::json;

use super::*;
use crate::store::Store;

const WEBHOOKS: &str = "/v1/organizations/acme/webhooks";

/// A body that creates a webhook with these members besides its URL.
fn with(members: &str) -> String {
    format!(r#"{{"url":"http://127.0.0.1:9/",{members}}}"#)
}

#[tokio::test]
async fn settings_are_given_read_changed_and_put_back() {
    let api = Api::start().await;
    let path = format!("{WEBHOOKS}/{}", api.webhook().await);
    let defaults = api.get(&path).await.json();
    for (name, value) in [
        ("retryDelays", json!(null)),
        ("timeoutSeconds", json!(null)),
        ("maxInFlight", json!(null)),
        ("rateLimit", json!(null)),
        ("headers", json!({})),
        ("respectRetryAfter", json!(false)),
        ("disableAfter", json!(1)),
        ("whileInactive", json!("drop")),
        ("signature", json!("receiptroller")),
        ("traceContext", json!(false)),
    ] {
        assert_eq!(defaults[name], value, "{name}");
    }
    let given = json!({
        "retryDelays": [0.2, 60], "timeoutSeconds": 2, "maxInFlight": 4, "rateLimit": {"perSecond": 2.5, "burst": 5},
        "headers": {"Authorization": "Bearer x"}, "respectRetryAfter": true, "disableAfter": "never",
        "whileInactive": "hold", "traceContext": true,
    });
    let changed = api.patch(&path, &given.to_string()).await.json();
    for (name, value) in given.as_object().unwrap() {
        let expected = if name == "headers" { &json!({"authorization": "Bearer x"}) } else { value };
        assert_eq!(&changed[name], expected, "{name}");
    }
    assert_eq!(api.patch(&path, "{}").await.json(), changed, "what is not given stays");
    let mut created = given.clone();
    created["url"] = json!("http://127.0.0.1:9/");
    assert_eq!(api.post(WEBHOOKS, created.to_string()).await.json()["retryDelays"], json!([0.2, 60]));
    let nulls: serde_json::Map<_, _> =
        given.as_object().unwrap().keys().map(|name| (name.clone(), json!(null))).collect();
    assert_eq!(api.patch(&path, &serde_json::to_string(&nulls).unwrap()).await.json(), defaults);
}

#[tokio::test]
async fn a_setting_that_is_not_valid_is_named_with_the_reason() {
    let api = Api::start().await;
    let path = format!("{WEBHOOKS}/{}", api.webhook().await);
    let many: Vec<_> = (0..21).map(|number| format!(r#""x-{number}":"""#)).collect();
    let many = format!(r#""headers":{{{}}}"#, many.join(","));
    for (member, part) in [
        (r#""retryDelays":60"#, "a list of at most 20 numbers of seconds"),
        (r#""retryDelays":["1s"]"#, "a list of at most 20 numbers of seconds"),
        (r#""retryDelays":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"#, "has 21 delays"),
        (r#""retryDelays":[604801]"#, "at most a week"),
        (r#""retryDelays":[-1]"#, "no length of time"),
        (r#""retryDelays":[60,0]"#, "at least 0.001"),
        (r#""retryDelays":[0.0004]"#, "no length of time to the millisecond"),
        (r#""retryDelays":[1.0005]"#, "no length of time to the millisecond"),
        (r#""timeoutSeconds":31"#, "31 is not from 1 to 30 seconds"),
        (r#""maxInFlight":1.5"#, "a whole number from 1 to 256"),
        (r#""maxInFlight":0"#, "0 is not from 1 to 256"),
        (r#""rateLimit":5"#, "an object such as"),
        (r#""rateLimit":{"perSecond":0.001,"burst":1}"#, "perSecond is 0.001"),
        (r#""rateLimit":{"perSecond":1,"burst":1,"per":"day"}"#, "unknown field `per`"),
        (r#""headers":{"Host":"x"}"#, "\"host\" is reserved"),
        (r#""headers":{"x":"a\r\nb"}"#, "visible ASCII"),
        (r#""headers":{"x":1}"#, "an object of at most 20 header names"),
        (&many, "more than 20"),
        (r#""respectRetryAfter":"yes""#, "true or false"),
        (r#""disableAfter":0"#, "from 1 to 1000"),
        (r#""whileInactive":"keep""#, "\"drop\" or \"hold\""),
        (r#""signature":"hmac""#, "\"receiptroller\""),
        (r#""traceContext":1"#, "true or false"),
    ] {
        let name = member.split('"').nth(1).unwrap();
        for answer in [api.post(WEBHOOKS, with(member)).await, api.patch(&path, &format!("{{{member}}}")).await] {
            answer.is_problem(400, "invalid-request", &[name, part]);
            assert_eq!(answer.fields(), [name], "{member}");
        }
    }
}

async fn created(api: &Api, members: &str) -> (String, Value) {
    let created = api.post(WEBHOOKS, with(members)).await;
    assert_eq!(created.status, 201, "{created:?}");
    (format!("{WEBHOOKS}/{}", created.json()["id"].as_str().unwrap()), created.json())
}

#[tokio::test]
async fn s15_a_rotated_secret_is_shown_once_and_two_are_good_meanwhile() {
    let api = Api::start().await;
    let (path, first) = created(&api, r#""description":"x""#).await;
    let rotate = format!("{path}/rotate-secret");
    let rotated = api.post(&rotate, "").await;
    assert_eq!(rotated.status, 200, "{rotated:?}");
    let rotated = rotated.json();
    let secret = rotated["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() >= 24 + 6 && rotated["secret"] != first["secret"]);
    let until = rotated["previousSecretUntil"].as_str().unwrap();
    let until: jiff::Timestamp = until.parse().unwrap();
    let stored = api.store.webhooks(&OrganizationId::parse("acme").unwrap()).await.unwrap()[0].clone();
    let previous = stored.previous_secret.clone().unwrap();
    assert_eq!((stored.secret.reveal(), previous.secret.reveal()), (secret, first["secret"].as_str().unwrap()));
    assert_eq!(until.duration_since(previous.rotated_at).as_secs(), 24 * 3600, "a day by default");
    let shown = api.get(&path).await;
    assert!(shown.json().get("secret").is_none() && !shown.text.contains(secret));

    let own = "whsec_chosen-by-the-receiver-01";
    let again = api.post(&rotate, format!(r#"{{"overlap":0,"secret":"{own}"}}"#)).await.json();
    assert_eq!((&again["secret"], again.get("previousSecretUntil")), (&json!(own), None));
    for (body, field) in [
        (r#"{"overlap":-1}"#, "overlap"),
        (r#"{"overlap":2592001}"#, "overlap"),
        (r#"{"overlap":"1h"}"#, "overlap"),
        (r#"{"secret":"short"}"#, "secret"),
        (r#"{"active":true}"#, "active"),
    ] {
        let answer = api.post(&rotate, body).await;
        answer.is_problem(400, "invalid-request", &[field]);
        assert_eq!(answer.fields(), [field]);
    }
    let nowhere = format!("{WEBHOOKS}/wh_none/rotate-secret");
    api.post(&nowhere, "{}").await.is_problem(404, "not-found", &["wh_none"]);
    let foreign = rotate.replace("/acme/", "/other/");
    api.post(&foreign, "{}").await.is_problem(404, "not-found", &["other"]);
}

#[tokio::test]
async fn a_secret_has_to_fit_its_scheme() {
    let api = Api::start().await;
    let (ed25519, shown) = created(&api, r#""signature":"standard-webhooks-ed25519""#).await;
    let public = shown["publicKey"].as_str().unwrap();
    assert!(shown["secret"].as_str().unwrap().starts_with("whsk_") && public.starts_with("whpk_"));
    assert_eq!(api.get(&ed25519).await.json()["publicKey"], public, "anybody may see it");
    let rotated = api.post(&format!("{ed25519}/rotate-secret"), "{}").await.json();
    assert!(rotated["secret"].as_str().unwrap().starts_with("whsk_") && rotated["publicKey"] != public);

    let (plain, _) = created(&api, r#""description":"""#).await;
    let to_standard = api.patch(&plain, r#"{"signature":"standard-webhooks"}"#).await;
    assert_eq!(to_standard.json()["signature"], "standard-webhooks", "a secret that we made fits both");
    let (own, _) = created(&api, r#""secret":"no Base64 at all, but long enough""#.replace(' ', "_").as_str()).await;
    for (path, scheme) in
        [(&own, "standard-webhooks"), (&own, "standard-webhooks-ed25519"), (&ed25519, "standard-webhooks")]
    {
        let answer = api.patch(path, &format!(r#"{{"signature":"{scheme}"}}"#)).await;
        answer.is_problem(400, "invalid-request", &["does not fit the webhook's secret"]);
        assert_eq!(answer.fields(), ["signature"]);
    }
    assert_eq!(api.post(&format!("{own}/rotate-secret"), "{}").await.status, 200);
    let early = api.patch(&own, r#"{"signature":"standard-webhooks"}"#).await;
    early.is_problem(400, "invalid-request", &["the webhook's previous secret", "\"overlap\": 0"]);
    assert_eq!(api.post(&format!("{own}/rotate-secret"), r#"{"overlap":0}"#).await.status, 200);
    assert_eq!(api.patch(&own, r#"{"signature":"standard-webhooks"}"#).await.status, 200);
    for members in [
        r#""signature":"standard-webhooks","secret":"not-base64-not-base64-not-base64""#,
        r#""signature":"standard-webhooks-ed25519","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw""#,
    ] {
        let answer = api.post(WEBHOOKS, with(members)).await;
        assert_eq!(answer.fields(), ["secret"], "{answer:?}");
    }
    let published = r#""signature":"standard-webhooks","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw""#;
    assert_eq!(api.post(WEBHOOKS, with(published)).await.status, 201);
}
