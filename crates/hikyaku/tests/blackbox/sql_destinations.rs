//! C4, C8, C10, C16, T3: a table in the user's own database, the same on SQLite and on PostgreSQL.

use crate::harness::{Books, Sale, event_body, eventually};

const SOURCE: &str = "receiptroller";
/// Short pauses between tries, so that no test waits for long.
const QUICK: &str = "[inbox]\nretry_first = \"20ms\"\nretry_longest = \"40ms\"\n";

/// Each of these runs on both databases.
macro_rules! on_both_databases {
    ($($name:ident)*) => {
        mod sqlite { $(#[tokio::test] async fn $name() { super::$name(crate::harness::Books::sqlite().await).await; })* }
        mod postgres { $(#[tokio::test] async fn $name() { super::$name(crate::harness::Books::postgres().await).await; })* }
    };
}

on_both_databases! {
    c4_c8_c10_t3_a_sale_that_comes_twice_and_out_of_order_is_one_row_that_the_newest_event_wrote
    case3_a_number_with_twenty_digits_survives_into_the_row
    c8_c16_while_the_database_is_down_all_is_answered_200_and_takes_effect_once_when_it_is_back
    case21_what_the_table_does_not_accept_is_dead_with_the_reason_and_holds_up_nothing
}

/// A sale's event, with its total.
fn sale(event: &str, verb: &str, second: u32, key: &str, total: i64) -> String {
    let data = format!(r#"{{"id":"{key}","paymentSummary":{{"grandTotal":{total}}}}}"#);
    event_body(event, &format!("sale.{verb}"), &format!("2026-11-30T09:15:{second:02}.000Z"), &data)
}

fn row(key: &str, total: i64, event: &str) -> Sale {
    Sale { id: key.into(), total: Some(total), event: event.into(), biz: None }
}

async fn c4_c8_c10_t3_a_sale_that_comes_twice_and_out_of_order_is_one_row_that_the_newest_event_wrote(books: Books) {
    let server = books.serve("").await;
    let api = server.api();
    // The first attempt at `a` failed; `b` and `c` came before it, and `b` comes twice.
    for (event, verb, second, total, state) in [
        ("c", "updated", 3, 300, "done"),
        ("b", "updated", 2, 200, "stale"),
        ("a", "created", 1, 100, "stale"),
        ("b", "updated", 2, 200, "stale"),
        ("d", "voided", 3, 0, "done"),
    ] {
        assert_eq!(api.deliver_signed(event, sale(event, verb, second, "t1|2026-11|9", total)).await, 200);
        assert_eq!(api.settled(SOURCE, event).await["state"], state, "{event}");
    }
    assert_eq!(books.sales().await, [row("t1|2026-11|9", 0, "d")]);
    let effects = ["c", "d"].map(|event| ("t1|2026-11|9".to_owned(), event.to_owned()));
    assert_eq!(books.effects().await, effects);
}

async fn case3_a_number_with_twenty_digits_survives_into_the_row(books: Books) {
    let server = books.serve("").await;
    let data = r#"{"id":"k","paymentSummary":{"grandTotal":1980},"bizId":29383937493038367292}"#;
    let body = event_body("e1", "sale.created", "2026-11-30T09:15:00.000Z", data);
    assert_eq!(server.api().deliver_signed("e1", &body).await, 200);
    assert_eq!(server.api().settled(SOURCE, "e1").await["state"], "done");
    assert_eq!(books.sales().await[0].biz.as_deref(), Some("29383937493038367292"));
}

async fn c8_c16_while_the_database_is_down_all_is_answered_200_and_takes_effect_once_when_it_is_back(books: Books) {
    let server = books.serve(QUICK).await;
    let api = server.api();
    assert_eq!(api.deliver_signed("first", sale("first", "created", 1, "first", 1)).await, 200);
    api.settled(SOURCE, "first").await;
    books.go_down();
    let mut expected = vec![row("first", 1, "first")];
    for n in 0..30 {
        let event = format!("e{n:02}");
        assert_eq!(api.deliver_signed(&event, sale(&event, "created", 1, &event, n)).await, 200);
        expected.push(row(&event, n, &event));
    }
    let failures = async || {
        let row = api.inbox_row(SOURCE, "e00").await.unwrap();
        row["effects"][0]["failures"].as_u64().filter(|failures| *failures > 0)
    };
    eventually("a failure at the database that is down", failures).await;
    assert_eq!(api.inbox(&[("state", "waiting")]).await.len(), 30);
    books.come_back();
    for n in 0..30 {
        assert_eq!(api.settled(SOURCE, &format!("e{n:02}")).await["state"], "done");
    }
    expected.sort_by(|one, other| one.id.cmp(&other.id));
    assert_eq!(books.sales().await, expected);
    assert_eq!(books.effects().await.len(), 31, "each once");
}

async fn case21_what_the_table_does_not_accept_is_dead_with_the_reason_and_holds_up_nothing(books: Books) {
    let server = books.serve(QUICK).await;
    let api = server.api();
    // No whole number is so long.
    let data = r#"{"id":"k","paymentSummary":{"grandTotal":29383937493038367292}}"#;
    let bad = event_body("bad", "sale.created", "2026-11-30T09:15:01.000Z", data);
    assert_eq!(api.deliver_signed("bad", &bad).await, 200);
    let dead = api.settled(SOURCE, "bad").await;
    assert_eq!(dead["state"], "dead");
    let detail = dead["effects"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("\"total\"") && !detail.contains("29383937493038367292"), "{detail}");
    assert_eq!(api.deliver_signed("good", sale("good", "updated", 2, "k", 7)).await, 200);
    assert_eq!(api.settled(SOURCE, "good").await["state"], "done");
    assert_eq!(books.sales().await, [row("k", 7, "good")]);
}

/// C8: the connection is cut while a commit is under way. Nobody knows whether it was made; the record of the delivery,
/// which is part of it, tells.
#[tokio::test]
async fn c8_c10_a_commit_whose_answer_was_lost_is_not_made_twice() {
    let books = Books::postgres().await;
    let server = books.serve(QUICK).await;
    let api = server.api();
    const CUTS: usize = 20;
    books.door().swallow_commits(CUTS);
    for n in 0..40 {
        let event = format!("e{n:02}");
        assert_eq!(api.deliver_signed(&event, sale(&event, "created", 1, &event, 1)).await, 200);
    }
    let mut before = 0;
    for n in 0..40 {
        let done = api.settled(SOURCE, &format!("e{n:02}")).await;
        assert_eq!(done["state"], "done", "{done}");
        before += usize::from(done["effects"][0]["detail"] == "it was written before");
    }
    assert_eq!((books.door().swallowed(), before), (CUTS, CUTS));
    assert_eq!(books.effects().await.len(), 40, "each once");
}

/// C16: a database that is down when the program starts costs the provider nothing either.
#[tokio::test]
async fn c16_a_start_without_the_database_takes_deliveries_and_works_them_off_later() {
    let books = Books::postgres().await;
    books.go_down();
    let server = books.serve(QUICK).await;
    assert!(server.log().contains("a database cannot be used now"), "{}", server.log());
    assert_eq!(server.api().deliver_signed("e1", sale("e1", "created", 1, "k", 5)).await, 200);
    books.come_back();
    assert_eq!(server.api().settled(SOURCE, "e1").await["state"], "done");
    assert_eq!(books.sales().await, [row("k", 5, "e1")]);
}

/// Case 11: programs of the user's that read and then write, beside ours, on one file of SQLite: nobody sees a busy
/// error, and the provider no 5xx.
#[tokio::test]
async fn case11_sixteen_transactions_that_read_and_write_beside_a_writer_see_no_busy_error() {
    const WRITERS: usize = 16;
    let books = Books::sqlite().await;
    let server = books.serve("[inbox]\neffect_timeout = \"60s\"\n").await;
    let programs: Vec<_> = (0..WRITERS).map(|_| std::thread::spawn(reads_and_writes(books.file()))).collect();
    for n in 0..100 {
        let event = format!("e{n:03}");
        assert_eq!(server.api().deliver_signed(&event, sale(&event, "created", 1, &event, n)).await, 200);
    }
    for n in 0..100 {
        let done = server.api().settled(SOURCE, &format!("e{n:03}")).await;
        assert_eq!((&done["state"], done["effects"][0]["failures"].as_u64()), (&"done".into(), Some(0)), "{done}");
    }
    for program in programs {
        assert_eq!(program.join().unwrap(), Ok(()));
    }
    assert_eq!(books.sales().await.len(), 100);
}

/// A program of the user's: looks how many sales there are, and writes it down, again and again.
fn reads_and_writes(file: std::path::PathBuf) -> impl FnOnce() -> rusqlite::Result<()> {
    move || {
        let mut books = rusqlite::Connection::open(file)?;
        books.busy_timeout(crate::harness::PATIENCE)?;
        for _ in 0..20 {
            let transaction = books.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            let sales: i64 = transaction.query_row("SELECT count(*) FROM sales", [], |row| row.get(0))?;
            transaction.execute("INSERT INTO effects (id, event) VALUES ('counted', ?1)", [sales])?;
            transaction.commit()?;
        }
        Ok(())
    }
}

/// TLS with a server that the program can verify.
#[tokio::test]
async fn postgresql_is_spoken_to_over_tls_where_its_url_says_so() {
    if std::env::var("HIKYAKU_TEST_POSTGRES").is_ok() {
        return; // another's server has a certificate of its own
    }
    let books = Books::postgres().await;
    let server = books.serve_over_tls().await;
    assert_eq!(server.api().deliver_signed("e1", sale("e1", "created", 1, "k", 5)).await, 200);
    assert_eq!(server.api().settled(SOURCE, "e1").await["state"], "done");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
                     WHERE datname = current_database() AND application_name = 'hikyaku'";
    let encrypted = books.database().client().await.query_one(encrypted, &[]).await.unwrap();
    assert_eq!(encrypted.get::<_, Option<bool>>(0), Some(true));
}

/// S19: what the program shows of a database's URL has no password.
#[tokio::test]
async fn s19_a_databases_password_stands_in_no_log() {
    let books = Books::postgres().await;
    let mut server = books.serve("").await;
    assert_eq!(server.api().deliver_signed("e1", sale("e1", "created", 1, "k", 5)).await, 200);
    server.api().settled(SOURCE, "e1").await;
    books.go_down();
    server.restart().await;
    server.sigterm().await;
    assert!(server.log().contains("postgres://hikyaku:(hidden:"), "{}", server.log());
    assert!(!server.log().contains(&books.password()), "the password stands in the log");
}
