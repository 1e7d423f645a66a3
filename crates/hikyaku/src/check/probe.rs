//! The receiver's effects, as a command or a URL of the user's prints them; and the commands that trouble the receiver.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::Method;
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::timeout;
use url::{Position, Url};

use super::lab::printable;
use crate::client::Client;

/// How long a command or a URL may take for one look.
const MAX_LOOK: Duration = Duration::from_secs(60);
/// Most bytes that a look may print.
const MAX_PRINTED_BYTES: u64 = 64 * 1024 * 1024;
/// How long a command that restarts, breaks or mends may take.
const MAX_ACT: Duration = Duration::from_secs(120);

/// What stands on the receiver's side: values by business key. A ledger may have several for one key, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Effects(BTreeMap<String, Vec<Value>>);

impl Effects {
    /// Reads what was printed: one object of values by key; or rows, one per line or in an array, each an object with a
    /// `key` and a `value`. A row without a `value` is its own.
    ///
    /// # Errors
    /// Says that it is something else.
    pub fn parse(text: &str) -> Result<Self, String> {
        let other = || {
            "it must print one JSON object of values by key, or rows {\"key\":…,\"value\":…}, one per line or in an array"
                .to_owned()
        };
        let mut effects = Self::default();
        let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let mut documents: Vec<_> =
            documents.collect::<Result<_, _>>().map_err(|error| format!("{}: {error}", other()))?;
        if let [Value::Array(rows)] = documents.as_mut_slice() {
            documents = std::mem::take(rows);
        }
        match documents.as_slice() {
            [Value::Object(all)] if !all.contains_key("key") => {
                effects.0 = all.iter().map(|(key, value)| (key.clone(), vec![value.clone()])).collect();
            }
            rows => {
                for row in rows {
                    let (key, value) = row.as_object().and_then(Self::row).ok_or_else(other)?;
                    effects.0.entry(key).or_default().push(value);
                }
            }
        }
        Ok(effects)
    }

    fn row(row: &Map<String, Value>) -> Option<(String, Value)> {
        let key = match row.get("key")? {
            Value::String(key) => key.clone(),
            Value::Number(key) => key.to_string(),
            _ => return None,
        };
        Some((key, row.get("value").cloned().unwrap_or_else(|| Value::Object(row.clone()))))
    }

    /// How many values the key has.
    pub fn count(&self, key: &str) -> usize {
        self.0.get(key).map_or(0, Vec::len)
    }

    /// Whether the key has a value.
    pub fn has(&self, key: &str) -> bool {
        self.count(key) > 0
    }

    /// Whether the amount stands in the key's last value, at any depth.
    pub fn shows(&self, key: &str, amount: u64) -> bool {
        self.0.get(key).and_then(|values| values.last()).is_some_and(|value| holds(value, amount))
    }
}

#[expect(clippy::cast_precision_loss, reason = "amounts have nine digits")]
fn holds(value: &Value, amount: u64) -> bool {
    match value {
        Value::Number(number) => number.as_f64() == Some(amount as f64),
        Value::String(text) => text.trim().replace(',', "").parse() == Ok(amount as f64),
        Value::Array(items) => items.iter().any(|item| holds(item, amount)),
        Value::Object(members) => members.values().any(|member| holds(member, amount)),
        Value::Null | Value::Bool(_) => false,
    }
}

/// Looks at the receiver's effects.
#[async_trait]
pub trait Probe: Send + Sync + 'static {
    /// What stands there now.
    ///
    /// # Errors
    /// Says why it could not be seen.
    async fn look(&self) -> Result<Effects, String>;
}

/// A probe as the user gave it: a plain http URL, or else a command for the shell.
pub struct UsersProbe(pub String);

#[async_trait]
impl Probe for UsersProbe {
    async fn look(&self) -> Result<Effects, String> {
        let printed = match Url::parse(&self.0) {
            Ok(url) if url.scheme() == "http" => fetch(&url).await?.to_vec(),
            Ok(url) if url.scheme() == "https" => return Err(format!("give \"curl -sf {url}\" as a command instead")),
            _ => print(&self.0).await?,
        };
        Effects::parse(std::str::from_utf8(&printed).map_err(|_| "it printed something that is not UTF-8")?)
    }
}

