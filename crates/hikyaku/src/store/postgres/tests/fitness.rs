//! Databases in which a node could not do all that it will have to.

use super::*;

async fn refused(url: &str) -> OpenError {
    let options = Options { migrate: false, connections: 2, ..Options::default() };
    PostgresStore::open(url, Seal::default(), &SystemClock::start(), options).await.unwrap_err()
}

#[tokio::test]
async fn a_user_who_may_not_make_each_days_tables_is_refused_at_once() {
    let store = make().await;
    let client = store.database.client().await;
    let role = format!("small_{}", std::process::id());
    let make = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'small'; GRANT USAGE ON SCHEMA public TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    client.batch_execute(&make).await.unwrap();
    let url = store.database.url();
    let (_, rest) = url.split_once('@').unwrap();
    let url = format!("postgres://{role}:small@{rest}");
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::NoRight { .. }), "{error}");
    client.batch_execute(&format!("GRANT CREATE ON SCHEMA public TO {role}")).await.unwrap();
    let error = refused(&url).await;
    assert!(matches!(error, OpenError::NoRight { .. }), "{error}");
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused_at_once() {
    let database = TestDatabase::create().await;
    let (client, url) = (database.client().await, database.url());
    let name = format!("latin_{}", std::process::id());
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    client.batch_execute(&create).await.unwrap();
    let (server, parameters) = url.split_once('?').unwrap_or((&url, ""));
    let parameters = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
    let url = format!("{}/{name}{parameters}", server.rsplit_once('/').unwrap().0);
    for error in [refused(&url).await, migrate(&url).await.unwrap_err()] {
        assert!(matches!(error, OpenError::Encoding { .. }) && error.to_string().contains("LATIN1"), "{error}");
    }
    client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.unwrap();
}

#[tokio::test]
async fn a_node_whose_days_cannot_be_made_is_not_ready() {
    let store = make().await;
    let client = store.database.client().await;
    store.prepare(crate::store::conformance::fixture::at(0)).await.unwrap();
    store.ping().await.unwrap();
    client.batch_execute("ALTER TABLE events RENAME TO hidden").await.unwrap();
    let later = crate::store::conformance::fixture::at(10 * 24 * 3600);
    store.prepare(later).await.unwrap_err();
    store.ping().await.unwrap_err();
    client.batch_execute("ALTER TABLE hidden RENAME TO events").await.unwrap();
    store.prepare(later).await.unwrap();
    store.ping().await.unwrap();
}
