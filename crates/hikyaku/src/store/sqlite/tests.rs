//! The suite that every store passes, and what is particular to SQLite.

mod bounds;
mod files;
mod migrations;
mod plans;
mod pressure;
mod seal;
mod searches;
#[cfg(unix)]
mod torn;

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::*;
use crate::clock::SystemClock;

/// A store in a directory of its own, which goes when it goes.
struct Fresh {
    store: SqliteStore,
    directory: TempDir,
}

impl Deref for Fresh {
    type Target = SqliteStore;
    fn deref(&self) -> &SqliteStore {
        &self.store
    }
}

impl Fresh {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open(&path_in(directory.path())).unwrap();
        Self { store, directory }
    }

    fn path(&self) -> PathBuf {
        path_in(self.directory.path())
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("hikyaku.db")
}

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(path, Seal::default(), &SystemClock::start())
}

async fn make() -> Fresh {
    Fresh::new()
}

mod suite {
    crate::store::conformance::conformance_suite!(super::make);
}
