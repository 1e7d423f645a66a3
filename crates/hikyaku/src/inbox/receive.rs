//! The way in: verified, stored, answered, in this order and nothing else (C11-C14).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::envelope::Envelope;
use hikyaku_core::event::EventPattern;
use hikyaku_core::ids::{MAX_ID_BYTES, OrganizationId};
use hikyaku_core::json;
use hikyaku_core::ordering::Version;
use hikyaku_core::signature::receiptroller::{DELIVERY_HEADER, InvalidSignature, SIGNATURE_HEADER, verify};
use jiff::Timestamp;

use super::{Inbox, Route, Source, hash_id, metrics};
use crate::clock::Clock;
use crate::store::{NewRow, RecordOutcome, StoreError};
use crate::trace;

/// A provider that got nothing but refusals for this long switches the webhook off (R8, R10).
const PROVIDER_GIVES_UP_AFTER: Duration = Duration::from_secs(71 * 60);
/// Refused signatures of one source are counted always, but logged no more often than this: anyone can cause them.
const REFUSAL_LOG_PAUSE: Duration = Duration::from_secs(60);

/// What became of a delivery that came in. A store that cannot take it is an error instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is stored, whatever is in it (T6). Answer 200.
    Stored,
    /// Its id was stored before (C6, C12). Answer 200.
    Duplicate,
    /// Its signature is not one of this source (C11). Answer 401.
    Unauthorized(InvalidSignature),
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
        let Some(intake) = self.intakes.get(source) else {
            metrics::answered("", "unknownSource");
            return Ok(Received::UnknownSource);
        };
        let signature = headers.get(SIGNATURE_HEADER).map(|value| value.as_bytes());
        if let Err(reason) = verify(&intake.source.secrets, signature, &body) {
            intake.refused(reason, self.clock.now());
            metrics::answered(source, "unauthorized");
            return Ok(Received::Unauthorized(reason));
        }
        intake.accepted();
        let row = intake.row(headers, body, &*self.clock);
        let span = receive_span(&row, headers);
        match self.committer.record(row).await.inspect_err(|_| metrics::answered(source, "storeError"))? {
            RecordOutcome::Stored => {
                metrics::answered(source, "stored");
                span.end();
                self.wake.notify_one();
                Ok(Received::Stored)
            }
            RecordOutcome::Duplicate => {
                metrics::answered(source, "duplicate");
                Ok(Received::Duplicate)
            }
        }
    }
}

/// The beginning of a row's trace. The sender's own trace is somebody else's, and is linked: a stranger neither joins
/// ours nor decides what of it is recorded.
fn receive_span(row: &NewRow, headers: &HeaderMap) -> trace::Span {
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
    source: Source,
    routes: Vec<(String, Vec<EventPattern>)>,
    refusals: Mutex<Refusals>,
}

/// The refused signatures since the last good one.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    since: Option<Timestamp>,
    logged: Option<Timestamp>,
}

impl Refusals {
    /// Takes note of one more; since when there was nothing else, if it is time to say so again.
    pub(super) fn add(&mut self, now: Timestamp) -> Option<Timestamp> {
        let since = *self.since.get_or_insert(now);
        let lately = |at: Timestamp| now.duration_since(at).unsigned_abs() < REFUSAL_LOG_PAUSE;
        if self.logged.is_some_and(lately) {
            return None;
        }
        self.logged = Some(now);
        Some(since)
    }
}

impl Intake {
    pub(super) fn new(source: Source) -> Self {
        Self { source, routes: Vec::new(), refusals: Mutex::default() }
    }

    pub(super) fn add_route(&mut self, route: &Route) {
        self.routes.push((route.name.clone(), route.events.clone()));
    }

    pub(super) fn organization(&self) -> &OrganizationId {
        &self.source.organization
    }

    /// Reads a signed body as far as it can be read, and says which routes take it.
    fn row(&self, headers: &HeaderMap, body: Bytes, clock: &dyn Clock) -> NewRow {
        let envelope = Envelope::read(&body);
        let header = headers.get(DELIVERY_HEADER).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
        let header = header.filter(|id| is_usable(id));
        let contradicted = contradicts(header, envelope.id.as_deref());
        let delivery = delivery_id(header, envelope.id.as_deref(), contradicted, &body);
        let event_type = envelope.event_type.clone().unwrap_or_default();
        let received_at = clock.now();
        let park_reason = self.park_reason(header.filter(|_| contradicted), &envelope, &event_type, &body);
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

    fn routes_for(&self, event_type: &str) -> Vec<String> {
        let takes = |patterns: &[EventPattern]| patterns.iter().any(|pattern| pattern.matches(event_type));
        self.routes.iter().filter(|(_, patterns)| takes(patterns)).map(|(name, _)| name.clone()).collect()
    }

    /// Why nothing may be done with a signed body (T6); empty if something may.
    fn park_reason(&self, contradicting: Option<&str>, envelope: &Envelope, event_type: &str, body: &[u8]) -> String {
        if !envelope.is_json {
            return "the body is not JSON".to_owned();
        }
        if !json::pointer(body, "").is_some_and(|value| value.get().starts_with('{')) {
            return "the body is JSON, but no object".to_owned();
        }
        if let Some(header) = contradicting {
            let signed = envelope.id.as_deref().unwrap_or_default();
            return format!(
                "the {DELIVERY_HEADER} header {header:.80?}, which is not signed, differs from the signed id \
                 {signed:.80?}: possibly somebody else's copy of that delivery"
            );
        }
        if self.routes_for(event_type).is_empty() {
            return format!("no route of the source takes the event type {event_type:?}");
        }
        String::new()
    }

    fn accepted(&self) {
        *self.refusals() = Refusals::default();
    }

    /// Counts a refused signature, and warns while there is time to act: a wrong secret costs the webhook (T2).
    fn refused(&self, reason: InvalidSignature, now: Timestamp) {
        metrics::signature_failed(&self.source.name);
        let Some(since) = self.refusals().add(now) else { return };
        let off_at = since.checked_add(PROVIDER_GIVES_UP_AFTER).unwrap_or(Timestamp::MAX);
        tracing::warn!(
            source = self.source.name, %reason, refused_since = %since, switched_off_at = %off_at,
            "refused a signature; if the provider itself sent this, its secret is not among the source's `secrets`, \
             and it will switch the webhook off"
        );
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the header, which is not signed, names another delivery than the signed body. R21 makes the two equal, so
/// whoever sends another one may have copied the body.
fn contradicts(header: Option<&str>, signed: Option<&str>) -> bool {
    header.zip(signed).is_some_and(|(header, signed)| header != signed)
}

/// The provider's id of a delivery (C5): the header's, else the signed body's, else one made of the body.
///
/// One whose header contradicts its body gets an id of its own, made of both: under the header's id it could take the
/// place of a delivery that is still to come, which would then look like a duplicate.
fn delivery_id(header: Option<&str>, signed: Option<&str>, contradicted: bool, body: &[u8]) -> String {
    if contradicted {
        return hash_id(&[header.unwrap_or_default().as_bytes(), b"\n", body].concat());
    }
    header.or(signed.filter(|id| is_usable(id))).map_or_else(|| hash_id(body), str::to_owned)
}

/// Whether a text that somebody sent can be kept as an id.
fn is_usable(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control)
}
