//! What stands at the database, against what is configured.

use super::*;

/// S22: a name is a name, whatever is in it.
#[tokio::test]
async fn s22_names_from_the_configuration_are_quoted() {
    let table = r#"sa"les; DROP TABLE hikyaku_processed; --"#;
    let pairs = [("id", "/data/id"), (r#"to"tal)"#, "/data/total"), ("select", "/data/total")];
    let rig = Rig::new("", table, &pairs).await;
    assert_eq!(rig.apply("d1", 1, r#"{"id":"a","total":5}"#).await, written());
    let query = r#"SELECT "to""tal)" || "select" FROM "sa""les; DROP TABLE hikyaku_processed; --""#;
    assert_eq!(rig.seen(query).await, ["55"]);
}

/// S22: a value is a value, whatever is in it.
#[tokio::test]
async fn s22_values_are_bound() {
    let rig = Rig::new("", "sales", SALES).await;
    let evil = "'); DROP TABLE sales; --";
    assert_eq!(rig.apply(evil, 1, &format!(r#"{{"id":"{evil}","total":"{evil}"}}"#)).await, written());
    assert_eq!(rig.totals().await, [format!("{evil}={evil}")]);
}

#[tokio::test]
async fn what_does_not_fit_is_said_at_the_start() {
    let database = TestDatabase::create().await;
    let schema = "CREATE TABLE sales (id text PRIMARY KEY, total numeric);
                  CREATE TABLE loose (id text, total text);
                  CREATE TABLE partial (id text, total text); CREATE UNIQUE INDEX ON partial (id) WHERE total <> '';
                  CREATE TABLE pair (id text, total text, PRIMARY KEY (id, total));
                  CREATE TABLE late (id text UNIQUE DEFERRABLE, total text);
                  CREATE TABLE strict (id text PRIMARY KEY, total text, shop text NOT NULL);
                  CREATE TABLE doubled (id text PRIMARY KEY, half int, total int GENERATED ALWAYS AS (half * 2) STORED);
                  CREATE TABLE listed (id text PRIMARY KEY, total integer[]);
                  CREATE TABLE bytes (id text PRIMARY KEY, total bytea);
                  CREATE DOMAIN yen AS numeric CHECK (value >= 0);
                  CREATE TABLE kind (rid bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text NOT NULL UNIQUE,
                      total yen, shop text NOT NULL DEFAULT 'x');
                  CREATE VIEW seen AS SELECT * FROM sales";
    database.client().await.batch_execute(schema).await.unwrap();
    let unique = "which must be its PRIMARY KEY or UNIQUE on its own";
    for (table, message) in [
        ("missing", "there is no table \"missing\" in the database; create it, or set create = true"),
        ("SALES", "there is no table \"SALES\""),
        ("seen", "there is no table \"seen\""),
        ("loose", unique),
        ("partial", unique),
        ("pair", unique),
        ("late", unique),
        ("strict", "without a value for \"shop\""),
        ("doubled", "\"total\" of table \"doubled\" is generated"),
        ("listed", "\"total\" of table \"listed\" is of the type _int4, which no JSON value stands for"),
        ("bytes", "is of the type bytea, which no JSON value stands for"),
        ("hikyaku_versions", "are our own"),
    ] {
        let error = match open(&database.url(), table, SALES, false) {
            Ok(destination) => destination.ready().await.err().unwrap_or_default(),
            Err(error) => error,
        };
        assert!(error.contains(message), "{table}: {error:?}");
    }
    let ghost = open(&database.url(), "sales", &[("id", "/data/id"), ("ghost", "/x")], false).unwrap();
    assert!(ghost.ready().await.unwrap_err().contains("table \"sales\" has no column \"ghost\""));
    let kind = open(&database.url(), "kind", SALES, false).unwrap();
    assert_eq!(kind.ready().await, Ok(()), "what has a value of its own needs none of ours");
    assert_eq!(kind.apply(&row("d1", 1, r#"{"id":"a","total":5}"#)).await, written());
    assert!(refusal(kind.apply(&row("d2", 2, r#"{"id":"a","total":-5}"#)).await).contains("yen_check"));
}

/// A role that may write, and create nothing, is enough where somebody else has made the tables.
#[tokio::test]
async fn the_right_to_create_is_needed_only_where_something_is_missing() {
    let rig = Rig::new("", "sales", SALES).await;
    let role = format!("clerk_{}", std::process::id());
    let grants = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'clerk'; REVOKE CREATE ON SCHEMA public FROM public;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    );
    rig.user.batch_execute(&grants).await.unwrap();
    let url = rig.database.url();
    let (_, place) = url.rsplit_once('@').unwrap();
    let clerk = format!("postgres://{role}:clerk@{place}");
    let destination = open(&clerk, "sales", SALES, true).unwrap();
    assert_eq!(destination.apply(&row("d1", 1, r#"{"id":"a","total":1}"#)).await, written());
    let other = open(&clerk, "other", SALES, true).unwrap();
    assert!(other.ready().await.unwrap_err().contains("permission denied"));
    drop((destination, other));
    rig.user.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

/// A role, a password or a database that is missing may come back: it is for the rows to wait, not for the start to fail.
#[tokio::test]
async fn c16_what_refuses_the_connection_does_not_stop_the_start() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let (server, _) = url.rsplit_once('/').unwrap();
    let (_, host) = server.rsplit_once('@').unwrap();
    for (url, reason) in [
        (format!("postgres://nobody:hunter2@{host}/postgres"), "password authentication failed"),
        (format!("{server}/nowhere"), "\"nowhere\" does not exist"),
    ] {
        let destination = open(&url, "sales", SALES, true).unwrap();
        assert_eq!(destination.ready().await, Ok(()));
        let effect = destination.apply(&row("d1", 1, r#"{"id":"a","total":5}"#)).await;
        let Effect::Failed { error, .. } = effect else { panic!("{effect:?}") };
        assert!(
            error.starts_with("the database refuses the connection: ")
                && error.contains(reason)
                && !error.contains("hunter2"),
            "{error}"
        );
    }
}

/// The search path of the URL says where a table and its bookkeeping stand.
#[tokio::test]
async fn a_table_in_another_schema_is_reached_by_the_search_path() {
    let database = TestDatabase::create().await;
    let user = database.client().await;
    user.batch_execute("CREATE SCHEMA shop; CREATE TABLE shop.sales (id text PRIMARY KEY, total text)").await.unwrap();
    let destination = open(&format!("{}?options=-csearch_path%3Dshop", database.url()), "sales", SALES, false).unwrap();
    assert_eq!(destination.apply(&row("d1", 1, r#"{"id":"a","total":1}"#)).await, written());
    let beside = user.query_one("SELECT count(*) FROM shop.sales, shop.hikyaku_versions, shop.hikyaku_processed", &[]);
    assert_eq!(beside.await.unwrap().get::<_, i64>(0), 1);
}

/// Whoever administers the database may have made its commits cheap; ours may not be.
#[tokio::test]
async fn c8_a_commit_that_is_reported_survives_a_power_failure_whatever_the_database_says() {
    let database = TestDatabase::create().await;
    let name = database.url().rsplit('/').next().unwrap().to_owned();
    let settings = format!(
        "ALTER DATABASE {name} SET synchronous_commit = off;
                            ALTER DATABASE {name} SET default_transaction_isolation = serializable"
    );
    database.client().await.batch_execute(&settings).await.unwrap();
    let destination = open(&database.url(), "sales", SALES, true).unwrap();
    let lent = destination.pool.take().await.unwrap();
    for (setting, expected) in [("synchronous_commit", "on"), ("transaction_isolation", "read committed")] {
        let shown = lent.session.client.query_one(&format!("SHOW {setting}"), &[]).await.unwrap();
        assert_eq!(shown.get::<_, &str>(0), expected);
    }
}

/// Two processes that start at once on an empty database.
#[tokio::test]
async fn the_tables_are_made_once_by_whoever_comes_first() {
    for _ in 0..5 {
        let database = TestDatabase::create().await;
        let url = database.url();
        let [a, b, c, d] = [(); 4].map(|()| open(&url, "sales", SALES, true).unwrap());
        let ready = tokio::join!(a.ready(), b.ready(), c.ready(), d.ready());
        assert_eq!(ready, (Ok(()), Ok(()), Ok(()), Ok(())));
        let rows = database.client().await.query("SELECT FROM hikyaku_versions", &[]).await.unwrap();
        assert!(rows.is_empty());
    }
}
