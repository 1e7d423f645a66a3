//! What strangers send: it is refused with a reason, at a bounded cost, and never a panic.

use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use proptest::collection::vec;
use proptest::prelude::*;
use ring::hmac;

use super::*;

const SECRET: &str = "a-secret-of-the-tests";
const BODY: &[u8] = br#"{"id":"e1","timestamp":"2026-11-30T09:15:00Z"}"#;

fn mac(algorithm: hmac::Algorithm, content: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(algorithm, SECRET.as_bytes()), content).as_ref().to_vec()
}

/// A custom scheme with its signature in `x-sig`.
fn custom(change: impl FnOnce(&mut Scheme)) -> Verifier {
    let mut profile = Preset::Custom.profile();
    profile.scheme.header = "x-sig".into();
    change(&mut profile.scheme);
    Verifier::new(profile, &[Secret::new(SECRET)])
}

fn verify(verifier: &Verifier, signature: &[u8]) -> Result<Verified, Refusal> {
    verifier.verify(&[("x-sig", signature)].into_iter().collect(), BODY, Timestamp::UNIX_EPOCH)
}

#[test]
fn every_algorithm_and_encoding_verifies_what_it_signs() {
    for (algorithm, ring) in [
        (Algorithm::HmacSha1, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        (Algorithm::HmacSha256, hmac::HMAC_SHA256),
        (Algorithm::HmacSha512, hmac::HMAC_SHA512),
    ] {
        let mac = mac(ring, BODY);
        for (encoding, text) in [(Encoding::Hex, HEXLOWER.encode(&mac)), (Encoding::Base64, BASE64.encode(&mac))] {
            let verifier = custom(|scheme| (scheme.algorithm, scheme.encoding) = (algorithm, encoding));
            assert_eq!(verify(&verifier, text.as_bytes()), Ok(Verified { secret: 0 }), "{algorithm:?} {encoding:?}");
            let other = custom(|scheme| {
                scheme.encoding = encoding;
                scheme.algorithm =
                    if algorithm == Algorithm::HmacSha1 { Algorithm::HmacSha512 } else { Algorithm::HmacSha1 };
            });
            assert_eq!(verify(&other, text.as_bytes()), Err(Refusal::Malformed("x-sig".into())), "another length");
        }
    }
}

#[test]
fn s13_a_header_that_is_not_to_the_letter_is_refused_before_anything_is_compared() {
    let name = || "x-sig".to_owned();
    let good = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, BODY));
    let hex = custom(|scheme| scheme.prefix = "sha256=".into());
    assert_eq!(verify(&hex, format!("sha256={good}").as_bytes()), Ok(Verified { secret: 0 }));
    assert_eq!(verify(&hex, format!("sha256={}", good.to_uppercase()).as_bytes()), Ok(Verified { secret: 0 }));
    let malformed = [
        good.clone(),
        format!("sha1={good}"),
        format!("sha256={good}0"),
        format!("sha256={good}00"),
        format!("sha256={}", &good[1..]),
        format!("sha256= {good}"),
        format!(" sha256={good}"),
        format!("sha256={good},sha256={good}"),
        format!("sha256={}", good.replacen(|c: char| c.is_ascii_digit(), "g", 1)),
        "sha256=".into(),
        String::new(),
    ];
    for header in malformed {
        assert_eq!(verify(&hex, header.as_bytes()), Err(Refusal::Malformed(name())), "{header}");
    }
    let base64 = BASE64.encode(&mac(hmac::HMAC_SHA256, BODY));
    let strict = custom(|scheme| scheme.encoding = Encoding::Base64);
    assert_eq!(verify(&strict, base64.as_bytes()), Ok(Verified { secret: 0 }));
    for header in
        [base64.trim_end_matches('=').to_owned(), format!("{base64}="), base64.replace('=', "A"), format!("{base64} ")]
    {
        assert_eq!(verify(&strict, header.as_bytes()), Err(Refusal::Malformed(name())), "{header}");
    }
}

#[test]
fn s13_a_header_that_is_missing_doubled_too_long_or_no_ascii_is_refused_with_the_reason() {
    let verifier = custom(|scheme| scheme.separator = Some(','));
    let good = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, BODY));
    let none = verifier.verify(&Headers::default(), BODY, Timestamp::UNIX_EPOCH);
    assert_eq!(none, Err(Refusal::Missing("x-sig".into())));
    let twice = headers(&[("X-Sig", &good), ("x-sig", &good)]);
    assert_eq!(verifier.verify(&twice, BODY, Timestamp::UNIX_EPOCH), Err(Refusal::Doubled("x-sig".into())));
    let long = format!("{good},{}", "x".repeat(MAX_SIGNATURE_HEADER_BYTES - good.len()));
    assert_eq!(verify(&verifier, long.as_bytes()), Err(Refusal::TooLong("x-sig".into())));
    assert_eq!(verify(&verifier, &long.as_bytes()[..MAX_SIGNATURE_HEADER_BYTES]), Ok(Verified { secret: 0 }));
    for bytes in [&b"\xff\xfe"[..], "é".as_bytes(), b"a\tb", b"a\x00b"] {
        assert_eq!(verify(&verifier, bytes), Err(Refusal::NotAscii("x-sig".into())), "{bytes:?}");
    }
}

