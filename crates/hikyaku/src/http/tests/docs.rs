use super::*;

#[tokio::test]
async fn s20_the_page_and_its_description_come_from_this_server_alone() {
    let api = Api::start_with(Some("a-token-of-the-test-api")).await;
    let description = api.get("/openapi.json").await;
    assert_eq!(
        (description.status.as_u16(), &description.headers["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    assert_eq!(description.json()["openapi"], "3.1.0");

    let page = api.get("/docs").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'self';") && !policy.contains("script-src"), "{policy}");
    // The one thing inline that is allowed, and only on this page: RapiDoc writes its colours as style elements (ADR 0009).
    assert_eq!(policy.matches("'unsafe-").count(), 1, "{policy}");
    assert!(policy.contains("; style-src 'self' 'unsafe-inline';"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let loaded = ["src=\"", "href=\"", "spec-url=\""].into_iter().flat_map(|kind| page.text.split(kind).skip(1));
    let loaded: Vec<_> = loaded.filter_map(|rest| rest.split('"').next()).filter(|url| *url != "data:,").collect();
    assert_eq!(loaded.len(), 4, "{loaded:?}");
    for url in loaded {
        assert!(url.starts_with('/'), "{url} is not of this server");
        let answer = api.get(url).await;
        assert_eq!(answer.status, 200, "{url}");
        assert!(!answer.text.is_empty());
        if url.starts_with("/docs/") {
            assert_eq!(answer.headers["x-content-type-options"], "nosniff", "{url}");
        }
    }
    for inline in ["<script>", "<style", " style=", " onload=", " onclick=", " onerror=", "javascript:"] {
        assert!(!page.text.contains(inline), "{inline} stands in the page itself");
    }
}
