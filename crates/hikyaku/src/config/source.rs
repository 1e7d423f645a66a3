//! `[[source]]`: a provider by its name, and whatever shall be otherwise than with that provider.

use std::collections::BTreeMap;
use std::time::Duration;

use hikyaku_core::ids::OrganizationId;
use hikyaku_core::provider::{Algorithm, Content, Encoding, Field, Layout, MIN_FRESHNESS, Preset, Profile, Scheme};
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::WebhookUrl;

use super::fetch::fetch;
use super::section::Section;
use super::tree::{Node, Value};
use super::value::{Names, choice, duration, integer, name, parsed, secret, show_duration, text};
use crate::inbox::{self, OnBadSignature, Room};

/// Most secrets of one source: each costs a MAC over every body that a stranger sends.
const MAX_SECRETS: usize = 8;
/// Most deliveries of one source that can be allowed to be quarantined.
const MAX_QUARANTINE_ROWS: i64 = 100_000;
/// Most bytes of them.
const MAX_QUARANTINE_BYTES: i64 = 1024 * 1024 * 1024;
/// Longest prefix of a signature, in bytes.
const MAX_PREFIX_BYTES: usize = 64;
/// Most places in which one thing is looked for.
const MAX_PLACES: usize = 8;
/// Longest freshness: beyond it, a signed time says nothing any more.
const LONGEST_FRESHNESS: Duration = Duration::from_secs(30 * 24 * 3600);

/// The algorithms by their names.
pub(super) const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("hmac-sha256", Algorithm::HmacSha256),
    ("hmac-sha1", Algorithm::HmacSha1),
    ("hmac-sha512", Algorithm::HmacSha512),
    ("shared-secret", Algorithm::SharedSecret),
];
/// The encodings by their names.
pub(super) const ENCODINGS: &[(&str, Encoding)] = &[("hex", Encoding::Hex), ("base64", Encoding::Base64)];

/// Reads a source.
pub(super) fn read(
    section: &mut Section<'_>,
    environment: &BTreeMap<String, String>,
    names: &mut Names,
) -> Option<inbox::Source> {
    let name = section.require("name", |node| names.declare(name(node)?, node.place.clone()));
    let organization = section.get("organization", parsed(|text: &str| OrganizationId::parse(text)));
    let secrets = secrets(section, environment);
    let Some(preset) = section.require("provider", choice(Preset::ALL)) else {
        section.ignore_rest();
        return None;
    };
    let ids_of = section.get("provider_name", super::value::name);
    let profile = profile(section, preset.profile());
    for (number, secret) in secrets.iter().flatten().enumerate() {
        if let Err(error) = profile.scheme.check(secret) {
            section.problem("secrets", &format!("has as number {} a secret that {error}", number + 1));
        }
    }
    let on_bad_signature = on_bad_signature(section, &profile.scheme);
    let fetch = fetch(section, environment);
    let notify = section.get("notify", super::value::name);
    let name = name?;
    let own = if preset.is_one_provider() { preset.name() } else { &name };
    Some(inbox::Source {
        provider: ids_of.unwrap_or_else(|| own.to_owned()),
        name,
        organization: organization.unwrap_or_else(default_organization),
        secrets: secrets?,
        on_bad_signature,
        preset,
        profile,
        fetch,
        notify,
    })
}

fn on_bad_signature(section: &mut Section<'_>, scheme: &Scheme) -> OnBadSignature {
    let does = section.get("on_bad_signature", choice(&[("refuse", false), ("quarantine", true)]));
    let defaults = Room::default();
    let rows = section.get("quarantine_max_rows", integer(1..=MAX_QUARANTINE_ROWS));
    let bytes = section.get("quarantine_max_bytes", integer(1..=MAX_QUARANTINE_BYTES));
    if does == Some(true) {
        if scheme.algorithm == Algorithm::SharedSecret {
            let message = "cannot be \"quarantine\" with this provider: what it sends as signature is its secret \
                           itself, which would be kept as it is; use \"refuse\"";
            section.problem("on_bad_signature", message);
        }
        return OnBadSignature::Quarantine(Room {
            max_rows: rows.unwrap_or(defaults.max_rows),
            max_bytes: bytes.unwrap_or(defaults.max_bytes),
        });
    }
    for key in ["quarantine_max_rows", "quarantine_max_bytes"] {
        if section.has(key) {
            section.problem(key, "is of no use without `on_bad_signature = \"quarantine\"`");
        }
    }
    OnBadSignature::Refuse
}

fn default_organization() -> OrganizationId {
    OrganizationId::parse("default").expect("the default organization's name is a valid one")
}

