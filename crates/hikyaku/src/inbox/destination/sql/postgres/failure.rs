//! What an error of PostgreSQL means for a row.

use tokio_postgres::error::{DbError, SqlState};

use crate::inbox::destination::Effect;
use crate::inbox::destination::sql::mapping::Mapping;
use crate::postgres::described;

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
///
/// `too_small` looks for the column whose length or precision a value goes beyond.
pub(super) fn effect_of<'a>(
    error: &tokio_postgres::Error,
    mapping: &'a Mapping,
    too_small: impl FnOnce() -> Option<&'a str>,
) -> Effect {
    match error.as_db_error() {
        Some(said) if said.code().code().starts_with(DATA_EXCEPTION) => {
            Effect::Refused(unfit_value(said, mapping, too_small))
        }
        Some(said) if REFUSALS.contains(said.code()) => {
            Effect::Refused(format!("the table does not accept the row: {}", said.message()))
        }
        _ => Effect::Failed { error: format!("PostgreSQL: {}", described(error)), retry_after: None },
    }
}

/// Which value does not fit. PostgreSQL's own words would repeat the value, which belongs into no log (S19).
fn unfit_value<'a>(said: &DbError, mapping: &'a Mapping, too_small: impl FnOnce() -> Option<&'a str>) -> String {
    let code = said.code().code();
    let told = parameter(said).and_then(|position| mapping.columns.iter().nth(position - 1));
    match told.or_else(|| mapping.columns.get_key_value(too_small()?)) {
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
