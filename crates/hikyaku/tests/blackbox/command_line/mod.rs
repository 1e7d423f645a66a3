//! The commands that talk to a running server, as a person and a script meet them.

mod deliveries;
mod events;
mod failures;
mod inbox;
mod reconcile;
mod recover;
mod verify;
mod webhooks;

use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::harness::Server;

/// The command line, pointed at a server and at the organization that the tests work in.
#[derive(Clone)]
pub(crate) struct CommandLine {
    addr: SocketAddr,
    environment: Vec<(String, String)>,
}

impl CommandLine {
    pub(crate) fn of(server: &Server) -> Self {
        Self::at(server.addr())
    }

    fn at(addr: SocketAddr) -> Self {
        Self { addr, environment: Vec::new() }
    }

    /// The same with one more variable.
    fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hikyaku"));
        command.env_clear().env("HIKYAKU_SERVER", format!("http://{}", self.addr)).env("HIKYAKU_ORGANIZATION", "acme");
        // A proxy of the environment is not used: through this one nothing would arrive.
        command.env("http_proxy", "http://127.0.0.1:9");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
        Ran::of(&output)
    }

    /// What it prints; it must succeed.
    pub(crate) async fn prints(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.stdout
    }

    /// The one document that it prints with `--json`.
    async fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.prints(&[arguments, &["--json"]].concat()).await).unwrap()
    }

    /// The documents that it prints with `--json`, one per line.
    async fn json_lines(&self, arguments: &[&str]) -> Vec<Value> {
        let printed = self.prints(&[arguments, &["--json"]].concat()).await;
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// How a command ended.
#[derive(Debug)]
struct Ran {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {output:?}"));
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// The line of a table that holds this text.
#[track_caller]
fn line<'a>(table: &'a str, text: &str) -> &'a str {
    table.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text} is not in:\n{table}"))
}

/// The value of a member, as it is shown to people.
#[track_caller]
fn member<'a>(shown: &'a str, name: &str) -> &'a str {
    let line = shown.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in:\n{shown}"))[name.len()..].trim()
}
