//! How a webhook stands in its row.

use hikyaku_core::ids::{EventId, OrganizationId};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Off, OffReason, PreviousSecret, Webhook, WebhookUrl};
use tokio_postgres::Row;

use super::columns::{self, millis, read_optional_text, read_text, sound, text};
use super::transaction::Transaction;
use crate::store::StoreError;
use crate::store::seal::{Place, Seal};

/// Where sealed text stands; part of what it is bound to, so these never change, and are the same in every store: rows are
/// copied from one to another.
pub(super) const SECRET: &str = "webhooks.secret";
pub(super) const PREVIOUS_SECRET: &str = "webhooks.previous_secret";
pub(super) const SETTINGS: &str = "webhooks.settings";

/// Runs a statement that takes all of a webhook's columns, in the order in which the table has them; how many rows it has
/// changed.
pub(super) async fn write(
    transaction: &Transaction<'_>,
    sql: &str,
    seal: &Seal,
    webhook: &Webhook,
) -> Result<u64, StoreError> {
    let (off_since, off_event) = off_columns(webhook.off.as_ref());
    let previous = webhook.previous_secret.as_ref();
    let settings = sound(SETTINGS, serde_json::to_string(&webhook.settings))?;
    let place = |column| Place { organization: webhook.organization.as_str(), row: webhook.id.as_str(), column };
    let previous_secret = previous.map(|previous| seal.seal(previous.secret.reveal(), &place(PREVIOUS_SECRET)));
    transaction
        .execute(
            sql,
            &[
                &webhook.organization.as_str(),
                &webhook.id.as_str(),
                &webhook.url.as_str(),
                &sound("webhooks.events", serde_json::to_string(&webhook.events))?,
                &text(&webhook.description),
                &text(&seal.seal(webhook.secret.reveal(), &place(SECRET))),
                &off_since,
                &off_event,
                &millis(webhook.created_at),
                &text(&seal.seal(&settings, &place(SETTINGS))),
                &i64::from(webhook.exhausted),
                &previous_secret.as_deref().map(text),
                &previous.map(|previous| millis(previous.rotated_at)),
                &previous.map(|previous| millis(previous.until)),
            ],
        )
        .await
}

/// Reads a webhook from the columns of [`super::webhooks::LOAD`].
pub(super) fn read(seal: &Seal, organization: &OrganizationId, row: &Row) -> Result<Webhook, StoreError> {
    let id = columns::webhook_id(row, 0)?;
    let open = |column, stored: String| {
        let place = Place { organization: organization.as_str(), row: id.as_str(), column };
        sound(column, seal.open(&stored, &place))
    };
    let (url, events): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
    let settings = open(SETTINGS, read_text(row, 8)?)?;
    let secret = open(SECRET, read_text(row, 4)?)?;
    let previous = read_optional_text(row, 10)?;
    let previous = previous.map(|stored| open(PREVIOUS_SECRET, stored)).transpose()?;
    let reason = off_reason(row, 6)?;
    Ok(Webhook {
        organization: organization.clone(),
        url: sound("webhooks.url", WebhookUrl::parse(url))?,
        events: sound("webhooks.events", serde_json::from_str(events))?,
        description: read_text(row, 3)?,
        secret: Secret::new(secret),
        previous_secret: previous.map(|secret| previous_secret(secret, row)).transpose()?,
        off: columns::optional_time(row, 5)?.map(|since| Off { since, reason }),
        exhausted: columns::number(row, 9)?,
        settings: sound(SETTINGS, serde_json::from_str(&settings))?,
        created_at: columns::time(row, 7)?,
        id,
    })
}

/// Why a webhook is or was off, from the column that names the event whose failures did it.
pub(super) fn off_reason(row: &Row, index: usize) -> Result<OffReason, StoreError> {
    let event: Option<String> = row.try_get(index)?;
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

fn previous_secret(secret: String, row: &Row) -> Result<PreviousSecret, StoreError> {
    let (rotated_at, until) = (columns::time(row, 11)?, columns::time(row, 12)?);
    Ok(PreviousSecret { secret: Secret::new(secret), rotated_at, until })
}
