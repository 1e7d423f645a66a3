//! What is stored open, or sealed under an older key, is sealed under the present one when a node starts; and what is
//! sealed under a key that nobody has is found out then, not at the first delivery.

use hikyaku_core::ids::{OrganizationId, WebhookId};
use tokio_postgres::Row;

use super::columns::{self, read_optional_text, read_text, text};
use super::transaction::Transaction;
use super::webhook_row::{PREVIOUS_SECRET, SECRET, SETTINGS};
use super::webhooks;
use crate::store::StoreError;
use crate::store::seal::{Place, Seal, SealError};

/// Webhooks that are looked at in one transaction.
const PAGE_ROWS: i64 = 200;

const PAGE: &str = "SELECT organization, id, secret, settings, previous_secret FROM webhooks
    WHERE (organization, id) > ($1, $2) ORDER BY organization, id LIMIT $3 FOR UPDATE";
const WRITE: &str = "UPDATE webhooks SET secret = $3, settings = $4, previous_secret = $5
    WHERE organization = $1 AND id = $2";

/// The statements of this file.
#[cfg(test)]
pub(super) const STATEMENTS: &[&str] = &[PAGE, WRITE];

/// A webhook's place among all.
pub(super) type After = (String, String);

/// Seals a page of what is not sealed under the present key; where the next page begins, or `None` after the last one. The
/// inner error is that of a key that is not known here.
pub(super) async fn page(
    transaction: &Transaction<'_>,
    after: &After,
) -> Result<Result<Option<After>, SealError>, StoreError> {
    let rows = transaction.query(PAGE, &[&after.0, &after.1, &PAGE_ROWS]).await?;
    for row in &rows {
        if let Err(error) = reseal(transaction, row).await? {
            return Ok(Err(error));
        }
    }
    let is_last = i64::try_from(rows.len()).is_ok_and(|rows| rows < PAGE_ROWS);
    let last = rows.last().filter(|_| !is_last);
    Ok(Ok(last.map(|row| Ok::<_, StoreError>((row.try_get(0)?, row.try_get(1)?))).transpose()?))
}

async fn reseal(transaction: &Transaction<'_>, row: &Row) -> Result<Result<(), SealError>, StoreError> {
    let seal = &transaction.webhooks.seal;
    let (organization, id) = (columns::organization(row, 0)?, columns::webhook_id(row, 1)?);
    let (secret, settings) = (read_text(row, 2)?, read_text(row, 3)?);
    let previous = read_optional_text(row, 4)?;
    let stored =
        [Some((SECRET, &secret)), Some((SETTINGS, &settings)), previous.as_ref().map(|it| (PREVIOUS_SECRET, it))];
    if stored.iter().flatten().all(|(_, stored)| seal.is_current(stored)) {
        return Ok(Ok(()));
    }
    let again = |column, stored: &str| again(seal, &organization, &id, column, stored);
    let sealed = (|| {
        let previous = previous.as_ref().map(|stored| again(PREVIOUS_SECRET, stored)).transpose()?;
        Ok((again(SECRET, &secret)?, again(SETTINGS, &settings)?, previous))
    })();
    let (secret, settings, previous) = match sealed {
        Ok(sealed) => sealed,
        Err(error) => return Ok(Err(error)),
    };
    let key = (organization.as_str(), id.as_str());
    let (secret, settings, previous) = (text(&secret), text(&settings), previous.as_deref().map(text));
    transaction.execute(WRITE, &[&key.0, &key.1, &secret, &settings, &previous]).await?;
    webhooks::raise_version(transaction, &organization).await?;
    Ok(Ok(()))
}

fn again(
    seal: &Seal,
    organization: &OrganizationId,
    id: &WebhookId,
    column: &'static str,
    stored: &str,
) -> Result<String, SealError> {
    let place = Place { organization: organization.as_str(), row: id.as_str(), column };
    Ok(seal.seal(&seal.open(stored, &place)?, &place))
}
