//! Nodes whose database goes away: restarted, cut off, and replaced by its standby.

use super::*;
use crate::harness::{Cluster, Cut, Proxy, TestDatabase};

const WEBHOOKS: usize = 10;
/// How often PostgreSQL restarts.
const RESTARTS: usize = 6;
/// How often a connection is cut during a COMMIT.
const CUTS: usize = 100;
/// How long the database cannot be reached.
const ABSENCE: Duration = Duration::from_secs(60);
/// By when a publish is refused while the database is away.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);

/// Only what the state of the database allows: taken, or refused for now.
#[track_caller]
fn assert_refused_as_unavailable(load: &Load) {
    let refusals = load.refusals();
    let slow: Vec<_> = refusals.iter().filter(|(status, time)| *status == 503 && *time > REFUSED_WITHIN).collect();
    assert!(slow.len() <= refusals.len() / 10, "{slow:?} of {}", refusals.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_restarts_under_load_loses_nothing() {
    let mut cluster = Cluster::start().await;
    let fleet = Fleet::start(&[cluster.url(), cluster.url()], &config()).await;
    let endpoints = Endpoints::register(&fleet.api(), WEBHOOKS).await;
    let events = 3_000;
    let (load, publishers) = Load::start(&fleet.balancer, endpoints.events(events), PUBLISHERS);
    for restart in 0..RESTARTS {
        load.answered(events * (restart + 1) / (RESTARTS + 1)).await;
        match restart % 2 {
            0 => cluster.crash().await,
            _ => cluster.restart().await,
        }
    }
    endpoints.judge(&fleet, &load, publishers).await;
    assert!(!load.refusals().is_empty(), "nobody noticed anything");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_during_commit_100_times_lose_and_double_nothing() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let proxies = [Proxy::before(&url).await, Proxy::before(&url).await];
    let fleet = Fleet::start(&[proxies[0].url(&url), proxies[1].url(&url)], &config()).await;
    let endpoints = Endpoints::register(&fleet.api(), WEBHOOKS).await;
    let (load, publishers) = Load::start(&fleet.balancer, endpoints.events(4_000), PUBLISHERS);
    for cut in 0..CUTS {
        let place = [Cut::Message(cut % 12), Cut::Sent, Cut::Answer(cut % 6)][cut % 3];
        let proxy = &proxies[cut % 2];
        proxy.cut_next_commit(place);
        eventually("a commit to be cut", async || (!proxy.has_cut_left()).then_some(())).await;
    }
    endpoints.judge(&fleet, &load, publishers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_cut_off_from_the_database_for_60_s_refuse_at_once_and_switch_nobody_off() {
    let database = TestDatabase::create().await;
    let url = database.url();
    let proxy = Proxy::before(&url).await;
    let fleet = Fleet::start(&[proxy.url(&url), proxy.url(&url)], &config()).await;
    let endpoints = Endpoints::register(&fleet.api(), WEBHOOKS).await;
    let (load, publishers) = Load::start(&fleet.balancer, endpoints.events(2_000), PUBLISHERS);
    load.answered(400).await;
    proxy.close();
    let before = load.published().len();
    tokio::time::sleep(ABSENCE).await;
    // What had been committed may have been answered after the cut.
    assert!(load.published().len() <= before + PUBLISHERS * 20);
    let refusals = load.refusals().len();
    assert!(refusals > 100, "{refusals} refusals");
    proxy.open();
    endpoints.judge(&fleet, &load, publishers).await;
    assert_refused_as_unavailable(&load);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_killed_under_load_and_its_promoted_standby_have_lost_nothing_that_was_answered() {
    let mut primary = Cluster::start().await;
    let standby = primary.synchronous_standby().await;
    let hosts = format!("{},{}", primary.address(), standby.address());
    let url = primary.url().replace(&primary.address(), &hosts);
    let fleet = Fleet::start(&[url.clone(), url], &config()).await;
    let endpoints = Endpoints::register(&fleet.api(), WEBHOOKS).await;
    let (load, publishers) = Load::start(&fleet.balancer, endpoints.events(2_000), PUBLISHERS);
    load.answered(700).await;
    primary.kill9().await;
    standby.promote().await;
    endpoints.judge(&fleet, &load, publishers).await;
    assert!(!load.refusals().is_empty(), "nobody noticed anything");
}
