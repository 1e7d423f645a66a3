//! The endpoints: a server that answers 200 to everything, as its path says: at once, late, or never.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::load::nanos;

/// How long an endpoint takes whose path begins with `/slow`.
pub(crate) const SLOW: Duration = Duration::from_millis(50);
/// How long nothing may arrive while something is waited for.
const MAX_SILENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether something has arrived.
const LOOK: Duration = Duration::from_millis(5);

/// A server that counts what arrives, but for what goes to paths that begin with `/hang`.
pub(crate) struct Endpoint {
    pub(crate) addr: SocketAddr,
    arrivals: Arc<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    count: AtomicU64,
    last: AtomicU64,
    micros: Mutex<Vec<u32>>,
}

impl Endpoint {
    pub(crate) async fn start() -> Result<Self, Error> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let arrivals = Arc::new(Arrivals::default());
        tokio::spawn(accept(listener, arrivals.clone()));
        Ok(Self { addr, arrivals })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// How many have arrived since the start.
    pub(crate) fn count(&self) -> u64 {
        self.arrivals.count.load(Ordering::Relaxed)
    }

    /// Waits until so many have arrived since the start, and says when the last one did ([`nanos`]).
    pub(crate) async fn arrived(&self, count: u64) -> Result<u64, Error> {
        let (mut seen, mut silence) = (self.count(), Duration::ZERO);
        while seen < count {
            sleep(LOOK).await;
            silence = if self.count() > seen { Duration::ZERO } else { silence + LOOK };
            seen = self.count();
            if silence > MAX_SILENCE {
                return Err(format!("of {count} deliveries {seen} have arrived, and no more come").into());
            }
        }
        Ok(self.arrivals.last.load(Ordering::Relaxed))
    }

    /// From being sent by the load to being here, in microseconds, of those that have arrived since the last call.
    pub(crate) fn take_micros(&self) -> Vec<u32> {
        std::mem::take(&mut self.arrivals.micros.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Arrivals {
    fn note(&self, request: &Request<Incoming>) {
        let now = nanos();
        let id = request.headers().get("x-rr-delivery").and_then(|id| id.to_str().ok());
        if let Some(sent) = id.and_then(|id| u64::from_str_radix(id.split('-').next()?, 16).ok()) {
            let micros = u32::try_from(now.saturating_sub(sent) / 1000).unwrap_or(u32::MAX);
            self.micros.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
        }
        self.last.store(now, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The id of a message that says when it was sent; `number` keeps apart what is sent at the same moment.
pub(crate) fn stamped(began: u64, sender: usize, number: usize) -> String {
    format!("{began:016x}-{sender}-{number}")
}

async fn accept(listener: TcpListener, arrivals: Arc<Arrivals>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, as a rule: some will be closed.
            sleep(LOOK).await;
            continue;
        };
        // A stream that cannot be set will not be read either.
        let _ = stream.set_nodelay(true);
        let arrivals = arrivals.clone();
        let service = service_fn(move |request| answer(request, arrivals.clone()));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(request: Request<Incoming>, arrivals: Arc<Arrivals>) -> Result<Response<Empty<Bytes>>, hyper::Error> {
    if request.uri().path().starts_with("/hang") {
        // Whoever sent it gives up first.
        let _ = timeout(MAX_SILENCE, std::future::pending::<()>()).await;
        return Ok(Response::new(Empty::new()));
    }
    arrivals.note(&request);
    let is_slow = request.uri().path().starts_with("/slow");
    request.into_body().collect().await?;
    if is_slow {
        sleep(SLOW).await;
    }
    Ok(Response::new(Empty::new()))
}
