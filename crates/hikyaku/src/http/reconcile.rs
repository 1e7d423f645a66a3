//! `/v1/organizations/{organization}/reconcile`: how far providers' lists were compared, what came of it, and more of it.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::StatusCode;
use hikyaku_core::gap::Period;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::timestamp;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::fields::Fields;
use super::openapi::requests::{InPage, ReconcileRequest};
use super::page::{Cursor, CycleNumber, Page};
use super::problem::{FieldError, Kind, Problem};
use super::recoveries::check_period;
use super::request::{InPath, Query};
use crate::reconcile::{Requested, Status};
use crate::store::{Cycle, ReconcileKey};

/// List reconciliations.
///
/// How far each has compared its provider's list.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/reconcile",
    operation_id = "listReconciliations",
    tag = "inbox",
    responses((status = 200, description = "The reconciliations, by name.", body = Reconciliations)),
)]
pub(super) async fn list(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Json<Reconciliations>, Problem> {
    let all = state.reconciler.list(&path.organization()?).await?;
    let now = state.clock.now();
    Ok(Json(Reconciliations { items: all.iter().map(|status| ReconciliationJson::of(status, now)).collect() }))
}

/// List cycles.
///
/// What each comparison found, newest first.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/reconcile/{reconcile}/cycles",
    operation_id = "listReconcileCycles",
    tag = "inbox",
    params(InPage),
    responses((status = 200, description = "A page of cycles.", body = Page<CycleJson>)),
)]
pub(super) async fn cycles(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    query: Query,
) -> Result<Json<Page<CycleJson>>, Problem> {
    let query = query.only(&["limit", "cursor"])?;
    let (limit, before) = (query.limit()?, query.cursor(CycleNumber::decode)?);
    let (key, _) = find(&state, &path).await?;
    let cycles = state.reconciler.cycles(&key, before.map(|number| number.0), limit + 1).await?;
    Ok(Json(Page::new(cycles, limit, |cycle| query.next(&CycleNumber(cycle.number)), |cycle| CycleJson::of(&cycle))))
}

/// Compare a period.
///
/// As soon as possible, beside the schedule; without a period the next cycle begins now. What is missing enters the inbox
/// and takes effect once, however often the same is compared.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/reconcile/{reconcile}/run",
    operation_id = "runReconcile",
    tag = "inbox",
    request_body = ReconcileRequest,
    responses((status = 202, description = "It will be done.", body = ReconciliationJson)),
)]
pub(super) async fn run(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    body: Bytes,
) -> Result<(StatusCode, Json<ReconciliationJson>), Problem> {
    let period = read_period(&body, state.clock.now())?;
    let (key, _) = find(&state, &path).await?;
    if let Requested::BeyondBudget { needed, left } = state.reconciler.request(&key, period).await? {
        let detail = format!(
            "is so early that the period needs {needed} calls of the provider's API or more; {left} of the budget are left, \
             and half of them are kept for the schedule: choose a shorter period, or raise `call_budget`"
        );
        return Err(Problem::of_fields(Kind::InvalidRequest, vec![FieldError::new("from", &detail)]));
    }
    let (_, status) = find(&state, &path).await?;
    Ok((StatusCode::ACCEPTED, Json(ReconciliationJson::of(&status, state.clock.now()))))
}

fn read_period(body: &[u8], now: Timestamp) -> Result<Option<Period>, Problem> {
    let mut fields = Fields::of_body(body, &["from", "to"])?;
    let (from, to) = (fields.time("from"), fields.time("to"));
    if from.is_none() && to.is_some() {
        fields.require(&["from"]);
    }
    fields.finish()?;
    let Some(from) = from else { return Ok(None) };
    let to = to.unwrap_or(now);
    check_period(Some(from), Some(to), Kind::InvalidRequest)?;
    Ok(Period::around(from, to))
}

