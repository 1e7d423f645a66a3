use std::sync::{Arc, Mutex};

use bytes::Bytes;
use hikyaku_core::delivery::FailureKind;
use hikyaku_core::ordering::Version;
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, SIGNATURE_HEADER, sign};

use super::*;
use crate::clock::SystemClock;
use crate::inbox::destination::{Kind, Settings, build, testing};
use crate::outbound::Transport;

/// Answers every request alike and keeps it.
struct Scripted {
    response: Response,
    requests: Mutex<Vec<Request>>,
}

#[async_trait]
impl Transport for Scripted {
    async fn post(&self, request: Request) -> Response {
        self.requests.lock().unwrap().push(request);
        self.response.clone()
    }
}

fn response(outcome: Outcome, error: &str, retry_after: Option<&str>) -> Response {
    let mut headers = HeaderMap::new();
    if let Some(value) = retry_after {
        headers.insert(RETRY_AFTER, value.parse().unwrap());
    }
    Response { outcome, error: error.into(), headers, body: Bytes::new(), duration: Duration::ZERO }
}

fn row(delivery: &str, body: &'static [u8]) -> WorkRow {
    WorkRow {
        delivery: delivery.into(),
        source: "shop".into(),
        event_type: "sale.created".into(),
        key: "k".into(),
        version: Version::new(Timestamp::UNIX_EPOCH, "sale.created", delivery),
        failures: 0,
        received_at: Timestamp::UNIX_EPOCH,
        due_since: Timestamp::UNIX_EPOCH,
        body: Bytes::from_static(body),
    }
}

/// What a destination makes of a response to each row, and the requests it sent.
async fn forward(response: Response, secret: Option<Secret>, rows: &[WorkRow]) -> (Vec<Effect>, Vec<Request>) {
    let transport = Arc::new(Scripted { response, requests: Mutex::default() });
    let clock = Arc::new(SystemClock::start());
    let tools =
        Tools { transport: transport.clone(), clock, effect_timeout: Duration::from_secs(20), origins: Arc::default() };
    let url = Url::parse("http://127.0.0.1:9/hook").unwrap();
    let http = build(
        Settings {
            name: "app".into(),
            kind: Kind::Http(HttpSettings {
                url,
                secret,
                scheme: Scheme::default(),
                headers: CustomHeaders::default(),
            }),
        },
        &tools,
    )
    .unwrap();
    let mut effects = Vec::new();
    for row in rows {
        effects.push(http.apply(row).await);
    }
    let requests = std::mem::take(&mut *transport.requests.lock().unwrap());
    (effects, requests)
}

#[tokio::test]
async fn case1_the_bytes_are_forwarded_as_they_came() {
    let odd: &[u8] = b"\xef\xbb\xbf{\"b\":1, \"a\":2.0,\"z\":1,\"z\":3}\r\n";
    let (effects, requests) = forward(response(Outcome::Answered(204), "", None), None, &[row("d1", odd)]).await;
    assert_eq!(effects, [Effect::Done("answered 204".into())]);
    let request = &requests[0];
    assert_eq!((&request.body[..], request.url.path()), (odd, "/hook"));
    assert!(request.timeout < Duration::from_secs(20), "it ends before the effect is given up");
    assert_eq!(request.headers[CONTENT_TYPE], "application/json");
    assert_eq!(request.headers[DELIVERY_HEADER], "d1");
    assert_eq!(request.headers[IDEMPOTENCY_KEY], "shop:d1");
    assert!(!request.headers.contains_key(SIGNATURE_HEADER));
}

#[tokio::test]
async fn a_secret_of_our_own_signs_the_forwarded_bytes() {
    let secret = Secret::new("for the application");
    let ok = response(Outcome::Answered(200), "", None);
    let (_, requests) = forward(ok, Some(secret.clone()), &[row("d1", b"{}")]).await;
    assert_eq!(requests[0].headers[SIGNATURE_HEADER], sign(&secret, b"{}"));
}

#[tokio::test]
async fn any_delivery_id_gives_an_idempotency_key_that_is_its_own_and_stays_the_same() {
    let ids = ["領1", "領2", "a b", "領1"];
    let rows = ids.map(|id| row(id, b"{}"));
    let (_, requests) = forward(response(Outcome::Answered(200), "", None), None, &rows).await;
    let keys: Vec<_> = requests.iter().map(|r| r.headers[IDEMPOTENCY_KEY].to_str().unwrap()).collect();
    assert!(keys.iter().all(|key| key.starts_with("sha256:")), "{keys:?}");
    assert_eq!(keys[0], keys[3]);
    assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    assert!(requests.iter().all(|r| !r.headers.contains_key(DELIVERY_HEADER)));
}

