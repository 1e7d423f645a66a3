use hikyaku_core::signature::receiptroller::sign;
use serde_json::json;

use super::*;
use crate::store::StoreError;
use crate::store::memory::{Fault, Operation};

impl Api {
    async fn deliver(&self, source: &str, id: &str, body: &[u8]) -> Answer {
        let request = self
            .request(Method::POST, &format!("/in/{source}"))
            .header("x-rr-signature", sign(&Secret::new(SOURCE_SECRET), body))
            .header("x-rr-delivery", id);
        Answer::of(request.body(body.to_vec())).await
    }
}

#[tokio::test]
async fn c6_c9_c12_a_delivery_is_stored_once_over_all_sources_of_its_provider() {
    let api = Api::start().await;
    let body = br#"{"id":"d1","type":"sale.created","timestamp":"2026-11-30T09:15:00Z","data":{"id":"k"}}"#;
    for (source, status) in [("shop", "stored"), ("shop", "duplicate"), ("till", "duplicate")] {
        let answer = api.deliver(source, "d1", body).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, json!({"status": status})), "{source}");
    }
    assert_eq!(api.get(&format!("{ACME}/inbox")).await.json()["items"].as_array().unwrap().len(), 1);
    for via in ["shop", "till", "receiptroller"] {
        let row = api.get(&format!("{ACME}/inbox/{via}/d1")).await.json();
        assert_eq!((&row["source"], &row["key"], &row["bodyEncoding"]), (&json!("shop"), &json!("k"), &json!("utf-8")));
        assert_eq!(row["body"].as_str().unwrap().as_bytes(), body);
    }
}

#[tokio::test]
async fn c11_t6_the_signature_decides_and_nothing_else() {
    let api = Api::start().await;
    let unsigned = api.post("/in/shop", "{}").await;
    unsigned.is_problem(401, "invalid-signature", &["Nothing was stored"]);
    let forged = api.request(Method::POST, "/in/shop").header("x-rr-signature", format!("sha256={}", "0".repeat(64)));
    Answer::of(forged.body("{}")).await.is_problem(401, "invalid-signature", &["Nothing was stored"]);
    api.deliver("nowhere", "d", b"{}").await.is_problem(404, "not-found", &["no source \"nowhere\""]);
    for (n, body) in [&b""[..], b"null", b"not json", b"\xff\x00", b"12", b"{}"].into_iter().enumerate() {
        assert_eq!(api.deliver("shop", &format!("odd{n}"), body).await.status, 200, "{body:?}");
    }
    let parked = api.get(&format!("{ACME}/inbox?state=parked&source=shop")).await.json();
    assert_eq!(parked["items"].as_array().unwrap().len(), 6);
    let declared =
        api.request(Method::POST, "/in/shop").header("content-encoding", "gzip").header("content-type", "x/y");
    let declared = declared.header("x-rr-signature", sign(&Secret::new(SOURCE_SECRET), b"\x1f\x8b"));
    assert_eq!(Answer::of(declared.body(&b"\x1f\x8b"[..])).await.status, 200);
}

#[tokio::test]
async fn c14_what_is_not_stored_is_never_answered_200() {
    let api = Api::start().await;
    for (error, status) in [(StoreError::Unavailable("full".into()), 503), (StoreError::Unknown("cut".into()), 500)] {
        api.store.fail_next(Operation::Commit, Fault::Before(error));
        let answer = api.deliver("shop", "d1", b"{}").await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers.contains_key("retry-after"), status == 503);
    }
    assert_eq!(api.deliver("shop", "d1", b"{}").await.json(), json!({"status": "stored"}));
}

#[tokio::test]
async fn ids_with_bars_slashes_and_percents_are_found_and_bodies_come_back_to_the_byte() {
    let api = Api::start().await;
    let odd: [(&str, &str, &[u8]); 6] = [
        ("t1|2026-13|9", "t1%7C2026-13%7C9", b"{\"b\":1, \"a\":2.0}\r\n"),
        ("t1||8", "t1||8", b"\xef\xbb\xbf{}"),
        ("a/b/body", "a%2Fb%2Fbody", b"\x00\xff\x1f\x8b"),
        ("100%25?#", "100%2525%3F%23", b""),
        ("../x", "%2E%2E%2Fx", b"dots"),
        ("body", "body", b"null"),
    ];
    for (id, encoded, body) in odd {
        assert_eq!(api.deliver("shop", id, body).await.json(), json!({"status": "stored"}));
        let path = format!("{ACME}/inbox/shop/{encoded}");
        let row = api.get(&path).await;
        assert_eq!((row.status.as_u16(), row.json()["deliveryId"].as_str()), (200, Some(id)), "{row:?}");
        let raw = api.request(Method::GET, &format!("{path}/body")).send().await.unwrap();
        assert_eq!(raw.headers()["content-type"], "application/octet-stream");
        assert_eq!(raw.headers()["x-content-type-options"], "nosniff");
        assert_eq!(raw.bytes().await.unwrap(), body, "{id}");
    }
    let binary = api.get(&format!("{ACME}/inbox/shop/a%2Fb%2Fbody")).await.json();
    assert_eq!((&binary["body"], &binary["bodyEncoding"]), (&json!("AP8fiw=="), &json!("base64")));
    api.get(&format!("{ACME}/inbox/shop/a/b/body")).await.is_problem(404, "no-such-path", &["%2F"]);
}

#[tokio::test]
async fn the_inbox_is_filtered_and_read_page_by_page() {
    let api = Api::start().await;
    for n in 0..5 {
        let body = format!(r#"{{"id":"d{n}","type":"sale.created","data":{{"id":"k{}"}}}}"#, n % 2);
        api.deliver(if n == 4 { "till" } else { "shop" }, &format!("d{n}"), body.as_bytes()).await;
    }
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|row| row["deliveryId"].as_str().unwrap().to_owned()).collect()
    };
    let inbox = format!("{ACME}/inbox");
    assert_eq!(ids(&api.get(&format!("{inbox}?key=k0")).await.json()), ["d4", "d2", "d0"]);
    assert_eq!(ids(&api.get(&format!("{inbox}?key=k0&source=shop")).await.json()), ["d2", "d0"]);
    assert!(ids(&api.get(&format!("{inbox}?state=dead")).await.json()).is_empty());
    assert!(ids(&api.get(&format!("{inbox}?source=nowhere")).await.json()).is_empty());
    let first = api.get(&format!("{inbox}?limit=3")).await.json();
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = api.get(&format!("{inbox}?limit=3&cursor={cursor}")).await.json();
    assert_eq!((ids(&first).join(","), ids(&second).join(",")), ("d4,d3,d2".to_owned(), "d1,d0".to_owned()));
    assert_eq!(second["nextCursor"], json!(null));
}

#[tokio::test]
async fn s17_another_organizations_inbox_row_is_not_there() {
    let api = Api::start().await;
    api.deliver("shop", "d1", b"{}").await;
    let foreign = "/v1/organizations/other/inbox";
    for path in ["shop/d1", "shop/d1/body", "receiptroller/d1"] {
        api.get(&format!("{foreign}/{path}")).await.is_problem(404, "not-found", &["d1", "other"]);
    }
    assert_eq!(api.get(foreign).await.json()["items"], json!([]));
    api.get(&format!("{ACME}/inbox/shop/none")).await.is_problem(404, "not-found", &["none", "shop", "acme"]);
}
