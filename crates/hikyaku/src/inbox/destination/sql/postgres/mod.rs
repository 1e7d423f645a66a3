//! A table of a PostgreSQL database.

mod failure;
mod session;
mod table;
#[cfg(test)]
mod tests;
mod value;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::ordering::{Rank, Verdict, Version, judge};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Transaction};

use super::mapping::{Mapping, quote};
use super::{BEFORE, EFFECTS_PER_PRUNING, MAX_PRUNED_ROWS, NEWER_IS_THERE, PROCESSED_KEPT};
use crate::crash;
use crate::inbox::destination::{Destination, Effect, ROWS_OF_ONCE, Tools};
use crate::postgres::{Target, described};
use crate::store::WorkRow;
use failure::effect_of;
use session::{OpenError, Pool, Session};
use table::Table;
use value::{AsText, plain_text};

/// How long a start waits for a database, which may be down.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A table with its bookkeeping, through a few connections of our own.
pub(super) struct PostgresDestination {
    pool: Pool,
    effects: AtomicU32,
}

impl PostgresDestination {
    /// A destination that connects when it has something to do.
    pub(super) fn new(url: &str, mapping: Mapping, tools: &Tools) -> Result<Self, String> {
        let target = Target::parse(url)?;
        Ok(Self { pool: Pool::new(target, mapping, tools.effect_timeout), effects: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Destination for PostgresDestination {
    /// A database that is down now is waited for like any other outage (C16); one that answers must fit.
    async fn ready(&self) -> Result<(), String> {
        let away = match tokio::time::timeout(READY_TIMEOUT, self.pool.take()).await {
            Ok(Ok(lent)) => {
                lent.give_back();
                return Ok(());
            }
            Ok(Err(OpenError::Unfit(reason))) => return Err(reason),
            Ok(Err(OpenError::Away(reason))) => reason,
            Err(_) => format!("no answer within {READY_TIMEOUT:?}"),
        };
        tracing::warn!(url = self.pool.shown_url(), "a database cannot be used now; what is for it waits: {away}");
        Ok(())
    }

    fn rows_at_a_time(&self) -> u32 {
        ROWS_OF_ONCE
    }

    async fn apply(&self, row: &WorkRow) -> Effect {
        let mut lent = match self.pool.take().await {
            Ok(lent) => lent,
            Err(error) => return Effect::Failed { error: error.to_string(), retry_after: None },
        };
        let effect = match write(&mut lent.session, self.pool.mapping(), row).await {
            Ok(effect) => effect,
            // A connection that has seen an error may be broken, and its prepared statements may be out of date.
            Err(error) => {
                let mapping = self.pool.mapping();
                return effect_of(&error, mapping, || lent.session.table.too_small(mapping, &row.body));
            }
        };
        if self.effects.fetch_add(1, Ordering::Relaxed).is_multiple_of(EFFECTS_PER_PRUNING)
            && let Err(error) = prune(&lent.session).await
        {
            let error = described(&error);
            tracing::warn!(error, "old rows of hikyaku_processed could not be dropped; it is tried again later");
        }
        lent.give_back();
        effect
    }
}

/// The statement that a body would bring, and its values as they are sent: as text, which each column reads as its type says.
/// What a column's type makes of its value is known only to the database; one of JSON gets a text with its quotes.
pub(in crate::inbox::destination::sql) fn preview(mapping: &Mapping, body: &[u8]) -> String {
    let value = |(number, (name, pointer)): (usize, (&String, &String))| {
        let text = plain_text(body, pointer)
            .map_or_else(|| "NULL".to_owned(), |text| format!("'{}'", text.replace('\'', "''")));
        format!("\n${} = {text}, read as the type of {}", number + 1, quote(name))
    };
    let values: String = mapping.columns.iter().enumerate().map(value).collect();
    format!("{}{values}", table::upsert_statement(mapping, &[]))
}

/// Whatever is not an `Ok(Done)` leaves nothing behind: a transaction that is dropped is rolled back, by us or, if the
/// connection goes, by the server. Where nobody knows whether it was committed, the record of the delivery tells the next
/// try.
async fn write(session: &mut Session, mapping: &Mapping, row: &WorkRow) -> Result<Effect, tokio_postgres::Error> {
    let Session { client, table, .. } = session;
    let (key, values) = match mapping.key_text(&row.body).and_then(|key| Ok((key, table.values(mapping, &row.body)?))) {
        Ok(bound) => bound,
        Err(reason) => return Ok(Effect::Refused(reason)),
    };
    let transaction = client.transaction().await?;
    // Another process at the same delivery is waited for here.
    let first = transaction.execute(&table.process, &[&mapping.table, &row.source, &row.delivery]).await?;
    if first == 0 {
        return Ok(Effect::Done(BEFORE.to_owned()));
    }
    let effect = match judge(applied(&transaction, table, mapping, &values, &key).await?.as_ref(), &row.version) {
        Verdict::Newer => match upsert(&transaction, table, mapping, &values).await? {
            Ok(stored) => remember(&transaction, table, mapping, &stored, &row.version).await?,
            Err(reason) => Effect::Refused(reason),
        },
        Verdict::Same => Effect::Done(BEFORE.to_owned()),
        Verdict::Stale => Effect::Stale(NEWER_IS_THERE.to_owned()),
    };
    if matches!(effect, Effect::Done(_)) {
        crash::point("books.uncommitted");
        transaction.commit().await?;
        crash::point("books.committed");
    }
    Ok(effect)
}

/// The newest version of a key that was written, as far as it is committed. It only ever grows, so what is stale by it is
/// stale for good; that it is newer is settled by [`remember`], under the lock of the row.
async fn applied(
    transaction: &Transaction<'_>,
    table: &Table,
    mapping: &Mapping,
    values: &[AsText],
    key: &str,
) -> Result<Option<Version>, tokio_postgres::Error> {
    let found = transaction.query_opt(&table.version, &[&values[table.key], &mapping.table, &key]).await?;
    found.as_ref().map(version).transpose()
}

fn version(found: &Row) -> Result<Version, tokio_postgres::Error> {
    // The table's CHECK holds the ranks.
    let rank = Rank::from_number(i64::from(found.try_get::<_, i16>(1)?)).unwrap_or(Rank::Updated);
    Ok(Version { micros: found.try_get(0)?, rank, event: found.try_get(2)? })
}

/// Writes the row, and holds it locked from here on: of two processes with one key, the second waits. Gives the key in the
/// row's own spelling: it is the column that says which keys are equal, and each row has one history (C4).
async fn upsert(
    transaction: &Transaction<'_>,
    table: &Table,
    mapping: &Mapping,
    values: &[AsText],
) -> Result<Result<String, String>, tokio_postgres::Error> {
    let bound: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
    let Some(stored) = transaction.query_opt(&table.upsert, &bound).await? else {
        return Ok(Err(mapping.ignored("a trigger or a rule of its own says so")));
    };
    for (position, column) in table.checked().enumerate() {
        let stored: Option<&str> = stored.try_get(position + 1)?;
        if !values[column.position].is_whole_as(stored) {
            return Ok(Err(mapping.not_whole(&column.name, "numeric or text")));
        }
    }
    Ok(Ok(stored.try_get(0)?))
}

/// Notes the version, if it is newer than what another process has written meanwhile (C4, T3).
async fn remember(
    transaction: &Transaction<'_>,
    table: &Table,
    mapping: &Mapping,
    key: &str,
    version: &Version,
) -> Result<Effect, tokio_postgres::Error> {
    let Version { micros, rank, event } = version;
    let newer = transaction.execute(&table.remember, &[&mapping.table, &key, micros, &(*rank as i16), event]).await?;
    Ok(if newer == 0 { Effect::Stale(NEWER_IS_THERE.to_owned()) } else { Effect::Done("written".to_owned()) })
}

/// Drops records that are too old to be asked for, by the database's clock and in a transaction of its own.
async fn prune(session: &Session) -> Result<u64, tokio_postgres::Error> {
    let kept_seconds = PROCESSED_KEPT.as_secs_f64();
    session.client.execute(&session.table.prune, &[&kept_seconds, &MAX_PRUNED_ROWS]).await
}
