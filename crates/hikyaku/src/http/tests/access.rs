use std::pin::pin;

use axum::http::{HeaderMap, HeaderValue, Method, header};
use hikyaku_core::token::{ApiToken, Scope};
use serde_json::json;

use super::*;
use crate::http::access::MAX_KEPT_ANSWERS;
use crate::http::problem::Problem;
use crate::http::router::{admin_routes, metrics_routes, organization_routes};
use crate::http::{Access, MAX_TOKEN_AGE};
use crate::store::Store;
use crate::store::memory::Operation;
use crate::store::seal::Seal;
use crate::store::sqlite::SqliteStore;

/// The token of the configuration.
const ADMIN: &str = "a-token-of-enough-length";
/// Every method that a route may take.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl Api {
    async fn call(&self, token: &str, method: Method, path: &str, body: &str) -> Answer {
        let request = self.request(method, path).bearer_auth(token);
        Answer::of(if body.is_empty() { request } else { request.body(body.to_owned()) }).await
    }

    /// Makes a token with the configuration's; gives its id and the token.
    async fn token(&self, body: &str) -> (String, String) {
        let answer = self.call(ADMIN, Method::POST, "/v1/tokens", body).await;
        assert_eq!((answer.status.as_u16(), &answer.headers["cache-control"]), (201, &"no-store".parse().unwrap()));
        let made = answer.json();
        let text = |name: &str| made[name].as_str().unwrap().to_owned();
        (text("id"), text("token"))
    }
}

