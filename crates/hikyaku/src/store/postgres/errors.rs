//! What PostgreSQL's errors mean to the caller of a store.

use tokio_postgres::error::SqlState;

use crate::postgres::described;
use crate::store::StoreError;

/// Classes of errors that come from the surroundings, so that the same call may succeed later: connection, transaction
/// rollback, resources, object state, an operator's hand, the system.
const PASSING_CLASSES: [&str; 6] = ["08", "40", "53", "55", "57", "58"];

impl From<tokio_postgres::Error> for StoreError {
    /// An error before COMMIT: the transaction is rolled back, nothing was written.
    fn from(error: tokio_postgres::Error) -> Self {
        let text = described(&error);
        if passes(error.code()) { Self::Unavailable(text) } else { Self::Damaged(text) }
    }
}

/// Without a code it is the connection that failed.
fn passes(code: Option<&SqlState>) -> bool {
    let Some(code) = code else { return true };
    let by_class = code.code().get(..2).is_some_and(|class| PASSING_CLASSES.contains(&class));
    // A standby, which is not yet or no longer the one that writes; what another error of the transaction refuses; a row
    // whose day was dropped a moment ago.
    by_class
        || [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IN_FAILED_SQL_TRANSACTION, SqlState::CHECK_VIOLATION]
            .contains(code)
}

/// Whether a statement is refused only because another one of its transaction failed.
pub(super) fn fails_after_another(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

/// What an error says of the connection it came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// It can go on being used, once its transaction is rolled back.
    Usable,
    /// Others stood in the way; at once again it may succeed.
    TryAgain,
    /// It can go on being used likewise; a row found no partition for its day.
    NoPlace,
    /// It is gone, or no longer fits the database: a schema that changed, a server that no longer writes. Over another it
    /// may succeed at once.
    Broken,
    /// It has not answered in time.
    Late,
}

pub(super) fn after(error: &tokio_postgres::Error) -> After {
    match error.code() {
        None => After::Broken,
        Some(code) if *code == SqlState::CHECK_VIOLATION => After::NoPlace,
        Some(code) if [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED].contains(code) => {
            After::TryAgain
        }
        // "cached plan must not change result type": prepared before another version changed the schema.
        Some(code) if [SqlState::FEATURE_NOT_SUPPORTED, SqlState::READ_ONLY_SQL_TRANSACTION].contains(code) => {
            After::Broken
        }
        Some(code) if ["08", "57"].iter().any(|class| code.code().starts_with(class)) => After::Broken,
        Some(_) => After::Usable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_unavailable_and_the_rest_is_damage() {
        let connection = ["08006", "57P01", "58030", "25006"];
        for code in ["40001", "40P01", "53300", "53100", "55P03", "57014", "25P02", "23514"].iter().chain(&connection) {
            assert!(passes(Some(&SqlState::from_code(code))), "{code}");
        }
        for code in ["23505", "42P01", "XX001", "22021"] {
            assert!(!passes(Some(&SqlState::from_code(code))), "{code}");
        }
        assert!(passes(None), "the connection broke");
    }
}
