//! What is stored open, or sealed under an older key, is sealed under the present one when the store is opened; and what
//! is sealed under a key that nobody has is found out then, not at the first delivery.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::columns::millis;
use super::webhook_row::{PREVIOUS_SECRET, SECRET, SETTINGS};
use crate::store::seal::{Place, Seal, SealError};

/// Rows that are read at a time.
const PAGE_ROWS: u32 = 200;

const PAGE: &str = "SELECT organization, id, secret, settings, previous_secret, previous_until FROM webhooks
    WHERE (organization, id) > (?1, ?2) ORDER BY organization, id LIMIT ?3";
const WRITE: &str = "UPDATE webhooks SET secret = ?3, settings = ?4, previous_secret = ?5
    WHERE organization = ?1 AND id = ?2";
const FORGET: &str = "UPDATE webhooks SET previous_secret = NULL, rotated_at = NULL, previous_until = NULL
    WHERE organization = ?1 AND id = ?2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[PAGE, WRITE, FORGET];

/// Why it could not be done.
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Seal(SealError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Self {
        Self::Seal(error)
    }
}

/// Seals what is not sealed under the present key, and forgets the secrets whose time is over at `now` by the wall clock.
/// What stood in the file before is overwritten, not only let go.
pub(super) fn reseal(db: &mut Connection, seal: &Seal, now: Timestamp) -> Result<(), Failure> {
    db.pragma_update(None, "secure_delete", true)?;
    let transaction = db.transaction()?;
    let (mut last, mut changed) = ((String::new(), String::new()), false);
    loop {
        let rows = page(&transaction, &last)?;
        for row in &rows {
            changed |= row.reseal(&transaction, seal, now)?;
        }
        match rows.last() {
            Some(row) if rows.len() == PAGE_ROWS as usize => last = (row.organization.clone(), row.id.clone()),
            _ => break,
        }
    }
    transaction.commit()?;
    if changed {
        // The log still holds the pages as they were.
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    db.pragma_update(None, "secure_delete", false)?;
    Ok(())
}

struct Stored {
    organization: String,
    id: String,
    secret: String,
    settings: String,
    previous_secret: Option<String>,
    previous_until: Option<i64>,
}

fn page(db: &Connection, (organization, id): &(String, String)) -> rusqlite::Result<Vec<Stored>> {
    let read = |row: &Row<'_>| {
        Ok(Stored {
            organization: row.get(0)?,
            id: row.get(1)?,
            secret: row.get(2)?,
            settings: row.get(3)?,
            previous_secret: row.get(4)?,
            previous_until: row.get(5)?,
        })
    };
    db.prepare_cached(PAGE)?.query_map(params![organization, id, PAGE_ROWS], read)?.collect()
}

impl Stored {
    /// Whether anything was written.
    fn reseal(&self, db: &Connection, seal: &Seal, now: Timestamp) -> Result<bool, Failure> {
        let again = |column, stored: &str| {
            let place = Place { organization: &self.organization, row: &self.id, column };
            Ok::<_, SealError>(seal.seal(&seal.open(stored, &place)?, &place))
        };
        let forget = self.previous_until.is_some_and(|until| until <= millis(now));
        if forget {
            db.prepare_cached(FORGET)?.execute([&self.organization, &self.id])?;
        }
        let previous = self.previous_secret.as_ref().filter(|_| !forget);
        let (secret, settings) = (again(SECRET, &self.secret)?, again(SETTINGS, &self.settings)?);
        let previous_again = previous.map(|stored| again(PREVIOUS_SECRET, stored)).transpose()?;
        if [&self.secret, &self.settings].into_iter().chain(previous).all(|stored| seal.is_current(stored)) {
            return Ok(forget);
        }
        db.prepare_cached(WRITE)?.execute(params![self.organization, self.id, secret, settings, previous_again])?;
        Ok(true)
    }
}
