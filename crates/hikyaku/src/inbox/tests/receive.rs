use axum::http::{HeaderMap, HeaderValue};
use hikyaku_core::provider::Refusal;
use metrics_exporter_prometheus::PrometheusBuilder;

use super::*;
use crate::store::memory::{Fault, Operation};
use crate::store::{EffectState, InboxQuery, RowState, StoreError};

/// A rig that takes sales to one destination and never works anything off.
fn rig() -> Rig {
    Rig::new(
        vec![route("books", "sale.*", Order::Every, Once::Delivery)],
        &[("books", Scripted::new(|_, _| Answer::Never))],
    )
}

async fn stored(rig: &Rig) -> usize {
    let query = InboxQuery::newest(organization(), 1000);
    rig.store.inbox(query).await.unwrap().rows.len()
}

#[tokio::test(start_paused = true)]
async fn c11_nothing_is_read_or_stored_before_the_signature_holds() {
    let rig = rig();
    let body = Bytes::from(sale("d1", "k", 1));
    let with = |signature: Option<String>| {
        let mut headers = headers("d1", &body);
        headers.remove(SIGNATURE_HEADER);
        if let Some(signature) = signature {
            headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
        }
        headers
    };
    for (signature, reason) in [
        (None, Refusal::Missing(SIGNATURE_HEADER.into())),
        (Some("sha256=00".into()), Refusal::Malformed(SIGNATURE_HEADER.into())),
        (Some(sign(&Secret::new("another"), &body)), Refusal::Mismatch),
        (Some(sign(&Secret::new(SECRET), b"another body")), Refusal::Mismatch),
    ] {
        let received = rig.inbox.receive("shop", &with(signature), body.clone()).await.unwrap();
        assert_eq!(received, Received::Unauthorized(reason));
    }
    assert_eq!(stored(&rig).await, 0);
    for secret in ["the old secret", SECRET] {
        let good = with(Some(sign(&Secret::new(secret), &body)));
        let received = rig.inbox.receive("shop", &good, body.clone()).await.unwrap();
        assert!(matches!(received, Received::Stored | Received::Duplicate), "{secret}");
    }
}

#[tokio::test(start_paused = true)]
async fn s14_t7_what_is_signed_is_taken_however_old_it_is() {
    let rig = rig();
    for (n, seconds) in [1, 60 * 71, 3600 * 24 * 365].into_iter().enumerate() {
        let id = format!("d{n}");
        let body = Bytes::from(sale(&id, "k", seconds));
        let received = rig.inbox.receive("shop", &headers(&id, &body), body).await.unwrap();
        assert_eq!(received, Received::Stored, "{seconds} s after the epoch");
    }
    assert_eq!(stored(&rig).await, 3);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_source_takes_nothing() {
    let rig = rig();
    let body = Bytes::from(sale("d1", "k", 1));
    let received = rig.inbox.receive("shop2", &headers("d1", &body), body).await.unwrap();
    assert_eq!((received, stored(&rig).await), (Received::UnknownSource, 0));
}

#[tokio::test(start_paused = true)]
async fn c5_c6_c12_of_one_delivery_id_exactly_one_is_stored() {
    let rig = rig();
    let body = Bytes::from(sale("d1", "k", 1));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (inbox, body) = (rig.inbox.clone(), body.clone());
        tasks.spawn(async move { inbox.receive("shop", &headers("d1", &body), body).await.unwrap() });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == Received::Stored).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Received::Duplicate).count(), 15);
    assert_eq!(rig.row("d1").await.body, body);
}