#[test]
fn s13_of_many_signatures_only_the_first_are_looked_at() {
    let verifier = custom(|scheme| scheme.separator = Some(','));
    let good = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, BODY));
    let after = |count: usize| format!("{}{good}", format!("{},", "0".repeat(64)).repeat(count));
    assert_eq!(verify(&verifier, after(MAX_SIGNATURES - 1).as_bytes()), Ok(Verified { secret: 0 }));
    assert_eq!(verify(&verifier, after(MAX_SIGNATURES).as_bytes()), Err(Refusal::Mismatch));
}

#[test]
fn s13_a_shared_secret_is_compared_whole() {
    let verifier = custom(|scheme| scheme.algorithm = Algorithm::SharedSecret);
    assert_eq!(verify(&verifier, SECRET.as_bytes()), Ok(Verified { secret: 0 }));
    for other in
        ["", "a", "a-secret-of-the-test", "a-secret-of-the-testss", "A-secret-of-the-tests", " a-secret-of-the-tests"]
    {
        assert_eq!(verify(&verifier, other.as_bytes()), Err(Refusal::Mismatch), "{other:?}");
    }
    let bearer = custom(|scheme| {
        scheme.algorithm = Algorithm::SharedSecret;
        scheme.prefix = "Bearer ".into();
    });
    assert_eq!(verify(&bearer, format!("Bearer {SECRET}").as_bytes()), Ok(Verified { secret: 0 }));
    assert_eq!(verify(&bearer, SECRET.as_bytes()), Err(Refusal::Malformed("x-sig".into())));
    assert_eq!(Preset::Smaregi.profile().scheme.check(&Secret::new("a\nb")), Err(InvalidKey::NotAHeader));
}

