//! From a URL to a connection: resolve, vet every answer, connect to a vetted address only, and speak TLS where the
//! URL says so. Every attempt starts here anew (S4). Variables like `HTTP_PROXY` are not looked at (S6).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hikyaku_core::address::TargetPolicy;
use hikyaku_core::delivery::FailureKind;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use super::dial::Dial;
use super::failure::Failure;
use super::listening::Listening;
use super::resolve::Resolve;

/// Most bytes of a response's status line and headers; also the connection's buffer.
const MAX_RESPONSE_HEAD_BYTES: usize = 64 * 1024;
/// Most headers of a response.
const MAX_RESPONSE_HEADERS: usize = 128;
/// How long one address of several may take to connect before the next is tried.
const MAX_CONNECT_WITH_OTHERS_LEFT: Duration = Duration::from_secs(2);

/// Where a request goes, all of it vetted.
pub(super) struct Target {
    /// Scheme, host and port.
    pub(super) origin: String,
    /// The host as people read it.
    pub(super) host: String,
    /// Every address it has; IPv4 first, since a machine without IPv6 often finds out late.
    pub(super) addresses: Vec<IpAddr>,
    port: u16,
    /// Whom the certificate must be for; `None` over plain http.
    tls_name: Option<ServerName<'static>>,
}

/// A connection over which one request at a time can be made. Dropping it closes it, whatever is under way.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// The address it leads to.
    pub(super) peer: IpAddr,
    _driver: AbortOnDropHandle<()>,
}

impl Connection {
    pub(super) fn is_open(&self) -> bool {
        self.sender.is_ready()
    }
}

/// Makes targets and connections.
pub(super) struct Connector {
    pub(super) policy: TargetPolicy,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) dial: Arc<dyn Dial>,
    pub(super) tls: TlsConnector,
}

impl Connector {
    /// Resolves a URL's host and vets it: one address that is not allowed refuses them all (S1).
    pub(super) async fn target(&self, url: &Url) -> Result<Target, Failure> {
        let host = url.host_str().unwrap_or_default();
        self.policy.vet_url(url).map_err(|refusal| Failure::refused(host, &refusal))?;
        let port = url.port_or_known_default().unwrap_or_default();
        let mut addresses = self.addresses(url.host(), host).await?;
        for address in &addresses {
            self.policy.vet_address(*address, port).map_err(|refusal| Failure::refused(host, &refusal))?;
        }
        addresses.sort_by_key(IpAddr::is_ipv6);
        let tls_name = if url.scheme() == "http" { None } else { Some(tls_name(url.host(), host)?) };
        Ok(Target { origin: url.origin().ascii_serialization(), host: host.to_owned(), addresses, port, tls_name })
    }

    async fn addresses(&self, host: Option<Host<&str>>, shown: &str) -> Result<Vec<IpAddr>, Failure> {
        match host {
            Some(Host::Ipv4(address)) => Ok(vec![address.into()]),
            Some(Host::Ipv6(address)) => Ok(vec![address.into()]),
            Some(Host::Domain(name)) => match self.resolver.resolve(name).await {
                Ok(addresses) if addresses.is_empty() => Err(Failure::resolve(name, &super::ResolveError::NoAddress)),
                Ok(addresses) => Ok(addresses),
                Err(error) => Err(Failure::resolve(name, &error)),
            },
            None => Err(Failure::refused(shown, &hikyaku_core::address::Refusal::NoHost)),
        }
    }

    /// Opens a connection to one of the target's addresses.
    pub(super) async fn connect(&self, target: &Target) -> Result<Connection, Failure> {
        let (stream, peer) = self.open(target).await?;
        let Some(name) = target.tls_name.clone() else {
            return speak_http(stream, target, peer).await;
        };
        let stream = self.tls.connect(name, stream).await.map_err(|error| Failure::handshake(&target.host, &error))?;
        speak_http(stream, target, peer).await
    }

    /// Tries the addresses in turn. The failure told is the last that is not our own shortage, if there is one.
    async fn open(&self, target: &Target) -> Result<(Listening, IpAddr), Failure> {
        let mut failure: Option<Failure> = None;
        for (left, address) in (0..target.addresses.len()).rev().zip(&target.addresses) {
            match self.open_one(SocketAddr::new(*address, target.port), left > 0).await {
                Ok(stream) => return Ok((stream, *address)),
                Err(next) if next.kind == FailureKind::Local && failure.is_some() => {}
                Err(next) => failure = Some(next),
            }
        }
        Err(failure.unwrap_or_else(|| Failure::resolve(&target.host, &super::ResolveError::NoAddress)))
    }

    async fn open_one(&self, peer: SocketAddr, others_left: bool) -> Result<Listening, Failure> {
        let dialing = self.dial.dial(peer);
        let dialed = if others_left {
            let timed = tokio::time::timeout(MAX_CONNECT_WITH_OTHERS_LEFT, dialing).await;
            timed.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        } else {
            dialing.await
        };
        dialed.map(Listening).map_err(|error| Failure::connect(peer, &error))
    }
}

fn tls_name(host: Option<Host<&str>>, shown: &str) -> Result<ServerName<'static>, Failure> {
    match host {
        Some(Host::Ipv4(address)) => Ok(IpAddr::from(address).into()),
        Some(Host::Ipv6(address)) => Ok(IpAddr::from(address).into()),
        _ => ServerName::try_from(shown.to_owned())
            .map_err(|_| Failure::new(FailureKind::Tls, format_args!("no certificate can be for the name {shown}"))),
    }
}

/// Starts HTTP/1.1 on a stream that leads to `peer`.
pub(super) async fn speak_http<S>(stream: S, target: &Target, peer: IpAddr) -> Result<Connection, Failure>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, driver) = http1::Builder::new()
        .max_buf_size(MAX_RESPONSE_HEAD_BYTES)
        .max_headers(MAX_RESPONSE_HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Failure::exchange(&target.host, &error))?;
    let driver = tokio::spawn(async move {
        // Its error reaches the request that waits for it; where none waits, it is only a connection closed.
        let _ = driver.await;
    });
    Ok(Connection { sender, peer, _driver: AbortOnDropHandle::new(driver) })
}
