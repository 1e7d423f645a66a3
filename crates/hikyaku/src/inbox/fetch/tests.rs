use std::collections::VecDeque;
use std::sync::Mutex as Lock;

use async_trait::async_trait;
use hikyaku_core::delivery::FailureKind;
use hikyaku_core::ordering::Version;
use hikyaku_core::provider::Preset;
use jiff::Timestamp;

use super::*;
use crate::clock::SystemClock;
use crate::inbox::OnBadSignature;
use crate::outbound::Request;
use axum::http::header::{AUTHORIZATION, RETRY_AFTER};
use axum::http::{HeaderMap, Method};
use hikyaku_core::delivery::Outcome;
use hikyaku_core::signature::Secret;

/// A provider's API as scripted: answers in their order, and what was asked.
#[derive(Default)]
struct Provider {
    answers: Lock<VecDeque<Response>>,
    asked: Lock<Vec<(String, Option<String>)>>,
}

impl Provider {
    fn new(answers: Vec<Response>) -> Arc<Self> {
        Arc::new(Self { answers: Lock::new(answers.into()), asked: Lock::default() })
    }

    fn asked(&self) -> Vec<(String, Option<String>)> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Exchange for Provider {
    async fn exchange(&self, method: Method, request: Request, _: usize) -> Response {
        let authorization = request.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        self.asked.lock().unwrap().push((format!("{method} {}", request.url.path()), authorization));
        let answer = self.answers.lock().unwrap().pop_front();
        match answer {
            Some(response) => response,
            None => std::future::pending().await,
        }
    }
}

fn answer(status: u16, body: &str) -> Response {
    Response {
        outcome: Outcome::Answered(status),
        error: String::new(),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        duration: Duration::ZERO,
    }
}

fn fetcher(provider: &Arc<Provider>, credential: Option<Credential>) -> Fetcher {
    let settings = Settings {
        url: UrlTemplate::parse("https://api.example/acme/orders/{key}").unwrap(),
        credential,
        timeout: Settings::DEFAULT_TIMEOUT,
        max_body_bytes: Settings::DEFAULT_MAX_BODY_BYTES,
    };
    let source = Source {
        notify: None,
        name: "shop".into(),
        provider: "receiptroller".into(),
        organization: OrganizationId::parse("default").unwrap(),
        secrets: Vec::new(),
        on_bad_signature: OnBadSignature::Refuse,
        preset: Preset::ReceiptRoller,
        profile: Preset::ReceiptRoller.profile(),
        fetch: Some(settings),
    };
    Fetcher::of(&source, provider.clone(), Arc::new(SystemClock::start())).unwrap()
}

fn login() -> Option<Credential> {
    let url = Url::parse("https://api.example/account/login").unwrap();
    Some(Credential::Login { url, user: "taro".into(), password: Secret::new("p\"w") })
}

fn row() -> WorkRow {
    WorkRow {
        delivery: "d".into(),
        source: "shop".into(),
        event_type: "order.updated".into(),
        key: "o|1".into(),
        version: Version::new(Timestamp::UNIX_EPOCH, "order.updated", "d"),
        failures: 0,
        received_at: Timestamp::UNIX_EPOCH,
        due_since: Timestamp::UNIX_EPOCH,
        body: Bytes::from_static(b"{}"),
    }
}

async fn fetch(answers: Vec<Response>) -> Fetched {
    fetcher(&Provider::new(answers), None).fetch(&row()).await
}

#[tokio::test(start_paused = true)]
async fn c3_the_present_state_is_asked_for_with_the_key_and_the_token() {
    let state = r#"{"order_id":29383937493038367292, "x":1.0}"#;
    let provider = Provider::new(vec![answer(200, state)]);
    let fetched = fetcher(&provider, Some(Credential::Token(Secret::new("t1")))).fetch(&row()).await;
    assert!(matches!(&fetched, Fetched::State(body) if body == state.as_bytes()), "{fetched:?}");
    assert_eq!(provider.asked(), [("GET /acme/orders/o%7C1".to_owned(), Some("Bearer t1".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn a_login_is_made_once_and_again_when_its_token_is_no_longer_taken() {
    let (state, token) =
        (|| answer(200, "{}"), |name: &str| answer(200, &format!(r#"{{"token":"{name}","expire":1}}"#)));
    let provider = Provider::new(vec![token("one"), state(), state(), answer(401, ""), token("two"), state()]);
    let fetcher = fetcher(&provider, login());
    for _ in 0..3 {
        let fetched = fetcher.fetch(&row()).await;
        assert!(matches!(fetched, Fetched::State(_)), "{fetched:?}");
    }
    let asked: Vec<_> = provider.asked().into_iter().map(|(what, with)| (what, with.unwrap_or_default())).collect();
    let (log_in, read) = ("POST /account/login", "GET /acme/orders/o%7C1");
    let expected = [(log_in, ""), (read, "Bearer one"), (read, "Bearer one"), (read, "Bearer one"), (log_in, "")];
    assert_eq!(asked[..5], expected.map(|(what, with)| (what.to_owned(), with.to_owned())));
    assert_eq!(asked[5..], [(read.to_owned(), "Bearer two".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_twice_is_a_failure_and_no_loop() {
    let token = || answer(200, r#"{"token":"t"}"#);
    let provider = Provider::new(vec![token(), answer(401, ""), token(), answer(401, "")]);
    let fetched = fetcher(&provider, login()).fetch(&row()).await;
    assert!(matches!(&fetched, Fetched::Failed { error, .. } if error.contains("401")), "{fetched:?}");
    assert_eq!(provider.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_login_that_fails_says_so_and_not_with_what() {
    for response in [answer(403, ""), answer(200, "{}"), answer(200, r#"{"token":"a\nb"}"#)] {
        let provider = Provider::new(vec![response]);
        let fetched = fetcher(&provider, login()).fetch(&row()).await;
        let said = format!("{fetched:?}");
        assert!(matches!(fetched, Fetched::Failed { .. }) && said.contains("login") && !said.contains("p\\"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_state_is_gone_or_fails() {
    for status in [404, 410] {
        assert!(matches!(fetch(vec![answer(status, "{}")]).await, Fetched::Gone(_)), "{status}");
    }
    for (status, body) in [(200, ""), (200, "[1]"), (200, "null"), (302, "{}"), (401, ""), (500, "{}")] {
        let fetched = fetch(vec![answer(status, body)]).await;
        assert!(matches!(fetched, Fetched::Failed { retry_after: None, .. }), "{status} {body}: {fetched:?}");
    }
    let error = "no address".to_owned();
    let failed = Response { outcome: Outcome::Failed(FailureKind::Dns), error, ..answer(0, "") };
    assert!(matches!(fetch(vec![failed]).await, Fetched::Failed { error, .. } if error.contains("no address")));
    assert!(matches!(fetch(vec![]).await, Fetched::Failed { error, .. } if error.contains("10s")), "it hangs");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_taken_from_who_is_overloaded() {
    for (status, expected) in [(429, Some(Duration::from_secs(7))), (503, Some(Duration::from_secs(7))), (500, None)] {
        let mut response = answer(status, "");
        response.headers.insert(RETRY_AFTER, "7".parse().unwrap());
        let fetched = fetch(vec![response]).await;
        assert!(matches!(fetched, Fetched::Failed { retry_after, .. } if retry_after == expected), "{status}");
    }
}
