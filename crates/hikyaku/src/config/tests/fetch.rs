//! Where present states are read, and how a route's failures are tried again.

use super::*;
use crate::provider_api::Credential;

/// [`WHOLE`] with a route that reads, from a source that says `fetch`.
fn reading(fetch: &str) -> String {
    let route = "[[route]]\nname = \"orders\"\nsource = \"receiptroller\"\ndestination = \"app\"\norder = \"fetch\"\n";
    let source = "secrets = [\"env:RR_SECRET\", \"as-it-stands\"]\n";
    WHOLE.replace(source, &format!("{source}{fetch}")) + route
}

#[test]
fn c3_a_source_says_how_its_provider_is_asked() {
    let login = "[source.fetch]\nurl = \"https://api.example/acme/orders/{key}\"\nlogin = \"https://api.example/account/login\"\n\
                 user = \"taro\"\npassword = \"env:RR_SECRET\"\ntimeout = \"500ms\"\nmax_body_bytes = 5000\n";
    let config = read(&reading(login)).unwrap();
    let fetch = config.sources[0].fetch.as_ref().unwrap();
    assert_eq!((fetch.url.to_string().as_str(), fetch.max_body_bytes), ("https://api.example/acme/orders/{key}", 5000));
    assert_eq!(fetch.timeout, Duration::from_millis(500));
    let Some(Credential::Login { url, user, password }) = &fetch.credential else { panic!("{fetch:?}") };
    assert_eq!((url.path(), user.as_str(), password.reveal()), ("/account/login", "taro", "from the environment"));
    let shown = config.to_string();
    assert!(shown.contains("user = \"taro\"") && !shown.contains("from the environment"), "{shown}");
    let again = read(&shown).map(|again| again.routes[2].order);
    assert_eq!(again.ok(), Some(Order::Fetch), "{shown}");
}

