//! Why a reconciliation pauses.

use std::fmt;

use hikyaku_core::gap::Period;
use jiff::Timestamp;

use crate::provider_api::Failure;
use crate::store::StoreError;

/// Why a cycle does not go on for now.
#[derive(Debug)]
pub(super) enum Stop {
    Store(StoreError),
    Provider(Failure),
    /// All calls of the budget's period are made.
    Budget {
        until: Timestamp,
    },
    /// The list is not what the settings say.
    List(String),
    /// A list changed whenever it was read.
    Unsteady(Period),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Provider(failure)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Provider(failure) => f.write_str(&failure.error),
            Self::Budget { until } => write!(
                f,
                "the budget of calls is used up; it goes on at {}, or with a larger `call_budget`",
                hikyaku_core::timestamp::format(*until)
            ),
            Self::List(reason) => f.write_str(reason),
            Self::Unsteady(Period { from, to }) => {
                write!(f, "the list from {from} to {to} changed whenever it was read; it is read again later")
            }
        }
    }
}