#[tokio::test(start_paused = true)]
async fn c9_ids_are_unique_over_all_sources_of_a_provider_and_organization() {
    let other_provider = Source { provider: "other".into(), ..source("other") };
    let other_tenant = Source { organization: OrganizationId::parse("other").unwrap(), ..source("tenant") };
    let sources = vec![source("shop"), source("shop2"), other_provider, other_tenant];
    let rig = Rig::over(Arc::new(MemoryStore::new()), "one", sources, vec![], &[]);
    let body = sale("d1", "k", 1);
    for (source, expected) in [
        ("shop", Received::Stored),
        ("shop2", Received::Duplicate),
        ("other", Received::Stored),
        ("tenant", Received::Stored),
        ("other", Received::Duplicate),
    ] {
        assert_eq!(rig.send_to(source, "d1", body.clone()).await, expected, "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn c13_c14_the_answer_comes_after_the_commit_and_not_without_it() {
    let rig = rig();
    let body = Bytes::from(sale("d1", "k", 1));
    rig.store.set_down(Operation::Commit, true);
    let refused = rig.inbox.receive("shop", &headers("d1", &body), body.clone()).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))));
    assert_eq!(stored(&rig).await, 0);
    rig.store.set_down(Operation::Commit, false);
    assert_eq!(rig.send("d1", body.clone()).await, Received::Stored);
    // The answer to a commit is lost: the provider's retry is told the truth.
    let body = Bytes::from(sale("d2", "k", 1));
    rig.store.fail_next(Operation::Commit, Fault::After(StoreError::Unknown("cut off".into())));
    let unknown = rig.inbox.receive("shop", &headers("d2", &body), body.clone()).await;
    assert!(matches!(unknown, Err(StoreError::Unknown(_))));
    assert_eq!(rig.send("d2", body).await, Received::Duplicate);
}

