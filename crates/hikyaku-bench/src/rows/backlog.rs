//! A start with a million deliveries that wait.

use tokio::time::sleep;

use super::deliver::TYPE;
use crate::endpoint::Endpoint;
use crate::lab::Lab;
use crate::load::nanos;
use crate::report::{Measure, Row};
use crate::server::{Server, Settings};
use crate::stock::Stock;
use crate::{Error, machine};

const FIRST: Measure = Measure::lower("start to first delivery", "s");
const MEMORY: Measure = Measure::lower("most memory", "MiB");
const DRAINED: Measure = Measure::higher("delivered then", "per second");

pub(super) async fn backlog(lab: &mut Lab) -> Result<Row, Error> {
    let note = format!(
        "{} deliveries of 1 KiB wait for one webhook; from the start of the process, killed before, and the most memory in the seconds after.",
        lab.scale.many
    );
    let mut row = Row::new("backlog", note);
    let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
    let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
    server.webhook(&endpoint.url("/"), TYPE).await?;
    server.stop().await?;
    Stock::open(dir.path())?.waiting(TYPE, lab.scale.many).await?;
    for _ in 0..lab.scale.rounds {
        let (before, began) = (endpoint.count(), nanos());
        let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
        let starting = endpoint.arrived(before + 1);
        starting.await?;
        row.add(FIRST, (nanos() - began) as f64 / 1e9);
        let first = endpoint.count();
        sleep(lab.scale.load).await;
        row.add(DRAINED, (endpoint.count() - first) as f64 / lab.scale.load.as_secs_f64());
        row.add(MEMORY, machine::memory(server.pid())?.1);
        // Not asked to stop, but killed.
        drop(server);
    }
    row.goal(FIRST, 2.0);
    row.goal(MEMORY, 256.0);
    Ok(row)
}
