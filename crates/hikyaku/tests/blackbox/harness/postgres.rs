//! A PostgreSQL for the tests: one server for all of them, and a database for each.
//!
//! To drop a database makes the server write everything to the disk, which took longer than most tests; so a database is
//! emptied at a test's end, and the next one goes on with it.
//!
//! The variable `HIKYAKU_TEST_POSTGRES` names a server to use, by a URL whose user may create databases. Without it
//! `tests/postgres` starts one below the temporary directory, which ends when no process of the tests is left. No other
//! server is ever used.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tokio_postgres::{Client, NoTls};

/// The names of the databases that are empty and nobody's; and numbers, so that no name comes twice.
const PREPARE: &str = "CREATE TABLE IF NOT EXISTS free_test_databases (name text PRIMARY KEY);
    CREATE SEQUENCE IF NOT EXISTS test_databases";
const NEXT_NAME: &str = "SELECT 'hikyaku_test_' || nextval('test_databases')";
/// Whoever takes a name out of the table has the database.
const TAKE_FREE: &str = "DELETE FROM free_test_databases
    WHERE name = (SELECT name FROM free_test_databases LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING name";

/// A database of a test's own.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// An empty one.
    pub(crate) async fn create() -> Self {
        let server = tokio::task::spawn_blocking(server_url).await.unwrap();
        let admin = connect(&server).await;
        // Fails where another makes it at the same moment.
        let _ = admin.batch_execute(PREPARE).await;
        if let Some(free) = admin.query_opt(TAKE_FREE, &[]).await.unwrap() {
            return Self { server, name: free.get(0) };
        }
        let name: String = admin.query_one(NEXT_NAME, &[]).await.unwrap().get(0);
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        Self { server, name }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        url(&self.server, &self.name)
    }

    /// A connection to it, as the user's own program has one.
    pub(crate) async fn client(&self) -> Client {
        connect(&self.url()).await
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        let give_back = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(give_back(&server, &name))
        };
        // A thread of its own, because this one may be a runtime's. A database that is not given back goes with its server.
        let _ = std::thread::spawn(give_back).join();
    }
}

/// Leaves a database as a new one is.
async fn give_back(server: &str, name: &str) -> Result<(), tokio_postgres::Error> {
    let admin = connect(server).await;
    let others = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1";
    admin.query(others, &[&name]).await?;
    // Whoever still knows the old name finds nothing.
    let new: String = admin.query_one(NEXT_NAME, &[]).await?.get(0);
    admin.batch_execute(&format!("ALTER DATABASE {name} RENAME TO {new}")).await?;
    admin.batch_execute(&format!("ALTER DATABASE {new} RESET ALL")).await?;
    let database = connect(&url(server, &new)).await;
    let schemas = "SELECT quote_ident(nspname) FROM pg_namespace
        WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'";
    for schema in database.query(schemas, &[]).await? {
        database.batch_execute(&format!("DROP SCHEMA {} CASCADE", schema.get::<_, &str>(0))).await?;
    }
    // As PostgreSQL makes it.
    let public = "CREATE SCHEMA public AUTHORIZATION pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC";
    database.batch_execute(public).await?;
    admin.execute("INSERT INTO free_test_databases VALUES ($1)", &[&new]).await?;
    Ok(())
}

fn url(server: &str, database: &str) -> String {
    let (server, parameters) = server.split_once('?').unwrap_or((server, ""));
    let (server, _) = server.rsplit_once('/').unwrap();
    let parameters = if parameters.is_empty() { String::new() } else { format!("?{parameters}") };
    format!("{server}/{database}{parameters}")
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
