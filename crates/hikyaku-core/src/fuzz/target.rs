//! Who sends, and where to send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;

use crate::address::TargetPolicy;
use crate::provider::{Headers, Preset, Verifier};
use crate::signature::standard::SigningKey;
use crate::signature::{Secret, receiptroller};
use crate::webhook::WebhookUrl;

/// What the headers of the corpus are signed with.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// What the clock shows when they come.
const NOW_SECOND: i64 = 1_614_265_330;

/// Headers line by line, an empty line, and the body.
pub(super) fn signature(bytes: &[u8]) {
    let (head, body) = split(bytes, b"\n\n");
    let headers: Vec<(&str, &[u8])> = head
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let (name, value) = split(line, b": ");
            Some((std::str::from_utf8(name).ok()?, value))
        })
        .collect();
    let (secrets, now) = ([Secret::new(SECRET)], Timestamp::from_second(NOW_SECOND).expect("it is a time"));
    let of = |name: &str| -> Vec<&[u8]> {
        headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| *value).collect()
    };
    for (_, preset) in Preset::ALL.iter().filter(|(_, preset)| *preset != Preset::Custom) {
        let verifier = Verifier::new(preset.profile(), &secrets);
        let all = headers.iter().copied().collect::<Headers<'_>>();
        let verified = verifier.verify(&all, body, now);
        // Whatever it is, it can be read and asked.
        verifier.read(&all, body);
        verifier.challenge(body);
        if verified.is_err() {
            continue;
        }
        match preset {
            Preset::ReceiptRoller => {
                let signed = receiptroller::sign(&secrets[0], body);
                let given = of(receiptroller::SIGNATURE_HEADER);
                assert!(given.len() == 1 && given[0].eq_ignore_ascii_case(signed.as_bytes()), "{given:?}");
            }
            Preset::StandardWebhooks => assert!(is_signed_by_the_standard(of, &secrets[0], body)),
            _ => {}
        }
        // No other body has that signature.
        let other = [body, b" "].concat();
        assert!(verifier.verify(&all, &other, now).is_err(), "{preset:?}");
    }
}

fn is_signed_by_the_standard<'a>(of: impl Fn(&str) -> Vec<&'a [u8]>, secret: &Secret, body: &[u8]) -> bool {
    let text = |name: &str| of(name).first().and_then(|value| std::str::from_utf8(value).ok());
    let (Some(id), Some(at), Some(given)) = (text("webhook-id"), text("webhook-timestamp"), text("webhook-signature"))
    else {
        return false;
    };
    let key = SigningKey::hmac(secret).expect("it is a key");
    let signed = at.parse().map(|at| key.sign(id, at, body));
    signed.is_ok_and(|signed| given.split(' ').any(|one| one.trim() == signed))
}

/// A URL.
pub(super) fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(url) = WebhookUrl::parse(text) else { return };
    let parsed = url.as_url();
    assert_eq!(WebhookUrl::parse(url.as_str()).as_ref(), Ok(&url), "it reads otherwise the second time");
    assert!(matches!(parsed.scheme(), "http" | "https") && parsed.host().is_some());
    assert!(parsed.username().is_empty() && parsed.password().is_none() && parsed.fragment().is_none());
    let strict = TargetPolicy::default().vet_url(parsed);
    assert!(strict.is_err() || parsed.scheme() == "https", "plain text was let through");
    let address = match parsed.host() {
        Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
        Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
        _ => return,
    };
    if strict.is_ok() {
        assert_public(address);
        assert!(matches!(parsed.port_or_known_default(), Some(443 | 80)), "{parsed}");
    }
    let everywhere = TargetPolicy::everywhere();
    assert_eq!(everywhere.vet_url(parsed), everywhere.vet_address(address, 443));
}

/// An address: a port, and the bytes of either kind.
pub(super) fn address(bytes: &[u8]) {
    let Some((port, address)) = bytes.split_first_chunk::<2>() else { return };
    let (port, policy) = (u16::from_be_bytes(*port), TargetPolicy::default());
    let judged = |address: IpAddr| policy.vet_address(address, port).is_ok();
    if let Ok(four) = <[u8; 4]>::try_from(address) {
        let four = Ipv4Addr::from(four);
        let nat64 = (0x0064_ff9b_u128 << 96) | u128::from(four.to_bits());
        for carrier in [four.to_ipv6_mapped(), Ipv6Addr::from_bits(nat64)] {
            assert_eq!(judged(carrier.into()), judged(four.into()), "{carrier} leads to {four}");
        }
        if judged(four.into()) {
            assert_public(four.into());
            assert!(matches!(port, 443 | 80));
        }
    } else if let Ok(six) = <[u8; 16]>::try_from(address) {
        let six = Ipv6Addr::from(six);
        if judged(six.into()) {
            assert_public(six.into());
        }
    }
}

/// What the standard library knows of addresses that are not public.
fn assert_public(address: IpAddr) {
    let is_public = match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), v6.segments()) {
            (Some(v4), _) => is_public_v4(v4),
            (None, [0x64, 0xff9b, 0, 0, 0, 0, high, low]) => {
                is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
            }
            (None, [first, ..]) => {
                let is_special = v6.is_loopback() || v6.is_unspecified() || v6.is_multicast();
                !is_special && !v6.is_unique_local() && !v6.is_unicast_link_local() && first & 0xe000 == 0x2000
            }
        },
    };
    assert!(is_public, "{address} is not public");
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let is_shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
    let is_near = v4.is_loopback() || v4.is_private() || v4.is_link_local() || is_shared;
    let is_nobody = v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast() || v4.is_documentation();
    !is_near && !is_nobody && v4.octets()[0] != 0 && v4.octets()[0] < 240
}

/// What is before and after the first of these.
pub(super) fn split<'a>(bytes: &'a [u8], between: &[u8]) -> (&'a [u8], &'a [u8]) {
    match bytes.windows(between.len()).position(|part| part == between) {
        Some(at) => (&bytes[..at], &bytes[at + between.len()..]),
        None => (bytes, &[]),
    }
}
