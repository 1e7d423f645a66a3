//! Copying a store into a new one, of the same kind or another, while nobody works with either.
//!
//! Rows go page by page in a form that every store can give and take; each store knows how its schema differs from it.
//! Afterwards everything is read once more from the copy, and of every table the number of rows and a hash over them are
//! compared with those of what was read first. Until that is done the copy is marked as unfinished, and no program opens
//! it: a copy that broke off is never taken for a store. Secrets go as they stand, sealed or not, so no key is needed.

mod layout;
mod row;
mod tables;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::postgres::PostgresCopy;
use super::sqlite::SqliteCopy;
use super::{StoreError, postgres, sqlite};
use crate::clock::SharedClock;

pub(super) use layout::{Layout, Layouts, Part};
pub use row::Sum;
pub(super) use row::{Page, Row, Value};
pub(super) use tables::{Column, Kind, TABLES, Table};

/// Pages that are read ahead.
const PAGES_AHEAD: usize = 2;

/// Pages of a table as they are read.
pub(super) type Pages = mpsc::Receiver<Result<Vec<Row>, StoreError>>;
/// Where they are put.
pub(super) type PageSender = mpsc::Sender<Result<Vec<Row>, StoreError>>;

/// Pages that are to be read, and where the reader puts them.
pub(super) fn pages() -> (PageSender, Pages) {
    mpsc::channel(PAGES_AHEAD)
}

/// What a store does for a copy.
#[async_trait]
pub(super) trait CopySide: Send + Sync {
    /// Whether no process is known to work with it.
    async fn is_unused(&self) -> Result<bool, StoreError>;

    /// Marks a store without rows as an unfinished copy; the name of a table that has rows, if there is one.
    async fn begin(&self) -> Result<Option<&'static str>, StoreError>;

