//! A table of a SQLite database.

mod file;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod value;

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use hikyaku_core::ordering::{Rank, Verdict, Version, judge};
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, ffi, params};
use tokio::sync::{Mutex, oneshot};

use super::mapping::Mapping;
use super::{BEFORE, EFFECTS_PER_PRUNING, MAX_PRUNED_ROWS, NEWER_IS_THERE, PROCESSED_KEPT};
use crate::clock::SharedClock;
use crate::crash;
use crate::inbox::destination::{Destination, Effect, ROWS_OF_ONCE};
use crate::store::WorkRow;
use file::{Database, Place, is_passing};
use table::Table;
use value::{bound_as, other_type, stored_key, stored_whole};

/// Most rows whose effects are committed together.
const MAX_EFFECTS_PER_COMMIT: usize = 128;

/// A table with its bookkeeping, through one connection of our own. Rows that come while another's effect is committed
/// wait, and are committed together: they share the wait for the disk.
pub(super) struct SqliteDestination {
    place: Arc<Mutex<Place>>,
    clock: SharedClock,
    waiting: std::sync::Mutex<Vec<Asked>>,
}

/// A row that is to take effect, and who waits for it.
struct Asked {
    row: WorkRow,
    caller: oneshot::Sender<Effect>,
}

impl SqliteDestination {
    /// Opens the database and checks that table and settings fit. The error says what does not, and what to do; a database
    /// that cannot be used now is no error.
    pub(super) fn open(url: &str, mapping: &Mapping, clock: SharedClock) -> Result<Self, String> {
        let place = Place::open(url, mapping)?;
        Ok(Self { place: Arc::new(Mutex::new(place)), clock, waiting: std::sync::Mutex::default() })
    }

    fn ask(&self, row: &WorkRow) -> oneshot::Receiver<Effect> {
        let (caller, answer) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody waits for any more come again, if they have to.
        waiting.retain(|asked| !asked.caller.is_closed());
        waiting.push(Asked { row: row.clone(), caller });
        answer
    }

    fn asked(&self) -> Vec<Asked> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let count = waiting.len().min(MAX_EFFECTS_PER_COMMIT);
        waiting.drain(..count).collect()
    }
}

#[async_trait]
impl Destination for SqliteDestination {
    fn rows_at_a_time(&self) -> u32 {
        ROWS_OF_ONCE
    }

    fn keys_at_a_time(&self) -> Option<u32> {
        Some(MAX_EFFECTS_PER_COMMIT as u32)
    }

    async fn apply(&self, row: &WorkRow) -> Effect {
        let mut answer = self.ask(row);
        loop {
            // One writer at a time is all that SQLite has; waiting here keeps the waiting off the blocking threads.
            let mut place = self.place.clone().lock_owned().await;
            match answer.try_recv() {
                Ok(effect) => return effect,
                Err(oneshot::error::TryRecvError::Closed) => return panicked(),
                Err(oneshot::error::TryRecvError::Empty) => {}
            }
            let (asked, at) = (self.asked(), self.clock.now());
            // If the caller gives up waiting, the transaction still ends, and the next try finds it done.
            let work = tokio::task::spawn_blocking(move || {
                let (rows, callers): (Vec<_>, Vec<_>) =
                    asked.into_iter().map(|asked| (asked.row, asked.caller)).unzip();
                let effects = place.apply(&rows, at);
                for (caller, effect) in callers.into_iter().zip(effects) {
                    // A caller that has gone does not need the answer.
                    let _ = caller.send(effect);
                }
            });
            if work.await.is_err() {
                return panicked();
            }
        }
    }
}

fn panicked() -> Effect {
    Effect::Failed {
        error: "the SQL destination panicked, which is a defect of this program".to_owned(),
        retry_after: None,
    }
}

