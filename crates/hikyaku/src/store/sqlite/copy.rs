//! The file as one side of a copy: see [`transfer`](crate::store::transfer).

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ToSql, TransactionBehavior, params_from_iter};
use tokio::task::spawn_blocking;

use super::errors;
use super::open::{self, APPLICATION_ID, OpenError, UNFINISHED_COPY_ID};
use crate::clock::Clock;
use crate::store::StoreError;
use crate::store::transfer::{
    Column, CopySide, Kind, Layout, Layouts, Page, PageSender, Pages, Part, Row, TABLES, Table, Value, pages,
};

/// What stands otherwise here than in a copy's tables: by ids rather than positions, and without what the event or the row
/// tells. What has lost its event or row all the same is found to be damaged, and not left out.
pub(in crate::store) const LAYOUTS: Layouts = Layouts(&[
    Layout {
        name: "attempts",
        from: "attempts AS t LEFT JOIN events AS e ON e.organization = t.organization AND e.id = t.event",
        elsewhere: &[("created_at", "e")],
        into: &[("attempts", Part::Without(&["created_at"]))],
    },
    Layout {
        name: "undelivered",
        from: "undelivered AS t LEFT JOIN events AS e ON e.organization = t.organization AND e.id = t.event",
        elsewhere: &[("created_at", "e"), ("type", "e")],
        into: &[("undelivered", Part::Without(&["type"]))],
    },
    Layout {
        name: "inbox_rows",
        from: "inbox_rows AS t LEFT JOIN inbox_bodies AS b ON b.position = t.position",
        elsewhere: &[("body", "b")],
        into: &[("inbox_rows", Part::Without(&["body"])), ("inbox_bodies", Part::Only(&["position", "body"]))],
    },
    Layout {
        name: "known_ids",
        // An id whose row is there is known by the row.
        from: "known_ids AS t WHERE NOT EXISTS (SELECT 1 FROM inbox_rows AS r
            WHERE r.organization = t.organization AND r.provider = t.provider AND r.delivery = t.delivery)",
        elsewhere: &[],
        into: &[("known_ids", Part::All)],
    },
    Layout {
        name: "work",
        from: "work AS t LEFT JOIN inbox_rows AS r
            ON r.organization = t.organization AND r.provider = t.provider AND r.delivery = t.delivery",
        elsewhere: &[("due_since", "r"), ("position", "r")],
        into: &[("work", Part::Without(&["position"]))],
    },
    Layout {
        name: "effects",
        from: "effects AS t LEFT JOIN inbox_rows AS r
            ON r.organization = t.organization AND r.provider = t.provider AND r.delivery = t.delivery",
        elsewhere: &[("due_since", "r"), ("position", "r")],
        into: &[("effects", Part::Without(&["due_since", "position"]))],
    },
]);

/// Of what is not held no time of the event is kept.
const ONLY_OF_HELD: &str = "UPDATE undelivered SET created_at = NULL WHERE kind <> 'held'";
/// Leaves nothing of the copy in the write-ahead log.
const FOLD: &str = "PRAGMA wal_checkpoint(TRUNCATE)";

/// An open file.
pub(in crate::store) struct SqliteCopy {
    connection: Arc<Mutex<Connection>>,
    /// Keeps every other process out.
    _lock: File,
}

impl SqliteCopy {
    /// Opens the file, or makes it. What was leased is due at once, because nobody holds it. Blocks while it works.
    pub(in crate::store) fn open(path: &Path, clock: &dyn Clock) -> Result<Self, OpenError> {
        let opened = open::open(path, None, clock)?;
        Ok(Self { connection: Arc::new(Mutex::new(opened.writer)), _lock: opened.lock })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = Arc::clone(&self.connection);
        let done = spawn_blocking(move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner)));
        done.await.unwrap_or_else(|error| Err(StoreError::Unknown(format!("the copy broke off: {error}"))))
    }
}

#[async_trait]
impl CopySide for SqliteCopy {
    async fn is_unused(&self) -> Result<bool, StoreError> {
        // The lock says so.
        Ok(true)
    }

    async fn begin(&self) -> Result<Option<&'static str>, StoreError> {
        let begin = |connection: &mut Connection| {
            for Table { name, .. } in TABLES {
                let has_rows = format!("SELECT EXISTS (SELECT 1 FROM {name})");
                if connection.query_row(&has_rows, [], |row| row.get(0))? {
                    return Ok(Some(*name));
                }
            }
            connection.pragma_update(None, "application_id", UNFINISHED_COPY_ID)?;
            Ok(None)
        };
        self.run(begin).await
    }

    async fn count(&self, table: &'static Table) -> Result<u64, StoreError> {
        let count = format!("SELECT COUNT(*) FROM {}", LAYOUTS.from(table));
        let count: i64 = self.run(move |connection| Ok(connection.query_row(&count, [], |row| row.get(0))?)).await?;
        Ok(count.unsigned_abs())
    }

    fn read(&self, table: &'static Table) -> Pages {
        let (sender, pages) = pages();
        let connection = Arc::clone(&self.connection);
        spawn_blocking(move || {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            if let Err(error) = read(&connection, table, &sender) {
                // Who has gone away does not need it.
                let _ = sender.blocking_send(Err(error));
            }
        });
        pages
    }

    async fn write(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        self.run(move |connection| write(connection, table, &rows)).await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        let finish = |connection: &mut Connection| {
            connection.execute(ONLY_OF_HELD, [])?;
            Ok(connection.pragma_update(None, "application_id", APPLICATION_ID)?)
        };
        self.run(finish).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.run(|connection| Ok(connection.query_row(FOLD, [], |_| Ok(()))?)).await
    }
}

fn read(connection: &Connection, table: &'static Table, sender: &PageSender) -> Result<(), StoreError> {
    let select = format!("SELECT {} FROM {}", LAYOUTS.columns(table), LAYOUTS.from(table));
    let mut statement = connection.prepare(&select)?;
    let (mut found, mut page) = (statement.query([])?, Page::default());
    while let Some(row) = found.next()? {
        if let Some(full) = page.add(row_of(table, row)?)
            && sender.blocking_send(Ok(full)).is_err()
        {
            return Ok(());
        }
    }
    // Who has gone away does not need them.
    let _ = sender.blocking_send(Ok(page.take()));
    Ok(())
}

fn row_of(table: &'static Table, row: &rusqlite::Row<'_>) -> Result<Row, StoreError> {
    let value = |(index, column): (usize, &Column)| {
        let value = match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => Value::Number(number),
            found => match column.kind {
                Kind::Text => Value::Text(row.get(index)?),
                _ => Value::Bytes(found.as_bytes().map_err(rusqlite::Error::from)?.to_vec()),
            },
        };
        value.checked(table, column)
    };
    table.columns.iter().enumerate().map(value).collect()
}

fn write(connection: &mut Connection, table: &'static Table, rows: &[Row]) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (into, part) in LAYOUTS.into(table) {
        let columns = part.of(table);
        let names: Vec<_> = columns.iter().map(|(_, column)| column.name).collect();
        let places = vec!["?"; names.len()].join(", ");
        let insert = format!("INSERT INTO {into} ({}) VALUES ({places})", names.join(", "));
        let mut statement = transaction.prepare_cached(&insert)?;
        for row in rows {
            let values = columns.iter().map(|(place, _)| row.get(*place).unwrap_or(&Value::Null));
            statement.execute(params_from_iter(values))?;
        }
    }
    transaction.commit().map_err(|error| errors::of_commit(&error))
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
