//! One attempt, from the URL to the answer.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method, StatusCode, response};
use bytes::{Bytes, BytesMut};
use hikyaku_core::address::{Refusal, TargetPolicy};
use hikyaku_core::delivery::{FailureKind, Outcome};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::time::{Sleep, timeout};
use url::{Host, Position, Url};

use super::connector::{Connection, Connector, Target};
use super::dial::Tcp;
use super::failure::Failure;
use super::pool::Pool;
use super::resolve::Resolve;
use super::tls::{self, TlsError};
use super::{MAX_RESPONSE_BODY_BYTES, Request, Response};
use crate::clock::SharedClock;

/// How long registering a webhook waits for its name.
const MAX_VET: Duration = Duration::from_secs(3);
/// How long a connection that has answered in full may take to be ready for another request.
const MAX_SETTLE: Duration = Duration::from_millis(100);

type Message = axum::http::Request<Full<Bytes>>;
type Answer = axum::http::Response<Incoming>;

/// Makes requests to other people's servers. HTTP/1.1 only, no redirects (S5), no proxy (S6), no decompression (S10),
/// and never a second request for one call.
pub struct Client {
    pub(super) connector: Connector,
    pub(super) pool: Arc<Pool>,
    clock: SharedClock,
}

impl Client {
    /// A client that delivers to what `policy` allows and trusts the machine's certificate authorities and
    /// `extra_roots`. To be called inside a tokio runtime.
    ///
    /// # Errors
    /// If there is no certificate authority to trust (only a warning where plain http is allowed), or one of
    /// `extra_roots` is no certificate.
    pub fn new(
        policy: TargetPolicy,
        resolver: Arc<dyn Resolve>,
        clock: SharedClock,
        extra_roots: &[CertificateDer<'static>],
    ) -> Result<Self, TlsError> {
        let tls = tls::connector(extra_roots, !policy.allow_http)?;
        let connector = Connector { policy, resolver, dial: Arc::new(Tcp), tls };
        Ok(Self { connector, pool: Pool::start(clock.clone()), clock })
    }

    /// The same client over another network.
    #[cfg(test)]
    pub(crate) fn over(mut self, network: Arc<dyn super::dial::Dial>) -> Self {
        self.connector.dial = network;
        self
    }

    /// Whether a URL may be registered: refuses what every attempt would refuse (S1-S7). A name that cannot be
    /// resolved now is let through; it may be up later, and is vetted again on every attempt.
    pub async fn vet(&self, url: &Url) -> Result<(), Refusal> {
        let policy = &self.connector.policy;
        policy.vet_url(url)?;
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        let Ok(Ok(addresses)) = timeout(MAX_VET, self.connector.resolver.resolve(name)).await else { return Ok(()) };
        let port = url.port_or_known_default().unwrap_or_default();
        addresses.into_iter().try_for_each(|address| policy.vet_address(address, port))
    }

    /// Makes one request. From the call until a status has come, everything together must fit into the request's
    /// timeout (S8). The status decides; what the body does after it changes nothing (S9).
    pub async fn post(&self, request: Request) -> Response {
        let started = self.clock.schedule();
        let answered = self.attempt(&Method::POST, &request, MAX_RESPONSE_BODY_BYTES).await;
        self.response(started, answered.map(|(head, body, _)| (head, body)))
    }

    /// Makes one request, and takes nothing less than the whole answer: see [`super::Exchange`].
    pub async fn exchange(&self, method: Method, request: Request, max_body_bytes: usize) -> Response {
        let started = self.clock.schedule();
        let answered = self.attempt(&method, &request, max_body_bytes).await;
        let whole = answered.and_then(|(head, body, is_whole)| match is_whole {
            true => Ok((head, body)),
            false if body.len() == max_body_bytes => Err(Failure::too_large(max_body_bytes)),
            false => Err(Failure::cut_off(request.timeout)),
        });
        self.response(started, whole)
    }

    fn response(&self, started: Timestamp, answered: Result<(response::Parts, Bytes), Failure>) -> Response {
        let duration = self.clock.schedule().duration_since(started).unsigned_abs();
        match answered {
            Ok((head, body)) => Response {
                outcome: Outcome::Answered(head.status.as_u16()),
                error: String::new(),
                headers: head.headers,
                body,
                duration,
            },
            Err(failure) => Response {
                outcome: Outcome::Failed(failure.kind),
                error: failure.sentence,
                headers: HeaderMap::new(),
                body: Bytes::new(),
                duration,
            },
        }
    }

    async fn attempt(
        &self,
        method: &Method,
        request: &Request,
        max_body_bytes: usize,
    ) -> Result<(response::Parts, Bytes, bool), Failure> {
        let mut deadline = pin!(tokio::time::sleep(request.timeout));
        let (target, connection, answer) = tokio::select! {
            // A status that is there at the deadline has come in time.
            biased;
            exchanged = self.send(method, request) => exchanged?,
            () = deadline.as_mut() => return Err(Failure::timeout(request.timeout)),
        };
        let (head, body) = answer.into_parts();
        let (body, is_whole) = read_body(body, deadline, max_body_bytes).await;
        if is_whole && !may_send_more(&head) {
            self.keep(target, connection).await;
        }
        Ok((head, body, is_whole))
    }

    /// Sends the request and waits for the head of its answer. Nothing is sent once the deadline has passed: where the
    /// process stood still meanwhile, another one may be making the next attempt.
    async fn send(&self, method: &Method, request: &Request) -> Result<(Target, Connection, Answer), Failure> {
        let began = self.clock.schedule();
        let in_time = || match self.clock.schedule().duration_since(began).unsigned_abs() < request.timeout {
            true => Ok(()),
            false => Err(Failure::timeout(request.timeout)),
        };
        let target = self.connector.target(&request.url).await?;
        in_time()?;
        let mut message = message(method, request)?;
        if let Some(mut kept) = self.pool.take(&target) {
            match kept.sender.try_send_request(message).await {
                Ok(answer) => return Ok((target, kept, answer)),
                // A request that is handed back was not begun: nothing of it is on the wire, and a fresh connection
                // makes it the only one. One that was begun may have arrived, so it is over.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => message = unsent,
                    None => return Err(Failure::exchange(&target.host, error.error())),
                },
            }
        }
        let mut fresh = self.connector.connect(&target).await?;
        in_time()?;
        match fresh.sender.try_send_request(message).await {
            Ok(answer) => Ok((target, fresh, answer)),
            Err(error) => Err(Failure::exchange(&target.host, error.error())),
        }
    }

