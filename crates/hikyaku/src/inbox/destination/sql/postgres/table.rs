//! The user's table as configured, checked against the one that is there.

use tokio_postgres::error::SqlState;
use tokio_postgres::types::Oid;
use tokio_postgres::{Client, Statement};

use super::session::{OpenError, unready};
use super::value::{AsText, Holds};
use crate::inbox::destination::sql::decimal::Decimal;
use crate::inbox::destination::sql::mapping::{Mapping, quote, quote_all};
use crate::postgres::described;

/// The bookkeeping beside the user's tables: which version each key has, and which deliveries are done. Ids and keys are
/// compared by their bytes, whatever the database's language is.
const BOOKKEEPING: &str = "
    CREATE TABLE IF NOT EXISTS hikyaku_versions (
        table_name text COLLATE \"C\" NOT NULL, key text COLLATE \"C\" NOT NULL,
        micros bigint NOT NULL, rank smallint NOT NULL CHECK (rank BETWEEN 0 AND 2), event text COLLATE \"C\" NOT NULL,
        PRIMARY KEY (table_name, key)
    );
    CREATE TABLE IF NOT EXISTS hikyaku_processed (
        table_name text COLLATE \"C\" NOT NULL, source text COLLATE \"C\" NOT NULL, delivery text COLLATE \"C\" NOT NULL,
        processed_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (table_name, source, delivery)
    );
    CREATE INDEX IF NOT EXISTS hikyaku_processed_by_age ON hikyaku_processed (processed_at);";

/// Whether all of it is there; then no right to create anything is needed.
const HAS_BOOKKEEPING: &str = "
    SELECT to_regclass('hikyaku_versions') IS NOT NULL AND to_regclass('hikyaku_processed') IS NOT NULL
       AND to_regclass('hikyaku_processed_by_age') IS NOT NULL";

/// An ordinary or partitioned table. `to_regclass` reads a name as SQL does, along the search path.
const FIND_TABLE: &str = "SELECT oid FROM pg_catalog.pg_class WHERE oid = to_regclass($1) AND relkind IN ('r', 'p')";

/// Its columns: name, category and name of the type (of a domain: of what is below), whether they cannot be given a value,
/// whether they must be, and the length or precision that they have, as in `varchar(5)`; -1 for none.
const COLUMNS: &str = "
    SELECT a.attname::text, t.typcategory::text, coalesce(below.typname, t.typname)::text,
           a.attgenerated <> '' OR a.attidentity = 'a',
           (a.attnotnull OR t.typnotnull) AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,
           greatest(a.atttypmod, t.typtypmod)
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_catalog.pg_type below ON below.oid = t.typbasetype
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";

/// Whether one column alone identifies a row, at every moment.
const IS_UNIQUE: &str = "
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = $1 AND a.attname = $2 AND i.indnkeyatts = 1
          AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL)";

/// A table that rows can be written to, with the statements for it.
pub(super) struct Table {
    columns: Vec<Column>,
    /// The position in `columns` of the business key.
    pub(super) key: usize,
    /// Records a delivery, unless it is recorded.
    pub(super) process: Statement,
    /// Finds the version of the row that a key names.
    pub(super) version: Statement,
    /// Writes a row and returns its key, and what was stored in the columns of [`Table::checked`].
    pub(super) upsert: Statement,
    /// Records a version, if it is newer.
    pub(super) remember: Statement,
    /// Drops old records of deliveries.
    pub(super) prune: Statement,
}

/// A column to fill.
pub(super) struct Column {
    /// Its name.
    pub(super) name: String,
    /// Its place among the columns.
    pub(super) position: usize,
    holds: Holds,
    /// Its type has a length or a precision to which it may cut a value.
    is_bounded: bool,
    /// What a value must fit into.
    limit: Limit,
}

/// How large a value may be, where a type's own bounds are not what refuses it.
#[derive(Debug, Clone, Copy)]
enum Limit {
    None,
    /// At most so many characters, but for spaces at the end.
    Characters(usize),
    /// So many digits, and how many of them stand behind the point.
    Digits(i64, i64),
}

impl Limit {
    /// By the type's name, and its modifier as PostgreSQL keeps it: 4 more than the length, or precision and scale in the
    /// upper and lower half (of the scale, which may be negative, the last eleven bits).
    fn of(type_name: &str, modifier: i32) -> Self {
        let Some(modifier) = modifier.checked_sub(4).filter(|modifier| *modifier >= 0) else { return Self::None };
        match type_name {
            "varchar" | "bpchar" => usize::try_from(modifier).map_or(Self::None, Self::Characters),
            "numeric" => Self::Digits(i64::from(modifier >> 16), i64::from((modifier & 0x7ff) ^ 0x400) - 0x400),
            _ => Self::None,
        }
    }

