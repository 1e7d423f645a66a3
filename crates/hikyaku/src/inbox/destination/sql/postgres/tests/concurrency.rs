//! Several processes on one table, and connections that go.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;

/// C4, C8, C10, T3: two processes with one key, again and again: the newest wins, and each delivery is written once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_c8_t3_two_processes_that_race_for_a_key_keep_the_newest() {
    let schema = "CREATE TABLE sales (id text PRIMARY KEY, total integer);
                  CREATE TABLE effects (n serial, total integer);
                  CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                      'BEGIN INSERT INTO effects (total) VALUES (new.total); RETURN new; END';
                  CREATE TRIGGER t AFTER INSERT OR UPDATE ON sales FOR EACH ROW EXECUTE FUNCTION note()";
    let rig = Rig::new(schema, "sales", SALES).await;
    let processes = [Arc::new(rig.another("sales", SALES).await), Arc::new(rig.another("sales", SALES).await)];
    const EVENTS: i64 = 60;
    let mut tasks = JoinSet::new();
    for n in 0..EVENTS {
        // A scattered order; each event goes to both, as after a lease that ended too early.
        let second = n * 37 % EVENTS + 1;
        for process in &processes {
            let process = process.clone();
            tasks.spawn(async move {
                process.apply(&row(&format!("d{second}"), second, &format!(r#"{{"id":"a","total":{second}}}"#))).await
            });
        }
    }
    while let Some(effect) = tasks.join_next().await {
        assert!(matches!(effect.unwrap(), Effect::Done(_) | Effect::Stale(_)));
    }
    assert_eq!(rig.totals().await, [format!("a={EVENTS}")]);
    let effects = rig.seen("SELECT total::text FROM effects ORDER BY n").await;
    let totals: Vec<i64> = effects.iter().map(|total| total.parse().unwrap()).collect();
    assert!(totals.windows(2).all(|pair| pair[0] < pair[1]), "an older one was written over a newer: {totals:?}");
}

/// The guard is judged under the row's lock: a version that was committed after ours was looked up counts, however its key
/// is spelled.
#[tokio::test]
async fn t3_a_newer_event_that_another_process_commits_meanwhile_wins() {
    let schema = "CREATE COLLATION lax (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                  CREATE TABLE sales (id text COLLATE lax PRIMARY KEY, total text)";
    let rig = Rig::new(schema, "sales", SALES).await;
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, written());
    // The other process has written version 3 of the row and not committed yet.
    let other = "BEGIN; UPDATE sales SET total = '3';
                 UPDATE hikyaku_versions SET micros = 3000000, event = 'd3'";
    rig.user.batch_execute(other).await.unwrap();
    let second = row("d2", 2, r#"{"id":"A","total":2}"#);
    let (effect, ()) = tokio::join!(rig.destination.apply(&second), async {
        let watcher = rig.database.client().await;
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        rig.user.batch_execute("COMMIT").await.unwrap();
    });
    assert!(is_stale(&effect), "{effect:?}");
    assert_eq!(rig.totals().await, ["a=3"]);
    assert_eq!(rig.seen("SELECT delivery FROM hikyaku_processed").await, ["d1"]);
}

/// A table that another program holds, or that is under change, is a failure that passes.
#[tokio::test]
async fn a_table_that_is_held_or_away_is_a_failure_that_passes() {
    let rig = Rig::new("", "sales", SALES).await;
    let lent = rig.destination.pool.take().await.unwrap();
    lent.session.client.batch_execute("SET statement_timeout = 50").await.unwrap();
    lent.give_back();
    rig.user.batch_execute("BEGIN; LOCK TABLE sales").await.unwrap();
    let error = failure(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await);
    assert!(error.contains("57014"), "{error}");
    rig.user.batch_execute("ROLLBACK; ALTER TABLE sales RENAME TO away; CREATE TABLE sales (x int)").await.unwrap();
    let error = failure(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await);
    assert!(error.contains("no column"), "{error}");
    rig.user.batch_execute("DROP TABLE sales; ALTER TABLE away RENAME TO sales").await.unwrap();
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, written());
    // What was prepared for the old form of the table is prepared anew.
    rig.user.batch_execute("ALTER TABLE sales ALTER total TYPE numeric USING total::numeric").await.unwrap();
    let mut effect = rig.apply("d2", 2, r#"{"id":"a","total":2}"#).await;
    if effect != written() {
        failure(effect);
        effect = rig.apply("d2", 2, r#"{"id":"a","total":2}"#).await;
    }
    assert_eq!(effect, written());
}

/// A connection that the server has ended is replaced, and a database that is away is a failure that says so.
#[tokio::test]
async fn c16_a_lost_connection_is_made_anew() {
    let rig = Rig::new("", "sales", SALES).await;
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, written());
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hikyaku'
               AND datname = current_database()";
    rig.user.batch_execute(cut).await.unwrap();
    let mut effect = rig.apply("d2", 2, r#"{"id":"a","total":2}"#).await;
    if effect != written() {
        // The end of the connection was not yet seen when it was taken.
        failure(effect);
        effect = rig.apply("d2", 2, r#"{"id":"a","total":2}"#).await;
    }
    assert_eq!(effect, written());
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    drop(nobody);
    let destination = open(&format!("postgres://u:hunter2@127.0.0.1:{port}/books"), "sales", SALES, true).unwrap();
    assert_eq!(destination.ready().await, Ok(()), "an outage does not stop the start");
    let error = failure(destination.apply(&row("d1", 1, r#"{"id":"a"}"#)).await);
    assert!(error.contains("cannot connect to the database") && !error.contains("hunter2"), "{error}");
}

/// Deadlocks and failed serializations are tried again: nobody's fault, and nothing of them stays.
#[tokio::test]
async fn a_deadlock_is_a_failure_that_passes() {
    let schema = "CREATE TABLE sales (id text PRIMARY KEY, total integer);
                  CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS
                      'BEGIN RAISE EXCEPTION SQLSTATE ''40P01''; END';
                  CREATE TRIGGER t BEFORE INSERT ON sales FOR EACH ROW EXECUTE FUNCTION deadlock()";
    let rig = Rig::new(schema, "sales", SALES).await;
    assert!(failure(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await).contains("40P01"));
    rig.user.batch_execute("DROP TRIGGER t ON sales").await.unwrap();
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":1}"#).await, written());
}

/// TLS: the server's certificate is verified, whatever libpq would do.
#[tokio::test]
async fn tls_is_not_spoken_with_a_server_that_nobody_vouches_for() {
    if std::env::var("HIKYAKU_TEST_POSTGRES").is_ok() {
        return; // another's server may have a certificate that this machine trusts
    }
    let rig = Rig::new("", "sales", SALES).await;
    let destination = open(&format!("{}?sslmode=require", rig.database.url()), "sales", SALES, true).unwrap();
    let error = failure(destination.apply(&row("d1", 1, r#"{"id":"a"}"#)).await);
    assert!(error.contains("SSL_CERT_FILE") && error.contains("sslmode=disable"), "{error}");
}
