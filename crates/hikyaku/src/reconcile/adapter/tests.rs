//! Adapters against answers made by hand after their providers' documentation.

use axum::http::HeaderMap;
use hikyaku_core::gap::Period;
use hikyaku_core::provider::receiptroller::shop_zone;
use hikyaku_core::timestamp;
use url::Url;

use super::*;

fn at(text: &str) -> jiff::Timestamp {
    timestamp::parse(text).unwrap()
}

fn day() -> Period {
    Period { from: at("2026-11-30T00:00:00Z"), to: at("2026-12-01T00:00:00Z") }
}

/// Walks through a list whose answers are these, and gives the calls and the items' keys.
fn walk(adapter: &dyn Adapter, answers: &[(&str, HeaderMap)]) -> (Vec<String>, Vec<Item>) {
    let (mut calls, mut items, mut next) = (Vec::new(), Vec::new(), None);
    for (body, headers) in answers {
        let call = adapter.call(day(), next.as_deref()).unwrap();
        calls.push(call.url.to_string());
        let page = adapter.page(&call, headers, body.as_bytes()).unwrap();
        assert_eq!(page.unreadable, (0, String::new()));
        items.extend(page.items);
        next = page.next;
    }
    assert_eq!(next, None, "the last page is the last");
    (calls, items)
}

fn none() -> HeaderMap {
    HeaderMap::new()
}

#[test]
fn r25_a_period_is_asked_for_by_pages_of_whole_instants() {
    let base = Url::parse("https://api.example/v1/").unwrap();
    let lister = Lister { base, organization: "org 1".into(), what: What::Transactions, page_items: 1000 };
    let page = |page, id| {
        format!(
            r#"{{"items":[{{"id":"{id}","terminalTransactionDateTime":"2026-11-30T09:00:00.5Z","timestamp":"2026-11-30T09:00:01Z"}}],
            "currentPage":{page},"itemsPerPage":1000,"totalItems":1001,"totalPages":2}}"#
        )
    };
    let (first, second) = (page(1, "T1|2026-11|1"), page(2, "T1|2026-11|2"));
    let (calls, items) = walk(&lister, &[(&first, none()), (&second, none())]);
    let url =
        "https://api.example/v1/org%201/transactions?from=2026-11-30T00%3A00%3A00.000Z&to=2026-12-01T00%3A00%3A00.000Z";
    assert_eq!(calls, [1, 2].map(|page| format!("{url}&currentPage={page}&itemsPerPage=1000")));
    assert_eq!((items[0].listed_at, items[0].changed_at), (at("2026-11-30T09:00:00.5Z"), at("2026-11-30T09:00:01Z")));
    assert_eq!((items[1].key.as_str(), items[1].event_type.as_str()), ("T1|2026-11|2", "sale.created"));
    assert!(lister.must_list("sale.created") && !lister.must_list("order.created"));
}

#[test]
fn what_cannot_be_read_is_counted_and_the_rest_is_taken() {
    let base = Url::parse("https://api.example").unwrap();
    let orders = Lister { base, organization: "org".into(), what: What::Orders, page_items: 1000 };
    let call = orders.call(day(), None).unwrap();
    let body = br#"{"items":[{"order_id":"W-1"},{"updatedAt":"2026-11-30T09:00:00Z"},{"order_id":"W-2","updatedAt":"2026-11-30T09:00:00Z"}],
        "currentPage":1,"itemsPerPage":1000,"totalItems":3,"totalPages":1}"#;
    let page = orders.page(&call, &none(), body).unwrap();
    assert_eq!((page.items.len(), page.unreadable.0), (1, 2));
    assert!(page.unreadable.1.contains("W-1"), "{}", page.unreadable.1);
    assert!(orders.page(&call, &none(), b"<html>").is_err());
}

#[test]
fn case15_receipts_are_read_by_the_shops_months_and_named_by_them() {
    let base = Url::parse("https://api.example").unwrap();
    let receipts = Receipts { base, organization: "org".into(), zone: shop_zone(), page_items: 1000 };
    // In Japan December begins at 15:00 UTC.
    let first = receipts.first_slice(day());
    assert_eq!(first, Period { to: at("2026-11-30T15:00:00Z"), ..day() });
    let rest = receipts.first_slice(Period { from: first.to, ..day() });
    assert_eq!(rest, Period { from: first.to, ..day() });
    let call = receipts.call(rest, Some("2")).unwrap();
    assert_eq!(call.url.as_str(), "https://api.example/org/receipts");
    assert_eq!(call.body, r#"{"year":2026,"month":12,"currentPage":2,"itemsPerPage":1000}"#);
    let body = br#"{"items":[{"receipt":{"terminalId":"T1","transactionId":"9","terminalTransactionDateTime":"2026-11-30T15:30:00Z",
        "timestamp":"2026-11-30T15:30:02Z","paymentSummary":{"grandTotal":1234}},"itemDetailLines":[{"lineId":1}],"subscriptions":[]}],
        "currentPage":2,"itemsPerPage":1000,"totalItems":1001,"totalPages":2}"#;
    let page = receipts.page(&call, &none(), body).unwrap();
    let item = &page.items[0];
    assert_eq!((item.key.as_str(), page.next), ("T1|2026-12|9", None));
    let data: serde_json::Value = serde_json::from_str(item.data.get()).unwrap();
    assert_eq!((&data["id"], &data["paymentSummary"]["grandTotal"]), (&"T1|2026-12|9".into(), &1234.into()));
    assert_eq!(data["itemDetailLines"][0]["lineId"], 1);
}

