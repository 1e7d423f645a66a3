//! SIGTERM: what is under way ends, what waits goes on after the next start. Public case 7.

use reqwest::Method;

use crate::harness::{Config, Receiver, Server, eventually, gated, statuses};

#[tokio::test]
async fn sigterm_lets_the_attempt_in_flight_end_and_exits_0() {
    let (mut server, (mut receiver, gate)) =
        (Server::start(Config::default().attempt_timeout("10s")).await, gated(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    receiver.next().await;
    server.signal("TERM");
    eventually("the door to close", async || {
        let fresh = server.api();
        fresh.try_send(Method::GET, fresh.url(&["healthz"]), &[], Vec::new()).await.err()
    })
    .await;
    gate.add_permits(1);
    assert_eq!(server.exit().await.code(), Some(0));
    server.restart().await;
    let delivery = server.api().ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("delivered"), vec![200]));
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn case7_after_a_sigterm_between_attempts_the_later_ones_still_happen() {
    let (mut server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    let id = api.publish("sale.created", "{}").await;
    let first = receiver.next_many(2).await;
    assert_eq!(server.sigterm().await.code(), Some(0));
    server.restart().await;
    let delivery = server.api().ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("exhausted"), vec![500; 4]));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 4);
    for later in &seen[2..] {
        assert_eq!((&later.body, later.signature()), (&first[0].body, first[0].signature()));
    }
}

#[tokio::test]
async fn r15_r16_retries_that_wait_outlive_a_kill() {
    let (mut server, mut receiver) = (Server::start(Config::default()).await, Receiver::always(500).await);
    let webhook = server.api().webhook(&receiver.url("/")).await;
    let id = server.api().publish("sale.created", "{}").await;
    for _ in 0..3 {
        receiver.next().await;
        server.kill9().await;
        server.restart().await;
    }
    // Each kill may have come before the attempt's result was written; it counts all the same.
    let delivery = server.api().ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery).len()), (Some("exhausted"), 4), "{delivery}");
    assert_eq!(server.sigterm().await.code(), Some(0));
    let seen = receiver.seen();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|later| later.body == seen[0].body && later.signature() == seen[0].signature()));
    server.restart().await;
    let interrupted = statuses(&delivery).contains(&0);
    assert_eq!(server.api().read_webhook(&webhook).await["active"], interrupted);
}

#[tokio::test]
async fn an_idle_program_stops_at_once_with_0() {
    let mut server = Server::start(Config::default()).await;
    assert_eq!(server.sigterm().await.code(), Some(0));
}
