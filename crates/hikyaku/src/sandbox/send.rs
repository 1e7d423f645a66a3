//! One request to a receiver, in the manner that was decided.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::{FailureKind, Outcome};
use hikyaku_core::signature::Secret;
use hikyaku_core::signature::receiptroller::{self, DELIVERY_HEADER, SIGNATURE_HEADER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use url::Url;

use super::engine::{Manner, Outgoing};
use crate::clock::SharedClock;
use crate::outbound::{Client, Request, SystemResolver, Transport};

/// Pieces in which a dripping body comes.
const DRIP_PIECES: usize = 8;
/// The start of an answer that is read: enough for a status line.
const STATUS_LINE_BYTES: usize = 12;

/// Brings requests to receivers: the seam between the sandbox and the network.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Makes one request and says what came of it, within `timeout`.
    async fn send(&self, outgoing: &Outgoing, timeout: Duration) -> Outcome;
}

/// The real network.
pub struct Network(pub Arc<dyn Transport>);

impl Network {
    /// Opens it. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// If names cannot be resolved or TLS cannot be set up.
    pub fn open(clock: &SharedClock) -> io::Result<Self> {
        let resolver = SystemResolver::new().map_err(io::Error::other)?;
        let client = Client::new(TargetPolicy::everywhere(), Arc::new(resolver), Arc::clone(clock), &[]);
        Ok(Self(Arc::new(client.map_err(io::Error::other)?)))
    }
}

#[async_trait]
impl Courier for Network {
    async fn send(&self, outgoing: &Outgoing, timeout: Duration) -> Outcome {
        let url = outgoing.attempt.url.clone();
        let (headers, body) = message(outgoing);
        if outgoing.manner == Manner::Drip && url.scheme() == "http" {
            let dripped = tokio::time::timeout(timeout, drip(&url, &headers, &body, timeout / 2)).await;
            return match dripped {
                Ok(Ok(status)) => Outcome::Answered(status),
                Ok(Err(_)) => Outcome::Failed(FailureKind::Reset),
                Err(_) => Outcome::Failed(FailureKind::Timeout),
            };
        }
        self.0.post(Request { url, headers, body, timeout }).await.outcome
    }
}

/// The headers and the body of a request.
pub fn message(outgoing: &Outgoing) -> (HeaderMap, Bytes) {
    let event = &outgoing.attempt.event;
    let body = match outgoing.manner {
        // One byte more: what was signed is not what comes.
        Manner::Tampered => Bytes::from([&event.body[..], b" "].concat()),
        _ => event.body.clone(),
    };
    let signature = match outgoing.manner {
        Manner::Unsigned => None,
        Manner::WrongSignature => Some(receiptroller::sign(&Secret::new("a stranger's"), &body)),
        _ => Some(outgoing.attempt.signature.clone()),
    };
    (delivery_headers(&event.id, signature.as_deref()), body)
}

/// The headers that the provider sends with a body.
pub(crate) fn delivery_headers(id: &str, signature: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in [(SIGNATURE_HEADER, signature), (DELIVERY_HEADER, Some(id))] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Sends a body piece by piece over `length`, and reads the status.
async fn drip(url: &Url, headers: &HeaderMap, body: &[u8], length: Duration) -> io::Result<u16> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let mut stream = TcpStream::connect((host, url.port_or_known_default().unwrap_or(80))).await?;
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
    let mut head =
        format!("POST {path} HTTP/1.1\r\nhost: {authority}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    for piece in body.chunks(body.len().div_ceil(DRIP_PIECES).max(1)) {
        tokio::time::sleep(length / u32::try_from(DRIP_PIECES).unwrap_or(u32::MAX)).await;
        stream.write_all(piece).await?;
    }
    let mut line = [0; STATUS_LINE_BYTES];
    stream.read_exact(&mut line).await?;
    let status = std::str::from_utf8(&line[9..]).ok().and_then(|text| text.parse().ok());
    status.ok_or_else(|| io::Error::other("what came back is not HTTP"))
}
