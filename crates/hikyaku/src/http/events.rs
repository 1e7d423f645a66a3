//! `/v1/organizations/{organization}/events`: publishing, and how an event stands.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hikyaku_core::envelope::business_key;
use hikyaku_core::event::{EventType, content_hash, render_body};
use hikyaku_core::ids::{EventId, OrganizationId};
use hikyaku_core::operational::is_operational;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::State;
use super::body::read_json;
use super::fields::Fields;
use super::openapi::requests;
use super::problem::{FieldError, Kind, MAX_FIELD_ERRORS, Problem};
use super::request::InPath;
use super::view::{EventJson, Events, Published};
use crate::clock;
use crate::store::{NewEvent, PublishOutcome, PublishedEvent};
use crate::trace;

/// Most events of a batch.
pub(super) const MAX_BATCH_EVENTS: usize = 1000;
/// Largest body of a batch, in bytes, unless one event alone may be larger.
const MAX_BATCH_BYTES: usize = 16 * 1024 * 1024;
/// The fields of an event.
const EVENT_FIELDS: [&str; 4] = ["type", "data", "id", "timestamp"];

/// Publish an event.
///
/// Safe to repeat with the same id: the same content gives the first answer again, and nothing is sent again.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/events",
    operation_id = "publishEvent",
    tag = "events",
    request_body = requests::NewEvent,
    responses(
        (status = 202, description = "It is stored; first attempts begin at once.", body = Published),
        (status = 200, description = "It was stored before.", body = Published),
        (status = 409, description = "A problem: event-conflict. The id was stored with other content."),
    ),
)]
pub(super) async fn publish(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let caller = trace::Context::of_request(request.headers());
    let body = read_json(request, state.max_event_bytes).await?;
    let event = read_event(Fields::of_body(&body, &EVENT_FIELDS)?, state.clock.now())?;
    let stored = store(&state, organization, vec![event], caller).await?;
    Ok((status(&stored), Json(stored.first().map(Published::of))).into_response())
}

/// Publish a batch.
///
/// All are stored or none. Gives the same answers as one by one, in their order.
#[utoipa::path(
    post,
    path = "/v1/organizations/{organization}/events/batch",
    operation_id = "publishEvents",
    tag = "events",
    request_body = requests::Batch,
    responses(
        (status = 202, description = "All are stored.", body = Events),
        (status = 200, description = "All were stored before.", body = Events),
        (status = 409, description = "A problem: event-conflict. Nothing was stored."),
    ),
)]
pub(super) async fn publish_batch(
    Shared(state): Shared<Arc<State>>,
    path: InPath,
    request: Request,
) -> Result<Response, Problem> {
    let organization = path.organization()?;
    let limit = state.max_event_bytes;
    let caller = trace::Context::of_request(request.headers());
    let body = read_json(request, MAX_BATCH_BYTES.max(limit)).await?;
    let events = read_batch(&body, limit, state.clock.now())?;
    let stored = store(&state, organization, events, caller).await?;
    let events = stored.iter().map(Published::of).collect();
    Ok((status(&stored), Json(Events { events })).into_response())
}

/// Read an event.
///
/// The event, its deliveries and their attempts.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/events/{event}",
    operation_id = "readEvent",
    tag = "events",
    responses((status = 200, description = "The event.", body = EventJson)),
)]
pub(super) async fn read(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Response, Problem> {
    let organization = path.organization()?;
    show(&state, &organization, path.event(&organization)?).await
}

/// Read the event whose id is "batch".
///
/// Somebody may have given it this id, and batches are published at its path.
#[utoipa::path(
    get,
    path = "/v1/organizations/{organization}/events/batch",
    operation_id = "readEventNamedBatch",
    tag = "events",
    responses(
        (status = 200, description = "The event.", body = EventJson),
        (status = 404, description = "A problem: not-found."),
    ),
)]
pub(super) async fn read_named_batch(Shared(state): Shared<Arc<State>>, path: InPath) -> Result<Response, Problem> {
    let id = EventId::parse("batch").expect("the last part of a batch's path is an id");
    show(&state, &path.organization()?, id).await
}

async fn show(state: &State, organization: &OrganizationId, id: EventId) -> Result<Response, Problem> {
    match state.store.event(organization, &id).await? {
        Some(event) => Ok(Json(EventJson::of(&event, state.clock.as_ref())).into_response()),
        None => Err(Problem::not_found("event", id.as_str(), organization)),
    }
}

async fn store(
    state: &State,
    organization: OrganizationId,
    events: Vec<NewEvent>,
    caller: Option<trace::Context>,
) -> Result<Vec<PublishedEvent>, Problem> {
    let ids: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
    let spans: Vec<_> = ids.iter().map(|id| publish_span(&organization, id, caller, state.clock.now())).collect();
    match state.sender.publish(organization, events).await {
        Ok(PublishOutcome::Stored(stored)) => {
            // What was stored before has its span from then.
            let new = spans.into_iter().zip(&stored).filter(|(_, event)| !event.repeated);
            new.for_each(|(span, _)| span.end());
            Ok(stored)
        }
        Ok(PublishOutcome::Conflict(id)) => Err(Problem::conflict(id)),
        Err(error) => Err(Problem::of_publish(error, ids)),
    }
}

