//! What the sandbox makes of receivers that give no status, through the real network's client.

use hikyaku_core::delivery::FailureKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::clock::SharedClock;
use crate::sandbox::Network;
use crate::sandbox::engine::Told;
use crate::sandbox::provider::Followed;

/// The pause after the first attempt (R8).
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// What the first attempt of the first delivery to `url` comes to, and how long it took by the sandbox's clock; checked: it
/// stands in the log with status 0, and is tried again.
async fn first_attempt(url: &str, attempt_timeout: Duration) -> (Outcome, Duration) {
    let (clock, base): (SharedClock, _) = (Arc::new(SystemClock::start()), settings(""));
    let receiver = Receiver { url: Url::parse(url).unwrap(), ..base.receivers[0].clone() };
    let courier = Arc::new(Network::open(&clock).unwrap());
    let sandbox = Sandbox::new(Settings { attempt_timeout, receivers: vec![receiver], ..base }, clock, courier);
    let outgoing = {
        let mut engine = sandbox.engine();
        let at = engine.next_at();
        engine.step(at).pop().unwrap()
    };
    // The event itself is nothing new.
    sandbox.engine().told();
    let (mut watch, began) = (sandbox.watch(), sandbox.now());
    Arc::clone(&sandbox).deliver(outgoing).await;
    let engine = sandbox.engine();
    let webhook = engine.provider.webhooks().next().unwrap();
    let log: Vec<_> = engine.provider.log_of(&webhook.id).map(|line| (line.attempt, line.http_status)).collect();
    assert_eq!(log, [(1, 0)], "R6: {url}");
    let Told::Attempt { outcome, followed: Some(Followed::RetryAt(again)), .. } = watch.try_recv().unwrap() else {
        panic!("{url} is not tried again");
    };
    (outcome, again.duration_since(began).unsigned_abs() - FIRST_PAUSE)
}

/// The address of an endpoint that reads a little of what comes, says this, and waits for the other side to go.
async fn that_says(words: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 16];
        stream.read_exact(&mut some).await.unwrap();
        if !words.is_empty() {
            stream.write_all(words).await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    });
    address
}

#[tokio::test(start_paused = true)]
async fn r4_r6_no_answer_within_10_seconds_is_a_failure_with_status_0() {
    // Whoever connects is let in by the system, and nobody ever answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (outcome, took) = first_attempt(&url, crate::sandbox::ATTEMPT_TIMEOUT).await;
    assert_eq!(outcome, Outcome::Failed(FailureKind::Timeout));
    assert_eq!(took.as_secs(), 10);
}

#[tokio::test]
async fn r5_r6_without_a_connection_there_is_status_0() {
    // Bound and not listening: nobody else can take the port, and nobody answers there.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = closed.local_addr().map(|address| (closed, address)).unwrap();
    let timeout = Duration::from_secs(60);
    for (url, kind) in [
        (format!("http://{}/", closed.1), FailureKind::Connect),
        (format!("http://{}/", that_says(b"").await), FailureKind::Reset),
        (format!("https://{}/", that_says(b"HTTP/1.1 400 Bad Request\r\n\r\n").await), FailureKind::Tls),
    ] {
        assert_eq!(first_attempt(&url, timeout).await.0, Outcome::Failed(kind), "{url}");
    }
    // Where no name server is in reach, it is another kind of failure.
    let (outcome, _) = first_attempt("http://nobody.invalid/", Duration::from_secs(1)).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
}
