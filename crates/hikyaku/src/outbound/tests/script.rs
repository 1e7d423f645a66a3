//! What a server does on a connection, step by step and byte by byte.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

/// What a server does next on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Reads one whole request.
    Read,
    /// Reads the first bytes of a request and leaves the rest.
    ReadStart,
    /// Lets time pass.
    Wait(Duration),
    /// Writes bytes.
    Send(Vec<u8>),
    /// Writes bytes one by one, with this pause before each.
    SendSlowly(Vec<u8>, Duration),
    /// Writes the same bytes again and again, with this pause before each time, until the client has closed the
    /// connection.
    Repeat(Vec<u8>, Duration),
    /// Reads and drops whatever comes until the client has closed the connection.
    Hang,
    /// Reads nothing more and keeps the connection open.
    Stop,
    /// Resets the connection.
    Reset,
}

pub(crate) fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// What a server has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// Connections that the server or the client has ended.
    pub(crate) closed: usize,
    pub(crate) requests: Vec<Vec<u8>>,
    /// Of each TLS connection: the name asked for, and the protocol agreed on.
    pub(crate) tls: Vec<(Option<String>, Option<Vec<u8>>)>,
}

/// Plays a script on a connection, after the handshake where there is TLS, and closes it.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    script: Vec<Step>,
    tls: Option<Arc<ServerConfig>>,
    record: watch::Sender<Seen>,
) {
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
            Step::Wait(time) => {
                sleep(time).await;
                Ok(())
            }
            Step::Send(bytes) => stream.write_all(&bytes).await,
            Step::SendSlowly(bytes, pause) => send_slowly(&mut stream, &bytes, pause).await,
            Step::Repeat(bytes, pause) => loop {
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            },
            Step::Hang => loop {
                if matches!(stream.read(&mut [0; 1024]).await, Ok(0) | Err(_)) {
                    return;
                }
            },
            Step::Stop => std::future::pending().await,
            Step::Reset => return,
        };
        if result.is_err() {
            return;
        }
    }
}

async fn send_slowly(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8], pause: Duration) -> std::io::Result<()> {
    for byte in bytes {
        sleep(pause).await;
        stream.write_all(&[*byte]).await?;
    }
    Ok(())
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