    async fn keep(&self, target: Target, mut connection: Connection) {
        if matches!(timeout(MAX_SETTLE, connection.sender.ready()).await, Ok(Ok(()))) {
            self.pool.put(target, connection);
        }
    }
}

/// The request as it goes on the wire. What frames it is ours, whatever the caller's headers say.
fn message(method: &Method, request: &Request) -> Result<Message, Failure> {
    let unsayable = || Failure::new(FailureKind::TargetRefused, "the URL cannot be written into an HTTP request");
    let url = &request.url;
    let mut message = Message::new(Full::new(request.body.clone()));
    message.method_mut().clone_from(method);
    *message.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse().map_err(|_| unsayable())?;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]).map_err(|_| unsayable())?;
    let headers = message.headers_mut();
    headers.clone_from(&request.headers);
    for framing in [CONNECTION, EXPECT, TRANSFER_ENCODING] {
        headers.remove(framing);
    }
    headers.insert(HOST, host);
    headers.insert(CONTENT_LENGTH, request.body.len().into());
    Ok(message)
}

/// The first bytes of a body, and whether they are all of it. What breaks or outlasts the deadline is cut off there.
async fn read_body(mut incoming: Incoming, mut deadline: Pin<&mut Sleep>, max_bytes: usize) -> (Bytes, bool) {
    let mut body = BytesMut::new();
    let mut is_whole = false;
    while body.len() <= max_bytes {
        let frame = tokio::select! {
            biased;
            frame = incoming.frame() => frame,
            () = deadline.as_mut() => break,
        };
        match frame {
            Some(Ok(frame)) => body.extend(frame.into_data()),
            Some(Err(_)) => break,
            None => {
                is_whole = true;
                break;
            }
        }
    }
    body.truncate(max_bytes);
    (body.freeze(), is_whole)
}

/// Whether an answer that has no body announces one: its bytes would be taken for the next answer's.
fn may_send_more(head: &response::Parts) -> bool {
    let has_none = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let is_empty = head.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
    has_none && (!is_empty || head.headers.contains_key(TRANSFER_ENCODING))
}
