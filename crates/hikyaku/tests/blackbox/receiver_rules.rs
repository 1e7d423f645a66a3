//! C7, T1, T5: what a receiver that keeps only a list of seen ids gets wrong.

use rusqlite::Connection;

use crate::harness::{Config, Receiver, Server, event_body, eventually, forward_to, gated, on_postgres};

const SOURCE: &str = "receiptroller";
const DAY_MILLIS: i64 = 24 * 3600 * 1000;

fn sale(event: &str, second: u32, key: &str) -> String {
    event_body(event, "sale.created", &format!("2026-11-30T09:15:{second:02}.000Z"), &format!(r#"{{"id":"{key}"}}"#))
}

/// Stops the program, makes all that it has received older by so many days, and starts it again.
async fn after_days(server: &mut Server, days: i64) {
    assert!(server.sigterm().await.success());
    let store = Connection::open(server.path("hikyaku.db")).unwrap();
    let aged = store.execute("UPDATE inbox_rows SET due_since = due_since - ?1", [days * DAY_MILLIS]).unwrap();
    assert!(aged > 0);
    drop(store);
    server.restart().await;
}

/// Waits until a row is dropped for its age.
async fn is_dropped(server: &Server, delivery: &str) {
    let api = server.api();
    let gone = async || api.inbox_row(SOURCE, delivery).await.is_none().then_some(());
    eventually(&format!("{delivery} to be dropped"), gone).await;
}

#[tokio::test]
async fn c7_an_id_is_known_for_days_also_when_its_row_is_gone() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let destination = Receiver::always(200).await;
    let tables = forward_to(&destination.url("/x")) + "\n[retention]\ninbox = \"2h\"\n";
    let mut server = Server::start(Config::default().with(&tables)).await;
    assert_eq!(server.api().deliver_signed("e1", sale("e1", 1, "k")).await, 200);
    server.api().settled(SOURCE, "e1").await;
    after_days(&mut server, 6).await;
    is_dropped(&server, "e1").await;
    let api = server.api();
    assert_eq!(api.deliver_signed("e1", sale("e1", 1, "k")).await, 200);
    assert_eq!(api.deliver_signed("e2", sale("e2", 2, "k")).await, 200);
    api.settled(SOURCE, "e2").await;
    assert_eq!(api.inbox_row(SOURCE, "e1").await, None, "it is a duplicate, and no row");
    let seen: Vec<_> = destination.seen().iter().map(|seen| seen.delivery().to_owned()).collect();
    assert_eq!(seen, ["e1", "e2"]);
}

/// T1: the id is on the disk before the effect takes place, and with it the work: the provider's retry is a duplicate, and
/// the effect that the crash cut off is made again.
#[tokio::test]
async fn t1_an_effect_that_a_crash_cut_off_is_made_again_though_its_delivery_counts_as_seen() {
    let (mut destination, gate) = gated(200).await;
    let tables = "[inbox]\neffect_timeout = \"2s\"\n\n".to_owned() + &forward_to(&destination.url("/x"));
    let mut server = Server::start(Config::default().with(&tables)).await;
    let body = sale("e1", 1, "k");
    assert_eq!(server.api().deliver_signed("e1", &body).await, 200);
    let first = destination.next().await;
    server.kill9().await;
    server.restart().await;
    let api = server.api();
    assert_eq!(api.deliver_signed("e1", &body).await, 200, "the provider did not hear the first answer");
    assert_eq!(api.inbox(&[]).await.len(), 1);
    // For the request that died with the program, and for whatever comes.
    gate.add_permits(10);
    let again = destination.next().await;
    assert_eq!((again.body.as_slice(), again.delivery()), (body.as_bytes(), "e1"));
    assert_eq!(again.header("idempotency-key"), first.header("idempotency-key"));
    assert_eq!(api.settled(SOURCE, "e1").await["state"], "done");
    assert_eq!(destination.seen().len(), 2);
    let said = "its end never written; effects it may have had are made again";
    eventually("the cause in the log", async || server.log().contains(said).then_some(())).await;
}

/// T5: the business key is what a sale is announced once by, when its ids are several, or forgotten.
#[tokio::test]
async fn t5_a_sale_is_announced_once_under_whatever_ids_it_comes() {
    if on_postgres() {
        return; // It looks into the store's file.
    }
    let destination = Receiver::always(200).await;
    let once = "order = \"every\"\nonce = \"key\"";
    let tables = forward_to(&destination.url("/x")).replace("order = \"every\"", once);
    let tables = tables + "\n[retention]\ninbox = \"2h\"\n\n[inbox]\nkeep_ids = \"2h\"\n";
    let mut server = Server::start(Config::default().with(&tables)).await;
    for (event, state) in [("imported", "done"), ("pushed", "stale")] {
        assert_eq!(server.api().deliver_signed(event, sale(event, 2, "k")).await, 200);
        assert_eq!(server.api().settled(SOURCE, event).await["state"], state);
    }
    after_days(&mut server, 30).await;
    is_dropped(&server, "imported").await;
    let api = server.api();
    assert_eq!(api.deliver_signed("imported", sale("imported", 2, "k")).await, 200);
    let row = api.settled(SOURCE, "imported").await;
    assert_eq!(row["effects"][0]["detail"], "it took effect before", "its id was forgotten: {row}");
    assert_eq!(api.deliver_signed("late", sale("late", 59, "k")).await, 200);
    assert_eq!(api.settled(SOURCE, "late").await["state"], "stale");
    assert_eq!(destination.seen().len(), 1);
}

#[tokio::test]
async fn c7_case26_an_id_that_would_be_forgotten_before_the_last_retry_stops_the_start() {
    let running = Server::start(Config::default()).await;
    let program = env!("CARGO_BIN_EXE_hikyaku");
    for short in ["inbox.keep_ids=\"119m\"", "retention.inbox=\"1h\""] {
        let output = std::process::Command::new(program)
            .args(["serve", "--set", short])
            .current_dir(running.path(""))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("must be at least 2h") && said.contains("71 minutes"), "{said}");
    }
}
