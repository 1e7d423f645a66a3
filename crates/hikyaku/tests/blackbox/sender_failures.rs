//! R4-R6 and S4-S9: every way in which no status comes, and every answer that is strange. Public cases 4, 8, 9, 10, 19.

use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::harness::{
    Api, Config, Receiver, Reply, Server, TlsReceiver, certificate_for, deliveries, gated, items, statuses,
};

/// Publishes one event to the URL and sees it through to its end; gives the delivery.
async fn deliver_to(api: &Api, url: &str) -> Value {
    let webhook = api.webhook(url).await;
    let delivery = api.ended_one(&api.publish("sale.created", "{}").await).await;
    // The next event of the same test must not come here too.
    api.patch(&webhook, serde_json::json!({ "active": false })).await;
    let mut lines = items(&api.log(&webhook, &[]).await);
    lines.reverse();
    let logged: Vec<_> = lines.iter().map(|line| line["httpStatus"].as_u64().unwrap()).collect();
    assert_eq!(logged, statuses(&delivery), "the log and the event tell different stories");
    delivery
}

/// Asserts that all four attempts failed without a status, each with an error that says one of these words.
#[track_caller]
fn assert_no_status(what: &str, delivery: &Value, words: &[&str]) {
    assert_eq!((delivery["state"].as_str(), statuses(delivery)), (Some("exhausted"), vec![0; 4]), "{what}: {delivery}");
    for attempt in delivery["attempts"].as_array().unwrap() {
        let error = attempt["error"].as_str().unwrap_or_default().to_lowercase();
        assert!(words.iter().any(|word| error.contains(word)), "{what}: {error:?} says none of {words:?}");
    }
}

#[tokio::test]
async fn r5_r6_case8_a_closed_port_stands_in_the_log_with_status_0() {
    let server = Server::start(Config::default()).await;
    // Bound and not listening: nobody else can take the port, and nobody answers there.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    assert_no_status("closed port", &deliver_to(&server.api(), &url).await, &["refused"]);
}

#[tokio::test]
async fn r5_r6_case8_an_unknown_name_stands_in_the_log_with_status_0() {
    let server = Server::start(Config::default().attempt_timeout("2s")).await;
    let delivery = deliver_to(&server.api(), "http://nobody.invalid/").await;
    // Without a name server in reach the answer is that none answered.
    assert_no_status("unknown name", &delivery, &["nobody.invalid", "resolve", "dns", "time"]);
}

#[tokio::test]
async fn r5_r6_case8_a_bad_certificate_stands_in_the_log_with_status_0() {
    let (trusted, wrong_name) = (certificate_for("127.0.0.1"), certificate_for("elsewhere.test"));
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let roots = dir.path().join("roots.pem");
    std::fs::write(&roots, trusted.cert.pem() + &wrong_name.cert.pem()).unwrap();
    let config = Config::default().env("SSL_CERT_FILE", roots.to_str().unwrap());
    let server = Server::start_in(dir, config).await;
    let api = server.api();

    let unknown = TlsReceiver::start(&certificate_for("127.0.0.1")).await;
    assert_no_status("not trusted", &deliver_to(&api, &unknown.url()).await, &["certificate"]);
    let misnamed = TlsReceiver::start(&wrong_name).await;
    assert_no_status("another's name", &deliver_to(&api, &misnamed.url()).await, &["certificate"]);
    assert_eq!((unknown.requests(), misnamed.requests()), (0, 0));
    assert_eq!((unknown.connections(), misnamed.connections()), (4, 4));

    // The same endpoint with a certificate that is good: it was that, and nothing else.
    let good = TlsReceiver::start(&trusted).await;
    assert_eq!(statuses(&deliver_to(&api, &good.url()).await), [200]);
    assert_eq!(good.requests(), 1);
}

#[tokio::test]
async fn r5_r6_a_connection_that_closes_in_the_handshake_stands_in_the_log_with_status_0() {
    let server = Server::start(Config::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { while let Ok((_closed_at_once, _)) = listener.accept().await {} });
    assert_no_status("TLS", &deliver_to(&server.api(), &url).await, &["tls", "handshake", "closed", "eof", "reset"]);
}