/// The beginning of an event's trace. The caller's own trace is somebody else's, which attempts hours later cannot know
/// of, so it is linked.
fn publish_span(
    organization: &OrganizationId,
    event: &EventId,
    caller: Option<trace::Context>,
    now: Timestamp,
) -> trace::Span {
    if !trace::is_on() {
        return trace::Span::none();
    }
    let place = trace::Context::of(trace::EVENT, &[organization.as_str(), event.as_str()]);
    let mut span = trace::Span::start("publish", trace::Kind::Server, place, None, now);
    span.tell("hikyaku.organization", organization.as_str());
    span.tell("hikyaku.event.id", event.as_str());
    span.link(caller);
    span
}

fn status(stored: &[PublishedEvent]) -> StatusCode {
    if stored.iter().all(|event| event.repeated) { StatusCode::OK } else { StatusCode::ACCEPTED }
}

fn read_event(mut fields: Fields<'_>, now: Timestamp) -> Result<NewEvent, Vec<FieldError>> {
    fields.require(&["type", "data"]);
    let event_type = fields.parse("type", publishable);
    let id = fields.parse("id", EventId::parse);
    let given = fields.time("timestamp");
    let (Some(event_type), Some(data), []) = (event_type, fields.raw("data"), fields.errors()) else {
        return Err(fields.into_errors());
    };
    let id = id.unwrap_or_else(|| EventId::generate(now, clock::random()));
    let timestamp = given.unwrap_or(now);
    let body = render_body(&id, &event_type, timestamp, data);
    Ok(NewEvent {
        content_hash: content_hash(&event_type, data, given),
        created_at: now,
        key: business_key(data),
        body,
        id,
        event_type,
        timestamp,
    })
}

/// Operational events come from the sender alone, so that whoever gets one can believe it.
fn publishable(text: String) -> Result<EventType, String> {
    match EventType::parse(text) {
        Ok(event_type) if is_operational(event_type.as_str()) => Err(format!(
            "{:?} is for the sender's own events; choose a type outside \"webhook.\" and \"delivery.\"",
            event_type.as_str()
        )),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

fn read_batch(body: &[u8], limit: usize, now: Timestamp) -> Result<Vec<NewEvent>, Problem> {
    let mut fields = Fields::of_body(body, &["events"])?;
    fields.require(&["events"]);
    let raw: Vec<&RawValue> = fields.get("events", "a list of events").unwrap_or_default();
    if fields.errors().is_empty() && !(1..=MAX_BATCH_EVENTS).contains(&raw.len()) {
        fields.fail("events", &format!("has {} entries; from 1 to {MAX_BATCH_EVENTS} are taken", raw.len()));
    }
    let mut errors = fields.into_errors();
    if !errors.is_empty() {
        return Err(errors.into());
    }
    if let Some(at) = raw.iter().position(|event| event.get().len() > limit) {
        let detail = format!("events[{at}] has more than {limit} bytes, the most for one event; nothing was stored.");
        return Err(Problem::new(Kind::TooLarge, detail));
    }
    let mut events = Vec::with_capacity(raw.len());
    for (at, value) in raw.into_iter().enumerate() {
        if errors.len() >= MAX_FIELD_ERRORS {
            break;
        }
        let fields = Fields::of_value(value, &format!("events[{at}]"), &EVENT_FIELDS);
        match fields.map_err(|error| vec![error]).and_then(|fields| read_event(fields, now)) {
            Ok(event) => events.push(event),
            Err(more) => errors.extend(more),
        }
    }
    if errors.is_empty() {
        errors = repeated_ids(&events);
    }
    if errors.is_empty() { Ok(events) } else { Err(errors.into()) }
}

fn repeated_ids(events: &[NewEvent]) -> Vec<FieldError> {
    let mut first = HashMap::new();
    let mut errors = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let earlier = *first.entry(&event.id).or_insert(at);
        if earlier != at {
            let detail = format!("is the id of events[{earlier}] already; an event stands in a batch once");
            errors.push(FieldError::new(&format!("events[{at}].id"), &detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// JSON and nearly JSON: pieces of events in any order, so that many are whole and the rest fail late.
    fn pieces() -> impl Strategy<Value = String> {
        const PIECES: &[&str] = &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"type\"",
            "\"data\"",
            "\"id\"",
            "\"timestamp\"",
            "\"a.b\"",
            "\"events\"",
            "1",
            "1e400",
            "null",
            "\"\\ud800\"",
            "\"",
            "\\",
            " ",
            "\n",
            "\u{feff}",
            "{\"type\":\"a.b\",\"data\":[ 1]}",
        ];
        proptest::collection::vec(proptest::sample::select(PIECES), 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// Whatever comes in, it is an event or a problem; and an event's data is in the body as it was written.
        #[test]
        fn no_body_makes_the_reader_panic(
            body in prop_oneof![proptest::collection::vec(any::<u8>(), 0..64), pieces().prop_map(String::into_bytes)],
            data in pieces(),
        ) {
            let now = Timestamp::UNIX_EPOCH;
            let _ = Fields::of_body(&body, &EVENT_FIELDS).map(|fields| read_event(fields, now));
            let _ = read_batch(&body, 40, now);
            let whole = format!(r#"{{"type":"a.b","data":{data}}}"#);
            let read = Fields::of_body(whole.as_bytes(), &EVENT_FIELDS).map(|fields| read_event(fields, now));
            if serde_json::from_str::<&RawValue>(&data).is_ok() {
                let Ok(Ok(event)) = read else { panic!("{data:?} is JSON, but no data") };
                let tail = format!(r#","data":{}}}"#, data.trim());
                prop_assert!(event.body.ends_with(tail.as_bytes()), "{:?}", event.body);
            }
        }
    }
}
