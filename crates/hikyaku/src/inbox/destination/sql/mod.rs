//! Keeps a table of a user's database equal to the newest events: one row per business key (C10), guarded by the
//! version (C4, T3), each delivery once, all of it in one transaction (C8). What the databases have in common is here,
//! in [`mapping`] and in [`decimal`]; each database is a module.

mod decimal;
mod mapping;
mod postgres;
pub(super) mod preview;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::signature::Secret;

use super::{Destination, Tools};
pub(super) use mapping::Mapping;
pub(crate) use mapping::{MAX_COLUMNS, OWN_PREFIX};
use postgres::PostgresDestination;
use sqlite::SqliteDestination;

/// How long the record that a delivery was processed is kept: longer than the longest time for which the configuration
/// lets a row be tried again (30 days). A row that somebody replays later still changes nothing, because its key's newest
/// version is kept for ever.
const PROCESSED_KEPT: Duration = Duration::from_secs(45 * 24 * 3600);
/// Old records are dropped after every so many effects …
const EFFECTS_PER_PRUNING: u32 = 64;
/// … this many at a time: more than can have come in meanwhile, and few enough to disturb nobody.
const MAX_PRUNED_ROWS: i64 = 256;

/// What is said of a row that the database has already.
const BEFORE: &str = "it was written before";
/// What is said of a row that the database does not need any more.
const NEWER_IS_THERE: &str = "the table already has something newer of this key";

/// Opens a destination by its URL. PostgreSQL is not asked for anything yet: it may be down, and the inbox takes
/// deliveries all the same (C16).
pub(super) fn open(url: &Secret, mapping: Mapping, tools: &Tools) -> Result<Arc<dyn Destination>, String> {
    mapping.check()?;
    if crate::postgres::is_url(url.reveal()) {
        return Ok(Arc::new(PostgresDestination::new(url.reveal(), mapping, tools)?));
    }
    Ok(Arc::new(SqliteDestination::open(url.reveal(), &mapping, tools.clock.clone())?))
}
