//! `…/webhooks/{webhook}/missed`, `…/recover` and `…/recoveries`: what a webhook did not get, and getting it after all.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hikyaku_core::ids::{OrganizationId, RecoveryId, WebhookId};
use hikyaku_core::timestamp;
use hikyaku_core::webhook::Webhook;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::body::read_json;
use super::fields::Fields;
use super::openapi::requests::{InPage, NewRecovery as NewRecoveryJson, Period};
use super::openapi::words;
use super::page::{Cursor, Page};
use super::problem::{FieldError, Kind, Problem};
use super::request::{InPath, Query};
use crate::clock;
use crate::store::{
    MissedEntry, MissedPosition, MissedQuery, NewRecovery, RecoverOutcome, Recovery, RecoveryKey, RecoveryState, Which,
};

/// Largest body that asks for a recovery, in bytes.
const MAX_RECOVERY_BYTES: usize = 4 * 1024;
/// How far missed events are counted for a page, so that it costs no more however many there are.
const MAX_COUNTED: u32 = 200_000;

/// List what a webhook missed.
///
/// The events that it missed while it was off, and those whose attempts all failed, oldest first, with the counts of the
/// whole period: what a recovery would bring. Counting stops at 200,000.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/missed",
    operation_id = "listMissed",
    tag = "recoveries",
    params(Period, InPage),
    responses((status = 200, description = "A page of events.", body = MissedPage)),
)]
pub(super) async fn missed(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<MissedPage>, Problem> {
    let organization = path.organization()?;
    let webhook = path.webhook(&organization)?;
    let query = query.only(&["from", "to", "limit", "cursor"])?;
    let (from, to) = (query.time("from")?, query.time("to")?);
    check_period(from, to, Kind::InvalidQuery)?;
    let (limit, after) = (query.limit()?, query.cursor(MissedPosition::decode)?);
    find(&state, &organization, &webhook).await?;
    let asked = MissedQuery { organization, webhook, from, to, after, limit: limit + 1, count_to: MAX_COUNTED };
    let found = state.store.missed(asked).await?;
    Ok(Json(MissedPage {
        count_missed: found.missed,
        count_exhausted: found.exhausted,
        page: Page::new(found.entries, limit, |entry| query.next(&entry.position), |entry| MissedItem::of(&entry)),
    }))
}

/// Recover what a webhook missed.
///
/// The recovery runs by itself, oldest events first, as fast as the webhook's limits allow.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/recover",
    operation_id = "recover",
    tag = "recoveries",
    request_body = NewRecoveryJson,
    responses(
        (status = 202, description = "It has begun.", body = RecoveryJson, headers(("location" = String, description = "Its path."))),
        (status = 409, description = "A problem: recovery-running, webhook-off."),
    ),
)]
pub(super) async fn recover(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let webhook = path.webhook(&organization)?;
    let body = read_json(request, MAX_RECOVERY_BYTES).await?;
    let new = read_recovery(&body, organization.clone(), webhook.clone(), state.clock.now())?;
    match state.sender.recover(new).await? {
        RecoverOutcome::Begun(recovery) => {
            let location = format!("/v1/organizations/{organization}/webhooks/{webhook}/recoveries/{}", recovery.id);
            let body = Json(RecoveryJson::of(&recovery, &webhook, false));
            Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], body).into_response())
        }
        RecoverOutcome::Running(id) => Err(Problem::new(
            Kind::RecoveryRunning,
            format!("The recovery {:?} of this webhook runs still. Wait for its end, or cancel it.", id.as_str()),
        )),
        RecoverOutcome::Off(off) => Err(Problem::new(
            Kind::WebhookOff,
            format!(
                "The webhook is off since {}. Switch it on first (\"active\": true); nothing was changed.",
                timestamp::format(off.since)
            ),
        )),
        RecoverOutcome::NoSuchWebhook => Err(Problem::not_found("webhook", webhook.as_str(), &organization)),
    }
}

fn read_recovery(
    body: &[u8],
    organization: OrganizationId,
    webhook: WebhookId,
    now: Timestamp,
) -> Result<NewRecovery, Problem> {
    let mut fields = Fields::of_body(body, &["from", "to", "which"])?;
    fields.require(&["from", "which"]);
    let which = fields.parse("which", |word| {
        let asked = [Which::Missed, Which::Exhausted, Which::All].into_iter().find(|which| which.as_str() == word);
        asked.ok_or_else(|| format!("must be \"missed\", \"exhausted\" or \"all\", not {word:?}"))
    });
    let (from, to) = (fields.time("from"), fields.time("to"));
    let (Some(which), Some(from), []) = (which, from, fields.errors()) else {
        return Err(fields.into_errors().into());
    };
    // What is published from now on comes by itself.
    let to = to.unwrap_or_else(|| now.checked_add(SignedDuration::from_millis(1)).unwrap_or(now));
    check_period(Some(from), Some(to), Kind::InvalidRequest)?;
    Ok(NewRecovery { id: RecoveryId::generate(now, clock::random()), organization, webhook, which, from, to, at: now })
}