async fn fetch(url: &Url) -> Result<Bytes, String> {
    let client = Client::new(&url.origin().ascii_serialization(), None).map_err(|error| error.to_string())?;
    let path = &url[Position::BeforePath..Position::AfterQuery];
    let (status, body) = timeout(MAX_LOOK, client.exchange(Method::GET, path, &[], Bytes::new()))
        .await
        .map_err(|_| format!("it did not answer within {} s", MAX_LOOK.as_secs()))?
        .map_err(|error| error.to_string())?;
    if (200..300).contains(&status) { Ok(body) } else { Err(format!("it answered {status}")) }
}

async fn print(command: &str) -> Result<Vec<u8>, String> {
    let mut shell = shell(command);
    let mut child = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
    let (output, complaint) = (child.stdout.take(), child.stderr.take());
    let ended = async { tokio::join!(read(output, MAX_PRINTED_BYTES), read(complaint, 4096), child.wait()) };
    let (output, complaint, status) =
        timeout(MAX_LOOK, ended).await.map_err(|_| format!("it did not end within {} s", MAX_LOOK.as_secs()))?;
    let status = status.map_err(|error| error.to_string())?;
    if status.success() { Ok(output) } else { Err(format!("{status}: {}", printable(&complaint))) }
}

/// The beginning of what comes. What breaks off is seen in the exit status.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        let _ = from.take(most).read_to_end(&mut bytes).await;
    }
    bytes
}

/// Does something to the receiver: restarts it, breaks what it depends on, mends that.
#[async_trait]
pub trait Act: Send + Sync + 'static {
    /// Does it, and comes back when it is done.
    ///
    /// # Errors
    /// Says that it did not work.
    async fn act(&self) -> Result<(), String>;
}

/// A command for the shell. What it prints is dropped: a receiver started by it would hold a pipe open.
pub struct UsersCommand(pub String);

#[async_trait]
impl Act for UsersCommand {
    async fn act(&self) -> Result<(), String> {
        let mut shell = shell(&self.0);
        let mut child = shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|error| error.to_string())?;
        match timeout(MAX_ACT, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("{:?} ended with {status}", self.0)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("{:?} did not end within {} s", self.0, MAX_ACT.as_secs())),
        }
    }
}

fn shell(command: &str) -> Command {
    let (program, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut shell = Command::new(program);
    shell.args([flag, command]).stdin(Stdio::null()).kill_on_drop(true);
    shell
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_probes_print_is_read() {
        for (text, key, amount, count) in [
            ("", "a", 0, 0),
            (r#"{"a": 5, "b": 6}"#, "a", 5, 1),
            (r#"{"a": {"total": "5"}}"#, "a", 5, 1),
            ("{\"key\":\"a\",\"value\":4}\n{\"key\":\"a\",\"value\":5}\n", "a", 5, 2),
            (r#"[{"key":"a","total":[1, 5.0]}]"#, "a", 5, 1),
            (r#"{"key": 7, "value": "1,005"}"#, "7", 1005, 1),
            (r#"{"a": null}"#, "b", 5, 0),
        ] {
            let effects = Effects::parse(text).unwrap();
            assert_eq!((effects.count(key), effects.shows(key, amount)), (count, count > 0), "{text}");
        }
        assert!(!Effects::parse(r#"{"a": 51}"#).unwrap().shows("a", 5));
        for text in ["nonsense", "5", r#"{"key":null}"#, "{\"key\":\"a\"}\n[]"] {
            assert!(Effects::parse(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_says_why() {
        let good = UsersProbe("printf '{\"a\":1}'".into()).look().await.unwrap();
        assert!(good.shows("a", 1));
        let bad = UsersProbe("echo no such table >&2; exit 3".into()).look().await.unwrap_err();
        assert!(bad.contains("no such table") && bad.contains('3'), "{bad}");
        let encrypted = UsersProbe("https://h/rows".into()).look().await.unwrap_err();
        assert!(encrypted.contains("curl -sf https://h/rows"), "{encrypted}");
        assert!(UsersCommand("exit 4".into()).act().await.unwrap_err().contains("exit 4"));
        assert_eq!(UsersCommand("true".into()).act().await, Ok(()));
    }
}
