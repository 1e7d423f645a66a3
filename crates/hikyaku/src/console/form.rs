//! What a visitor sends: the fields of a form of ours, and nothing else (S21).

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, Uri, header};
use url::form_urlencoded;

use super::Console;
use super::page::Failure;
use super::session::Visitor;

/// Most bytes of a form.
const MAX_FORM_BYTES: usize = 128 * 1024;
/// The field that shows that a form is ours.
pub(super) const TOKEN_FIELD: &str = "form";

/// A form that came from a page of ours: this server's own origin sent it, with the token that only our pages know.
pub(super) struct Form {
    fields: Vec<(String, String)>,
}

impl FromRequest<Arc<Console>> for Form {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &Arc<Console>) -> Result<Self, Failure> {
        let (head, body) = request.into_parts();
        let visitor =
            head.extensions.get::<Visitor>().ok_or_else(|| Failure::Broken("a form without its visitor".into()))?;
        if !is_own(&head.headers) {
            return Err(Failure::Foreign);
        }
        let bytes = to_bytes(body, MAX_FORM_BYTES).await.map_err(|_| Failure::Foreign)?;
        let fields: Vec<_> = form_urlencoded::parse(&bytes).into_owned().collect();
        let form = Self { fields };
        match visitor.made_form(form.text(TOKEN_FIELD)) {
            true => Ok(form),
            false => Err(Failure::Foreign),
        }
    }
}

impl Form {
    /// A field's value; empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.trim())
    }
}

/// Whether the browser says that one of our own pages sends this. A browser too old for `Sec-Fetch-Site` says `Origin`, whose
/// scheme does not matter: a proxy before us may speak https.
fn is_own(headers: &HeaderMap) -> bool {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let (value, None) = (values.next()?, values.next()) else { return None };
        value.to_str().ok()
    };
    if headers.contains_key("sec-fetch-site") {
        return one("sec-fetch-site") == Some("same-origin");
    }
    let origin = one(header::ORIGIN.as_str()).and_then(|origin| origin.parse::<Uri>().ok());
    let authority = origin.as_ref().and_then(Uri::authority).map(|authority| authority.as_str());
    authority.is_some() && authority == one(header::HOST.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s21_only_our_own_pages_may_send() {
        let own = |lines: &[(&'static str, &'static str)]| {
            let pairs = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let mut headers = HeaderMap::new();
            pairs.for_each(|(name, value): (header::HeaderName, header::HeaderValue)| {
                headers.append(name, value);
            });
            is_own(&headers)
        };
        let host = ("host", "hooks.example:8080");
        assert!(own(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(own(&[host, ("origin", "http://hooks.example:8080")]));
        assert!(own(&[host, ("origin", "https://hooks.example:8080")]));
        for foreign in [
            vec![host],
            vec![host, ("sec-fetch-site", "none")],
            vec![host, ("sec-fetch-site", "same-site"), ("origin", "http://hooks.example:8080")],
            vec![host, ("sec-fetch-site", "cross-site")],
            vec![host, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            vec![host, ("origin", "null")],
            vec![host, ("origin", "http://hooks.example")],
            vec![host, ("origin", "http://evil.example")],
            vec![("origin", "http://hooks.example:8080")],
        ] {
            assert!(!own(&foreign), "{foreign:?}");
        }
    }
}
