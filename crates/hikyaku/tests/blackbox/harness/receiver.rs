//! An endpoint on loopback that answers as a test's script says, in every way an endpoint can go wrong, and keeps
//! every request it got.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use super::request::{Seen, read_request};
use super::within;

/// How a request is answered.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// This status with this body, on a connection that stays open.
    Answer(u16, Vec<u8>),
    /// These bytes as they are; the connection stays open.
    Raw(Vec<u8>),
    /// These bytes as they are, then the connection is closed.
    RawThenClose(Vec<u8>),
    /// Nothing, for as long as the other side waits.
    Hang,
    /// The connection is closed without an answer.
    Close,
    /// The connection is reset without an answer.
    Reset,
    /// These bytes, one at a time with a pause after each, without end when they are used up.
    Drip(Vec<u8>),
    /// These bytes, and after them as many as the other side takes.
    Endless(Vec<u8>),
    /// The reply inside, once the semaphore has a permit for it.
    After(Arc<Semaphore>, Box<Reply>),
    /// This status, by an endpoint that takes so long for it.
    Slow(Duration, u16),
}

impl Reply {
    /// A status without a body.
    pub(crate) fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new())
    }
}

type Script = dyn FnMut(&Seen) -> Reply + Send;

struct Shared {
    script: Mutex<Box<Script>>,
    seen: Mutex<Vec<Seen>>,
    attempts: Mutex<HashMap<(String, String), usize>>,
    /// Deliveries that are being answered.
    under_way: Mutex<HashMap<(String, String), (usize, Instant)>>,
    /// Those that came while they were being answered already.
    overlapping: Mutex<Vec<String>>,
    arrivals: mpsc::UnboundedSender<Seen>,
}

/// A scripted endpoint.
pub(crate) struct Receiver {
    addr: SocketAddr,
    shared: Arc<Shared>,
    arrivals: mpsc::UnboundedReceiver<Seen>,
    accepting: JoinHandle<()>,
}

impl Receiver {
    /// An endpoint that answers as `script` says, from the request and what it counts itself.
    pub(crate) async fn start(script: impl FnMut(&Seen) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, script)
    }

    /// An endpoint on a socket that listens already.
    pub(crate) fn on(listener: TcpListener, script: impl FnMut(&Seen) -> Reply + Send + 'static) -> Self {
        let (sender, arrivals) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            seen: Mutex::default(),
            attempts: Mutex::default(),
            under_way: Mutex::default(),
            overlapping: Mutex::default(),
            arrivals: sender,
        });
        let addr = listener.local_addr().unwrap();
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { addr, shared, arrivals, accepting }
    }

    /// An endpoint that always answers this status.
    pub(crate) async fn always(status: u16) -> Self {
        Self::start(move |_| Reply::status(status)).await
    }

    /// An endpoint that answers the attempts of each delivery with these statuses, and from then on with the last.
    pub(crate) async fn by_attempt(statuses: &'static [u16]) -> Self {
        Self::start(move |seen| Reply::status(statuses[(seen.attempt - 1).min(statuses.len() - 1)])).await
    }

    /// The URL of a path of its.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// The next request, in the order of arrival.
    pub(crate) async fn next(&mut self) -> Seen {
        within("a request to arrive", self.arrivals.recv()).await.unwrap()
    }

    /// The next `count` requests.
    pub(crate) async fn next_many(&mut self, count: usize) -> Vec<Seen> {
        let mut seen = Vec::with_capacity(count);
        for _ in 0..count {
            seen.push(self.next().await);
        }
        seen
    }

    /// All requests that ever arrived, in the order of arrival.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many requests have arrived.
    pub(crate) fn count(&self) -> usize {
        self.shared.seen.lock().unwrap().len()
    }

    /// The deliveries that came while the same one was still being answered at the same path.
    pub(crate) fn overlapping(&self) -> Vec<String> {
        self.shared.overlapping.lock().unwrap().clone()
    }
}

