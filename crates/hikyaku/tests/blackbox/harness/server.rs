//! The program as a process: started, killed, asked to stop, started again on the same directory.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;

use super::postgres::TestDatabase;
use super::{Api, SOURCE_SECRET, within};

/// What a test wants to be different.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    retry_delays: [&'static str; 3],
    attempt_timeout: &'static str,
    environment: Vec<(String, String)>,
    open_files: Option<&'static str>,
    tables: String,
}

impl Default for Config {
    /// The schedule in tenths of seconds; a deadline that no machine under load misses by accident.
    fn default() -> Self {
        Self {
            retry_delays: ["100ms", "200ms", "300ms"],
            attempt_timeout: "30s",
            environment: Vec::new(),
            open_files: None,
            tables: String::new(),
        }
    }
}

impl Config {
    /// Other pauses between the attempts.
    pub(crate) fn retry_delays(mut self, delays: [&'static str; 3]) -> Self {
        self.retry_delays = delays;
        self
    }

    /// Another deadline of an attempt.
    pub(crate) fn attempt_timeout(mut self, timeout: &'static str) -> Self {
        self.attempt_timeout = timeout;
        self
    }

    /// A variable in the process's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Another limit of open files, as the arguments of the shell's `ulimit`.
    pub(crate) fn open_files(mut self, limit: &'static str) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// More tables of the configuration file: sources, routes, destinations.
    pub(crate) fn with(mut self, tables: &str) -> Self {
        self.tables.push_str(tables);
        self.tables.push('\n');
        self
    }

    fn to_toml(&self, store: &str) -> String {
        format!(
            "listen = \"127.0.0.1:0\"\nstore = \"{store}\"\n\n[sender]\nretry_delays = {:?}\n\
             attempt_timeout = {:?}\n\n[sender.targets]\nallow = [\"127.0.0.0/8\"]\nallow_http = true\n\n{}",
            self.retry_delays, self.attempt_timeout, self.tables
        )
    }
}

/// A running program with its directory.
pub(crate) struct Server {
    process: Process, // ends before what it works in
    dir: Arc<TempDir>,
    config: Config,
    store: Store,
}

/// Which store the programs of the tests have: `postgres`, or (unset) a file of their own.
const STORE: &str = "HIKYAKU_TEST_STORE";

/// Whether the programs of the tests have their store in PostgreSQL, and so no file that a test could look into.
pub(crate) fn on_postgres() -> bool {
    std::env::var(STORE).is_ok_and(|store| store == "postgres")
}

/// Where a program keeps everything: what is in a directory belongs together, and so does a database.
#[derive(Clone)]
enum Store {
    File,
    Database(Arc<TestDatabase>),
    /// A database that the test itself looks after.
    At(String),
}

impl Store {
    /// That of the programs in a directory.
    async fn of(dir: &Path) -> Self {
        static DATABASES: Mutex<BTreeMap<PathBuf, Weak<TestDatabase>>> = Mutex::new(BTreeMap::new());
        if !on_postgres() {
            return Self::File;
        }
        if let Some(known) = DATABASES.lock().unwrap().get(dir).and_then(Weak::upgrade) {
            return Self::Database(known);
        }
        let database = Arc::new(TestDatabase::create().await);
        DATABASES.lock().unwrap().insert(dir.to_owned(), Arc::downgrade(&database));
        Self::Database(database)
    }

    fn url(&self) -> String {
        match self {
            Self::File => "sqlite:hikyaku.db".to_owned(),
            Self::Database(database) => database.url(),
            Self::At(url) => url.clone(),
        }
    }
}

impl Server {
    /// Starts the program in a fresh directory and waits until it listens.
    pub(crate) async fn start(config: Config) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), config).await
    }

    /// Starts it in a directory that a test has prepared.
    pub(crate) async fn start_in(dir: Arc<TempDir>, config: Config) -> Self {
        let store = Store::of(dir.path()).await;
        let process = Process::spawn(dir.path(), &config, &store).await.listening();
        Self { dir, config, store, process }
    }

    /// The same, whether it comes to listen or ends before that.
    pub(crate) async fn start_or_not(dir: Arc<TempDir>, config: Config) -> Self {
        let store = Store::of(dir.path()).await;
        let process = Process::spawn(dir.path(), &config, &store).await;
        Self { dir, config, store, process }
    }

    /// Whether it has come to listen.
    pub(crate) fn listens(&self) -> bool {
        self.process.addr.is_some()
    }

    /// Starts one of several nodes over the database at this URL, in a fresh directory.
    pub(crate) async fn node(url: &str, config: Config) -> Self {
        let (dir, store) = (Arc::new(tempfile::tempdir().unwrap()), Store::At(url.to_owned()));
        let process = Process::spawn(dir.path(), &config, &store).await.listening();
        Self { dir, config, store, process }
    }

    /// Starts a node that must refuse to run; gives its exit code and what it said.
    pub(crate) fn refused_node(url: &str, config: &Config) -> (Option<i32>, String) {
        let dir = tempfile::tempdir().unwrap();
        let output = command(dir.path(), config, &Store::At(url.to_owned())).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts another one in the same directory, which must refuse to run; gives its exit code and what it said.
    pub(crate) fn refused_beside(&self) -> (Option<i32>, String) {
        let output = command(self.dir.path(), &self.config, &self.store).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A client of its API.
    pub(crate) fn api(&self) -> Api {
        Api::new(self.process.addr())
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.process.addr()
    }

    /// A file in its directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What it has said so far; all of it, once it has ended.
    pub(crate) fn log(&self) -> String {
        self.process.log.lock().unwrap().clone()
    }

    /// Sends a signal by its name, as in `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill9(&mut self) {
        self.signal("KILL");
        self.exit().await;
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn sigterm(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.exit().await
    }

    /// Waits until it has ended.
    pub(crate) async fn exit(&mut self) -> ExitStatus {
        let mut ended = self.process.ended.clone();
        within("the program's end", ended.wait_for(|ended| *ended)).await.unwrap();
        self.process.child.wait().unwrap()
    }

    /// Starts it again on the same directory, killing it first if it runs.
    pub(crate) async fn restart(&mut self) {
        self.process.stop();
        self.process = Process::spawn(self.dir.path(), &self.config, &self.store).await.listening();
    }

    /// Starts it again with another configuration; whether it listens, and has not ended before that. What it did alone
    /// among several nodes it may do again at once: the lease of its last life is over, as after a while.
    pub(crate) async fn restart_as(&mut self, config: Config) -> bool {
        self.process.stop();
        if let Store::Database(database) = &self.store {
            // The program may have died before there was such a table.
            let _ = database.client().await.execute("DELETE FROM duties", &[]).await;
        }
        self.config = config;
        self.process = Process::spawn(self.dir.path(), &self.config, &self.store).await;
        self.listens()
    }
}

struct Process {
    child: Child,
    /// `None`: it ended before it listened.
    addr: Option<SocketAddr>,
    log: Arc<Mutex<String>>,
    ended: watch::Receiver<bool>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    async fn spawn(dir: &Path, config: &Config, store: &Store) -> Self {
        let mut child = command(dir, config, store).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (address, mut listening) = watch::channel(None);
        let (end, ended) = watch::channel(false);
        let stderr = child.stderr.take().unwrap();
        let reader = std::thread::spawn({
            let log = log.clone();
            move || follow(stderr, &log, &address, &end)
        });
        let addr = within("the program to listen", listening.wait_for(Option::is_some)).await.ok().and_then(|a| *a);
        Self { child, addr, log, ended, reader: Some(reader) }
    }

    /// It, as it listens.
    fn listening(self) -> Self {
        assert!(self.addr.is_some(), "it ended before it listened:\n{}", self.log.lock().unwrap());
        self
    }

    fn addr(&self) -> SocketAddr {
        self.addr.expect("it ended before it listened")
    }

    /// Kills it and reads its log to the end.
    fn stop(&mut self) {
        // Fails when it has ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- the program's log\n{}", self.log.lock().unwrap());
            return;
        }
        let log = self.log.lock().unwrap();
        assert!(!log.contains("panicked at"), "the program panicked:\n{log}");
        assert!(
            !log.contains(SOURCE_SECRET) && !log.contains("whsec_") && !log.contains("hik_"),
            "a secret stands in the log:\n{log}"
        );
    }
}

