//! Endpoints that never answer beside those that do.

use std::sync::Arc;

use serde_json::Value;

use super::{batch, data, single_event};
use crate::Error;
use crate::endpoint::{Endpoint, stamped};
use crate::lab::Lab;
use crate::load::{Answered, Link, Make, Message, as_fast, evenly, percentile};
use crate::report::{Measure, Row};
use crate::server::{Server, Settings};

/// Events a second for the webhook that answers, and as many for the one that does not.
const RATE: f64 = 100.0;
const SENDERS: usize = 16;
/// Webhooks of an organization, and how many of them never answer.
const EACH: usize = 100;
const HANGING_EACH: usize = 10;
/// Deliveries that wait for each of those.
const WAITING_EACH: usize = 200;
const P50: Measure = Measure::lower("arrived, p50", "ms");
const P99: Measure = Measure::lower("arrived, p99", "ms");
const ALONE_P50: Measure = Measure::lower("arrived undisturbed, p50", "ms");
const ALONE_P99: Measure = Measure::lower("arrived undisturbed, p99", "ms");
const THROUGHPUT: Measure = Measure::higher("most", "per second");
const ALONE_THROUGHPUT: Measure = Measure::higher("most undisturbed", "per second");

pub(super) async fn one(lab: &mut Lab) -> Result<Row, Error> {
    let note = "100 events a second for a webhook that answers, and 100 for one that never does.";
    let mut row = Row::new("isolation: one of two", note);
    for _ in 0..lab.scale.rounds {
        let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
        let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
        server.webhook(&endpoint.url("/"), "bench.good").await?;
        server.webhook(&endpoint.url("/hang"), "bench.hang").await?;
        let good = || calm(lab, &server, &endpoint, single_event("bench.good"));
        let alone = good().await?;
        let hanging = evenly(server.addr, SENDERS, RATE, lab.scale.calm, single_event("bench.hang"));
        let (beside, hanging) = tokio::join!(good(), hanging);
        hanging?;
        add(&mut row, alone, beside?);
    }
    set_goals(&mut row);
    Ok(row)
}

pub(super) async fn many(lab: &mut Lab) -> Result<Row, Error> {
    let organizations = lab.scale.webhooks / EACH;
    let hanging = organizations * HANGING_EACH;
    let note = format!(
        "{} webhooks in {organizations} organizations, {hanging} of them never answer and have {} deliveries waiting; 100 events a second for the \
         others, then as many as they get.",
        lab.scale.webhooks,
        hanging * WAITING_EACH
    );
    let mut row = Row::new("isolation: a tenth of thousands", note);
    for _ in 0..lab.scale.rounds {
        let (dir, endpoint) = (tempfile::tempdir()?, Endpoint::start().await?);
        let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
        register(&server, &endpoint, organizations).await?;
        let measure = async || {
            let calm = calm(lab, &server, &endpoint, to_any(organizations)).await?;
            let before = endpoint.count();
            let most = as_fast(server.addr, lab.scale.senders, lab.scale.load, to_any(organizations)).await?;
            arrived(&endpoint, before, &most).await?;
            Ok::<_, Error>((calm, most.per_second()))
        };
        let alone = measure().await?;
        for organization in 0..organizations {
            let path = format!("/v1/organizations/o{organization}/events/batch");
            let _: Value = server.call(&path, &batch(WAITING_EACH, "bench.hang")).await?;
        }
        let beside = measure().await?;
        add(&mut row, alone.0, beside.0);
        row.add(ALONE_THROUGHPUT, alone.1);
        row.add(THROUGHPUT, beside.1);
    }
    set_goals(&mut row);
    row.limit(THROUGHPUT, row.median(ALONE_THROUGHPUT), Some(0.9));
    Ok(row)
}

async fn register(server: &Server, endpoint: &Endpoint, organizations: usize) -> Result<(), Error> {
    let link = &mut Link::open(server.addr).await?;
    for organization in 0..organizations {
        for webhook in 0..EACH {
            let (path, events) = match webhook < HANGING_EACH {
                true => ("/hang", "bench.hang".to_owned()),
                false => ("/", format!("bench.w{webhook}")),
            };
            Server::webhook_over(link, &format!("o{organization}"), &endpoint.url(path), &events).await?;
        }
    }
    Ok(())
}

/// Publishes one event at a time, for any of the webhooks that answer.
fn to_any(organizations: usize) -> Arc<impl Make> {
    let paths: Vec<Arc<str>> = (0..organizations).map(|n| format!("/v1/organizations/o{n}/events").into()).collect();
    Arc::new(move |began, sender| {
        let (id, webhook) = (stamped(began, sender, 0), fastrand::usize(HANGING_EACH..EACH));
        let body = format!(r#"{{"id":"{id}","type":"bench.w{webhook}","data":{}}}"#, data(&id));
        let path = paths[fastrand::usize(..paths.len())].clone();
        Message { path, headers: Vec::new(), body: body.into() }
    })
}

/// p50 and p99 of what arrived.
type Arrived = (f64, f64);

async fn calm(lab: &Lab, server: &Server, endpoint: &Endpoint, make: Arc<impl Make>) -> Result<Arrived, Error> {
    let before = endpoint.count();
    let answered = evenly(server.addr, SENDERS, RATE, lab.scale.calm, make).await?;
    arrived(endpoint, before, &answered).await
}

async fn arrived(endpoint: &Endpoint, before: u64, answered: &Answered) -> Result<Arrived, Error> {
    endpoint.arrived(before + answered.count()).await?;
    let mut micros = endpoint.take_micros();
    Ok((percentile(&mut micros, 50), percentile(&mut micros, 99)))
}

fn add(row: &mut Row, alone: Arrived, beside: Arrived) {
    row.add(ALONE_P50, alone.0);
    row.add(P50, beside.0);
    row.add(ALONE_P99, alone.1);
    row.add(P99, beside.1);
}

fn set_goals(row: &mut Row) {
    row.limit(P50, row.median(ALONE_P50), Some(2.0));
    row.limit(P99, row.median(ALONE_P99), None);
    row.goal(P99, 1000.0);
}
