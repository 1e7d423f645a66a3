//! How a webhook stands in its row.

use hikyaku_core::ids::{EventId, OrganizationId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Off, OffReason, PreviousSecret, Webhook, WebhookUrl};
use rusqlite::{Row, Statement, params};

use super::columns::{self, millis, sound};
use crate::store::StoreError;

/// Runs a statement that takes all of a webhook's columns, in the order in which the table has them.
pub(super) fn write(statement: &mut Statement<'_>, webhook: &Webhook) -> Result<(), StoreError> {
    let (off_since, off_event) = off_columns(webhook.off.as_ref());
    let previous = webhook.previous_secret.as_ref();
    statement.execute(params![
        webhook.organization.as_str(),
        webhook.id.as_str(),
        webhook.url.as_str(),
        sound("webhooks.events", serde_json::to_string(&webhook.events))?,
        webhook.description,
        webhook.secret.reveal(),
        off_since,
        off_event,
        millis(webhook.created_at),
        sound("webhooks.settings", serde_json::to_string(&webhook.settings))?,
        webhook.exhausted,
        previous.map(|previous| previous.secret.reveal()),
        previous.map(|previous| millis(previous.rotated_at)),
        previous.map(|previous| millis(previous.until)),
    ])?;
    Ok(())
}

/// Reads a webhook from the columns of [`super::webhooks::LOAD`].
pub(super) fn read(organization: &OrganizationId, row: &Row<'_>) -> Result<Webhook, StoreError> {
    let (url, events, settings): (String, String, String) = (row.get(1)?, row.get(2)?, row.get(8)?);
    let reason = off_reason(row, 6)?;
    Ok(Webhook {
        organization: organization.clone(),
        id: columns::webhook_id(row, 0)?,
        url: sound("webhooks.url", WebhookUrl::parse(&url))?,
        events: sound("webhooks.events", serde_json::from_str(&events))?,
        description: row.get(3)?,
        secret: Secret::new(row.get::<_, String>(4)?),
        previous_secret: previous_secret(row)?,
        off: columns::optional_time(row, 5)?.map(|since| Off { since, reason }),
        exhausted: row.get(9)?,
        settings: sound("webhooks.settings", serde_json::from_str(&settings))?,
        created_at: columns::time(row, 7)?,
    })
}

/// Why a webhook is or was off, from the column that names the event whose failures did it.
pub(super) fn off_reason(row: &Row<'_>, index: usize) -> Result<OffReason, StoreError> {
    let event: Option<String> = row.get(index)?;
    event.map_or(Ok(OffReason::Paused), |event| sound("off_event", EventId::parse(event)).map(OffReason::Exhausted))
}

/// Since when a webhook is off, and the event whose failures did it, as they are stored.
pub(super) fn off_columns(off: Option<&Off>) -> (Option<i64>, Option<&str>) {
    let event = off.and_then(|off| match &off.reason {
        OffReason::Paused => None,
        OffReason::Exhausted(event) => Some(event.as_str()),
    });
    (off.map(|off| millis(off.since)), event)
}

fn previous_secret(row: &Row<'_>) -> Result<Option<PreviousSecret>, StoreError> {
    let secret: Option<String> = row.get(10)?;
    let Some(secret) = secret else { return Ok(None) };
    let (rotated_at, until) = (columns::time(row, 11)?, columns::time(row, 12)?);
    Ok(Some(PreviousSecret { secret: Secret::new(secret), rotated_at, until }))
}
