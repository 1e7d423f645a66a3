use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;
use crate::sandbox::engine::Trouble;

struct Api {
    sandbox: Arc<Sandbox>,
    base: String,
    token: String,
}

impl Api {
    async fn start(plan: &str) -> Self {
        let sandbox = sandbox(settings(plan), |_| Outcome::Answered(200));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let app = sandbox.router();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut api = Self { sandbox, base, token: String::new() };
        let login = json!({"userName": "sandbox", "password": "sandbox"});
        let (status, answer) = api.call(Method::POST, "/account/login", Some(login)).await;
        assert_eq!(status, StatusCode::OK);
        assert!(answer["expire"].is_string());
        api.token = answer["token"].as_str().unwrap().to_owned();
        api
    }

    /// Lets the world go on for so many hours at once.
    fn pass(&self, hours: u64) {
        self.sandbox.engine().step(start().checked_add(Duration::from_secs(hours * 3600)).unwrap());
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let mut request =
            reqwest::Client::new().request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        if !status.is_success() {
            assert_eq!(body["status"], status.as_u16(), "{body}");
            assert!(!body["error"].as_str().unwrap().is_empty());
        }
        (status, body)
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }
}

#[tokio::test]
async fn nothing_is_given_without_a_login_or_to_another_organization() {
    let mut api = Api::start("").await;
    assert_eq!(api.call(Method::GET, "/org-other/terminals", None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(api.get("/org-sandbox/terminals").await["items"].as_array().unwrap().len(), 4);
    assert_eq!(api.get("/organizations").await["items"][0]["organizationId"], "org-sandbox");
    for wrong in [json!({"userName": "sandbox", "password": "no"}), json!({"userName": "", "password": "sandbox"})] {
        assert_eq!(api.call(Method::POST, "/account/login", Some(wrong)).await.0, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(api.call(Method::POST, "/account/login", Some(json!({}))).await.0, StatusCode::BAD_REQUEST);
    api.token = "made-up".to_owned();
    assert_eq!(api.call(Method::GET, "/org-sandbox/terminals", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(api.call(Method::GET, "/nowhere", None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(api.call(Method::DELETE, "/account/login", None).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn r25_a_period_is_half_open_and_comes_by_pages() {
    let api = Api::start("").await;
    api.pass(10);
    let sale_times: Vec<_> = {
        let engine = api.sandbox.engine();
        engine.world.sales_between(Timestamp::MIN, Timestamp::MAX, Timestamp::MAX).iter().map(|sale| sale.at).collect()
    };
    // The clock of the sandbox has not moved: what is listed is by its clock, so a list of the future is empty.
    let path = |from: Timestamp, to: Timestamp, page| {
        format!("/org-sandbox/transactions?from={from}&to={to}&itemsPerPage=7&currentPage={page}")
    };
    let empty = api.get(&path(sale_times[3], sale_times[40], 1)).await;
    assert_eq!((&empty["totalItems"], &empty["items"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn a_list_of_what_is_past_is_whole_over_its_pages() {
    let mut settings = settings("");
    settings.start = "2026-11-29T00:00:00Z".parse().unwrap();
    let api = Api::start("").await;
    // A day passes in the world and on the clock: the world is simply older than the clock.
    let mut world = world::World::open(settings.world, settings.start);
    while world.next(start()).is_some() {}
    api.sandbox.engine().world = world;
    let base = "/org-sandbox/transactions?from=2026-11-29T00:00:00Z&to=2026-11-29T12:00:00Z&itemsPerPage=100";
    let first = api.get(base).await;
    let (total, pages) = (first["totalItems"].as_u64().unwrap(), first["totalPages"].as_u64().unwrap());
    assert!(total > 1000 && pages == total.div_ceil(100));
    let mut ids = Vec::new();
    for page in 1..=pages {
        let answer = api.get(&format!("{base}&currentPage={page}")).await;
        ids.extend(answer["items"].as_array().unwrap().iter().map(|sale| sale["id"].as_str().unwrap().to_owned()));
    }
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((ids.len(), distinct.len()), (total as usize, total as usize));
    assert_eq!(api.get(&format!("{base}&currentPage={}", pages + 1)).await["items"], json!([]));

    let month = json!({"year": 2026, "month": 11, "currentPage": 1, "itemsPerPage": 1000});
    let (_, receipts) = api.call(Method::POST, "/org-sandbox/receipts", Some(month)).await;
    let item = &receipts["items"][0];
    let sale = &first["items"][0];
    assert_eq!(item["receipt"]["transactionId"], sale["transactionId"]);
    assert!(item["itemDetailLines"].is_array() && item["receipt"].get("id").is_none());
}

#[tokio::test]
async fn case18_a_period_that_cannot_be_is_refused_and_never_another_one() {
    let api = Api::start("").await;
    for query in [
        "from=2026-11-30T00:00:00+09:00&to=2026-12-01T00:00:00Z",
        "from=2026-11-30T00:00:00Z",
        "from=2026-11-30T00:00:00Z&to=2026-11-30T00:00:00Z",
        "from=yesterday&to=2026-12-01T00:00:00Z",
        "from=2026-11-30T00:00:00Z&to=2026-12-01T00:00:00Z&itemsPerPage=1001",
        "from=2026-11-30T00:00:00Z&to=2026-12-01T00:00:00Z&currentPage=0",
        "from=2026-11-30T00:00:00Z&to=2026-12-01T00:00:00Z&page=2",
    ] {
        for list in ["transactions", "orders"] {
            let (status, _) = api.call(Method::GET, &format!("/org-sandbox/{list}?{query}"), None).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{list}?{query}");
        }
    }
    let thirteenth = json!({"year": 2026, "month": 13});
    assert_eq!(api.call(Method::POST, "/org-sandbox/receipts", Some(thirteenth)).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn r25_an_order_is_read_as_it_stands() {
    let api = Api::start("").await;
    api.pass(5);
    let (id, data) = {
        let engine = api.sandbox.engine();
        let order = engine.world.orders_between(Timestamp::MIN, Timestamp::MAX)[0].data.value();
        (order["order_id"].as_str().unwrap().to_owned(), order)
    };
    assert_eq!(api.get(&format!("/org-sandbox/orders/{id}")).await, data);
    assert_eq!(api.call(Method::GET, "/org-sandbox/orders/W-0", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn webhooks_are_registered_changed_and_listed_and_r13_never_sent_again() {
    let api = Api::start("").await;
    let given = json!({"url": "http://127.0.0.1:9/in", "events": ["sale.*"], "secret": "s", "memo": "レジ"});
    let (status, made) = api.call(Method::POST, "/org-sandbox/webhook/create", Some(given)).await;
    assert_eq!((status, &made["active"], &made["memo"]), (StatusCode::OK, &json!(true), &json!("レジ")));
    let id = made["id"].as_str().unwrap();
    let (_, changed) =
        api.call(Method::POST, "/org-sandbox/webhook/update", Some(json!({"id": id, "active": false}))).await;
    assert_eq!((&changed["active"], &changed["url"]), (&json!(false), &made["url"]));
    assert_eq!(api.get(&format!("/org-sandbox/webhook/{id}")).await, changed);
    let (_, listed) = api.call(Method::POST, "/org-sandbox/webhooks", None).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(api.get(&format!("/org-sandbox/webhook/{id}/log")).await, json!({"items": []}));
    for (path, body) in [
        ("create", json!({"events": ["sale.*"]})),
        ("create", json!({"url": "ftp://x/"})),
        ("create", json!({"url": "not one"})),
        ("create", json!({"url": "http://x/", "events": ["sale"]})),
        ("create", json!({"url": "http://x/", "id": "mine"})),
        ("create", json!({"url": "http://x/", "actve": true})),
        ("update", json!({"id": id, "url": "ftp://x/"})),
    ] {
        let (status, _) = api.call(Method::POST, &format!("/org-sandbox/webhook/{path}"), Some(body.clone())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {body}");
    }
    assert_eq!(
        api.call(Method::POST, "/org-sandbox/webhook/update", Some(json!({"id": "none"}))).await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        api.call(Method::POST, &format!("/org-sandbox/webhook/{id}/resend"), None).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn trouble_with_the_api_is_what_the_plan_says() {
    // Both begin in the first second of the clock.
    for (kind, status) in
        [("api-errors", StatusCode::SERVICE_UNAVAILABLE), ("api-limit", StatusCode::TOO_MANY_REQUESTS)]
    {
        let api = Api::start(&format!("[[fault]]\nkind = \"{kind}\"\nat = \"1ms\"\nby = \"1h\"")).await;
        api.pass(1);
        assert!(matches!(api.sandbox.engine().trouble(api.sandbox.now()), Some(Trouble::Errors | Trouble::Limit(_))));
        assert_eq!(api.call(Method::GET, "/org-sandbox/terminals", None).await.0, status);
    }
}

#[tokio::test]
async fn the_sandbox_says_what_it_does_and_can_be_restarted() {
    let api = Api::start("").await;
    api.get("/org-sandbox/terminals").await;
    let shown = api.get("/sandbox").await;
    assert_eq!((&shown["apiCalls"], &shown["timeScale"], &shown["retriesWaiting"]), (&json!(1), &json!(1), &json!(0)));
    let (status, answer) = api.call(Method::POST, "/sandbox/restart", None).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"retriesLost": 0})));
}
