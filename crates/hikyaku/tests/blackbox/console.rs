//! The console of the real program, as a browser sees it: who is let in, what may change something, and what a page loads.
//! `tests/console` walks through it in a real browser.

use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};

use crate::harness::{Config, Server};

const TOKEN: &str = "a-token-of-the-console-tests";

/// A browser: it keeps cookies and follows nothing.
struct Browser {
    base: String,
    client: Client,
    cookies: String,
}

impl Browser {
    fn new(server: &Server) -> Self {
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Self { base: format!("http://{}", server.addr()), client, cookies: String::new() }
    }

    async fn send(&mut self, request: RequestBuilder) -> Response {
        let response = request.header("cookie", &self.cookies).send().await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("; Path=/console; SameSite=Strict"), "{cookie}");
            self.cookies = cookie.split(';').next().unwrap().to_owned();
        }
        response
    }

    async fn get(&mut self, path: &str) -> Response {
        let request = self.client.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    async fn page(&mut self, path: &str) -> String {
        let response = self.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        as_read(&response.text().await.unwrap())
    }

    /// Sends a form from one of our pages, unless `site` says otherwise.
    async fn post(&mut self, path: &str, site: &str, fields: &[(&str, &str)]) -> Response {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let request = self.client.post(format!("{}{path}", self.base)).header("sec-fetch-site", site);
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
        self.send(request).await
    }
}

/// A page with the one character reference that its addresses are full of read as a browser reads it.
fn as_read(page: &str) -> String {
    page.replace("&#x2f;", "/")
}

/// What stands between two texts of a page.
fn between<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    page.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {page}")).1.split(end).next().unwrap()
}

/// The token of a page's forms.
fn form_token(page: &str) -> &str {
    between(page, "name=\"form\" value=\"", "\"")
}

fn location(response: &Response) -> &str {
    assert_eq!(response.status(), 303);
    response.headers()[LOCATION].to_str().unwrap()
}

fn assert_safe(headers: &HeaderMap) {
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'self';") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    assert_eq!(
        (&headers["x-content-type-options"], &headers["referrer-policy"]),
        (&"nosniff".parse().unwrap(), &"no-referrer".parse().unwrap())
    );
    assert_eq!(headers["cache-control"], "no-store");
}

async fn signed_in(server: &Server) -> Browser {
    let mut browser = Browser::new(server);
    let page = browser.page("/console/sign-in").await;
    let fields = [("form", form_token(&page)), ("token", TOKEN), ("to", "/console/o/acme")];
    let response = browser.post("/console/sign-in", "same-origin", &fields).await;
    assert_eq!(location(&response), "/console/o/acme");
    browser
}

#[tokio::test]
async fn s20_s21_only_a_token_lets_in_and_only_a_form_of_ours_changes_something() {
    let server = Server::start(Config::default().env("HIKYAKU_API__TOKEN", TOKEN)).await;
    let mut browser = Browser::new(&server);
    let response = browser.get("/console/o/acme/webhooks?x=1").await;
    assert_eq!(location(&response), "/console/sign-in?to=%2Fconsole%2Fo%2Facme%2Fwebhooks%3Fx%3D1");
    assert_safe(response.headers());
    let page = browser.page("/console/sign-in").await;
    let wrong = [("form", form_token(&page)), ("token", "wrong"), ("to", "")];
    let answer = browser.post("/console/sign-in", "same-origin", &wrong).await;
    assert!(answer.text().await.unwrap().contains("role=\"alert\""));
    assert_eq!(location(&browser.get("/console").await), "/console/sign-in?to=%2Fconsole");

    let mut browser = signed_in(&server).await;
    assert!(!browser.cookies.contains(TOKEN), "it is not there to be read over a shoulder");
    let response = browser.get("/console/o/acme/webhooks").await;
    assert_safe(response.headers());
    let page = response.text().await.unwrap();
    let token = form_token(&page);
    let webhook = [("form", token), ("url", "https://shop.example/hook"), ("events", "sale.*, order.*")];
    for (site, form) in
        [("cross-site", token), ("same-site", token), ("none", token), ("same-origin", ""), ("same-origin", "00")]
    {
        let refused = browser.post("/console/o/acme/webhooks", site, &[("form", form), webhook[1]]).await;
        assert_eq!(refused.status(), 403, "{site} {form:?}");
    }
    assert!(!browser.page("/console/o/acme/webhooks").await.contains("shop.example"), "nothing was changed");
    let made = browser.post("/console/o/acme/webhooks", "same-origin", &webhook).await;
    assert!(made.text().await.unwrap().contains("whsec_"), "the secret is shown this once");

    let out = browser.post("/console/sign-out", "same-origin", &[("form", token)]).await;
    assert_eq!(location(&out), "/console/sign-in");
    assert!(location(&browser.get("/console/o/acme").await).starts_with("/console/sign-in"));
}

