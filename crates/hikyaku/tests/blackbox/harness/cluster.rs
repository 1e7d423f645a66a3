//! A PostgreSQL cluster of one test's own, which it may restart, kill, copy to a standby and promote.

use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio_postgres::{Client, NoTls};

use super::eventually;

/// A server with its data. It ends with this value, or with the thread that has started it.
pub(crate) struct Cluster {
    home: TempDir,
    password: String,
    port: u16,
    server: Child,
}

impl Cluster {
    /// A new one that runs.
    pub(crate) async fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let password = random_password();
        std::fs::write(home.path().join("password"), &password).unwrap();
        let options = ["--pgdata=data", "--username=hikyaku", "--pwfile=password", "--auth=scram-sha-256"];
        run(home.path(), "initdb", &[&options[..], &["--encoding=UTF8", "--locale=C"]].concat()).await;
        Self::serving(home, password).await
    }

    /// A standby of this one, without which it commits nothing from now on.
    pub(crate) async fn synchronous_standby(&self) -> Self {
        let home = tempfile::tempdir().unwrap();
        let options = ["--pgdata=data", "--write-recovery-conf", "--checkpoint=fast", "--dbname"];
        run(home.path(), "pg_basebackup", &[&options[..], &[&self.url()]].concat()).await;
        let standby = Self::serving(home, self.password.clone()).await;
        let client = self.client().await.unwrap();
        client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let is_synchronous = "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually("the standby to be synchronous", async || client.query_opt(is_synchronous, &[]).await.unwrap())
            .await;
        standby
    }

    async fn serving(home: TempDir, password: String) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = serve(home.path(), port);
        let mut this = Self { home, password, port, server };
        this.wait_until_up().await;
        this
    }

    async fn wait_until_up(&mut self) {
        let up = eventually("PostgreSQL to answer", async || {
            let ended = self.server.try_wait().unwrap();
            (ended.is_some() || self.client().await.is_some()).then_some(ended.is_none())
        });
        let is_up = up.await;
        assert!(is_up, "{}", std::fs::read_to_string(self.home.path().join("log")).unwrap());
    }

    /// Host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://hikyaku:{}@{}/postgres", self.password, self.address())
    }

    async fn client(&self) -> Option<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// Ends it without a word to anybody, as a crash of its program does, and starts it again.
    pub(crate) async fn crash(&mut self) {
        self.end("QUIT").await;
        self.start_again().await;
    }

    /// Restarts it as an operator does: what is under way is cut off.
    pub(crate) async fn restart(&mut self) {
        self.end("INT").await;
        self.start_again().await;
    }

    async fn start_again(&mut self) {
        self.server = serve(self.home.path(), self.port);
        self.wait_until_up().await;
    }

    /// Kills all of its processes at once.
    pub(crate) async fn kill9(&mut self) {
        let id = self.server.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let all: Vec<_> = std::iter::once(id.to_string()).chain(children.split(' ').map(str::to_owned)).collect();
        // One of them may have ended meanwhile.
        Command::new("kill").arg("-KILL").args(all.iter().filter(|id| !id.is_empty())).status().unwrap();
        self.ended().await;
    }

    /// Makes a standby the primary.
    pub(crate) async fn promote(&self) {
        let client = self.client().await.unwrap();
        let promoted: bool = client.query_one("SELECT pg_promote()", &[]).await.unwrap().get(0);
        assert!(promoted);
    }

    async fn end(&mut self, signal: &str) {
        let id = self.server.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        self.ended().await;
    }

    async fn ended(&mut self) {
        eventually("PostgreSQL to end", async || self.server.try_wait().unwrap()).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.server.try_wait().is_ok_and(|ended| ended.is_none()) {
            // Whatever comes of it, the server also ends with us.
            let _ = Command::new("kill").args(["-QUIT", &self.server.id().to_string()]).status();
            let _ = self.server.wait();
        }
    }
}

fn random_password() -> String {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes.map(|byte| format!("{byte:02x}")).concat()
}

/// One of PostgreSQL's programs, as the user that it may run as.
fn program(home: &Path, program: &str) -> Command {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres");
    let mut command = Command::new(script);
    command.arg("run").arg(home).arg(program).stdin(Stdio::null());
    command
}

async fn run(home: &Path, name: &str, arguments: &[&str]) {
    let mut command = program(home, name);
    command.args(arguments);
    let output = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

fn serve(home: &Path, port: u16) -> Child {
    let log = File::options().create(true).append(true).open(home.join("log")).unwrap();
    let settings = ["listen_addresses=127.0.0.1", "fsync=on", "max_connections=100"];
    let mut command = program(home, "postgres");
    command.args(["-D", "data", "-p", &port.to_string(), "-k"]).arg(home);
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}
