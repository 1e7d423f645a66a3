//! Several nodes over one PostgreSQL, in whatever trouble: nothing is lost, and nothing comes twice without a reason
//! that stands in a log.

mod cases;
mod database;
mod duties;
mod inbox;
mod kills;
mod roles;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::crash::draws_of;
use crate::harness::{
    Api, Balancer, Config, Ledgers, Load, LoggedAttempt, PATIENCE, Published, Receiver, Reply, Seen, Server, Webhook,
    Wire, eventually, within,
};

/// Publishers at a time.
const PUBLISHERS: usize = 8;
/// The longest that an endpoint takes for an answer.
const SLOWEST_MILLIS: usize = 400;

/// Several nodes, and the balancer before them.
struct Fleet {
    servers: Vec<Server>,
    balancer: Arc<Balancer>,
    /// What the processes said that are no more.
    log: String,
}

impl Fleet {
    /// A node over each of these URLs.
    async fn start(urls: &[String], config: &Config) -> Self {
        let mut fleet = Self { servers: Vec::new(), balancer: Arc::default(), log: String::new() };
        for url in urls {
            fleet.add(Server::node(url, config.clone()).await);
        }
        fleet
    }

    /// Of these nodes.
    fn of(servers: Vec<Server>) -> Self {
        let mut fleet = Self { servers: Vec::new(), balancer: Arc::default(), log: String::new() };
        servers.into_iter().for_each(|server| fleet.add(server));
        fleet
    }

    fn add(&mut self, server: Server) {
        self.balancer.set(self.servers.len(), Some(server.api()));
        self.servers.push(server);
    }

    fn api(&self) -> Api {
        self.balancer.next()
    }

    /// Kills a node in the middle of whatever it does, and starts it again.
    async fn crash(&mut self, node: usize) {
        let server = &mut self.servers[node];
        server.kill9().await;
        self.balancer.set(node, None);
        self.log.push_str(&server.log());
        server.restart().await;
        self.balancer.set(node, Some(server.api()));
    }

    /// Lets a node stand still.
    fn stop(&self, node: usize) {
        self.servers[node].signal("STOP");
        self.balancer.set(node, None);
    }

    /// Lets it go on.
    fn go_on(&self, node: usize) {
        self.servers[node].signal("CONT");
        self.balancer.set(node, Some(self.servers[node].api()));
    }

    /// All that the nodes have said, line by line.
    fn lines(&self) -> Vec<Value> {
        let all = self.servers.iter().map(Server::log).fold(self.log.clone(), |all, log| all + &log);
        let line = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line.get("fields").cloned().unwrap_or(line))
        };
        all.lines().filter_map(line).collect()
    }

    /// How often each thing was said.
    fn messages(&self) -> BTreeMap<String, usize> {
        let mut messages = BTreeMap::new();
        for line in self.lines() {
            *messages.entry(format!("{}: {}", line["message"], line["error"])).or_default() += 1;
        }
        messages
    }

    /// The attempts whose result came after another node had taken their delivery over, as the nodes say.
    fn late_results(&self) -> HashSet<(String, String, u64)> {
        let lines = self.lines().into_iter().filter(|line| {
            line["message"].as_str().is_some_and(|text| text.starts_with("the delivery had ended or been taken over"))
        });
        lines.map(|line| (text(&line["webhook"]), text(&line["event"]), line["attempt"].as_u64().unwrap())).collect()
    }

    /// Waits until every node has its database.
    async fn until_ready(&self) {
        for server in &self.servers {
            let api = server.api();
            eventually("a node to be ready", async || {
                let answer = api.try_send(Method::GET, api.url(&["readyz"]), &[], Vec::new()).await.unwrap();
                (answer.status == 200).then_some(())
            })
            .await;
        }
    }

    /// Waits until nothing in a list waits any more. A lease may have to end first, and a node may still be away.
    async fn until_none_waits(&self, list: &str) {
        const LONGEST: Duration = PATIENCE.saturating_mul(3);
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        let ended = async {
            loop {
                ticks.tick().await;
                let page = self.api().get(&[list], &[("state", "waiting"), ("limit", "1")]).await;
                if page.status == 200 && page.json["items"] == json!([]) {
                    return self.until_ready().await;
                }
            }
        };
        assert!(tokio::time::timeout(LONGEST, ended).await.is_ok(), "{list} still wait after {LONGEST:?}");
    }
}

/// Endpoints at the paths of one receiver, one for each type of event.
struct Endpoints {
    receiver: Receiver,
    webhooks: Vec<Webhook>,
}

