//! What a web page in a browser on this machine may not do while the API is open (no token exists): drive it.
//!
//! A page of any site can send requests to `localhost`. It cannot read the answers, unless its own name is made to point
//! to 127.0.0.1 (DNS rebinding): then `Host` carries that name. And it need not read the answer to a request that changes
//! something: those carry `Origin` or `Sec-Fetch-Site`, which no page can forge. Other programs send neither.

use axum::http::header::{AsHeaderName, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method};
use url::{Host, Url};

use super::problem::{FieldError, Kind, Problem};

const FETCH_SITE: &str = "sec-fetch-site";

/// Refuses a request that may come from a web page of another site.
pub(super) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(HOST) {
        return Err(Problem::of_fields(
            Kind::InvalidRequest,
            vec![FieldError::new("host", "is missing: HTTP/1.1 needs it")],
        ));
    }
    let Some(host) = only(headers, HOST).filter(|host| is_this_machine(host)) else {
        return Err(foreign(
            "its Host is not localhost or a loopback address, as when a site's name is made to point here; call \
             127.0.0.1, or make an API token",
        ));
    };
    if method.is_safe() {
        return Ok(());
    }
    if headers.contains_key(ORIGIN) && only(headers, ORIGIN).is_none_or(|origin| !is_same(origin, host)) {
        return Err(foreign("its Origin is not this server"));
    }
    let is_own = |site| matches!(site, "same-origin" | "none");
    if headers.contains_key(FETCH_SITE) && !only(headers, FETCH_SITE).is_some_and(is_own) {
        return Err(foreign("its Sec-Fetch-Site says that it comes from another site"));
    }
    Ok(())
}

fn foreign(reason: &str) -> Problem {
    let detail = format!("No API token exists, so web pages must be kept out, and this may be one: {reason}.");
    Problem::new(Kind::ForeignOrigin, detail)
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    value.to_str().ok()
}

/// Whether a `Host` names this machine. The name is the parser's, never cut out of the text (S3).
fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    // A user name is no part of a Host, and would hide which name is meant.
    if host.contains('@') {
        return false;
    }
    match Host::parse(authority.host()) {
        Ok(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Ok(Host::Ipv4(address)) => address.is_loopback(),
        Ok(Host::Ipv6(address)) => address.is_loopback(),
        Err(_) => false,
    }
}

/// Whether an `Origin` is that of a page that this very host has served.
fn is_same(origin: &str, host: &str) -> bool {
    let own = Url::parse(&format!("http://{host}/"));
    let (Ok(origin), Ok(own)) = (Url::parse(origin), own) else { return false };
    // Opaque origins ("null") are equal to nothing, themselves included.
    origin.origin().is_tuple() && origin.origin() == own.origin()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn verdict(method: Method, headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        check(&method, &map).is_ok()
    }

    #[test]
    fn a_host_that_is_not_this_machine_is_refused_whatever_the_method() {
        for host in [
            "localhost",
            "localhost:8080",
            "LOCALHOST:80",
            "x.localhost:1",
            "127.0.0.1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]",
            "[::1]:8080",
        ] {
            assert!(verdict(Method::GET, &[("host", host)]), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil.example@localhost",
            "10.0.0.1",
            "0.0.0.0:8080",
            "[::]",
            "[fe80::1]:80",
            "localhost, evil.example",
            "localhost/evil.example",
            "[::ffff:10.0.0.1]",
            "::1",
            "xn--lcalhost-5jf",
        ] {
            assert!(!verdict(Method::GET, &[("host", host)]), "{host}");
            assert!(!verdict(Method::POST, &[("host", host)]), "{host}");
        }
        assert!(!verdict(Method::GET, &[]));
        assert!(!verdict(Method::GET, &[("host", "localhost"), ("host", "localhost")]));
    }

    #[test]
    fn what_changes_something_must_come_from_this_server_or_from_no_page() {
        let host = ("host", "127.0.0.1:8080");
        for method in [Method::POST, Method::PATCH, Method::PUT, Method::DELETE] {
            assert!(verdict(method.clone(), &[host]));
            for own in ["http://127.0.0.1:8080", "HTTP://127.0.0.1:8080"] {
                assert!(verdict(method.clone(), &[host, ("origin", own)]), "{own}");
            }
            for foreign in [
                "null",
                "",
                "http://127.0.0.1",
                "http://127.0.0.1:3000",
                "https://127.0.0.1:8080",
                "http://localhost:8080",
                "http://evil.example",
                "http://127.0.0.1:8080.evil.example",
                "file:///x",
            ] {
                assert!(!verdict(method.clone(), &[host, ("origin", foreign)]), "{foreign}");
                assert!(verdict(Method::GET, &[host, ("origin", foreign)]), "{foreign}");
            }
            for (site, taken) in
                [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false), ("x", false)]
            {
                assert_eq!(verdict(method.clone(), &[host, ("sec-fetch-site", site)]), taken, "{site}");
            }
            let twice = [host, ("origin", "http://127.0.0.1:8080"), ("origin", "http://evil.example")];
            assert!(!verdict(method.clone(), &twice));
        }
        assert!(verdict(Method::POST, &[("host", "localhost"), ("origin", "http://localhost:80")]));
    }
}