#[tokio::test]
async fn s20_what_came_from_elsewhere_is_text_on_every_page() {
    let server = Server::start(Config::default().env("HIKYAKU_API__TOKEN", TOKEN)).await;
    let mut browser = signed_in(&server).await;
    let markup = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let event =
        serde_json::json!({"id": "x<script>\"'&", "type": "sale.created", "data": {"id": markup, markup: [markup]}});
    let publish = browser.client.post(format!("{}/v1/organizations/acme/events", browser.base)).bearer_auth(TOKEN);
    assert_eq!(publish.json(&event).send().await.unwrap().status(), 202);
    let find = url::form_urlencoded::Serializer::new(String::new()).append_pair("find", markup).finish();
    for path in [
        "events/x%3Cscript%3E%22%27%26".to_owned(),
        format!("deliveries?{find}"),
        format!("inbox?key={find}"),
        "tail".to_owned(),
    ] {
        let page = browser.page(&format!("/console/o/acme/{path}")).await;
        assert!(!page.contains("<script>") && !page.contains("<img src=x"), "{path}: {page}");
        assert!(!page.contains("=\"x<") && !page.contains("\"'>"), "{path}");
    }
}

#[tokio::test]
async fn the_language_is_the_browsers_until_somebody_chooses() {
    let server = Server::start(Config::default()).await;
    let mut browser = Browser::new(&server);
    assert_eq!(location(&browser.get("/console").await), "/console/o/default");
    let request =
        browser.client.get(format!("{}/console/o/default", browser.base)).header("accept-language", "ja-JP,ja;q=0.9");
    let page = browser.send(request).await.text().await.unwrap();
    assert!(page.contains("<html lang=\"ja\">") && page.contains("はじめに"), "{page}");
    let page = browser.page("/console/o/default").await;
    assert!(page.contains("<html lang=\"en\">") && page.contains("First steps"), "{page}");
    // The command has the address that the page was asked for by.
    assert!(page.contains(&format!("curl -s {}", browser.base)), "{page}");
    let session = browser.cookies.clone();
    let fields = [("form", form_token(&page)), ("language", "ja"), ("to", "https://evil.example")];
    let answer = browser.post("/console/language", "same-origin", &fields).await;
    assert_eq!(location(&answer), "/console", "nobody is sent to another site");
    assert!(browser.cookies.starts_with("hikyaku-language=ja"));
    browser.cookies = format!("{session}; {}", browser.cookies);
    assert!(browser.page("/console/o/default").await.contains("<html lang=\"ja\">"));
}

/// 100 KiB for the whole page, as it goes over the wire.
#[tokio::test]
async fn a_page_and_all_that_it_loads_stay_below_100_kib_and_files_are_kept_for_ever() {
    let server = Server::start(Config::default()).await;
    let mut browser = Browser::new(&server);
    let page = browser.page("/console/o/default").await;
    let mut bytes = page.len();
    let files = ["src=\"", "href=\""].into_iter().flat_map(|kind| page.split(kind).skip(1));
    let files: std::collections::BTreeSet<_> =
        files.filter_map(|rest| rest.split('"').next()).filter(|path| path.starts_with("/console/assets/")).collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for file in files {
        let response = browser.get(file).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-content-type-options"]),
            (200, &"nosniff".parse().unwrap()),
            "{file}"
        );
        assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
        bytes += response.bytes().await.unwrap().len();
    }
    assert!(bytes < 100 * 1024, "{bytes} bytes");
    assert_eq!(browser.get("/console/assets/console.0000.css").await.status(), 404);
}
