//! What is set elsewhere than in the file, and which file it is.

use super::*;
use crate::role::Role;

#[test]
fn an_empty_variable_names_no_file() {
    let inputs = inputs(&[("HIKYAKU_CONFIG", "")], &[]);
    assert_eq!(load(&inputs).unwrap().file, None);
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = "listen = '127.0.0.1:1'\n[sender]\nattempt_timeout = '1s'\nin_flight = 101";
    let environment = [
        ("HIKYAKU_LISTEN", "127.0.0.1:2"),
        ("HIKYAKU_SENDER__ATTEMPT_TIMEOUT", "2s"),
        ("HIKYAKU_SENDER__RETRY_DELAYS", "['1s', \"2s\"]"),
        ("HIKYAKU_API__TOKEN", "1234567890123456"),
        ("HIKYAKU_LOG", "debug"),
        ("HIKYAKU_CONFIG", "/not/read/here"),
        ("HIKYAKU_TEST_ANYTHING", "1"),
        ("HOME", "/"),
    ];
    let inputs = inputs(&environment, &[("listen", "127.0.0.1:3"), ("sender.targets.allow_http", "true")]);
    let config = read_text("f.toml".into(), file, &inputs).unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.sender.attempt_timeout, Duration::from_secs(2));
    assert_eq!(config.sender.in_flight, 101);
    assert_eq!(config.sender.policy.schedule.max_attempts(), 3);
    assert_eq!(config.api.token.unwrap().reveal(), "1234567890123456");
    assert_eq!(config.log.level, "debug");
    assert!(config.sender.targets.allow_http);
}

#[test]
fn a_list_is_given_outside_of_the_file_with_commas_or_as_toml() {
    let environment = [
        ("HIKYAKU_ROLES", "sender, inbox"),
        ("HIKYAKU_SENDER__RETRY_DELAYS", "1s,2s"),
        ("HIKYAKU_SENDER__TARGETS__ALLOW", "10.0.0.0/8"),
    ];
    let config = read_text("f.toml".into(), "", &inputs(&environment, &[])).unwrap();
    assert_eq!(config.roles.iter().collect::<Vec<_>>(), [Role::Sender, Role::Inbox]);
    assert_eq!(config.sender.policy.schedule.max_attempts(), 3);
    assert_eq!(config.sender.targets.allow.len(), 1);
    for (given, problem) in [
        ("sender,cook", "HIKYAKU_ROLES: `roles` must be \"sender\" or"),
        ("", "HIKYAKU_ROLES: `roles` is empty"),
        ("3", "HIKYAKU_ROLES: `roles` must be \"sender\" or"),
    ] {
        let inputs = inputs(&[("HIKYAKU_ROLES", given)], &[]);
        let invalid = read_text("f.toml".into(), "", &inputs).unwrap_err().to_string();
        assert!(invalid.contains(problem), "{given}: {invalid}");
    }
}

#[test]
fn s19_no_message_about_the_stores_url_holds_a_password() {
    for url in [
        "mysql://hikyaku:hunter2@db.example/x",
        " postgres://hikyaku:hunter2@db.example/x",
        "postgres://hikyaku:hun@hunter2@db.example/x",
        "hikyaku:hunter2@db.example",
        "postgres://hikyaku:hunter2@db.example:port/x",
    ] {
        let inputs = inputs(&[("HIKYAKU_STORE", url)], &[]);
        let invalid = read_text("f.toml".into(), "", &inputs).unwrap_err().to_string();
        assert!(invalid.contains("HIKYAKU_STORE: `store`") && !invalid.contains("hunter2"), "{invalid}");
        let written = StoreLocation::parse(url, &BTreeMap::new()).unwrap_err();
        assert!(!written.contains("hunter2"), "{written}");
    }
}

#[test]
fn a_wrong_override_is_refused_by_its_own_name() {
    let environment = [
        ("HIKYAKU_LISTN", "x"),
        ("HIKYAKU_SENDER__ATTEMPT_TIMEOUT", "5 parsecs"),
        ("HIKYAKU_LISTEN__PORT", "1"),
        ("HIKYAKU_SENDER__TARGETS__ALOW", "x"),
    ];
    let inputs = inputs(&environment, &[("sender.in_flight", "many")]);
    let invalid = read_text("f.toml".into(), "listen = '127.0.0.1:1'", &inputs).unwrap_err().to_string();
    for expected in [
        "\n  --set sender.in_flight: `sender.in_flight` must be an integer, not a text",
        "\n  HIKYAKU_LISTEN__PORT: cannot set `listen.port`: `listen` is a text, not a table",
        "\n  HIKYAKU_LISTN: `listn` is not a setting; here are: api,",
        "\n  HIKYAKU_SENDER__ATTEMPT_TIMEOUT: `sender.attempt_timeout` must be a length of time",
        "\n  HIKYAKU_SENDER__TARGETS__ALOW: `sender.targets.alow` is not a setting; here are: allow, allow_http",
    ] {
        assert!(invalid.contains(expected), "{expected} is not in:\n{invalid}");
    }
}

#[test]
fn a_named_file_must_be_there_and_of_bearable_size() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.toml");
    let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
    let missing = load(&inputs).unwrap_err().to_string();
    assert!(missing.contains("h.toml: cannot be read: "), "{missing}");

    fs::write(&file, "listen = '127.0.0.1:9'").unwrap();
    let config = load(&inputs).unwrap();
    assert_eq!((config.listen.port(), config.file), (9, Some(file.clone())));

    fs::write(&file, " ".repeat(usize::try_from(MAX_FILE_BYTES).unwrap() + 1)).unwrap();
    let large = load(&inputs).unwrap_err().to_string();
    assert!(large.contains("it is larger than 1048576 bytes"), "{large}");
}

#[test]
fn what_kubernetes_sets_beside_a_service_of_this_name_is_no_setting() {
    for name in ["HIKYAKU_PORT", "HIKYAKU_PORT_8080_TCP_ADDR", "HIKYAKU_SERVICE_HOST", "HIKYAKU_SERVICE_PORT_HTTP"] {
        assert_eq!(path_of_variable(name), None, "{name}");
    }
    assert_eq!(path_of_variable("HIKYAKU_LISTEN").as_deref(), Some("listen"));
}
