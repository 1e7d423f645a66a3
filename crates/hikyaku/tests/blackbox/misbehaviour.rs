//! R2-R7 and S9: kinds of endpoint misbehaviour on real sockets, four attempts each, and what the log calls them. How
//! long an attempt takes is tested where time can be exact, beside the sender; here no kind depends on how fast the
//! machine is.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::harness::{Api, Config, Receiver, Reply, Server, TlsReceiver, Webhook, certificate_for, deliveries, items};

/// How every attempt ends.
#[derive(Debug, Clone, Copy)]
enum Ends {
    /// With this status; a 2xx is the only attempt.
    Status(u64),
    /// With `httpStatus` 0 and this `errorKind`.
    Error(&'static str),
}

/// An endpoint below HTTP.
#[derive(Debug, Clone)]
enum Door {
    /// Closes every connection at once.
    Closes,
    /// Resets every connection at once.
    Resets,
    /// Accepts and neither reads nor writes.
    Silent,
    /// Writes before anything was read.
    Greets(&'static [u8]),
    /// Reads the first bytes, writes these, and keeps the connection.
    Says(&'static [u8]),
    /// Reads the first bytes, writes these, and closes or resets the connection.
    SaysAndCloses(&'static [u8]),
}

/// What keeps an endpoint alive.
enum Endpoint {
    Receiver(Receiver),
    Tls(TlsReceiver),
    Door(std::net::SocketAddr),
    /// Bound and not listening: nobody else gets the port, and whoever connects is refused.
    Closed(TcpSocket),
}

impl Endpoint {
    fn url(&self, scheme: &str) -> String {
        match self {
            Self::Receiver(receiver) => receiver.url("/"),
            Self::Tls(receiver) => receiver.url(),
            Self::Door(address) => format!("{scheme}://{address}/"),
            Self::Closed(socket) => format!("{scheme}://{}/", socket.local_addr().unwrap()),
        }
    }
}

async fn open(door: Door) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            // An error here is the other side's doing, which is what the tests are about.
            kept.extend(behave(stream, &door).await.ok().flatten());
        }
    });
    Endpoint::Door(address)
}

/// Gives the connection back where it is to stay open.
async fn behave(mut stream: TcpStream, door: &Door) -> std::io::Result<Option<TcpStream>> {
    match door {
        Door::Closes => return Ok(None),
        Door::Resets => return stream.set_zero_linger().map(|()| None),
        Door::Silent => {}
        Door::Greets(bytes) => stream.write_all(bytes).await?,
        Door::Says(bytes) | Door::SaysAndCloses(bytes) => {
            stream.read_exact(&mut [0; 32]).await?;
            stream.write_all(bytes).await?;
        }
    }
    Ok((!matches!(door, Door::SaysAndCloses(_))).then_some(stream))
}

async fn replies(reply: Reply) -> Endpoint {
    Endpoint::Receiver(Receiver::start(move |_| reply.clone()).await)
}

