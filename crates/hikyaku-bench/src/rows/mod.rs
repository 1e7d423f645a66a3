//! The rows of the table, one file for each kind.

mod backlog;
mod deliver;
mod growth;
mod idle;
mod inbox;
mod isolation;
mod latency;
pub(crate) mod limits;
mod nodes;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::json;

use crate::Error;
use crate::endpoint::stamped;
use crate::lab::Lab;
use crate::load::{Make, Message};
use crate::report::{Measure, Row};
use crate::server::ORGANIZATION;

/// CPU time of the program, per operation.
const CPU: Measure = Measure::lower("CPU", "µs");
/// CPU time of the program and of PostgreSQL, per operation.
const CPU_WITH_DATABASE: Measure = Measure::lower("CPU with database", "µs");
/// CPU time of this program, which plays the others, per operation.
const LOAD_CPU: Measure = Measure::lower("CPU of the load itself", "µs");
/// Operations.
const RATE: Measure = Measure::higher("rate", "per second");
/// Bytes of `data` in an event, so that the whole body has about 1 KiB.
const DATA_BYTES: usize = 900;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// What a bare server and a bare client take.
    Http,
    /// What SQLite and PostgreSQL take to keep rows.
    Commit,
    /// Publish to delivered, one event and one webhook.
    Single,
    /// The same in batches.
    Batch,
    /// One event for twenty webhooks.
    FanOut,
    /// One event and one webhook, over PostgreSQL.
    SinglePostgres,
    /// One event for twenty webhooks, over PostgreSQL.
    FanOutPostgres,
    /// Deliveries that are received and stored.
    Acknowledge,
    /// Received deliveries that become rows of a database.
    Effects,
    /// From the publish to the arrival at 200 a second.
    Latency,
    /// Endpoints that never answer beside those that do.
    Isolation,
    /// A start with a million deliveries that wait.
    Backlog,
    /// Delivering with a long history.
    Growth,
    /// Nothing at all.
    Idle,
    /// Two nodes beside one.
    Nodes,
}

impl Kind {
    pub(crate) const ALL: [Self; 15] = [
        Self::Http,
        Self::Commit,
        Self::Single,
        Self::Batch,
        Self::FanOut,
        Self::SinglePostgres,
        Self::FanOutPostgres,
        Self::Acknowledge,
        Self::Effects,
        Self::Latency,
        Self::Isolation,
        Self::Backlog,
        Self::Growth,
        Self::Idle,
        Self::Nodes,
    ];

    pub(crate) async fn measure(self, lab: &mut Lab) -> Result<Vec<Row>, Error> {
        Ok(match self {
            Self::Http => vec![limits::http(lab).await?],
            Self::Commit => vec![limits::commit_sqlite(lab)?, limits::commit_postgres(lab).await?],
            Self::Single => vec![deliver::single(lab).await?],
            Self::Batch => vec![deliver::batch(lab).await?],
            Self::FanOut => vec![deliver::fan_out(lab).await?],
            Self::SinglePostgres => vec![deliver::single_postgres(lab).await?],
            Self::FanOutPostgres => vec![deliver::fan_out_postgres(lab).await?],
            Self::Acknowledge => vec![inbox::acknowledge(lab).await?],
            Self::Effects => vec![inbox::effects(lab).await?],
            Self::Latency => vec![latency::latency(lab).await?],
            Self::Isolation => vec![isolation::one(lab).await?, isolation::many(lab).await?],
            Self::Backlog => vec![backlog::backlog(lab).await?],
            Self::Growth => growth::growth(lab).await?,
            Self::Idle => vec![idle::idle(lab).await?],
            Self::Nodes => vec![nodes::nodes(lab).await?],
        })
    }
}

/// An event's `data`, with a business key.
pub(crate) fn data(key: &str) -> String {
    format!(r#"{{"id":"{key}","text":"{}"}}"#, "0123456789".repeat(DATA_BYTES / 10))
}

/// Publishes one event of a type at a time.
fn single_event(event_type: &'static str) -> Arc<impl Make> {
    let path: Arc<str> = format!("/v1/organizations/{ORGANIZATION}/events").into();
    Arc::new(move |began, sender| {
        let id = stamped(began, sender, 0);
        let body = format!(r#"{{"id":"{id}","type":"{event_type}","data":{}}}"#, data(&id));
        Message { path: path.clone(), headers: Vec::new(), body: body.into() }
    })
}

/// Publishes so many events of a type at a time.
fn batch_of(events: usize, event_type: &'static str) -> Arc<impl Make> {
    let path: Arc<str> = format!("/v1/organizations/{ORGANIZATION}/events/batch").into();
    Arc::new(move |began, sender| {
        let mut body = String::with_capacity(events * (DATA_BYTES + 200));
        for number in 0..events {
            let id = stamped(began, sender, number);
            body.push_str(if number == 0 { r#"{"events":["# } else { "," });
            body.push_str(&format!(r#"{{"id":"{id}","type":"{event_type}","data":{}}}"#, data(&id)));
        }
        body.push_str("]}");
        Message { path: path.clone(), headers: Vec::new(), body: body.into() }
    })
}

/// A batch of events for one organization, as the API takes it.
fn batch(count: usize, event_type: &str) -> serde_json::Value {
    let events: Vec<_> = (0..count).map(|n| json!({ "type": event_type, "data": { "id": n.to_string() } })).collect();
    json!({ "events": events })
}

/// CPU time per operation, in microseconds.
fn each(cpu: Duration, operations: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / operations as f64
}

fn kib() -> Bytes {
    Bytes::from(vec![b'x'; 1024])
}