    fn has_room_for(self, text: &str) -> bool {
        match self {
            Self::None => true,
            Self::Characters(most) => text.chars().skip(most).all(|c| c == ' '),
            Self::Digits(precision, scale) => Decimal::read(text).is_none_or(|number| number.fits(precision, scale)),
        }
    }
}

impl Column {
    /// Whether the column's type may change a value without a word: it rounds, forgets the time of a day, or cuts spaces off.
    fn may_change(&self) -> bool {
        match self.holds {
            Holds::Number | Holds::Day => true,
            Holds::Text | Holds::Instant => self.is_bounded,
            _ => false,
        }
    }
}

/// Why there is no table to write to.
pub(super) enum TableError {
    /// The settings do not fit it.
    Unfit(String),
    /// The database did not do what it was asked for.
    Database(tokio_postgres::Error),
}

impl TableError {
    /// Whether another process made the same thing at the same moment.
    pub(super) fn is_race(&self) -> bool {
        let races = [SqlState::UNIQUE_VIOLATION, SqlState::DUPLICATE_TABLE, SqlState::DUPLICATE_OBJECT];
        matches!(self, Self::Database(error) if error.code().is_some_and(|code| races.contains(code)))
    }
}

impl From<tokio_postgres::Error> for TableError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error)
    }
}

impl From<TableError> for OpenError {
    /// What the database refuses for good is no outage: a syntax it does not know, or a right that is missing.
    fn from(error: TableError) -> Self {
        match error {
            TableError::Unfit(reason) => Self::Unfit(reason),
            TableError::Database(error) => match error.code().map(|code| &code.code()[..2]) {
                Some("42") => Self::Unfit(format!("the database refuses to set up the tables: {}", described(&error))),
                _ => Self::Away(unready(&error)),
            },
        }
    }
}

impl Table {
    /// Checks the settings against the database, and creates the table if that is wished and it is missing.
    pub(super) async fn open(client: &Client, mapping: &Mapping) -> Result<Self, TableError> {
        if !client.query_one(HAS_BOOKKEEPING, &[]).await?.try_get::<_, bool>(0)? {
            client.batch_execute(BOOKKEEPING).await?;
        }
        let table = find(client, mapping).await?;
        let columns = columns(client, table, mapping).await?;
        if !client.query_one(IS_UNIQUE, &[&table, &mapping.key]).await?.try_get::<_, bool>(0)? {
            return Err(TableError::Unfit(mapping.not_unique(" on its own, neither partial nor deferrable")));
        }
        let key = columns.iter().position(|column| column.name == mapping.key).unwrap_or_default();
        Ok(Self {
            process: client.prepare(PROCESS).await?,
            version: client.prepare(&version_statement(mapping)).await?,
            upsert: client.prepare(&upsert_statement(mapping, &columns)).await?,
            remember: client.prepare(REMEMBER).await?,
            prune: client.prepare(PRUNE).await?,
            key,
            columns,
        })
    }

    /// The values of a body, in the order of the columns. The error says which column does not take its value.
    pub(super) fn values(&self, mapping: &Mapping, body: &[u8]) -> Result<Vec<AsText>, String> {
        let value = |column: &Column| {
            let value = column.holds.text(body, &mapping.columns[&column.name]);
            value.map_err(|reason| format!("the column {:?} {reason}", column.name))
        };
        self.columns.iter().map(value).collect()
    }

    /// The first column that is too small for its value in a body: PostgreSQL does not name it.
    pub(super) fn too_small(&self, mapping: &Mapping, body: &[u8]) -> Option<&str> {
        let values = self.values(mapping, body).ok()?;
        let fits = |column: &Column| values[column.position].text().is_none_or(|text| column.limit.has_room_for(text));
        self.columns.iter().find(|column| !fits(column)).map(|column| column.name.as_str())
    }

    /// The columns that have to be looked at after a row was written.
    pub(super) fn checked(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.may_change())
    }
}

async fn find(client: &Client, mapping: &Mapping) -> Result<Oid, TableError> {
    let name = quote(&mapping.table);
    let mut found = client.query_opt(FIND_TABLE, &[&name]).await?;
    if found.is_none() && mapping.create {
        client.batch_execute(&create_statement(mapping)).await?;
        found = client.query_opt(FIND_TABLE, &[&name]).await?;
    }
    match found {
        Some(table) => Ok(table.try_get(0)?),
        None => Err(TableError::Unfit(mapping.no_table())),
    }
}