/// Publishes one event to all of them at once, and tells of each where it did not end as it must.
async fn assert_ends(config: Config, kinds: Vec<(&str, &str, Endpoint, Ends)>) {
    let server = Server::start(config).await;
    let api = server.api();
    let mut webhooks = Vec::new();
    for (_, scheme, endpoint, _) in &kinds {
        webhooks.push(api.webhook(&endpoint.url(scheme)).await);
    }
    let event = api.ended(&api.publish("sale.created", "{}").await).await;
    let mut wrong = Vec::new();
    for ((what, _, endpoint, ends), webhook) in kinds.iter().zip(&webhooks) {
        let delivery = deliveries(&event).iter().find(|delivery| delivery["webhookId"] == webhook.id.as_str()).unwrap();
        let complaints = complaints(*ends, delivery, &api, webhook, endpoint).await;
        wrong.extend(complaints.into_iter().map(|complaint| format!("{what}: {complaint}")));
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

async fn complaints(ends: Ends, delivery: &Value, api: &Api, webhook: &Webhook, endpoint: &Endpoint) -> Vec<String> {
    let (status, error) = match ends {
        Ends::Status(status) => (status, Value::Null),
        Ends::Error(kind) => (0, Value::from(kind)),
    };
    let is_success = (200..300).contains(&status);
    let (state, expected) = if is_success { ("delivered", 1) } else { ("exhausted", 4) };
    let attempts = delivery["attempts"].as_array().unwrap();
    let mut wrong = Vec::new();
    for attempt in attempts {
        if attempt["httpStatus"] != status || attempt["errorKind"] != error {
            wrong.push(format!("not {ends:?}: {attempt}"));
        }
    }
    if attempts.len() != expected || delivery["state"] != state {
        wrong.push(format!("{} attempts, not {expected}, and {}", attempts.len(), delivery["state"]));
    }
    let active = api.read_webhook(webhook).await["active"].clone();
    if active != is_success {
        wrong.push(format!("the webhook's active is {active}"));
    }
    let lines = items(&api.log(webhook, &[]).await).len();
    if lines != expected {
        wrong.push(format!("{lines} lines in its log, not {expected}"));
    }
    if let Endpoint::Receiver(receiver) = endpoint
        && receiver.seen().len() != expected
    {
        wrong.push(format!("{} requests arrived, not {expected}", receiver.seen().len()));
    }
    wrong
}

#[tokio::test]
async fn r5_r6_r7_each_way_that_breaks_is_four_attempts_of_its_class() {
    use Ends::{Error, Status};
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let early = b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let kinds = vec![
        ("refused", "http", Endpoint::Closed(closed), Error("connect")),
        ("closed at once", "http", open(Door::Closes).await, Error("reset")),
        ("reset at once", "http", open(Door::Resets).await, Error("reset")),
        ("a greeting", "http", open(Door::Greets(b"220 mail.example ESMTP\r\n")).await, Error("protocol")),
        ("closes in the request", "http", open(Door::SaysAndCloses(b"")).await, Error("reset")),
        ("413 to the first bytes", "http", open(Door::Says(early)).await, Status(413)),
        ("413 to the first bytes, and closes", "http", open(Door::SaysAndCloses(early)).await, Status(413)),
        (
            "200 to the first bytes",
            "http",
            open(Door::Says(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await,
            Status(200),
        ),
        ("TLS closed at once", "https", open(Door::Closes).await, Error("reset")),
        ("TLS reset at once", "https", open(Door::Resets).await, Error("reset")),
        ("plain text at an https port", "https", open(Door::Says(b"HTTP/1.1 400 X\r\n\r\n")).await, Error("tls")),
        ("a greeting at an https port", "https", open(Door::Greets(b"220 mail.example ESMTP\r\n")).await, Error("tls")),
        ("a TLS alert", "https", open(Door::Says(b"\x15\x03\x03\0\x02\x02\x28")).await, Error("tls")),
        (
            "a TLS alert at an http port",
            "http",
            open(Door::Says(b"\x15\x03\x01\0\x02\x02\x46")).await,
            Error("protocol"),
        ),
        ("self-signed", "https", Endpoint::Tls(TlsReceiver::start(&certificate_for("127.0.0.1")).await), Error("tls")),
    ];
    assert_ends(Config::default(), kinds).await;
}

#[tokio::test]
async fn r5_r6_r7_each_answer_without_a_status_is_four_attempts_of_its_class() {
    let large = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(500));
    let cut = |text: &str| Reply::RawThenClose(text.into());
    let mut kinds = Vec::new();
    for (what, reply) in [
        ("closes after the request", Reply::Close),
        ("resets after the request", Reply::Reset),
        ("closes in the status line", cut("HTTP/1.1 20")),
        ("closes in the headers", cut("HTTP/1.1 200 OK\r\nX: y\r\n")),
        ("closes after an interim answer", cut("HTTP/1.1 100 Continue\r\n\r\n")),
    ] {
        kinds.push((what, "http", replies(reply).await, Ends::Error("reset")));
    }
    for (what, answer) in [
        ("garbage", "\x01\x02 what?\r\n\r\n"),
        ("HTTP/0.9", "<html>thanks</html>\r\n"),
        ("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        ("HTTP/2.0 in a status line", "HTTP/2.0 200 OK\r\n\r\n"),
        ("status 000", "HTTP/1.1 000 X\r\n\r\n"),
        ("status 099", "HTTP/1.1 099 X\r\n\r\n"),
        ("status 1000", "HTTP/1.1 1000 X\r\n\r\n"),
        ("NUL in the reason", "HTTP/1.1 200 a\0b\r\n\r\n"),
        ("a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        ("a header of 1 MiB", &large),
        ("500 headers", &many),
    ] {
        kinds.push((what, "http", replies(Reply::Raw(answer.into())).await, Ends::Error("protocol")));
    }
    let endless = Reply::Endless(b"HTTP/1.1 200 OK\r\nX: ".to_vec());
    kinds.push(("a header without end", "http", replies(endless).await, Ends::Error("protocol")));
    assert_ends(Config::default(), kinds).await;
}

#[tokio::test]
async fn r4_r6_r7_each_silence_is_four_timeouts() {
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let mut kinds = Vec::new();
    for (what, reply) in [
        ("never answers", Reply::Hang),
        ("a lone 100 and silence", Reply::Raw(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())),
        ("a flood of interim answers", Reply::Raw(interim.repeat(10_000).into())),
        ("stops in the status line", Reply::Raw(b"HTTP/1.1 200".to_vec())),
        ("stops before the last byte", Reply::Raw(b"HTTP/1.1 200 OK\r\n\r".to_vec())),
        ("headers byte by byte", Reply::Drip(b"HTTP/1.1 200 OK\r\nX: ".to_vec())),
    ] {
        kinds.push((what, "http", replies(reply).await, Ends::Error("timeout")));
    }
    kinds.push(("accepts and never reads", "http", open(Door::Silent).await, Ends::Error("timeout")));
    kinds.push(("a handshake that never begins", "https", open(Door::Silent).await, Ends::Error("timeout")));
    kinds.push(("a handshake cut short", "https", open(Door::Says(b"\x16\x03\x03")).await, Ends::Error("timeout")));
    assert_ends(Config::default().attempt_timeout("250ms"), kinds).await;
}

#[tokio::test]
async fn r2_r3_s9_the_status_decides_whatever_follows_it() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cut = |text: &str| Reply::RawThenClose(text.into());
    let chunked = |rest: &str| Reply::RawThenClose(format!("{CHUNKED}{rest}").into());
    let mut kinds = Vec::new();
    for (what, reply, status) in [
        ("an endless body", Reply::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()), 200),
        ("500 with an endless body", Reply::Endless(b"HTTP/1.1 500 X\r\n\r\n".to_vec()), 500),
        ("a body shorter than its length", cut("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), 200),
        ("a body longer than its length", cut("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok!!!"), 200),
        ("a bad chunk size", chunked("zz\r\nabc\r\n"), 200),
        ("chunks cut off", chunked("5\r\nab"), 200),
        ("endless chunk", Reply::Endless(format!("{CHUNKED}fffffff\r\n").into()), 200),
        (
            "chunks and a length",
            cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
            200,
        ),
        ("gzip that is none", cut("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nplain"), 200),
        ("a body with NUL", cut("HTTP/1.1 200 OK\r\n\r\n\0\0"), 200),
        ("204 with a body", cut("HTTP/1.1 204 X\r\nContent-Length: 2\r\n\r\nno"), 204),
        ("205 with a body", cut("HTTP/1.1 205 X\r\nContent-Length: 2\r\n\r\nno"), 205),
        ("304 with a body", cut("HTTP/1.1 304 X\r\nContent-Length: 2\r\n\r\nno"), 304),
        ("HTTP/1.0", cut("HTTP/1.0 200 OK\r\n\r\nok"), 200),
        ("an interim answer first", cut("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), 200),
    ] {
        kinds.push((what, "http", replies(reply).await, Ends::Status(status)));
    }
    for status in [101, 299, 301, 302, 303, 307, 308, 399, 499, 599, 600, 999] {
        let answer = format!("HTTP/1.1 {status} X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n");
        kinds.push(("a status", "http", replies(cut(&answer)).await, Ends::Status(status)));
    }
    assert_ends(Config::default(), kinds).await;
}