impl Place {
    /// Lets rows take effect, in their order and as if one after another, and drops what is too old from time to time.
    fn apply(&mut self, rows: &[WorkRow], at: Timestamp) -> Vec<Effect> {
        let database = match self.ready() {
            Ok(database) => database,
            Err(error) => {
                let failed = Effect::Failed { error: error.to_string(), retry_after: None };
                return vec![failed; rows.len()];
            }
        };
        let mut apply = |rows: &[WorkRow]| match database.apply_together(rows, at) {
            Ok(effects) => Ok(effects),
            Err(error) if rows.len() == 1 || is_passing(&error) => Ok(vec![effect_of(&error); rows.len()]),
            Err(_) => Err(()),
        };
        // Where one goes wrong, which one it is, and what of the others, is found out of each alone.
        let effects = apply(rows).unwrap_or_else(|()| rows.chunks(1).flat_map(&mut apply).flatten().collect());
        database.prune_sometimes(rows.len(), at);
        effects
    }
}

impl Database {
    /// Lets rows take effect in one transaction. After an error none has.
    fn apply_together(&mut self, rows: &[WorkRow], at: Timestamp) -> rusqlite::Result<Vec<Effect>> {
        let Self { connection, table, mapping, .. } = self;
        let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut effects = Vec::with_capacity(rows.len());
        for row in rows {
            let mut step = transaction.savepoint()?;
            let effect = write(&step, table, mapping, row, at.as_microsecond())?;
            // Whatever is not done leaves nothing behind. A stale row needs no record: it is stale for ever.
            if !matches!(effect, Effect::Done(_)) {
                step.rollback()?;
            }
            step.commit()?;
            effects.push(effect);
        }
        crash::point("books.uncommitted");
        transaction.commit()?;
        crash::point("books.committed");
        Ok(effects)
    }

    /// Drops old records after every so many effects.
    fn prune_sometimes(&mut self, effects: usize, now: Timestamp) {
        self.unpruned += u32::try_from(effects).unwrap_or(u32::MAX);
        if self.unpruned >= EFFECTS_PER_PRUNING {
            self.unpruned = 0;
            prune(&self.connection, now);
        }
    }
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

/// Writes a row with its bookkeeping, if it is new.
fn write(db: &Connection, table: &Table, mapping: &Mapping, row: &WorkRow, at: i64) -> rusqlite::Result<Effect> {
    let first = db
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
    let stored = key_of_row(db, table, &mut values[table.key])?;
    let key = stored.unwrap_or(key);
    let effect = match judge(applied(db, table, &key)?.as_ref(), &row.version) {
        Verdict::Newer => match upsert(db, table, &values)? {
            Upsert::Written(stored) => {
                remember(db, table, &stored.unwrap_or(key), &row.version)?;
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
    Ok(effect)
}

/// The key of the row that a key names, in the row's own spelling. It is the column that says what is equal: in one with
/// `COLLATE NOCASE` "A" names the row "a", in one of numbers "7.0" names 7, and each row has one history (C4). A column
/// without a type takes 7 and "7" for two, where the business key is one (C10): there the key becomes the one that stands.
fn key_of_row(db: &Connection, table: &Table, key: &mut Value) -> rusqlite::Result<Option<String>> {
    let mut statement = db.prepare_cached(&table.find_key)?;
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
fn applied(db: &Connection, table: &Table, key: &str) -> rusqlite::Result<Option<Version>> {
    db.prepare_cached("SELECT micros, rank, event FROM hikyaku_versions WHERE table_name = ?1 AND key = ?2")?
        .query_row([&table.name, key], |found| {
            let rank: i64 = found.get(1)?;
            let rank = Rank::from_number(rank).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, rank))?;
            Ok(Version { micros: found.get(0)?, rank, event: found.get(2)? })
        })
        .optional()
}

fn remember(db: &Connection, table: &Table, key: &str, version: &Version) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached(
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

fn upsert(db: &Connection, table: &Table, values: &[Value]) -> rusqlite::Result<Upsert> {
    let mut statement = db.prepare_cached(&table.upsert)?;
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
