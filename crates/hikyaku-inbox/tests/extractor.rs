//! The extractor behind a real server: which statuses, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRef, FromRequest, Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use hikyaku_inbox::axum::{BODY_TIMEOUT, Rejection};
use hikyaku_inbox::{MAX_BODY_BYTES, ParkReason, Verified, Verifier, sign};
use hyper::body::Frame;
use tokio::net::TcpListener;
use tokio::time::timeout;

const SECRET: &str = "a secret";

#[derive(Clone)]
struct App {
    verifier: Verifier,
    taken: Arc<Mutex<Vec<Verified>>>,
    refused: Arc<Mutex<Vec<Rejection>>>,
}

impl FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Self {
        app.verifier.clone()
    }
}

async fn receive(State(app): State<App>, delivery: Result<Verified, Rejection>) -> Result<(), StatusCode> {
    match delivery {
        Ok(delivery) => app.taken.lock().unwrap().push(delivery),
        Err(rejection) => {
            let status = rejection.status();
            app.refused.lock().unwrap().push(rejection);
            return Err(status);
        }
    }
    Ok(())
}

async fn start(verifier: Verifier) -> (App, SocketAddr) {
    let app = App { verifier, taken: Arc::default(), refused: Arc::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", post(receive)).with_state(app.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (app, address)
}

async fn send(address: SocketAddr, signature: Option<String>, body: impl Into<reqwest::Body>) -> u16 {
    let mut request =
        reqwest::Client::new().post(format!("http://{address}/")).header("x-rr-delivery", "e1").body(body);
    if let Some(signature) = signature {
        request = request.header("x-rr-signature", signature);
    }
    request.send().await.unwrap().status().as_u16()
}

fn verifier() -> Verifier {
    Verifier::new([SECRET]).unwrap()
}

#[tokio::test]
async fn c11_only_signed_bodies_reach_the_handler_and_they_do_byte_for_byte() {
    let (app, address) = start(verifier()).await;
    let body = r#"{ "id":"e1", "data":{"id":"t1|2026-13||9", "a":2.0, "a":29383937493038367292} }"#;
    assert_eq!(send(address, Some(sign(SECRET, body.as_bytes())), body).await, 200);
    assert_eq!(send(address, Some(sign("other", body.as_bytes())), body).await, 401);
    assert_eq!(send(address, Some(sign(SECRET, body.as_bytes())), body.replace("2.0", "3.0")).await, 401);
    assert_eq!(send(address, Some("sha256=".to_owned()), body).await, 401);
    assert_eq!(send(address, None, body).await, 401);
    let taken = app.taken.lock().unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!((&taken[0].body[..], taken[0].delivery_id.as_str()), (body.as_bytes(), "e1"));
    assert_eq!(taken[0].key.as_deref(), Some("t1|2026-13||9"));
    assert!(app.refused.lock().unwrap().iter().all(|reason| matches!(reason, Rejection::Unauthorized(_))));
}

#[tokio::test]
async fn t6_whatever_is_signed_is_taken() {
    let (app, address) = start(verifier()).await;
    let deep = "[".repeat(10_000);
    let bodies: [&[u8]; 6] =
        [b"", b"null", b"\xff\x00", b"{\"type\":\"nobody.knows\"}", b"{\"id\":\"e2\"}", deep.as_bytes()];
    for body in bodies {
        assert_eq!(send(address, Some(sign(SECRET, body)), body.to_vec()).await, 200, "{body:.40?}");
    }
    let reasons: Vec<_> = app.taken.lock().unwrap().iter().map(|delivery| delivery.park).collect();
    use ParkReason::{ContradictedId, NotAnObject, NotJson};
    assert_eq!(reasons, [Some(NotJson), Some(NotAnObject), Some(NotJson), None, Some(ContradictedId), Some(NotJson)]);
}

#[tokio::test]
async fn s11_a_body_above_the_limit_is_413_whether_its_length_is_told_or_not() {
    let (app, address) = start(verifier().with_max_body_bytes(100)).await;
    assert_eq!(send(address, Some(sign(SECRET, &[b'x'; 100])), vec![b'x'; 100]).await, 200);
    assert_eq!(send(address, Some(sign(SECRET, &[b'x'; 101])), vec![b'x'; 101]).await, 413);
    assert_eq!(
        raw(address, &format!("transfer-encoding: chunked\r\n\r\n65\r\n{}\r\n0\r\n\r\n", "x".repeat(101))).await,
        "413"
    );
    assert_eq!(app.refused.lock().unwrap()[..], [Rejection::TooLarge(100), Rejection::TooLarge(100)]);
}

#[tokio::test]
async fn s11_the_default_limit_holds() {
    let (_, address) = start(verifier()).await;
    for (length, status) in [(MAX_BODY_BYTES, 200), (MAX_BODY_BYTES + 1, 413)] {
        let body = vec![b'x'; length];
        assert_eq!(send(address, Some(sign(SECRET, &body)), body).await, status, "{length}");
    }
}

/// Sends a request's end as it stands, and gives the answer's status.
async fn raw(address: SocketAddr, rest: &str) -> String {
    let request = format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{rest}");
    let exchange = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn s11_a_body_that_does_not_end_is_408_at_the_deadline() {
    let verifier = verifier();
    let mut extraction = pin!(Verified::from_request(Request::new(Body::new(Never)), &verifier));
    assert!(timeout(BODY_TIMEOUT - Duration::from_secs(1), &mut extraction).await.is_err(), "it waits");
    let refused = timeout(Duration::from_secs(2), extraction).await.unwrap().unwrap_err();
    assert_eq!((refused.status().as_u16(), refused), (408, Rejection::Slow));
}

/// A body of which nothing ever comes.
struct Never;

impl HttpBody for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}