/// The program, to be started in this directory with this configuration.
fn command(dir: &Path, config: &Config, store: &Store) -> Command {
    std::fs::write(dir.join("hikyaku.toml"), config.to_toml(&store.url())).unwrap();
    let program = env!("CARGO_BIN_EXE_hikyaku");
    let mut command = match config.open_files {
        None => Command::new(program),
        Some(limit) => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\""), program]);
            shell
        }
    };
    command
        .args(["serve", "--config", "hikyaku.toml"])
        .current_dir(dir)
        // S6: a proxy from the environment is never used; through this one nothing would arrive.
        .envs(["http_proxy", "https_proxy", "all_proxy"].map(|name| (name, "http://127.0.0.1:9")))
        .envs(config.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Keeps the log, and tells when the program listens and when it has ended.
fn follow(
    stderr: ChildStderr,
    log: &Mutex<String>,
    address: &watch::Sender<Option<SocketAddr>>,
    end: &watch::Sender<bool>,
) {
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        if address.borrow().is_none() {
            address.send_replace(listening_at(&line));
        }
        let mut log = log.lock().unwrap();
        log.push_str(&line);
        log.push('\n');
    }
    end.send_replace(true);
}

/// The address in the line that says that it listens.
fn listening_at(line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let fields = line.get("fields").unwrap_or(&line);
    (fields["message"] == "listening").then(|| fields["addr"].as_str()?.parse().ok())?
}
