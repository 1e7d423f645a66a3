//! `hikyaku verify`, which talks to no server.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const BODY: &str =
    r#"{"id":"e1","type":"sale.created","timestamp":"2026-11-30T18:15:00+09:00","data":{"id":"T|2026-11|1"}}"#;
/// HMAC-SHA256 of `BODY` under `the-second`.
const SIGNATURE: &str = "sha256=95fddfca19eacb0eca8df39d5d0dc8ef7fafea3dcb7b38a8a92ee03a08d7981c";

fn verify(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("HIKYAKU_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).env("THE_SECRET", "the-second").stdin(Stdio::null());
    let headers = if arguments.contains(&"--headers") { &[][..] } else { &["--headers", "headers"] };
    command.args(["verify", "--body", "body"]).args(headers).args(arguments).output().unwrap()
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    file("body", BODY.into());
    file(
        "headers",
        format!("POST /in/shop HTTP/1.1\r\nHost: x\r\nX-RR-Delivery:e1\r\nX-RR-Signature: {SIGNATURE}\r\n\r\n"),
    );
    let secrets = "secrets = [\"the-first\", \"env:THE_SECRET\"]";
    file("hikyaku.toml", format!("[[source]]\nname = \"shop\"\nprovider = \"receiptroller\"\n{secrets}\n"));
    folder
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn c11_a_good_delivery_is_told_with_its_secrets_number_and_what_it_says() {
    let folder = folder();
    let output = verify(folder.path(), &["--source", "shop"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "valid      true",
        "secret     2",
        "id         e1",
        "type       sale.created",
        "timestamp  2026-11-30T09:15:00.000Z",
        "key        T|2026-11|1",
    ] {
        assert!(said.lines().any(|said| said == line), "{line:?} is not in\n{said}");
    }
    assert!(!said.contains("the-second"));
    let output = verify(folder.path(), &["--provider", "receiptroller", "--secret", "env:THE_SECRET", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!((&json_of(&output)["secret"], &json_of(&output)["reason"]), (&json!(1), &Value::Null));
    let other_id = fs::read_to_string(folder.path().join("headers")).unwrap().replace("Delivery:e1", "Delivery: e2");
    fs::write(folder.path().join("other"), other_id).unwrap();
    let copy = json_of(&verify(folder.path(), &["--source", "shop", "--json", "--headers", "other"]));
    assert!(copy["contradiction"].as_str().is_some_and(|said| said.contains("\"e2\"") && said.contains("\"e1\"")));
    // T7: long ago, but asked about as of then.
    let mut fresh = vec!["--provider", "receiptroller", "--secret", "the-second", "--with", "freshness=2h", "--json"];
    fresh.extend(["--at", "2026-11-30T10:26:00Z"]);
    assert_eq!(json_of(&verify(folder.path(), &fresh))["valid"], true);
    *fresh.last_mut().unwrap() = "2026-12-01T10:26:00Z";
    assert_eq!(json_of(&verify(folder.path(), &fresh))["valid"], false);
}

#[test]
fn c11_a_bad_delivery_exits_1_with_the_reason() {
    let folder = folder();
    let said = |arguments: &[&str]| {
        let output = verify(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        json_of(&output)["reason"].as_str().unwrap().to_owned()
    };
    let given = ["--json", "--provider", "receiptroller", "--secret", "the-first"];
    assert!(said(&given).contains("another secret or another body"));
    assert!(said(&[&given[..], &["--with", "signature_header=x-other"]].concat()).contains("no x-other header"));
    assert!(said(&[&given[..], &["--with", "encoding=base64"]].concat()).contains("no signature of the form"));
    // What an editor adds.
    fs::write(folder.path().join("body"), format!("{BODY}\n")).unwrap();
    assert!(said(&["--json", "--source", "shop"]).contains("without its last line break"));
}

#[test]
fn what_cannot_be_used_exits_2_and_says_why() {
    let folder = folder();
    let refused = |arguments: &[&str], why: &str| {
        let output = verify(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && !said.contains("the-second"), "{why:?} is not in\n{said}");
    };
    refused(&[], "--source");
    refused(&["--source", "other"], "it has: shop");
    refused(&["--provider", "acme", "--secret", "x"], "must be \"receiptroller\" or");
    refused(&["--provider", "square", "--secret", "the-second"], "cannot be used:\n  ");
    refused(&["--provider", "square", "--secret", "the-second"], "`source.url` is missing");
    refused(&["--provider", "slack", "--secret", "the-second", "--with", "x=y"], "is not a setting");
    refused(&["--provider", "stripe", "--secret", "env:NO_SUCH"], "NO_SUCH");
    refused(&["--source", "shop", "--at", "soon"], "soon");
    fs::write(folder.path().join("headers"), "x-rr-signature sha256=00\n").unwrap();
    refused(&["--source", "shop"], "line 1 of the headers");
    fs::remove_file(folder.path().join("body")).unwrap();
    refused(&["--source", "shop"], "body cannot be read");
}