/// An endpoint that holds each request until the semaphore has a permit for it, and then answers this status.
pub(crate) async fn gated(status: u16) -> (Receiver, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    (Receiver::start(move |_| Reply::After(inner.clone(), Box::new(Reply::status(status)))).await, gate)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = shared.clone();
        // An error here is the other side's doing, which is what the tests are about.
        tokio::spawn(async move { serve(stream, connection, &shared).await.ok() });
    }
}

async fn serve(stream: TcpStream, connection: usize, shared: &Shared) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some((head, body)) = read_request(&mut stream).await? {
        let (delivery, reply) = shared.arrived(connection, head, body);
        let goes_on = answer(stream.get_mut(), reply).await;
        shared.answered(&delivery);
        if !goes_on? {
            return Ok(());
        }
    }
    Ok(())
}

impl Shared {
    /// Records a request and asks the script for its answer.
    fn arrived(&self, connection: usize, head: String, body: Vec<u8>) -> ((String, String), Reply) {
        let mut all = self.seen.lock().unwrap();
        let mut seen = Seen { order: all.len(), connection, head, body, attempt: 0 };
        let delivery = (seen.path().to_owned(), seen.delivery().to_owned());
        let mut under_way = self.under_way.lock().unwrap();
        let (beside, since) = under_way.entry(delivery.clone()).or_insert((0, Instant::now()));
        *beside += 1;
        if *beside > 1 {
            let again = format!("{} came again after {:?}", delivery.1, since.elapsed());
            self.overlapping.lock().unwrap().push(again);
        }
        *since = Instant::now();
        let mut attempts = self.attempts.lock().unwrap();
        let attempt = attempts.entry(delivery.clone()).or_default();
        *attempt += 1;
        seen.attempt = *attempt;
        all.push(seen.clone());
        let reply = (self.script.lock().unwrap())(&seen);
        // Nobody may be waiting for it any more.
        let _ = self.arrivals.send(seen);
        (delivery, reply)
    }

    fn answered(&self, delivery: &(String, String)) {
        let mut under_way = self.under_way.lock().unwrap();
        if let Some(left) = under_way.get_mut(delivery) {
            left.0 -= 1;
        }
    }
}

/// Writes the answer; whether the connection goes on.
async fn answer(stream: &mut TcpStream, mut reply: Reply) -> io::Result<bool> {
    while let Reply::After(gate, inner) = reply {
        gate.acquire().await.map_err(io::Error::other)?.forget();
        reply = *inner;
    }
    if let Reply::Slow(time, status) = reply {
        tokio::time::sleep(time).await;
        reply = Reply::status(status);
    }
    match reply {
        Reply::Answer(status, body) => {
            let length = if status == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
            stream.write_all(format!("HTTP/1.1 {status} Scripted\r\n{length}\r\n").as_bytes()).await?;
            stream.write_all(&body).await?;
            Ok(true)
        }
        Reply::Raw(bytes) => stream.write_all(&bytes).await.map(|()| true),
        Reply::RawThenClose(bytes) => stream.write_all(&bytes).await.map(|()| false),
        Reply::Close => Ok(false),
        Reply::Reset => stream.set_zero_linger().map(|()| false),
        Reply::Hang => until_closed(stream).await,
        Reply::Drip(bytes) => drip(stream, &bytes).await,
        Reply::Endless(bytes) => {
            stream.write_all(&bytes).await?;
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
        Reply::After(..) | Reply::Slow(..) => unreachable!("unwrapped above"),
    }
}

async fn until_closed(stream: &mut TcpStream) -> io::Result<bool> {
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(false)
}

async fn drip(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<bool> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut pauses = tokio::time::interval(PAUSE);
    for byte in bytes.iter().chain(std::iter::repeat(&b'x')) {
        pauses.tick().await;
        stream.write_all(&[*byte]).await?;
    }
    Ok(false)
}
