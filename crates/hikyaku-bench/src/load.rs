//! The load: senders that each keep one connection, and send one request after another.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use hikyaku::clock::Stopwatch;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Error;

/// How long a sender waits that was told to send again.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// Nanoseconds since this process began to measure: what a message carries to say when it was sent.
pub(crate) fn nanos() -> u64 {
    static BEGAN: LazyLock<Stopwatch> = LazyLock::new(Stopwatch::start);
    u64::try_from(BEGAN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// One connection to a server.
pub(crate) struct Link {
    host: HeaderValue,
    sender: SendRequest<Full<Bytes>>,
}

impl Link {
    pub(crate) async fn open(addr: SocketAddr) -> Result<Self, Error> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        // Its error reaches the request that waits for it.
        tokio::spawn(driver);
        Ok(Self { host: HeaderValue::from_str(&addr.to_string())?, sender })
    }

    /// Makes one request and reads all of its answer.
    pub(crate) async fn send(&mut self, method: Method, message: Message) -> Result<(StatusCode, Bytes), Error> {
        let mut request = Request::builder().method(method).uri(&*message.path).header(HOST, &self.host);
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in message.headers {
            request = request.header(name, value);
        }
        self.sender.ready().await?;
        let answer = self.sender.send_request(request.body(Full::new(message.body))?).await?;
        let status = answer.status();
        Ok((status, answer.into_body().collect().await?.to_bytes()))
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) path: Arc<str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

/// Makes the next message of a sender: when it is sent ([`nanos`]), and the sender's number.
pub(crate) trait Make: Fn(u64, usize) -> Message + Send + Sync + 'static {}
impl<F: Fn(u64, usize) -> Message + Send + Sync + 'static> Make for F {}

/// What came of a load.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    /// From sending a request until its whole answer was there, in microseconds.
    pub(crate) micros: Vec<u32>,
    pub(crate) elapsed: Duration,
}

impl Answered {
    pub(crate) fn count(&self) -> u64 {
        self.micros.len() as u64
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.micros.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// The given part of a hundred of these are below the answer; in milliseconds.
pub(crate) fn percentile(micros: &mut [u32], percent: usize) -> f64 {
    micros.sort_unstable();
    let at = (micros.len() * percent / 100).min(micros.len().saturating_sub(1));
    micros.get(at).map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
}

/// Sends as fast as `senders` get their answers, for as long as `length`.
pub(crate) async fn as_fast(
    addr: SocketAddr,
    senders: usize,
    length: Duration,
    make: Arc<impl Make>,
) -> Result<Answered, Error> {
    run(addr, senders, make, length, None).await
}

/// Sends `per_second` in all, evenly.
pub(crate) async fn evenly(
    addr: SocketAddr,
    senders: usize,
    per_second: f64,
    length: Duration,
    make: Arc<impl Make>,
) -> Result<Answered, Error> {
    run(addr, senders, make, length, Some(per_second)).await
}

async fn run(
    addr: SocketAddr,
    senders: usize,
    make: Arc<impl Make>,
    length: Duration,
    per_second: Option<f64>,
) -> Result<Answered, Error> {
    let mut links = Vec::with_capacity(senders);
    for _ in 0..senders {
        links.push(Link::open(addr).await?);
    }
    let watch = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for (number, link) in links.into_iter().enumerate() {
        let pause = per_second.map(|rate| Duration::from_secs_f64(senders as f64 / rate));
        let first = pause.unwrap_or_default().mul_f64(number as f64 / senders as f64);
        let sender = Sender { link, number, make: make.clone(), first, pause };
        tasks.spawn(sender.send(watch, length));
    }
    let mut answered = Answered::default();
    while let Some(micros) = tasks.join_next().await {
        answered.micros.extend(micros??);
    }
    answered.elapsed = watch.elapsed();
    Ok(answered)
}

struct Sender<M> {
    link: Link,
    number: usize,
    make: Arc<M>,
    first: Duration,
    pause: Option<Duration>,
}

impl<M: Make> Sender<M> {
    async fn send(mut self, watch: Stopwatch, length: Duration) -> Result<Vec<u32>, Error> {
        let (mut micros, mut next) = (Vec::new(), self.first);
        loop {
            let late = self.wait(watch, next).await;
            if watch.elapsed() >= length {
                return Ok(micros);
            }
            // A request that had to wait for the answer before it counts from when it should have been sent.
            let began = nanos().saturating_sub(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
            let message = (self.make)(began, self.number);
            self.hand_over(message).await?;
            micros.push(u32::try_from((nanos() - began) / 1000).unwrap_or(u32::MAX));
            next += self.pause.unwrap_or_default();
        }
    }

    /// Sends a message until it is taken: 503 asks for it to be sent again.
    async fn hand_over(&mut self, message: Message) -> Result<(), Error> {
        loop {
            let (status, body) = self.link.send(Method::POST, message.clone()).await?;
            match status {
                StatusCode::SERVICE_UNAVAILABLE => tokio::time::sleep(REFUSED_PAUSE).await,
                _ if status.is_success() => return Ok(()),
                _ => return Err(format!("it answered {status}: {}", String::from_utf8_lossy(&body)).into()),
            }
        }
    }

    /// Waits until the next request is to be sent, and says how late it is already. The timer's own lateness, up to a
    /// millisecond, is not counted: it is not the server's.
    async fn wait(&self, watch: Stopwatch, next: Duration) -> Duration {
        let Some(_) = self.pause else { return Duration::ZERO };
        match next.checked_sub(watch.elapsed()) {
            Some(early) => {
                tokio::time::sleep(early).await;
                Duration::ZERO
            }
            None => watch.elapsed().saturating_sub(next),
        }
    }
}
