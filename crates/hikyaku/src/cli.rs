//! The command line. `failure.rs` has the exit codes.

mod api;
mod check;
mod deliveries;
mod dry_run;
mod events;
mod explain;
mod failure;
mod inbox;
mod intervene;
mod output;
mod reconcile;
mod recover;
mod sandbox;
mod server;
mod store;
mod table;
mod tail;
mod token;
mod verify;
mod webhooks;

use std::collections::BTreeMap;
use std::env;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use hikyaku::app::App;
use hikyaku::clock::SystemClock;
use hikyaku::config::{self, Config, Flag, Inputs, StoreLocation};
use hikyaku::{demo, log};
use url::Url;

use failure::{EXIT_CODES, FAILED, WRONG_USE, failed};

/// How long threads that block may keep the process after everything else has ended.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// Sends and receives webhooks so that nothing is lost.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the sender, the inbox and the HTTP API, until SIGTERM or Ctrl-C
    Serve(Settings),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Bring the store's schema up to date, as a start does unless `database.migrate` is false
    Migrate(StoreSettings),
    /// Copy everything that is kept into another store
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Make, list and revoke API tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Register, change and watch webhooks; bring them what they missed
    Webhooks(webhooks::Webhooks),
    /// Publish events, look at one, follow what is sent
    Events(events::Events),
    /// Search what was sent, and send it again
    Deliveries(deliveries::Deliveries),
    /// Say why webhooks got an event, or did not
    Explain(explain::Explain),
    /// Look at what was received, and see to what ended badly
    Inbox(inbox::Inbox),
    /// Compare what was received with the provider's list, and get what is missing
    Reconcile(reconcile::Reconcile),
    /// Check a delivery's signature, from files
    Verify(verify::Verify),
    /// Play the provider, its weaknesses included, against any receiver
    Sandbox(sandbox::Sandbox),
    /// Check what a receiver, in any language, keeps of the contract, and how to mend it
    Check(Box<check::Check>),
    /// Watch the whole path at work for half a minute: published, delivered through failures, received, in a database
    Demo {
        /// An empty or new directory for the demo's files [default: one in the system's temporary directory]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Check the configuration and show what holds, defaults included and secrets hidden
    Check(Settings),
}

/// Where settings come from. A flag wins over a variable, a variable over the file, the file over the default.
#[derive(Debug, Args)]
struct Settings {
    #[command(flatten)]
    store: StoreSettings,
    /// Where to listen: an IP address and a port, 0 for a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// What this node does, of sender, inbox, worker, api and reconcile, with commas between them [default: all]
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    roles: Vec<String>,
}

/// The same, for what uses the store and serves nobody.
#[derive(Debug, Args)]
#[command(after_help = VARIABLES)]
struct StoreSettings {
    /// The configuration file [default: hikyaku.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to keep everything: sqlite:PATH, postgres://USER@HOST/DATABASE, memory: for trials, or env:NAME or file:PATH
    /// where it says so; other users of the machine see what is written here [default: sqlite:hikyaku.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Any setting by its path, as in sender.attempt_timeout=5s; can be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
}

impl From<StoreSettings> for Settings {
    fn from(store: StoreSettings) -> Self {
        Self { store, listen: None, roles: Vec::new() }
    }
}

const VARIABLES: &str = "Environment:\n  HIKYAKU_CONFIG   the configuration file\n  HIKYAKU_LOG      what is logged: info, \
                         or info,hikyaku::sender=debug\n  HIKYAKU_…        any setting, with __ between the levels of its \
                         path: HIKYAKU_SENDER__ATTEMPT_TIMEOUT=5s";

fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE, as in sender.attempt_timeout=5s".to_owned()),
    }
}

impl Settings {
    fn load(self) -> Result<Config, config::Invalid> {
        let StoreSettings { config, store, set } = self.store;
        let set = set.into_iter().map(|(path, value)| (format!("--set {path}"), path, value));
        let listen = self.listen.map(|value| ("--listen".to_owned(), "listen".to_owned(), value));
        let store = store.map(|value| ("--store".to_owned(), "store".to_owned(), value));
        let roles = (!self.roles.is_empty()).then(|| {
            let quoted: Vec<_> = self.roles.iter().map(|role| format!("{role:?}")).collect();
            ("--roles".to_owned(), "roles".to_owned(), format!("[{}]", quoted.join(", ")))
        });
        let flags =
            set.chain(listen).chain(store).chain(roles).map(|(written, path, value)| Flag { written, path, value });
        config::load(&Inputs { file: config, environment: variables(), flags: flags.collect() })
    }
}

