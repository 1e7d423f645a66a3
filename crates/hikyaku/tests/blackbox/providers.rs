//! Deliveries of every provider, as their own libraries sign them, against the real program.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::harness::{Config, Receiver, Server};

/// The file that `tests/vectors/run` compares with what those libraries say.
const VECTORS: &str = include_str!("../../../hikyaku-core/src/provider/vectors.json");

fn vectors() -> Vec<Value> {
    serde_json::from_str(VECTORS).unwrap()
}

fn text<'a>(vector: &'a Value, member: &str) -> &'a str {
    vector[member].as_str().unwrap()
}

/// A source for a vector, with a wrong secret before the right one.
fn source(vector: &Value) -> String {
    let url = vector["url"].as_str().map(|url| format!("url = {url:?}\n")).unwrap_or_default();
    format!(
        "[[source]]\nname = {:?}\nprovider = {:?}\nprovider_name = {:?}\norganization = \"acme\"\n\
         secrets = [\"whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\", {:?}]\n{url}",
        text(vector, "name"),
        text(vector, "provider"),
        text(vector, "name"),
        text(vector, "secret"),
    )
}

/// A source that somebody described by himself, with its routes to `url`.
fn described(settings: &str, url: &str) -> String {
    format!(
        "[[source]]\nname = \"own\"\norganization = \"acme\"\n{settings}\n\
         [[destination]]\nname = \"app\"\nkind = \"http\"\nurl = \"{url}\"\n\
         [[route]]\nsource = \"own\"\ndestination = \"app\"\n"
    )
}

fn headers(vector: &Value) -> HeaderMap {
    let pairs: BTreeMap<String, String> = serde_json::from_value(vector["headers"].clone()).unwrap();
    let header =
        |(name, value): (String, String)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(&value).unwrap());
    pairs.into_iter().map(header).collect()
}

