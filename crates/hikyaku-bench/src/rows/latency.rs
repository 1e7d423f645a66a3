//! From the publish to the arrival while there is little to do.

use super::deliver::TYPE;
use super::single_event;
use crate::Error;
use crate::endpoint::Endpoint;
use crate::lab::Lab;
use crate::load::{evenly, percentile};
use crate::report::{Measure, Row};
use crate::server::{Server, Settings};

/// Events a second.
const RATE: f64 = 200.0;
const SENDERS: usize = 16;
const ARRIVED_P50: Measure = Measure::lower("arrived, p50", "ms");
const ARRIVED_P99: Measure = Measure::lower("arrived, p99", "ms");
const ANSWERED_P50: Measure = Measure::lower("publish answered, p50", "ms");
const ANSWERED_P99: Measure = Measure::lower("publish answered, p99", "ms");

pub(super) async fn latency(lab: &mut Lab) -> Result<Row, Error> {
    let note = "200 events of 1 KiB a second for one webhook, SQLite: from sending the publish to the arrival at the endpoint.";
    let mut row = Row::new("latency at 200 per second", note);
    let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
    let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
    server.webhook(&endpoint.url("/"), TYPE).await?;
    for _ in 0..lab.scale.rounds {
        let before = endpoint.count();
        let mut answered = evenly(server.addr, SENDERS, RATE, lab.scale.calm, single_event(TYPE)).await?;
        endpoint.arrived(before + answered.count()).await?;
        let mut arrived = endpoint.take_micros();
        row.add(ARRIVED_P50, percentile(&mut arrived, 50));
        row.add(ARRIVED_P99, percentile(&mut arrived, 99));
        row.add(ANSWERED_P50, percentile(&mut answered.micros, 50));
        row.add(ANSWERED_P99, percentile(&mut answered.micros, 99));
    }
    server.stop().await?;
    row.goal(ARRIVED_P50, 1.5);
    row.goal(ARRIVED_P99, 12.0);
    Ok(row)
}
