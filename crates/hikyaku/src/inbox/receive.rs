//! The way in: verified, stored, answered, in this order and nothing else (C11-C14).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::OrganizationId;
use hikyaku_core::json;
use hikyaku_core::ordering::Version;
use hikyaku_core::provider::{Contradiction, Envelope, Headers, Refusal, Verifier};
use jiff::Timestamp;
use tokio::time::timeout;

use super::refusals::{Refusals, Refused, SourceState};
use super::{HASH_PREFIX, Inbox, Route, Source, hash_id, metrics};
use crate::clock::{Clock, Stopwatch};
use crate::crash;
use crate::store::{InboxRowDetail, InboxRowView, NewRow, RecordOutcome, StoreError};
use crate::trace;

/// How long a delivery may wait for its commit: the provider waits 10 seconds for its answer (R4), and has to hear before
/// that that it must come again.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// What became of a delivery that came in. A store that cannot take it is an error instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// It is stored, whatever is in it (T6). Answer 200.
    Stored,
    /// Its id was stored before (C6, C12). Answer 200.
    Duplicate,
    /// Its signature is not one of this source, and it is kept aside until somebody has decided about it (T2). Answer 200.
    Quarantined,
    /// It is no delivery: the provider only asks whether somebody is there. Answer 200 with this text, its challenge.
    Challenge(String),
    /// Its signature is not one of this source (C11). Answer 401.
    Unauthorized(Refusal),
    /// There is no such source. Answer 404.
    UnknownSource,
}

impl Inbox {
    /// Takes a delivery to the source named `source` and returns after it is committed, or not at all taken.
    ///
    /// The raw bytes are verified before anything is read from them (C11). What is signed is stored, without a look at
    /// whether anything can use it (T6), in the one record that is both the deduplication and the saved work (T1, C6,
    /// C13); its effects come later, elsewhere (C15).
    ///
    /// # Errors
    /// The store's; then nothing may be answered that the sender would take for success.
    pub async fn receive(&self, source: &str, headers: &HeaderMap, body: Bytes) -> Result<Received, StoreError> {
        let watch = Stopwatch::start();
        let Some(intake) = self.intakes.get(source) else {
            metrics::answered("", "unknownSource", watch.elapsed());
            return Ok(Received::UnknownSource);
        };
        let fields = fields(headers);
        let now = self.clock.now();
        if let Err(reason) = intake.verify(&fields, &body, now) {
            return self.refuse(intake, reason, (headers, body), &watch).await;
        }
        intake.accepted(now);
        if let Some(challenge) = intake.verifier.challenge(&body) {
            metrics::answered(source, "challenge", watch.elapsed());
            return Ok(Received::Challenge(challenge));
        }
        let row = intake.row(&fields, body, &*self.clock);
        let span = receive_span(&row, headers);
        let failed = |_: &StoreError| metrics::answered(source, "storeError", watch.elapsed());
        crash::point("receive.asked");
        let outcome = self.record(row).await.inspect_err(failed)?;
        crash::point("receive.committed");
        match outcome {
            RecordOutcome::Stored => {
                metrics::answered(source, "stored", watch.elapsed());
                span.end();
                self.announce();
                Ok(Received::Stored)
            }
            RecordOutcome::Duplicate => {
                metrics::answered(source, "duplicate", watch.elapsed());
                Ok(Received::Duplicate)
            }
        }
    }
}

impl Inbox {
    /// Stores a row, or says in time that it may not be stored. What was handed over is written all the same, and is a
    /// duplicate when it comes again.
    pub(super) async fn record(&self, row: NewRow) -> Result<RecordOutcome, StoreError> {
        match timeout(RECORD_TIMEOUT, self.committer.record(row)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::Unavailable(format!("no commit within {RECORD_TIMEOUT:?}"))),
        }
    }
}

