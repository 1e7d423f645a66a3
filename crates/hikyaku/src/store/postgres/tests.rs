//! The suite that every store passes, and what is particular to PostgreSQL.

mod fitness;
mod migrations;
mod nudges;
mod partitions;
mod plans;
mod reach;
mod receiving;
mod seal;
mod sending;
mod snapshots;

use std::ops::Deref;

use super::*;
use crate::clock::SystemClock;
use crate::store::seal::Seal;
use crate::test_postgres::TestDatabase;

/// A store in a database of its own, which goes when it goes.
struct Fresh {
    store: PostgresStore,
    database: TestDatabase,
}

impl Deref for Fresh {
    type Target = PostgresStore;
    fn deref(&self) -> &PostgresStore {
        &self.store
    }
}

async fn make() -> Fresh {
    let database = TestDatabase::create().await;
    Fresh { store: open(&database).await, database }
}

/// Another node on a database.
async fn open(database: &TestDatabase) -> PostgresStore {
    open_at(&database.url()).await
}

async fn open_at(url: &str) -> PostgresStore {
    let options = Options { connections: 4, ..Options::default() };
    PostgresStore::open(url, Seal::default(), &SystemClock::start(), options).await.unwrap()
}

mod suite {
    crate::store::conformance::conformance_suite!(super::make);
}
