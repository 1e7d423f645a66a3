//! A table of a SQLite database.

mod file;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use hikyaku_core::ordering::{Rank, Verdict, Version, judge};
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, ffi, params};
use tokio::sync::Mutex;

use super::mapping::Mapping;
use super::{BEFORE, EFFECTS_PER_PRUNING, MAX_PRUNED_ROWS, NEWER_IS_THERE, PROCESSED_KEPT};
use crate::clock::SharedClock;
use crate::crash;
use crate::inbox::destination::{Destination, Effect, ROWS_OF_ONCE};
use crate::store::WorkRow;
use file::{Database, Place};
use table::Table;
use value::{bound_as, other_type, stored_key, stored_whole};

/// A table with its bookkeeping, through one connection of our own.
pub(super) struct SqliteDestination {
    place: Arc<Mutex<Place>>,
    clock: SharedClock,
    effects: AtomicU32,
}

impl SqliteDestination {
    /// Opens the database and checks that table and settings fit. The error says what does not, and what to do; a database
    /// that cannot be used now is no error.
    pub(super) fn open(url: &str, mapping: &Mapping, clock: SharedClock) -> Result<Self, String> {
        let place = Place::open(url, mapping)?;
        Ok(Self { place: Arc::new(Mutex::new(place)), clock, effects: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Destination for SqliteDestination {
    fn rows_at_a_time(&self) -> u32 {
        ROWS_OF_ONCE
    }

    async fn apply(&self, row: &WorkRow) -> Effect {
        // One writer at a time is all that SQLite has; waiting here keeps the waiting off the blocking threads.
        let mut place = self.place.clone().lock_owned().await;
        let (row, at) = (row.clone(), self.clock.now());
        let prunes = self.effects.fetch_add(1, Ordering::Relaxed).is_multiple_of(EFFECTS_PER_PRUNING);
        // If the caller gives up waiting, the transaction still ends, and the next try finds it done.
        let work = tokio::task::spawn_blocking(move || {
            let effect = apply(&mut place, &row, at.as_microsecond());
            if let Some(database) = place.opened().filter(|_| prunes) {
                prune(&database.connection, at);
            }
            effect
        });
        work.await.unwrap_or_else(|_| Effect::Failed {
            error: "the SQL destination panicked, which is a defect of this program".to_owned(),
            retry_after: None,
        })
    }
}

fn apply(place: &mut Place, row: &WorkRow, at: i64) -> Effect {
    let Database { connection, table, mapping, .. } = match place.ready() {
        Ok(database) => database,
        Err(error) => return Effect::Failed { error: error.to_string(), retry_after: None },
    };
    apply_in_transaction(connection, table, mapping, row, at).unwrap_or_else(|error| effect_of(&error))
}

/// Drops records that are too old to be asked for, in a transaction of its own. What it does not drop now it drops later.
fn prune(connection: &Connection, now: Timestamp) {
    let before = now.saturating_sub(PROCESSED_KEPT).unwrap_or(Timestamp::MIN).as_microsecond();
    let dropped = connection
        .prepare_cached(
            "DELETE FROM hikyaku_processed WHERE (table_name, source, delivery) IN (
                 SELECT table_name, source, delivery FROM hikyaku_processed
                 WHERE processed_at < ?1 ORDER BY processed_at LIMIT ?2)",
        )
        .and_then(|mut statement| statement.execute([before, MAX_PRUNED_ROWS]));
    if let Err(error) = dropped {
        tracing::warn!(%error, "old rows of hikyaku_processed could not be dropped; it is tried again later");
    }
}

/// Whatever is not an `Ok(Done)` leaves nothing behind. A stale row needs no record: it is stale for ever.
fn apply_in_transaction(
    connection: &mut Connection,
    table: &Table,
    mapping: &Mapping,
    row: &WorkRow,
    at: i64,
) -> rusqlite::Result<Effect> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let first = transaction
        .prepare_cached("INSERT INTO hikyaku_processed (table_name, source, delivery, processed_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING")?
        .execute(params![table.name, row.source, row.delivery, at])?;
    if first == 0 {
        return Ok(Effect::Done(BEFORE.to_owned()));
    }
    let mut values: Vec<Value> =
        table.columns.iter().map(|column| bound_as(column.affinity, &row.body, &column.pointer)).collect();
    let key = match mapping.key_text(&row.body) {
        Ok(key) => key,
        Err(reason) => return Ok(Effect::Refused(reason)),
    };
    let stored = key_of_row(&transaction, table, &mut values[table.key])?;
    let key = stored.unwrap_or(key);
    let effect = match judge(applied(&transaction, table, &key)?.as_ref(), &row.version) {
        Verdict::Newer => match upsert(&transaction, table, &values)? {
            Upsert::Written(stored) => {
                remember(&transaction, table, &stored.unwrap_or(key), &row.version)?;
                Effect::Done("written".to_owned())
            }
            Upsert::Changed(column) => {
                return Ok(Effect::Refused(mapping.not_whole(&table.columns[column].name, "TEXT")));
            }
            Upsert::Ignored => {
                return Ok(Effect::Refused(
                    mapping.ignored("a trigger or an ON CONFLICT clause of its own says IGNORE"),
                ));
            }
        },
        Verdict::Same => Effect::Done(BEFORE.to_owned()),
        Verdict::Stale => return Ok(Effect::Stale(NEWER_IS_THERE.to_owned())),
    };
    crash::point("books.uncommitted");
    transaction.commit()?;
    crash::point("books.committed");
    Ok(effect)
}

/// The key of the row that a key names, in the row's own spelling. It is the column that says what is equal: in one with
/// `COLLATE NOCASE` "A" names the row "a", in one of numbers "7.0" names 7, and each row has one history (C4). A column
/// without a type takes 7 and "7" for two, where the business key is one (C10): there the key becomes the one that stands.
fn key_of_row(transaction: &Transaction, table: &Table, key: &mut Value) -> rusqlite::Result<Option<String>> {
    let mut statement = transaction.prepare_cached(&table.find_key)?;
    let mut find = |key: &Value| statement.query_row([key], |row| row.get::<_, Value>(0)).optional();
    if let Some(stored) = find(key)? {
        return Ok(stored_key(&stored));
    }
    let Some(stored) = other_type(key).map(|other| find(&other)).transpose()?.flatten() else { return Ok(None) };
    let text = stored_key(&stored);
    *key = stored;
    Ok(text)
}

/// The newest version of a key that was written.
fn applied(transaction: &Transaction, table: &Table, key: &str) -> rusqlite::Result<Option<Version>> {
    transaction
        .prepare_cached("SELECT micros, rank, event FROM hikyaku_versions WHERE table_name = ?1 AND key = ?2")?
        .query_row([&table.name, key], |found| {
            let rank: i64 = found.get(1)?;
            let rank = Rank::from_number(rank).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, rank))?;
            Ok(Version { micros: found.get(0)?, rank, event: found.get(2)? })
        })
        .optional()
}

