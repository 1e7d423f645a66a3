//! Where everything is kept, and what this node does with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hikyaku_core::signature::Secret;

use super::section::Section;
use super::tree::{Node, Place, Value};
use super::value::{boolean, choice, database_url, integer, secret, sqlite_path};
use super::{Config, Database, StoreLocation};
use crate::inbox::destination;
use crate::postgres;
use crate::role::{Role, Roles};
use crate::store::seal::{MAX_SEALING_KEYS, Seal, SealingKey};

/// Connections of a node to the store's database, unless it is told otherwise.
const DATABASE_CONNECTIONS: usize = 16;
/// Most of them that can be asked for.
const MAX_DATABASE_CONNECTIONS: i64 = 1000;

pub(super) fn store(root: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Option<StoreLocation> {
    let use_of = root.table("database", |section| {
        let connections = section.get("connections", integer(2..=MAX_DATABASE_CONNECTIONS));
        Use {
            connections: connections.unwrap_or(DATABASE_CONNECTIONS),
            migrate: section.get("migrate", boolean).unwrap_or(true),
            notify: section.get("notify", boolean).unwrap_or(true),
        }
    });
    root.get("store", |node| location(database_url(environment)(node)?, use_of))
}

/// How a database is used.
#[derive(Clone, Copy)]
struct Use {
    connections: usize,
    migrate: bool,
    notify: bool,
}

/// The store that a URL leads to, which may hold a password.
fn location(url: Secret, Use { connections, migrate, notify }: Use) -> Result<StoreLocation, String> {
    match url.reveal() {
        "memory:" => Ok(StoreLocation::Memory),
        text if postgres::is_url(text) => {
            postgres::check_url(text)?;
            Ok(StoreLocation::Postgres(Database { url, connections, migrate, notify }))
        }
        text => sqlite_path(text).map(StoreLocation::Sqlite),
    }
}

impl StoreLocation {
    /// Reads what the setting `store` can be, `env:NAME` and `file:PATH` included; the rest of a database's settings is as
    /// where nothing is set.
    ///
    /// # Errors
    /// Says what it must be, to follow its name.
    pub fn parse(written: &str, environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let place = Place::Named("the command line".into());
        let node = Node { place, value: Value::Text(written.to_owned()), raw: None };
        let use_of = Use { connections: DATABASE_CONNECTIONS, migrate: true, notify: true };
        location(database_url(environment)(&node)?, use_of)
    }
}

pub(super) fn roles(root: &mut Section<'_>) -> Option<Roles> {
    const ROLES: &[(&str, Role)] = &[
        ("sender", Role::Sender),
        ("inbox", Role::Inbox),
        ("worker", Role::Worker),
        ("api", Role::Api),
        ("reconcile", Role::Reconcile),
    ];
    let roles = root.list("roles", choice(ROLES))?;
    if roles.is_empty() {
        root.problem("roles", "is empty; a node that does nothing is of no use");
    }
    Some(Roles::new(roles))
}

/// S15: a store that serves other machines holds no secret in the open.
pub(super) fn check_sealed(root: &mut Section<'_>, config: &Config) {
    let keeps_open = config.store != StoreLocation::Memory && !root.has("sealing_key");
    if !config.listen.ip().is_loopback() && keeps_open {
        let message = format!(
            "is {}, which other machines can reach, and the secrets in the store are not sealed; set `sealing_key` (or \
             the variable HIKYAKU_SEALING_KEY) to what `openssl rand -hex 32` prints and keep it apart from the store, \
             or listen on 127.0.0.1",
            config.listen
        );
        root.problem("listen", &message);
    }
}

pub(super) fn seal(root: &mut Section<'_>, environment: &BTreeMap<String, String>) -> Seal {
    let key = |node: &_| {
        let key = secret(environment)(node)?;
        SealingKey::parse(key.reveal()).map_err(|error| error.to_string())
    };
    let present = root.get("sealing_key", key);
    let old = root.list("old_sealing_keys", key).unwrap_or_default();
    if !old.is_empty() && !root.has("sealing_key") {
        root.problem("old_sealing_keys", "is of no use without `sealing_key`, the key that seals from now on");
    }
    if old.len() >= MAX_SEALING_KEYS {
        let most = MAX_SEALING_KEYS - 1;
        root.problem("old_sealing_keys", &format!("has {} keys; at most {most} are allowed", old.len()));
    }
    Seal::new(present.into_iter().chain(old).collect())
}

/// A destination's rows and our own must not share a file: ours is written by one connection only.
pub(super) fn check_files(root: &mut Section<'_>, config: &Config) {
    let StoreLocation::Sqlite(own) = &config.store else { return };
    for destination in &config.destinations {
        let path = match &destination.kind {
            destination::Kind::Sql { url, .. } => sqlite_path(url.reveal()).ok(),
            destination::Kind::File(file) => Some(file.path.clone()),
            _ => None,
        };
        if path.is_some_and(|path| real(&path) == real(own)) {
            let name = &destination.name;
            root.problem(
                "destination",
                &format!("{name:?} writes into the store's own file; give it a file of its own"),
            );
        }
    }
}

/// Where a path leads, as far as it exists: `x.db`, `./x.db` and a link to it are one file.
fn real(path: &Path) -> PathBuf {
    let whole = path.canonicalize();
    let of_directory = || Some(path.parent()?.join(".").canonicalize().ok()?.join(path.file_name()?));
    whole.ok().or_else(of_directory).unwrap_or_else(|| path.to_owned())
}
