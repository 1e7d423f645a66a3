//! What is on the wire.

use axum::http::HeaderValue;
use hikyaku_core::delivery::{FailureKind, Outcome};
use jiff::Timestamp;

use super::Step::{Hang, Read};
use super::*;

async fn on_the_wire(path: &str, change: impl FnOnce(&mut Request)) -> String {
    let endpoint = Endpoint::start(&[&[Read, send("HTTP/1.1 204 No Content\r\n\r\n"), Hang]]).await;
    let mut request = request(&format!("http://{}{path}", endpoint.address), AMPLE);
    change(&mut request);
    let response = client().post(request).await;
    assert_eq!(response.outcome, Outcome::Answered(204), "{}", response.error);
    let wire = String::from_utf8(endpoint.requests().remove(0)).unwrap();
    wire.replace(&endpoint.address.to_string(), "HOST")
}

#[tokio::test]
async fn case1_s10_the_bytes_given_and_nothing_added() {
    let wire = on_the_wire("/hook?x=%20{1}", |request| {
        request.headers.insert("webhook-id", HeaderValue::from_static("evt_1"));
        request.body = Bytes::from_static(b"{\"b\":1, \"a\":2.0}\n");
    });
    let expected = "POST /hook?x=%20{1} HTTP/1.1\r\n\
        webhook-id: evt_1\r\nhost: HOST\r\ncontent-length: 17\r\n\r\n{\"b\":1, \"a\":2.0}\n";
    assert_eq!(wire.await, expected);
}

#[tokio::test]
async fn an_empty_body_has_a_length_too() {
    let wire = on_the_wire("", |request| request.body = Bytes::new()).await;
    assert_eq!(wire, "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\n\r\n");
}

#[tokio::test]
async fn s12_a_callers_header_cannot_change_the_framing() {
    let wire = on_the_wire("/", |request| {
        for (name, value) in [
            ("host", "other.example"),
            ("content-length", "1"),
            ("transfer-encoding", "chunked"),
            ("connection", "close"),
            ("expect", "100-continue"),
        ] {
            request.headers.append(name, HeaderValue::from_static(value));
        }
    });
    assert_eq!(wire.await, "POST / HTTP/1.1\r\nhost: HOST\r\ncontent-length: 7\r\n\r\n{\"b\":1}");
}

/// A name whose lookup takes the second time by the clock, which shows the first, and no time at all by the runtime's timers:
/// the process stood still.
#[derive(Debug)]
struct StandsStill(Mutex<(Duration, Duration)>);

impl StandsStill {
    fn each_time(pause: Duration) -> Arc<Self> {
        Arc::new(Self(Mutex::new((Duration::ZERO, pause))))
    }

    fn now_each_time(&self, pause: Duration) {
        self.0.lock().unwrap().1 = pause;
    }
}

#[async_trait]
impl Resolve for StandsStill {
    async fn resolve(&self, _: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let (stood, pause) = &mut *self.0.lock().unwrap();
        *stood += *pause;
        Ok(vec!["127.0.0.1".parse().unwrap()])
    }
}

impl Clock for StandsStill {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.lock().unwrap().0
    }

    fn schedule(&self) -> Timestamp {
        self.now()
    }
}

#[tokio::test]
async fn case22_after_its_deadline_an_attempt_that_stood_still_sends_nothing() {
    let endpoint = Endpoint::start(&[&[Read, send("HTTP/1.1 204 No Content\r\n\r\n"), Hang]]).await;
    let url = format!("http://name.example:{}/", endpoint.address.port());
    let still = StandsStill::each_time(AMPLE);
    let client = Client::new(loopback(), still.clone(), still, &[]).unwrap();
    for (timeout, expected) in
        [(AMPLE + Duration::from_secs(1), Outcome::Answered(204)), (AMPLE, Outcome::Failed(FailureKind::Timeout))]
    {
        let response = client.post(request(&url, timeout)).await;
        assert_eq!(response.outcome, expected, "{}", response.error);
        assert_eq!(endpoint.requests().len(), 1);
    }
}

#[tokio::test]
async fn case22_s8_nor_over_a_connection_that_was_kept() {
    let answer = send("HTTP/1.1 204 No Content\r\n\r\n");
    let endpoint = Endpoint::start(&[&[Read, answer.clone(), Read, answer, Hang]]).await;
    let url = format!("http://name.example:{}/", endpoint.address.port());
    let still = StandsStill::each_time(Duration::ZERO);
    let client = Client::new(loopback(), still.clone(), still.clone(), &[]).unwrap();
    // Shorter than a connection is kept.
    let pause = Duration::from_secs(3);
    for (stands_still, timeout, expected) in [
        (Duration::ZERO, AMPLE, Outcome::Answered(204)),
        (pause, pause, Outcome::Failed(FailureKind::Timeout)),
        (Duration::ZERO, AMPLE, Outcome::Answered(204)),
    ] {
        still.now_each_time(stands_still);
        let response = client.post(request(&url, timeout)).await;
        assert_eq!(response.outcome, expected, "{}", response.error);
    }
    assert_eq!((endpoint.connections(), endpoint.requests().len()), (1, 2));
}
