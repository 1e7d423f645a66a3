//! Two nodes beside one, where the endpoints are what limits both.

use tokio::time::sleep;

use super::batch;
use super::deliver::TYPE;
use crate::Error;
use crate::endpoint::{Endpoint, SLOW};
use crate::lab::Lab;
use crate::report::{Measure, Row};
use crate::server::{ORGANIZATION, Server, Settings};

/// Webhooks, and attempts under way to each of them from each node.
const WEBHOOKS: usize = 2;
const IN_FLIGHT: u32 = 16;
/// Events of one request.
const BATCH: usize = 500;
const ONE: Measure = Measure::higher("one node", "per second");
const TWO: Measure = Measure::higher("two nodes", "per second");
/// How much more two nodes must deliver than one.
const MORE: f64 = 1.6;

pub(super) async fn nodes(lab: &mut Lab) -> Result<Row, Error> {
    let note = format!(
        "PostgreSQL, {WEBHOOKS} webhooks whose endpoints take {} ms, {IN_FLIGHT} attempts under way to each from each node, and more waiting than can \
         be delivered; the limit is one node.",
        SLOW.as_millis()
    );
    let mut row = Row::new("two nodes", note);
    for _ in 0..lab.scale.rounds {
        row.add(ONE, delivered(lab, 1).await?);
        row.add(TWO, delivered(lab, 2).await?);
    }
    row.limit(TWO, row.median(ONE), Some(MORE));
    Ok(row)
}

/// What so many nodes deliver in a second.
async fn delivered(lab: &mut Lab, nodes: usize) -> Result<f64, Error> {
    let endpoint = Endpoint::start().await?;
    let settings = Settings::of(lab.cluster()?.database().await?).in_flight(IN_FLIGHT, 4096);
    let (mut servers, mut dirs) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let dir = tempfile::tempdir()?;
        servers.push(Server::start(&lab.binary, dir.path(), &settings).await?);
        dirs.push(dir);
    }
    for _ in 0..WEBHOOKS {
        servers[0].webhook(&endpoint.url("/slow"), TYPE).await?;
    }
    // For a third more time than is measured, and to warm up.
    let length = lab.scale.load;
    let most = f64::from(IN_FLIGHT) / SLOW.as_secs_f64() * nodes as f64;
    let batches = (most * (length.as_secs_f64() * 1.3 + 1.0)) as usize / BATCH + 1;
    for _ in 0..batches {
        servers[0].call(&format!("/v1/organizations/{ORGANIZATION}/events/batch"), &batch(BATCH, TYPE)).await?;
    }
    sleep(length / 5).await;
    let before = endpoint.count();
    sleep(length).await;
    let delivered = endpoint.count() - before;
    for server in servers {
        server.stop().await?;
    }
    Ok(delivered as f64 / length.as_secs_f64())
}