async fn post(server: &Server, source: &str, headers: HeaderMap, body: Vec<u8>) -> (u16, Value) {
    let request = reqwest::Client::new().post(format!("http://{}/in/{source}", server.addr()));
    let answer = request.headers(headers).body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn c11_deliveries_of_every_provider_are_taken_and_every_changed_one_is_refused() {
    let vectors = vectors();
    let tables: String = vectors.iter().map(source).collect();
    let server = Server::start(Config::default().with(&tables)).await;
    for vector in &vectors {
        let (name, body) = (text(vector, "name"), text(vector, "body").as_bytes());
        let mut changed = body.to_vec();
        changed[body.len() / 2] ^= 1;
        for (headers, body) in [(headers(vector), changed), (HeaderMap::new(), body.to_vec())] {
            let (status, answer) = post(&server, name, headers, body).await;
            assert_eq!((status, &answer["type"]), (401, &json!("/problems/invalid-signature")), "{name}");
        }
        let (status, answer) = post(&server, name, headers(vector), body.to_vec()).await;
        assert_eq!(status, 200, "{name}: {answer}");
        if name == "slack-challenge" {
            assert_eq!(answer, json!({"status": "challenge", "challenge": "3eZbrw1aBm2r"}));
            continue;
        }
        assert_eq!(answer["status"], "stored", "{name}");
        let again = post(&server, name, headers(vector), body.to_vec()).await;
        assert_eq!(again.1["status"], "duplicate", "{name}: C6");
    }
    let rows = server.api().inbox(&[]).await;
    assert_eq!(rows.len(), vectors.len() - 1, "all but the challenge, which is no delivery");
    for vector in vectors.iter().filter(|vector| vector["name"] != "slack-challenge") {
        let row = rows.iter().find(|row| row["source"] == vector["name"]).unwrap();
        match vector["id"].as_str() {
            Some(id) => assert_eq!(row["deliveryId"], id, "{row}"),
            None => assert!(text(row, "deliveryId").starts_with("sha256:"), "{row}"),
        }
        assert_eq!(row["eventType"].as_str().unwrap_or_default(), vector["type"].as_str().unwrap_or_default(), "{row}");
        assert_eq!(row["key"].as_str().unwrap_or_default(), vector["key"].as_str().unwrap_or_default(), "{row}");
    }
}

#[tokio::test]
async fn case3_case20_a_described_provider_has_its_key_to_the_digit_and_its_bodies_parked() {
    let mut app = Receiver::always(200).await;
    let settings = "provider = \"custom\"\nsecrets = [\"a-secret\"]\nalgorithm = \"shared-secret\"\n\
                    signature_header = \"authorization\"\nsignature_prefix = \"Bearer \"\n\
                    id = [\"x-event\", \"/eventId\"]\ntype = \"/kind\"\nkey = \"/bizId\"\n";
    let server = Server::start(Config::default().with(&described(settings, &app.url("/x")))).await;
    let bearer = |secret: &str| -> HeaderMap {
        [(HeaderName::from_static("authorization"), HeaderValue::from_str(&format!("Bearer {secret}")).unwrap())]
            .into_iter()
            .collect()
    };
    let body = br#"{"eventId":1,"kind":"biz:paid","bizId":29383937493038367292}"#;
    assert_eq!(post(&server, "own", bearer("another"), body.to_vec()).await.0, 401);
    assert_eq!(post(&server, "own", bearer("a-secret"), body.to_vec()).await.0, 200);
    assert_eq!(app.next().await.body, body[..]);
    let row = server.api().settled("own", "1").await;
    assert_eq!((&row["key"], &row["eventType"]), (&json!("29383937493038367292"), &json!("biz.paid")));
    for bare in ["null", "12", "\"text\"", "not JSON", ""] {
        let (status, answer) = post(&server, "own", bearer("a-secret"), bare.into()).await;
        assert_eq!((status, &answer["status"]), (200, &json!("stored")), "{bare}");
    }
    let parked = server.api().inbox(&[("state", "parked")]).await;
    assert_eq!(parked.len(), 5);
}

#[tokio::test]
async fn s13_a_signature_header_that_nobody_writes_is_refused_with_the_reason() {
    let tables: String = vectors().iter().map(source).collect();
    let server = Server::start(Config::default().with(&tables)).await;
    for vector in vectors() {
        let good = headers(&vector);
        let name = good.keys().find(|name| name.as_str().contains("signature") || name.as_str().contains("hmac"));
        let name = if vector["name"] == "github" {
            HeaderName::from_static("x-hub-signature-256")
        } else {
            name.unwrap().clone()
        };
        let with = |value: &[u8]| {
            let mut headers = good.clone();
            headers.insert(name.clone(), HeaderValue::from_bytes(value).unwrap());
            headers
        };
        let mut doubled = good.clone();
        doubled.append(name.clone(), good[&name].clone());
        // Stripe's timestamp stands in the same header.
        let formless =
            if vector["provider"] == "stripe" { "timestamp, which is signed" } else { "no signature of the form" };
        for (headers, reason) in [
            (doubled, "more than once"),
            (with(b"\xe9"), "not visible ASCII"),
            (with(&[b'x'; 5000]), "longer than 4096 bytes"),
            (with(b""), formless),
            (with(b"v1=,v1,,sha256=,v0="), formless),
        ] {
            let (status, answer) = post(&server, text(&vector, "name"), headers, text(&vector, "body").into()).await;
            assert_eq!(status, 401, "{answer}");
            assert!(text(&answer, "detail").contains(reason), "{reason:?} is not in {answer}");
        }
    }
    assert!(server.api().inbox(&[]).await.is_empty());
}

/// Smaregi has no library; the shape is that of its documentation and of deliveries that people have shown.
#[tokio::test]
async fn a_thin_notice_of_smaregi_comes_with_its_secret_in_the_header_that_was_chosen() {
    let settings = "provider = \"smaregi\"\nsecrets = [\"3tWq4Z9AXHSs\"]\nsignature_header = \"X-Shop-Secret\"\n";
    let mut app = Receiver::always(200).await;
    let server = Server::start(Config::default().with(&described(settings, &app.url("/x")))).await;
    let headers = |secret: &'static str| -> HeaderMap {
        [("x-shop-secret", secret), ("smaregi-event-id", "1e7c5a0e"), ("smaregi-event", "pos:transactions")]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect()
    };
    let body = br#"{"contractId":"sb_1","event":"pos:transactions","action":"created","transactionHeadIds":["25"]}"#;
    assert_eq!(post(&server, "own", headers("3tWq4Z9AXHSS"), body.to_vec()).await.0, 401);
    assert_eq!(post(&server, "own", headers("3tWq4Z9AXHSs"), body.to_vec()).await.0, 200);
    assert_eq!(app.next().await.body, body[..]);
    let row = server.api().settled("own", "1e7c5a0e").await;
    assert_eq!((&row["eventType"], &row["provider"]), (&json!("pos.transactions.created"), &json!("smaregi")));
}

#[tokio::test]
async fn s14_t7_an_old_delivery_is_taken_unless_freshness_is_asked_for() {
    const OF_2021: &str = "standard-webhooks-published";
    let vector = vectors().into_iter().find(|vector| vector["name"] == OF_2021).unwrap();
    let fresh = source(&vector).replacen(OF_2021, "fresh", 1) + "freshness = \"2h\"\n";
    let server = Server::start(Config::default().with(&(source(&vector) + &fresh))).await;
    let body = || text(&vector, "body").as_bytes().to_vec();
    let (status, answer) = post(&server, "fresh", headers(&vector), body()).await;
    assert_eq!(status, 401, "{answer}");
    assert!(text(&answer, "detail").contains("signed at 2021-02-25T15:02:10Z"), "{answer}");
    assert_eq!(post(&server, OF_2021, headers(&vector), body()).await.0, 200);
}