/// A path of the router with its parameters filled in.
fn filled(path: &str, organization: &str, webhook: &str, token: &str) -> String {
    let values = [("organization", organization), ("webhook", webhook), ("token", token), ("event", "e1")];
    let values = values.into_iter().chain([("source", "shop"), ("delivery", "d1")]);
    let path = values.fold(path.to_owned(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
    // Of what is not made above nothing exists, which must not matter to who may not look.
    let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn s17_another_organizations_token_finds_nothing_at_any_path_of_the_router() {
    let api = Api::start_with(Some(ADMIN)).await;
    let (_, foreign) = api.token(r#"{"organization":"rival"}"#).await;
    let (own_id, own) = api.token(r#"{"organization":"acme"}"#).await;
    let made = api.call(&own, Method::POST, &format!("{ACME}/webhooks"), r#"{"url":"http://127.0.0.1:9/"}"#).await;
    let webhook = made.json()["id"].as_str().unwrap().to_owned();
    let event = r#"{"id":"e1","type":"sale.created","data":1}"#;
    assert_eq!(api.call(&own, Method::POST, &format!("{ACME}/events"), event).await.status, 202);

    for path in organization_routes().paths {
        let mut endpoints = 0;
        for method in METHODS {
            let theirs = filled(path, "acme", &webhook, &own_id);
            let answer = api.call(&foreign, method.clone(), &theirs, "{}").await;
            if answer.status == 405 {
                continue;
            }
            endpoints += 1;
            answer.is_problem(404, "not-found", &["no organization \"acme\""]);
            // The same as of an organization that nobody has ever used.
            let nobodys = api.call(&foreign, method.clone(), &filled(path, "nobody", &webhook, &own_id), "{}").await;
            assert_eq!(nobodys.text.replace("nobody", "acme"), answer.text, "{method} {path}");
            // And in its own organization, the other's ids name nothing.
            let in_its_own = api.call(&foreign, method.clone(), &filled(path, "rival", &webhook, &own_id), "{}").await;
            let names_a_thing = path.trim_start_matches("/v1/organizations/{organization}").contains('{');
            let is_absent = in_its_own.status == 404 || (in_its_own.status == 400 && method != Method::GET);
            assert!(is_absent || !names_a_thing, "{method} {path}: {in_its_own:?}");
        }
        assert!(endpoints > 0, "{path} takes none of {METHODS:?}");
    }
    for path in [format!("{ACME}/webhooks/{webhook}"), format!("{ACME}/events/e1")] {
        assert_eq!(api.call(&own, Method::GET, &path, "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn s16_an_organizations_token_opens_its_organization_and_nothing_above_it() {
    let api = Api::start_with(Some(ADMIN)).await;
    let (_, admin) = api.token(r#"{"admin":true,"name":"root"}"#).await;
    let (_, acme) = api.token(r#"{"organization":"acme"}"#).await;
    assert!(admin.starts_with("hik_admin_") && acme.starts_with("hik_") && !acme.starts_with("hik_admin_"));
    for path in [format!("{ACME}/webhooks"), format!("{ACME}/inbox"), format!("{ACME}/tokens")] {
        for token in [ADMIN, &admin, &acme] {
            assert_eq!(api.call(token, Method::GET, &path, "").await.status, 200, "{path}");
        }
        assert_eq!(api.get(&path).await.headers["www-authenticate"], "Bearer");
    }
    for path in admin_routes().paths.into_iter().chain(metrics_routes().paths) {
        let mut endpoints = 0;
        for method in METHODS {
            let path = filled(path, "acme", "", "tok_x");
            let answer = api.call(&acme, method.clone(), &path, "{}").await;
            if answer.status != 405 {
                endpoints += 1;
                answer.is_problem(403, "forbidden", &["admin token", "\"acme\""]);
                Answer::of(api.request(method.clone(), &path)).await.is_problem(401, "unauthorized", &[]);
                assert!(![401, 403].contains(&api.call(&admin, method, &path, "{}").await.status.as_u16()), "{path}");
            }
        }
        assert!(endpoints > 0, "{path}");
    }
}

#[tokio::test]
async fn s16_a_revoked_token_opens_nothing_from_the_answer_on() {
    let api = Api::start_with(Some(ADMIN)).await;
    let path = format!("{ACME}/webhooks");
    let (kept_id, kept) = api.token(r#"{"organization":"acme","name":"kept"}"#).await;
    for base in ["/v1", ACME] {
        let (id, token) = api.token(r#"{"organization":"acme"}"#).await;
        assert_eq!(api.call(&token, Method::GET, &path, "").await.status, 200);
        assert_eq!(api.call(ADMIN, Method::DELETE, &format!("{base}/tokens/{id}"), "").await.status, 204);
        api.call(&token, Method::GET, &path, "").await.is_problem(401, "unauthorized", &[]);
        assert_eq!(api.call(ADMIN, Method::DELETE, &format!("{base}/tokens/{id}"), "").await.status, 204, "again");
    }
    for id in ["tok_none", "a%20b"] {
        api.call(ADMIN, Method::DELETE, &format!("/v1/tokens/{id}"), "").await.is_problem(404, "not-found", &[]);
    }
    assert_eq!(api.call(&kept, Method::GET, &path, "").await.status, 200);
    // It may revoke itself, and what it makes is its organization's.
    let made = api.call(&kept, Method::POST, &format!("{ACME}/tokens"), r#"{"name":"second"}"#).await.json();
    assert_eq!(
        (&made["organization"], &made["admin"], &made["name"]),
        (&json!("acme"), &json!(false), &json!("second"))
    );
    assert_eq!(api.call(&kept, Method::DELETE, &format!("{ACME}/tokens/{kept_id}"), "").await.status, 204);
    assert_eq!(api.call(&kept, Method::GET, &path, "").await.status, 401);
}

#[tokio::test]
async fn s16_a_token_is_shown_once_and_listed_without_what_opens() {
    let api = Api::start_with(Some(ADMIN)).await;
    let (first, secret) = api.token(r#"{"organization":"acme","name":"レジ"}"#).await;
    let (second, _) = api.token(r#"{"admin":true}"#).await;
    let one = api.call(ADMIN, Method::GET, "/v1/tokens?limit=1", "").await.json();
    let next = format!("/v1/tokens?limit=1&cursor={}", one["nextCursor"].as_str().unwrap());
    let answer = api.call(ADMIN, Method::GET, &next, "").await;
    assert!(!answer.text.contains(&secret) && answer.json()["nextCursor"].is_null());
    // Two tokens of one millisecond may stand in either order.
    let (one, other) = (one["items"][0].clone(), answer.json()["items"][0].clone());
    let (item, admin) = if one["id"] == first.as_str() { (one, other) } else { (other, one) };
    assert_eq!((&item["id"], &item["name"], &item["organization"]), (&json!(first), &json!("レジ"), &json!("acme")));
    assert_eq!(admin["id"], second.as_str());
    assert!(item["createdAt"].is_string() && item.get("revokedAt").is_none() && item.get("token").is_none());
    let own = api.call(ADMIN, Method::GET, &format!("{ACME}/tokens"), "").await.json();
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_that_is_described_wrongly_is_400() {
    let api = Api::start_with(Some(ADMIN)).await;
    let long = format!(r#"{{"admin":true,"name":"{}"}}"#, "x".repeat(201));
    for (body, field) in [
        ("{}", "organization"),
        (r#"{"admin":false}"#, "organization"),
        (r#"{"admin":true,"organization":"acme"}"#, "organization"),
        (r#"{"organization":"a b"}"#, "organization"),
        (r#"{"admin":"yes"}"#, "admin"),
        (r#"{"admin":true,"name":"a\nb"}"#, "name"),
        (&long, "name"),
        (r#"{"admin":true,"scope":"x"}"#, "scope"),
    ] {
        let answer = api.call(ADMIN, Method::POST, "/v1/tokens", body).await;
        answer.is_problem(400, "invalid-request", &[]);
        assert!(answer.fields().iter().any(|named| named == field), "{body}: {answer:?}");
    }
    let own = api.call(ADMIN, Method::POST, &format!("{ACME}/tokens"), r#"{"admin":true}"#).await;
    assert_eq!((own.status.as_u16(), own.fields()), (400, vec!["admin".to_owned()]));
    assert_eq!(api.call(ADMIN, Method::GET, "/v1/tokens", "").await.json()["items"], json!([]));
}

#[tokio::test]
async fn s16_the_first_token_closes_what_was_open() {
    let api = Api::start().await;
    for path in ["/metrics", "/v1/tokens", &format!("{ACME}/webhooks")] {
        assert_eq!(api.get(path).await.status, 200, "{path}");
    }
    api.store.set_down(Operation::Tokens, true);
    assert_eq!(api.post("/v1/tokens", r#"{"admin":true}"#).await.status, 503);
    assert_eq!(api.get("/metrics").await.status, 200, "none was made");
    api.store.set_down(Operation::Tokens, false);
    let made = api.post("/v1/tokens", r#"{"admin":true}"#).await.json();
    for path in ["/metrics", "/v1/tokens", &format!("{ACME}/webhooks")] {
        api.get(path).await.is_problem(401, "unauthorized", &["hikyaku token create"]);
        assert_eq!(api.call(made["token"].as_str().unwrap(), Method::GET, path, "").await.status, 200, "{path}");
    }
    // Nor does the last one's revocation open it again.
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(api.call(made["token"].as_str().unwrap(), Method::DELETE, &path, "").await.status, 204);
    assert_eq!(api.get("/metrics").await.status, 401);
    for open in ["/healthz", "/readyz"] {
        assert_eq!(api.get(open).await.status, 200);
    }
}

#[tokio::test]
async fn s21_without_tokens_a_web_page_cannot_drive_the_api() {
    let api = Api::start().await;
    let path = format!("{ACME}/events");
    let event = r#"{"id":"e1","type":"sale.created","data":1}"#;
    for (name, value) in [
        ("host", "evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        // Without a content type too, which is what a page can send without asking first.
        for content_type in [None, Some("application/json"), Some("text/plain")] {
            let request = api.request(Method::POST, &path).header(name, value).body(event);
            let request =
                content_type.into_iter().fold(request, |request, value| request.header("content-type", value));
            Answer::of(request).await.is_problem(403, "foreign-origin", &["API token", "page"]);
        }
    }
    let rebound = api.request(Method::GET, &format!("{ACME}/inbox")).header("host", "evil.example:8080");
    Answer::of(rebound).await.is_problem(403, "foreign-origin", &["Host"]);
    assert_eq!(api.get(&format!("{ACME}/events/e1")).await.status, 404, "nothing of it was published");
    // What is not guarded by a token is not guarded by this either: a proxy may pass on what providers send.
    let delivery = api.request(Method::POST, "/in/shop").header("host", "hooks.example").body("{}");
    Answer::of(delivery).await.is_problem(401, "invalid-signature", &[]);
    // With a token, no page has it, and a proxy may stand in front.
    let api = Api::start_with(Some(ADMIN)).await;
    let proxied =
        api.request(Method::POST, &path).header("host", "api.example").header("origin", "https://app.example");
    assert_eq!(Answer::of(proxied.bearer_auth(ADMIN).body(event)).await.status, 202);
}

fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
}

/// Who may call, without a server around it: time is virtual here.
struct Door {
    access: Access,
    store: Arc<MemoryStore>,
}

impl Door {
    async fn beside(store: &Arc<MemoryStore>) -> Self {
        let shared: SharedStore = store.clone();
        let access = Access::start(Some(Secret::new(ADMIN)), shared, Arc::new(SystemClock::start())).await.unwrap();
        Self { access, store: store.clone() }
    }

    async fn new() -> Self {
        Self::beside(&Arc::new(MemoryStore::new())).await
    }

    async fn make(&self, number: u8) -> (ApiToken, String) {
        let scope = Scope::Organization(OrganizationId::parse("acme").unwrap());
        let (kept, token) =
            ApiToken::issue(scope, String::new(), jiff::Timestamp::UNIX_EPOCH, [number; 10], [number; 32]);
        self.store.create_token(kept.clone()).await.unwrap();
        (kept, token.reveal().to_owned())
    }

    async fn scope(&self, token: &str) -> Result<Scope, Problem> {
        self.access.scope(&Method::GET, &bearer(token)).await
    }

    /// The status that this token is answered with.
    async fn status(&self, token: &str) -> u16 {
        match self.scope(token).await {
            Ok(_) => 200,
            Err(problem) => axum::response::IntoResponse::into_response(problem).status().as_u16(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn s18_a_store_that_does_not_answer_is_503_and_never_a_verdict() {
    let door = Door::new().await;
    let ((_, valid), (_, other)) = (door.make(1).await, door.make(2).await);
    let invented = format!("hik_{}", "0".repeat(64));
    door.store.set_down(Operation::Tokens, true);
    for token in [&valid, &other, &invented] {
        assert_eq!(door.status(token).await, 503);
    }
    assert_eq!((door.status(ADMIN).await, door.status("hik_x").await), (200, 401), "nobody need be asked");
    door.store.set_down(Operation::Tokens, false);
    assert_eq!((door.status(&valid).await, door.status(&invented).await), (200, 401));
    door.store.set_down(Operation::Tokens, true);
    assert_eq!((door.status(&valid).await, door.status(&invented).await), (200, 401), "what was said holds a second");
    tokio::time::advance(MAX_TOKEN_AGE).await;
    assert_eq!((door.status(&valid).await, door.status(&invented).await), (503, 503));
}

#[tokio::test]
async fn s18_a_start_without_an_answer_about_tokens_is_no_start() {
    let memory = Arc::new(MemoryStore::new());
    memory.set_down(Operation::Tokens, true);
    let (store, clock): (SharedStore, SharedClock) = (memory.clone(), Arc::new(SystemClock::start()));
    assert!(Access::start(None, store, clock).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn s16_what_another_node_revokes_opens_nothing_here_after_a_second() {
    let here = Door::new().await;
    let there = Door::beside(&here.store).await;
    let (kept, token) = here.make(1).await;
    assert_eq!((here.status(&token).await, there.status(&token).await), (200, 200));
    here.store.revoke_token(None, &kept.id, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
    here.access.token_revoked();
    assert_eq!(here.status(&token).await, 401);
    tokio::time::advance(MAX_TOKEN_AGE).await;
    assert_eq!(there.status(&token).await, 401);
    assert!(MAX_TOKEN_AGE <= std::time::Duration::from_secs(1));
}

#[tokio::test]
async fn s16_a_flood_of_invented_tokens_takes_bounded_memory() {
    let door = Door::new().await;
    let (_, valid) = door.make(1).await;
    for number in 0..=MAX_KEPT_ANSWERS {
        assert_eq!(door.status(&format!("hik_{number:064x}")).await, 401);
        assert!(door.access.kept_answers() <= MAX_KEPT_ANSWERS);
    }
    assert_eq!(door.status(&valid).await, 200);
}

#[tokio::test]
async fn s13_what_is_almost_a_token_is_none() {
    let door = Door::new().await;
    let (_, token) = door.make(0xab).await;
    let cut = &token[..token.len() - 1];
    for bad in [
        cut.to_owned(),
        format!("{token}b"),
        format!("{cut}c"),
        token.to_uppercase(),
        token.replace("hik_", "hik_admin_"),
    ] {
        assert_eq!(door.status(&bad).await, 401, "{bad}");
    }
    for bad in [&ADMIN[1..], &ADMIN[..ADMIN.len() - 1], "A-token-of-enough-length"] {
        assert_eq!(door.status(bad).await, 401, "{bad}");
    }
    assert_eq!(door.scope(ADMIN).await.unwrap(), Scope::Admin);
    assert_eq!(door.scope(&token).await.unwrap().organization().unwrap().as_str(), "acme");
}

/// The store is asked on another thread, so a revocation can come while its answer is on the way.
#[tokio::test]
async fn s16_an_answer_from_before_a_revocation_is_not_kept_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let clock: SharedClock = Arc::new(SystemClock::start());
    let store: SharedStore =
        Arc::new(SqliteStore::open(&folder.path().join("h.db"), Seal::default(), &*clock).unwrap());
    let (kept, token) = ApiToken::issue(Scope::Admin, String::new(), clock.now(), [1; 10], [1; 32]);
    store.create_token(kept.clone()).await.unwrap();
    let access = Access::start(None, store.clone(), clock.clone()).await.unwrap();
    let headers = bearer(token.reveal());

    let mut asking = pin!(access.scope(&Method::GET, &headers));
    let asked_at_once = tokio::select! {
        biased;
        answer = &mut asking => Some(answer),
        () = std::future::ready(()) => None,
    };
    assert!(store.revoke_token(None, &kept.id, clock.now()).await.unwrap());
    access.token_revoked();
    if asked_at_once.is_none() {
        // It may have been read before or after the revocation; only what holds from now on matters.
        let _ = asking.await;
    }
    assert!(access.scope(&Method::GET, &headers).await.is_err());
}