/// A signature over `{id}.{timestamp}.{body}` holds for one delivery only, however its bytes are cut apart.
#[test]
fn c11_the_bytes_of_one_delivery_cannot_be_cut_into_another() {
    let mut profile = Preset::StandardWebhooks.profile();
    profile.scheme.key = KeyForm::Text;
    let verifier = Verifier::new(profile, &[Secret::new(SECRET)]);
    let signature = format!("v1,{}", BASE64.encode(&mac(hmac::HMAC_SHA256, br#"m.5.{"a":".7.{"}"#)));
    let send = |id: &str, time: &str, body: &str| {
        let headers = headers(&[("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", &signature)]);
        verifier.verify(&headers, body.as_bytes(), Timestamp::UNIX_EPOCH)
    };
    assert_eq!(send("m", "5", r#"{"a":".7.{"}"#), Ok(Verified { secret: 0 }));
    assert_eq!(send(r#"m.5.{"a":""#, "7", r#"{"}"#), Err(Refusal::Incomplete("id")));
    assert_eq!(send("m", r#"5.{"a":".7"#, r#"{"}"#), Err(Refusal::Incomplete("timestamp")));
    let long = "m".repeat(crate::ids::MAX_ID_BYTES + 1);
    for (id, time) in [("", "5"), (long.as_str(), "5"), ("m", ""), ("m", "soon")] {
        assert!(matches!(send(id, time, "{}"), Err(Refusal::Incomplete(_))), "{id:?} {time:?}");
    }
}

#[test]
fn s14_a_signed_time_is_judged_only_if_that_is_asked_for() {
    let at = |text: &str| crate::timestamp::parse(text).unwrap();
    let good = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, BODY));
    let mut profile = Preset::ReceiptRoller.profile();
    let verify = |profile: &Profile, body: &[u8], signature: &str, now: &str| {
        let signature = format!("sha256={signature}");
        let headers = headers(&[("x-rr-signature", &signature)]);
        Verifier::new(profile.clone(), &[Secret::new(SECRET)]).verify(&headers, body, at(now))
    };
    // T7: off by default, years later.
    assert!(verify(&profile, BODY, &good, "2036-11-30T09:15:00Z").is_ok());
    profile.freshness = Some(MIN_FRESHNESS);
    for (now, is_fresh) in [
        ("2026-11-30T10:26:00Z", true),
        ("2026-11-30T11:15:00Z", true),
        ("2026-11-30T11:15:01Z", false),
        ("2026-11-30T07:15:00Z", true),
        ("2026-11-30T07:14:59Z", false),
    ] {
        let result = verify(&profile, BODY, &good, now);
        assert_eq!(result.is_ok(), is_fresh, "{now}");
        assert!(is_fresh || matches!(result, Err(Refusal::Stale { freshness: MIN_FRESHNESS, .. })));
    }
    // T6: what its signer wrote no time into is not refused for it.
    let timeless = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, b"{}"));
    assert!(verify(&profile, b"{}", &timeless, "2036-11-30T09:15:00Z").is_ok());
    // A stranger's stale time is told no more than that his signature is wrong.
    assert_eq!(verify(&profile, BODY, &timeless, "2036-11-30T09:15:00Z"), Err(Refusal::Mismatch));
}

#[test]
fn s14_freshness_can_be_judged_where_a_time_is_signed() {
    for (name, preset) in Preset::ALL {
        let has_signed_time = !matches!(*name, "github" | "shopify" | "smaregi");
        assert_eq!(preset.profile().signed_time().is_some(), has_signed_time, "{name}");
    }
    assert!(MIN_FRESHNESS >= Duration::from_secs(71 * 60), "T7");
}

fn field() -> impl Strategy<Value = (String, Vec<u8>)> {
    let names = [
        "x-rr-signature",
        "x-rr-delivery",
        "webhook-signature",
        "webhook-id",
        "webhook-timestamp",
        "stripe-signature",
        "x-hub-signature-256",
        "x-github-event",
        "x-shopify-hmac-sha256",
        "x-shopify-topic",
        "x-square-hmacsha256-signature",
        "x-slack-signature",
        "x-slack-request-timestamp",
        "x-sig",
        "smaregi-event-id",
    ];
    let value = prop_oneof![
        vec(any::<u8>(), 0..80),
        "[a-z0-9=,. :v1t+/-]{0,80}".prop_map(String::into_bytes),
        "(t=[0-9]{1,12},v1=[0-9a-f]{64}|v1,[A-Za-z0-9+/]{43}=|sha256=[0-9a-f]{64}|v0=[0-9a-f]{64}|[0-9]{10})"
            .prop_map(String::into_bytes),
    ];
    (proptest::sample::select(names.to_vec()).prop_map(str::to_owned), value)
}

proptest! {
    /// T6, S13: whatever comes, there is an answer, and no stranger's is accepted.
    #[test]
    fn s13_no_header_and_no_body_is_a_panic_or_a_way_in(
        fields in vec(field(), 0..6),
        body in prop_oneof![vec(any::<u8>(), 0..100), r#"\{"(id|type|timestamp)":[0-9"a-z]{0,9}\}"#.prop_map(String::into_bytes)],
        now in -62_135_596_800_i64..253_000_000_000,
    ) {
        let headers: Headers<'_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        for (name, preset) in Preset::ALL {
            let mut profile = preset.profile();
            if profile.scheme.header.is_empty() {
                profile.scheme.header = "x-sig".into();
            }
            profile.freshness = Some(MIN_FRESHNESS);
            let secrets = [Secret::new("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")];
            let verifier = Verifier::new(profile, &secrets);
            prop_assert!(verifier.verify(&headers, &body, Timestamp::from_second(now).unwrap()).is_err(), "{}", name);
            let read = verifier.read(&headers, &body);
            prop_assert!(read.id.is_none_or(|id| id.len() <= crate::ids::MAX_ID_BYTES));
            verifier.challenge(&body);
        }
    }

    /// C11: what is signed verifies, under any template; with one bit changed it does not.
    #[test]
    fn c11_what_is_signed_verifies_and_one_flipped_bit_does_not(
        body in vec(any::<u8>(), 1..200), flip in any::<usize>(), id in "[a-z0-9.|_-]{1,40}", second in 0_i64..9_999_999_999, kind in 0_usize..4,
    ) {
        let template = ["{body}", "{id}.{body}", "{timestamp}.{body}", "v0:{id}:{timestamp}:{body}"][kind];
        let filled = template.replace("{id}", &id).replace("{timestamp}", &second.to_string());
        let (before, _) = filled.split_once("{body}").unwrap();
        let signature = HEXLOWER.encode(&mac(hmac::HMAC_SHA256, &[before.as_bytes(), &body].concat()));
        let mut profile = Preset::Custom.profile();
        profile.scheme.header = "x-sig".into();
        profile.scheme.content = Content::parse(template).unwrap();
        profile.scheme.timestamp = Some(Field::Header("x-time".into()));
        profile.layout.id = vec![Field::Header("x-id".into())];
        let verifier = Verifier::new(profile, &[Secret::new("other"), Secret::new(SECRET)]);
        let time = second.to_string();
        let verify = |signature: &str, body: &[u8]| {
            let headers = headers(&[("x-sig", signature), ("x-id", &id), ("x-time", &time)]);
            verifier.verify(&headers, body, Timestamp::UNIX_EPOCH)
        };
        prop_assert_eq!(verify(&signature, &body), Ok(Verified { secret: 1 }));
        let mut changed = body.clone();
        changed[flip % body.len()] ^= 1 << (flip % 8);
        prop_assert_eq!(verify(&signature, &changed), Err(Refusal::Mismatch));
        let mut digits = signature.clone().into_bytes();
        let digit = &mut digits[flip % 64];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        prop_assert_eq!(verify(std::str::from_utf8(&digits).unwrap(), &body), Err(Refusal::Mismatch));
    }
}
