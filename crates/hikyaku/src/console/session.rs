//! Who looks: signed in with a token of the API, which the browser keeps in a cookie that no script reads (S21).
//!
//! The cookie is the whole session: the server keeps none, so that any node knows it, and a token that is revoked ends it.

use std::sync::Arc;

use axum::extract::{Extension, State as Shared};
use axum::http::{HeaderMap, HeaderValue, header};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use minijinja::context;
use ring::hmac;
use serde_json::Value;

use super::Console;
use super::form::Form;
use super::page::{Answer, Failure, Page};
use super::path::InQuery;
use super::text::Language;
use crate::clock;

/// The cookie of the session: random, and behind a dot the token.
const SESSION: &str = "hikyaku-console";
/// The cookie of the language.
const LANGUAGE: &str = "hikyaku-language";
/// For how many seconds a language is remembered: a year.
const LANGUAGE_SECONDS: u32 = 365 * 24 * 60 * 60;
/// Random bytes of a session.
const SEED_BYTES: usize = 24;

/// Whoever a request comes from.
#[derive(Clone)]
pub(super) struct Visitor {
    /// The token that they have signed in with.
    pub(super) token: Option<String>,
    /// In which language they read.
    pub(super) language: Language,
    /// Which name they called this server by.
    pub(super) host: Option<HeaderValue>,
    /// Whether a proxy says that they came by https.
    pub(super) is_https: bool,
    seed: String,
    is_new: bool,
}

impl Visitor {
    /// What a request's headers say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let session = cookie(headers, SESSION).and_then(split);
        let is_new = session.is_none();
        let (seed, token) = session.unwrap_or_else(|| (seed(), None));
        let chosen = cookie(headers, LANGUAGE).and_then(Language::parse);
        let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
        let language = chosen.unwrap_or_else(|| Language::accepted(accepted.unwrap_or_default()));
        let is_https = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
        Self { token, language, host: headers.get(header::HOST).cloned(), is_https, seed, is_new }
    }

    /// The address that they reach this server at.
    pub(super) fn address(&self) -> String {
        let scheme = if self.is_https { "https" } else { "http" };
        let host = self.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        format!("{scheme}://{host}")
    }

    /// What the forms of our pages carry for this visitor.
    pub(super) fn form_token(&self) -> String {
        HEXLOWER.encode(hmac::sign(&self.key(), b"form").as_ref())
    }

    /// Whether a form with this token was made for this visitor, in constant time (S13). A session that begins with this very request made none.
    pub(super) fn made_form(&self, token: &str) -> bool {
        let tag = HEXLOWER.decode(token.as_bytes()).unwrap_or_default();
        !self.is_new && hmac::verify(&self.key(), b"form", &tag).is_ok()
    }

    /// The cookie to be set, where there is none yet.
    pub(super) fn first_cookie(&self) -> Option<HeaderValue> {
        self.is_new.then(|| self.session_cookie(&self.seed, None)).flatten()
    }

    fn key(&self) -> hmac::Key {
        let key = format!("{}.{}", self.seed, self.token.as_deref().unwrap_or_default());
        hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes())
    }

    /// It ends with the browser's own session; `Secure` where they came by https.
    fn session_cookie(&self, seed: &str, token: Option<&str>) -> Option<HeaderValue> {
        let token = token.map(|token| format!(".{}", BASE64URL_NOPAD.encode(token.as_bytes()))).unwrap_or_default();
        self.cookie(&format!("{SESSION}={seed}{token}; HttpOnly"))
    }

    fn cookie(&self, cookie: &str) -> Option<HeaderValue> {
        let secure = if self.is_https { "; Secure" } else { "" };
        format!("{cookie}; Path=/console; SameSite=Strict{secure}").parse().ok()
    }
}

/// A new session's random part.
fn seed() -> String {
    BASE64URL_NOPAD.encode(&clock::random::<SEED_BYTES>())
}

