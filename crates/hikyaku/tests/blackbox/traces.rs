//! Traces as a collector gets them, and the header that deliveries carry.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use reqwest::Method;
use serde_json::json;

use crate::harness::{Api, Config, Receiver, Reply, Seen, Server, event_body, forward_to};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced(collector: &Receiver) -> String {
    format!("[tracing]\notlp_endpoint = \"{}\"\nheaders = {{ x-key = \"k\" }}\n", collector.url(""))
}

/// The spans that have come, once there are as many as named, by name.
async fn spans(collector: &mut Receiver, names: &[&str]) -> BTreeMap<String, Span> {
    let mut spans = BTreeMap::new();
    while names.iter().any(|name| !spans.contains_key(*name)) {
        let request = collector.next().await;
        assert_eq!((request.method(), request.path()), ("POST", "/v1/traces"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(request.header("x-key"), Some("k"));
        let request = ExportTraceServiceRequest::decode(&*request.body).unwrap();
        for resource in request.resource_spans {
            assert!(resource.resource.unwrap().attributes.iter().any(|attribute| attribute.key == "service.name"));
            let found = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(found.map(|span| (span.name.clone(), span)));
        }
    }
    spans
}

async fn publish(api: &Api) {
    let url = api.url(&["v1", "organizations", "acme", "events"]);
    let headers = [("content-type", "application/json"), ("traceparent", CALLER)];
    let body = br#"{"id":"e1","type":"sale.created","data":1}"#;
    assert_eq!(api.try_send(Method::POST, url, &headers, body.to_vec()).await.unwrap().status, 202);
}

/// The trace's id, the span's and the flags.
fn traceparent(seen: &Seen) -> Option<(String, String, String)> {
    let parts: Vec<_> = seen.header("traceparent")?.split('-').map(str::to_owned).collect();
    let [version, trace, span, flags] = parts.try_into().unwrap();
    assert_eq!((version.as_str(), trace.len(), span.len()), ("00", 32, 16));
    assert!(trace.bytes().any(|digit| digit != b'0') && span.bytes().any(|digit| digit != b'0'));
    Some((trace, span, flags))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_event_is_one_trace_from_its_publish_to_its_delivery() {
    let mut collector = Receiver::always(200).await;
    let mut endpoint = Receiver::always(204).await;
    let server = Server::start(Config::default().with(&traced(&collector))).await;
    let api = server.api();
    api.webhook_with(json!({"url": endpoint.url("/"), "traceContext": true})).await;
    publish(&api).await;
    let spans = spans(&mut collector, &["publish", "attempt"]).await;
    let (publish, attempt) = (&spans["publish"], &spans["attempt"]);
    assert_eq!(publish.trace_id, attempt.trace_id);
    assert_eq!(publish.span_id, attempt.parent_span_id);
    assert_eq!(hex(&publish.links[0].trace_id), CALLER.split('-').nth(1).unwrap());
    assert!(publish.start_time_unix_nano <= publish.end_time_unix_nano);
    let carried = traceparent(&endpoint.next().await).unwrap();
    assert_eq!(carried, (hex(&attempt.trace_id), hex(&attempt.span_id), "01".to_owned()));
}

#[tokio::test]
async fn a_row_is_one_trace_from_its_receipt_to_its_effect() {
    let mut collector = Receiver::always(200).await;
    let business = Receiver::always(200).await;
    let config = Config::default().with(&traced(&collector)).with(&forward_to(&business.url("/")));
    let server = Server::start(config).await;
    let body = event_body("d1", "sale.created", "2026-07-01T09:30:00.000Z", "{}");
    assert_eq!(server.api().deliver_signed("d1", &body).await, 200);
    let spans = spans(&mut collector, &["receive", "effect"]).await;
    assert_eq!(spans["receive"].trace_id, spans["effect"].trace_id);
    assert_eq!(spans["receive"].span_id, spans["effect"].parent_span_id);
}

#[tokio::test]
async fn without_traces_the_header_is_sent_on_request_and_says_that_nothing_is_recorded() {
    let mut asks = Receiver::by_attempt(&[500, 204]).await;
    let mut asks_not = Receiver::always(204).await;
    let server = Server::start(Config::default()).await;
    let api = server.api();
    api.webhook_with(json!({"url": asks.url("/"), "traceContext": true})).await;
    api.webhook(&asks_not.url("/")).await;
    publish(&api).await;
    let attempts = asks.next_many(2).await;
    let [first, second] = [&attempts[0], &attempts[1]].map(|seen| traceparent(seen).unwrap());
    assert_eq!((first.0, first.2.as_str()), (second.0, "00"));
    assert_ne!(first.1, second.1, "every attempt is a span of its own");
    assert_eq!(traceparent(&asks_not.next().await), None);
}

#[tokio::test]
async fn a_collector_that_never_answers_slows_nothing() {
    let mut collector = Receiver::start(|_| Reply::Hang).await;
    let endpoint = Receiver::always(204).await;
    let mut server = Server::start(Config::default().with(&traced(&collector))).await;
    let api = server.api();
    api.webhook(&endpoint.url("/")).await;
    publish(&api).await;
    collector.next().await;
    let events: Vec<_> = (0..100).map(|n| format!(r#"{{"id":"b{n}","type":"sale.created","data":1}}"#)).collect();
    api.publish_batch(&events).await.expect(202);
    for n in 0..100 {
        assert_eq!(api.ended_one(&format!("b{n}")).await["state"], "delivered");
    }
    assert!(server.sigterm().await.success());
}
