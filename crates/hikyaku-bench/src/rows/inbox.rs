//! Receiving, and what comes of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::signature::{Secret, receiptroller};
use hyper::header::{HeaderName, HeaderValue};
use rusqlite::{Connection, OpenFlags};
use tokio::time::sleep;

use super::{CPU, LOAD_CPU, RATE, each};
use crate::lab::Lab;
use crate::load::{Answered, Make, Message, as_fast, evenly, nanos, percentile};
use crate::report::{Measure, Row};
use crate::server::{ORGANIZATION, SOURCE_SECRET, Server, Settings};
use crate::stock::{Stock, random_id, received};
use crate::{Error, machine};

const P50: Measure = Measure::lower("answered at the highest rate, p50", "ms");
const P99: Measure = Measure::lower("answered at the highest rate, p99", "ms");
const HALF_P50: Measure = Measure::lower("answered at half of it, p50", "ms");
const HALF_P99: Measure = Measure::lower("answered at half of it, p99", "ms");
/// Which part of a large store's rows take effect.
const EFFECTS_PART: u64 = 20;
/// How often it is looked how many effects there are.
const LOOK: Duration = Duration::from_millis(20);
/// For how long nothing may happen.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// The route's name.
const ROUTE: &str = "receiptroller-books";

fn settings(roles: Option<&'static str>) -> Settings {
    let tables = format!(
        "[[source]]\nname = \"receiptroller\"\nprovider = \"receiptroller\"\norganization = \"{ORGANIZATION}\"\nsecrets = [\"{SOURCE_SECRET}\"]\n\n\
         [[destination]]\nname = \"books\"\nkind = \"sql\"\nurl = \"sqlite:books.db\"\ntable = \"sales\"\nkey = \"id\"\n\
         columns = {{ id = \"/data/id\", text = \"/data/text\" }}\ncreate = true\n\n\
         [[route]]\nsource = \"receiptroller\"\ndestination = \"books\"\norder = \"latest\"\n"
    );
    Settings { tables, roles, ..Settings::sqlite() }
}

pub(super) async fn acknowledge(lab: &mut Lab) -> Result<Row, Error> {
    let note = format!(
        "ReceiptRoller's signed deliveries of 1 KiB with random ids, 128 connections, {} stored before, SQLite. Each is stored with its work for a \
         route, and nobody works it off meanwhile (`roles = [\"inbox\"]`).",
        lab.scale.many
    );
    let mut row = Row::new("inbox: acknowledge", note);
    let dir = tempfile::tempdir()?;
    Stock::open(dir.path())?.received(None, lab.scale.many).await?;
    let server = Server::start(&lab.binary, dir.path(), &settings(Some("inbox"))).await?;
    as_fast(server.addr, lab.scale.senders, lab.scale.load / 5, deliveries()).await?;
    for _ in 0..lab.scale.rounds {
        let (cpu, own) = (server.cpu()?, machine::cpu(std::process::id())?);
        let mut most: Answered = as_fast(server.addr, lab.scale.senders, lab.scale.load, deliveries()).await?;
        row.add(RATE, most.per_second());
        row.add(CPU, each(server.cpu()? - cpu, most.count()));
        row.add(LOAD_CPU, each(machine::cpu(std::process::id())? - own, most.count()));
        row.add(P50, percentile(&mut most.micros, 50));
        row.add(P99, percentile(&mut most.micros, 99));
        let half = most.per_second() / 2.0;
        let mut half = evenly(server.addr, lab.scale.senders, half, lab.scale.load, deliveries()).await?;
        row.add(HALF_P50, percentile(&mut half.micros, 50));
        row.add(HALF_P99, percentile(&mut half.micros, 99));
    }
    server.stop().await?;
    row.limit(CPU, lab.limits.server, Some(4.0));
    row.goal(HALF_P99, 20.0);
    Ok(row)
}

/// Signed deliveries with random ids.
fn deliveries() -> Arc<impl Make> {
    let (path, secret): (Arc<str>, _) = ("/in/receiptroller".into(), Secret::new(SOURCE_SECRET));
    Arc::new(move |_, _| {
        let id = random_id();
        let body = received(&id);
        let value = |text: &str| HeaderValue::from_str(text).expect("hexadecimal digits are visible ASCII");
        let headers = vec![
            (HeaderName::from_static("x-rr-delivery"), value(&id)),
            (HeaderName::from_static("x-rr-signature"), value(&receiptroller::sign(&secret, body.as_bytes()))),
        ];
        Message { path: path.clone(), headers, body: body.into() }
    })
}

pub(super) async fn effects(lab: &mut Lab) -> Result<Row, Error> {
    let count = lab.scale.many / EFFECTS_PART;
    let note = format!(
        "{count} deliveries of 1 KiB with different keys were received and become rows of a table in another SQLite file; until the last one is there."
    );
    let mut row = Row::new("inbox → SQL destination", note);
    for _ in 0..lab.scale.rounds {
        let dir = tempfile::tempdir()?;
        Stock::open(dir.path())?.received(Some(ROUTE), count).await?;
        let server = Server::start(&lab.binary, dir.path(), &settings(None)).await?;
        let (began, at_start, cpu) = (nanos(), rows_in(&dir.path().join("books.db"))?, server.cpu()?);
        all_in(&dir.path().join("books.db"), count).await?;
        let effects = count - at_start;
        row.add(RATE, effects as f64 / ((nanos() - began) as f64 / 1e9));
        row.add(CPU, each(server.cpu()? - cpu, effects));
        server.stop().await?;
    }
    row.goal(RATE, 5_000.0);
    Ok(row)
}

async fn all_in(path: &Path, count: u64) -> Result<(), Error> {
    let (mut seen, mut silence) = (0, Duration::ZERO);
    while seen < count {
        sleep(LOOK).await;
        let now = rows_in(path)?;
        silence = if now > seen { Duration::ZERO } else { silence + LOOK };
        seen = now;
        if silence > MAX_SILENCE {
            return Err(format!("of {count} effects there are {seen}, and no more come").into());
        }
    }
    Ok(())
}

/// How many rows took effect; cheap, because rows are never removed.
fn rows_in(path: &Path) -> Result<u64, Error> {
    let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let last: Option<i64> = db.query_row("SELECT max(rowid) FROM sales", [], |row| row.get(0))?;
    Ok(u64::try_from(last.unwrap_or_default())?)
}
