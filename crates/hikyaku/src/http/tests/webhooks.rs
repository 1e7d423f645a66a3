use super::*;
use crate::store::memory::{Fault, Operation};
use crate::store::{Store, StoreError};

fn webhooks() -> String {
    format!("{ACME}/webhooks")
}

#[tokio::test]
async fn a_webhook_is_created_read_changed_and_removed() {
    let api = Api::start().await;
    let created = api.post(&webhooks(), r#"{"url":"http://127.0.0.1:9/hook?key=1"}"#).await;
    assert_eq!(created.status, 201);
    let mut shown = created.json();
    let secret = shown.as_object_mut().unwrap().remove("secret").unwrap();
    assert!(secret.as_str().unwrap().starts_with("whsec_") && secret.as_str().unwrap().len() >= 24 + 6);
    assert_eq!(shown["url"], "http://127.0.0.1:9/hook?key=1");
    assert_eq!((&shown["events"], &shown["active"]), (&serde_json::json!(["*"]), &true.into()));
    assert_eq!(shown.get("offSince"), None);

    let path = created.headers["location"].to_str().unwrap().to_owned();
    assert_eq!(path, format!("{}/{}", webhooks(), shown["id"].as_str().unwrap()));
    assert_eq!(api.get(&path).await.json(), shown, "the secret is shown once");
    assert_eq!(api.get(&webhooks()).await.json()["items"], serde_json::json!([shown]));

    let changed =
        api.patch(&path, r#"{"events":["sale.created","order.*"],"description":"本店","active":false}"#).await;
    assert_eq!(changed.status, 200);
    let changed = changed.json();
    assert_eq!(changed["events"], serde_json::json!(["sale.created", "order.*"]));
    assert_eq!(changed["description"], "本店");
    assert_eq!((&changed["active"], &changed["offReason"]), (&false.into(), &"paused".into()));
    assert!(changed["offSince"].is_string());
    assert_eq!(api.patch(&path, "{}").await.json(), changed, "what is not given stays");
    assert_eq!(api.patch(&path, r#"{"active":true}"#).await.json()["active"], true);

    assert_eq!(api.delete(&path).await.status, 204);
    for gone in [api.get(&path).await, api.patch(&path, "{}").await, api.delete(&path).await] {
        gone.is_problem(404, "not-found", &["no webhook", "acme"]);
    }
}

#[tokio::test]
async fn a_given_secret_is_kept_and_a_webhook_may_begin_switched_off() {
    let api = Api::start().await;
    let secret = "x".repeat(24);
    let body = format!(r#"{{"url":"https://public.example/","secret":"{secret}","active":false}}"#);
    let created = api.post(&webhooks(), body).await.json();
    assert_eq!((&created["secret"], &created["active"]), (&secret.as_str().into(), &false.into()));
    let kept = api.store.webhooks(&OrganizationId::parse("acme").unwrap()).await.unwrap();
    assert_eq!(kept[0].secret.reveal(), secret);
}

#[tokio::test]
async fn a_webhook_that_is_not_valid_is_refused_with_every_reason() {
    let api = Api::start().await;
    let long_secret = format!(r#"{{"url":"https://public.example/","secret":"{}"}}"#, "s".repeat(257));
    let long_text = format!(r#"{{"url":"https://public.example/","description":"{}"}}"#, "d".repeat(1025));
    let patterns = format!(r#"{{"url":"https://public.example/","events":[{}"*"]}}"#, r#""*","#.repeat(100));
    let cases: [(&str, &[&str]); 14] = [
        ("{}", &["url"]),
        (r#"{"url":1}"#, &["url"]),
        (r#"{"url":null}"#, &["url"]),
        (r#"{"Url":"https://public.example/","events":"*"}"#, &["Url", "url", "events"]),
        (r#"{"url":"https://public.example/","url":"https://public.example/"}"#, &["url"]),
        (r#"{"url":"https://public.example/","events":[]}"#, &["events"]),
        (r#"{"url":"https://public.example/","events":["sale","a.b","*.x"]}"#, &["events[0]", "events[2]"]),
        (r#"{"url":"https://public.example/","active":"yes"}"#, &["active"]),
        (r#"{"url":"https://public.example/","secret":"short"}"#, &["secret"]),
        (r#"{"url":"https://public.example/","secret":"with a space in it 012345"}"#, &["secret"]),
        (r#"{"url":"https://public.example/","secret":"with a NUL \u0000 in it, 01234"}"#, &["secret"]),
        (&long_secret, &["secret"]),
        (&long_text, &["description"]),
        (&patterns, &["events"]),
    ];
    for (body, fields) in cases {
        let answer = api.post(&webhooks(), body.to_owned()).await;
        answer.is_problem(400, "invalid-request", fields);
        let (mut named, mut expected) = (answer.fields(), fields.to_vec());
        named.sort();
        expected.sort_unstable();
        assert_eq!(named, expected, "{body}");
    }
    let path = format!("{}/{}", webhooks(), api.webhook().await);
    api.patch(&path, r#"{"secret":"a-secret-cannot-be-changed","id":1}"#).await.is_problem(
        400,
        "invalid-request",
        &["\"secret\" is not known here", "\"id\" is not known here"],
    );
}

#[tokio::test]
async fn s1_s7_a_url_that_cannot_be_delivered_to_is_422_and_says_why() {
    let api = Api::start().await;
    let path = format!("{}/{}", webhooks(), api.webhook().await);
    let long = format!("https://public.example/{}", "x".repeat(2048));
    for (url, reason) in [
        ("", "not an absolute URL"),
        ("/hook", "not an absolute URL"),
        ("ftp://public.example/", "scheme"),
        ("https://user:pw@public.example/", "password"),
        ("https://public.example/#part", "fragment"),
        ("https://10.0.0.1/", "10.0.0.1 is private"),
        ("https://[::ffff:10.0.0.1]/", "10.0.0.1 is private"),
        ("http://169.254.169.254/latest", "metadata"),
        ("https://private.example/", "10.0.0.1 is private"),
        ("https://public.example:8443/", "port 8443"),
        (&long, "at most 2048"),
    ] {
        let body = format!(r#"{{"url":"{url}"}}"#);
        api.post(&webhooks(), body.clone()).await.is_problem(422, "unusable-url", &[reason]);
        api.patch(&path, &body).await.is_problem(422, "unusable-url", &[reason]);
    }
    assert_eq!(api.get(&path).await.json()["url"], "http://127.0.0.1:9/hook", "nothing has changed");
    assert_eq!(api.get(&webhooks()).await.json()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn case_17_a_name_that_does_not_resolve_now_can_be_registered() {
    let api = Api::start().await;
    assert_eq!(api.post(&webhooks(), r#"{"url":"https://later.example/"}"#).await.status, 201);
}

#[tokio::test]
async fn s17_another_organizations_webhook_is_not_there() {
    let api = Api::start().await;
    let id = api.webhook().await;
    let foreign = format!("/v1/organizations/other/webhooks/{id}");
    for answer in [
        api.get(&foreign).await,
        api.patch(&foreign, r#"{"active":false}"#).await,
        api.delete(&foreign).await,
        api.get(&format!("{foreign}/log")).await,
    ] {
        answer.is_problem(404, "not-found", &[&id, "other"]);
    }
    assert_eq!(api.get("/v1/organizations/other/webhooks").await.json(), serde_json::json!({"items": []}));
    assert_eq!(api.get(&format!("{}/{id}", webhooks())).await.json()["active"], true);
}

#[tokio::test]
async fn a_store_that_fails_is_told_apart_by_what_the_caller_must_do() {
    let api = Api::start().await;
    let unavailable = StoreError::Unavailable("/secret/path is full".to_owned());
    let unknown = StoreError::Unknown("/secret/path".to_owned());
    let damaged = StoreError::Damaged("/secret/path".to_owned());
    for (error, status, kind, part) in [
        (unavailable, 503, "unavailable", "nothing was changed"),
        (unknown, 500, "outcome-unknown", "may be stored"),
        (damaged, 500, "internal", "in the log"),
    ] {
        api.store.fail_next(Operation::ChangeWebhook, Fault::Before(error));
        let answer = api.post(&webhooks(), r#"{"url":"http://127.0.0.1:9/"}"#).await;
        answer.is_problem(status, kind, &[part]);
        assert!(!answer.text.contains("/secret/path"), "the log's words are not the caller's");
        assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
    }
}

#[tokio::test]
async fn an_organization_has_a_bounded_number_of_webhooks() {
    let api = Api::start().await;
    let body = r#"{"url":"http://127.0.0.1:9/"}"#;
    let path = api.post(&webhooks(), body).await.headers["location"].to_str().unwrap().to_owned();
    let first = api.store.webhooks(&OrganizationId::parse("acme").unwrap()).await.unwrap()[0].clone();
    for n in 1..10_000 {
        let id = hikyaku_core::ids::WebhookId::parse(format!("w{n}")).unwrap();
        api.store.create_webhook(hikyaku_core::webhook::Webhook { id, ..(*first).clone() }).await.unwrap();
    }
    api.post(&webhooks(), body).await.is_problem(409, "too-many-webhooks", &["10000", "remove one"]);
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.post(&webhooks(), body).await.status, 201);
}
