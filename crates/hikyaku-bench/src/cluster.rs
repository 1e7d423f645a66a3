//! A PostgreSQL server of our own, thrown away at the end.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use crate::{Error, machine};

/// A running server.
pub(crate) struct Cluster {
    dir: TempDir,
    /// Without its database.
    url: String,
    keeper: u32,
    databases: usize,
    /// Says that somebody uses it.
    _users: File,
}

impl Cluster {
    pub(crate) fn start() -> Result<Self, Error> {
        let dir = tempfile::tempdir()?;
        let users = File::create(dir.path().join("users"))?;
        users.lock_shared()?;
        if !Command::new(script()).arg("start").arg(dir.path()).status()?.success() {
            return Err("PostgreSQL could not be started; see above".into());
        }
        let read = |name| std::fs::read_to_string(dir.path().join(name));
        let keeper = read("keeper")?.trim().parse()?;
        let url = read("url")?;
        let (url, _) = url.rsplit_once('/').ok_or("an unknown kind of URL")?;
        Ok(Self { url: url.to_owned(), keeper, databases: 0, _users: users, dir })
    }

    /// A new database's URL.
    pub(crate) async fn database(&mut self) -> Result<String, Error> {
        self.databases += 1;
        let name = format!("bench_{}", self.databases);
        connect(&self.url_of("postgres")).await?.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        Ok(self.url_of(&name))
    }

    fn url_of(&self, database: &str) -> String {
        format!("{}/{database}?sslmode=disable", self.url)
    }

    /// The CPU time of all of its processes.
    pub(crate) fn cpu(&self) -> Result<Duration, Error> {
        Ok(machine::cpu_of_tree(self.keeper)?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // What does not stop now stops by itself when nobody uses it.
        let _ = Command::new(script()).arg("stop").arg(self.dir.path()).status();
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres")
}

/// A connection to a database.
pub(crate) async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}
