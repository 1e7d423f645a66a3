mod hostile;
mod vectors;

use super::*;
use jiff::Timestamp;

use crate::envelope::{MAX_KEY_BYTES, MAX_TYPE_BYTES, business_key};
use crate::json;
use crate::signature::Secret;

/// A profile of one preset with a secret.
fn verifier(preset: Preset, secrets: &[&str]) -> Verifier {
    let secrets: Vec<_> = secrets.iter().map(|secret| Secret::new(*secret)).collect();
    Verifier::new(preset.profile(), &secrets)
}

fn headers<'a>(pairs: &[(&'a str, &'a str)]) -> Headers<'a> {
    pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
}

fn read(preset: Preset, pairs: &[(&str, &str)], body: &str) -> Envelope {
    verifier(preset, &[]).read(&headers(pairs), body.as_bytes())
}

#[test]
fn r24_the_key_is_found_by_shape_not_by_name() {
    let key = |body: &str| read(Preset::ReceiptRoller, &[], body).key;
    let sale = r#"{"type":"order.created","data":{"id":"t1|2026-13||9"}}"#;
    let order = r#"{"type":"sale.created","data":{"id":"x","order_id":29383937493038367292}}"#;
    assert_eq!(key(sale).as_deref(), Some("t1|2026-13||9"));
    assert_eq!(key(order).as_deref(), Some("29383937493038367292"));
    let long = format!(r#"{{"data":{{"id":"{}"}}}}"#, "x".repeat(MAX_KEY_BYTES + 1));
    for none in [r#"{"data":{}}"#, r#"{"data":{"id":""}}"#, r#"{"data":{"id":{}}}"#, r#"{"data":null}"#, &long] {
        assert_eq!(key(none), None, "{none}");
    }
    for body in [sale, order, &long] {
        let data = json::pointer(body.as_bytes(), "/data").unwrap();
        assert_eq!(business_key(data), key(body), "what is published has the key that is received");
        assert_eq!(Envelope::read(body.as_bytes()), read(Preset::ReceiptRoller, &[], body));
    }
}

#[test]
fn t6_no_body_is_an_error() {
    for body in [&b""[..], b"null", b"12", b"\"text\"", b"\x00", b"\xff\xfe", b"{\"id\":", b"[[[["] {
        for (name, preset) in Preset::ALL {
            let read = Verifier::new(preset.profile(), &[]).read(&Headers::default(), body);
            assert_eq!(read, Envelope { is_json: read.is_json, ..Envelope::default() }, "{name} {body:?}");
        }
    }
    assert!(read(Preset::Custom, &[], "null").is_json);
    assert!(!read(Preset::Custom, &[], "nul").is_json);
}

#[test]
fn r20_the_timestamp_may_be_text_or_number() {
    for body in [r#"{"timestamp":"1970-01-01T09:00:00+09:00"}"#, r#"{"timestamp":0}"#] {
        assert_eq!(read(Preset::ReceiptRoller, &[], body).timestamp, Some(Timestamp::UNIX_EPOCH), "{body}");
    }
}

#[test]
fn c5_an_id_comes_from_the_first_place_that_has_a_usable_one() {
    let long = "x".repeat(crate::ids::MAX_ID_BYTES + 1);
    for (header, id) in [("d1", "d1"), ("", "b1"), ("a\nb", "b1"), (&long, "b1")] {
        let read = read(Preset::ReceiptRoller, &[("X-RR-Delivery", header)], r#"{"id":"b1"}"#);
        assert_eq!(read.id.as_deref(), Some(id), "{header:?}");
    }
    let twice = [("x-rr-delivery", "d1"), ("X-RR-Delivery", "d2")];
    assert_eq!(read(Preset::ReceiptRoller, &twice, "{}").id, None, "nobody could say which one is meant");
}

#[test]
fn r21_an_unsigned_id_that_differs_from_the_signed_one_is_a_contradiction() {
    let found = |header, body| read(Preset::ReceiptRoller, &[("x-rr-delivery", header)], body).contradiction;
    let expected = Contradiction { header: "x-rr-delivery".into(), unsigned: "d2".into(), signed: "d1".into() };
    assert_eq!(found("d2", r#"{"id":"d1"}"#), Some(expected));
    assert_eq!(found("d1", r#"{"id":"d1"}"#), None);
    assert_eq!(found("d1", "{}"), None);
    let mut signed = Preset::ReceiptRoller.profile();
    signed.scheme.content = Content::parse("{id}.{body}").unwrap();
    let read = Verifier::new(signed, &[]).read(&headers(&[("x-rr-delivery", "d2")]), br#"{"id":"d1"}"#);
    assert_eq!((read.contradiction, read.id.as_deref()), (None, Some("d2")), "here the header is signed");
}

#[test]
fn a_type_has_dots_whatever_its_provider_joins_words_by() {
    let github = |action: &str| {
        let body = format!(r#"{{"action":{action}}}"#);
        read(Preset::GitHub, &[("X-GitHub-Event", "issues")], &body).event_type
    };
    assert_eq!(github(r#""opened""#).as_deref(), Some("issues.opened"));
    assert_eq!(github("null").as_deref(), Some("issues"));
    assert_eq!(
        read(Preset::Shopify, &[("x-shopify-topic", "orders/create")], "").event_type.as_deref(),
        Some("orders.create")
    );
    let thin = r#"{"contractId":"sb_1","event":"pos:transactions","action":"created","transactionHeadIds":["25"]}"#;
    let thin = read(Preset::Smaregi, &[("Smaregi-Event-Id", "1e7c5a0e"), ("Smaregi-Event", "pos:transactions")], thin);
    assert_eq!((thin.event_type.as_deref(), thin.id.as_deref()), (Some("pos.transactions.created"), Some("1e7c5a0e")));
}

#[test]
fn t6_a_type_that_is_empty_or_too_long_is_not_known() {
    let long = "x".repeat(MAX_TYPE_BYTES);
    for (given, known) in [("a.b", true), ("", false), (&long, true), (&format!("{long}x"), false)] {
        let read = read(Preset::ReceiptRoller, &[], &format!(r#"{{"type":"{given}"}}"#));
        assert_eq!(read.event_type.as_deref(), known.then_some(given));
    }
    for (action, whole) in [("", "issues"), (&long, "issues"), ("opened", "issues.opened")] {
        let body = format!(r#"{{"action":"{action}"}}"#);
        assert_eq!(read(Preset::GitHub, &[("x-github-event", "issues")], &body).event_type.as_deref(), Some(whole));
    }
}

#[test]
fn t6_the_headers_that_say_something_are_named() {
    for (preset, names) in [
        (Preset::GitHub, &["x-github-delivery", "x-github-event", "x-hub-signature-256"][..]),
        (Preset::Slack, &["x-slack-request-timestamp", "x-slack-signature"]),
        (Preset::StandardWebhooks, &["webhook-id", "webhook-signature", "webhook-timestamp"]),
        (Preset::Square, &["x-square-hmacsha256-signature"]),
    ] {
        assert_eq!(preset.profile().headers().into_iter().collect::<Vec<_>>(), names, "{preset:?}");
    }
}

#[test]
fn case3_a_number_of_twenty_digits_is_an_id_and_a_key_to_the_last_digit() {
    let mut profile = Preset::Custom.profile();
    profile.layout.id = vec![Field::parse("/bizId").unwrap()];
    profile.layout.key = profile.layout.id.clone();
    let read = Verifier::new(profile, &[]).read(&Headers::default(), br#"{"bizId":29383937493038367292}"#);
    assert_eq!((read.id.as_deref(), read.key.as_deref()), (Some("29383937493038367292"), Some("29383937493038367292")));
}

#[test]
fn places_are_headers_pointers_or_parts_of_the_signature() {
    for (text, field) in [
        ("X-Event-Id", Field::Header("x-event-id".into())),
        ("/a~1b/0", Field::Pointer("/a~1b/0".into())),
        ("signature:t=", Field::Part("t=".into())),
    ] {
        assert_eq!(Field::parse(text), Ok(field.clone()));
        assert_eq!(Field::parse(&field.to_string()), Ok(field));
    }
    let of_length = |bytes: usize| "x".repeat(bytes);
    for none in ["", "a b", "/a~2", "signature:", "signature:é", "data/id", "é", &of_length(129)] {
        assert!(Field::parse(none).is_err(), "{none}");
        assert!(!Scheme::is_header(none), "{none}");
    }
    assert!(Scheme::is_header("X-Event-Id") && Scheme::is_header(&of_length(128)));
}

/// C9: the names under which presets are configured, and whose ids are unique over all sources.
#[test]
fn c9_a_preset_has_one_name_and_says_whether_it_is_one_provider() {
    for (name, preset) in Preset::ALL {
        assert_eq!(preset.name(), *name);
        assert_eq!(preset.is_one_provider(), !matches!(*name, "standard-webhooks" | "custom"), "{name}");
    }
}

#[test]
fn what_is_signed_has_the_body_once_and_nothing_unknown() {
    for good in ["{body}", "v0:{timestamp}:{body}", "{url}{body}", "{body}{url}", "{id}.{timestamp}.{body}"] {
        assert_eq!(Content::parse(good).unwrap().to_string(), good);
    }
    for bad in ["", "{id}", "{body}{body}", "{Body}", "{body", "body}", "{{body}}", "{id}.{body}.{nonce}"] {
        assert!(Content::parse(bad).is_err(), "{bad}");
    }
    let of_length = |bytes: usize| format!("{}{{body}}", "x".repeat(bytes - "{body}".len()));
    assert!(Content::parse(&of_length(256)).is_ok());
    assert_eq!(Content::parse(&of_length(257)), Err(InvalidContent::TooLong));
    let has = |template: &str| Content::parse(template).map(|c| (c.has_id(), c.has_timestamp(), c.has_url())).unwrap();
    assert_eq!(
        [has("{id}{body}"), has("{timestamp}{body}"), has("{url}{body}")].map(<[bool; 3]>::from),
        [[true, false, false], [false, true, false], [false, false, true]]
    );
}
