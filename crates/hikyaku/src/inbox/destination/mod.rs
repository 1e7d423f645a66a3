//! Where rows take effect. A new kind is one file here, one variant of [`Kind`] and one line in [`build`].

mod http;
mod sql;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::signature::Secret;
use url::Url;

use crate::clock::SharedClock;
use crate::outbound::Transport;
use crate::store::WorkRow;
use http::HttpDestination;
use sql::SqlDestination;

/// A destination as configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// What a destination is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Forwards the bytes to an HTTP server.
    Http {
        /// Where to. The operator chose it, so no address is refused.
        url: Url,
        /// Signs what is forwarded, in ReceiptRoller's scheme; `None` sends it unsigned.
        secret: Option<Secret>,
    },
    /// Upserts a row per business key into a table.
    Sql {
        /// `sqlite:PATH`.
        url: String,
        /// The table.
        table: String,
        /// The column that is the business key; unique in the table.
        key: String,
        /// Columns and the JSON pointers (into the delivered body) of their values.
        columns: BTreeMap<String, String>,
        /// Whether the table is created where it is missing.
        create: bool,
    },
}

/// What a destination did with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It took effect, now or before.
    Done(String),
    /// The destination already knows something newer of this key (C4).
    Stale(String),
    /// It failed and may succeed later.
    Failed {
        /// What went wrong, for people.
        error: String,
        /// Not before this long has passed, where the destination says so.
        retry_after: Option<Duration>,
    },
    /// It can never succeed as it is.
    Refused(String),
}

/// Where rows take effect.
#[async_trait]
pub trait Destination: Send + Sync + 'static {
    /// Lets a row take effect. Called again for the same row after a failure or a crash: an effect that can be
    /// committed with its deduplication record happens once (C8), any other carries the same idempotency key each time.
    async fn apply(&self, row: &WorkRow) -> Effect;
}

/// Why a destination cannot be used as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("destination {name:?}: {reason}")]
pub struct BuildError {
    /// Its name.
    pub name: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// What destinations work with.
#[derive(Clone)]
pub struct Tools {
    /// Makes requests; it refuses no address that an operator may have chosen, but those of S7.
    pub transport: Arc<dyn Transport>,
    /// Tells the time.
    pub clock: SharedClock,
    /// How long one effect may take.
    pub effect_timeout: Duration,
}

/// Opens a destination. It may touch files, so it belongs to the start of the program.
///
/// # Errors
/// Says what does not fit between the settings and what stands at the destination.
pub fn build(settings: Settings, tools: &Tools) -> Result<Arc<dyn Destination>, BuildError> {
    match settings.kind {
        Kind::Http { url, secret } => Ok(Arc::new(HttpDestination::new(url, secret, tools.clone()))),
        Kind::Sql { url, table, key, columns, create } => {
            match SqlDestination::open(&url, &table, &key, &columns, create, tools.clock.clone()) {
                Ok(destination) => Ok(Arc::new(destination)),
                Err(reason) => Err(BuildError { name: settings.name, reason }),
            }
        }
    }
}