async fn find(state: &State, path: &InPath) -> Result<(ReconcileKey, Status), Problem> {
    let organization = path.organization()?;
    let name = path.text("reconcile");
    let key = ReconcileKey { organization, name: name.to_owned() };
    match state.reconciler.status(&key).await? {
        Some(status) => Ok((key, status)),
        None => Err(no_such(name, &key.organization)),
    }
}

fn no_such(name: &str, organization: &OrganizationId) -> Problem {
    Problem::not_found("reconciliation", name, organization)
}

/// All of them.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reconciliations {
    /// One for each `[[reconcile]]` of the organization.
    items: Vec<ReconciliationJson>,
}

/// How a reconciliation stands.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Reconciliation)]
pub(super) struct ReconciliationJson {
    /// Its name in the configuration.
    name: String,
    /// The source that it completes.
    source: String,
    /// Everything before this was compared.
    #[schema(required, format = DateTime)]
    compared_to: Option<String>,
    /// What is to be compared beside the schedule.
    #[schema(required)]
    wanted: Option<PeriodJson>,
    /// Calls of the provider's API in the present 30 days.
    calls: u32,
    /// Most of them.
    call_budget: u32,
    /// When the provider's webhook was last seen to be on, where it is watched.
    #[schema(required, format = DateTime)]
    active_at: Option<String>,
    /// Since when the provider's webhook has not been seen to be on, where it is watched: the provider has switched it off,
    /// or does not answer. `null` while it was on at the last looks.
    #[schema(required, format = DateTime)]
    not_active_since: Option<String>,
    /// The last cycle.
    #[schema(required)]
    cycle: Option<CycleJson>,
}

impl ReconciliationJson {
    fn of(status: &Status, now: Timestamp) -> Self {
        let Status { settings, state } = status;
        Self {
            name: settings.name.clone(),
            source: settings.source.clone(),
            compared_to: state.mark.map(timestamp::format),
            wanted: state.wanted.map(PeriodJson::of),
            calls: state.calls,
            call_budget: settings.call_budget,
            active_at: state.active_at.map(timestamp::format),
            not_active_since: status.not_active_since(now).map(timestamp::format),
            cycle: state.cycle.as_ref().map(CycleJson::of),
        }
    }
}

/// A half-open period.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Period)]
pub(super) struct PeriodJson {
    /// Its first instant.
    #[schema(format = DateTime)]
    from: String,
    /// The first instant after it.
    #[schema(format = DateTime)]
    to: String,
}

impl PeriodJson {
    fn of(period: Period) -> Self {
        Self { from: timestamp::format(period.from), to: timestamp::format(period.to) }
    }
}

/// What one comparison found.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Cycle)]
pub(super) struct CycleJson {
    /// Its number, from 1.
    number: i64,
    /// What is compared.
    period: PeriodJson,
    /// Everything of the period before this is done.
    #[schema(format = DateTime)]
    done_to: String,
    /// When it began.
    #[schema(format = DateTime)]
    started_at: String,
    /// When it ended.
    #[schema(required, format = DateTime)]
    ended_at: Option<String>,
    /// Items in the provider's list.
    listed: u64,
    /// Items that were here as listed.
    known: u64,
    /// Items of which nothing was here.
    missing: u64,
    /// Items that entered the inbox and take effect: missing ones, and newer states.
    repaired: u64,
    /// Items that were here otherwise.
    different: u64,
    /// Keys that are here and not in the list.
    unknown: u64,
    /// Calls of the provider's API.
    calls: u32,
    /// Why it does not go on at present; empty where it does.
    problem: String,
}

impl CycleJson {
    fn of(cycle: &Cycle) -> Self {
        let counts = &cycle.counts;
        Self {
            number: cycle.number,
            period: PeriodJson::of(cycle.period),
            done_to: timestamp::format(cycle.done_to),
            started_at: timestamp::format(cycle.started_at),
            ended_at: cycle.ended_at.map(timestamp::format),
            listed: counts.listed,
            known: counts.known,
            missing: counts.missing,
            repaired: counts.repaired,
            different: counts.different,
            unknown: counts.unknown,
            calls: cycle.calls,
            problem: cycle.problem.clone(),
        }
    }
}
