//! The database as one side of a copy: see [`transfer`](crate::store::transfer).

mod values;

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::ClientWrapper;
use futures_util::TryStreamExt;
use jiff::Timestamp;
use tokio_postgres::types::ToSql;

use super::columns::{millis, sound};
use super::transaction::Transaction;
use super::{OpenError, Options, PostgresStore, duties, open};
use crate::clock::Clock;
use crate::store::transfer::{
    CopySide, Kind, Layout, Layouts, Page, PageSender, Pages, Part, Row, TABLES, Table, Value, pages,
};
use crate::store::{Store, StoreError};

/// Connections for what is short: a write, and room for its day.
const CONNECTIONS: usize = 2;

/// What stands otherwise here than in a copy's tables: ids stand apart and say what is there, also while a day that is
/// dropped still has its partitions.
pub(in crate::store) const LAYOUTS: Layouts = Layouts(&[
    Layout {
        name: "events",
        from: "events AS t
            JOIN event_ids AS i ON i.organization = t.organization AND i.id = t.id AND i.created_at = t.created_at",
        elsewhere: &[],
        into: &[("event_ids", Part::Only(&["organization", "id", "created_at"])), ("events", Part::All)],
    },
    Layout {
        name: "deliveries",
        from: "deliveries AS t
            JOIN event_ids AS i ON i.organization = t.organization AND i.id = t.event AND i.created_at = t.created_at",
        elsewhere: &[],
        into: &[("deliveries", Part::All)],
    },
    Layout {
        name: "attempts",
        from: "attempts AS t
            JOIN event_ids AS i ON i.organization = t.organization AND i.id = t.event AND i.created_at = t.created_at",
        elsewhere: &[],
        into: &[("attempts", Part::All)],
    },
    Layout {
        name: "inbox_rows",
        from: "inbox_rows AS t
            JOIN inbox_ids AS i ON i.organization = t.organization AND i.provider = t.provider
                AND i.delivery = t.delivery AND i.due_since = t.due_since AND i.position = t.position
            LEFT JOIN inbox_bodies AS b ON b.organization = t.organization AND b.due_since = t.due_since
                AND b.position = t.position",
        elsewhere: &[("body", "b")],
        into: &[
            ("inbox_ids", Part::Only(&["organization", "provider", "delivery", "due_since", "position"])),
            ("inbox_rows", Part::Without(&["body"])),
            ("inbox_bodies", Part::Only(&["organization", "position", "due_since", "body"])),
        ],
    },
    Layout {
        name: "known_ids",
        from: "inbox_ids AS t WHERE t.position IS NULL",
        elsewhere: &[],
        into: &[("inbox_ids", Part::All)],
    },
    Layout {
        name: "effects",
        from: "effects AS t
            JOIN inbox_ids AS i ON i.organization = t.organization AND i.due_since = t.due_since
                AND i.position = t.position",
        elsewhere: &[("provider", "i"), ("delivery", "i")],
        into: &[("effects", Part::Without(&["provider", "delivery"]))],
    },
]);
/// Tables that are partitioned by day, with the column that says which.
const BY_DAY: &[(&str, &str)] = &[
    ("events", "created_at"),
    ("deliveries", "created_at"),
    ("attempts", "created_at"),
    ("inbox_rows", "due_since"),
    ("effects", "due_since"),
];

const IS_HELD: &str = "SELECT EXISTS (SELECT 1 FROM duties WHERE until > $1)";
const MARK: &str = "CREATE TABLE unfinished_copy (since TIMESTAMPTZ NOT NULL DEFAULT now())";
/// What nodes keep in memory of webhooks has a version, and new rows have numbers beyond those that are there.
const FINISH: &str = "INSERT INTO organizations (organization, version) SELECT DISTINCT organization, 1 FROM webhooks;
    SELECT setval('inbox_positions', last) FROM (SELECT MAX(position) AS last FROM inbox_ids) AS ids WHERE last > 0;
    SELECT setval('lane_claims', last) FROM (SELECT MAX(claim) AS last FROM lanes) AS claims WHERE last > 0;
    DROP TABLE unfinished_copy";

/// An open database.
pub(in crate::store) struct PostgresCopy {
    store: PostgresStore,
    /// Reads and sums up whole tables.
    patient: Arc<ClientWrapper>,
    shown: String,
}

impl PostgresCopy {
    /// Opens the database, with its schema brought up to date.
    pub(in crate::store) async fn open(url: &str, clock: &dyn Clock) -> Result<Self, OpenError> {
        let options = Options { connections: CONNECTIONS, ..Options::default() };
        let store = PostgresStore::open_with(url, None, clock, options).await?;
        let shown = crate::postgres::without_password(url);
        open::check_exact(&store.db, &shown).await?;
        let patient = store.db.patient().await;
        let patient = patient.map_err(|source| OpenError::Away { url: shown.clone(), source })?;
        Ok(Self { store, patient: Arc::new(patient), shown })
    }

