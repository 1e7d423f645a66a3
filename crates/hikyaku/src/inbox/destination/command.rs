//! Runs a program for every row: the bytes on its standard input, what is known of them in its environment, and no shell
//! in between. How it exits says what became of the row.
//!
//! The program leads a process group of its own, which is killed whole when the effect is over: after the program has ended,
//! after its time, or when this program stops. So nothing that it started outlives the effect, unless it leaves the group.

mod group;
mod output;
mod program;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hikyaku_core::signature::Secret;
use hikyaku_core::timestamp;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{Destination, Effect, HIDDEN, Tools, sent_at};
use crate::store::WorkRow;
use group::Group;
use output::Output;

/// Says that it may succeed later: `EX_TEMPFAIL` of sysexits.h, which mail systems have kept to for decades.
const EXIT_RETRY: i32 = 75;
/// The variables of our own environment that the program gets.
const PASSED_ON: [&str; 3] = ["PATH", "HOME", "LANG"];
/// What the names of our variables begin with.
pub const VARIABLE_PREFIX: &str = "HIKYAKU_";
/// How long a process that was killed may take to be gone.
const MAX_REAP: Duration = Duration::from_secs(1);

/// A command destination as configured.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// The program: a path, or a name that is looked up in `PATH` at the start.
    pub program: String,
    /// Its arguments, each as it stands.
    pub args: Vec<String>,
    /// More variables of its environment.
    pub env: BTreeMap<String, Secret>,
    /// Its working directory; `None` is ours.
    pub directory: Option<PathBuf>,
}

/// Runs a program.
pub(super) struct CommandDestination {
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, Secret>,
    directory: Option<PathBuf>,
    passed_on: Vec<(&'static str, OsString)>,
    tools: Tools,
}

impl CommandDestination {
    /// Finds the program. The error says what is missing.
    pub(super) fn open(settings: CommandSettings, tools: Tools) -> Result<Self, String> {
        let CommandSettings { program, args, env, directory } = settings;
        if let Some(directory) = directory.as_ref().filter(|directory| !directory.is_dir()) {
            return Err(format!("its directory {} does not exist; make it, or name another", directory.display()));
        }
        let passed_on: Vec<_> = PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))).collect();
        let path = passed_on.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path.as_os_str());
        let program = program::find(&program, path)?;
        Ok(Self { program, args, env, directory, passed_on, tools })
    }

    /// What the program is told beside the bytes.
    fn variables(&self, row: &WorkRow) -> Result<[(&'static str, String); 9], String> {
        let origin = self.tools.origins.get(&row.source);
        let variables = [
            ("HIKYAKU_DELIVERY", row.delivery.clone()),
            ("HIKYAKU_TYPE", row.event_type.clone()),
            ("HIKYAKU_KEY", row.key.clone()),
            ("HIKYAKU_SOURCE", row.source.clone()),
            ("HIKYAKU_PROVIDER", origin.map(|origin| origin.provider.clone()).unwrap_or_default()),
            ("HIKYAKU_ORGANIZATION", origin.map(|origin| origin.organization.to_string()).unwrap_or_default()),
            ("HIKYAKU_TIMESTAMP", sent_at(row)),
            ("HIKYAKU_RECEIVED_AT", timestamp::format(row.received_at)),
            ("HIKYAKU_ATTEMPT", row.failures.saturating_add(1).to_string()),
        ];
        match variables.iter().find(|(_, value)| value.contains('\0')) {
            Some((name, _)) => Err(format!("{name} would hold a NUL, which no environment variable can")),
            None => Ok(variables),
        }
    }

    fn start(&self, variables: [(&'static str, String); 9]) -> std::io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.passed_on.iter().cloned())
            .envs(self.env.iter().map(|(name, value)| (name, value.reveal())))
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        group::lead_its_own(&mut command);
        command.spawn()
    }

    /// Lets it run to its end, or kills it at the end of its time.
    async fn run(&self, mut child: Child, body: Bytes) -> Effect {
        // Before everything else, so that it is dropped, and the group killed, however this ends.
        let group = Group::of(&child);
        let feeding = child.stdin.take().map(|stdin| AbortOnDropHandle::new(tokio::spawn(feed(stdin, body))));
        let mut outputs = (Output::of("stderr", child.stderr.take()), Output::of("stdout", child.stdout.take()));
        let limit = self.tools.patience();
        let ended = timeout(limit, child.wait()).await;
        drop((group, feeding));
        if ended.is_err() {
            // So that no zombie is left; if it takes longer, the runtime sees to it.
            let _ = timeout(MAX_REAP, child.wait()).await;
        }
        let output = format!("{}{}", outputs.0.text().await, outputs.1.text().await);
        match ended {
            Ok(Ok(status)) => effect_of(status, &output),
            Ok(Err(error)) => failed(format!("could not wait for the program: {error}")),
            Err(_) => failed(format!("the program did not end within {limit:?} and was killed{output}")),
        }
    }
}

#[async_trait]
impl Destination for CommandDestination {
    async fn apply(&self, row: &WorkRow) -> Effect {
        let variables = match self.variables(row) {
            Ok(variables) => variables,
            Err(reason) => return Effect::Refused(reason),
        };
        match self.start(variables) {
            Ok(child) => self.run(child, row.body.clone()).await,
            Err(error) if error.kind() == ErrorKind::ArgumentListTooLong => {
                Effect::Refused(format!("its type or key is too long for an environment variable: {error}"))
            }
            Err(error) => failed(format!("{} could not be started: {error}", self.program.display())),
        }
    }

    fn preview(&self, row: &WorkRow) -> Result<String, String> {
        let variables = self.variables(row)?;
        let mut told = format!("runs {}\n", self.program.display());
        self.args.iter().for_each(|argument| told += &format!("argument {argument:?}\n"));
        if let Some(directory) = &self.directory {
            told += &format!("in {}\n", directory.display());
        }
        told += &format!("with {} as the server has them\n", PASSED_ON.join(", "));
        self.env.keys().for_each(|name| told += &format!("{name}={HIDDEN}\n"));
        variables.iter().for_each(|(name, value)| told += &format!("{name}={value}\n"));
        Ok(format!("{told}and the {} bytes of the body on its standard input", row.body.len()))
    }
}

fn effect_of(status: ExitStatus, output: &str) -> Effect {
    match status.code() {
        Some(0) => Effect::Done(format!("exited with 0{output}")),
        Some(EXIT_RETRY) => failed(format!("exited with {EXIT_RETRY}, which asks for another try{output}")),
        Some(code) => Effect::Refused(format!("exited with {code}{output}")),
        // Somebody killed it, or it crashed; neither says anything about the row.
        None => failed(format!("was ended by a signal ({status}){output}")),
    }
}

fn failed(error: String) -> Effect {
    Effect::Failed { error, retry_after: None }
}

/// Writes the bytes. A program may close its input before it has read them all: how it exits is what counts.
async fn feed(mut stdin: ChildStdin, body: Bytes) {
    // The only error there is says that nobody reads any more.
    if stdin.write_all(&body).await.is_ok() {
        let _ = stdin.shutdown().await;
    }
}
