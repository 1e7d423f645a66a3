//! What the machine can do: HTTP without anything behind it, and rows with nothing in front.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hikyaku::clock::Stopwatch;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rusqlite::{Connection, params};
use tokio::task::JoinSet;

use super::{each, kib};
use crate::cluster::connect;
use crate::endpoint::Endpoint;
use crate::lab::{Lab, Limits};
use crate::report::{Measure, Row};
use crate::{Error, machine};

/// Connections over which the bare client sends.
const CONNECTIONS: usize = 64;
const SERVER_CPU: Measure = Measure::lower("CPU of a bare server (S)", "µs");
const CLIENT_CPU: Measure = Measure::lower("CPU of a bare client (C)", "µs");
const REQUESTS: Measure = Measure::higher("requests", "per second");
/// Rows to a commit, and how it is called.
const COMMITS: [(usize, Measure); 4] = [
    (1, Measure::higher("rows, 1 to a commit", "per second")),
    (10, Measure::higher("rows, 10 to a commit", "per second")),
    (100, Measure::higher("rows, 100 to a commit", "per second")),
    (1000, Measure::higher("rows, 1,000 to a commit", "per second")),
];

/// A server that answers, and nothing else: it prints its port, and ends when its standard input does.
pub(crate) async fn serve_bare() -> Result<(), Error> {
    println!("{}", Endpoint::start().await?.addr);
    tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop)).await?;
    Ok(())
}

struct Bare {
    addr: SocketAddr,
    child: Child,
}

impl Bare {
    fn start() -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg("bare").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        Ok(Self { addr: line.trim().parse()?, child })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) async fn http(lab: &mut Lab) -> Result<Row, Error> {
    let note = "A bare hyper server in a process of its own and a bare pooled hyper client in this one: POST of 1 KiB, keep-alive, 64 at a time.";
    let mut row = Row::new("limit: HTTP", note);
    let server = Bare::start()?;
    load(server.addr, lab.scale.load / 5).await?;
    for _ in 0..lab.scale.rounds {
        let own = std::process::id();
        let before = (machine::cpu(server.child.id())?, machine::cpu(own)?);
        let watch = Stopwatch::start();
        let requests = load(server.addr, lab.scale.load).await?;
        row.add(REQUESTS, requests as f64 / watch.elapsed().as_secs_f64());
        row.add(SERVER_CPU, each(machine::cpu(server.child.id())? - before.0, requests));
        row.add(CLIENT_CPU, each(machine::cpu(own)? - before.1, requests));
    }
    lab.limits = Limits { server: row.median(SERVER_CPU), client: row.median(CLIENT_CPU) };
    Ok(row)
}

async fn load(addr: SocketAddr, length: Duration) -> Result<u64, Error> {
    let client = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http::<Full<_>>();
    let (watch, body) = (Stopwatch::start(), kib());
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, body) = (client.clone(), body.clone());
        tasks.spawn(async move {
            let mut count = 0_u64;
            while watch.elapsed() < length {
                let request = Request::builder().method(Method::POST).uri(format!("http://{addr}/"));
                let answer = client.request(request.body(Full::new(body.clone()))?).await?;
                answer.into_body().collect().await?;
                count += 1;
            }
            Ok::<_, Error>(count)
        });
    }
    let mut requests = 0;
    while let Some(count) = tasks.join_next().await {
        requests += count??;
    }
    Ok(requests)
}

pub(super) fn commit_sqlite(lab: &Lab) -> Result<Row, Error> {
    let mut row = Row::new(
        "limit: commit, SQLite",
        "Rows of 1 KiB with a unique id in rising order, in WAL mode with `synchronous=FULL`.",
    );
    let (dir, body) = (tempfile::tempdir()?, kib());
    let mut db = Connection::open(dir.path().join("limit.db"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch("CREATE TABLE rows (id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID")?;
    let mut id = 0_u64;
    for _ in 0..lab.scale.rounds {
        for (rows, measure) in COMMITS {
            let (watch, mut count) = (Stopwatch::start(), 0);
            while watch.elapsed() < lab.scale.load / 4 {
                let transaction = db.transaction()?;
                for _ in 0..rows {
                    id += 1;
                    let mut insert = transaction.prepare_cached("INSERT INTO rows VALUES (?1, ?2)")?;
                    insert.execute(params![format!("{id:016x}"), &body[..]])?;
                }
                transaction.commit()?;
                count += rows;
            }
            row.add(measure, count as f64 / watch.elapsed().as_secs_f64());
        }
    }
    Ok(row)
}

pub(super) async fn commit_postgres(lab: &mut Lab) -> Result<Row, Error> {
    let note = "The same over one connection, each commit one statement over arrays.";
    let mut row = Row::new("limit: commit, PostgreSQL", note);
    let url = lab.cluster()?.database().await?;
    let db = connect(&url).await?;
    db.batch_execute("CREATE TABLE rows (id text PRIMARY KEY, body bytea NOT NULL)").await?;
    let insert = db.prepare("INSERT INTO rows SELECT * FROM unnest($1::text[], $2::bytea[])").await?;
    let (body, mut id) = (Arc::new(kib().to_vec()), 0_u64);
    for _ in 0..lab.scale.rounds {
        for (rows, measure) in COMMITS {
            let bodies: Vec<&[u8]> = vec![&body; rows];
            let (watch, mut count) = (Stopwatch::start(), 0);
            while watch.elapsed() < lab.scale.load / 4 {
                let ids: Vec<String> = (0..rows as u64).map(|n| format!("{:016x}", id + n)).collect();
                id += rows as u64;
                db.execute(&insert, &[&ids, &bodies]).await?;
                count += rows;
            }
            row.add(measure, count as f64 / watch.elapsed().as_secs_f64());
        }
    }
    Ok(row)
}
