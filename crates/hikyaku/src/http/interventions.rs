//! `…/inbox/{source}/{delivery}/replay`, `…/release` and `…/discard`, and the same for many rows at once: what a person
//! does about rows that have ended, are parked or are quarantined.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::OrganizationId;
use serde::Serialize;
use utoipa::ToSchema;

use super::State;
use super::body::read_json;
use super::fields::{Fields, read_nothing};
use super::inbox::provider;
use super::openapi::requests::{ManyRows, ManyRowsToDiscard, Nothing, RowToDiscard, RowToReplay};
use super::openapi::words;
use super::page::Cursor;
use super::problem::{Kind, Problem};
use super::request::InPath;
use super::view::RowItem;
use crate::inbox::{MAX_LOOKED_AT_ROWS, MAX_STEP_ROWS, Outcome, RowFilter, RowId, Wanted};
use crate::store::{InboxRowView, RowPosition, RowState};

/// Largest body of these requests, in bytes.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Longest reason for a discard, in bytes.
pub(super) const MAX_REASON_BYTES: usize = 1024;
/// Most rows that an answer about many shows.
const MAX_SHOWN_ROWS: usize = 20;

/// The fields of a filter.
const FILTER: [&str; 9] = ["state", "source", "type", "key", "route", "from", "to", "preview", "cursor"];

/// What became of a row.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Intervened {
    #[schema(schema_with = words::intervened)]
    outcome: &'static str,
}

