//! `[[source]]`: presets, what is set over them, and what cannot be.

use hikyaku_core::provider::{Algorithm, Encoding, Field, Preset};

use super::*;
use crate::inbox::{OnBadSignature, Room};

/// A source of a preset, with settings of its own.
fn source(preset: &str, settings: &str) -> String {
    let secret = if preset == "standard-webhooks" { "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" } else { "s" };
    format!("[[source]]\nname = 'x'\nprovider = '{preset}'\nsecrets = ['{secret}']\n{settings}")
}

/// What a preset cannot do without.
fn needed(preset: Preset) -> &'static str {
    match preset {
        Preset::Square => "url = 'https://example.com/in/x'",
        Preset::Smaregi | Preset::Custom => "signature_header = 'x-secret'",
        _ => "",
    }
}

#[test]
fn every_preset_is_a_source_as_it_stands_and_reads_back_as_it_is_shown() {
    for (name, preset) in Preset::ALL {
        let config = read(&source(name, needed(*preset))).unwrap();
        let [read] = &config.sources[..] else { panic!("one source") };
        let mut expected = preset.profile();
        expected.scheme.url.clone_from(&read.profile.scheme.url);
        expected.scheme.header.clone_from(&read.profile.scheme.header);
        assert_eq!((read.preset, &read.profile), (*preset, &expected), "{name}");
        let shown = config.to_string().replace("(hidden:38-bytes)", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let again = super::read(&shown).unwrap_or_else(|error| panic!("{error}\n{shown}"));
        assert_eq!(again.sources[0].profile, read.profile, "{name}");
    }
}

#[test]
fn c9_ids_are_a_providers_own_where_the_preset_is_one_and_a_sources_where_it_is_many() {
    for (name, preset) in Preset::ALL {
        let own = if ["standard-webhooks", "custom"].contains(name) { "x" } else { name };
        assert_eq!(read(&source(name, needed(*preset))).unwrap().sources[0].provider, own);
        let named = format!("provider_name = 'shop'\n{}", needed(*preset));
        assert_eq!(read(&source(name, &named)).unwrap().sources[0].provider, "shop", "{name}");
    }
}

#[test]
fn everything_of_a_preset_can_be_otherwise() {
    let settings = "signature_header = 'X-Own'\nsignature_prefix = 'h1='\nsignature_separator = ';'\nalgorithm = 'hmac-sha512'\n\
                    encoding = 'base64'\nsigned_content = '{timestamp}:{body}'\nsigned_timestamp = 'signature:ts='\n\
                    id = 'x-id'\ntype = ['/a', 'x-type']\naction = '/b'\ntimestamp = '/c'\nkey = []\nfreshness = '2h'";
    let config = read(&source("receiptroller", settings)).unwrap();
    let profile = &config.sources[0].profile;
    assert_eq!((profile.scheme.header.as_str(), profile.scheme.prefix.as_str()), ("x-own", "h1="));
    assert_eq!((profile.scheme.separator, profile.scheme.encoding), (Some(';'), Encoding::Base64));
    assert_eq!(profile.scheme.algorithm, Algorithm::HmacSha512);
    assert_eq!(profile.scheme.content.to_string(), "{timestamp}:{body}");
    assert_eq!(profile.scheme.timestamp, Some(Field::Part("ts=".into())));
    assert_eq!(profile.layout.event_type, [Field::Pointer("/a".into()), Field::Header("x-type".into())]);
    assert_eq!((profile.layout.action.is_some(), profile.layout.key.len()), (true, 0));
    assert_eq!(profile.freshness, Some(Duration::from_secs(7200)));
    // The contract's three.
    for content in ["{body}", "{id}.{body}", "{timestamp}.{body}"] {
        let settings = format!("signed_content = '{content}'");
        assert!(read(&source("receiptroller", &settings)).is_ok(), "{content}");
    }
}

#[test]
fn s14_freshness_below_two_hours_or_without_a_signed_time_is_refused() {
    for (preset, given) in [("slack", "119m"), ("stripe", "5m"), ("standard-webhooks", "0s"), ("receiptroller", "1ms")]
    {
        let refused = problems(&source(preset, &format!("freshness = '{given}'")));
        assert!(refused.contains("f.toml:5:13: `source.freshness` must be at least 2h or \"off\""), "{refused}");
        assert!(refused.contains("71 minutes"), "{refused}");
        assert!(read(&source(preset, "freshness = '2h'")).is_ok(), "{preset}");
        assert!(read(&source(preset, "freshness = 'off'")).unwrap().sources[0].profile.freshness.is_none());
    }
    for preset in ["github", "shopify"] {
        let refused = problems(&source(preset, "freshness = '3h'"));
        assert!(refused.contains("f.toml:5:13: `source.freshness` needs a time that is signed"), "{refused}");
    }
}

#[test]
fn what_cannot_be_a_source_is_refused_with_its_line_and_what_to_do() {
    let long = format!("secrets = [{}]", ["'s'"; 9].join(","));
    for (preset, settings, expected) in [
        ("custom", "", "f.toml:1:1: `source.signature_header` is missing: the header in which"),
        ("smaregi", "", "`source.signature_header` is missing"),
        ("square", "", "`source.url` is missing: the URL under which the provider sends here"),
        (
            "github",
            "url = 'https://example.com'",
            "f.toml:5:7: `source.url` is of no use: `signed_content` has no {url}",
        ),
        ("github", "signed_timestamp = 'x-time'", "`source.signed_timestamp` is of no use"),
        ("square", "url = 'example.com'", "f.toml:5:7: `source.url` "),
        ("github", "signature_header = 'a b'", "f.toml:5:20: `source.signature_header` must be the name of a header"),
        ("github", "signature_prefix = 'é'", "`source.signature_prefix` must be at most 64 visible ASCII"),
        ("github", "signature_separator = '.'", "`source.signature_separator` must be \",\", \";\" or \" \""),
        ("github", "algorithm = 'md5'", "`source.algorithm` must be \"hmac-sha256\" or \"hmac-sha1\" or"),
        ("github", "encoding = 'hexx'", "`source.encoding` must be \"hex\" or \"base64\""),
        ("github", "signed_content = '{id}'", "f.toml:5:18: `source.signed_content` must have {body} exactly once"),
        (
            "github",
            "signed_content = '{nonce}{body}'",
            "has \"{nonce}\"; what can stand in braces is {id}, {timestamp}",
        ),
        (
            "github",
            "signed_content = '{timestamp}{body}'",
            "`source.signed_timestamp` is missing, and `signed_content` has",
        ),
        (
            "github",
            "signed_content = '{id}{body}'\nid = []",
            "f.toml:6:6: `source.id` is empty, and `signed_content` has {id}",
        ),
        ("github", "key = 'data/id or so'", "f.toml:5:7: `source.key` must be a header's name like"),
        ("github", "key = ['/a', 5]", "`source.key` must be a text"),
        ("github", "ids = '/id'", "f.toml:5:1: `source.ids` is not a setting; here are: action, algorithm"),
    ] {
        let reported = problems(&source(preset, settings));
        assert!(reported.contains(expected), "of {settings} was expected: {expected}\nbut came:\n{reported}");
    }
    let nine = problems(&source("github", "").replace("secrets = ['s']", &long));
    assert!(nine.contains("f.toml:4:11: `source.secrets` has 9 secrets; at most 8 are allowed"), "{nine}");
    let not_base64 = problems("[[source]]\nname = 'x'\nprovider = 'standard-webhooks'\nsecrets = ['plain']");
    assert!(not_base64.contains("`source.secrets` has as number 1 a secret that is not \"whsec_\""), "{not_base64}");
    assert!(!not_base64.contains("plain"), "S19: {not_base64}");
}

/// What is wrong is said once, and nothing beside it that is not so.
#[test]
fn one_mistake_is_one_problem() {
    const ROUTE: &str =
        "[[destination]]\nname = 'd'\nkind = 'file'\npath = 'x.jsonl'\n[[route]]\nsource = 'x'\ndestination = 'd'\n";
    for (preset, settings, expected) in [
        ("square", "url = 'u'", "`source.url` is not an absolute URL"),
        ("smaregi", "signature_header = 'a b'", "`source.signature_header` must be the name of a header"),
        ("github", "freshness = '31d'", "`source.freshness` must be between 2h and 30d, or \"off\", not \"31d\""),
        ("github", format!("{ROUTE}events = ['sale*']").as_str(), "`route.events` "),
    ] {
        let reported = problems(&source(preset, settings));
        let lines: Vec<_> = reported.lines().filter(|line| line.contains("f.toml:")).collect();
        assert!(lines.iter().any(|line| line.contains(expected)), "{settings}: {reported}");
        let keys: std::collections::BTreeSet<_> = lines.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(keys.len(), lines.len(), "{settings}: {reported}");
    }
}

#[test]
fn a_route_takes_types_of_one_word_as_github_has_them() {
    let route = "[[destination]]\nname = 'd'\nkind = 'http'\nurl = 'https://example.com'\n\
                 [[route]]\nsource = 'x'\ndestination = 'd'\nevents = ['push', 'issues.*', 'pull_request.opened']";
    let config = read(&source("github", route)).unwrap();
    let takes = |event_type: &str| config.routes[0].events.iter().any(|pattern| pattern.matches(event_type));
    assert!(takes("push") && takes("issues.opened") && takes("pull_request.opened"));
    assert!(!takes("push.x") && !takes("ping") && !takes("pull_request.closed"));
}

#[test]
fn t2_a_quarantine_has_bounds_and_reads_back_as_it_is_shown() {
    let on_bad_signature = |settings: &str| {
        let config = read(&source("receiptroller", settings)).unwrap();
        let again = super::read(&config.to_string()).unwrap();
        assert_eq!(again.sources[0].on_bad_signature, config.sources[0].on_bad_signature, "{config}");
        config.sources[0].on_bad_signature
    };
    assert_eq!(on_bad_signature(""), OnBadSignature::Refuse);
    assert_eq!(on_bad_signature("on_bad_signature = 'quarantine'"), OnBadSignature::Quarantine(Room::default()));
    let narrow = "on_bad_signature = 'quarantine'\nquarantine_max_rows = 5\nquarantine_max_bytes = 100";
    assert_eq!(on_bad_signature(narrow), OnBadSignature::Quarantine(Room { max_rows: 5, max_bytes: 100 }));

    for (settings, expected) in [
        ("quarantine_max_rows = 5", "f.toml:5:23: `source.quarantine_max_rows` is of no use without"),
        ("on_bad_signature = 'refuse'\nquarantine_max_bytes = 5", "`source.quarantine_max_bytes` is of no use without"),
        ("on_bad_signature = 'keep'", "`source.on_bad_signature` must be \"refuse\" or \"quarantine\""),
        ("on_bad_signature = 'quarantine'\nquarantine_max_rows = 0", "`source.quarantine_max_rows` must be"),
    ] {
        let problems = problems(&source("receiptroller", settings));
        assert!(problems.contains(expected), "{settings}: {problems}");
    }
    let smaregi = format!("{}\non_bad_signature = 'quarantine'", needed(Preset::Smaregi));
    let problems = problems(&source("smaregi", &smaregi));
    assert!(problems.contains("`source.on_bad_signature` cannot be \"quarantine\" with this provider"), "{problems}");
}

#[test]
fn t4_a_source_tells_a_destination_that_is_there_and_is_no_table() {
    let chat = "[[destination]]\nname = 'chat'\nkind = 'file'\npath = 'x.jsonl'\n";
    let config = read(&format!("{}\n{chat}", source("receiptroller", "notify = 'chat'"))).unwrap();
    assert_eq!(config.sources[0].notify.as_deref(), Some("chat"));
    assert_eq!(
        read(&config.to_string().replace("(hidden:1-bytes)", "s")).unwrap().sources[0].notify.as_deref(),
        Some("chat")
    );
    let table = "[[destination]]\nname = 'books'\nkind = 'sql'\nurl = 'sqlite:b.db'\ntable = 't'\nkey = 'id'\n\
                 columns = { id = '/data/id' }\n";
    for (notify, reason) in [("books", "no place for a notice"), ("gone", "which does not exist")] {
        let text = format!("{}\n{chat}{table}", source("receiptroller", &format!("notify = '{notify}'")));
        let problems = read(&text).unwrap_err().to_string();
        assert!(problems.contains("\"x\" has as `notify` the destination") && problems.contains(reason), "{problems}");
    }
}
