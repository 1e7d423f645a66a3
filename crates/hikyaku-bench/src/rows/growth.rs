//! Delivering with a long history.

use super::deliver::{IN_FLIGHT, Round, TYPE};
use super::{CPU, RATE, each, single_event};
use crate::Error;
use crate::endpoint::Endpoint;
use crate::lab::Lab;
use crate::report::Row;
use crate::server::{Server, Settings};
use crate::stock::Stock;

/// How much slower it may be with a long history than with a short one.
const MORE: f64 = 1.15;
/// How much less history than a large store has is little.
const LITTLE: u64 = 100;

pub(super) async fn growth(lab: &mut Lab) -> Result<Vec<Row>, Error> {
    let little = measure(lab, lab.scale.many / LITTLE).await?;
    let mut rows = vec![little];
    for events in [Some(lab.scale.many), lab.scale.huge].into_iter().flatten() {
        let mut row = measure(lab, events).await?;
        row.limit(CPU, rows[0].median(CPU), Some(MORE));
        row.limit(RATE, rows[0].median(RATE), Some(1.0 / MORE));
        rows.push(row);
    }
    Ok(rows)
}

async fn measure(lab: &Lab, events: u64) -> Result<Row, Error> {
    let note = "The 1:1 row with so many events of history, delivered over the last 20 days; its limit is that with the shortest.";
    let mut row = Row::new(format!("growth: {events} events"), note);
    let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
    let settings = Settings::sqlite().in_flight(IN_FLIGHT.0, IN_FLIGHT.1);
    let server = Server::start(&lab.binary, dir.path(), &settings).await?;
    let webhook = server.webhook(&endpoint.url("/"), TYPE).await?;
    server.stop().await?;
    Stock::open(dir.path())?.delivered(TYPE, &webhook, events).await?;
    let server = Server::start(&lab.binary, dir.path(), &settings).await?;
    let round = Round { server: &server, endpoint: &endpoint, deliveries_each: 1 };
    round.run(lab, lab.scale.load / 5, single_event(TYPE)).await?;
    for _ in 0..lab.scale.rounds {
        let done = round.run(lab, lab.scale.load, single_event(TYPE)).await?;
        row.add(RATE, done.per_second());
        row.add(CPU, each(done.cpu, done.deliveries));
    }
    server.stop().await?;
    Ok(row)
}