/// Replay a row.
///
/// Effects that have ended take place again: that of one route, or those that are dead, and where none is, all of them.
/// There may be no body at all.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/{source}/{delivery}/replay",
    operation_id = "replayInboxRow",
    tag = "inbox",
    request_body = Option<RowToReplay>,
    responses(
        (status = 200, description = "It waits for its turn.", body = Intervened),
        (status = 409, description = "A problem: row-unfit. Nothing of it has ended."),
    ),
)]
pub(super) async fn replay(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<Intervened>, Problem> {
    let organization = path.organization()?;
    let body = read_json(request, MAX_BODY_BYTES).await?;
    let mut fields = Fields::of_body(if body.is_empty() { b"{}" } else { &body }, &["route"])?;
    let route = known_route(&state, &organization, &mut fields);
    fields.finish()?;
    one(&state, organization, &path, Wanted::Replay { route }).await
}

/// Release a row.
///
/// A parked row goes to the routes that take it by now. A quarantined one is verified again, with the secrets of now, and
/// is then stored under its own id.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/{source}/{delivery}/release",
    operation_id = "releaseInboxRow",
    tag = "inbox",
    request_body = Option<Nothing>,
    responses(
        (status = 200, description = "It waits for its turn.", body = Intervened),
        (status = 409, description = "A problem: row-unfit, still-parked, still-unverified, source-gone."),
    ),
)]
pub(super) async fn release(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<Intervened>, Problem> {
    let organization = path.organization()?;
    read_nothing(request).await?;
    one(&state, organization, &path, Wanted::Release).await
}

/// Discard a row.
///
/// What waits, is dead, parked or quarantined has no effect, for good or until it is replayed.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/{source}/{delivery}/discard",
    operation_id = "discardInboxRow",
    tag = "inbox",
    request_body = RowToDiscard,
    responses(
        (status = 200, description = "It is discarded.", body = Intervened),
        (status = 409, description = "A problem: row-unfit, row-under-way."),
    ),
)]
pub(super) async fn discard(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<Intervened>, Problem> {
    let organization = path.organization()?;
    let body = read_json(request, MAX_BODY_BYTES).await?;
    let mut fields = Fields::of_body(&body, &["reason", "route"])?;
    let reason = reason(&mut fields);
    let route = fields.get("route", "a route's name");
    fields.finish()?;
    one(&state, organization, &path, Wanted::Discard { route, reason }).await
}

/// A route that is to take something again has to be there.
fn known_route(state: &State, organization: &OrganizationId, fields: &mut Fields<'_>) -> Option<String> {
    let exists = |name: String| {
        let detail = format!("must be a route of the configuration, not {name:?}");
        if state.inbox.has_route(organization, &name) { Ok(name) } else { Err(detail) }
    };
    fields.parse("route", exists)
}

fn reason(fields: &mut Fields<'_>) -> String {
    fields.require(&["reason"]);
    let check = |text: String| match text.len() {
        _ if text.trim().is_empty() => Err("must say something: it is what others will find".to_owned()),
        1..=MAX_REASON_BYTES => Ok(text),
        length => Err(format!("must be at most {MAX_REASON_BYTES} bytes long, not {length}")),
    };
    fields.parse("reason", check).unwrap_or_default()
}

async fn one(
    state: &State,
    organization: OrganizationId,
    path: &InPath,
    wanted: Wanted,
) -> Result<Json<Intervened>, Problem> {
    let (source, delivery) = (path.text("source"), path.text("delivery"));
    let provider = provider(state, &organization, source).to_owned();
    let id = RowId { organization, provider, delivery: delivery.to_owned() };
    let outcome = match state.inbox.intervene(&id, &wanted).await? {
        Outcome::Done => "done",
        Outcome::Duplicate => "duplicate",
        Outcome::NoSuchRow => {
            let what = format!("delivery from {source:?} with the id");
            return Err(Problem::not_found(&what, delivery, &id.organization));
        }
        other => {
            let (kind, detail) = objection(&other, &wanted);
            return Err(Problem::new(kind, detail));
        }
    };
    Ok(Json(Intervened { outcome }))
}

/// Why nothing was done about a row.
fn objection(outcome: &Outcome, wanted: &Wanted) -> (Kind, String) {
    match outcome {
        Outcome::StillParked(reason) => {
            (Kind::StillParked, format!("It stays parked: {reason}. Give it a route in the configuration first."))
        }
        Outcome::UnderWay => (
            Kind::RowUnderWay,
            "An effect of it may be taking place now, so nothing was changed. Send the request again in a while."
                .to_owned(),
        ),
        Outcome::Unverified(reason) => (
            Kind::StillUnverified,
            format!("{reason}, also with the secrets of now. Set the source's secrets right first, or discard it."),
        ),
        Outcome::SourceGone(name) => {
            (Kind::SourceGone, format!("Its source {name:?} is not in the configuration; put it back, or discard it."))
        }
        Outcome::Unfit(state) => (Kind::RowUnfit, unfit(*state, wanted)),
        Outcome::Done | Outcome::Duplicate | Outcome::NoSuchRow => (Kind::NotFound, "It is not there.".to_owned()),
    }
}

fn unfit(state: RowState, wanted: &Wanted) -> String {
    let state = state.as_str();
    match wanted {
        Wanted::Replay { route: Some(route) } => {
            format!("The row is {state}, and has no effect through {route:?} that has ended.")
        }
        Wanted::Replay { route: None } => {
            format!("The row is {state}, and has no effect through a route of the configuration that has ended.")
        }
        Wanted::Release => format!("The row is {state}; only what is parked or quarantined can be released."),
        Wanted::Discard { .. } => {
            format!("The row is {state}; only what waits, is dead, parked or quarantined can be discarded.")
        }
    }
}

/// What was found and done in one piece.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ManyIntervened {
    /// Whether nothing was done.
    preview: bool,
    /// How many rows this piece found.
    matched: usize,
    /// How many of them were changed.
    changed: usize,
    /// The first of the rows found, as they were.
    rows: Vec<RowItem>,
    /// The rows that stay as they were.
    unchanged: Vec<Unchanged>,
    /// Given back as `cursor`, it goes on with the next piece; `null` after the last.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A row that stays as it was.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unchanged {
    /// Where it came in.
    source: String,
    /// Its id.
    delivery_id: String,
    /// Why.
    detail: String,
}

