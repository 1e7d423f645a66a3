//! The client against servers that behave as scripted, byte by byte, on loopback.

mod faults;
mod requests;
mod reuse;
mod targets;
mod tls;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::address::TargetPolicy;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use super::{Client, Request, Resolve, ResolveError};
use crate::clock::{SharedClock, SystemClock};

/// Far beyond what any test takes, so that no slow machine turns another outcome into a timeout.
const AMPLE: Duration = Duration::from_secs(60);

/// What a server does next on a connection.
#[derive(Debug, Clone)]
enum Step {
    /// Reads one whole request.
    Read,
    /// Reads the first bytes of a request and leaves the rest.
    ReadStart,
    /// Writes bytes.
    Send(Vec<u8>),
    /// Writes the same bytes again and again until the client has closed the connection.
    Fill(Vec<u8>),
    /// Writes the same byte again and again with pauses, until the client has closed the connection.
    Drip(u8),
    /// Reads and drops whatever comes until the client has closed the connection.
    Hang,
    /// Reads nothing more and keeps the connection open.
    Stop,
    /// Resets the connection.
    Reset,
}

fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// What a server has seen.
#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    /// Connections that the server or the client has ended.
    closed: usize,
    requests: Vec<Vec<u8>>,
    /// Of each TLS connection: the name asked for, and the protocol agreed on.
    tls: Vec<(Option<String>, Option<Vec<u8>>)>,
}

/// A server on loopback; the n-th connection gets the n-th script, and those after the last get the last.
struct Endpoint {
    address: SocketAddr,
    seen: watch::Receiver<Seen>,
    _server: AbortOnDropHandle<()>,
}

impl Endpoint {
    async fn start(scripts: &[&[Step]]) -> Self {
        Self::serve(scripts, None).await
    }

    async fn serve(scripts: &[&[Step]], tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (record, seen) = watch::channel(Seen::default());
        let scripts: Vec<Vec<Step>> = scripts.iter().map(|script| script.to_vec()).collect();
        let server = tokio::spawn(async move {
            for connection in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                record.send_modify(|seen| seen.connections += 1);
                let script = scripts.get(connection).or(scripts.last()).unwrap().clone();
                tokio::spawn(connection_of(stream, script, tls.clone(), record.clone()));
            }
        });
        Self { address, seen, _server: AbortOnDropHandle::new(server) }
    }

    fn url(&self) -> String {
        format!("http://{}/hook/secret-path?token=secret-token", self.address)
    }

    fn connections(&self) -> usize {
        self.seen.borrow().connections
    }

    fn requests(&self) -> Vec<Vec<u8>> {
        self.seen.borrow().requests.clone()
    }
}

async fn connection_of(
    stream: TcpStream,
    script: Vec<Step>,
    tls: Option<Arc<ServerConfig>>,
    record: watch::Sender<Seen>,
) {
    if script.iter().any(|step| matches!(step, Step::Reset)) {
        stream.set_zero_linger().unwrap();
    }
    if let Some(config) = tls {
        if let Ok(stream) = TlsAcceptor::from(config).accept(stream).await {
            let session = stream.get_ref().1;
            let agreed = (session.server_name().map(str::to_owned), session.alpn_protocol().map(<[u8]>::to_vec));
            record.send_modify(|seen| seen.tls.push(agreed));
            play(stream, script, &record).await;
        }
    } else {
        play(stream, script, &record).await;
    }
    record.send_modify(|seen| seen.closed += 1);
}

async fn play<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, script: Vec<Step>, record: &watch::Sender<Seen>) {
    for step in script {
        let result = match step {
            Step::Read => match read_request(&mut stream).await {
                Some(request) => {
                    record.send_modify(|seen| seen.requests.push(request));
                    Ok(())
                }
                None => return,
            },
            Step::ReadStart => stream.read_exact(&mut [0; 32]).await.map(drop),
            Step::Stop => std::future::pending().await,
            Step::Send(bytes) => stream.write_all(&bytes).await,
            Step::Fill(bytes) => loop {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            },
            Step::Drip(byte) => loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
            },
            Step::Hang => loop {
                if matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {
                    return;
                }
            },
            Step::Reset => return,
        };
        if result.is_err() {
            return;
        }
    }
}

/// One request's bytes, or `None` if the client closes first.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(request.clone()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.extend(body);
    Some(request)
}

/// Names and their addresses; a name without any does not exist, and `silent.example` is never answered.
#[derive(Debug, Default)]
struct Names(Mutex<HashMap<String, Vec<IpAddr>>>);

impl Names {
    fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.0.lock().unwrap().insert(name.to_owned(), addresses);
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        if name == "silent.example" {
            std::future::pending::<()>().await;
        }
        self.0.lock().unwrap().get(name).cloned().ok_or(ResolveError::NoAddress)
    }
}

fn loopback() -> TargetPolicy {
    TargetPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()], allow_http: true }
}

fn client() -> Client {
    client_with(Arc::new(Names::default()), &[])
}

fn client_with(names: Arc<Names>, roots: &[CertificateDer<'static>]) -> Client {
    Client::new(loopback(), names, clock(), roots).unwrap()
}

fn clock() -> SharedClock {
    Arc::new(SystemClock::start())
}

fn request(url: &str, timeout: Duration) -> Request {
    Request { url: url.parse().unwrap(), headers: HeaderMap::new(), body: Bytes::from_static(b"{\"b\":1}"), timeout }
}