async fn columns(client: &Client, table: Oid, mapping: &Mapping) -> Result<Vec<Column>, TableError> {
    let declared = client.query(COLUMNS, &[&table]).await?;
    for column in &declared {
        let (name, required): (&str, bool) = (column.try_get(0)?, column.try_get(4)?);
        if required && !mapping.columns.contains_key(name) {
            return Err(TableError::Unfit(mapping.unfilled(name)));
        }
    }
    let mut columns = Vec::with_capacity(mapping.columns.len());
    for (position, name) in mapping.columns.keys().enumerate() {
        let found = declared.iter().find(|column| column.try_get::<_, &str>(0).is_ok_and(|found| found == name));
        let found = found.ok_or_else(|| TableError::Unfit(mapping.no_column(name)))?;
        if found.try_get(3)? {
            return Err(TableError::Unfit(mapping.generated(name)));
        }
        let type_name: &str = found.try_get(2)?;
        let holds = Holds::of(found.try_get(1)?, type_name).ok_or_else(|| {
            TableError::Unfit(format!(
                "column {name:?} of table {:?} is of the type {type_name}, which no JSON value stands for; make it text, \
                 jsonb or numeric, or take it out of `columns`",
                mapping.table
            ))
        })?;
        // Spaces at the end mean nothing in `char(n)`, and the key's spelling is that of its row.
        let may_be_cut = holds != Holds::Text || (type_name != "bpchar" && *name != mapping.key);
        let modifier: i32 = found.try_get(5)?;
        let (is_bounded, limit) = (modifier >= 0 && may_be_cut, Limit::of(type_name, modifier));
        columns.push(Column { name: name.clone(), position, holds, is_bounded, limit });
    }
    Ok(columns)
}

const PROCESS: &str =
    "INSERT INTO hikyaku_processed (table_name, source, delivery) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const REMEMBER: &str = "
    INSERT INTO hikyaku_versions AS known (table_name, key, micros, rank, event) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (table_name, key) DO UPDATE SET micros = excluded.micros, rank = excluded.rank, event = excluded.event
    WHERE (known.micros, known.rank, known.event) < (excluded.micros, excluded.rank, excluded.event)";

const PRUNE: &str = "
    DELETE FROM hikyaku_processed WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM hikyaku_processed WHERE processed_at < now() - make_interval(secs => $1)
        ORDER BY processed_at LIMIT $2))";

/// Text keeps every value as it is.
fn create_statement(mapping: &Mapping) -> String {
    let column = |name: &String| {
        let key = if *name == mapping.key { " PRIMARY KEY" } else { "" };
        format!("{} text{key}", quote(name))
    };
    let columns: Vec<_> = mapping.columns.keys().map(column).collect();
    format!("CREATE TABLE IF NOT EXISTS {} ({})", quote(&mapping.table), columns.join(", "))
}

fn version_statement(mapping: &Mapping) -> String {
    let (table, key) = (quote(&mapping.table), quote(&mapping.key));
    format!(
        "SELECT micros, rank, event FROM hikyaku_versions WHERE table_name = $2
           AND key = coalesce((SELECT t.{key}::text FROM {table} t WHERE t.{key} = $1), $3) COLLATE \"C\""
    )
}

/// The key stays as the row has it, so that the row's history is found again under any spelling of it.
pub(super) fn upsert_statement(mapping: &Mapping, columns: &[Column]) -> String {
    let (table, key) = (quote(&mapping.table), quote(&mapping.key));
    let marks: Vec<_> = (1..=mapping.columns.len()).map(|number| format!("${number}")).collect();
    let others = mapping.columns.keys().filter(|name| **name != mapping.key);
    let sets = others.map(|name| format!("{0} = excluded.{0}", quote(name)));
    let sets: Vec<_> = std::iter::once(format!("{key} = {table}.{key}")).chain(sets).collect();
    let checked = columns.iter().filter(|column| column.may_change());
    let returned = checked.map(|column| format!(", {table}.{}::text", quote(&column.name)));
    format!(
        "INSERT INTO {table} ({}) VALUES ({}) ON CONFLICT ({key}) DO UPDATE SET {} RETURNING {table}.{key}::text{}",
        quote_all(mapping.columns.keys()),
        marks.join(", "),
        sets.join(", "),
        returned.collect::<String>(),
    )
}