    /// How many rows a table has.
    async fn count(&self, table: &'static Table) -> Result<u64, StoreError>;

    /// Reads a table from its beginning to its end.
    fn read(&self, table: &'static Table) -> Pages;

    /// Adds rows to a table.
    async fn write(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError>;

    /// Makes a finished copy a store like any other.
    async fn finish(&self) -> Result<(), StoreError>;

    /// Leaves the store as a stopped program does.
    async fn close(&self) -> Result<(), StoreError>;
}

/// Why a store was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is nothing to copy.
    #[error("there is no store at {0}; name the file of the store that is to be copied")]
    NoStore(PathBuf),
    /// A file cannot be opened.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// A database cannot be opened.
    #[error(transparent)]
    Postgres(#[from] postgres::OpenError),
    /// Somebody works with it.
    #[error(
        "a server works with {0}; stop every server that uses it (one that was killed is known to be gone after 20 seconds)"
    )]
    InUse(String),
    /// The target holds something.
    #[error("{name} is not empty (it has rows in {table}); copy into a new store, which this command makes")]
    NotEmpty {
        /// The target.
        name: String,
        /// A table with rows.
        table: &'static str,
    },
    /// A store failed on the way.
    #[error("{name}: {source}; the copy is not finished, so drop what is there of it and copy again")]
    Failed {
        /// Which store.
        name: String,
        /// What it said.
        source: StoreError,
    },
    /// Opening broke off.
    #[error("opening it broke off: {0}")]
    BrokeOff(#[from] tokio::task::JoinError),
}

/// A store that is copied, or copied into. Nobody else can open it as long as this is there, if it is a file.
pub struct Side {
    name: String,
    store: Box<dyn CopySide>,
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Side {
    /// The store in a SQLite file, in the present schema; a file that is not there is made only where `may_be_new`.
    ///
    /// # Errors
    /// Where there is no such store, or it cannot be opened.
    pub async fn sqlite(path: &Path, may_be_new: bool, clock: SharedClock) -> Result<Self, CopyError> {
        if !may_be_new && !path.exists() {
            return Err(CopyError::NoStore(path.to_owned()));
        }
        let (name, path) = (path.display().to_string(), path.to_owned());
        let opened = tokio::task::spawn_blocking(move || SqliteCopy::open(&path, &*clock)).await??;
        Ok(Self { name, store: Box::new(opened) })
    }

    /// The store in a PostgreSQL database, in the present schema.
    ///
    /// # Errors
    /// Where the database cannot be used.
    pub async fn postgres(url: &str, clock: SharedClock) -> Result<Self, CopyError> {
        let opened = PostgresCopy::open(url, &*clock).await?;
        Ok(Self { name: opened.name().to_owned(), store: Box::new(opened) })
    }

    fn failed(&self, source: StoreError) -> CopyError {
        CopyError::Failed { name: self.name.clone(), source }
    }

    async fn check_unused(&self) -> Result<(), CopyError> {
        match self.store.is_unused().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(CopyError::InUse(self.name.clone())),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn count(&self) -> Result<u64, CopyError> {
        let mut rows = 0;
        for table in TABLES {
            rows += self.store.count(table).await.map_err(|error| self.failed(error))?;
        }
        Ok(rows)
    }

    /// Reads a table, does something with each page, and sums it up.
    async fn sum(
        &self,
        table: &'static Table,
        mut each: impl AsyncFnMut(Vec<Row>) -> Result<(), CopyError>,
    ) -> Result<Sum, CopyError> {
        let (mut sum, mut pages) = (Sum::default(), self.store.read(table));
        while let Some(page) = pages.recv().await {
            let page = page.map_err(|error| self.failed(error))?;
            page.iter().for_each(|row| sum.add(row));
            each(page).await?;
        }
        Ok(sum)
    }
}

/// What a copy is at.
#[derive(Debug, Clone, Copy)]
pub enum Progress {
    /// It begins; so many rows go by, each once to be copied and once to be compared.
    Begun(u64),
    /// This table is copied.
    Copying(&'static str),
    /// This table is compared.
    Comparing(&'static str),
    /// So many more rows have gone by.
    Rows(u64),
}

/// A table on both sides.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    /// The table.
    pub table: &'static str,
    /// What was read from the store that was copied.
    pub from: Sum,
    /// What was read from the copy.
    pub to: Sum,
}

impl Compared {
    /// Whether both hold the same rows.
    pub fn is_same(&self) -> bool {
        self.from == self.to
    }
}

/// Copies everything of `from` into `to`, which is empty, and compares the two. Where a table differs, the copy stays marked
/// as unfinished.
///
/// # Errors
/// Where somebody works with one of them, `to` is not empty, or one of them fails. Then nobody can open `to`.
pub async fn copy(from: &Side, to: &Side, progress: impl Fn(Progress)) -> Result<Vec<Compared>, CopyError> {
    from.check_unused().await?;
    to.check_unused().await?;
    let failed = |error| to.failed(error);
    if let Some(table) = to.store.begin().await.map_err(failed)? {
        return Err(CopyError::NotEmpty { name: to.name.clone(), table });
    }
    progress(Progress::Begun(from.count().await?.saturating_mul(2)));
    let mut compared = Vec::new();
    for table in TABLES {
        progress(Progress::Copying(table.name));
        let copied = from.sum(table, async |page| {
            let rows = page.len() as u64;
            to.store.write(table, page).await.map_err(failed)?;
            progress(Progress::Rows(rows));
            Ok(())
        });
        compared.push(Compared { table: table.name, from: copied.await?, to: Sum::default() });
    }
    for (table, compared) in TABLES.iter().zip(&mut compared) {
        progress(Progress::Comparing(table.name));
        let found = to.sum(table, async |page| {
            progress(Progress::Rows(page.len() as u64));
            Ok(())
        });
        compared.to = found.await?;
    }
    from.check_unused().await?;
    if compared.iter().all(Compared::is_same) {
        to.store.finish().await.map_err(failed)?;
    }
    from.store.close().await.map_err(|error| from.failed(error))?;
    to.store.close().await.map_err(failed)?;
    Ok(compared)
}
