//! The program that is measured, as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::load::{Link, Message};
use crate::{Error, machine};

/// How long a start or a stop may take.
const MAX_START: Duration = Duration::from_secs(120);
/// The secret of the source that it is started with.
pub(crate) const SOURCE_SECRET: &str = "a-secret-of-24-bytes-or-more";
/// The organization that everything is measured in, unless a row needs several.
pub(crate) const ORGANIZATION: &str = "bench";

/// What the program is started with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The store's URL.
    pub(crate) store: String,
    /// Attempts under way to one webhook.
    pub(crate) in_flight_per_webhook: u32,
    /// Attempts under way in all.
    pub(crate) in_flight: u32,
    /// Tables of the configuration that are added.
    pub(crate) tables: String,
    /// Roles, all where there is none.
    pub(crate) roles: Option<&'static str>,
}

impl Settings {
    pub(crate) fn sqlite() -> Self {
        Self::of("sqlite:hikyaku.db".into())
    }

    pub(crate) fn of(store: String) -> Self {
        Self { store, in_flight_per_webhook: 16, in_flight: 4096, tables: String::new(), roles: None }
    }

    /// Other bounds than the default ones: to one webhook, and in all.
    pub(crate) fn in_flight(mut self, per_webhook: u32, in_all: u32) -> Self {
        (self.in_flight_per_webhook, self.in_flight) = (per_webhook, in_all);
        self
    }

    fn to_toml(&self) -> String {
        let Self { store, in_flight_per_webhook, in_flight, tables, roles } = self;
        let roles = roles.map(|role| format!("roles = [\"{role}\"]\n")).unwrap_or_default();
        format!(
            "listen = \"127.0.0.1:0\"\nstore = \"{store}\"\n{roles}\n[sender]\nin_flight_per_webhook = \
             {in_flight_per_webhook}\nin_flight = {in_flight}\n\n[sender.targets]\nallow = [\"127.0.0.0/8\"]\nallow_http = true\n\n{tables}"
        )
    }
}

/// The running program.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    child: Child,
}

impl Server {
    /// Starts it in a directory, and waits until it listens.
    pub(crate) async fn start(binary: &Path, dir: &Path, settings: &Settings) -> Result<Self, Error> {
        std::fs::write(dir.join("hikyaku.toml"), settings.to_toml())?;
        let mut command = Command::new(binary);
        command.args(["serve", "--config", "hikyaku.toml"]).current_dir(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{} cannot be started: {error}", binary.display()))?;
        let (listens, listening) = oneshot::channel();
        let log = child.stderr.take().ok_or("it has no standard error")?;
        let path = dir.join("log");
        std::thread::spawn(move || follow(log, &path, listens));
        let mut server = Self { addr: SocketAddr::from(([127, 0, 0, 1], 0)), child };
        let shown = dir.join("log");
        let ended = || format!("it does not start:\n{}", std::fs::read_to_string(&shown).unwrap_or_default());
        server.addr = timeout(MAX_START, listening).await.ok().and_then(Result::ok).ok_or_else(ended)?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn cpu(&self) -> Result<Duration, Error> {
        Ok(machine::cpu(self.pid())?)
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        if let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        Ok(tokio::task::spawn_blocking(move || self.child.wait()).await?.map(drop)?)
    }

    /// Calls its API with a JSON body.
    pub(crate) async fn call(&self, path: &str, body: &Value) -> Result<Value, Error> {
        Self::call_over(&mut Link::open(self.addr).await?, path, body).await
    }

    async fn call_over(link: &mut Link, path: &str, body: &Value) -> Result<Value, Error> {
        let message = Message { path: path.into(), headers: Vec::new(), body: Bytes::from(body.to_string()) };
        let (status, body) = link.send(Method::POST, message).await?;
        match status.is_success() {
            true => Ok(serde_json::from_slice(&body)?),
            false => Err(format!("{path} was answered {status}: {}", String::from_utf8_lossy(&body)).into()),
        }
    }

    /// Registers a webhook for these events, and gives its id.
    pub(crate) async fn webhook(&self, url: &str, events: &str) -> Result<String, Error> {
        let link = &mut Link::open(self.addr).await?;
        Self::webhook_over(link, ORGANIZATION, url, events).await
    }

    /// The same over a connection that is kept, in any organization.
    pub(crate) async fn webhook_over(
        link: &mut Link,
        organization: &str,
        url: &str,
        events: &str,
    ) -> Result<String, Error> {
        let path = format!("/v1/organizations/{organization}/webhooks");
        let webhook = Self::call_over(link, &path, &json!({ "url": url, "events": [events] })).await?;
        Ok(webhook["id"].as_str().ok_or("a webhook without an id")?.to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when it has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keeps the log, which must be read, and tells when the program listens.
fn follow(log: ChildStderr, path: &Path, listens: oneshot::Sender<SocketAddr>) {
    let mut listens = Some(listens);
    let mut said = String::new();
    for line in BufReader::new(log).lines().map_while(Result::ok) {
        let Some(waiting) = listens.take() else { continue };
        said.push_str(&line);
        said.push('\n');
        let _ = std::fs::write(path, &said);
        match listening_at(&line) {
            // Nobody waits any more when the start took too long.
            Some(addr) => drop(waiting.send(addr)),
            None => listens = Some(waiting),
        }
    }
}

fn listening_at(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    (fields["message"] == "listening").then(|| fields["addr"].as_str()?.parse().ok())?
}
