//! That it still measures.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::path::Path;
use std::process::Command;

#[test]
fn one_row_is_measured_and_written() {
    let bench = env!("CARGO_BIN_EXE_hikyaku-bench");
    let program = Path::new(bench).with_file_name("hikyaku");
    assert!(program.exists(), "build the program first: cargo build -p hikyaku");
    let json = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new(bench).args(["single", "--quick", "--json"]).arg(json.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("### limit: HTTP") && table.contains("### publish → delivered, 1:1, SQLite"), "{table}");

    let same = Command::new(bench).arg("compare").args([json.path(), json.path()]).output().unwrap();
    assert!(same.status.success() && same.stdout.is_empty(), "{same:?}");
    let without =
        std::fs::read_to_string(json.path()).unwrap().replace("\"publish → delivered, 1:1, SQLite\"", "\"x\"");
    let other = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(other.path(), without).unwrap();
    let compared = Command::new(bench).arg("compare").args([json.path(), other.path()]).output().unwrap();
    assert_eq!(compared.status.code(), Some(1), "{compared:?}");
}
