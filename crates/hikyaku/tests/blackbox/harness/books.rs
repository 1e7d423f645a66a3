//! The user's database with the table `sales`, SQLite or PostgreSQL: tests of the `sql` destination run on both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::door::Door;
use super::postgres::{TestDatabase, server_directory};
use super::{Config, Sale, Server, fresh_sales_table, sales_to_sql};

/// A database with the table `sales`, and a trigger that writes down every effect: the ledger E.
pub(crate) struct Books {
    dir: Arc<TempDir>,
    postgres: Option<(TestDatabase, Door)>,
}

/// The name of the variable with the database's URL.
const URL: &str = "BOOKS_URL";

impl Books {
    /// A file beside the program's own.
    pub(crate) async fn sqlite() -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        fresh_sales_table(dir.path());
        Self { dir, postgres: None }
    }

    /// A database of a server, behind a door.
    pub(crate) async fn postgres() -> Self {
        let database = TestDatabase::create().await;
        let schema = "
            CREATE TABLE sales (id text PRIMARY KEY, total integer, event text, biz numeric);
            CREATE TABLE effects (n serial PRIMARY KEY, id text, event text);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO effects (id, event) VALUES (new.id, new.event); RETURN new; END';
            CREATE TRIGGER noted AFTER INSERT OR UPDATE ON sales FOR EACH ROW EXECUTE FUNCTION note()";
        database.client().await.batch_execute(schema).await.unwrap();
        let door = Door::to(address(&database.url()).to_owned()).await;
        Self { dir: Arc::new(tempfile::tempdir().unwrap()), postgres: Some((database, door)) }
    }

    /// The program with a source whose sales go to this table.
    pub(crate) async fn serve(&self, more: &str) -> Server {
        Server::start_in(self.dir.clone(), self.config(more)).await
    }

    /// The configuration of that program.
    pub(crate) fn config(&self, more: &str) -> Config {
        let config = Config::default().with(more);
        match &self.postgres {
            None => config.with(&sales_to_sql()),
            Some(_) => self.leads_to_postgres(config, ""),
        }
    }

    /// The directory that the program has to be started in.
    #[cfg(feature = "crash-points")]
    pub(crate) fn dir(&self) -> &Arc<TempDir> {
        &self.dir
    }

    /// A node over the database of this URL with that source.
    pub(crate) async fn node(&self, store: &str, more: &str) -> Server {
        Server::node(store, self.leads_to_postgres(Config::default().with(more), "")).await
    }

    /// The same, over TLS with a server whose certificate the program trusts.
    pub(crate) async fn serve_over_tls(&self) -> Server {
        let certificate = server_directory().canonicalize().unwrap().join("server.crt");
        let config = self.leads_to_postgres(Config::default(), "?sslmode=verify-full");
        let config = config.env("SSL_CERT_FILE", certificate.to_str().unwrap());
        Server::start_in(self.dir.clone(), config).await
    }

    fn leads_to_postgres(&self, config: Config, parameters: &str) -> Config {
        let url = self.database().url().replace(address(&self.database().url()), &self.door().addr().to_string());
        let tables = sales_to_sql().replace("sqlite:books.db", &format!("env:{URL}"));
        config.with(&tables).env(URL, &format!("{url}{parameters}"))
    }

    /// The database of PostgreSQL.
    pub(crate) fn database(&self) -> &TestDatabase {
        &self.postgres.as_ref().expect("SQLite has none").0
    }

    /// The door in front of PostgreSQL.
    pub(crate) fn door(&self) -> &Door {
        &self.postgres.as_ref().expect("SQLite has no door").1
    }

    /// The password of PostgreSQL's user.
    pub(crate) fn password(&self) -> String {
        let url = self.database().url();
        let credentials = url.split_once("://").and_then(|(_, rest)| rest.split('@').next()).unwrap();
        credentials.split_once(':').unwrap().1.to_owned()
    }

    /// The file of SQLite.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("books.db")
    }

    /// Takes the database away.
    pub(crate) fn go_down(&self) {
        match &self.postgres {
            None => std::fs::rename(self.file(), away(self.dir.path())).unwrap(),
            Some((_, door)) => door.shut(),
        }
    }

    /// Puts it back.
    pub(crate) fn come_back(&self) {
        match &self.postgres {
            None => std::fs::rename(away(self.dir.path()), self.file()).unwrap(),
            Some((_, door)) => door.open(),
        }
    }

    /// The table `sales`, by key.
    pub(crate) async fn sales(&self) -> Vec<Sale> {
        let rows =
            self.read("SELECT id, CAST(total AS text), event, CAST(biz AS text) FROM sales ORDER BY id", 4).await;
        let sale = |row: Vec<Option<String>>| {
            let [id, total, event, biz] = row.try_into().unwrap();
            Sale { id: id.unwrap(), total: total.map(|t| t.parse().unwrap()), event: event.unwrap(), biz }
        };
        rows.into_iter().map(sale).collect()
    }

    /// Every write to the table `sales`, in its order: the key and the event that did it.
    pub(crate) async fn effects(&self) -> Vec<(String, String)> {
        let rows = self.read("SELECT id, event FROM effects ORDER BY n", 2).await;
        rows.into_iter().map(|mut row| (row[0].take().unwrap(), row[1].take().unwrap())).collect()
    }

    /// What a query gives, as text.
    async fn read(&self, query: &str, columns: usize) -> Vec<Vec<Option<String>>> {
        if let Some((database, _)) = &self.postgres {
            let rows = database.client().await.query(query, &[]).await.unwrap();
            return rows.iter().map(|row| (0..columns).map(|n| row.get(n)).collect()).collect();
        }
        let books = Connection::open(self.file()).unwrap();
        let mut statement = books.prepare(query).unwrap();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|n| row.get(n)).collect();
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }
}

/// `host:port` of a URL.
fn address(url: &str) -> &str {
    url.rsplit('@').next().and_then(|rest| rest.split('/').next()).unwrap()
}

fn away(dir: &Path) -> PathBuf {
    dir.join("away.db")
}