/// Replay many rows.
///
/// All that a filter finds, a piece of them per request. With `preview` nothing is done, and the piece is larger.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/replay",
    operation_id = "replayInbox",
    tag = "inbox",
    request_body = ManyRows,
    responses((status = 200, description = "What this piece came to.", body = ManyIntervened)),
)]
pub(super) async fn replay_many(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<ManyIntervened>, Problem> {
    use RowState as S;
    let organization = path.organization()?;
    let body = read_json(request, MAX_BODY_BYTES).await?;
    let mut fields = Fields::of_body(&body, &FILTER)?;
    let route = known_route(&state, &organization, &mut fields);
    let asked = read_many(fields, organization, &[S::Dead, S::Done, S::Stale, S::Discarded])?;
    many(&state, asked, Wanted::Replay { route }).await
}

/// Release many rows.
///
/// All that a filter finds, a piece of them per request. With `preview` nothing is done, and the piece is larger.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/release",
    operation_id = "releaseInbox",
    tag = "inbox",
    request_body = ManyRows,
    responses((status = 200, description = "What this piece came to.", body = ManyIntervened)),
)]
pub(super) async fn release_many(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<ManyIntervened>, Problem> {
    let organization = path.organization()?;
    let body = read_json(request, MAX_BODY_BYTES).await?;
    let fields = Fields::of_body(&body, &FILTER)?;
    let asked = read_many(fields, organization, &[RowState::Parked, RowState::Quarantined])?;
    many(&state, asked, Wanted::Release).await
}

/// Discard many rows.
///
/// All that a filter finds, a piece of them per request. With `preview` nothing is done, and the piece is larger.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/inbox/discard",
    operation_id = "discardInbox",
    tag = "inbox",
    request_body = ManyRowsToDiscard,
    responses((status = 200, description = "What this piece came to.", body = ManyIntervened)),
)]
pub(super) async fn discard_many(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Json<ManyIntervened>, Problem> {
    use RowState as S;
    let organization = path.organization()?;
    let body = read_json(request, MAX_BODY_BYTES).await?;
    let mut fields = Fields::of_body(&body, &[&FILTER[..], &["reason"]].concat())?;
    let reason = reason(&mut fields);
    let asked = read_many(fields, organization, &[S::Waiting, S::Dead, S::Parked, S::Quarantined])?;
    let route = asked.filter.route.clone();
    many(&state, asked, Wanted::Discard { route, reason }).await
}

/// A piece of many rows that was asked for.
struct Asked {
    filter: RowFilter,
    preview: bool,
    before: Option<RowPosition>,
}

fn read_many(mut fields: Fields<'_>, organization: OrganizationId, states: &[RowState]) -> Result<Asked, Problem> {
    fields.require(&["state"]);
    let words = states.iter().map(|state| format!("{:?}", state.as_str())).collect::<Vec<_>>().join(", ");
    let state = fields.parse("state", |word| {
        RowState::parse(&word).filter(|state| states.contains(state)).ok_or_else(|| format!("must be one of {words}"))
    });
    let source = fields.get("source", "a source's name");
    let event_type = fields.parse("type", |text| EventPattern::parse_received(&text));
    let key = fields.get("key", "a business key");
    let route = fields.get("route", "a route's name");
    let (from, to) = (fields.time("from"), fields.time("to"));
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        fields.fail("to", "must be after \"from\"");
    }
    let preview = fields.get("preview", "true or false").unwrap_or(false);
    let before = fields.parse("cursor", |text| {
        RowPosition::decode(&text).ok_or("must be the nextCursor of an earlier answer to the same request")
    });
    match (state, fields.errors()) {
        (Some(state), []) => {
            let filter = RowFilter { organization, state, source, event_type, key, route, from, to };
            Ok(Asked { filter, preview, before })
        }
        _ => Err(fields.into_errors().into()),
    }
}

async fn many(state: &State, asked: Asked, wanted: Wanted) -> Result<Json<ManyIntervened>, Problem> {
    let Asked { filter, preview, before } = asked;
    let most = if preview { MAX_LOOKED_AT_ROWS } else { MAX_STEP_ROWS };
    let found = state.inbox.find(&filter, before, most).await?;
    let mut answer = ManyIntervened {
        preview,
        matched: found.rows.len(),
        rows: found.rows.iter().take(MAX_SHOWN_ROWS).map(RowItem::of).collect(),
        next_cursor: found.next.map(|next| next.encode()),
        ..ManyIntervened::default()
    };
    if !preview {
        for row in &found.rows {
            act(state, &filter.organization, row, &wanted, &mut answer).await?;
        }
    }
    Ok(Json(answer))
}

/// Does it to one of many rows. A store that fails ends the piece: what was done is done, and done again it changes nothing.
async fn act(
    state: &State,
    organization: &OrganizationId,
    row: &InboxRowView,
    wanted: &Wanted,
    answer: &mut ManyIntervened,
) -> Result<(), Problem> {
    let (provider, delivery) = (row.provider.clone(), row.delivery.clone());
    let id = RowId { organization: organization.clone(), provider, delivery };
    match state.inbox.intervene(&id, wanted).await? {
        Outcome::Done | Outcome::Duplicate => answer.changed += 1,
        outcome => {
            let (source, delivery_id) = (row.source.clone(), row.delivery.clone());
            answer.unchanged.push(Unchanged { source, delivery_id, detail: objection(&outcome, wanted).1 });
        }
    }
    Ok(())
}
