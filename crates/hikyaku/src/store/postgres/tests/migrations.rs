//! The schema comes to be once, whoever opens it, and a newer one that says so works with this program.

use super::*;
use crate::postgres::Target;
use crate::store::conformance::fixture::*;
use crate::store::postgres::migrate::{STEPS, Step};
use crate::store::postgres::{days, open as opening};
use crate::store::*;

/// What a next version may do: add to every table what this program does not know of, and make new things.
const ADDS: &str = "
    DO $$ DECLARE name TEXT; BEGIN
        FOR name IN SELECT c.relname FROM pg_class AS c
            WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        LOOP
            EXECUTE format('ALTER TABLE %I ADD COLUMN added BIGINT', name);
            EXECUTE format('CREATE INDEX ON %I (added)', name);
        END LOOP;
    END $$;
    CREATE TABLE labels (organization TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (organization, name));";
const NEXT: &[Step] = &[STEPS[0], Step { sql: ADDS, works_from: 1 }];
const BREAKING: &[Step] = &[STEPS[0], Step { sql: "CREATE TABLE labels (name TEXT)", works_from: 2 }];

/// Brings a database up to these steps, as a newer program does.
async fn migrate_to(database: &TestDatabase, steps: &'static [Step]) {
    let target = Target::parse(&database.url()).unwrap();
    let webhooks = Arc::new(WebhookCache::new(Seal::default()));
    let db = Database::new(&target, 1, webhooks, Arc::new(days::Days::default())).unwrap();
    opening::apply(&db, steps).await.unwrap();
}

async fn make_newer() -> Fresh {
    let database = TestDatabase::create().await;
    migrate_to(&database, NEXT).await;
    Fresh { store: open(&database).await, database }
}

mod suite_on_the_next_schema {
    crate::store::conformance::conformance_suite! { cases of super::make_newer }
}

async fn try_to_open(database: &TestDatabase, migrate: bool) -> Result<PostgresStore, OpenError> {
    let options = Options { migrate, connections: 2, ..Options::default() };
    PostgresStore::open(&database.url(), Seal::default(), &SystemClock::start(), options).await
}

#[tokio::test]
async fn nodes_that_start_together_make_one_schema() {
    let database = TestDatabase::create().await;
    let open = || try_to_open(&database, true);
    let (a, b, c, d) = tokio::join!(open(), open(), open(), open());
    for store in [a, b, c, d] {
        store.unwrap().ping().await.unwrap();
    }
    let applied = database.client().await.query("SELECT version FROM schema_steps", &[]).await.unwrap();
    assert_eq!(applied.len(), STEPS.len());
}

#[tokio::test]
async fn a_node_goes_on_while_a_newer_one_changes_the_schema() {
    let fresh = make().await;
    create(&*fresh, &["w"]).await;
    store_events(&*fresh, &["a"]).await;
    assert_eq!(claim(&*fresh, "a", 0).await.len(), 1);
    record(&*fresh, vec![row("d1", "k", 0)]).await;
    migrate_to(&fresh.database, NEXT).await;
    store_events(&*fresh, &["b"]).await;
    assert_eq!(claim(&*fresh, "a", 0).await.len(), 1);
    assert_eq!(log(&*fresh, "w").await.len(), 0);
    record(&*fresh, vec![row("d2", "k", 0)]).await;
    assert_eq!(claim_lane(&*fresh, "a", 0).await.rows.len(), 2);
    fresh.prepare(at(0)).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_is_too_new_or_not_there_is_refused_with_what_to_do() {
    let database = TestDatabase::create().await;
    let error = try_to_open(&database, false).await.unwrap_err();
    assert!(matches!(error, OpenError::NotMigrated { found: 0, .. }), "{error}");
    assert!(error.to_string().contains("run \"hikyaku migrate\""), "{error}");
    let tables = "SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace";
    assert!(database.client().await.query(tables, &[]).await.unwrap().is_empty(), "it was not touched");

    migrate_to(&database, BREAKING).await;
    for migrate in [true, false] {
        let error = try_to_open(&database, migrate).await.unwrap_err();
        assert!(matches!(error, OpenError::TooNew { found: 2, .. }), "{error}");
        assert!(error.to_string().contains("use a newer one"), "{error}");
    }
}

#[tokio::test]
async fn a_schema_that_is_there_is_opened_without_migrating() {
    let database = TestDatabase::create().await;
    migrate_to(&database, NEXT).await;
    try_to_open(&database, false).await.unwrap().ping().await.unwrap();
}