    /// Its URL without the password.
    pub(in crate::store) fn name(&self) -> &str {
        &self.shown
    }
}

#[async_trait]
impl CopySide for PostgresCopy {
    async fn is_unused(&self) -> Result<bool, StoreError> {
        // Some node always holds the duty of retention, wherever one runs.
        let is_held = self.store.db.look((), |transaction, ()| {
            Box::pin(async {
                let now = millis(duties::time(transaction).await?);
                Ok(transaction.one(IS_HELD, &[&now]).await?.try_get::<_, bool>(0)?)
            })
        });
        Ok(!is_held.await?)
    }

    async fn begin(&self) -> Result<Option<&'static str>, StoreError> {
        self.store.db.write((), |transaction, ()| Box::pin(begin(transaction))).await
    }

    async fn count(&self, table: &'static Table) -> Result<u64, StoreError> {
        let count = format!("SELECT COUNT(*) FROM {}", LAYOUTS.from(table));
        let count: i64 = self.patient.query_one(&count, &[]).await?.try_get(0)?;
        Ok(count.unsigned_abs())
    }

    fn read(&self, table: &'static Table) -> Pages {
        let (sender, pages) = pages();
        let patient = Arc::clone(&self.patient);
        tokio::spawn(async move {
            if let Err(error) = read(&patient, table, &sender).await {
                // Who has gone away does not need it.
                let _ = sender.send(Err(error)).await;
            }
        });
        pages
    }

    async fn write(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        let times = times(table, &rows)?;
        self.store.write_dated(times, (table, rows), |transaction, asked| Box::pin(write(transaction, asked))).await
    }

    async fn finish(&self) -> Result<(), StoreError> {
        // Plans should know from the first moment how much there is.
        let names: Vec<_> = TABLES.iter().flat_map(|table| LAYOUTS.into(table)).map(|(name, _)| name).collect();
        self.patient.batch_execute(&format!("ANALYZE {}", names.join(", "))).await?;
        self.store.db.write((), |transaction, ()| Box::pin(transaction.batch(FINISH))).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}

async fn begin(transaction: &Transaction<'_>) -> Result<Option<&'static str>, StoreError> {
    for table in TABLES {
        for (name, _) in LAYOUTS.into(table) {
            let has_rows = format!("SELECT EXISTS (SELECT 1 FROM {name})");
            if transaction.one(&has_rows, &[]).await?.try_get(0)? {
                return Ok(Some(name));
            }
        }
    }
    transaction.batch(MARK).await?;
    Ok(None)
}

async fn read(patient: &ClientWrapper, table: &'static Table, sender: &PageSender) -> Result<(), StoreError> {
    let select = format!("SELECT {} FROM {}", LAYOUTS.columns(table), LAYOUTS.from(table));
    let nothing: [&(dyn ToSql + Sync); 0] = [];
    let mut found = pin!(patient.query_raw(&select, nothing).await?);
    let mut page = Page::default();
    while let Some(row) = found.try_next().await? {
        if let Some(full) = page.add(values::row(table, &row)?)
            && sender.send(Ok(full)).await.is_err()
        {
            return Ok(());
        }
    }
    // Who has gone away does not need them.
    let _ = sender.send(Ok(page.take())).await;
    Ok(())
}

/// The times of rows that have their places by day.
fn times(table: &'static Table, rows: &[Row]) -> Result<Vec<Timestamp>, StoreError> {
    let Some((_, by)) = BY_DAY.iter().find(|(name, _)| *name == table.name) else { return Ok(Vec::new()) };
    let place = table.columns.iter().position(|column| column.name == *by);
    let found = rows.iter().filter_map(|row| match row.get(place?) {
        Some(Value::Number(millis)) => Some(*millis),
        _ => None,
    });
    found.map(|millis| sound(by, Timestamp::from_millisecond(millis))).collect()
}

async fn write(transaction: &Transaction<'_>, asked: &(&'static Table, Vec<Row>)) -> Result<(), StoreError> {
    let (table, rows) = asked;
    for (into, part) in LAYOUTS.into(table) {
        let columns = part.of(table);
        let names: Vec<_> = columns.iter().map(|(_, column)| column.name).collect();
        let arrays = columns.iter().zip(1..).map(|((_, column), number)| match column.kind {
            Kind::Number => format!("${number}::BIGINT[]"),
            Kind::Text => format!("${number}::TEXT[]"),
            Kind::Bytes => format!("${number}::BYTEA[]"),
        });
        let arrays: Vec<_> = arrays.collect();
        let insert = format!("INSERT INTO {into} ({}) SELECT * FROM UNNEST({})", names.join(", "), arrays.join(", "));
        let values: Vec<_> = columns.iter().map(|(place, column)| values::array(rows, *place, column.kind)).collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| &**value as _).collect();
        transaction.execute(&insert, &values).await?;
    }
    Ok(())
}
