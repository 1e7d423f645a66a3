//! Public cases 22 and 24: leases and commits, seen from outside. Cases 1-4 and 20 are in `cases_bodies`, 4, 8, 9, 10
//! and 19 in `sender_failures`, 5 in `publish`, 7 in `shutdown`, 21 in `inbox_rules`, 18 in `recover`, 23 in
//! `resend`. Case 16, the wall clock that jumps back, cannot be played on a process whose clock is the machine's, nor case
//! 17, the name that comes back, on one that asks the machine's name servers: they are tests of the sender and of the
//! resolver.

use crate::harness::{Config, Server, event_body, eventually, forward_to, gated, on_postgres, statuses};

#[tokio::test]
async fn case22_a_finish_after_the_lease_was_lost_is_kept_and_changes_nothing_but_what_was_accepted() {
    // One process owns the store, so nobody can take a lease over while its owner lives; but whoever deletes a webhook
    // ends its deliveries, and with them the lease of an attempt that is under way.
    let server = Server::start(Config::default()).await;
    let api = server.api();
    for (late, state) in [(200, "delivered"), (500, "cancelled")] {
        let (mut receiver, gate) = gated(late).await;
        let webhook = api.webhook(&receiver.url("/")).await;
        let id = api.publish("sale.created", "{}").await;
        receiver.next().await;
        assert_eq!(api.delete(&webhook).await, 204);
        assert_eq!(api.ended_one(&id).await["state"], "cancelled");
        gate.add_permits(4);
        let delivery = eventually("the late line of the log", async || {
            let delivery = api.ended_one(&id).await;
            (!statuses(&delivery).is_empty()).then_some(delivery)
        })
        .await;
        assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some(state), vec![late.into()]));
        api.get(&["webhooks", &webhook.id], &[]).await.problem(404);
        assert_eq!(receiver.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_store_refuses_to_start() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let server = Server::start(Config::default()).await;
    let (code, said) = server.refused_beside();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(said.contains("hikyaku.db") && said.contains("in use"), "{said}");
    assert_eq!(server.api().publish_raw(r#"{"type":"a.b","data":1}"#).await.status, 202);
}

#[tokio::test]
async fn case24_what_arrives_is_committed_already() {
    let (server, (mut receiver, gate)) = (Server::start(Config::default()).await, gated(200).await);
    let api = server.api();
    api.webhook(&receiver.url("/")).await;
    for _ in 0..20 {
        let publishing = tokio::spawn({
            let api = api.clone();
            async move { api.publish("sale.created", "{}").await }
        });
        // The request is on the wire and unanswered: the event and its delivery can be read.
        let seen = receiver.next().await;
        let event = api.event(seen.delivery()).await;
        assert_eq!(event["deliveries"][0]["state"], "waiting", "{event}");
        gate.add_permits(1);
        assert_eq!(publishing.await.unwrap(), seen.delivery());
    }
}

#[tokio::test]
async fn case24_what_takes_effect_is_committed_already() {
    let (mut destination, gate) = gated(200).await;
    let server = Server::start(Config::default().with(&forward_to(&destination.url("/x")))).await;
    let api = server.api();
    for n in 0..20 {
        let id = format!("e{n}");
        let body = event_body(&id, "sale.created", "2026-11-30T09:15:00.000Z", r#"{"id":"k"}"#);
        let delivering = tokio::spawn({
            let (api, id) = (api.clone(), id.clone());
            async move { api.deliver_signed(&id, &body).await }
        });
        assert_eq!(destination.next().await.delivery(), id);
        assert_eq!(api.inbox_row("receiptroller", &id).await.unwrap()["state"], "waiting");
        gate.add_permits(1);
        assert_eq!(delivering.await.unwrap(), 200);
        api.settled("receiptroller", &id).await;
    }
}

#[tokio::test]
async fn an_attempt_that_a_crash_cut_off_counts_and_is_named() {
    let (mut receiver, gate) = gated(200).await;
    let mut server = Server::start(Config::default().attempt_timeout("500ms")).await;
    let webhook = server.api().webhook(&receiver.url("/")).await;
    let id = server.api().publish("sale.created", "{}").await;
    receiver.next().await;
    server.kill9().await;
    gate.add_permits(2);
    server.restart().await;
    assert_eq!(receiver.next().await.delivery(), id);
    let api = server.api();
    let delivery = api.ended_one(&id).await;
    assert_eq!((delivery["state"].as_str(), statuses(&delivery)), (Some("delivered"), vec![0, 200]));
    assert_eq!(delivery["attempts"][0]["errorKind"], "interrupted");
    assert_eq!(receiver.seen().len(), 2);
    assert_eq!(api.read_webhook(&webhook).await["active"], true);
}