#[tokio::test]
async fn r4_r6_no_answer_in_time_is_a_failure_with_status_0() {
    let server = Server::start(Config::default().attempt_timeout("250ms")).await;
    let api = server.api();
    let head = b"HTTP/1.1 200 OK\r\nx-slow: ".to_vec();
    for (what, reply) in [("never answers", Reply::Hang), ("drips a head without end", Reply::Drip(head))] {
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let delivery = deliver_to(&api, &receiver.url("/")).await;
        assert_no_status(what, &delivery, &["time", "within", "deadline"]);
        for attempt in delivery["attempts"].as_array().unwrap() {
            assert!(attempt["durationMs"].as_f64().unwrap() >= 249.0, "{what}: {attempt}");
        }
        assert_eq!(receiver.seen().len(), 4);
    }
}

#[tokio::test]
async fn s8_a_connection_that_nobody_accepts_ends_with_the_deadline() {
    let server = Server::start(Config::default().attempt_timeout("250ms")).await;
    // It listens, and the handshake of TLS never begins: the deadline covers every stage.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    assert_no_status("silent TLS", &deliver_to(&server.api(), &url).await, &["time", "within", "deadline"]);
}

#[tokio::test]
async fn r5_r6_case9_every_broken_answer_is_one_attempt_and_one_request() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let raw = |text: &str| Reply::RawThenClose(text.as_bytes().to_vec());
    for (what, reply) in [
        ("closes", Reply::Close),
        ("resets", Reply::Reset),
        ("half a status line", raw("HTTP/1.1 20")),
        ("half a head", raw("HTTP/1.1 200 OK\r\ncontent-le")),
        ("no HTTP", raw("SSH-2.0-OpenSSH_9.9\r\n")),
        ("a bad status", raw("HTTP/1.1 abc OK\r\n\r\n")),
        ("an impossible length", raw("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n")),
        ("two lengths", raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n")),
        ("a megabyte of headers", raw(&format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)))),
        ("only 1xx", raw(&"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(3))),
    ] {
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let delivery = deliver_to(&api, &receiver.url("/")).await;
        assert_no_status(what, &delivery, &[""]);
        assert!(delivery["attempts"].as_array().unwrap().iter().all(|a| a["error"] != ""), "{what}: {delivery}");
        assert_eq!(receiver.seen().len(), 4, "{what}");
    }
}

#[tokio::test]
async fn case9_a_kept_connection_that_closes_under_the_next_request_is_not_retried_in_secret() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for (what, end) in [("closes", Reply::Close), ("resets", Reply::Reset)] {
        // The first request on each connection is answered, the second is read and then dropped: just what an endpoint
        // does whose idle time runs out as the request comes in.
        let mut used = std::collections::HashSet::new();
        let receiver =
            Receiver::start(move |seen| if used.insert(seen.connection) { Reply::status(200) } else { end.clone() })
                .await;
        let webhook = api.webhook(&receiver.url("/")).await;
        let mut attempts = 0;
        for _ in 0..6 {
            let delivery = api.ended_one(&api.publish("sale.created", "{}").await).await;
            assert_eq!(delivery["state"], "delivered", "{what}");
            attempts += statuses(&delivery).len();
        }
        assert_eq!(receiver.seen().len(), attempts, "{what}: every request is one attempt");
        api.patch(&webhook, serde_json::json!({ "active": false })).await;
    }
}

#[tokio::test]
async fn case10_a_204_with_a_body_is_success_and_the_next_answer_is_not_misread() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for trailing in ["HELLO", "HTTP/1.1 500 Smuggled\r\ncontent-length: 0\r\n\r\n"] {
        let answer = format!("HTTP/1.1 204 No Content\r\ncontent-length: {}\r\n\r\n{trailing}", trailing.len());
        let receiver = Receiver::start(move |_| Reply::Raw(answer.clone().into_bytes())).await;
        let webhook = api.webhook(&receiver.url("/")).await;
        for _ in 0..3 {
            let delivery = api.ended_one(&api.publish("sale.created", "{}").await).await;
            assert_eq!(statuses(&delivery).last(), Some(&204), "{delivery}");
            let misread = statuses(&delivery).iter().any(|status| ![0, 204].contains(status));
            assert!(!misread && delivery["state"] == "delivered", "{delivery}");
        }
        api.patch(&webhook, serde_json::json!({ "active": false })).await;
    }
}

#[tokio::test]
async fn s9_a_body_without_end_does_not_change_the_status() {
    let server = Server::start(Config::default().attempt_timeout("1s")).await;
    let api = server.api();
    let head = |status: u16| format!("HTTP/1.1 {status} X\r\ncontent-length: 999999999\r\n\r\n").into_bytes();
    let endless = Receiver::start(move |_| Reply::Endless(head(200))).await;
    assert_eq!(statuses(&deliver_to(&api, &endless.url("/")).await), [200]);
    let dripping = Receiver::start(move |_| Reply::Drip(head(202))).await;
    // Under load the head alone may take too long once; a 202 whose body never ends is still what ends it.
    assert_eq!(statuses(&deliver_to(&api, &dripping.url("/")).await).last(), Some(&202));
    let failing = Receiver::start(move |_| Reply::Endless(head(500))).await;
    assert_eq!(statuses(&deliver_to(&api, &failing.url("/")).await), [500; 4]);
}

