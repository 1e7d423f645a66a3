//! The configuration: one TOML file, overridden by `HIKYAKU_…` variables, overridden by flags. Whatever cannot be as it
//! is written is refused with its place and the reason, all of it in one go; what is read is whole and possible.
//!
//! The tables are walked by hand and not derived: a derived reader stops at the first problem and cannot tell a value
//! of the file from one of the environment.

mod destination;
mod fetch;
mod read;
mod reconcile;
mod section;
mod show;
mod source;
mod store;
#[cfg(test)]
mod tests;
mod tree;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hikyaku_core::signature::Secret;

use crate::inbox;
use crate::role::Roles;
use crate::store::seal::Seal;
use crate::{heartbeat, log, retention, sender, trace};
use tree::{Source, Table};

pub use show::shown_destinations;
pub use tree::Place;

/// The file that is read when no other is named, if it exists in the working directory.
pub const DEFAULT_FILE: &str = "hikyaku.toml";
/// Largest configuration file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// What the names of all variables that override settings begin with.
pub const VARIABLE_PREFIX: &str = "HIKYAKU_";

/// Everything that can be set, checked and complete. [`Config::default`] is what holds with no file at all.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it was read from, if any.
    pub file: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where everything is kept.
    pub store: StoreLocation,
    /// What this node does.
    pub roles: Roles,
    /// What the secrets in the store are sealed with (S15).
    pub seal: Seal,
    /// The HTTP API.
    pub api: Api,
    /// The sender.
    pub sender: sender::Settings,
    /// The inbox.
    pub inbox: inbox::Settings,
    /// Where deliveries come from.
    pub sources: Vec<inbox::Source>,
    /// Which rows go where.
    pub routes: Vec<inbox::Route>,
    /// Where rows take effect.
    pub destinations: Vec<inbox::destination::Settings>,
    /// What is logged, and how.
    pub log: log::Settings,
    /// Where traces go.
    pub tracing: trace::Settings,
    /// How long things are kept.
    pub retention: retention::Settings,
    /// When an absence counts as an outage.
    pub heartbeat: heartbeat::Settings,
    /// Which lists complete what was received.
    pub reconciles: Vec<crate::reconcile::Settings>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            file: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            store: StoreLocation::Sqlite(PathBuf::from("hikyaku.db")),
            roles: Roles::default(),
            seal: Seal::default(),
            api: Api::default(),
            sender: sender::Settings::default(),
            inbox: inbox::Settings::default(),
            sources: Vec::new(),
            routes: Vec::new(),
            destinations: Vec::new(),
            log: log::Settings::default(),
            tracing: trace::Settings::default(),
            retention: retention::Settings::default(),
            heartbeat: heartbeat::Settings::default(),
            reconciles: Vec::new(),
        }
    }
}

impl Config {
    /// Reads a configuration from a text alone, with no environment and no flags.
    ///
    /// # Errors
    /// Every problem found, each with its place.
    pub fn from_toml(text: &str) -> Result<Self, Invalid> {
        Self::from_toml_with(text, &BTreeMap::new())
    }

    /// Reads a configuration from a text alone, whose secrets may name environment variables; nothing is overridden.
    ///
    /// # Errors
    /// Every problem found, each with its place.
    pub fn from_toml_with(text: &str, environment: &BTreeMap<String, String>) -> Result<Self, Invalid> {
        let name: Arc<str> = "configuration".into();
        let table = Source { file: Arc::clone(&name), text }.parse().map_err(Invalid)?;
        checked(table, name, environment, Vec::new())
    }
}

/// How the HTTP API behaves.
#[derive(Debug, Clone)]
pub struct Api {
    /// An admin token beside those in the store, which opens everything.
    pub token: Option<Secret>,
    /// Largest body of one published event, in bytes.
    pub max_event_bytes: usize,
}

impl Default for Api {
    fn default() -> Self {
        Self { token: None, max_event_bytes: 256 * 1024 }
    }
}

/// Where everything is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreLocation {
    /// In this SQLite file.
    Sqlite(PathBuf),
    /// In a PostgreSQL database, shared by any number of nodes.
    Postgres(Database),
    /// In memory, for trials: nothing survives the process.
    Memory,
}