/// T6: whatever is signed is stored with its bytes and answered 200; what nothing can use is parked with the reason.
#[tokio::test(start_paused = true)]
async fn t6_case20_what_is_signed_is_stored_and_parked_if_nothing_can_use_it() {
    let any = route("books", "*", Order::Every, Once::Delivery);
    let mut rig = Rig::new(vec![any], &[("books", Scripted::new(|_, _| panic!("parked rows have no effect")))]);
    rig.run();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let cases: [(&[u8], &str); 16] = [
        (b"", "not JSON"),
        (b"{\"id\":", "not JSON"),
        (b"\x00\x01\xff", "not JSON"),
        (b"\x1f\x8b\x08", "not JSON"),
        (b"sale=1", "the body is a form and not JSON; set the content type application/json"),
        (b"payload=%7B%22action%22%3A%22opened%22%7D", "the body is a form and not JSON"),
        (b"<sale id=\"1\"/>", "the body is not JSON"),
        (b"sale", "the body is not JSON"),
        (b"{} {}", "not JSON"),
        (b"null", "no object"),
        (b"\"text\"", "no object"),
        (b"12", "no object"),
        (b"1e400", "no object"),
        (b"true\n", "no object"),
        (b"\xef\xbb\xbf[]", "no object"),
        (deep.as_bytes(), "no object"),
    ];
    for (number, (body, reason)) in cases.into_iter().enumerate() {
        let delivery = format!("d{number}");
        assert_eq!(rig.send(&delivery, body.to_vec()).await, Received::Stored, "{body:?}");
        let row = rig.row(&delivery).await;
        assert_eq!((row.row.state, &row.body[..]), (RowState::Parked, body));
        assert!(row.row.reason.contains(reason), "{body:?}: {}", row.row.reason);
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn t6_an_event_type_without_a_route_is_parked_and_every_other_goes_to_all_that_want_it() {
    let routes = ["sale.created", "sale.*", "*", "order.*"]
        .map(|events| Route { name: events.into(), ..route("books", events, Order::Every, Once::Delivery) });
    let rig = Rig::new(routes[..2].to_vec(), &[("books", Scripted::new(|_, _| Answer::Never))]);
    for (event_type, expected) in [
        ("sale.created", &["sale.*", "sale.created"][..]),
        ("sale.voided", &["sale.*"]),
        ("order.created", &[]),
        ("", &[]),
        ("領収書", &[]),
    ] {
        let delivery = format!("d-{}", event_type.len());
        rig.send(&delivery, event(&delivery, event_type, "k", 1)).await;
        let row = rig.row(&delivery).await;
        assert_eq!(row.effects.iter().map(|e| e.route.as_str()).collect::<Vec<_>>(), expected, "{event_type}");
        assert_eq!(row.row.reason.contains("no route"), expected.is_empty(), "{}", row.row.reason);
    }
    let rig = Rig::new(routes[2..].to_vec(), &[("books", Scripted::new(|_, _| Answer::Never))]);
    rig.send("d", r#"{"id":"d","data":{}}"#).await;
    let effect = rig.effect("d").await;
    assert_eq!((effect.route.as_str(), effect.state), ("*", EffectState::Waiting), "a body without a type");
}

/// C5, R21: the header, else the signed id, else the body's hash.
#[tokio::test(start_paused = true)]
async fn c5_a_delivery_without_a_usable_header_has_an_id_all_the_same() {
    let rig = rig();
    let long = "x".repeat(201);
    let numbered = r#"{"id":29383937493038367292,"type":"sale.created"}"#;
    let nameless = r#"{"type":"sale.created"}"#;
    let control = r#"{"id":"a\u0000b","type":"sale.created"}"#;
    let cases: [(Option<&[u8]>, &str, &str); 7] = [
        (Some(b"h1"), nameless, "h1"),
        (Some("領".as_bytes()), nameless, "領"),
        (None, numbered, "29383937493038367292"),
        (Some(b""), r#"{"id":"b1","type":"sale.created"}"#, "b1"),
        (Some(long.as_bytes()), r#"{"id":"b2","type":"sale.created"}"#, "b2"),
        (Some(b"\xff"), nameless, "sha256:"),
        (None, control, "sha256:"),
    ];
    for (header, body, expected) in cases {
        let mut headers = headers("x", body.as_bytes());
        headers.remove(DELIVERY_HEADER);
        if let Some(header) = header {
            headers.insert(DELIVERY_HEADER, HeaderValue::from_bytes(header).unwrap());
        }
        let received = rig.inbox.receive("shop", &headers, Bytes::from(body)).await.unwrap();
        assert_eq!(received, Received::Stored, "{body}");
        let query = InboxQuery::newest(organization(), 1);
        let newest = rig.store.inbox(query).await.unwrap().rows.remove(0);
        assert!(newest.delivery.starts_with(expected), "{} for {body}", newest.delivery);
        assert_eq!(newest.state, RowState::Waiting, "{}", newest.reason);
        let again = rig.inbox.receive("shop", &headers, Bytes::from(body)).await.unwrap();
        assert_eq!(again, Received::Duplicate, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn r21_a_copied_body_under_another_header_has_no_effect() {
    let rig = rig();
    assert_eq!(rig.send("d1", sale("d1", "k", 1)).await, Received::Stored);
    assert_eq!(rig.send("d2", sale("d1", "k", 1)).await, Received::Stored);
    let copy = rig.parked().await.remove(0);
    assert!(copy.reason.contains("differs from the signed id \"d1\""), "{}", copy.reason);
    assert_eq!(rig.row("d1").await.row.state, RowState::Waiting);
    // The copy took nobody's place: the delivery that its header named still comes, and is no duplicate.
    assert_eq!(rig.send("d2", sale("d2", "k", 2)).await, Received::Stored);
    assert_eq!(rig.row("d2").await.row.state, RowState::Waiting);
}

/// R20, C4: the version is the provider's time where it says one, and the arrival where it does not.
#[tokio::test(start_paused = true)]
async fn r20_the_row_carries_the_providers_time_and_key() {
    let rig = rig();
    rig.send("d1", sale("d1", "t1|2026-13||9", 1_700_000_000)).await;
    let row = rig.row("d1").await.row;
    assert_eq!((row.timestamp.as_second(), row.key.as_str()), (1_700_000_000, "t1|2026-13||9"));
    rig.send("d2", r#"{"type":"sale.created","timestamp":"soon"}"#).await;
    let row = rig.row("d2").await.row;
    assert_eq!((row.timestamp, row.key.as_str()), (row.received_at, ""));
}

#[tokio::test(start_paused = true)]
async fn t2_every_answer_and_every_refusal_is_counted_by_source() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let rig = rig();
    let body = Bytes::from(sale("d1", "k", 1));
    for _ in 0..3 {
        rig.inbox.receive("shop", &HeaderMap::new(), body.clone()).await.unwrap();
    }
    rig.inbox.receive("someone's invention", &HeaderMap::new(), body.clone()).await.unwrap();
    rig.send("d1", body.clone()).await;
    rig.send("d1", body).await;
    let text = recorder.handle().render();
    for line in [
        r#"hikyaku_inbox_signature_failures_total{source="shop"} 3"#,
        r#"hikyaku_inbox_deliveries_total{source="shop",answer="unauthorized"} 3"#,
        r#"hikyaku_inbox_deliveries_total{source="shop",answer="stored"} 1"#,
        r#"hikyaku_inbox_deliveries_total{source="shop",answer="duplicate"} 1"#,
        r#"hikyaku_inbox_deliveries_total{source="",answer="unknownSource"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
