//! Pages and forms over an API that answers what a test says.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::routing::{any, get};
use hikyaku_core::provider::Refusal;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

use super::*;
use crate::clock::SystemClock;

/// The server's pauses of these tests.
const DELAYS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(40)];
const ACME: &str = "/console/o/acme";

/// The console, and a browser that keeps its cookie.
struct Browser {
    console: TowerToHyperService<Router>,
    cookie: String,
    form_token: String,
}

/// An answer.
struct Shown {
    status: StatusCode,
    location: String,
    /// With the one character reference that addresses are full of as a browser reads it.
    page: String,
}

impl Browser {
    /// Over an API that has these routes below the organization, and empty lists beside them.
    async fn over(routes: Router) -> Self {
        let empty = || async { json!({"items": []}).to_string() };
        let lists = ["/deliveries", "/inbox", "/webhooks", "/sources", "/routes", "/reconcile"];
        // A list that a test has is not empty.
        let api = lists.into_iter().fold(Router::new(), |api, list| api.route(list, any(empty)));
        let api = Router::new().nest("/v1/organizations/acme", routes.fallback_service(api));
        let console = router(api, Arc::new(SystemClock::start()), &DELAYS);
        let mut browser =
            Self { console: TowerToHyperService::new(console), cookie: String::new(), form_token: String::new() };
        let page = browser.get("/console/sign-in").await.page;
        let token = page.split("name=\"form\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        browser.form_token = token.unwrap().to_owned();
        browser
    }

    async fn get(&mut self, path: &str) -> Shown {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn post(&mut self, path: &str, fields: &str) -> Shown {
        let body = format!("form={}&{fields}", self.form_token);
        let request = Request::post(path).header("sec-fetch-site", "same-origin");
        self.send(request.body(body.into()).unwrap()).await
    }

    async fn send(&mut self, mut request: Request<Body>) -> Shown {
        request.headers_mut().insert(header::COOKIE, self.cookie.parse().unwrap());
        let Ok(answer) = self.console.call(request).await;
        let text = |name| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        if let Some(cookie) = text(header::SET_COOKIE).split(';').next().filter(|cookie| !cookie.is_empty()) {
            self.cookie = cookie.to_owned();
        }
        let (status, location) = (answer.status(), text(header::LOCATION));
        let page = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
        Shown { status, location, page: String::from_utf8(page.to_vec()).unwrap().replace("&#x2f;", "/") }
    }
}

/// What the API answers when it refuses.
fn refusal(status: u16, kind: &str) -> (StatusCode, String) {
    let problem = json!({"type": format!("/problems/{kind}"), "status": status, "detail": "no"});
    (StatusCode::from_u16(status).unwrap(), problem.to_string())
}

fn webhook(id: &str, active: bool, events: &[&str]) -> Value {
    json!({
        "id": id, "url": format!("https://{id}.example"), "events": events, "description": "", "active": active,
        "createdAt": "2026-12-01T00:00:00Z", "disableAfter": 1, "whileInactive": "drop", "signature": "receiptroller",
        "headers": {}, "offSince": "2026-12-01T00:00:00Z", "offReason": "paused",
    })
}

#[tokio::test]
async fn whatever_is_looked_for_there_is_a_page_that_leads_on() {
    let row = || async {
        let row = json!({"source": "till", "deliveryId": "in-1", "eventType": "sale.created", "key": "k", "timestamp": "",
            "receivedAt": "2026-12-01T00:00:00Z", "state": "quarantined"});
        row.to_string()
    };
    let sources = || async { json!({"items": [source("a", "b"), source("a", "b")]}).to_string() };
    let deliveries = |uri: axum::http::Uri| async move {
        let query = uri.query().unwrap_or_default().to_owned();
        let is_odd = query.contains("event=%E6") || query.contains("type=%E6") || query.contains("event=a+b");
        if is_odd { refusal(400, "invalid-query") } else { (StatusCode::OK, json!({"items": []}).to_string()) }
    };
    let missing = || async { refusal(404, "not-found") };
    let routes = Router::new().route("/inbox/till/in-1", get(row)).route("/inbox/till/{delivery}", get(missing));
    let mut browser = Browser::over(routes.route("/sources", get(sources)).route("/deliveries", get(deliveries))).await;
    let found = browser.get(&format!("{ACME}/deliveries?find=in-1")).await;
    assert!(found.page.contains(&format!("{ACME}/inbox/till/in-1")), "by its delivery's id: {}", found.page);
    assert_eq!(found.page.matches("<th scope=\"row\">").count(), 1, "once");
    assert!(!found.page.contains("Compare with"), "it is found");
    for find in ["find=%E6%97%A5", "find=a+b", "find=x", &format!("find={}", "y".repeat(9000))] {
        let nothing = browser.get(&format!("{ACME}/deliveries?{find}")).await;
        assert_eq!(nothing.status, StatusCode::OK, "{find}");
        assert!(nothing.page.contains("Compare with the provider"), "{find}: {}", nothing.page);
    }
    let odd = browser.get(&format!("{ACME}/deliveries?type=%E6%97%A5")).await;
    assert_eq!(odd.status, StatusCode::OK);
    assert!(odd.page.contains("A type has the form"), "{}", odd.page);
}

fn source(since: &str, last: &str) -> Value {
    let at = |at: &str| (at != "a" && at != "b").then_some(at.to_owned());
    json!({"name": "till", "provider": "p", "lastGoodAt": null, "lastRefusedAt": at(last),
        "lastRefusedBecause": "there is no x-rr-signature header", "refusedSince": at(since),
        "switchedOffAt": "2026-12-01T01:11:00Z"})
}

#[tokio::test]
async fn t2_signatures_are_a_concern_when_they_fail_again_and_again() {
    for (last, verdict) in [("00:00.000", "verdict good"), ("00:01.000", "verdict warn"), ("01:00.000", "verdict bad")]
    {
        let last = format!("2026-12-01T00:{last}Z");
        let sources = move || async move { json!({"items": [source("2026-12-01T00:00:00.000Z", &last)]}).to_string() };
        let mut browser = Browser::over(Router::new().route("/sources", get(sources))).await;
        let page = browser.get(ACME).await.page;
        assert!(page.contains(&format!("class=\"{verdict}\"")), "{page}");
    }
}

#[tokio::test]
async fn what_was_typed_stays_when_a_form_is_refused() {
    let refuse = |method: axum::http::Method| async move {
        match method {
            axum::http::Method::POST => refusal(400, "unusable-url"),
            _ => (StatusCode::OK, json!({"items": []}).to_string()),
        }
    };
    let late = || async { refusal(409, "row-under-way") };
    let routes = Router::new().route("/webhooks", any(refuse)).route("/inbox/till/in-1/discard", any(late));
    let mut browser = Browser::over(routes).await;
    let fields = "url=http%3A%2F%2Fx.example&events=sale.*+order.*&description=the+till";
    let refused = browser.post(&format!("{ACME}/webhooks"), fields).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    for typed in ["http://x.example", "sale.* order.*", "the till"] {
        assert!(refused.page.contains(&format!("value=\"{typed}\"")), "{typed}: {}", refused.page);
    }
    let row = browser.post(&format!("{ACME}/inbox/till/in-1"), "action=discard&reason=a+copy").await;
    assert_eq!(row.location, format!("{ACME}/inbox/till/in-1?refused=row-under-way&reason=a+copy"));
}

#[tokio::test]
async fn a_second_click_comes_back_to_the_page_with_a_sentence() {
    let late = || async { refusal(409, "delivery-waiting") };
    let mut browser = Browser::over(Router::new().route("/deliveries/e/w/resend", any(late))).await;
    let second = browser.post(&format!("{ACME}/deliveries/e/w/resend"), "").await;
    assert_eq!(
        (second.status, &*second.location),
        (StatusCode::SEE_OTHER, "/console/o/acme/events/e?refused=delivery-waiting")
    );
    for (refused, sentence) in [("delivery-waiting", "goes on by itself"), ("<b>", "The server refused this")] {
        let page = browser
            .get(&format!("{ACME}/webhooks?refused={}", path::query([("", refused)]).trim_start_matches('=')))
            .await
            .page;
        assert!(page.contains("role=\"alert\"") && page.contains(sentence), "{page}");
    }
    let read = browser.get(&format!("{ACME}/deliveries/e/w/resend")).await;
    assert!(read.page.contains("There is no such page"), "{}", read.page);
}

#[tokio::test]
async fn a_value_that_no_form_sends_changes_nothing() {
    let mut browser = Browser::over(Router::new()).await;
    for (path, fields) in [
        ("webhooks/w/switch", ""),
        ("webhooks/w/switch", "active=maybe"),
        ("webhooks/w/secret", "overlap=soon"),
        ("inbox/till/in-1", "action=burn"),
        ("inbox", "action=discard&sure=perhaps"),
        ("reconcile/sales/run", "from=yesterday"),
        ("reconcile/sales/run", "to=2026-12-01"),
    ] {
        let answer = browser.post(&format!("{ACME}/{path}"), fields).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {fields}");
        assert!(answer.page.contains("Nothing was changed"), "{path}: {}", answer.page);
    }
}

#[tokio::test]
async fn r8_the_axis_is_the_servers_and_only_who_wants_an_event_is_sent_it_again() {
    let attempt = json!({"run": 1, "attempt": 1, "httpStatus": 0, "error": "no", "errorKind": "connect",
        "startedAt": "2026-12-01T00:00:00Z", "durationMs": 3, "responseBody": ""});
    let delivery = json!({"webhookId": "had", "state": "exhausted", "run": 1, "inFlight": false, "nextAttemptAt": null,
        "attempts": [attempt.clone(), attempt]});
    let event = json!({"id": "e", "type": "sale.created", "timestamp": "2026-12-01T00:00:00Z", "data": {}, "deliveries": [delivery]});
    let explained = |id: &str, code: &str| json!({"webhookId": id, "code": code, "sentence": ""});
    let why = json!({"items": [explained("had", "exhausted"), explained("other", "notSubscribed"),
        explained("off", "webhookOff"), explained("late", "createdLater")]});
    let webhooks = json!({"items": [webhook("had", false, &["stock.*"]), webhook("other", true, &["stock.*"]),
        webhook("off", false, &["*"]), webhook("late", true, &["sale.*"])]});
    let says = |what: Value| get(move || async move { what.to_string() });
    let routes = Router::new().route("/events/e", says(event)).route("/events/e/explain", says(why));
    let mut browser = Browser::over(routes.route("/webhooks", says(webhooks))).await;
    let page = browser.get(&format!("{ACME}/events/e")).await.page;
    for (id, can) in [("had", true), ("other", false), ("off", false), ("late", true)] {
        assert_eq!(page.contains(&format!("/deliveries/e/{id}/resend")), can, "{id}");
    }
    assert!(page.contains(">5 s</text>") && page.contains(">45 s</text>"), "{page}");
    assert!(page.contains("(no connection, no connection)"), "{page}");
}

#[test]
fn reasons_of_ours_are_known_in_both_languages() {
    for text in [
        Refusal::Missing("x".into()).to_string(),
        Refusal::Doubled("x".into()).to_string(),
        Refusal::NotAscii("x".into()).to_string(),
        Refusal::TooLong("x".into()).to_string(),
        Refusal::Malformed("x".into()).to_string(),
        Refusal::Incomplete("x").to_string(),
        Refusal::Mismatch.to_string(),
    ] {
        assert!(said::known(&text).is_some_and(|(_, what)| what == "x" || what.is_empty()), "{text}");
    }
    // What destinations say, as it stands in their files.
    let destinations = [
        (include_str!("../outbound/failure.rs"), "no answer within {timeout:?}", "no answer within 10s"),
        (include_str!("../outbound/failure.rs"), "the name {name} could", "the name x could not be resolved"),
        (include_str!("../inbox/destination/command.rs"), "exited with {code}", "exited with 3: no paper"),
        (
            include_str!("../inbox/destination/command.rs"),
            "did not end within {limit:?}",
            "the program did not end within 5s",
        ),
        (
            include_str!("../inbox/destination/sql/mapping.rs"),
            "whole number at {pointer:?}",
            "the body has no text and no whole number at /id",
        ),
        (include_str!("../inbox/destination/file/log.rs"), "cannot write to {}", "cannot write to a: full"),
    ];
    for (source, code, text) in destinations {
        assert!(source.contains(code) && said::known(text).is_some(), "{code}");
    }
    assert_eq!(said::known("what somebody else says, written"), None);
}

#[tokio::test]
async fn a_page_with_a_secret_that_is_loaded_again_makes_no_other() {
    let mut known = webhook("w", true, &["*"]);
    known["previousSecretUntil"] = "2026-12-02T00:00:00Z".into();
    let list = json!({"items": [known.clone()]});
    let says = |what: Value| get(move || async move { what.to_string() });
    // What is made is refused: neither may be asked for.
    let mut browser = Browser::over(
        Router::new()
            .route("/webhooks/w/log", says(json!({"items": []})))
            .route("/webhooks/w", says(known))
            .route("/webhooks", says(list)),
    )
    .await;
    let again = browser.post(&format!("{ACME}/webhooks/w/secret"), "overlap=86400&previous=").await;
    assert_eq!(again.location, format!("{ACME}/webhooks/w/secret?refused=made-already"));
    let twice = browser.post(&format!("{ACME}/webhooks"), "url=https%3A%2F%2Fw.example&events=*&description=").await;
    assert_eq!(twice.status, StatusCode::CONFLICT);
    assert!(twice.page.contains("is there already"), "{}", twice.page);
}

#[tokio::test]
async fn whatever_an_id_is_its_page_can_be_opened() {
    let row = |axum::extract::Path((_, id)): axum::extract::Path<(String, String)>| async move {
        let row = json!({"source": "till", "provider": "p", "deliveryId": id, "eventType": "sale.created", "key": "",
            "timestamp": "2026-12-01T00:00:00Z", "receivedAt": "2026-12-01T00:00:00Z", "state": "done", "body": "{}",
            "bodyEncoding": "utf-8", "effects": []});
        row.to_string()
    };
    let mut browser = Browser::over(Router::new().route("/inbox/{source}/{delivery}", get(row))).await;
    let long = "長".repeat(300);
    for id in [".", "..", "~", "~.", "~~..", "...", "a/b", "/", "a b", " ", "%2e", "?x#y", "日本語", "a\\b", &long] {
        let address = path::below(ACME, &["inbox", "till", id]);
        // What a browser takes for a step in the path, however it is written.
        let mut segments = address.split('/').map(|part| part.to_ascii_lowercase().replace("%2e", "."));
        assert!(segments.all(|part| part != "." && part != ".."), "{address}");
        let page = browser.get(&address).await;
        let shown = minijinja::HtmlEscape(id).to_string().replace("&#x2f;", "/");
        assert!(page.status.is_success() && page.page.contains(&shown), "{id:?} at {address}: {}", page.page);
    }
}

#[tokio::test]
async fn two_registrations_at_once_make_one_webhook() {
    let made = Arc::new(std::sync::Mutex::new(Vec::new()));
    let webhooks = move |method: axum::http::Method| {
        let made = Arc::clone(&made);
        async move {
            if method == axum::http::Method::GET {
                // Whoever asks at the same time comes in between.
                let list = json!({"items": *made.lock().unwrap()}).to_string();
                tokio::task::yield_now().await;
                return list;
            }
            let mut new = webhook(&format!("w{}", made.lock().unwrap().len()), true, &["*"]);
            new["url"] = "https://till.example".into();
            new["secret"] = "shown-this-once".into();
            made.lock().unwrap().push(new.clone());
            new.to_string()
        }
    };
    let log = get(|| async { json!({"items": []}).to_string() });
    let browser = Browser::over(Router::new().route("/webhooks", any(webhooks)).route("/webhooks/{id}/log", log)).await;
    let post = || async {
        let Browser { console, cookie, form_token } = &browser;
        let mut one = Browser { console: console.clone(), cookie: cookie.clone(), form_token: form_token.clone() };
        one.post(&format!("{ACME}/webhooks"), "url=https%3A%2F%2Ftill.example&events=*&description=").await
    };
    let (one, other) = tokio::join!(post(), post());
    let mut statuses = [one.status.as_u16(), other.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

#[tokio::test]
async fn many_are_done_a_piece_at_a_time_and_a_break_says_how_far_it_came() {
    let unchanged = json!({"source": "till", "deliveryId": "kept", "detail": "It stays parked: no route"});
    let release = move |body: String| {
        let unchanged = unchanged.clone();
        async move {
            let asked: Value = serde_json::from_str(&body).unwrap();
            let cursor = asked["cursor"].as_str().unwrap_or_default().to_owned();
            let piece = |next: Option<&str>| json!({"matched": 3, "changed": 2, "rows": [], "unchanged": [unchanged], "nextCursor": next});
            match (asked["preview"] == true, &*cursor) {
                (true, _) => (
                    StatusCode::OK,
                    json!({"matched": 9, "changed": 0, "rows": [], "unchanged": [], "nextCursor": null}).to_string(),
                ),
                (_, "") => (StatusCode::OK, piece(Some("a")).to_string()),
                (_, "a") => (StatusCode::OK, piece(Some("broken")).to_string()),
                (_, "mended") => (StatusCode::OK, piece(None).to_string()),
                _ => refusal(503, "unavailable"),
            }
        }
    };
    let mut browser = Browser::over(Router::new().route("/inbox/release", any(release))).await;
    let asked = "action=release&state=parked&source=&key=&route=books";
    let preview = browser.post(&format!("{ACME}/inbox"), asked).await.page;
    assert!(preview.contains("Release 9 rows?") && preview.contains("name=\"route\" value=\"books\""), "{preview}");
    let broken = browser.post(&format!("{ACME}/inbox"), &format!("{asked}&sure=yes")).await.page;
    assert!(broken.contains("4 rows released") && broken.contains("It broke off."), "{broken}");
    assert!(broken.contains("(2 rows)") && !broken.contains("hx-trigger=\"load\""), "{broken}");
    let progress = path::query([("progress", r#"{"of":9,"changed":4,"kept":2,"reasons":[],"cursor":"mended"}"#)]);
    let end = browser.post(&format!("{ACME}/inbox"), &format!("{asked}&sure=yes&{progress}")).await.page;
    assert!(end.contains("6 rows released") && !end.contains("Go on</button>"), "{end}");
    let odd = browser.post(&format!("{ACME}/inbox"), &format!("{asked}&sure=yes&progress=x")).await;
    assert_eq!(odd.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_provider_that_sends_nothing_any_more_is_told_of() {
    let of = json!({"name": "sales", "source": "till", "comparedTo": null, "wanted": null, "calls": 1, "callBudget": 9,
        "notActiveSince": "2026-11-30T00:00:00Z", "cycle": null});
    let mut old = source("a", "b");
    old["lastRowAt"] = "2026-11-29T00:00:00Z".into();
    let says = |items: Value| get(move || async move { json!({"items": [items]}).to_string() });
    let routes = Router::new().route("/reconcile/sales/cycles", get(|| async { json!({"items": []}).to_string() }));
    let mut browser = Browser::over(routes.route("/reconcile", says(of)).route("/sources", says(old))).await;
    let overview = browser.get(ACME).await.page;
    assert!(
        overview.contains("webhook to the source till is off") && overview.contains("2026-11-30 00:00:00"),
        "{overview}"
    );
    assert!(overview.contains("nothing since the program started") && overview.contains("2026-11-29 00:00:00"));
    assert!(browser.get(&format!("{ACME}/reconcile")).await.page.contains("It was last seen on"));
}
