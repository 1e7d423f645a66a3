//! Publish to delivered.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{CPU, CPU_WITH_DATABASE, LOAD_CPU, RATE, batch_of, each, single_event};
use crate::endpoint::Endpoint;
use crate::lab::Lab;
use crate::load::{Make, as_fast, nanos, percentile};
use crate::report::{Measure, Row};
use crate::server::{Server, Settings};
use crate::{Error, machine};

/// Events of a batch.
const BATCH: usize = 100;
/// Webhooks of a fan-out.
const FAN_OUT: u64 = 20;
/// Attempts under way, to one webhook and in all: enough for all publishers. One that was answered publishes again before its last event is
/// delivered, and a slot is taken from before the commit until after the result's.
pub(super) const IN_FLIGHT: (u32, u32) = (1024, 16_384);
/// What the last results take to be written.
const SETTLE: Duration = Duration::from_millis(300);
const PUBLISH_P50: Measure = Measure::lower("publish answered, p50", "ms");
const PUBLISH_P99: Measure = Measure::lower("publish answered, p99", "ms");
const ARRIVED_P50: Measure = Measure::lower("delivered, p50", "ms");
/// The events of these rows.
pub(super) const TYPE: &str = "bench.one";

pub(super) async fn single(lab: &mut Lab) -> Result<Row, Error> {
    let note = "One event of 1 KiB for one webhook, 128 publishers that publish as fast as they are answered, `in_flight_per_webhook` 1,024 and `in_flight` 16,384.";
    let mut row = Row::new("publish → delivered, 1:1, SQLite", note);
    let make = single_event(TYPE);
    measure(lab, &mut row, &Settings::sqlite().in_flight(IN_FLIGHT.0, IN_FLIGHT.1), 1, 1, make).await?;
    row.limit(CPU, lab.limits.server + lab.limits.client, Some(4.0));
    row.goal(RATE, 12_000.0);
    Ok(row)
}

pub(super) async fn batch(lab: &mut Lab) -> Result<Row, Error> {
    let mut row = Row::new("publish → delivered, batches of 100, SQLite", "The same, 100 events to a request.");
    let make = batch_of(BATCH, TYPE);
    measure(lab, &mut row, &Settings::sqlite().in_flight(IN_FLIGHT.0, IN_FLIGHT.1), BATCH as u64, 1, make).await?;
    row.limit(CPU, lab.limits.client, Some(3.5));
    Ok(row)
}

pub(super) async fn fan_out(lab: &mut Lab) -> Result<Row, Error> {
    let mut row = Row::new("publish → delivered, 1:20, SQLite", "One event for twenty webhooks, per delivery.");
    measure(lab, &mut row, &Settings::sqlite().in_flight(IN_FLIGHT.0, IN_FLIGHT.1), 1, FAN_OUT, single_event(TYPE))
        .await?;
    row.limit(CPU, lab.limits.client, Some(4.5));
    row.goal(RATE, 22_000.0);
    Ok(row)
}

pub(super) async fn single_postgres(lab: &mut Lab) -> Result<Row, Error> {
    let mut row =
        Row::new("publish → delivered, 1:1, PostgreSQL", "As over SQLite; PostgreSQL 15 on the same machine.");
    let settings = Settings::of(lab.cluster()?.database().await?).in_flight(IN_FLIGHT.0, IN_FLIGHT.1);
    measure(lab, &mut row, &settings, 1, 1, single_event(TYPE)).await?;
    row.limit(CPU_WITH_DATABASE, lab.limits.server + lab.limits.client, Some(7.0));
    row.goal(RATE, 8_000.0);
    Ok(row)
}

pub(super) async fn fan_out_postgres(lab: &mut Lab) -> Result<Row, Error> {
    let mut row = Row::new("publish → delivered, 1:20, PostgreSQL", "As over SQLite.");
    let settings = Settings::of(lab.cluster()?.database().await?).in_flight(IN_FLIGHT.0, IN_FLIGHT.1);
    measure(lab, &mut row, &settings, 1, FAN_OUT, single_event(TYPE)).await?;
    row.limit(CPU_WITH_DATABASE, lab.limits.client, None);
    row.goal(RATE, 20_000.0);
    Ok(row)
}

async fn measure(
    lab: &mut Lab,
    row: &mut Row,
    settings: &Settings,
    events_each: u64,
    webhooks: u64,
    make: Arc<impl Make>,
) -> Result<(), Error> {
    let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
    let server = Server::start(&lab.binary, dir.path(), settings).await?;
    for _ in 0..webhooks {
        server.webhook(&endpoint.url("/"), TYPE).await?;
    }
    let is_postgres = settings.store.starts_with("postgres");
    let round = Round { server: &server, endpoint: &endpoint, deliveries_each: events_each * webhooks };
    round.run(lab, lab.scale.load / 5, make.clone()).await?;
    for _ in 0..lab.scale.rounds {
        let (database, own) = (lab.cluster_cpu()?, machine::cpu(std::process::id())?);
        let mut done = round.run(lab, lab.scale.load, make.clone()).await?;
        row.add(RATE, done.per_second());
        row.add(CPU, each(done.cpu, done.deliveries));
        if is_postgres {
            row.add(CPU_WITH_DATABASE, each(done.cpu + lab.cluster_cpu()? - database, done.deliveries));
        }
        row.add(LOAD_CPU, each(machine::cpu(std::process::id())? - own, done.deliveries));
        row.add(PUBLISH_P50, percentile(&mut done.publish_micros, 50));
        row.add(PUBLISH_P99, percentile(&mut done.publish_micros, 99));
        row.add(ARRIVED_P50, percentile(&mut done.arrival_micros, 50));
    }
    server.stop().await
}

/// Publishing for a while, until everything is delivered.
pub(super) struct Round<'a> {
    pub(super) server: &'a Server,
    pub(super) endpoint: &'a Endpoint,
    /// Deliveries that come of one request.
    pub(super) deliveries_each: u64,
}

/// What came of it.
pub(super) struct Done {
    pub(super) deliveries: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) publish_micros: Vec<u32>,
    pub(super) arrival_micros: Vec<u32>,
}

impl Done {
    pub(super) fn per_second(&self) -> f64 {
        self.deliveries as f64 / self.elapsed.as_secs_f64()
    }
}

impl Round<'_> {
    pub(super) async fn run(&self, lab: &Lab, length: Duration, make: Arc<impl Make>) -> Result<Done, Error> {
        let (before, cpu, began) = (self.endpoint.count(), self.server.cpu()?, nanos());
        let answered = as_fast(self.server.addr, lab.scale.senders, length, make).await?;
        let deliveries = answered.count() * self.deliveries_each;
        let ended = self.endpoint.arrived(before + deliveries).await?;
        sleep(SETTLE).await;
        Ok(Done {
            deliveries,
            elapsed: Duration::from_nanos(ended - began),
            cpu: self.server.cpu()? - cpu,
            publish_micros: answered.micros,
            arrival_micros: self.endpoint.take_micros(),
        })
    }
}
