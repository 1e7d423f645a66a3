use hikyaku_core::ids::EventId;
use serde_json::json;

use super::*;
use crate::store::memory::{Fault, Operation};
use crate::store::{Store, StoreError};

fn events() -> String {
    format!("{ACME}/events")
}

impl Api {
    /// The body that is kept for an event, which is what every webhook gets.
    async fn stored_body(&self, id: &str) -> Vec<u8> {
        let (acme, id) = (OrganizationId::parse("acme").unwrap(), EventId::parse(id).unwrap());
        self.store.event(&acme, &id).await.unwrap().unwrap().body.to_vec()
    }
}

#[tokio::test]
async fn an_event_is_accepted_once_and_repeated_as_often_as_one_likes() {
    let api = Api::start().await;
    api.webhook().await;
    let first = api.post(&events(), r#"{"type":"sale.created","data":{"id":"t|2026-13|1"},"id":"e/1|%"}"#).await;
    assert_eq!(first.status, 202, "{first:?}");
    let shown = first.json();
    assert_eq!(
        (&shown["id"], &shown["type"], &shown["deliveries"]),
        (&json!("e/1|%"), &json!("sale.created"), &json!(1))
    );
    let again = api.post(&events(), r#"{"id":"e/1|%", "data":{"id":"t|2026-13|1"},"type":"sale.created"}"#).await;
    assert_eq!((again.status.as_u16(), &again.text), (200, &first.text));
    for other in [
        r#"{"type":"sale.created","data":{"id": "t|2026-13|1"},"id":"e/1|%"}"#,
        r#"{"type":"sale.updated","data":{"id":"t|2026-13|1"},"id":"e/1|%"}"#,
        r#"{"type":"sale.created","data":{"id":"t|2026-13|1"},"id":"e/1|%","timestamp":0}"#,
    ] {
        let answer = api.post(&events(), other).await;
        answer.is_problem(409, "event-conflict", &["e/1|%", "nothing was stored"]);
        assert_eq!(answer.json()["ids"], json!(["e/1|%"]));
    }
    let read = api.get(&format!("{}/e%2F1%7C%25", events())).await;
    assert_eq!(read.status, 200, "{read:?}");
    let event = read.json();
    assert_eq!((&event["data"]["id"], &event["timestamp"]), (&json!("t|2026-13|1"), &shown["timestamp"]));
    let delivery = &event["deliveries"][0];
    assert_eq!((&delivery["state"], &delivery["inFlight"]), (&json!("waiting"), &json!(true)));
    assert_eq!((&delivery["attempts"], &delivery["nextAttemptAt"]), (&json!([]), &json!(null)));
}

#[tokio::test]
async fn an_event_without_id_and_time_gets_both() {
    let api = Api::start().await;
    let answer = api.post(&events(), "{\"type\":\"sale.created\",\"data\":null}").await;
    assert_eq!(answer.status, 202);
    let shown = answer.json();
    let (id, at) = (shown["id"].as_str().unwrap(), shown["timestamp"].as_str().unwrap());
    assert!(id.starts_with("evt_") && at.ends_with('Z') && at.len() == "2026-11-30T09:15:00.000Z".len(), "{shown}");
    let body = String::from_utf8(api.stored_body(id).await).unwrap();
    assert_eq!(body, format!(r#"{{"id":"{id}","type":"sale.created","timestamp":"{at}","data":null}}"#));
    assert_eq!(shown["deliveries"], 0);
}

#[tokio::test]
async fn a_given_time_is_read_in_every_spelling_and_kept_to_the_millisecond() {
    let api = Api::start().await;
    for (n, spelling) in
        [r#""2026-11-30T18:15:00.2509+09:00""#, "1796030100250", r#""1796030100250""#].into_iter().enumerate()
    {
        let body = format!(r#"{{"type":"a.b","data":0,"id":"t{n}","timestamp":{spelling}}}"#);
        let shown = api.post(&events(), body).await.json();
        assert_eq!(shown["timestamp"], "2026-11-30T09:15:00.250Z", "{spelling}");
    }
}

#[tokio::test]
async fn case_1_r9_data_is_kept_to_the_byte() {
    let api = Api::start().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let odd = [
        r#"{"b":1, "a":2.0}"#,
        "{\"z\":1,\r\n\t\"a\":2,\"z\":3 }",
        r#"{"bizId":29383937493038367292,"big":1e400,"small":-0.0e-999}"#,
        r#"["\ud800","\u0000","\uFEFF","\u00e9","é","領収書","\/"]"#,
        "\"\u{feff}bom inside\"",
        "null",
        "0",
        "\"text\"",
        "true",
        "[]",
        deep.as_str(),
    ];
    for (n, data) in odd.into_iter().enumerate() {
        let answer = api.post(&events(), format!(r#"{{"type":"a.b","id":"e{n}","data": {data} }}"#)).await;
        assert_eq!(answer.status, 202, "{answer:?}");
        let body = String::from_utf8(api.stored_body(&format!("e{n}")).await).unwrap();
        assert!(body.ends_with(&format!(r#","data":{data}}}"#)), "{data:.80} became {body:.200}");
        let shown = api.get(&format!("{}/e{n}", events())).await;
        assert_eq!(shown.status, 200);
        assert!(shown.text.contains(&format!(r#""data":{data},"#)), "{data:.80} is shown as {:.200}", shown.text);
    }
    let with_mark = api.post(&events(), "\u{feff}{\"type\":\"a.b\",\"data\":1}").await;
    assert_eq!(with_mark.status, 202);
}

#[tokio::test]
async fn what_is_not_json_is_400_with_the_position() {
    let api = Api::start().await;
    for (body, line, column) in [
        (&b""[..], 1, 0),
        (b"{", 1, 1),
        (b"{\"type\":\"a.b\",\n\"data\":}", 2, 8),
        (b"{\"type\":\"a.b\",\"data\":NaN}", 1, 22),
        (b"{\"type\":\"a.b\",\"data\":1}x", 1, 24),
        (b"{\"type\":\"a.b\",\"data\":1,}", 1, 24),
        (b"{\"type\":\"a.b\",\"data\":\"\x00\"}", 1, 22),
        (b"{\"type\":\"a.b\",\"data\":\"\xff\"}", 1, 23),
        (b"type=a.b&data=1", 1, 2),
        (b"\xff\xfe{\x00}\x00", 1, 1),
    ] {
        let answer = api.post(&events(), body).await;
        answer.is_problem(400, "not-json", &["line", "column"]);
        let problem = answer.json();
        assert_eq!((&problem["line"], &problem["column"]), (&json!(line), &json!(column)), "{answer:?}");
    }
}

#[tokio::test]
async fn an_event_that_is_not_valid_is_400_and_names_every_field() {
    let api = Api::start().await;
    let long_id = format!(r#"{{"type":"a.b","data":1,"id":"{}"}}"#, "x".repeat(201));
    let cases: [(&str, &[&str]); 19] = [
        ("{}", &["type", "data"]),
        (r#"{"type":"a.b"}"#, &["data"]),
        (r#"{"data":1}"#, &["type"]),
        (r#"{"type":"a.b","data":1,"extra":1,"Id":"x"}"#, &["extra", "Id"]),
        (r#"{"typ":"a.b","data":1}"#, &["typ", "type"]),
        (r#"{"type":"a.b","data":1,"data":1}"#, &["data"]),
        (r#"{"type":1,"data":1}"#, &["type"]),
        (r#"{"type":null,"data":1}"#, &["type"]),
        (r#"{"type":"sale","data":1}"#, &["type"]),
        (r#"{"type":"sale.*","data":1}"#, &["type"]),
        (r#"{"type":"\ud800.x","data":1}"#, &["type"]),
        (r#"{"type":"a.b","data":1,"id":7}"#, &["id"]),
        (r#"{"type":"a.b","data":1,"id":null}"#, &["id"]),
        (r#"{"type":"a.b","data":1,"id":""}"#, &["id"]),
        (r#"{"type":"a.b","data":1,"id":"a b"}"#, &["id"]),
        (&long_id, &["id"]),
        (r#"{"type":"a.b","data":1,"timestamp":"2026-01-01T00:00:00 09:00"}"#, &["timestamp"]),
        (r#"{"type":"a.b","data":1,"timestamp":1e3}"#, &["timestamp"]),
        (r#"{"type":"sale","id":"","timestamp":[],"x":1}"#, &["x", "data", "type", "id", "timestamp"]),
    ];
    for (body, fields) in cases {
        let answer = api.post(&events(), body.to_owned()).await;
        answer.is_problem(400, "invalid-request", fields);
        assert_eq!(answer.fields(), fields, "{body}");
    }
    for body in ["[]", "null", "1", "\"text\"", "true"] {
        api.post(&events(), body).await.is_problem(400, "invalid-request", &["must be a JSON object"]);
    }
}

#[tokio::test]
async fn a_batch_is_stored_whole_in_its_order() {
    let api = Api::start().await;
    let batch = format!("{}/batch", events());
    let list: Vec<_> = (0..1000).map(|n| format!(r#"{{"type":"a.b","id":"e{n}","data":{n}}}"#)).collect();
    let whole = format!(r#"{{"events":[{}]}}"#, list.join(","));
    let answer = api.post(&batch, whole.clone()).await;
    assert_eq!(answer.status, 202);
    let shown = answer.json();
    let ids: Vec<_> = shown["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(ids, (0..1000).map(|n| format!("e{n}")).collect::<Vec<_>>());
    let again = api.post(&batch, whole).await;
    assert_eq!((again.status.as_u16(), again.text), (200, answer.text));
    let mixed = api.post(&batch, r#"{"events":[{"type":"a.b","id":"e0","data":0},{"type":"a.b","id":"n","data":0}]}"#);
    assert_eq!(mixed.await.status, 202);
}

#[tokio::test]
async fn a_batch_that_is_wrong_anywhere_stores_nothing() {
    let api = Api::start().await;
    let batch = format!("{}/batch", events());
    let good = r#"{"type":"a.b","id":"good","data":1}"#;
    let many = vec![r#"{"type":"a.b","data":1}"#; 1001].join(",");
    let cases: [(&str, &[&str]); 8] = [
        ("", &["events"]),
        (r#""events":{}"#, &["events"]),
        (r#""events":[]"#, &["events"]),
        (&format!(r#""events":[{many}]"#), &["events"]),
        (&format!(r#""events":[{good}],"more":1"#), &["more"]),
        (
            &format!(r#""events":[{good},7,{{"type":"x","y":1}}]"#),
            &["events[1]", "events[2].y", "events[2].data", "events[2].type"],
        ),
        (&format!(r#""events":[{good},{good}]"#), &["events[1].id"]),
        (&format!(r#""events":[{good},null]"#), &["events[1]"]),
    ];
    for (members, fields) in cases {
        let answer = api.post(&batch, format!("{{{members}}}")).await;
        answer.is_problem(400, "invalid-request", &[]);
        assert_eq!(answer.fields(), fields, "{members:.200}");
    }
    let large = format!(r#"{{"type":"a.b","data":"{}"}}"#, "x".repeat(MAX_EVENT_BYTES));
    let answer = api.post(&batch, format!(r#"{{"events":[{good},{large}]}}"#)).await;
    answer.is_problem(413, "too-large", &["events[1]", "nothing was stored"]);
    api.post(&events(), r#"{"type":"a.b","id":"taken","data":1}"#).await;
    let conflict = format!(r#"{{"events":[{good},{{"type":"a.b","id":"taken","data":2}}]}}"#);
    api.post(&batch, conflict).await.is_problem(409, "event-conflict", &["taken"]);
    let wrong = vec!["7"; 1000].join(",");
    let answer = api.post(&batch, format!(r#"{{"events":[{wrong}]}}"#)).await;
    assert_eq!(answer.fields().len(), 100, "the list of errors is bounded");
    api.get(&format!("{}/good", events())).await.is_problem(404, "not-found", &["no event"]);
}

#[tokio::test]
async fn an_unknown_end_tells_the_ids_and_repeating_them_stores_nothing_twice() {
    let api = Api::start().await;
    api.store.fail_next(Operation::Commit, Fault::After(StoreError::Unknown("the line broke".to_owned())));
    let answer = api.post(&events(), r#"{"type":"a.b","data":1}"#).await;
    answer.is_problem(500, "outcome-unknown", &["again", "ids"]);
    let id = answer.json()["ids"][0].as_str().unwrap().to_owned();
    let again = api.post(&events(), format!(r#"{{"type":"a.b","data":1,"id":"{id}"}}"#)).await;
    assert_eq!(again.status, 200, "{again:?}");

    api.store.fail_next(Operation::Commit, Fault::Before(StoreError::Unavailable("full".to_owned())));
    let answer = api.post(&events(), r#"{"type":"a.b","data":1}"#).await;
    answer.is_problem(503, "unavailable", &["nothing was changed"]);
    assert_eq!(answer.headers["retry-after"], "1");
}

#[tokio::test]
async fn s17_another_organizations_event_is_not_there() {
    let api = Api::start().await;
    api.post(&events(), r#"{"type":"a.b","id":"mine","data":1}"#).await;
    let foreign = "/v1/organizations/other/events";
    for id in ["mine", "never", "a%20b", "%00", &"x".repeat(300)] {
        api.get(&format!("{foreign}/{id}")).await.is_problem(404, "not-found", &["no event", "other"]);
    }
    let own = api.post(foreign, r#"{"type":"a.b","id":"mine","data":2}"#).await;
    assert_eq!(own.status, 202, "ids are an organization's own");
}

/// A client takes "." and ".." in a path for steps, even as "%2E".
#[tokio::test]
async fn an_id_that_is_taken_can_be_asked_for_and_one_that_could_not_be_is_refused() {
    let api = Api::start().await;
    for (id, in_path) in
        [("batch", "batch"), ("a/b", "a%2Fb"), ("...", "..."), ("T01|2026-13|", "T01%7C2026-13%7C"), ("%2e", "%252e")]
    {
        api.post(&events(), format!(r#"{{"type":"a.b","id":"{id}","data":1}}"#)).await;
        let answer = api.get(&format!("{}/{in_path}", events())).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["id"]), (200, &json!(id)), "{answer:?}");
    }
    for id in [".", ".."] {
        let answer = api.post(&events(), format!(r#"{{"type":"a.b","id":"{id}","data":1}}"#)).await;
        answer.is_problem(400, "invalid-request", &["step in a path"]);
    }
    api.get("/v1/organizations/other/events/batch").await.is_problem(404, "not-found", &["no event", "batch"]);
}

#[tokio::test]
async fn case_5_parallel_publishes_of_one_id_are_one_event() {
    let api = Arc::new(Api::start().await);
    api.webhook().await;
    let mut publishes = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let api = api.clone();
        publishes.spawn(async move { api.post(&events(), r#"{"type":"a.b","id":"one","data":1}"#).await });
    }
    let answers = publishes.join_all().await;
    let accepted = answers.iter().filter(|answer| answer.status == 202).count();
    let repeated = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((accepted, repeated), (1, 63));
    assert!(answers.iter().all(|answer| answer.text == answers[0].text));
}
