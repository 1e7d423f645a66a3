//! A small client of the program's own HTTP API, for the command line and the demo: JSON in, JSON out, problem documents
//! as errors. It speaks plain http, and takes no notice of variables like `HTTP_PROXY`.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Error};
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

/// How long a call may take, from the connection to the answer's last byte.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer that is taken, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Why a call did not work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// What was given as a server's address is none.
    #[error("{0:?} is not the address of a server; write http://HOST:PORT")]
    Address(String),
    /// What was given as a token cannot be one.
    #[error("the token holds characters that no token has")]
    Token,
    /// There was no whole answer. A call that changes something may have been carried out.
    #[error("no answer from {server}: {reason}")]
    NoAnswer {
        /// The server's address.
        server: String,
        /// Why not.
        reason: String,
    },
    /// The server answered with an error.
    #[error("the server answered {status}: {}", sentence(problem))]
    Refused {
        /// The answer's status.
        status: u16,
        /// The problem document; `null` where the answer was none.
        problem: Value,
    },
}

/// A good answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status, from 200 to 299.
    pub status: u16,
    /// The body; `null` where it is no JSON.
    pub json: Value,
}

/// A client of one server. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    server: String,
    authorization: Option<HeaderValue>,
    http: legacy::Client<HttpConnector, Full<Bytes>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Client {
    /// A client for the server at `http://HOST:PORT`, which presents `token` if there is one.
    ///
    /// # Errors
    /// The address or the token cannot be one. Nothing is connected yet.
    pub fn new(server: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let address = Url::parse(server).ok().filter(|url| url.scheme() == "http" && url.path() == "/");
        let address = address.ok_or_else(|| ClientError::Address(server.to_owned()))?;
        let authorization = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ClientError::Token)?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self {
            server: address.origin().ascii_serialization(),
            authorization: authorization.transpose()?,
            http: legacy::Client::builder(TokioExecutor::new()).build_http(),
        })
    }

    /// The server's address, as `http://HOST:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Calls a path of the API, percent-encoded where it must be (see [`segment`]), with its query.
    ///
    /// # Errors
    /// No answer came, or one whose status is not 2xx.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, ClientError> {
        let (status, bytes) = self.call_raw(method, path, body.map(Value::to_string)).await?;
        Ok(Answer { status, json: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }

    /// As [`Self::call`], with the JSON of both sides to the byte; gives the answer's status too.
    ///
    /// # Errors
    /// No answer came, or one whose status is not 2xx.
    pub async fn call_raw(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, Bytes), ClientError> {
        let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        let headers = if body.is_some() { &json[..] } else { &[] };
        let (status, bytes) = self.exchange(method, path, headers, body.unwrap_or_default().into()).await?;
        match status {
            200..=299 => Ok((status, bytes)),
            _ => Err(ClientError::Refused { status, problem: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }),
        }
    }

    /// Sends any request, and gives back the answer's status and body as they are.
    ///
    /// # Errors
    /// No whole answer came.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<(u16, Bytes), ClientError> {
        let failed = |reason: String| ClientError::NoAnswer { server: self.server.clone(), reason };
        let has_length = method == Method::POST;
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.server));
        if has_length {
            // hyper leaves it out where there is no body; a proxy may insist on it (411).
            request = request.header(CONTENT_LENGTH, body.len());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let response = self.http.request(request).await.map_err(|error| failed(reason(&error)))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
            Ok((status, body.map_err(|error| failed(error.to_string()))?.to_bytes()))
        };
        let late = || failed(format!("it did not answer within {} s", CALL_TIMEOUT.as_secs()));
        timeout(CALL_TIMEOUT, exchange).await.map_err(|_| late())?
    }
}

/// A text as one segment of a path: what could mean something else there is percent-encoded.
pub fn segment(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~' | b'.');
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

/// The innermost cause: the outer ones say that a request failed.
fn reason(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// A problem document in one sentence.
fn sentence(problem: &Value) -> String {
    let text = |name| problem[name].as_str();
    match (text("title"), text("detail")) {
        (Some(title), Some(detail)) => format!("{title}. {detail}"),
        _ => "without saying why; is it a Hikyaku server?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_plain_http_and_a_token_a_header_value() {
        for good in ["http://127.0.0.1:8080", "http://localhost/", "http://[::1]:1"] {
            assert!(Client::new(good, Some("hik_x")).is_ok(), "{good}");
        }
        for bad in ["", "localhost:8080", "https://x.example", "http://h/path", "http://"] {
            let error = Client::new(bad, None).unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
        assert!(matches!(Client::new("http://h", Some("a\nb")), Err(ClientError::Token)));
    }

    #[test]
    fn a_segment_holds_any_id() {
        assert_eq!(segment("t1|2026-13|a/b?%"), "t1%7C2026-13%7Ca%2Fb%3F%25");
        assert_eq!(segment("wh_0-a.b~"), "wh_0-a.b~");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_an_error_that_names_it() {
        // No free port: another test could take it meanwhile.
        let gone = "127.0.0.1:1";
        let client = Client::new(&format!("http://{gone}"), None).unwrap();
        let error = client.call(Method::GET, "/healthz", None).await.unwrap_err().to_string();
        assert!(error.contains(gone) && error.contains("refused"), "{error}");
    }

    #[test]
    fn a_problem_document_is_told_in_words() {
        let problem = serde_json::json!({"title": "Not found", "detail": "There is no token \"x\"."});
        let error = ClientError::Refused { status: 404, problem }.to_string();
        assert_eq!(error, "the server answered 404: Not found. There is no token \"x\".");
        assert!(ClientError::Refused { status: 502, problem: Value::Null }.to_string().contains("502"));
    }
}
