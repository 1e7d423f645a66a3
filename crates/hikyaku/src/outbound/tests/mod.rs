//! The client against servers that behave as scripted, byte by byte, on loopback.

mod early;
mod faults;
pub(crate) mod network;
mod requests;
mod reuse;
pub(crate) mod script;
mod targets;
pub(crate) mod tls;

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
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use self::script::{Seen, Step, send, serve};
use super::{Client, Request, Resolve, ResolveError};
use crate::clock::{Clock, SharedClock, SystemClock};

/// Far beyond what any test takes, so that no slow machine turns another outcome into a timeout.
const AMPLE: Duration = Duration::from_secs(60);

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
                if script.iter().any(|step| matches!(step, Step::Reset)) {
                    stream.set_zero_linger().unwrap();
                }
                tokio::spawn(serve(stream, script, tls.clone(), record.clone()));
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

/// Repeats bytes as fast as the client takes them.
fn fill(bytes: impl AsRef<[u8]>) -> Step {
    Step::Repeat(bytes.as_ref().to_vec(), Duration::ZERO)
}

/// Repeats one byte slowly.
fn drip(byte: u8) -> Step {
    Step::Repeat(vec![byte], Duration::from_millis(5))
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
