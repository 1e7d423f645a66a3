//! Traces, for whoever collects them by OTLP: off unless an endpoint is configured, and then never in anybody's way.
//!
//! An event is one trace, and so is a row of the inbox. Their ids are made of what they are called, so that attempts
//! hours later and on other nodes belong to the same trace, although nothing about it is stored.

mod context;
mod export;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::{Span as Message, Status, status::StatusCode};
use tokio::sync::mpsc;
use url::Url;

use crate::clock::Stopwatch;

pub use context::{Context, TRACEPARENT};
pub use export::Exporter;

/// The kind of an event's trace; its names are the organization and the event's id.
pub const EVENT: &str = "event";
/// The kind of an inbox row's trace; its names are the organization, the provider and the delivery's id.
pub const ROW: &str = "row";

/// Most spans that wait to be exported; beyond it they are dropped and counted.
const MAX_QUEUED_SPANS: usize = 4096;

/// Where traces go, and how many.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The collector's base URL; `None`: there are no traces.
    pub otlp_endpoint: Option<Url>,
    /// What this program is called in them.
    pub service_name: String,
    /// Of how many traces one is recorded, at least 1. Every node picks the same.
    pub sample_one_in: u32,
    /// Headers of every request to the collector, by name; both are ones that HTTP allows.
    pub headers: BTreeMap<String, Secret>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { otlp_endpoint: None, service_name: "hikyaku".to_owned(), sample_one_in: 1, headers: BTreeMap::new() }
    }
}

/// Takes spans, once traces are on. There is one per process, as there is one recorder of metrics.
static RECORDER: OnceLock<Recorder> = OnceLock::new();

struct Recorder {
    queue: mpsc::Sender<Message>,
    sample_one_in: u32,
}

/// Turns traces on, if there is an endpoint, and gives the part that exports them; it is to be run. Whoever comes second
/// in one process changes nothing.
pub fn start(settings: &Settings, transport: export::SharedTransport) -> Option<Exporter> {
    export::describe();
    let endpoint = settings.otlp_endpoint.as_ref()?;
    let (queue, spans) = mpsc::channel(MAX_QUEUED_SPANS);
    RECORDER.set(Recorder { queue, sample_one_in: settings.sample_one_in }).ok()?;
    Some(Exporter::new(endpoint, settings, transport, spans))
}

/// Whether any trace is recorded. Where none is, nobody need work out a place in one.
pub fn is_on() -> bool {
    RECORDER.get().is_some()
}

/// Whether the trace is one of those that are recorded.
fn is_sampled(trace: [u8; 16]) -> bool {
    let [.., a, b, c, d] = trace;
    RECORDER.get().is_some_and(|recorder| u32::from_be_bytes([a, b, c, d]).is_multiple_of(recorder.sample_one_in))
}

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Somebody's request to us.
    Server,
    /// Our request to somebody.
    Client,
    /// Work of ours.
    Internal,
}

/// Something that takes time, in a trace. Of a trace that is not recorded it holds nothing and costs nothing.
pub struct Span(Option<Box<(Message, Stopwatch)>>);

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Span").field(&self.0.is_some()).finish()
    }
}

impl Span {
    /// One that holds nothing.
    pub fn none() -> Self {
        Self(None)
    }

    /// Begins at `now`, by the wall clock, at its place in a trace. `parent` is what it is a part of.
    pub fn start(name: &'static str, kind: Kind, place: Context, parent: Option<Context>, now: Timestamp) -> Self {
        if !place.sampled {
            return Self::none();
        }
        let kind = match kind {
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
            Kind::Internal => SpanKind::Internal,
        };
        let message = Message {
            trace_id: place.trace.to_vec(),
            span_id: place.span.to_vec(),
            parent_span_id: parent.map(|parent| parent.span.to_vec()).unwrap_or_default(),
            name: name.to_owned(),
            kind: kind.into(),
            start_time_unix_nano: u64::try_from(now.as_nanosecond()).unwrap_or_default(),
            ..Message::default()
        };
        Self(Some(Box::new((message, Stopwatch::start()))))
    }

    /// Says something about it.
    pub fn tell(&mut self, key: &'static str, value: &str) {
        self.attribute(key, || Value::StringValue(value.to_owned()));
    }

    /// Says a number about it.
    pub fn tell_number(&mut self, key: &'static str, number: u32) {
        self.attribute(key, || Value::IntValue(number.into()));
    }

    fn attribute(&mut self, key: &'static str, value: impl FnOnce() -> Value) {
        if let Some(span) = &mut self.0 {
            span.0.attributes.push(attribute(key, value()));
        }
    }

    /// Names what it follows from in another trace.
    pub fn link(&mut self, to: Option<Context>) {
        if let (Some(span), Some(to)) = (&mut self.0, to) {
            let link = Link { trace_id: to.trace.to_vec(), span_id: to.span.to_vec(), ..Link::default() };
            span.0.links.push(link);
        }
    }

    /// Says that it failed, and why.
    pub fn fail(&mut self, why: &str) {
        if let Some(span) = &mut self.0 {
            span.0.status = Some(Status { message: why.to_owned(), code: StatusCode::Error.into() });
        }
    }

    /// Ends now, and goes to the exporter if that has room.
    pub fn end(self) {
        let (Some(span), Some(recorder)) = (self.0, RECORDER.get()) else { return };
        let (mut message, watch) = *span;
        let nanos = u64::try_from(watch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        message.end_time_unix_nano = message.start_time_unix_nano.saturating_add(nanos);
        if recorder.queue.try_send(message).is_err() {
            export::dropped(1);
        }
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
