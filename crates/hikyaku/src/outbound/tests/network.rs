//! One endpoint and the way to it, all in memory: on tokio's paused time every wait there is exact.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio::sync::watch;
use tokio::time::sleep;

use super::script::{Seen, Step, serve};
use crate::outbound::dial::{Dial, Stream};
use crate::outbound::{Resolve, ResolveError};

/// How many bytes are under way in one direction before the writer waits; fewer than a request has, so that a server
/// which does not read is felt.
const WINDOW_BYTES: usize = 1024;

/// What becomes of a dialed address.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialed {
    /// It accepts after this time.
    After(Duration),
    /// It fails with this error.
    Fails(io::ErrorKind),
    /// It fails with this error number of the system.
    FailsWith(i32),
    /// Nothing ever comes back.
    Never,
}

/// How an endpoint and the way to it behave.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// How long its name takes to resolve, and what to; without it nobody ever answers.
    pub(crate) resolves: Option<(Duration, Result<Vec<IpAddr>, ResolveError>)>,
    /// What becomes of the n-th of its addresses when it is dialed; those after the last do as the last.
    pub(crate) dials: Vec<Dialed>,
    /// What it shows in the handshake, where it speaks TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// What it does on the n-th connection; those after the last get the last.
    pub(crate) scripts: Vec<Vec<Step>>,
}

/// The way to one endpoint.
pub(crate) struct Network {
    /// The one name that there is.
    name: &'static str,
    behaviour: Behaviour,
    seen: watch::Sender<Seen>,
    /// Other names that were asked for.
    strangers: Mutex<Vec<String>>,
}

impl Network {
    pub(crate) fn new(name: &'static str, behaviour: Behaviour) -> Arc<Self> {
        Arc::new(Self { name, behaviour, seen: watch::Sender::default(), strangers: Mutex::default() })
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.seen.borrow().connections
    }

    /// How many requests the endpoint has read.
    pub(crate) fn requests(&self) -> usize {
        self.seen.borrow().requests.len()
    }

    /// The names of others that somebody wanted to reach.
    pub(crate) fn strangers(&self) -> Vec<String> {
        self.strangers.lock().unwrap().clone()
    }

    fn dialed(&self, address: IpAddr) -> Dialed {
        let known = match &self.behaviour.resolves {
            Some((_, Ok(addresses))) => addresses.iter().position(|known| *known == address),
            _ => None,
        };
        let dials = &self.behaviour.dials;
        known.map_or(Dialed::Fails(io::ErrorKind::AddrNotAvailable), |nth| *dials.get(nth).or(dials.last()).unwrap())
    }

    fn accept(&self) -> End {
        let scripts = &self.behaviour.scripts;
        let script = scripts.get(self.seen.borrow().connections).or(scripts.last()).unwrap().clone();
        self.seen.send_modify(|seen| seen.connections += 1);
        let resets = script.iter().any(|step| matches!(step, Step::Reset));
        let (ours, theirs) = duplex(WINDOW_BYTES);
        tokio::spawn(serve(theirs, script, self.behaviour.tls.clone(), self.seen.clone()));
        End { stream: ours, resets }
    }
}

#[async_trait]
impl Resolve for Network {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if name != self.name {
            self.strangers.lock().unwrap().push(name.to_owned());
            return Err(ResolveError::NoAddress);
        }
        let Some((after, found)) = &self.behaviour.resolves else { return std::future::pending().await };
        sleep(*after).await;
        found.clone()
    }
}

#[async_trait]
impl Dial for Network {
    async fn dial(&self, peer: SocketAddr) -> io::Result<Box<dyn Stream>> {
        match self.dialed(peer.ip()) {
            Dialed::Never => std::future::pending().await,
            Dialed::Fails(kind) => Err(kind.into()),
            Dialed::FailsWith(number) => Err(io::Error::from_raw_os_error(number)),
            Dialed::After(time) => {
                sleep(time).await;
                Ok(Box::new(self.accept()))
            }
        }
    }
}

/// The client's end of a connection. Where the server resets, an error comes instead of the end.
struct End {
    stream: DuplexStream,
    resets: bool,
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let at_end = buf.filled().len() == before && buf.remaining() > 0;
        Poll::Ready(if at_end && self.resets { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) })
    }
}

impl AsyncWrite for End {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
