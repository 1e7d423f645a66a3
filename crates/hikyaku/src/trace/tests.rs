use axum::http::{HeaderMap, HeaderValue};

use super::*;

fn parsed(text: &'static str) -> Option<Context> {
    Context::of_request(&HeaderMap::from_iter([(TRACEPARENT.parse().unwrap(), HeaderValue::from_static(text))]))
}

#[test]
fn a_thing_has_one_trace_and_no_other_thing_has_it() {
    let event = Context::of("event", &["acme", "e1"]);
    assert_eq!(event, Context::of("event", &["acme", "e1"]));
    for other in [
        Context::of("event", &["acme", "e2"]),
        Context::of("event", &["acm", "ee1"]),
        Context::of("row", &["acme", "e1"]),
    ] {
        assert_ne!(event.trace, other.trace);
    }
    let (one, two) = (event.child(), event.child());
    assert_eq!((one.trace, two.trace), (event.trace, event.trace));
    assert_ne!(one.span, two.span);
}

#[test]
fn what_is_written_into_the_header_is_read_from_it() {
    let context = Context { sampled: true, ..Context::of("event", &["acme", "e1"]) };
    let headers = HeaderMap::from_iter([(TRACEPARENT.parse().unwrap(), context.header())]);
    assert_eq!(Context::of_request(&headers), Some(context));
}

#[test]
fn a_header_is_read_by_the_w3c_rules() {
    let known = parsed("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    assert!(known.sampled);
    assert!(parsed("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what-comes-later").is_some());
    for bad in [
        "",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
    ] {
        assert_eq!(parsed(bad), None, "{bad}");
    }
}

#[test]
fn a_span_of_a_trace_that_is_not_recorded_holds_nothing() {
    let mut span = Span::start("x", Kind::Internal, Context::of("event", &["e"]), None, Timestamp::UNIX_EPOCH);
    span.tell("key", "value");
    span.link(parsed("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
    assert!(span.0.is_none());
    span.end();
}