#[test]
fn c9_a_route_may_take_from_several_sources_of_one_provider() {
    let second = |settings: &str| format!("[[source]]\nname = \"till\"\nsecrets = [\"a\"]\n{settings}\n");
    let like_first = "organization = \"acme\"\nprovider = \"receiptroller\"";
    let with = |settings: &str, sources: &str| {
        let first = WHOLE.find("[[route]]").unwrap();
        let whole = format!("{}{}{}", &WHOLE[..first], second(settings), &WHOLE[first..]);
        whole.replacen("source = \"receiptroller\"", &format!("source = {sources}"), 1)
    };
    let config = read(&with(like_first, r#"["receiptroller", "till"]"#)).unwrap();
    assert_eq!(config.routes[0].sources, ["receiptroller", "till"]);
    assert_eq!(
        (config.routes[0].name.as_str(), &config.routes[1].sources[..]),
        ("receiptroller-books", &["receiptroller".to_owned()][..])
    );
    assert_eq!(read(&config.to_string()).ok().map(|again| again.routes[0].sources.len()), Some(2), "{config}");
    for (settings, sources, expected) in [
        (like_first, "[]", "`route.source` is empty"),
        (like_first, r#"["till", "till"]"#, "`route.source` names the source \"till\" twice"),
        (like_first, r#"["till", "x"]"#, "`route.source` names the source \"x\", which does not exist"),
        (
            "organization = \"acme\"\nprovider = \"stripe\"",
            r#"["receiptroller", "till"]"#,
            "which are not of one organization and one provider",
        ),
        (
            "organization = \"rival\"\nprovider = \"receiptroller\"",
            r#"["receiptroller", "till"]"#,
            "which are not of one organization and one provider",
        ),
    ] {
        let problems = problems(&with(settings, sources));
        assert!(problems.contains(expected), "of {sources} was expected: {expected}\nbut came:\n{problems}");
    }
}

#[test]
fn s19_what_is_shown_of_urls_hides_what_may_be_a_password_and_reads_back() {
    let fetch = "[source.fetch]\nurl = \"https://api.example/orders/{key}?api_key=sesame\"\nlogin = \"https://api.example/in?k=sesame\"\n\
                 user = \"taro\"\npassword = \"env:RR_SECRET\"\ntimeout = \"500ms\"\n";
    let text = reading(fetch).replace("http://127.0.0.1:3000/hook", "http://127.0.0.1:3000/hook/sesame?token=sesame");
    let shown = read(&text).unwrap().to_string();
    assert!(!shown.contains("sesame") && shown.contains("orders/{key}?api_key=(hidden:6-bytes)"), "{shown}");
    assert_eq!(read(&shown).unwrap().to_string().matches("[[").count(), shown.matches("[[").count(), "{shown}");
}

#[test]
fn a_route_that_reads_needs_to_know_where_and_a_reading_fits_into_an_effect() {
    for (fetch, expected) in [
        ("", "`route` \"orders\" has the order \"fetch\", but the source \"receiptroller\" has no [source.fetch]"),
        ("[source.fetch]\n", "`source.fetch.url` is missing"),
        ("[source.fetch]\nurl = 'https://{key}/'\n", "`source.fetch.url` has something other than scheme"),
        ("[source.fetch]\nurl = 'https://h/orders'\n", "`source.fetch.url` would read the same of every event"),
        (
            "[source.fetch]\nurl = 'http://169.254.169.254/{key}'\n",
            "`source.fetch.url` leads nowhere: 169.254.169.254 is",
        ),
        (
            "[source.fetch]\nurl = 'https://h/{key}'\nlogin = 'http://[fd00:ec2::254]/'\nuser = 'x'\npassword = 'y'\n",
            "`source.fetch.login` leads nowhere",
        ),
        ("[source.fetch]\nurl = 'https://h/{name}'\n", "`source.fetch.url` has the gap {name}"),
        ("[source.fetch]\nurl = 'https://h/{key}'\nuser = 'x'\n", "`source.fetch.login` is missing"),
        (
            "[source.fetch]\nurl = 'https://h/{key}'\ntoken = 't'\nlogin = 'https://h/'\n",
            "`source.fetch.token` stands beside",
        ),
        ("[source.fetch]\nurl = 'https://h/{key}'\ntoken = \"a\\nb\"\n", "`source.fetch.token` must be visible ASCII"),
        ("[source.fetch]\nurl = 'https://h/{key}'\ntimeout = '2s'\n", "longer than `inbox.effect_timeout` (1s)"),
    ] {
        let problems = problems(&reading(fetch));
        assert!(problems.contains(expected), "of\n{fetch}\nwas expected: {expected}\nbut came:\n{problems}");
    }
}

#[test]
fn a_route_may_have_pauses_of_its_own() {
    let config = read(&format!("{WHOLE}retry_longest = \"500ms\"\n")).unwrap();
    let own = config.routes[1].backoff.unwrap();
    assert_eq!(
        (own.first, own.longest),
        (Duration::from_millis(10), Duration::from_millis(500)),
        "the rest is the inbox's"
    );
    assert_eq!(config.routes[0].backoff, None);
    let problems = problems(&format!("{WHOLE}retry_first = \"2s\"\n"));
    assert!(problems.contains("`route.retry_longest` is shorter than `retry_first`"), "{problems}");
}

#[test]
fn c7_t5_case26_what_is_remembered_is_remembered_long_enough() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let defaults = read("").unwrap();
    assert_eq!((defaults.retention.ids, defaults.retention.versions), (Some(7 * DAY), Some(90 * DAY)));
    assert_eq!(defaults.heartbeat.outage_after, Duration::from_secs(71 * 60));
    for (text, expected) in [
        ("[inbox]\nkeep_ids = '119m'", "f.toml:2:12: `inbox.keep_ids` must be at least 2h or \"never\""),
        ("[inbox]\noutage_after = '1s'", "f.toml:2:16: `inbox.outage_after` must be between 1m and 30d"),
        ("[retention]\nversions = '29d'", "f.toml:2:12: `retention.versions` is shorter than"),
        ("[inbox]\nkeep_ids = '100d'\n[retention]\nversions = '99d'", "`retention.versions` is shorter than"),
        ("[retention]\ninbox = 'never'\nversions = '1000d'", "`retention.versions` is shorter than"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(expected), "of\n{text}\nwas expected: {expected}\nbut came:\n{problems}");
    }
    let longer = read("[inbox]\nkeep_ids = '100d'").unwrap();
    assert_eq!(longer.retention.versions, Some(100 * DAY), "the default grows with it");
    assert_eq!(read("[retention]\ninbox = 'never'").unwrap().retention.versions, None);
}