#[test]
fn stripes_events_are_read_by_cursor_and_are_the_events_themselves() {
    let stripe = Generic {
        url: Template::parse(
            "https://api.stripe.com/v1/events?created[gte]={from_epoch}&created[lt]={to_epoch}&limit=2",
        )
        .unwrap(),
        paging: Paging::Cursor {
            parameter: "starting_after".into(),
            pointer: "/id".into(),
            of_last_item: true,
            more: Some("/has_more".into()),
        },
        items: "/data".into(),
        total: None,
        key: "/data/object/id".into(),
        timestamp: "/created".into(),
        changed_at: None,
        event_type: Place::Pointer("/type".into()),
        items_are_events: true,
    };
    let event = |id: &str| {
        format!(
            r#"{{"id":"{id}","object":"event","created":1796000000,"type":"charge.succeeded","data":{{"object":{{"id":"ch_{id}","amount":5}}}}}}"#
        )
    };
    let first = format!(
        r#"{{"object":"list","data":[{},{}],"has_more":true,"url":"/v1/events"}}"#,
        event("evt_1"),
        event("evt_2")
    );
    let second = format!(r#"{{"object":"list","data":[{}],"has_more":false,"url":"/v1/events"}}"#, event("evt_3"));
    let (calls, items) = walk(&stripe, &[(&first, none()), (&second, none())]);
    let url = "https://api.stripe.com/v1/events?created[gte]=1795996800&created[lt]=1796083200&limit=2";
    assert_eq!(calls, [url.to_owned(), format!("{url}&starting_after=evt_2")]);
    let keys: Vec<_> = items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(keys, ["ch_evt_1", "ch_evt_2", "ch_evt_3"]);
    assert!(items.iter().all(|item| item.is_event && item.event_type == "charge.succeeded"));
}

#[test]
fn smaregis_transactions_are_read_by_pages() {
    let smaregi = Generic {
        url: Template::parse("https://api.smaregi.jp/contract/pos/transactions?transaction_date_time-from={from}&transaction_date_time-to={to}&limit=2")
            .unwrap(),
        paging: Paging::Pages { parameter: "page".into(), size: 2 },
        items: String::new(),
        total: None,
        key: "/transactionHeadId".into(),
        timestamp: "/transactionDateTime".into(),
        changed_at: Some("/updDateTime".into()),
        event_type: Place::Fixed("transaction.created".into()),
        items_are_events: false,
    };
    let sale = |id: u32| {
        format!(
            r#"{{"transactionHeadId":"{id}","transactionDateTime":"2026-11-30T18:00:00+09:00","updDateTime":"2026-11-30T18:05:00+09:00","total":"550"}}"#
        )
    };
    let first = format!("[{},{}]", sale(1), sale(2));
    let second = format!("[{}]", sale(3));
    let (calls, items) = walk(&smaregi, &[(&first, none()), (&second, none())]);
    assert!(
        calls[0].ends_with(
            "-from=2026-11-30T00%3A00%3A00.000Z&transaction_date_time-to=2026-12-01T00%3A00%3A00.000Z&limit=2&page=1"
        ),
        "{calls:?}"
    );
    assert!(calls[1].ends_with("&page=2"));
    assert_eq!(items.len(), 3);
    assert_eq!((items[2].listed_at, items[2].changed_at), (at("2026-11-30T09:00:00Z"), at("2026-11-30T09:05:00Z")));
}

#[test]
fn a_link_leads_to_the_next_page_and_to_no_other_server() {
    let linked = Generic {
        url: Template::parse("https://api.example/events?since={from}&until={to}").unwrap(),
        paging: Paging::Link,
        items: "/events".into(),
        total: Some("/count".into()),
        key: "/key".into(),
        timestamp: "/at".into(),
        changed_at: None,
        event_type: Place::Fixed("thing.happened".into()),
        items_are_events: false,
    };
    let page = r#"{"count":2,"events":[{"key":1,"at":1796000000}]}"#;
    let link = |link: &str| HeaderMap::from_iter([(axum::http::header::LINK, link.parse().unwrap())]);
    let next = link(r#"<https://api.example/events?x=0>; rel="prev", </events?x=2>; rel="next""#);
    let (calls, items) = walk(&linked, &[(page, next), (page, none())]);
    assert_eq!((calls[1].as_str(), items.len()), ("https://api.example/events?x=2", 2));
    let call = linked.call(day(), None).unwrap();
    let away = link(r#"<https://evil.example/events>; rel="next""#);
    assert!(linked.page(&call, &away, page.as_bytes()).unwrap_err().contains("another server"));
}

#[test]
fn what_is_no_template_is_refused() {
    for bad in [
        "",
        "https://api.example/events",
        "https://api.example/events?since={since}",
        "https://{from}/x?{to}",
        "ftp://api.example/{from}/{to}",
        "https://u:p@api.example/{from}/{to}",
        "api.example/{from}/{to}",
    ] {
        assert!(Template::parse(bad).is_err(), "{bad}");
    }
}