/// Read a recovery.
///
/// How far it is.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/recoveries/{recovery}",
    operation_id = "readRecovery",
    tag = "recoveries",
    responses((status = 200, description = "The recovery.", body = RecoveryJson)),
)]
pub(super) async fn read(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<RecoveryJson>, Problem> {
    let key = key(&path)?;
    let recovery = state.store.recovery(&key).await?;
    shown(&state, &key, recovery).await
}

/// Cancel a recovery.
///
/// It makes no more due; what it made due goes on.
#[utoipa::path(
    delete,
    path = "/v1/organizations/{organization}/webhooks/{webhook}/recoveries/{recovery}",
    operation_id = "cancelRecovery",
    tag = "recoveries",
    responses((status = 200, description = "The recovery as it stands.", body = RecoveryJson)),
)]
pub(super) async fn cancel(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<RecoveryJson>, Problem> {
    let key = key(&path)?;
    let recovery = state.store.cancel_recovery(&key).await?;
    shown(&state, &key, recovery).await
}

async fn shown(
    state: &State,
    (organization, webhook, id): &RecoveryKey,
    recovery: Option<Recovery>,
) -> Result<Json<RecoveryJson>, Problem> {
    let Some(recovery) = recovery else { return Err(no_such(id.as_str(), organization)) };
    let is_off = find(state, organization, webhook).await?.off.is_some();
    Ok(Json(RecoveryJson::of(&recovery, webhook, is_off)))
}

fn key(path: &InPath) -> Result<RecoveryKey, Problem> {
    let organization = path.organization()?;
    let webhook = path.webhook(&organization)?;
    let id = path.text("recovery");
    let id = RecoveryId::parse(id).map_err(|_| no_such(id, &organization))?;
    Ok((organization, webhook, id))
}

fn no_such(id: &str, organization: &OrganizationId) -> Problem {
    Problem::not_found("recovery", id, organization)
}

async fn find(state: &State, organization: &OrganizationId, id: &WebhookId) -> Result<Arc<Webhook>, Problem> {
    let webhooks = state.store.webhooks(organization).await?;
    let found = webhooks.iter().find(|webhook| webhook.id == *id).cloned();
    found.ok_or_else(|| Problem::not_found("webhook", id.as_str(), organization))
}

/// Case 18: a window that can hold nothing is a mistake, and says so.
pub(super) fn check_period(from: Option<Timestamp>, to: Option<Timestamp>, kind: Kind) -> Result<(), Problem> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => {
            let detail = format!("must be after \"from\", which is {}", timestamp::format(from));
            Err(Problem::of_fields(kind, vec![FieldError::new("to", &detail)]))
        }
        _ => Ok(()),
    }
}

/// A page of what a webhook did not get.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MissedPage {
    #[serde(flatten)]
    page: Page<MissedItem>,
    /// How many it missed in the whole period; counting stops at 200,000.
    count_missed: u64,
    /// How many are exhausted in the whole period; counting stops at 200,000.
    count_exhausted: u64,
}

/// An event that a webhook did not get.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = MissedEvent)]
struct MissedItem {
    /// The event's id.
    event_id: String,
    /// Its type.
    r#type: String,
    /// When it happened.
    #[schema(format = DateTime)]
    timestamp: String,
    #[schema(schema_with = words::undelivered_kind)]
    which: &'static str,
}

impl MissedItem {
    fn of(entry: &MissedEntry) -> Self {
        Self {
            event_id: entry.position.event.to_string(),
            r#type: entry.event_type.to_string(),
            timestamp: timestamp::format(entry.position.timestamp),
            which: entry.kind.as_str(),
        }
    }
}

/// A recovery as it stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Recovery)]
pub(super) struct RecoveryJson {
    /// Its id.
    id: String,
    /// Of which webhook.
    webhook_id: String,
    #[schema(schema_with = words::recovered)]
    which: &'static str,
    #[schema(schema_with = words::recovery_state)]
    state: &'static str,
    /// How many events it is about.
    total: u64,
    /// How many of them were made due so far.
    recovered: u64,
    /// From when on the events are; `null` where it has no such bound.
    #[schema(required, format = DateTime)]
    from: Option<String>,
    /// Until when, not included; `null` where it has no such bound.
    #[schema(required, format = DateTime)]
    to: Option<String>,
    /// When it began.
    #[schema(format = DateTime)]
    created_at: String,
}

impl RecoveryJson {
    fn of(recovery: &Recovery, webhook: &WebhookId, is_off: bool) -> Self {
        let is_paused = is_off && recovery.state == RecoveryState::Running;
        Self {
            id: recovery.id.to_string(),
            webhook_id: webhook.to_string(),
            which: recovery.which.as_str(),
            state: if is_paused { "paused" } else { recovery.state.as_str() },
            total: recovery.total,
            recovered: recovery.recovered,
            from: recovery.from.map(timestamp::format),
            to: recovery.to.map(timestamp::format),
            created_at: timestamp::format(recovery.created_at),
        }
    }
}
