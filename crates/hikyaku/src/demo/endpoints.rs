//! The receivers of the demo: one that fails in many ways but never four times, and one that never accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::api::Api;
use super::say::Say;

/// Largest body that the demo's receivers take, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a receiver that "hangs" does so: longer than any attempt of the demo waits.
const HANG: Duration = Duration::from_secs(30);

/// What a receiver does with one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Takes it and says so.
    None,
    /// Answers with a status and does not take it.
    Answers(u16),
    /// Takes it, then answers 500: a duplicate will come (R23).
    TakesThenFails,
    /// Never answers.
    Hangs,
    /// Closes the connection instead of answering.
    Resets,
}

impl Fault {
    /// The fault for the `attempt`-th attempt of the `n`-th event. Never four in a row.
    fn of(n: usize, attempt: u32) -> Self {
        match (n % 23, attempt) {
            (2, 1) => Self::Answers(500),
            (5, 1) | (5, 2) => Self::Answers(404),
            (7, 1) => Self::TakesThenFails,
            (11, 1) => Self::Hangs,
            (14, 1) => Self::Resets,
            (17, 1) | (17, 2) => Self::TakesThenFails,
            // Once in the demo an event needs all four.
            (19, 1..=3) if n == 19 => Self::Answers(503),
            _ => Self::None,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::None => "taken, answered 200".into(),
            Self::Answers(status) => format!("answered {status}, not taken"),
            Self::TakesThenFails => "taken, but answered 500: it will come again".into(),
            Self::Hangs => "no answer until the sender gives up".into(),
            Self::Resets => "connection closed in place of an answer".into(),
        }
    }
}

/// What a receiver saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Attempts per delivery id.
    pub(super) attempts: BTreeMap<String, u32>,
    /// Deliveries handed on to the inbox, repeats included.
    pub(super) handed_on: u32,
    /// Delivery ids handed on.
    pub(super) taken: BTreeSet<String>,
}

/// A receiver on a free loopback port.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    /// Where it listens.
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// What a receiver is like.
#[derive(Debug, Clone)]
pub(super) enum Character {
    /// Fails in many ways and hands the rest on to the inbox.
    Moody(Api),
    /// Always answers 500.
    Closed,
    /// Hands what comes on to the inbox while it is open, and answers 503 while it is not.
    Gate {
        /// Whether it is open.
        open: Arc<AtomicBool>,
        /// The inbox, once it can be reached.
        inbox: Arc<OnceLock<Api>>,
    },
}

impl Endpoint {
    /// Starts a receiver that lives as long as the process.
    pub(super) async fn start(character: Character, say: Say) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = Self { address: listener.local_addr()?, seen: Arc::default() };
        let serving = endpoint.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (endpoint, character, say) = (serving.clone(), character.clone(), say.clone());
                let service = service_fn(move |request| {
                    let (endpoint, character, say) = (endpoint.clone(), character.clone(), say.clone());
                    async move { endpoint.answer(request, character, say).await }
                });
                // A broken connection is part of the show.
                tokio::spawn(
                    async move { http1::Builder::new().serve_connection(TokioIo::new(stream), service).await },
                );
            }
        });
        Ok(endpoint)
    }

    /// Looks at what it saw.
    pub(super) fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn hand_on(&self, id: String) {
        self.seen(|seen| {
            seen.handed_on += 1;
            seen.taken.insert(id);
        });
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        character: Character,
        say: Say,
    ) -> Result<Response<Full<Bytes>>, Broken> {
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(|_| Broken)?.to_bytes();
        let id = parts.headers.get("x-rr-delivery").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        let (n, attempt) = self.seen(|seen| {
            let attempt = seen.attempts.entry(id.clone()).or_default();
            *attempt += 1;
            let attempt = *attempt;
            (say.number(&id), attempt)
        });
        let inbox = match character {
            Character::Moody(inbox) => inbox,
            Character::Closed => {
                if n == 0 {
                    say.line(&format!("old system  attempt {attempt} of {}: answered 500", say.label(&id)));
                }
                return Ok(status(500));
            }
            Character::Gate { open, inbox } => {
                let inbox = inbox.get().filter(|_| open.load(Ordering::Acquire));
                let Some(inbox) = inbox else { return Ok(status(503)) };
                let answer = inbox.forward("shop", &parts.headers, body).await;
                self.hand_on(id);
                return Ok(status(answer));
            }
        };
        let fault = Fault::of(n, attempt);
        if fault != Fault::None || attempt > 1 {
            say.line(&format!("books       attempt {attempt} of {}: {}", say.label(&id), fault.describe()));
        }
        match fault {
            Fault::Answers(code) => Ok(status(code)),
            Fault::Resets => Err(Broken),
            Fault::Hangs => {
                tokio::time::sleep(HANG).await;
                Err(Broken)
            }
            Fault::None | Fault::TakesThenFails => {
                let answer = inbox.forward("receiptroller", &parts.headers, body).await;
                self.hand_on(id);
                Ok(status(if fault == Fault::None { answer } else { 500 }))
            }
        }
    }
}

fn status(code: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Makes hyper drop the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the demo's receiver breaks off")]
struct Broken;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r11_the_moody_receiver_never_fails_four_times() {
        for n in 0..500 {
            assert_eq!(Fault::of(n, 4), Fault::None, "{n}");
        }
        let shown: BTreeSet<String> = (0..46).map(|n| Fault::of(n, 1).describe()).collect();
        assert!(shown.len() >= 6, "{shown:?}");
    }
}
