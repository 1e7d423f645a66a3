//! A receiver that loses nothing, in one file: verify, save, answer 200, and only then work.
//!
//! ```sh
//! RR_SECRETS=the-secret cargo run -p hikyaku-inbox --example receiver --features axum,rusqlite
//! ```
//!
//! It takes `POST /webhook` on `LISTEN` (127.0.0.1:3000) and keeps the newest of every sale in the table `sales` of the
//! SQLite file `DATABASE` (receiver.db). Kill it whenever you like. While you change the secret, give both: `old,new`.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use hikyaku_inbox::axum::Rejection;
use hikyaku_inbox::rusqlite::{create_table, insert_if_absent, prune};
use hikyaku_inbox::{Insertion, Keep, Verified, Verifier};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

type Failure = Box<dyn Error + Send + Sync>;

/// How long the worker waits for the next delivery before it looks by itself, and after a failure.
const PAUSE: Duration = Duration::from_secs(1);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL; -- a commit survives power loss
    CREATE TABLE IF NOT EXISTS inbox (
        id INTEGER PRIMARY KEY, delivery_id TEXT NOT NULL, event_type TEXT, key TEXT, version TEXT,
        body BLOB NOT NULL, parked TEXT, tries INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX IF NOT EXISTS inbox_waiting ON inbox (tries, id) WHERE parked IS NULL;
    CREATE TABLE IF NOT EXISTS sales (
        id TEXT PRIMARY KEY, total INTEGER NOT NULL, version TEXT NOT NULL, announced INTEGER NOT NULL DEFAULT 0
    );";

#[derive(Clone)]
struct App {
    verifier: Verifier,
    database: Arc<Mutex<Connection>>,
    wake: SyncSender<()>,
}

impl FromRef<App> for Verifier {
    fn from_ref(app: &App) -> Self {
        app.verifier.clone()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let secrets = env::var("RR_SECRETS").map_err(|_| "set RR_SECRETS to the secret of your webhook")?;
    let path = env::var("DATABASE").unwrap_or_else(|_| "receiver.db".to_owned());
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let (wake, woken) = sync_channel(1);
    let database = Arc::new(Mutex::new(open(&path)?));
    let app = App { verifier: Verifier::new(secrets.split(','))?, database, wake };
    let worker = open(&path)?;
    thread::spawn(move || work(worker, &woken));
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, Router::new().route("/webhook", post(receive)).with_state(app)).await?)
}

fn open(path: &str) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(5))?;
    database.execute_batch(SCHEMA)?;
    create_table(&database)?;
    Ok(database)
}

/// Saves, then answers: 200 for what is saved now and what was before, 503 for what could not be. Nothing else (T6).
async fn receive(State(app): State<App>, delivery: Result<Verified, Rejection>) -> Response {
    let delivery = match delivery {
        Ok(delivery) => delivery,
        Err(refused) => {
            eprintln!(
                "refused: {refused}. If the provider sent this, correct it within 71 minutes of the first: then it switches the webhook off"
            );
            return refused.into_response();
        }
    };
    // On a thread of its own, so that a client that hangs up does not stop a transaction half-way.
    let saved =
        tokio::task::spawn_blocking(move || save(&mut app.database.blocking_lock(), &delivery).map(|()| app.wake));
    match saved.await {
        Ok(Ok(wake)) => {
            let _ = wake.try_send(()); // a full channel means that the worker is being woken already
            StatusCode::OK.into_response()
        }
        failed => {
            eprintln!("could not save a delivery; the provider repeats it: {failed:?}");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

/// One commit for both: the id that tells duplicates, and the work (T1).
fn save(database: &mut Connection, delivery: &Verified) -> rusqlite::Result<()> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if insert_if_absent(&transaction, delivery)? == Insertion::Inserted {
        let version = delivery.version().map(|version| version.to_string());
        let parked = delivery.park.map(|reason| reason.to_string());
        transaction.execute(
            "INSERT INTO inbox (delivery_id, event_type, key, version, body, parked) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![delivery.delivery_id, delivery.event_type, delivery.key, version, &delivery.body[..], parked],
        )?;
    }
    transaction.commit()
}

/// Works off what is saved, whatever happens to one row (C15). A restart needs nothing of its own: what waits, waits.
fn work(mut database: Connection, woken: &Receiver<()>) {
    loop {
        match work_off_one(&mut database) {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => eprintln!("will try again: {error}"),
        }
        if let Err(RecvTimeoutError::Disconnected) = woken.recv_timeout(PAUSE) {
            return;
        }
    }
}

/// A saved delivery.
struct Waiting {
    id: i64,
    event_type: Option<String>,
    key: Option<String>,
    version: Option<String>,
    body: Vec<u8>,
}

impl Waiting {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, event_type: row.get(1)?, key: row.get(2)?, version: row.get(3)?, body: row.get(4)? })
    }
}

/// Works off the row that was tried least; `false` if none waits.
fn work_off_one(database: &mut Connection) -> rusqlite::Result<bool> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let next = "SELECT id, event_type, key, version, body FROM inbox WHERE parked IS NULL ORDER BY tries, id LIMIT 1";
    let Some(waiting) = transaction.query_row(next, [], Waiting::read).optional()? else {
        prune(&transaction, Keep::default())?;
        transaction.commit()?;
        return Ok(false);
    };
    let worked_off = apply(&transaction, &waiting);
    match worked_off {
        Ok(()) => transaction.commit()?,
        Err(error) => {
            transaction.rollback()?;
            database.execute("UPDATE inbox SET tries = tries + 1 WHERE id = ?1", [waiting.id])?;
            return Err(error);
        }
    }
    Ok(true)
}

/// The effect and its end in the inbox, in one transaction: exactly once (C8). An older event changes nothing (C4).
fn apply(transaction: &Transaction<'_>, waiting: &Waiting) -> rusqlite::Result<()> {
    let is_sale = waiting.event_type.as_deref().is_some_and(|name| name.starts_with("sale."));
    let (true, Some(key), Some(version), Some(total)) = (is_sale, &waiting.key, &waiting.version, total(&waiting.body))
    else {
        let reason = "not a sale with an id, a timestamp and a total";
        transaction.execute("UPDATE inbox SET parked = ?2 WHERE id = ?1", params![waiting.id, reason])?;
        return Ok(());
    };
    transaction.execute(
        "INSERT INTO sales (id, total, version) VALUES (?1, ?2, ?3)
         ON CONFLICT (id) DO UPDATE SET total = excluded.total, version = excluded.version
         WHERE excluded.version > sales.version",
        params![key, total, version],
    )?;
    transaction.execute("DELETE FROM inbox WHERE id = ?1", [waiting.id])?;
    Ok(())
}

/// What the sale came to, in yen.
fn total(body: &[u8]) -> Option<i64> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    body.pointer("/data/paymentSummary/grandTotal")?.as_i64()
}
