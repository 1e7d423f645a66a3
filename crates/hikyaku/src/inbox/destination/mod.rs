//! Where rows take effect. A new kind is one file here, with its settings and its [`Destination`], and one line in each
//! of [`Kind`] and [`build`]; its settings are read from the configuration in `config/destination.rs`.

mod command;
mod file;
mod http;
mod slack;
mod sql;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::signature::Secret;
use hikyaku_core::timestamp;
use jiff::Timestamp;

use crate::clock::SharedClock;
use crate::outbound::Transport;
use crate::store::WorkRow;
use command::CommandDestination;
pub use command::{CommandSettings, VARIABLE_PREFIX};
use file::FileDestination;
pub use file::FileSettings;
use http::HttpDestination;
pub use http::HttpSettings;
pub(crate) use http::shown_url;
use slack::SlackDestination;
pub use slack::{Language, SlackSettings, TimeZone, check_template};
use sql::Mapping;
pub(crate) use sql::{MAX_COLUMNS, OWN_PREFIX};

/// What stands for a secret in a preview.
const HIDDEN: &str = "(hidden)";

/// A destination as configured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// A destination as people may see it: with no secret.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// The word for what it is.
    pub kind: String,
    /// The rest of its settings.
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// What a destination is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Forwards the bytes to an HTTP server.
    Http(HttpSettings),
    /// Posts a message into a Slack channel.
    Slack(SlackSettings),
    /// Runs a program.
    Command(CommandSettings),
    /// Appends a line to a file.
    File(FileSettings),
    /// Upserts a row per business key into a table.
    Sql {
        /// `sqlite:PATH`, or `postgres://…`, which may hold a password.
        url: Secret,
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
    /// It was not tried, because the destination may not be asked yet. That is no failure, and counts as none.
    Later {
        /// How long to leave it.
        pause: Duration,
        /// Why, for people.
        reason: String,
    },
    /// It can never succeed as it is.
    Refused(String),
}

/// Most rows of one key that a destination gets before what came of them is written, where it makes none twice. They are
/// committed together, which is faster.
const ROWS_OF_ONCE: u32 = 32;

/// Where rows take effect.
#[async_trait]
pub trait Destination: Send + Sync + 'static {
    /// Lets a row take effect. Called again for the same row after a failure or a crash: an effect that can be
    /// committed with its deduplication record happens once (C8), any other carries the same idempotency key each time.
    async fn apply(&self, row: &WorkRow) -> Effect;

    /// How many rows of one key it may get before what came of them is written; after a crash it gets those again. More
    /// than one is for destinations that commit with each effect that it was made (C8), and so make none twice.
    fn rows_at_a_time(&self) -> u32 {
        1
    }

    /// How many keys it wants at a time, where it takes them together and not side by side; else the inbox's settings say
    /// how many.
    fn keys_at_a_time(&self) -> Option<u32> {
        None
    }

    /// What it would do with a row, for a person, and with no secret; it does nothing.
    ///
    /// # Errors
    /// Says why it would refuse the row.
    fn preview(&self, row: &WorkRow) -> Result<String, String> {
        Ok(format!("takes the {} bytes of the body", row.body.len()))
    }

    /// Looks, at the start of the program, whether the destination is as configured. One that cannot be reached now is no
    /// error: its rows wait (C16).
    ///
    /// # Errors
    /// Says what does not fit, and what to do.
    async fn ready(&self) -> Result<(), String> {
        Ok(())
    }
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
    /// Whose deliveries the sources bring, by the source's name.
    pub origins: Arc<HashMap<String, Origin>>,
}

impl Tools {
    /// How long what an effect waits for may take: a little less than the whole, so that the better explained of the two
    /// timeouts comes first.
    fn patience(&self) -> Duration {
        self.effect_timeout * 9 / 10
    }
}

/// Whose deliveries a source brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// For whom.
    pub organization: OrganizationId,
    /// From whom.
    pub provider: String,
}

/// Opens a destination; [`Destination::ready`] then asks those that are reached over a network. It may touch files, so it
/// belongs to the start of the program.
///
/// # Errors
/// Says what does not fit between the settings and what stands at the destination.
pub fn build(settings: Settings, tools: &Tools) -> Result<Arc<dyn Destination>, BuildError> {
    let Settings { name, kind } = settings;
    let opened: Result<Arc<dyn Destination>, String> = match kind {
        Kind::Http(settings) => shared(HttpDestination::open(settings, tools.clone())),
        Kind::Slack(settings) => shared(SlackDestination::open(settings, tools.clone())),
        Kind::Command(settings) => shared(CommandDestination::open(settings, tools.clone())),
        Kind::File(settings) => shared(FileDestination::open(settings)),
        Kind::Sql { url, table, key, columns, create } => {
            sql::open(&url, Mapping { table, key, columns, create }, tools)
        }
    };
    opened.map_err(|reason| BuildError { name, reason })
}

/// When the provider sent a row's event out, as text; when it was received, if the event does not say.
fn sent_at(row: &WorkRow) -> String {
    timestamp::format(Timestamp::from_microsecond(row.version.micros).unwrap_or(row.received_at))
}

fn shared<D: Destination>(opened: Result<D, String>) -> Result<Arc<dyn Destination>, String> {
    opened.map(|destination| Arc::new(destination) as Arc<dyn Destination>)
}

/// What a destination would do with a row, for a person. A database and a file are not opened for it: that would make
/// something there.
///
/// The error within says why it would refuse the row, which would then be dead.
///
/// # Errors
/// As [`build`].
pub fn preview(settings: &Settings, row: &WorkRow, tools: &Tools) -> Result<Result<String, String>, BuildError> {
    let Settings { name, kind } = settings;
    let unusable = |reason| BuildError { name: name.clone(), reason };
    Ok(match kind.clone() {
        Kind::Sql { url, table, key, columns, create } => {
            let mapping = Mapping { table, key, columns, create };
            mapping.check().map_err(unusable)?;
            sql::preview::preview(&url, &mapping, &row.body)
        }
        Kind::File(settings) => Ok(file::preview(&settings.path, row)),
        _ => build(settings.clone(), tools)?.preview(row),
    })
}