#[tokio::test]
async fn whatever_is_no_2xx_is_a_failure_and_an_overloaded_server_may_ask_for_a_pause() {
    let long_ago = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (outcome, error, header, pause) in [
        (Outcome::Answered(503), "answered 503", Some("120"), Some(120)),
        (Outcome::Answered(429), "answered 429", Some(" 7 "), Some(7)),
        (Outcome::Answered(503), "answered 503", Some("soon"), None),
        (Outcome::Answered(503), "answered 503", Some(long_ago), None),
        (Outcome::Answered(503), "answered 503", None, None),
        (Outcome::Answered(500), "answered 500", Some("120"), None),
        (Outcome::Answered(302), "answered 302", None, None),
        (Outcome::Answered(404), "answered 404", None, None),
        (Outcome::Failed(FailureKind::Timeout), "no answer in time", None, None),
    ] {
        let text = if matches!(outcome, Outcome::Failed(_)) { error } else { "" };
        let (effects, _) = forward(response(outcome, text, header), None, &[row("d1", b"{}")]).await;
        let retry_after = pause.map(Duration::from_secs);
        assert_eq!(effects, [Effect::Failed { error: error.into(), retry_after }], "{outcome:?} {header:?}");
    }
}

#[test]
fn a_pause_may_be_given_as_a_date() {
    let response = response(Outcome::Answered(503), "", Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    let now = "1994-11-06T08:49:00Z".parse().unwrap();
    assert_eq!(retry_after(503, &response, now), Some(Duration::from_secs(37)));
}

#[tokio::test]
async fn standard_webhooks_and_headers_of_the_operators_own() {
    let transport =
        Arc::new(Scripted { response: response(Outcome::Answered(200), "", None), requests: Mutex::default() });
    let clock = Arc::new(SystemClock::start());
    let secret = Secret::new("whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=");
    let mut headers = CustomHeaders::default();
    headers.add("Authorization", "Bearer x").unwrap();
    let tools =
        Tools { transport: transport.clone(), clock, effect_timeout: Duration::from_secs(20), origins: Arc::default() };
    let url = Url::parse("http://127.0.0.1:9/hook").unwrap();
    let settings = HttpSettings { url, secret: Some(secret.clone()), scheme: Scheme::StandardWebhooks, headers };
    let http = build(Settings { name: "app".into(), kind: Kind::Http(settings) }, &tools).unwrap();
    let told = http.preview(&row("d1", b"{}")).unwrap();
    assert!(told.contains("authorization: (hidden)\n") && told.contains("idempotency-key: shop:d1\n"), "S19: {told}");
    for _ in 0..2 {
        http.apply(&row("d1", b"{\"a\": 1}")).await;
    }
    let requests = transport.requests.lock().unwrap();
    let text = |name: &str| requests[1].headers[name].to_str().unwrap();
    assert_eq!((text("authorization"), text("idempotency-key")), ("Bearer x", "shop:d1"));
    assert_eq!(text(standard::ID_HEADER), requests[0].headers[standard::ID_HEADER], "the same in every try");
    let key = SigningKey::hmac(&secret).unwrap();
    let at: i64 = text(standard::TIMESTAMP_HEADER).parse().unwrap();
    assert_eq!(text(standard::SIGNATURE_HEADER), key.sign("shop:d1", at, b"{\"a\": 1}"));
    assert!(!requests[1].headers.contains_key(SIGNATURE_HEADER));
}

/// Many services have no other password than the path of a URL.
#[test]
fn s19_of_a_url_only_host_and_first_word_are_shown() {
    let tools = testing::tools(testing::Scripted::new(|_| testing::answered(200, "")), Duration::from_secs(20));
    for (url, shown) in [
        ("http://127.0.0.1:9/in", "http://127.0.0.1:9/in"),
        ("https://h", "https://h/"),
        ("https://h/hooks/sesame", "https://h/hooks/(hidden:7-bytes)"),
        ("https://h/in?sesame=1", "https://h/in/(hidden:9-bytes)"),
        ("https://h/?sesame", "https://h/(hidden:7-bytes)"),
        ("https://h/sesame-and-many-more-letters", "https://h/(hidden:29-bytes)"),
    ] {
        let url = Url::parse(url).unwrap();
        assert_eq!(shown_url(&url), shown);
        let settings = HttpSettings { url, secret: None, scheme: Scheme::default(), headers: CustomHeaders::default() };
        let http = build(Settings { name: "app".into(), kind: Kind::Http(settings) }, &tools).unwrap();
        let told = http.preview(&row("d1", b"{}")).unwrap();
        assert!(told.contains(&format!("POST {shown}\n")), "{told}");
    }
}