/// Random and token of a session's cookie.
fn split(cookie: &str) -> Option<(String, Option<String>)> {
    let (seed, token) = cookie.split_once('.').map_or((cookie, None), |(seed, token)| (seed, Some(token)));
    if BASE64URL_NOPAD.decode(seed.as_bytes()).ok()?.len() != SEED_BYTES {
        return None;
    }
    let Some(token) = token else { return Some((seed.to_owned(), None)) };
    let token = String::from_utf8(BASE64URL_NOPAD.decode(token.as_bytes()).ok()?).ok()?;
    Some((seed.to_owned(), Some(token).filter(|token| !token.is_empty())))
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// The page that asks for a token.
pub(super) async fn ask(query: InQuery) -> Page {
    sign_in_page(query.text("to"), false)
}

fn sign_in_page(to: &str, is_wrong: bool) -> Page {
    Page::new("sign-in.html", context! { to => own_path(to), is_wrong })
}

/// Signs in, if the API takes the token.
pub(super) async fn sign_in(
    Shared(console): Shared<Arc<Console>>,
    Extension(visitor): Extension<Visitor>,
    form: Form,
) -> Result<Answer, Failure> {
    let (token, to) = (form.text("token"), form.text("to"));
    if token.is_empty() || HeaderValue::from_str(token).is_err() {
        return Ok(sign_in_page(to, true).into());
    }
    let tried = Visitor { token: Some(token.to_owned()), ..visitor.clone() };
    match console.api.get::<Value>(&tried, "/v1/caller").await {
        Ok(_) => Ok(Answer::go(own_path(to)).with_cookie(visitor.session_cookie(&seed(), Some(token)))),
        Err(Failure::SignIn) => Ok(sign_in_page(to, true).into()),
        Err(failure) => Err(failure),
    }
}

/// Forgets the token.
pub(super) async fn sign_out(Extension(visitor): Extension<Visitor>, _: Form) -> Answer {
    Answer::go("/console/sign-in").with_cookie(visitor.session_cookie(&seed(), None))
}

/// Remembers in which language to speak, and goes back.
pub(super) async fn set_language(Extension(visitor): Extension<Visitor>, form: Form) -> Answer {
    let language = Language::parse(form.text("language")).unwrap_or(visitor.language);
    let cookie = format!("{LANGUAGE}={}; Max-Age={LANGUAGE_SECONDS}", language.code());
    Answer::go(own_path(form.text("to"))).with_cookie(visitor.cookie(&cookie))
}

/// A path within the console, whatever was asked for: nobody is sent elsewhere by a link to us.
fn own_path(path: &str) -> &str {
    let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_own = path == "/console" || path.starts_with("/console/") || path.starts_with("/console?");
    if is_plain && is_own && !path.starts_with("/console/sign-") { path } else { "/console" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(cookies: &str) -> Visitor {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, cookies.parse().unwrap());
        Visitor::of(&headers)
    }

    #[test]
    fn s21_a_session_is_its_cookie_and_its_forms_are_nobody_elses() {
        let first = visitor("x=1");
        assert!(first.token.is_none() && !first.made_form(&first.form_token()), "no page was made for it yet");
        let cookie = first.session_cookie(&seed(), Some("tökén;=")).unwrap();
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.ends_with("; HttpOnly; Path=/console; SameSite=Strict"), "{cookie}");
        let signed_in = visitor(&format!("a=b; {}", cookie.split(';').next().unwrap()));
        assert_eq!(signed_in.token.as_deref(), Some("tökén;="));
        assert!(signed_in.made_form(&signed_in.form_token()));
        let other = visitor(&format!("{SESSION}={}", seed()));
        for foreign in [other.form_token(), first.form_token(), String::new(), "zz".to_owned()] {
            assert!(!signed_in.made_form(&foreign));
        }
        for broken in ["", ".", "short", "a.b.c", &format!("{}.!", seed())] {
            assert!(visitor(&format!("{SESSION}={broken}")).is_new, "{broken}");
        }
    }

    #[test]
    fn nobody_is_sent_to_another_site() {
        for own in ["/console", "/console/acme/events/a%2Fb?x=1", "/console?x"] {
            assert_eq!(own_path(own), own);
        }
        for foreign in [
            "",
            "https://evil.example",
            "//evil.example",
            "/consoles",
            "/console\\evil",
            "/console/\n",
            "/v1",
            "/console/sign-out",
        ] {
            assert_eq!(own_path(foreign), "/console", "{foreign}");
        }
    }
}