/// The beginning of a row's trace. The sender's own trace is somebody else's, and is linked: a stranger neither joins
/// ours nor decides what of it is recorded.
fn receive_span(row: &NewRow, headers: &HeaderMap) -> trace::Span {
    if !trace::is_on() {
        return trace::Span::none();
    }
    let place = trace::Context::of(trace::ROW, &[row.organization.as_str(), &row.provider, &row.delivery]);
    let mut span = trace::Span::start("receive", trace::Kind::Server, place, None, row.received_at);
    span.tell("hikyaku.organization", row.organization.as_str());
    span.tell("hikyaku.source", &row.source);
    span.tell("hikyaku.delivery.id", &row.delivery);
    span.tell("hikyaku.event.type", &row.event_type);
    span.link(trace::Context::of_request(headers));
    span
}

/// A source with the routes that take from it.
pub(super) struct Intake {
    pub(super) source: Source,
    verifier: Verifier,
    routes: Vec<(String, Vec<EventPattern>)>,
    refusals: Mutex<Refusals>,
}

impl Intake {
    pub(super) fn new(source: Source) -> Self {
        let verifier = Verifier::new(source.profile.clone(), &source.secrets);
        Self { source, verifier, routes: Vec::new(), refusals: Mutex::default() }
    }

    pub(super) fn add_route(&mut self, route: &Route) {
        self.routes.push((route.name.clone(), route.events.clone()));
    }

    pub(super) fn organization(&self) -> &OrganizationId {
        &self.source.organization
    }

    /// Where notices about this source go, and whose they are.
    pub(super) fn notices(&self) -> Option<(OrganizationId, Route)> {
        Some((self.organization().clone(), super::notices::route_of(&self.source)?))
    }

    /// Whether somebody is to be told now that no signature verifies. Whoever is answered yes tells it.
    pub(super) fn is_to_be_told(&self, now: Timestamp) -> bool {
        self.refusals().is_to_be_told(now)
    }

    /// It could not be told.
    pub(super) fn is_still_to_be_told(&self) {
        self.refusals().is_still_to_be_told();
    }

    /// Whether a delivery that came at this time is signed with a secret of this source (C11).
    pub(super) fn verify(&self, headers: &Headers<'_>, body: &[u8], at: Timestamp) -> Result<(), Refusal> {
        self.verifier.verify(headers, body, at).map(|_| ())
    }

    /// Reads a signed body as far as it can be read, and says which routes take it.
    pub(super) fn row(&self, headers: &Headers<'_>, body: Bytes, clock: &dyn Clock) -> NewRow {
        let envelope = self.verifier.read(headers, &body);
        let delivery = delivery_id(&envelope, &body);
        let event_type = envelope.event_type.clone().unwrap_or_default();
        let received_at = clock.now();
        let park_reason = self.park_reason(&envelope, &event_type, &body);
        NewRow {
            organization: self.source.organization.clone(),
            provider: self.source.provider.clone(),
            source: self.source.name.clone(),
            version: Version::new(envelope.timestamp.unwrap_or(received_at), &event_type, delivery.as_str()),
            delivery,
            key: envelope.key.unwrap_or_default(),
            received_at,
            due_at: clock.schedule(),
            routes: if park_reason.is_empty() { self.routes_for(&event_type) } else { Vec::new() },
            park_reason,
            event_type,
            body,
        }
    }

    /// Which routes take a parked row by now, or why it stays parked. Whether its header contradicted its body shows in its
    /// id, which is then a hash of both.
    pub(super) fn routes_again(&self, row: &InboxRowDetail) -> (Vec<String>, String) {
        let InboxRowDetail { row: InboxRowView { delivery, event_type, reason, .. }, body, .. } = row;
        let is_copy = delivery.starts_with(HASH_PREFIX) && *delivery != hash_id(body);
        let routes = self.routes_for(event_type);
        if is_copy || !is_object(body) {
            return (Vec::new(), reason.clone());
        }
        let reason = if routes.is_empty() { no_route(event_type) } else { String::new() };
        (routes, reason)
    }