/// The environment. A variable that is not UTF-8 is none of ours.
fn variables() -> BTreeMap<String, String> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

impl Cli {
    /// Does what the command line says.
    pub(crate) fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(settings) => with_config(settings, |config| in_runtime(serve(config))),
            Command::Config(ConfigCommand::Check(settings)) => with_config(settings, |config| {
                let file =
                    config.file.as_ref().map_or("no file, so defaults".into(), |file| file.display().to_string());
                if let Err(error) = log::print(format_args!("# ok: {file}\n{config}\n")) {
                    return failed(&error);
                }
                if config.api.token.is_none() && !config.listen.ip().is_loopback() {
                    log::tell(format_args!("{}\n", needs_token(&config)));
                }
                ExitCode::SUCCESS
            }),
            Command::Migrate(settings) => with_config(settings.into(), |config| in_runtime(migrate(config))),
            Command::Store(command) => command.run(),
            Command::Token(command) => command.run(),
            Command::Webhooks(webhooks) => webhooks.run(),
            Command::Events(events) => events.run(),
            Command::Deliveries(deliveries) => deliveries.run(),
            Command::Explain(explain) => explain.run(),
            Command::Inbox(inbox) => inbox.run(),
            Command::Reconcile(reconcile) => reconcile.run(),
            Command::Verify(verify) => verify.run(),
            Command::Sandbox(sandbox) => sandbox.run(),
            Command::Check(check) => check.run(),
            Command::Demo { dir } => in_runtime(show(dir)),
        }
    }
}

/// A receiver's address.
fn target(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("it must begin with http:// or https://".to_owned())
    }
}

/// Whether the store has a token is not looked at: a server may have it open.
fn needs_token(config: &Config) -> String {
    format!(
        "hikyaku: note: `listen` is {}, which other machines can reach, and `api.token` is not set, so the start is \
         refused unless the store has an API token (\"hikyaku token create --admin\")",
        config.listen
    )
}

fn with_config(settings: Settings, act: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    match settings.load() {
        Ok(config) => act(config),
        Err(invalid) => {
            log::tell(format_args!("hikyaku: {invalid}\n"));
            ExitCode::from(WRONG_USE)
        }
    }
}

fn in_runtime(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            runtime.shutdown_timeout(LAST_WAIT);
            code
        }
        Err(error) => failed(&error),
    }
}

async fn serve(config: Config) -> ExitCode {
    log::start(&config.log);
    match &config.file {
        Some(file) => tracing::info!(file = %file.display(), "configuration read"),
        None => tracing::info!("no configuration file: defaults, the environment and flags hold"),
    }
    // Before anything is opened, so that a signal during the start is not fatal to what has been begun.
    let shutdown = match shutdown() {
        Ok(shutdown) => shutdown,
        Err(error) => return failed(&error),
    };
    let app = match App::start(config, Arc::new(SystemClock::start())).await {
        Ok(app) => app,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            return ExitCode::from(FAILED);
        }
    };
    match app.run_until(shutdown).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "stopped by itself");
            ExitCode::from(FAILED)
        }
    }
}

async fn migrate(config: Config) -> ExitCode {
    let StoreLocation::Postgres(database) = &config.store else {
        log::tell(format_args!(
            "Only a store in PostgreSQL has anything to migrate; a file is brought up to date when it is opened.\n"
        ));
        return ExitCode::SUCCESS;
    };
    match hikyaku::store::postgres::migrate(database.url.reveal()).await {
        Ok((before, now)) if before == now => {
            log::tell(format_args!("The schema is of version {now}, as this program needs it.\n"));
            ExitCode::SUCCESS
        }
        Ok((before, now)) => {
            log::tell(format_args!("The schema was of version {before} and is of version {now} now.\n"));
            ExitCode::SUCCESS
        }
        Err(error) => failed(&error),
    }
}

async fn show(dir: Option<PathBuf>) -> ExitCode {
    match demo::run(dir).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => failed(&error),
    }
}

/// Ends when the process is asked to stop.
#[cfg(unix)]
fn shutdown() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "asked to stop");
    })
}

/// Ends when the process is asked to stop.
#[cfg(not(unix))]
fn shutdown() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        // Where Ctrl-C cannot be heard, only the end of the process is left.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