fn remember(transaction: &Transaction, table: &Table, key: &str, version: &Version) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO hikyaku_versions (table_name, key, micros, rank, event) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (table_name, key) DO UPDATE SET micros = ?3, rank = ?4, event = ?5",
    )?;
    statement.execute(params![table.name, key, version.micros, version.rank as i64, version.event])?;
    Ok(())
}

/// What became of a row that was handed to the table.
enum Upsert {
    /// It is there as it was bound; with its key as the table spells it.
    Written(Option<String>),
    /// The column at this position did not keep its value whole.
    Changed(usize),
    /// The table's own rules passed it over without an error.
    Ignored,
}

fn upsert(transaction: &Transaction, table: &Table, values: &[Value]) -> rusqlite::Result<Upsert> {
    let mut statement = transaction.prepare_cached(&table.upsert)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let Some(row) = rows.next()? else { return Ok(Upsert::Ignored) };
    for (position, value) in values.iter().enumerate() {
        if !stored_whole(value, &row.get(position)?) {
            return Ok(Upsert::Changed(position));
        }
    }
    Ok(Upsert::Written(stored_key(&row.get(table.key)?)))
}

/// What an error of SQLite means for a row: a value that the table will not have is refused; everything else may
/// pass: a lock, a full disk, a table under change, a parent row that has not come yet, or another row that still has a
/// value that is to be unique (R19).
fn effect_of(error: &rusqlite::Error) -> Effect {
    let (code, extended) = match error.sqlite_error() {
        Some(found) => (found.code, found.extended_code),
        None => (ErrorCode::Unknown, 0),
    };
    let of_other_rows =
        [ffi::SQLITE_CONSTRAINT_FOREIGNKEY, ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY];
    let refused = match code {
        ErrorCode::ConstraintViolation => !of_other_rows.contains(&extended),
        ErrorCode::TypeMismatch | ErrorCode::TooBig => true,
        _ => false,
    };
    if refused {
        Effect::Refused(format!("the table does not accept the row: {error}"))
    } else {
        Effect::Failed { error: format!("SQLite: {error}"), retry_after: None }
    }
}
