//! The command line, as a person meets it.

use std::fs;
use std::io::{BufRead, BufReader, PipeWriter, Read, Write, pipe};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HIKYAKU_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).args(arguments).stdin(Stdio::null());
    command
}

fn hikyaku(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().expect("the program can be started")
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
fn help_names_the_exit_codes_and_gives_examples() {
    let folder = tempfile::tempdir().unwrap();
    let help = |arguments: &[&str]| text(&hikyaku(folder.path(), arguments).stdout);
    let codes = help(&["--help"]);
    assert!((0..=5).all(|code| codes.contains(&format!("\n  {code}  "))), "{codes}");
    for noun in ["webhooks", "events", "deliveries", "explain", "inbox", "sandbox", "check"] {
        let said = help(&[noun, "--help"]);
        assert!(said.contains("Example") && said.contains(&format!("hikyaku {noun} ")), "{said}");
    }
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
    let sealed = format!("sealing_key={}", "5ea1".repeat(16));
    let reachable = ["--listen", "0.0.0.0:80", "--set", sealed.as_str()];
    let said = check(&reachable);
    assert!(said.contains("0.0.0.0:80") && said.contains("hikyaku token create --admin"), "{said}");
    assert_eq!(check(&[&reachable[..], &["--set", "api.token=0123456789abcdef"]].concat()), "");
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

/// A pipe from which nobody reads any more.
fn gone() -> PipeWriter {
    pipe().expect("a pipe can be made").1
}

#[test]
fn whoever_does_not_read_to_the_end_causes_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("occupied"), "").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code) in [
        (&["config", "check"][..], 0),
        (&["config", "check", "--set", "liste=1"], 2),
        (&["serve", "--store", "memory:", "--listen", &taken], 1),
        (&["demo", "--dir", "."], 1),
        (&["token", "list", "--store", "sqlite:new.db"], 1),
        (&["token", "create", "--admin", "--name", "x", "--store", "sqlite:new.db"], 0),
        (&["token", "list", "--store", "sqlite:new.db"], 0),
    ] {
        let mut command = command(folder.path(), arguments);
        let status = command.stdout(gone()).stderr(gone()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

/// What cannot be printed for another reason is a failure: a script must not take half a configuration for the whole.
#[test]
#[cfg(target_os = "linux")]
fn what_finds_no_room_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(folder.path(), &["config", "check"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("hikyaku: No space left"), "{}", text(&output.stderr));
}

#[test]
fn a_directory_that_the_demo_cannot_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (dir, reason) in [(".", "is not empty"), ("file", "cannot be used: "), ("file/below", "cannot be used: ")] {
        let output = hikyaku(folder.path(), &["demo", "--dir", dir]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!(": {dir} {reason}")) && said.contains("--dir"), "{said}");
    }
}

/// T2, C15: a log that nobody takes any more stops no work. What is logged here is a refused signature; a panic in
/// the place of the warning would break the connection without an answer.
#[test]
fn c15_a_log_that_nobody_reads_any_more_stops_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = command(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--set", SOURCE])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(program.stderr.take().unwrap());
    let address = log.lines().map_while(Result::ok).find_map(|line| {
        let rest = line.split_once("\"addr\":\"")?.1;
        Some(rest.split('"').next()?.to_owned())
    });
    // The reader has been dropped with the loop above.
    let address = address.expect("the program listens");
    for _ in 0..2 {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = "POST /in/rr HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer:?}");
    }
    assert_eq!(program.try_wait().unwrap(), None);
    program.kill().unwrap();
    program.wait().unwrap();
}

const SOURCE: &str = r#"source=[{name="rr",provider="receiptroller",secrets=["a secret of the tests"]}]"#;
