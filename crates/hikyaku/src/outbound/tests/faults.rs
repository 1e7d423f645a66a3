//! Every way in which an endpoint is known to misbehave, and what the attempt comes to.

use std::time::Duration;

use hikyaku_core::delivery::{FailureKind, Outcome};
use tokio::net::TcpSocket;

use super::Step::{Hang, Read, Reset};
use super::*;
use crate::outbound::{MAX_RESPONSE_BODY_BYTES, Response};

const MIB: usize = 1024 * 1024;

/// Posts once to a server that plays `script`, and checks what is true of every attempt.
async fn attempt(what: &str, script: &[Step], timeout: Duration) -> Response {
    let endpoint = Endpoint::start(&[script]).await;
    let posted = tokio::time::timeout(2 * AMPLE, client().post(request(&endpoint.url(), timeout))).await;
    let response = posted.expect("an attempt has an end");
    assert!(endpoint.requests().len() <= 1, "{what}: more than one request");
    assert_eq!(endpoint.connections(), 1, "{what}");
    assert!(response.body.len() <= MAX_RESPONSE_BODY_BYTES, "{what}");
    let failed = matches!(response.outcome, Outcome::Failed(_));
    assert_eq!(failed, !response.error.is_empty(), "{what}: {response:?}");
    assert!(!response.error.contains("secret"), "{what}: {}", response.error);
    response
}

async fn expect_failure(kind: FailureKind, timeout: Duration, cases: &[(&str, &[Step])]) {
    for (what, script) in cases {
        let response = attempt(what, script, timeout).await;
        assert_eq!(response.outcome, Outcome::Failed(kind), "{what}: {}", response.error);
    }
}

async fn expect_status(status: u16, cases: &[(&str, &[Step])]) {
    for (what, script) in cases {
        let response = attempt(what, script, AMPLE).await;
        assert_eq!(response.outcome, Outcome::Answered(status), "{what}: {}", response.error);
        assert!(response.duration < AMPLE, "{what}: the deadline had to end it");
    }
}

#[tokio::test]
async fn r5_a_connection_that_breaks_before_a_status_is_a_reset() {
    let cases: [(&str, &[Step]); 9] = [
        ("closed at once", &[]),
        ("reset at once", &[Reset]),
        ("closed after the request", &[Read]),
        ("reset after the request", &[Read, Reset]),
        ("closed in the status line", &[Read, send("HTTP/1.1 20")]),
        ("reset in the status line", &[Read, send("HTTP/1.1 20"), Reset]),
        ("closed in the headers", &[Read, send("HTTP/1.1 200 OK\r\nServer: x\r\n")]),
        ("reset in the headers", &[Read, send("HTTP/1.1 200 OK\r\nServer: x\r\n"), Reset]),
        ("closed after an interim answer", &[Read, send("HTTP/1.1 100 Continue\r\n\r\n")]),
    ];
    expect_failure(FailureKind::Reset, AMPLE, &cases).await;
}