#[tokio::test]
async fn case4_case19_a_response_body_of_any_bytes_is_logged_and_harms_nothing() {
    let server = Server::start(Config::default()).await;
    let api = server.api();
    let gzip = vec![
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 7, 0, 0x86, 0xa6, 0x10, 0x36, 5, 0, 0, 0,
    ];
    let bodies = [
        ("text", b"it broke".to_vec()),
        ("NUL", b"broke\0n".to_vec()),
        ("gzip", gzip),
        ("every byte", (0..=255).collect()),
        ("half a character", "領".as_bytes()[..2].to_vec()),
        ("long", vec![b'a'; 100_000]),
    ];
    for (what, body) in bodies {
        let (expected, answer) = (body.clone(), body);
        let receiver = Receiver::start(move |_| Reply::Answer(500, answer.clone())).await;
        let webhook = api.webhook(&receiver.url("/")).await;
        let delivery = api.ended_one(&api.publish("sale.created", "{}").await).await;
        assert_eq!(statuses(&delivery), [500; 4], "{what}");
        let lines = items(&api.log(&webhook, &[]).await);
        assert_eq!(lines.len(), 4, "{what}");
        let shown = lines[0]["responseBody"].as_str().unwrap_or_else(|| panic!("{what}: {}", lines[0]));
        let lossy = String::from_utf8_lossy(&expected[..expected.len().min(16 * 1024)]).into_owned();
        assert_eq!(shown, lossy, "{what}");
    }
}

#[tokio::test]
async fn a_webhook_that_hangs_costs_the_others_nothing() {
    const EVENTS: usize = 40;
    let server = Server::start(Config::default()).await;
    let gate = Arc::new(Semaphore::new(0));
    let inner = gate.clone();
    let mut hanging = Receiver::start(move |_| Reply::After(inner.clone(), Box::new(Reply::status(200)))).await;
    let mut good = Receiver::always(200).await;
    let api = server.api();
    api.webhook(&hanging.url("/")).await;
    api.webhook(&good.url("/")).await;
    let mut ids = Vec::new();
    for _ in 0..EVENTS {
        ids.push(api.publish("sale.created", "{}").await);
    }
    // All of these arrive while the other endpoint has not answered a single request.
    good.next_many(EVENTS).await;
    hanging.next().await;
    gate.add_permits(EVENTS);
    for id in &ids {
        assert_eq!(api.ended(id).await["deliveries"][0]["state"], "delivered");
    }
    assert_eq!(hanging.seen().len(), EVENTS);
}

/// Most systems give a program 1,024 open files to begin with, and let it have more.
#[tokio::test]
async fn r17_a_low_limit_of_open_files_that_can_be_raised_spoils_no_attempt() {
    let server = Server::start(Config::default().open_files("-Sn 120")).await;
    let (mut receiver, gate) = gated(200).await;
    let id = publish_to_many(&server, &receiver).await;
    // All of them are under way at once.
    receiver.next_many(MANY).await;
    gate.add_permits(MANY);
    assert_each_was_delivered_at_once(&server.api().ended(&id).await);
}

#[tokio::test]
async fn r17_a_low_limit_of_open_files_that_cannot_be_raised_spoils_no_attempt() {
    let server = Server::start(Config::default().open_files("-n 120")).await;
    let (receiver, gate) = gated(200).await;
    gate.add_permits(MANY);
    let id = publish_to_many(&server, &receiver).await;
    assert_each_was_delivered_at_once(&server.api().ended(&id).await);
}

/// More webhooks than a program with 120 open files can deliver to at once.
const MANY: usize = 200;

async fn publish_to_many(server: &Server, receiver: &Receiver) -> String {
    let api = server.api();
    for n in 0..MANY {
        api.webhook(&receiver.url(&format!("/{n}"))).await;
    }
    api.publish("sale.created", "{}").await
}

fn assert_each_was_delivered_at_once(event: &Value) {
    assert_eq!(deliveries(event).len(), MANY);
    for delivery in deliveries(event) {
        assert_eq!((delivery["state"].as_str(), statuses(delivery)), (Some("delivered"), vec![200]), "{delivery}");
    }
}