fn secrets(section: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Option<Vec<Secret>> {
    let secrets = section.list("secrets", secret(environment));
    if section.is_blank("secrets") {
        let message =
            "needs at least one secret, or nobody's signature could be verified: [\"env:NAME\"], [\"file:PATH\"]";
        section.problem("secrets", message);
    }
    let count = secrets.as_ref().map_or(0, Vec::len);
    if count > MAX_SECRETS {
        section.problem("secrets", &format!("has {count} secrets; at most {MAX_SECRETS} are allowed"));
    }
    secrets
}

/// What is written over what the provider's preset says.
fn profile(section: &mut Section<'_>, preset: Profile) -> Profile {
    let layout = Layout {
        id: places(section, "id").unwrap_or(preset.layout.id),
        event_type: places(section, "type").unwrap_or(preset.layout.event_type),
        action: section.get("action", parsed(Field::parse)).or(preset.layout.action),
        timestamp: places(section, "timestamp").unwrap_or(preset.layout.timestamp),
        key: places(section, "key").unwrap_or(preset.layout.key),
    };
    let scheme = scheme(section, preset.scheme, &layout);
    let freshness = section.get("freshness", freshness).flatten();
    let profile = Profile { scheme, layout, freshness, ..preset };
    if freshness.is_some() && profile.signed_time().is_none() {
        let message = "needs a time that is signed, or anybody could write another one; name it in `signed_timestamp` and \
                       `signed_content`, or leave this out";
        section.problem("freshness", message);
    }
    profile
}

fn scheme(section: &mut Section<'_>, preset: Scheme, layout: &Layout) -> Scheme {
    let header = section.get("signature_header", parsed(header));
    if header.is_none() && preset.header.is_empty() && !section.has("signature_header") {
        section
            .problem("signature_header", "is missing: the header in which this provider sends its signature or secret");
    }
    let scheme = Scheme {
        header: header.unwrap_or(preset.header),
        prefix: section.get("signature_prefix", parsed(prefix)).unwrap_or(preset.prefix),
        separator: section.get("signature_separator", parsed(separator)).or(preset.separator),
        algorithm: section.get("algorithm", choice(ALGORITHMS)).unwrap_or(preset.algorithm),
        encoding: section.get("encoding", choice(ENCODINGS)).unwrap_or(preset.encoding),
        content: section.get("signed_content", parsed(Content::parse)).unwrap_or(preset.content),
        timestamp: section.get("signed_timestamp", parsed(Field::parse)).or(preset.timestamp),
        url: section.get("url", parsed(url)).or(preset.url),
        ..preset
    };
    let timestamp = scheme.timestamp.or_else(|| layout.timestamp.first().cloned());
    let scheme = Scheme { timestamp: timestamp.filter(|_| scheme.content.has_timestamp()), ..scheme };
    check_content(section, &scheme, layout);
    scheme
}

/// Everything that is signed has to stand somewhere.
fn check_content(section: &mut Section<'_>, scheme: &Scheme, layout: &Layout) {
    let content = &scheme.content;
    if content.has_id() && layout.id.is_empty() {
        section.problem("id", "is empty, and `signed_content` has {id}; say where it stands");
    }
    if content.has_timestamp() && scheme.timestamp.is_none() && !section.has("signed_timestamp") {
        section.problem("signed_timestamp", "is missing, and `signed_content` has {timestamp}; say where it stands");
    }
    if content.has_url() && scheme.url.is_none() && !section.has("url") {
        let message =
            "is missing: the URL under which the provider sends here, as it is written there, because it is signed";
        section.problem("url", message);
    }
    for (key, placeholder, is_signed) in
        [("url", "{url}", content.has_url()), ("signed_timestamp", "{timestamp}", content.has_timestamp())]
    {
        if section.has(key) && !is_signed {
            section.problem(key, &format!("is of no use: `signed_content` has no {placeholder}"));
        }
    }
}

/// One place, or several of which the first counts that says something.
fn places(section: &mut Section<'_>, key: &'static str) -> Option<Vec<Field>> {
    section.get(key, |node| {
        let nodes = match &node.value {
            Value::List(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.len() > MAX_PLACES {
            return Err(format!("has {} places; at most {MAX_PLACES} are allowed", nodes.len()));
        }
        nodes.iter().map(parsed(Field::parse)).collect()
    })
}

fn header(name: &str) -> Result<String, String> {
    if Scheme::is_header(name) {
        return Ok(name.to_ascii_lowercase());
    }
    Err(format!("must be the name of a header like \"x-signature\", not {name:?}"))
}

fn prefix(text: &str) -> Result<String, String> {
    if text.len() <= MAX_PREFIX_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        return Ok(text.to_owned());
    }
    Err(format!("must be at most {MAX_PREFIX_BYTES} visible ASCII characters like \"sha256=\", not {text:?}"))
}

fn separator(text: &str) -> Result<char, String> {
    match text.as_bytes() {
        [byte @ (b',' | b';' | b' ')] => Ok(char::from(*byte)),
        _ => Err(format!("must be \",\", \";\" or \" \", not {text:?}")),
    }
}

/// A URL to the letter, because it is signed to the letter.
fn url(text: &str) -> Result<String, String> {
    WebhookUrl::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// S14, T7: never so short that it refuses a legitimate retry.
fn freshness(node: &Node) -> Result<Option<Duration>, String> {
    if text(node)? == "off" {
        return Ok(None);
    }
    match duration(Duration::ZERO..=Duration::MAX)(node)? {
        length if (MIN_FRESHNESS..=LONGEST_FRESHNESS).contains(&length) => Ok(Some(length)),
        length if length > LONGEST_FRESHNESS => Err(format!(
            "must be between {} and {}, or \"off\", not {:?}",
            show_duration(MIN_FRESHNESS),
            show_duration(LONGEST_FRESHNESS),
            text(node)?
        )),
        length => Err(format!(
            "must be at least {} or \"off\", not {:?}: a provider's last retry comes 71 minutes later and may still carry \
             the first time",
            show_duration(MIN_FRESHNESS),
            show_duration(length)
        )),
    }
}
