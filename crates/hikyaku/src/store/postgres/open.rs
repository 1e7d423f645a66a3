//! Opening the database: in the present schema, and known to it as a node.

use std::sync::Arc;

use super::PostgresStore;
use super::columns::millis;
use super::connections;
use super::database::Database;
use super::days::{self, Days};
use super::migrate::{self, SchemaVersion, Step};
use super::nudges::Nudges;
use super::reseal;
use super::webhooks::WebhookCache;
use super::{claim, lanes};
use crate::clock::Clock;
use crate::postgres::Target;
use crate::store::StoreError;
use crate::store::seal::{Seal, SealError};

/// For how long the lines in `commits` of a node that ended without a word are kept, in milliseconds. Nobody asks for them
/// after the few seconds for which an answer is waited for.
const COMMITS_KEPT_MILLIS: i64 = 30 * days::DAY_MILLIS;

/// How often the schema is tried to be brought up to date.
const MAX_TRIES: u32 = 3;

/// Why a store in PostgreSQL could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The connections cannot be set up.
    #[error("the connections to {url} cannot be set up: {reason}")]
    Setup {
        /// The database, without its password.
        url: String,
        /// Why not.
        reason: String,
    },
    /// The database does not answer, or refuses.
    #[error(
        "{url} cannot be used: {source}; check that it runs, that the user may connect and create tables there, and the URL"
    )]
    Away {
        /// The database, without its password.
        url: String,
        /// What it said.
        source: StoreError,
    },
    /// Its secrets are sealed under a key that is not configured, or were changed.
    #[error(
        "the secrets in {url} cannot be read: {source}; set `sealing_key` to the key they were sealed under, or name that one in `old_sealing_keys`"
    )]
    Sealed {
        /// The database, without its password.
        url: String,
        /// Why not.
        source: SealError,
    },
    /// It cannot hold every text.
    #[error("{url} is encoded in {found}, which cannot hold every text; create the database with ENCODING 'UTF8'")]
    Encoding {
        /// The database, without its password.
        url: String,
        /// Its encoding.
        found: String,
    },
    /// The user may not make the tables of each day.
    #[error(
        "the user of {url} may not make the tables that every day needs: it must own the tables of the store, or belong to \
         the role that does, and have CREATE on their schema"
    )]
    NoRight {
        /// The database, without its password.
        url: String,
    },
    /// Its schema is older than this program's.
    #[error("the schema of {url} is of version {found}, and this program needs {own}; run \"hikyaku migrate\"")]
    NotMigrated {
        /// The database, without its password.
        url: String,
        /// Its schema.
        found: i64,
        /// The program's.
        own: i64,
    },
    /// Another store was not wholly copied into it.
    #[error("{url} holds a copy of a store that was not finished; drop the database, or the schema, and copy again")]
    UnfinishedCopy {
        /// The database, without its password.
        url: String,
    },
    /// Its schema is too new for this program.
    #[error(
        "the schema of {url} is of version {found}, which this program, of version {own}, does not work with; use a newer one"
    )]
    TooNew {
        /// The database, without its password.
        url: String,
        /// Its schema.
        found: i64,
        /// The program's.
        own: i64,
    },
}

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether the schema is brought up to date first.
    pub migrate: bool,
    /// Most connections at a time.
    pub connections: usize,
    /// Whether nodes tell each other what is due, over one more connection.
    pub notify: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { migrate: true, connections: connections::CONNECTIONS, notify: false }
    }
}

impl PostgresStore {
    /// Opens the store in the database at `url`. `seal` is what secrets are sealed with.
    ///
    /// # Errors
    /// Says what the database refused, and what to do.
    pub async fn open(url: &str, seal: Seal, clock: &dyn Clock, options: Options) -> Result<Self, OpenError> {
        Self::open_with(url, Some(seal), clock, options).await
    }

