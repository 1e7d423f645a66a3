//! The table of ids in PostgreSQL, through both clients.

#![allow(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

#[allow(dead_code, reason = "shared with the black-box tests of the program, which use more of it")]
#[path = "../../hikyaku/tests/blackbox/harness/postgres.rs"]
mod server;

use std::time::Duration;

use ::sqlx::{Connection, PgConnection};
use ::tokio_postgres::Client;
use hikyaku_inbox::{DeliveryId, Insertion, Keep, PRUNE_ROWS, Timestamp, Version, sql, sqlx, tokio_postgres};
use server::TestDatabase;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fresh database with the table in it, and one connection of each client.
async fn connect() -> (TestDatabase, Client, PgConnection) {
    let database = TestDatabase::create().await;
    let client = database.client().await;
    let mut connection = PgConnection::connect(&database.url()).await.unwrap();
    tokio_postgres::create_table(&client).await.unwrap();
    sqlx::create_table(&mut connection).await.unwrap(); // a second start finds it there
    (database, client, connection)
}

async fn count(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM hikyaku_received", &[]).await.unwrap().get(0)
}

async fn by_tokio_postgres(client: &mut Client, id: DeliveryId<'_>) -> Insertion {
    let transaction = client.transaction().await.unwrap();
    let insertion = tokio_postgres::insert_if_absent(&transaction, id).await.unwrap();
    transaction.commit().await.unwrap();
    insertion
}

async fn by_sqlx(connection: &mut PgConnection, id: DeliveryId<'_>) -> Insertion {
    let mut transaction = connection.begin().await.unwrap();
    let insertion = sqlx::insert_if_absent(&mut transaction, id).await.unwrap();
    transaction.commit().await.unwrap();
    insertion
}

#[tokio::test]
async fn c6_an_id_is_inserted_once_for_each_organization_and_provider() {
    let (_database, mut client, mut connection) = connect().await;
    let of = |organization, provider| DeliveryId { organization, provider, delivery: "e1" };
    for id in [DeliveryId::from("e1"), of("a", ""), of("", "a"), of("a", "b"), of("t1|2026-13||é", "")] {
        assert_eq!(by_tokio_postgres(&mut client, id).await, Insertion::Inserted, "{id:?}");
        assert_eq!(by_sqlx(&mut connection, id).await, Insertion::Present, "{id:?}");
        let other = DeliveryId { delivery: "e2", ..id };
        assert_eq!(by_sqlx(&mut connection, other).await, Insertion::Inserted, "{other:?}");
        assert_eq!(by_tokio_postgres(&mut client, other).await, Insertion::Present, "{other:?}");
    }
}

#[tokio::test]
async fn t1_c8_a_transaction_that_does_not_commit_leaves_no_id() {
    let (_database, mut client, mut connection) = connect().await;
    let transaction = client.transaction().await.unwrap();
    assert_eq!(tokio_postgres::insert_if_absent(&transaction, "e1").await.unwrap(), Insertion::Inserted);
    drop(transaction);
    assert_eq!(count(&client).await, 0);
    let mut transaction = connection.begin().await.unwrap();
    assert_eq!(sqlx::insert_if_absent(&mut transaction, "e1").await.unwrap(), Insertion::Inserted);
    transaction.rollback().await.unwrap();
    assert_eq!(by_tokio_postgres(&mut client, "e1".into()).await, Insertion::Inserted);
}

/// Two deliveries of one id at once: the second waits for how the first ends.
async fn second_after(first_commits: bool) -> Insertion {
    let (database, mut client, mut connection) = connect().await;
    let first = client.transaction().await.unwrap();
    assert_eq!(tokio_postgres::insert_if_absent(&first, "e1").await.unwrap(), Insertion::Inserted);
    let second = tokio::spawn(async move { by_sqlx(&mut connection, "e1".into()).await });
    let watcher = database.client().await;
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
    let seen = async { while watcher.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {} };
    tokio::time::timeout(PATIENCE, seen).await.expect("the second waits");
    if first_commits {
        first.commit().await.unwrap()
    } else {
        first.rollback().await.unwrap()
    }
    second.await.unwrap()
}

#[tokio::test]
async fn case5_c6_the_second_of_two_at_once_is_a_duplicate_only_if_the_first_commits() {
    assert_eq!(second_after(true).await, Insertion::Present);
    assert_eq!(second_after(false).await, Insertion::Inserted);
}

#[tokio::test]
async fn c7_only_ids_that_are_older_are_forgotten_and_in_bounded_steps() {
    let (_database, client, mut connection) = connect().await;
    let many =
        "INSERT INTO hikyaku_received SELECT '', '', 'e' || i, now() - interval '1 year' FROM generate_series(0, $1) i";
    client.execute(many, &[&(PRUNE_ROWS as i32)]).await.unwrap();
    let young = "INSERT INTO hikyaku_received VALUES ('', '', 'young', now() - interval '119 minutes')";
    client.execute(young, &[]).await.unwrap();
    assert_eq!(tokio_postgres::prune(&client, Keep::default()).await.unwrap(), PRUNE_ROWS);
    assert_eq!(sqlx::prune(&mut connection, Keep::default()).await.unwrap(), 1);
    client
        .execute("INSERT INTO hikyaku_received VALUES ('', '', 'old', now() - interval '121 minutes')", &[])
        .await
        .unwrap();
    assert_eq!(sqlx::prune(&mut connection, Keep::default()).await.unwrap(), 0);
    assert_eq!(tokio_postgres::prune(&client, Keep::new(Duration::MAX).unwrap()).await.unwrap(), 0);
    assert_eq!(sqlx::prune(&mut connection, Keep::SHORTEST).await.unwrap(), 1);
    assert_eq!(by_sqlx(&mut connection, "young".into()).await, Insertion::Present);
}

#[tokio::test]
async fn no_statement_reads_the_whole_table() {
    let (_database, client, _connection) = connect().await;
    client.batch_execute("SET enable_seqscan = off").await.unwrap(); // where an index serves, it is taken even by an empty table
    let plan = format!("EXPLAIN {}", sql::postgres::PRUNE.replace("$1", "7200"));
    let lines: Vec<String> = client.query(&plan, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert!(!lines.iter().any(|line| line.contains("Seq Scan")), "{lines:#?}");
}

/// The column's collation has to be "C": another one does not compare as [`Version`] does.
#[tokio::test]
async fn c4_t3_versions_compare_in_sql_as_they_do_here() {
    let (_database, client, _connection) = connect().await;
    client.batch_execute(r#"CREATE TABLE sales (id text, version text COLLATE "C")"#).await.unwrap();
    let at = |second| Timestamp::from_second(second).unwrap();
    let names = ["sale.created", "sale.updated", "sale.voided"];
    let ids = ["a", "B", "é", "a|b", "ab", "_"];
    let versions =
        (0..2).flat_map(|second| names.map(|name| ids.map(|id| Version::new(at(second), name, id)))).flatten();
    let mut versions: Vec<_> = versions.collect();
    for version in &versions {
        client.execute("INSERT INTO sales VALUES ('s1', $1)", &[&version.as_str()]).await.unwrap();
    }
    versions.sort();
    let rows = client.query("SELECT version FROM sales ORDER BY version", &[]).await.unwrap();
    let sorted: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(sorted, versions.iter().map(Version::to_string).collect::<Vec<_>>());
}