#[tokio::test]
async fn what_is_not_http_or_too_large_is_a_protocol_failure() {
    let large = [b"HTTP/1.1 200 OK\r\nX-Large: ".as_slice(), &vec![b'x'; MIB], b"\r\n\r\n"].concat();
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(500));
    let cases: [(&str, &[Step]); 13] = [
        ("garbage", &[Read, send("\x01\x02\x03 what?\r\n\r\n"), Hang]),
        ("a greeting before the request", &[send("SSH-2.0-OpenSSH_9.9\r\n"), Hang]),
        ("HTTP/0.9", &[Read, send("<html>thanks</html>\r\n\r\n")]),
        ("HTTP/2's settings", &[Read, send(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80"), Hang]),
        ("an HTTP/2 preface", &[Read, send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Hang]),
        ("case 4: NUL in the reason", &[Read, send("HTTP/1.1 500 a\0b\r\n\r\n"), Hang]),
        ("a status of two digits", &[Read, send("HTTP/1.1 20 OK\r\n\r\n"), Hang]),
        ("a status below 100", &[Read, send("HTTP/1.1 099 Low\r\n\r\n"), Hang]),
        ("a header without a colon", &[Read, send("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), Hang]),
        ("a length that is no number", &[Read, send("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\n"), Hang]),
        ("a header of 1 MiB", &[Read, Step::Send(large), Hang]),
        ("500 headers", &[Read, send(many), Hang]),
        ("headers without end", &[Read, send("HTTP/1.1 200 OK\r\n"), fill(b"X-More: and more\r\n")]),
    ];
    expect_failure(FailureKind::Protocol, AMPLE, &cases).await;
}

#[tokio::test]
async fn r4_s8_what_brings_no_status_before_the_deadline_is_a_timeout() {
    let cases: [(&str, &[Step]); 6] = [
        ("never reads", &[Hang]),
        ("never answers", &[Read, Hang]),
        ("stops in the status line", &[Read, send("HTTP/1.1 200"), Hang]),
        ("drips a status line that never ends", &[Read, send("HTTP/1.1 200 "), drip(b'O')]),
        ("drips headers that never end", &[Read, send("HTTP/1.1 200 OK\r\nX: "), drip(b'x')]),
        ("interim answers without end", &[Read, fill(b"HTTP/1.1 103 Early Hints\r\n\r\n")]),
    ];
    expect_failure(FailureKind::Timeout, Duration::from_millis(300), &cases).await;
}

#[tokio::test(start_paused = true)]
async fn s8_a_name_that_is_never_resolved_ends_at_the_deadline_exactly() {
    let client = client();
    let posted = client.post(request("http://silent.example/", Duration::from_secs(10)));
    let response = tokio::time::timeout(AMPLE, posted).await.expect("an attempt has an end");
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Timeout));
    assert_eq!(response.duration, Duration::from_secs(10));
    assert_eq!(response.error, "no answer within 10s");
}

#[tokio::test]
async fn s9_the_status_counts_whatever_the_body_does() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases: [(&str, &[Step]); 10] = [
        ("an endless body", &[Read, send("HTTP/1.1 200 OK\r\n\r\n"), fill([b'x'; 4096])]),
        ("endless chunks", &[Read, send(CHUNKED), fill(b"1\r\nx\r\n")]),
        ("a body shorter than announced", &[Read, send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")]),
        ("a body that is reset", &[Read, send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), Reset]),
        ("a bad chunk", &[Read, send(CHUNKED), send("zz\r\nabc\r\n"), Hang]),
        ("chunks cut off", &[Read, send(CHUNKED), send("5\r\nab")]),
        ("a body that lies about gzip", &[Read, send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nplain")]),
        ("a reason that is no UTF-8", &[Read, send(b"HTTP/1.1 200 \xff\xfe\r\nContent-Length: 0\r\n\r\n")]),
        ("HTTP/1.0", &[Read, send("HTTP/1.0 200 OK\r\n\r\nok")]),
        ("an interim answer first", &[Read, send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")]),
    ];
    expect_status(200, &cases).await;
}

#[tokio::test]
async fn s9_a_body_that_stalls_is_cut_at_the_deadline() {
    let head_and_start = send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    let response = attempt("stalls", &[Read, head_and_start, Hang], Duration::from_secs(3)).await;
    assert_eq!((response.outcome, &response.body[..]), (Outcome::Answered(200), &b"abc"[..]));
}

#[tokio::test]
async fn s9_at_most_the_first_bytes_of_a_body_are_kept() {
    for size in [MAX_RESPONSE_BODY_BYTES - 1, MAX_RESPONSE_BODY_BYTES, MAX_RESPONSE_BODY_BYTES + 1, MIB] {
        let head = format!("HTTP/1.1 500 Oops\r\nContent-Length: {size}\r\n\r\n");
        let response = attempt("large", &[Read, send(head), send(vec![b'x'; size]), Hang], AMPLE).await;
        assert_eq!(response.outcome, Outcome::Answered(500));
        assert_eq!(response.body.len(), size.min(MAX_RESPONSE_BODY_BYTES));
    }
}

#[tokio::test]
async fn r3_s5_every_other_status_is_told_and_no_redirect_followed() {
    for status in [101, 204, 301, 302, 307, 308, 404, 410, 429, 500, 503, 999] {
        let answer = format!("HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
        expect_status(status, &[("a status", &[Read, send(answer), Hang])]).await;
    }
}

#[tokio::test]
async fn case19_s10_a_body_is_kept_as_the_bytes_it_is() {
    let binary = b"\x1f\x8b\x08\0\0\0\0\0\0\xff\0\xfe";
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\n";
    let response = attempt("gzip", &[Read, send(head), send(binary)], AMPLE).await;
    assert_eq!(response.body, binary.as_slice());
    assert_eq!(response.headers["content-encoding"], "gzip");
}

#[tokio::test]
async fn case8_a_closed_port_and_an_unknown_name() {
    // Bound but not listening: nobody else gets the port, and whoever connects is refused.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let response = client().post(request(&format!("http://{address}/secret"), AMPLE)).await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Connect));
    assert_eq!(response.error, format!("the connection was refused by {address}"));

    let response = client().post(request("http://shop.example/secret", AMPLE)).await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Dns));
    assert_eq!(response.error, "the name shop.example could not be resolved: it has no address");
}
