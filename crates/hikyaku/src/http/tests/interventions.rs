//! Replaying, releasing and discarding over HTTP: what is asked for wrongly is said clearly.

use hikyaku_core::signature::receiptroller::sign;
use serde_json::json;

use super::*;

/// An API with two parked rows of `shop`.
async fn with_parked() -> Api {
    let api = Api::start().await;
    for id in ["d1", "d2"] {
        let body = format!(r#"{{"id":"{id}","type":"sale.created","data":{{"id":"k"}}}}"#);
        let request = api.request(Method::POST, "/in/shop");
        let request = request.header("x-rr-signature", sign(&Secret::new(SOURCE_SECRET), body.as_bytes()));
        assert_eq!(Answer::of(request.body(body)).await.status, 200);
    }
    api
}

#[tokio::test]
async fn one_row_is_discarded_with_a_reason_and_not_twice() {
    let api = with_parked().await;
    let row = format!("{ACME}/inbox/shop/d1");
    for (body, fields) in [
        ("{}", vec!["reason"]),
        (r#"{"reason":" "}"#, vec!["reason"]),
        (r#"{"reason":5,"route":6}"#, vec!["reason", "route"]),
        (r#"{"reason":"x","why":1}"#, vec!["why"]),
    ] {
        let answer = api.post(&format!("{row}/discard"), body).await;
        answer.is_problem(400, "invalid-request", &[]);
        assert_eq!(answer.fields(), fields, "{body}");
    }
    let long = json!({"reason": "x".repeat(1025)}).to_string();
    api.post(&format!("{row}/discard"), long).await.is_problem(400, "invalid-request", &["1024"]);
    let discarded = api.post(&format!("{row}/discard"), r#"{"reason":"a test"}"#).await;
    assert_eq!((discarded.status.as_u16(), discarded.json()), (200, json!({"outcome": "done"})));
    let shown = api.get(&row).await.json();
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("discarded"), &json!("a test")));
    let again = api.post(&format!("{row}/discard"), r#"{"reason":"a test"}"#).await;
    again.is_problem(409, "row-unfit", &["The row is discarded"]);
}

#[tokio::test]
async fn what_cannot_be_done_to_a_row_is_said() {
    let api = with_parked().await;
    let row = format!("{ACME}/inbox/shop/d1");
    api.post(&format!("{row}/release"), "").await.is_problem(409, "still-parked", &["no route of the source"]);
    api.post(&format!("{row}/replay"), "").await.is_problem(409, "row-unfit", &["The row is parked"]);
    let unknown = api.post(&format!("{row}/replay"), r#"{"route":"books"}"#).await;
    unknown.is_problem(400, "invalid-request", &["must be a route of the configuration, not \"books\""]);
    for verb in ["replay", "release"] {
        api.post(&format!("{ACME}/inbox/shop/nothing/{verb}"), "").await.is_problem(404, "not-found", &["nothing"]);
        let theirs = format!("/v1/organizations/rival/inbox/receiptroller/d1/{verb}");
        api.post(&theirs, "").await.is_problem(404, "not-found", &["rival"]);
    }
    api.post(&format!("{row}/replay"), "[]").await.is_problem(400, "invalid-request", &["object"]);
}

#[tokio::test]
async fn many_rows_are_looked_at_first_and_then_done_in_pieces() {
    let api = with_parked().await;
    let ask = async |body: Value| api.post(&format!("{ACME}/inbox/discard"), body.to_string()).await;
    let filter = json!({"state": "parked", "type": "sale.*", "source": "shop", "reason": "tests"});
    let with = |name: &str, value: Value| {
        let mut body = filter.clone();
        body[name] = value;
        body
    };
    let preview = ask(with("preview", json!(true))).await.json();
    assert_eq!((&preview["preview"], &preview["matched"], &preview["changed"]), (&json!(true), &json!(2), &json!(0)));
    assert_eq!(preview["rows"][0]["deliveryId"], "d2");
    for nothing in [with("type", json!("order.*")), with("key", json!("other")), with("source", json!("till"))] {
        assert_eq!(ask(nothing).await.json()["matched"], 0);
    }
    let done = ask(filter.clone()).await.json();
    assert_eq!((&done["matched"], &done["changed"], &done["nextCursor"]), (&json!(2), &json!(2), &Value::Null));
    assert_eq!(done["unchanged"], json!([]));
    assert_eq!(ask(filter.clone()).await.json()["matched"], 0);
}

#[tokio::test]
async fn what_stays_as_it_was_is_told_with_its_reason() {
    let api = with_parked().await;
    let answer = api.post(&format!("{ACME}/inbox/release"), r#"{"state":"parked"}"#).await.json();
    assert_eq!((&answer["matched"], &answer["changed"]), (&json!(2), &json!(0)));
    assert_eq!(answer["unchanged"][0]["deliveryId"], "d2");
    assert!(answer["unchanged"][0]["detail"].as_str().unwrap().contains("stays parked"), "{answer}");
}

#[tokio::test]
async fn a_filter_that_says_nothing_or_something_else_is_refused() {
    let api = with_parked().await;
    for (verb, body, fields) in [
        ("replay", "{}", vec!["state"]),
        ("replay", r#"{"state":"parked"}"#, vec!["state"]),
        ("release", r#"{"state":"dead"}"#, vec!["state"]),
        ("release", r#"{"state":"parked","reason":"x"}"#, vec!["reason"]),
        ("discard", r#"{"state":"done","reason":"x"}"#, vec!["state"]),
        ("discard", r#"{"state":"dead"}"#, vec!["reason"]),
        ("replay", r#"{"state":"dead","route":"books"}"#, vec!["route"]),
        ("replay", r#"{"state":"dead","type":"sale.*.x"}"#, vec!["type"]),
        ("replay", r#"{"state":"dead","from":"soon","preview":1,"cursor":"x"}"#, vec!["from", "preview", "cursor"]),
        ("replay", r#"{"state":"dead","from":"2026-11-30T00:00:00Z","to":"2026-11-30T00:00:00Z"}"#, vec!["to"]),
    ] {
        let answer = api.post(&format!("{ACME}/inbox/{verb}"), body).await;
        answer.is_problem(400, "invalid-request", &[]);
        assert_eq!(answer.fields(), fields, "{verb} {body}");
    }
}

#[tokio::test]
async fn t2_sources_tell_how_their_signatures_stand() {
    let api = with_parked().await;
    assert_eq!(api.post("/in/till", "{}").await.status, 401);
    let sources = api.get(&format!("{ACME}/sources")).await.json();
    let [shop, till] = [&sources["items"][0], &sources["items"][1]];
    assert_eq!((&shop["name"], &shop["onBadSignature"]), (&json!("shop"), &json!("refuse")));
    assert!(shop["lastGoodAt"].is_string() && shop["switchedOffAt"].is_null(), "{shop}");
    assert!(till["lastGoodAt"].is_null() && till["switchedOffAt"].is_string(), "{till}");
    assert!(till["lastRefusedBecause"].as_str().unwrap().contains("x-rr-signature"), "{till}");
    assert_eq!(api.get("/v1/organizations/rival/sources").await.json(), json!({"items": []}));
}
