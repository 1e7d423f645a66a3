//! A PostgreSQL for the tests: one server for all of them, and a database for each.
//!
//! The variable `HIKYAKU_TEST_POSTGRES` names a server to use, by a URL whose user may create databases. Without it
//! `tests/postgres` starts one below the temporary directory, which ends when no process of the tests is left. No other
//! server is ever used.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, NoTls};

/// A database of a test's own, dropped at its end.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// An empty one.
    pub(crate) async fn create() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let server = tokio::task::spawn_blocking(server_url).await.unwrap();
        let name = format!("test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let admin = connect(&server).await;
        // A process of the same number may have been killed before it could tidy up.
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await.unwrap();
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { server, name }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        let (server, parameters) = self.server.split_once('?').unwrap_or((&self.server, ""));
        let (server, _) = server.rsplit_once('/').unwrap();
        let parameters = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
        format!("{server}/{}{parameters}", self.name)
    }

    /// A connection to it, as the user's own program has one.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url()).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let drop = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let statement = format!("DROP DATABASE {name} WITH (FORCE)");
            runtime.block_on(async { connect(&server).await.batch_execute(&statement).await })
        };
        // A thread of its own, because this one may be a runtime's. A database that stays goes with its server.
        let _ = std::thread::spawn(drop).join();
    }
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The server, started if there is none.
fn server_url() -> String {
    std::env::var("HIKYAKU_TEST_POSTGRES").unwrap_or_else(|_| own_server().to_owned())
}

/// Where our own server keeps its URL and its certificate.
pub(crate) fn server_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-postgres")
}

/// The URL of our own server. It stays for as long as this process lives.
pub(crate) fn own_server() -> &'static str {
    static SERVER: OnceLock<(String, File)> = OnceLock::new();
    let (url, _users) = SERVER.get_or_init(|| {
        let directory = server_directory();
        std::fs::create_dir_all(&directory).unwrap();
        // One process at a time looks for the server and starts it.
        let starting = File::create(directory.join("starting")).unwrap();
        starting.lock().unwrap();
        // Held until this process ends, however it ends; then the server knows that nobody uses it.
        let users = File::create(directory.join("users")).unwrap();
        users.lock_shared().unwrap();
        let url = directory.join("url");
        if !std::fs::read_to_string(&url).is_ok_and(|url| answers(&url)) {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres");
            let started = Command::new(script).arg("start").arg(&directory).status().unwrap();
            assert!(started.success(), "the tests need a PostgreSQL server; see above");
        }
        (std::fs::read_to_string(&url).unwrap().trim().to_owned(), users)
    });
    url
}

/// Whether somebody listens there: a server that was killed leaves its URL behind.
fn answers(url: &str) -> bool {
    let address = url.rsplit('@').next().and_then(|rest| rest.split('/').next());
    address.is_some_and(|address| std::net::TcpStream::connect(address).is_ok())
}
