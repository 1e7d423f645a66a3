//! What an error of PostgreSQL means for a row.

use std::error::Error;

use tokio_postgres::error::{DbError, SqlState};

use crate::inbox::destination::Effect;
use crate::inbox::destination::sql::mapping::Mapping;

/// The class of errors about values, as in "out of range".
const DATA_EXCEPTION: &str = "22";
/// What the table says no to for the row alone. A missing parent, or a value that another row still has, may be gone
/// later (R19).
const REFUSALS: [SqlState; 4] = [
    SqlState::NOT_NULL_VIOLATION,
    SqlState::CHECK_VIOLATION,
    SqlState::RAISE_EXCEPTION,
    SqlState::PROGRAM_LIMIT_EXCEEDED,
];

/// A value that the table will not have is refused; everything else may pass: a connection that broke, a lock, a
/// deadlock, a full disk, a table under change, a restart of the server.
pub(super) fn effect_of(error: &tokio_postgres::Error, mapping: &Mapping) -> Effect {
    match error.as_db_error() {
        Some(said) if said.code().code().starts_with(DATA_EXCEPTION) => Effect::Refused(unfit_value(said, mapping)),
        Some(said) if REFUSALS.contains(said.code()) => {
            Effect::Refused(format!("the table does not accept the row: {}", said.message()))
        }
        _ => Effect::Failed { error: format!("PostgreSQL: {}", described(error)), retry_after: None },
    }
}

/// Which value does not fit. PostgreSQL's own words would repeat the value, which belongs into no log (S19).
fn unfit_value(said: &DbError, mapping: &Mapping) -> String {
    let code = said.code().code();
    match parameter(said).and_then(|position| mapping.columns.iter().nth(position - 1)) {
        Some((name, pointer)) => {
            format!("the column {name:?} does not take the value at {pointer:?} (PostgreSQL's error {code})")
        }
        None => format!("a column does not take its value (PostgreSQL's error {code}, see the manual's appendix A)"),
    }
}

/// The number of the parameter that an error is about.
fn parameter(said: &DbError) -> Option<usize> {
    let (_, rest) = said.where_()?.split_once('$')?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|number| *number > 0)
}

/// What went wrong, with its cause and without any row's values.
pub(super) fn described(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{} (error {})", said.message(), said.code().code());
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