    /// The same; with no seal secrets stay as they stand.
    pub(super) async fn open_with(
        url: &str,
        seal: Option<Seal>,
        clock: &dyn Clock,
        options: Options,
    ) -> Result<Self, OpenError> {
        let target = Target::parse(url).map_err(|reason| OpenError::Setup { url: "the store".to_owned(), reason })?;
        let seals = seal.is_some();
        let webhooks = Arc::new(WebhookCache::new(seal.unwrap_or_default()));
        let days = Arc::new(Days::default());
        let db = Database::new(&target, options.connections, Arc::clone(&webhooks), Arc::clone(&days))?;
        let away = |source| OpenError::Away { url: target.shown.clone(), source };
        let own = i64::try_from(migrate::STEPS.len()).unwrap_or(i64::MAX);
        check_encoding(&db, &target.shown).await?;
        if options.migrate {
            apply(&db, migrate::STEPS).await.map_err(away)?;
        }
        let found = db.look((), |transaction, ()| Box::pin(migrate::present(transaction))).await.map_err(away)?;
        migrate::check(&target.shown, found, own)?;
        if db.look((), |transaction, ()| Box::pin(migrate::is_unfinished_copy(transaction))).await.map_err(away)? {
            return Err(OpenError::UnfinishedCopy { url: target.shown });
        }
        let may_make_days = db.look((), |transaction, ()| Box::pin(days::may_be_made(transaction)));
        if !may_make_days.await.map_err(away)? {
            return Err(OpenError::NoRight { url: target.shown });
        }
        let now = millis(clock.schedule());
        db.enrol(now, now - COMMITS_KEPT_MILLIS).await.map_err(away)?;
        let nudges = if options.notify { Nudges::start(connections::writing(&target)) } else { Nudges::none() };
        if seals {
            reseal(&db)
                .await
                .map_err(away)?
                .map_err(|source| OpenError::Sealed { url: target.shown.clone(), source })?;
        }
        Ok(Self {
            db,
            webhooks,
            days,
            deliveries: claim::Memory::default(),
            lanes: lanes::due::Memory::default(),
            nudges,
        })
    }
}

/// Brings the schema of the database at `url` up to date; its version before, and now.
///
/// # Errors
/// Says what the database refused, and what to do.
pub async fn migrate(url: &str) -> Result<(i64, i64), OpenError> {
    let target = Target::parse(url).map_err(|reason| OpenError::Setup { url: "the store".to_owned(), reason })?;
    let db = Database::new(&target, 1, Arc::new(WebhookCache::new(Seal::default())), Arc::default())?;
    let away = |source| OpenError::Away { url: target.shown.clone(), source };
    check_encoding(&db, &target.shown).await?;
    let before = apply(&db, migrate::STEPS).await.map_err(away)?;
    let now = i64::try_from(migrate::STEPS.len()).unwrap_or(i64::MAX);
    // Where it is older, it is brought up to date now; where it is newer, this program may be too old for it.
    migrate::check(&target.shown, SchemaVersion { version: before.version.max(now), ..before }, now)?;
    Ok((before.version, now.max(before.version)))
}

/// Texts come from outside and may hold whatever Unicode has.
async fn check_encoding(db: &Database, shown: &str) -> Result<(), OpenError> {
    let url = || shown.to_owned();
    let found = db.look((), |transaction, ()| Box::pin(migrate::encoding(transaction))).await;
    let found = found.map_err(|source| OpenError::Away { url: url(), source })?;
    if found == "UTF8" { Ok(()) } else { Err(OpenError::Encoding { url: url(), found }) }
}

/// A copy is right only where this program knows every column.
pub(super) async fn check_exact(db: &Database, shown: &str) -> Result<(), OpenError> {
    let url = || shown.to_owned();
    let found = db.look((), |transaction, ()| Box::pin(migrate::present(transaction))).await;
    let found = found.map_err(|source| OpenError::Away { url: url(), source })?.version;
    let own = i64::try_from(migrate::STEPS.len()).unwrap_or(i64::MAX);
    if found == own { Ok(()) } else { Err(OpenError::TooNew { url: url(), found, own }) }
}

/// Applies what is missing of `steps`; the schema before.
pub(super) async fn apply(db: &Database, steps: &'static [Step]) -> Result<SchemaVersion, StoreError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let migrated = db.write_unnumbered(steps, |transaction, steps| Box::pin(migrate::migrate(transaction, steps)));
        match migrated.await {
            // Of two that make the first table at the same moment, one is told that it is there.
            Err(StoreError::Damaged(_)) if tries < MAX_TRIES => {}
            other => return other,
        }
    }
}

/// Seals what is not sealed under the present key, page by page.
async fn reseal(db: &Database) -> Result<Result<(), SealError>, StoreError> {
    let mut after = reseal::After::default();
    loop {
        match db.write(after, |transaction, after| Box::pin(reseal::page(transaction, after))).await? {
            Ok(Some(last)) => after = last,
            Ok(None) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}