    pub(super) fn routes_for(&self, event_type: &str) -> Vec<String> {
        let takes = |patterns: &[EventPattern]| patterns.iter().any(|pattern| pattern.matches(event_type));
        self.routes.iter().filter(|(_, patterns)| takes(patterns)).map(|(name, _)| name.clone()).collect()
    }

    /// Why nothing may be done with a signed body (T6); empty if something may.
    fn park_reason(&self, envelope: &Envelope, event_type: &str, body: &[u8]) -> String {
        if !envelope.is_json {
            return not_json(body).to_owned();
        }
        if !envelope.is_object {
            return "the body is JSON, but no object".to_owned();
        }
        if let Some(Contradiction { header, unsigned, signed }) = &envelope.contradiction {
            return format!(
                "the {header} header {unsigned:.80?}, which is not signed, differs from the signed id {signed:.80?}: \
                 possibly somebody else's copy of that delivery"
            );
        }
        if self.routes_for(event_type).is_empty() {
            return no_route(event_type);
        }
        String::new()
    }

    /// Notes that a signature has verified.
    fn accepted(&self, now: Timestamp) {
        if self.refusals().good(now) {
            metrics::switched_off_at(&self.source.name, None);
        }
    }

    /// How the source's signatures stand.
    pub(super) fn state(&self) -> SourceState {
        self.refusals().state()
    }

    /// Notes that a signature has not verified, and warns while there is time to act: a wrong secret costs the webhook (T2).
    pub(super) fn refused(&self, reason: &Refusal, became: Refused, now: Timestamp) {
        metrics::signature_failed(&self.source.name);
        let body = became.comes_again().filter(|_| self.source.switches_off());
        let (state, is_told) = {
            let mut refusals = self.refusals();
            refusals.add(now, reason.clone(), body);
            (refusals.state(), refusals.is_to_be_logged(became, now))
        };
        metrics::switched_off_at(&self.source.name, state.switched_off_at);
        if is_told {
            let since = state.refused_since.map(tracing::field::display);
            let off_at = state.switched_off_at.map(tracing::field::display);
            tracing::warn!(
                source = self.source.name, %reason, refused_since = since, switched_off_at = off_at,
                "{}; if the provider itself sent this, its secret is not among the source's `secrets`", became.words()
            );
        }
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A delivery's headers, as the rules read them.
pub(super) fn fields(headers: &HeaderMap) -> Headers<'_> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

fn is_object(body: &[u8]) -> bool {
    json::pointer(body, "").is_some_and(|value| value.get().starts_with('{'))
}

/// GitHub, for one, sends forms unless it is told otherwise; nothing but the body says so for certain.
fn not_json(body: &[u8]) -> &'static str {
    let name = body.split(|byte| *byte == b'=').next().filter(|name| name.len() < body.len()).unwrap_or_default();
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'%' | b'[' | b']');
    match !name.is_empty() && name.iter().all(is_name) {
        true => {
            "the body is a form and not JSON; set the content type application/json for the webhook at its provider"
        }
        false => "the body is not JSON",
    }
}

pub(super) fn no_route(event_type: &str) -> String {
    format!("no route of the source takes the event type {event_type:?}")
}

/// The id of a delivery (C5): the provider's, else one made of the body.
///
/// One that contradicts itself gets an id of its own, made of both: under the header's id it could take the place of a
/// delivery that is still to come, which would then look like a duplicate.
fn delivery_id(envelope: &Envelope, body: &[u8]) -> String {
    match (&envelope.contradiction, &envelope.id) {
        (Some(Contradiction { unsigned, .. }), _) => hash_id(&[unsigned.as_bytes(), b"\n", body].concat()),
        (None, Some(id)) => id.clone(),
        (None, None) => hash_id(body),
    }
}
