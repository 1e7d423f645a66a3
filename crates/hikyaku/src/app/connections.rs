//! Connections that come in: HTTP/1.1, bounded in number, in the size of their headers and in the time these may take
//! (S11). What a request's body may be and take is the handlers' business.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::{MAX_LINE_BYTES, Watched};

/// Most connections at a time, where as many files may be open; more wait in the operating system's queue.
pub(super) const MAX_CONNECTIONS: usize = 4096;
/// Longest time in which a request's headers must have come whole. An idle connection is closed after the same time.
const MAX_HEADER_WAIT: Duration = Duration::from_secs(30);
/// Most bytes of a request's line and headers.
const MAX_HEADER_BYTES: usize = MAX_LINE_BYTES;
/// The pause after a connection could not be taken, for want of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves what comes, over at most `max_connections` at a time, until `stop` is cancelled, then waits for the requests under way. The caller bounds that wait.
pub(super) async fn serve(listener: TcpListener, max_connections: usize, router: Router, stop: CancellationToken) {
    let free = Arc::new(Semaphore::new(max_connections));
    let connections = TaskTracker::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(MAX_HEADER_WAIT).max_header_size(MAX_HEADER_BYTES);
    loop {
        let next = async {
            let place = Arc::clone(&free).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = serve_one(http.clone(), stream, router.clone(), stop.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => pause(&error).await,
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn pause(error: &io::Error) {
    // These say that one connection is gone already; every other error is ours and would come back at once.
    let gone = matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset);
    if !gone {
        tracing::error!(%error, "a connection cannot be accepted; raise the limit of open files (ulimit -n) if it is that");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

async fn serve_one(http: http1::Builder, stream: TcpStream, router: Router, stop: CancellationToken) {
    // Without it small answers wait for the other side's acknowledgement; a socket that refuses it still works.
    let _ = stream.set_nodelay(true);
    let (stream, has_two_lengths) = Watched::new(stream);
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(has_two_lengths.clone());
        router.call(request)
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::http::guard;

    async fn connected() -> (TcpStream, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let routes = get(|| async { "hello" }).post(|body: String| async move { format!("taken: {body}") });
        let router = guard(Router::new().route("/", routes));
        tokio::spawn(serve(listener, 1, router, stop.clone()));
        (TcpStream::connect(address).await.unwrap(), stop)
    }

    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test(start_paused = true)]
    async fn s11_headers_that_do_not_come_whole_end_the_connection() {
        let clock = SystemClock::start();
        let begun = clock.schedule();
        let (mut stream, _stop) = connected().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        let answer = rest(stream).await;
        assert!(!answer.contains("hello"), "{answer}");
        let waited = clock.schedule().duration_since(begun).unsigned_abs();
        assert!((MAX_HEADER_WAIT..2 * MAX_HEADER_WAIT).contains(&waited), "{waited:?}");
    }

    #[tokio::test]
    async fn s11_headers_that_are_too_large_are_refused() {
        let (mut stream, _stop) = connected().await;
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEADER_BYTES));
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 431");
    }

    #[tokio::test]
    async fn s23_s10_a_body_whose_end_is_in_doubt_is_refused_and_the_connection_ends() {
        let hidden = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let length = format!("content-length: {}", hidden.len() + 5);
        for (doubtful, lines) in [
            (true, format!("{length}\r\ntransfer-encoding: chunked")),
            (true, format!("transfer-encoding: chunked\r\n{length}")),
            (true, "transfer-encoding: chunked\r\nContent-Length: x".to_owned()),
            (true, "transfer-encoding: chunked\r\ntransfer-encoding: chunked".to_owned()),
            (true, "transfer-encoding: chunked, chunked".to_owned()),
            (true, "transfer-encoding: gzip, chunked".to_owned()),
            (true, "transfer-encoding: gzip".to_owned()),
            (true, "content-length: 1\r\ncontent-length: 2".to_owned()),
            (true, "content-length: -1".to_owned()),
            (false, "Transfer-Encoding: Chunked".to_owned()),
        ] {
            let (mut stream, _stop) = connected().await;
            let request = format!("POST / HTTP/1.1\r\nhost: x\r\n{lines}\r\n\r\n0\r\n\r\n{hidden}");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answers = Vec::new();
            // It may be reset, because not all was read.
            let _ = stream.read_to_end(&mut answers).await;
            let answers = String::from_utf8(answers).unwrap();
            let expected = if doubtful { "HTTP/1.1 400" } else { "HTTP/1.1 200" };
            assert!(answers.starts_with(expected), "{lines}: {answers}");
            assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{lines}: {answers}");
        }
    }

    #[tokio::test]
    async fn s24_http_2_is_not_spoken() {
        let empty_settings = b"\0\0\0\x04\0\0\0\0\0".as_slice();
        let (mut stream, _stop) = connected().await;
        stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", empty_settings].concat()).await.unwrap();
        // Who speaks HTTP/2 answers with settings of its own, and goes on until nothing more comes. It may be reset.
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    }

    #[tokio::test]
    async fn s24_nor_is_it_where_a_request_asks_for_it() {
        let (mut stream, _stop) = connected().await;
        let asks = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk";
        let last = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let requests = format!("GET / HTTP/1.1\r\nhost: x\r\n{asks}\r\n\r\n{last}");
        stream.write_all(requests.as_bytes()).await.unwrap();
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(begin, *b"HTTP/1.1 200 OK");
        let others = rest(stream).await;
        assert_eq!(others.matches("HTTP/1.1 200 OK\r\n").count(), 1, "it goes on as it began: {others}");
    }

    #[tokio::test]
    async fn a_stop_closes_a_connection_that_is_idle() {
        let (mut stream, stop) = connected().await;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        stop.cancel();
        assert!(rest(stream).await.ends_with("hello"));
    }
}
