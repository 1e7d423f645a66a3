//! The settings of a webhook, flat in its JSON.

use serde_json::json;

use super::*;

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