impl Endpoints {
    async fn register(api: &Api, count: usize) -> Self {
        let receiver = Receiver::start(|seen| answer(seen.delivery(), seen.attempt)).await;
        let mut webhooks = Vec::new();
        for n in 0..count {
            let description = json!({ "url": receiver.url(&format!("/{n}")), "events": [event_type(n)] });
            webhooks.push(api.webhook_with(description).await);
        }
        Self { receiver, webhooks }
    }

    /// Events, each of which one of the endpoints gets.
    fn events(&self, count: usize) -> Vec<Published> {
        let event = |n: usize| Published {
            id: format!("e{n:05}"),
            event_type: event_type(n % self.webhooks.len()),
            timestamp: "2026-11-30T09:15:00.000Z".into(),
            data: format!(r#"{{ "n": {n}.0 }}"#),
            key: String::new(),
            answered: None,
        };
        (0..count).map(event).collect()
    }

    fn wire(&self) -> Vec<Wire> {
        let of = |seen: Seen| Wire {
            webhook: self.webhooks[seen.path()[1..].parse::<usize>().unwrap()].id.clone(),
            event: seen.delivery().to_owned(),
            signature: seen.signature().to_owned(),
            accepted: seen.attempt > failures(seen.delivery()),
            body: seen.body,
        };
        self.receiver.seen().into_iter().map(of).collect()
    }

    /// Waits for the end, and asserts that the ledgers agree: all that was answered came, nothing came at two nodes'
    /// hands at the same time, whatever came again has its cause in a log, and nobody was switched off.
    async fn judge(&self, fleet: &Fleet, load: &Load, publishers: JoinSet<()>) {
        publishers.join_all().await;
        fleet.until_none_waits("deliveries").await;
        let published = load.published();
        let ledgers = Ledgers {
            states: states(&fleet.api()).await,
            log: self.log(fleet).await,
            wire: self.wire(),
            secrets: self.webhooks.iter().cloned().map(|webhook| (webhook.id, webhook.secret)).collect(),
            published,
            ..Ledgers::default()
        };
        assert_eq!(ledgers.outgoing_faults(), []);
        let overlapping = self.receiver.overlapping();
        let story = async |came: &String| {
            let id = came.split(' ').next().unwrap();
            let lines: Vec<_> = fleet.lines().into_iter().filter(|line| line["event"] == id).collect();
            format!("{came}: {}\n{lines:#?}", fleet.api().event(id).await)
        };
        if let Some(first) = overlapping.first() {
            panic!("{} times two requests of one delivery at the same time: {}", overlapping.len(), story(first).await);
        }
        assert!(ledgers.published.iter().all(|event| event.answered == Some(1)));
        for webhook in &self.webhooks {
            let shown = fleet.api().read_webhook(webhook).await;
            assert_eq!(shown["active"], true, "{shown}");
        }
    }

    /// The attempts in the API's logs. One that ended well after its delivery had been taken over counts as what it was to
    /// whoever took it over: cut off.
    async fn log(&self, fleet: &Fleet) -> Vec<LoggedAttempt> {
        let late = fleet.late_results();
        let mut log = BTreeMap::new();
        for webhook in &self.webhooks {
            for line in fleet.api().pages(&["webhooks", &webhook.id, "log"]).await {
                let (event, number) = (text(&line["deliveryId"]), line["attempt"].as_u64().unwrap());
                let key = (webhook.id.clone(), event, number);
                let http_status = if late.contains(&key) { 0 } else { line["httpStatus"].as_u64().unwrap() };
                log.insert(key, http_status);
            }
        }
        let line = |((webhook, event, _), http_status)| LoggedAttempt { webhook, event, http_status };
        log.into_iter().map(line).collect()
    }
}

fn event_type(endpoint: usize) -> String {
    format!("load.type{endpoint}")
}

/// How often a delivery fails before it is accepted.
fn failures(event: &str) -> usize {
    usize::from(draws_of(event).below(5) == 0)
}

fn answer(event: &str, attempt: usize) -> Reply {
    let slow = Duration::from_millis(draws_of(event).below(SLOWEST_MILLIS) as u64);
    Reply::Slow(slow, if attempt > failures(event) { 200 } else { 503 })
}

/// What the API says of every delivery: webhook, event, state.
async fn states(api: &Api) -> Vec<(String, String, String)> {
    let of = |item: Value| (text(&item["webhookId"]), text(&item["deliveryId"]), text(&item["state"]));
    api.pages(&["deliveries"]).await.into_iter().map(of).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// A schedule for nodes in trouble: what is interrupted comes again soon, and leases end after 14 seconds.
fn config() -> Config {
    Config::default().attempt_timeout("4s").retry_delays(["500ms", "2s", "4s"])
}

/// How long a node stands still so that its leases have ended when it goes on.
const BEYOND_THE_LEASE: Duration = Duration::from_secs(17);
