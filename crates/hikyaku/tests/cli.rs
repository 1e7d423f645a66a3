//! The command line, as a person meets it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn hikyaku(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HIKYAKU_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).args(arguments).output().expect("the program can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_version_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let output = hikyaku(folder.path(), &["--version"]);
    assert_eq!(text(&output.stdout), format!("hikyaku {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_a_command_or_with_a_wrong_one_it_explains_and_exits_2() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["deliver"], &["serve", "--port", "1"], &["serve", "--set", "x"]] {
        let output = hikyaku(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("Usage") || text(&output.stderr).contains("KEY=VALUE"), "{arguments:?}");
    }
}

#[test]
fn config_check_reads_the_file_of_the_working_directory_and_shows_what_holds() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("hikyaku.toml"),
        "[sender]\nattempt_timeout = '7s'\n[api]\ntoken = 'a-secret-of-the-test'",
    )
    .unwrap();
    let output = hikyaku(folder.path(), &["config", "check", "--set", "sender.in_flight=77"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for expected in
        ["# ok: hikyaku.toml\n", "attempt_timeout = \"7s\"\n", "in_flight = 77\n", "listen = \"127.0.0.1:8080\"\n"]
    {
        assert!(shown.contains(expected), "{expected} is not in:\n{shown}");
    }
    assert!(!shown.contains("a-secret-of-the-test"), "{shown}");
}

#[test]
fn config_check_says_that_an_address_for_others_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str]| {
        let output = hikyaku(folder.path(), &[&["config", "check"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = check(&["--listen", "0.0.0.0:80"]);
    assert!(said.contains("0.0.0.0:80") && said.contains("hikyaku token create --admin"), "{said}");
    assert_eq!(check(&["--listen", "0.0.0.0:80", "--set", "api.token=0123456789abcdef"]), "");
    assert_eq!(check(&[]), "");
}

#[test]
fn a_wrong_configuration_ends_check_and_serve_with_2_and_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("h.toml"), "liste = 1\n[sender]\nattempt_timeout = '0s'").unwrap();
    for command in [&["config", "check"][..], &["serve"]] {
        let output = hikyaku(folder.path(), &[command, &["--config", "h.toml", "--listen", "0.0.0.0"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        let said = text(&output.stderr);
        for expected in [
            "h.toml:1:1: `liste`",
            "h.toml:3:19: `sender.attempt_timeout`",
            "--listen: `listen` must be an IP address and a port",
        ] {
            assert!(said.contains(expected), "{expected} is not in:\n{said}");
        }
    }
}
