//! From the queue to the collector. A collector that is slow or away costs spans, and nothing else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hikyaku_core::delivery::Outcome;
use metrics::{counter, describe_counter};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, any_value::Value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{Settings, attribute};
use crate::outbound::{Request, Transport};

const EXPORTED: &str = "hikyaku_spans_exported_total";
const DROPPED: &str = "hikyaku_spans_dropped_total";

/// Most spans in one request.
const MAX_BATCH_SPANS: usize = 512;
/// How long spans gather for one request.
const GATHER: Duration = Duration::from_secs(1);
/// How long a request may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes the requests.
pub(super) type SharedTransport = Arc<dyn Transport>;

/// Sends spans to the collector, in batches.
pub struct Exporter {
    url: Url,
    headers: HeaderMap,
    resource: Resource,
    transport: SharedTransport,
    spans: mpsc::Receiver<Span>,
    failing: bool,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("to", &self.url.origin()).finish_non_exhaustive()
    }
}

/// Counts spans that nobody will see.
pub(super) fn dropped(spans: usize) {
    counter!(DROPPED).increment(spans as u64);
}

/// Says what each metric means, whether traces are on or not.
pub(super) fn describe() {
    describe_counter!(EXPORTED, "Spans that the collector took");
    describe_counter!(DROPPED, "Spans dropped, because the collector did not take them or too many waited");
    counter!(EXPORTED).absolute(0);
    counter!(DROPPED).absolute(0);
}

impl Exporter {
    pub(super) fn new(
        endpoint: &Url,
        settings: &Settings,
        transport: SharedTransport,
        spans: mpsc::Receiver<Span>,
    ) -> Self {
        let mut url = endpoint.clone();
        url.set_path(&format!("{}/v1/traces", endpoint.path().trim_end_matches('/')));
        let mut headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")),
            (USER_AGENT, HeaderValue::from_static(concat!("hikyaku/", env!("CARGO_PKG_VERSION")))),
        ]);
        for (name, value) in &settings.headers {
            // The configuration has checked both.
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value.reveal())) {
                headers.insert(name, value);
            }
        }
        let text = |key, text: &str| attribute(key, Value::StringValue(text.to_owned()));
        let attributes =
            vec![text("service.name", &settings.service_name), text("service.version", env!("CARGO_PKG_VERSION"))];
        let resource = Resource { attributes, ..Resource::default() };
        Self { url, headers, resource, transport, spans, failing: false }
    }

    /// Exports until `stop` is cancelled, then what is left. The caller bounds that.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(MAX_BATCH_SPANS);
        while !stop.is_cancelled() {
            tokio::select! {
                taken = self.spans.recv_many(&mut batch, MAX_BATCH_SPANS) => if taken == 0 { return },
                () = stop.cancelled() => break,
            }
            let full = async { while batch.len() < MAX_BATCH_SPANS && take_more(&mut self.spans, &mut batch).await {} };
            tokio::select! { () = full => {} () = sleep(GATHER) => {} () = stop.cancelled() => {} }
            self.export(&mut batch).await;
        }
        self.spans.close();
        while self.spans.recv_many(&mut batch, MAX_BATCH_SPANS).await > 0 {
            self.export(&mut batch).await;
        }
    }

    async fn export(&mut self, batch: &mut Vec<Span>) {
        let spans = std::mem::take(batch);
        let count = spans.len();
        let scope = InstrumentationScope { name: "hikyaku".to_owned(), ..InstrumentationScope::default() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let resource_spans = vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }];
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec().into();
        let (url, headers) = (self.url.clone(), self.headers.clone());
        let response = self.transport.post(Request { url, headers, body, timeout: EXPORT_TIMEOUT }).await;
        if matches!(response.outcome, Outcome::Answered(200..=299)) {
            self.failing = false;
            counter!(EXPORTED).increment(count as u64);
            return;
        }
        dropped(count);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                host = self.url.origin().ascii_serialization(),
                status = response.outcome.http_status(),
                error = response.error,
                "the collector takes no traces; spans are dropped until it does"
            );
        }
    }
}

async fn take_more(spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
    let room = MAX_BATCH_SPANS - batch.len();
    spans.recv_many(batch, room).await > 0
}