/// A PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// Where it is; it may hold a password.
    pub url: Secret,
    /// Most connections of this node.
    pub connections: usize,
    /// Whether a start brings the schema up to date.
    pub migrate: bool,
    /// Whether nodes tell each other what is due.
    pub notify: bool,
}

/// What there is to read from.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// The process's environment variables.
    pub environment: BTreeMap<String, String>,
    /// Settings given as flags, in their order: the flag as it was written, the setting's path and its value.
    pub flags: Vec<Flag>,
}

/// A setting given as a flag.
#[derive(Debug, Clone)]
pub struct Flag {
    /// The flag as a person wrote it, for messages.
    pub written: String,
    /// The setting's path, its levels joined by dots.
    pub path: String,
    /// The value, as TOML or as plain text.
    pub value: String,
}

/// Something that cannot be as it is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// Which setting, and what it must be.
    pub message: String,
}

/// Everything that is wrong with a configuration, in the order of its places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid(pub Vec<Problem>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration cannot be used:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {}: {}", problem.place, problem.message))
    }
}

/// Reads the file, lays the environment over it and the flags over both, and checks what comes out.
///
/// # Errors
/// Every problem found, each with its place. Only a file that cannot be parsed hides what else is wrong.
pub fn load(inputs: &Inputs) -> Result<Config, Invalid> {
    let variable = inputs.environment.get("HIKYAKU_CONFIG").filter(|file| !file.is_empty());
    let named = inputs.file.clone().or_else(|| variable.map(PathBuf::from));
    let file = named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()));
    let name: Arc<str> = file.as_deref().unwrap_or(Path::new("the configuration")).to_string_lossy().into();
    let text = file.as_deref().map_or(Ok(String::new()), read_file).map_err(|error| {
        Invalid(vec![Problem { place: Place::Named(Arc::clone(&name)), message: format!("cannot be read: {error}") }])
    })?;
    read_text(name, &text, inputs).map(|config| Config { file, ..config })
}

pub(crate) fn read_text(name: Arc<str>, text: &str, inputs: &Inputs) -> Result<Config, Invalid> {
    let mut table = Source { file: Arc::clone(&name), text }.parse().map_err(Invalid)?;
    let problems = override_settings(&mut table, inputs);
    checked(table, name, &inputs.environment, problems)
}

fn checked(
    table: Table,
    name: Arc<str>,
    environment: &BTreeMap<String, String>,
    mut problems: Vec<Problem>,
) -> Result<Config, Invalid> {
    let config = read::config(table, Place::Named(name), environment, &mut problems);
    if problems.is_empty() {
        return Ok(config);
    }
    problems.sort();
    Err(Invalid(problems))
}

fn read_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

fn override_settings(table: &mut Table, inputs: &Inputs) -> Vec<Problem> {
    let variables = inputs.environment.iter().filter_map(|(name, value)| {
        Some((Place::Named(name.as_str().into()), path_of_variable(name)?, value.as_str()))
    });
    let flags = inputs
        .flags
        .iter()
        .map(|flag| (Place::Named(flag.written.as_str().into()), flag.path.clone(), flag.value.as_str()));
    let overrides = variables.chain(flags);
    overrides.filter_map(|(place, path, value)| tree::set(table, &path, value, place).err()).collect()
}

/// The setting that a variable overrides: `HIKYAKU_SENDER__ATTEMPT_TIMEOUT` is `sender.attempt_timeout`.
fn path_of_variable(name: &str) -> Option<String> {
    let path = name.strip_prefix(VARIABLE_PREFIX)?;
    match path {
        // The file itself, and what the commands are told that talk to a server.
        "CONFIG" | "SERVER" | "TOKEN" | "ORGANIZATION" => None,
        "LOG" => Some("log.level".to_owned()),
        // Left to test harnesses, which have to tell their own processes something.
        _ if path.starts_with("TEST_") => None,
        // What Kubernetes gives every pod beside a service that is named "hikyaku".
        "PORT" | "SERVICE_HOST" => None,
        _ if path.starts_with("PORT_") || path.starts_with("SERVICE_PORT") => None,
        _ => Some(path.to_lowercase().replace("__", ".")),
    }
}
