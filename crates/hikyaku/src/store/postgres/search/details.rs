//! What a delivery's row in a list says beside how it stands.

use super::may_be_meant;
use super::streams::Candidate;
use crate::store::postgres::columns::{self, read_text};
use crate::store::postgres::transaction::Transaction;
use crate::store::{DeliveryQuery, LastAttempt, StoreError};

const DETAILS: &str =
    "SELECT k.place, e.type, e.key, a.started_at, a.duration_micros, a.http_status, a.failure, a.count
    FROM UNNEST($2::BIGINT[], $3::TEXT[], $4::TEXT[]) WITH ORDINALITY k (created_at, event, webhook, place)
    LEFT JOIN LATERAL (SELECT type, key FROM events e
        WHERE e.organization = $1 AND e.created_at = k.created_at AND e.id = k.event LIMIT 1) e ON TRUE
    LEFT JOIN LATERAL (
        SELECT started_at, duration_micros, http_status, failure, COUNT(*) OVER () AS count FROM attempts a
        WHERE a.organization = $1 AND a.created_at = k.created_at AND a.event = k.event AND a.webhook = k.webhook
        ORDER BY a.run DESC, a.number DESC LIMIT 1) a ON TRUE";

/// The statements of this file.
#[cfg(test)]
pub(in crate::store::postgres) const STATEMENTS: &[&str] = &[DETAILS];

/// The rest of a row.
pub(super) struct Detail {
    pub(super) event_type: String,
    /// The event's business key, where the query asks for one.
    pub(super) key: Option<String>,
    /// How many attempts have ended.
    pub(super) attempts: u32,
    /// The last of them.
    pub(super) last: Option<LastAttempt>,
}

/// The rest of each candidate's row, or `None` where it cannot be meant.
pub(super) async fn details(
    transaction: &Transaction<'_>,
    query: &DeliveryQuery,
    candidates: &[Candidate],
) -> Result<Vec<Option<Detail>>, StoreError> {
    let mut details: Vec<_> = candidates.iter().map(|_| None).collect();
    let meant = candidates.iter().enumerate().filter(|(_, candidate)| {
        candidate.delivery.as_ref().is_some_and(|delivery| may_be_meant(query, &candidate.place, delivery))
    });
    let (places, meant): (Vec<_>, Vec<_>) = meant.map(|(place, candidate)| (place, &candidate.place)).unzip();
    if meant.is_empty() {
        return Ok(details);
    }
    let organization = query.organization.as_str();
    let created: Vec<_> = meant.iter().map(|place| place.created_at).collect();
    let events: Vec<_> = meant.iter().map(|place| place.event.as_str()).collect();
    let webhooks: Vec<_> = meant.iter().map(|place| place.webhook.as_str()).collect();
    for row in transaction.query(DETAILS, &[&organization, &created, &events, &webhooks]).await? {
        let place = columns::place(&row, 0)?;
        let event_type: Option<String> = row.try_get(1)?;
        let missing = || StoreError::Damaged(format!("a delivery's event {} is missing", meant[place].event));
        let has_key = query.key.is_some() && row.try_get::<_, Option<&str>>(2)?.is_some();
        let has_attempts = row.try_get::<_, Option<i64>>(7)?.is_some();
        let last = || {
            let (started_at, duration) = (columns::time(&row, 3)?, columns::duration(&row, 4)?);
            Ok::<_, StoreError>(LastAttempt { started_at, duration, outcome: columns::outcome(&row, 5)? })
        };
        details[places[place]] = Some(Detail {
            event_type: event_type.ok_or_else(missing)?,
            key: if has_key { Some(read_text(&row, 2)?) } else { None },
            attempts: if has_attempts { columns::number(&row, 7)? } else { 0 },
            last: if has_attempts { Some(last()?) } else { None },
        });
    }
    Ok(details)
}
