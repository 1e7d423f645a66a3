//! Connections kept between attempts, and the ways in which that goes wrong.

use hikyaku_core::delivery::{FailureKind, Outcome};
use jiff::Timestamp;

use super::Step::{Hang, Read};
use super::*;
use crate::clock::Clock;
use crate::outbound::connector::speak_http;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

async fn post(client: &Client, endpoint: &Endpoint) -> Outcome {
    client.post(request(&endpoint.url(), AMPLE)).await.outcome
}

#[tokio::test]
async fn a_connection_that_answered_in_full_is_used_again() {
    let endpoint = Endpoint::start(&[&[Read, send(OK), Read, send(OK), Read, send(OK), Hang]]).await;
    let client = client();
    for _ in 0..3 {
        assert_eq!(post(&client, &endpoint).await, Outcome::Answered(200));
    }
    assert_eq!((endpoint.connections(), endpoint.requests().len()), (1, 3));
}

#[tokio::test]
async fn case9_a_kept_connection_that_closes_on_our_request_is_a_reset_and_not_asked_again() {
    let endpoint = Endpoint::start(&[&[Read, send(OK), Read], &[Read, send(OK)]]).await;
    let client = client();
    assert_eq!(post(&client, &endpoint).await, Outcome::Answered(200));
    assert_eq!(post(&client, &endpoint).await, Outcome::Failed(FailureKind::Reset));
    assert_eq!((endpoint.connections(), endpoint.requests().len()), (1, 2));
}

#[tokio::test]
async fn case9_a_connection_closed_while_it_was_kept_never_costs_a_second_request() {
    let endpoint = Endpoint::start(&[&[Read, send(OK)]]).await;
    let client = client();
    for attempts in 1..=50 {
        // Whether the close is noticed before the request is written is a race; a second request would be wrong
        // either way it ends.
        let outcome = post(&client, &endpoint).await;
        let is_right = matches!(outcome, Outcome::Answered(200) | Outcome::Failed(FailureKind::Reset));
        assert!(is_right, "{outcome:?}");
        assert!(endpoint.requests().len() <= attempts);
    }
}

#[tokio::test]
async fn case9_a_request_that_was_not_begun_goes_over_a_fresh_connection() {
    let endpoint = Endpoint::start(&[&[Read, send(OK), Hang]]).await;
    let client = client();
    let target = client.connector.target(&endpoint.url().parse().unwrap()).await.unwrap();
    let (ours, theirs) = tokio::io::duplex(1024);
    let mut kept = speak_http(ours, &target, endpoint.address.ip()).await.unwrap();
    kept.sender.ready().await.unwrap();
    client.pool.put(target, kept);
    // The kept connection's task has no turn to notice it before it is given the request.
    drop(theirs);
    assert_eq!(post(&client, &endpoint).await, Outcome::Answered(200));
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn case10_the_bytes_after_an_answer_without_a_body_are_not_the_next_answer() {
    let stray = [
        // Its five bytes may still come at any time.
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 204 No Content\r\nContent-Length: 24\r\n\r\nHTTP/1.1 500 Oops\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 500 Oops\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 Oops\r\n\r\n",
    ];
    for answer in stray {
        let endpoint = Endpoint::start(&[&[Read, send(answer), Hang], &[Read, send(OK), Hang]]).await;
        let client = client();
        let first = post(&client, &endpoint).await;
        assert!(first.is_success(), "{answer:?}: {first:?}");
        assert_eq!(post(&client, &endpoint).await, Outcome::Answered(200), "{answer:?}");
        assert_eq!((endpoint.connections(), endpoint.requests().len()), (2, 2), "{answer:?}");
    }
}

#[tokio::test]
async fn a_204_without_stray_bytes_keeps_its_connection() {
    let done = "HTTP/1.1 204 No Content\r\n\r\n";
    let endpoint = Endpoint::start(&[&[Read, send(done), Read, send(done), Hang]]).await;
    let client = client();
    assert_eq!(post(&client, &endpoint).await, Outcome::Answered(204));
    assert_eq!(post(&client, &endpoint).await, Outcome::Answered(204));
    assert_eq!(endpoint.connections(), 1);
}

#[tokio::test]
async fn s9_a_connection_whose_body_was_not_read_to_its_end_is_closed() {
    let endless = [Read, send("HTTP/1.1 200 OK\r\n\r\n"), fill([b'x'; 4096])];
    let mut endpoint = Endpoint::start(&[&endless]).await;
    assert_eq!(post(&client(), &endpoint).await, Outcome::Answered(200));
    endpoint.seen.wait_for(|seen| seen.closed == 1).await.unwrap();
}

#[tokio::test]
async fn r4_a_connection_that_timed_out_is_closed() {
    let mut endpoint = Endpoint::start(&[&[Read, Hang]]).await;
    let response = client().post(request(&endpoint.url(), Duration::from_millis(200))).await;
    assert_eq!(response.outcome, Outcome::Failed(FailureKind::Timeout));
    endpoint.seen.wait_for(|seen| seen.closed == seen.connections).await.unwrap();
}

/// A clock that moves when it is told to.
struct Hands(Mutex<Timestamp>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        self.schedule()
    }
    fn schedule(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

#[tokio::test]
async fn a_connection_is_kept_for_less_than_servers_keep_theirs() {
    let mut endpoint = Endpoint::start(&[&[Read, send(OK), Hang]]).await;
    let hands = Arc::new(Hands(Mutex::new(Timestamp::UNIX_EPOCH)));
    let client = Client::new(loopback(), Arc::new(Names::default()), hands.clone(), &[]).unwrap();
    assert_eq!(post(&client, &endpoint).await, Outcome::Answered(200));
    assert_eq!(endpoint.seen.borrow().closed, 0);

    *hands.0.lock().unwrap() += Duration::from_secs(4);
    // Only the pool's own task is left to close it.
    tokio::time::pause();
    endpoint.seen.wait_for(|seen| seen.closed == 1).await.unwrap();
}
