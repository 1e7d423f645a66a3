//! `hikyaku sandbox`, as somebody meets it who has a receiver of their own.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::Receiver;

fn sandbox(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
    command.args(["sandbox", "--listen", "127.0.0.1:0", "--start", "2026-11-30T00:00:00Z"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

/// What it prints until it ends by itself, or up to the line that is waited for.
async fn lines(mut child: Child, is_enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut read = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let line: Value = serde_json::from_str(&line).unwrap();
        let enough = is_enough(&line);
        read.push(line);
        if enough {
            child.kill().await.unwrap();
            return read;
        }
    }
    assert!(child.wait().await.unwrap().success());
    read
}

#[tokio::test]
async fn r7_r10_a_receiver_that_refuses_sees_four_attempts_and_is_switched_off() {
    let receiver = Receiver::always(503).await;
    let url = receiver.url("/hook");
    let arguments = ["--send-to", &url, "--secret", "s", "--time-scale", "3600", "--sales-per-hour", "20"];
    let is_off = |line: &Value| line["next"] == "exhausted: the webhook is switched off";
    let lines = lines(sandbox(&arguments), is_off).await;
    let mut attempts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["happened"] == "attempt") {
        // On a machine that is too busy to answer within a second, there is no status.
        assert!(line["httpStatus"] == 503 || line["httpStatus"] == 0, "{line}");
        attempts.entry(line["deliveryId"].as_str().unwrap()).or_default().push(line["attempt"].as_u64().unwrap());
    }
    let last = lines.last().unwrap()["deliveryId"].as_str().unwrap();
    assert_eq!(attempts[last], [1, 2, 3, 4]);
    assert!(attempts.values().all(|numbers| [1, 2, 3, 4].starts_with(numbers)), "{attempts:?}");
}

#[tokio::test]
async fn every_fault_at_once_reaches_a_receiver_in_any_language() {
    let receiver = Receiver::always(200).await;
    let url = receiver.url("/hook");
    let arguments =
        ["--send-to", &url, "--secret", "s", "--time-scale", "3600", "--for", "6h", "--faults", "all", "--seed", "5"];
    let lines = lines(sandbox(&arguments), |_| false).await;
    let happened = |word: &str| lines.iter().filter(|line| line["happened"] == word).count();
    for word in ["event", "attempt", "duplicate", "tampered", "unsigned", "wrong-signature", "slow-drip", "fault"] {
        assert!(happened(word) > 0, "{word}");
    }
    assert!(lines.iter().any(|line| line["fault"] == "restart"));
}

#[tokio::test]
async fn what_cannot_be_is_refused_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    std::fs::write(&plan, "[[fault]]\nkind = \"nonsense\"\n").unwrap();
    let plan = plan.display().to_string();
    for (arguments, reason) in [
        (&["--faults", &plan][..], "line 2: \"nonsense\" is no kind of fault"),
        (&["--faults", "/no/such/plan.toml"], "cannot read the plan"),
        (&["--send-to", "ftp://x/"], "http:// or https://"),
        (&["--time-scale", "0"], "--time-scale"),
        (&["--for", "soon"], "is not a length of time"),
        (&["--sales-per-hour=-1"], "--sales-per-hour"),
    ] {
        let mut child = sandbox(arguments);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(child.wait().await.unwrap().code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}
