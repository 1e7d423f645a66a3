//! The program and what is around it, over all of its lives.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::VARIABLE;
use super::life::{Chores, LOAD, Load};
use crate::crash::{draws_of, seed};
use crate::harness::{
    Api, Books, Config, Effect, Ledgers, LoggedAttempt, Published, Receiver, Reply, Sandbox, Seen, Server, Webhook,
    Wire, eventually, expected_body, items, within,
};

const SOURCE: &str = "receiptroller";
/// One a second.
const SALES_PER_HOUR: u32 = 3_600;
/// Begins the ids of rows that reconciliation brought.
const LISTED: &str = "listed:";
/// Bodies that are compared one by one.
const COMPARED_BODIES: usize = 300;
/// How long a point is waited for: a lease may have to end before it is passed.
const PATIENCE: Duration = Duration::from_secs(40);
/// The signal of a program that has ended itself.
const ABORTED: i32 = 6;

pub(super) struct World {
    books: Books,
    provider: Sandbox,
    config: Config,
    server: Option<Server>,
    /// Endpoints: one that fails at times, one that never does, and one for what is recovered.
    faulty: Receiver,
    steady: Receiver,
    aside: Receiver,
    webhooks: Vec<Webhook>,
    lives: usize,
    published: Vec<Published>,
    /// By their ids; one that was sent again is here once.
    delivered: HashMap<String, Published>,
    again: Vec<Published>,
    recovered: Vec<String>,
}

/// How often the endpoint that fails at times refuses a delivery before it takes it. So crashes may use up attempts, and no
/// webhook is switched off.
fn failures(event: &str) -> usize {
    draws_of(event).below(2)
}

fn reply(seen: &Seen) -> Reply {
    match seen.attempt > failures(seen.delivery()) {
        true => Reply::status(200),
        false => [Reply::status(500), Reply::Close, Reply::Reset][draws_of(seen.delivery()).below(3)].clone(),
    }
}

impl World {
    pub(super) async fn before_its_first_start(books: Books) -> Self {
        let provider = Sandbox::selling(SALES_PER_HOUR).await;
        // What is under way at the end of a life is leased until its deadlines are over.
        let config = books.config("[inbox]\neffect_timeout = \"2s\"\nretry_first = \"50ms\"\n");
        let config = config.attempt_timeout("2s").with(&provider.reconcile());
        let (faulty, steady, aside) =
            (Receiver::start(reply).await, Receiver::always(200).await, Receiver::always(200).await);
        let (server, webhooks, lives, published, delivered, again, recovered) = Default::default();
        Self {
            books,
            provider,
            config,
            server,
            faulty,
            steady,
            aside,
            webhooks,
            lives,
            published,
            delivered,
            again,
            recovered,
        }
    }

    fn armed(&self, point: &str, passing: u64) -> Config {
        self.config.clone().env(VARIABLE, &format!("{point}:{passing}"))
    }

    /// A start that ends at a point, before there has been a whole one.
    pub(super) async fn dies_at_its_start(&mut self, point: &str) {
        self.begin(self.armed(point, 1)).await;
        self.assert_died_at(point).await;
    }

    /// The first whole start.
    pub(super) async fn start(&mut self) {
        self.begin(self.config.clone()).await;
        let api = self.server().api();
        for endpoint in [&self.faulty, &self.steady] {
            let description = json!({ "url": endpoint.url("/"), "events": [LOAD] });
            self.webhooks.push(api.webhook_with(description).await);
        }
    }

    /// Begins a life; whether it comes to listen.
    async fn begin(&mut self, config: Config) -> bool {
        if let Some(server) = &mut self.server {
            return server.restart_as(config).await;
        }
        let server = self.server.insert(Server::start_or_not(self.books.dir().clone(), config).await);
        server.listens()
    }

    async fn assert_died_at(&mut self, point: &str) {
        let (status, log) = (self.server().exit().await, self.server().log());
        assert_eq!(status.signal(), Some(ABORTED), "it did not die at {point}:\n{log}");
        assert!(log.contains(&format!("died at {point}")), "{log}");
    }

    fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("it was started")
    }

    /// A life under load that ends at a passing of a point.
    pub(super) async fn dies_at(&mut self, point: &str, passing: u64, chores: Chores) {
        self.lives += 1;
        // It may die before it listens.
        if self.begin(self.armed(point, passing)).await {
            let load = self.load(chores);
            if timeout(PATIENCE, self.server().exit()).await.is_err() {
                panic!("life {} does not come to passing {passing} of {point}", self.lives);
            }
            self.note(&load).await;
        }
        self.assert_died_at(point).await;
    }

    /// A life under load that somebody ends after so many answers or so much time, whichever is first.
    pub(super) async fn is_killed_after(&mut self, answers: usize, time: Duration, chores: Chores) {
        self.lives += 1;
        assert!(self.begin(self.config.clone()).await, "it does not start:\n{}", self.server().log());
        let load = self.load(chores);
        // Either will do.
        let _ = timeout(time, load.answered(answers)).await;
        self.server().kill9().await;
        self.note(&load).await;
    }

    fn load(&mut self, chores: Chores) -> std::sync::Arc<Load> {
        let endpoints = (self.aside.url("/"), "http://127.0.0.1:9/".to_owned());
        let (api, life, again) = (self.server().api(), self.lives, std::mem::take(&mut self.again));
        Load::start(api, life, again, chores, endpoints)
    }

    /// Notes what a life has brought; the provider sends again what got no answer, and now and then what got one.
    async fn note(&mut self, load: &Load) {
        let story = within("everybody to notice its end", load.end()).await;
        self.published.extend(story.published);
        self.recovered.extend(story.recovered);
        for sale in story.delivered {
            if sale.answered.is_none() || draws_of(&sale.id).below(10) == 0 {
                self.again.push(sale.clone());
            }
            let known = self.delivered.entry(sale.id.clone()).or_insert_with(|| sale.clone());
            known.answered = known.answered.or(sale.answered);
        }
    }

    /// A last start, the end of everything that waits, and the ledgers.
    pub(super) async fn judge(mut self) {
        assert!(self.begin(self.config.clone()).await, "it does not start:\n{}", self.server().log());
        let api = self.server().api();
        for sale in &std::mem::take(&mut self.again) {
            assert_eq!(api.deliver_signed(&sale.id, expected_body(sale)).await, 200);
            self.delivered.get_mut(&sale.id).unwrap().answered = Some(0);
        }
        until_none_waits(&api, "deliveries").await;
        self.assert_reconciled(&api).await;
        until_none_waits(&api, "inbox").await;
        let said = format!("after {} lives; CRASH_SEED={}", self.lives, seed());
        assert_eq!(self.outgoing(&api).await.outgoing_faults(), [], "{said}");
        assert_eq!(self.incoming(&api).await.incoming_faults(), [], "{said}");
        let arrived: BTreeSet<_> = self.aside.seen().iter().map(|seen| seen.delivery().to_owned()).collect();
        assert!(self.recovered.iter().all(|event| arrived.contains(event)), "{said}: {:?}", self.recovered);
        for webhook in &self.webhooks {
            assert_eq!(api.read_webhook(webhook).await["active"], true, "{said}");
        }
        let answered = self.published.iter().filter(|event| event.answered == Some(2)).count();
        assert!(answered >= self.lives, "the run has shown nothing: {answered} events were answered");
        assert!(self.server().sigterm().await.success());
    }

    async fn outgoing(&self, api: &Api) -> Ledgers {
        let mut ledgers = Ledgers { published: self.published.clone(), ..Ledgers::default() };
        let is_ours = |webhook: &str| self.webhooks.iter().any(|ours| ours.id == webhook);
        for item in api.pages(&["deliveries"]).await {
            if is_ours(&text(&item["webhookId"])) {
                ledgers.states.push((text(&item["webhookId"]), text(&item["deliveryId"]), text(&item["state"])));
            }
        }
        let mut log = BTreeMap::new();
        for webhook in &self.webhooks {
            for line in api.pages(&["webhooks", &webhook.id, "log"]).await {
                let attempt = (webhook.id.clone(), text(&line["deliveryId"]), line["attempt"].as_u64().unwrap());
                let http_status = line["httpStatus"].as_u64().unwrap();
                assert_eq!(log.insert(attempt.clone(), http_status), None, "{attempt:?} stands in the log twice");
            }
        }
        let line = |((webhook, event, _), http_status)| LoggedAttempt { webhook, event, http_status };
        ledgers.log = log.into_iter().map(line).collect();
        ledgers.wire =
            [wire(&self.faulty, &self.webhooks[0], failures), wire(&self.steady, &self.webhooks[1], |_| 0)].concat();
        ledgers.secrets = self.webhooks.iter().cloned().map(|webhook| (webhook.id, webhook.secret)).collect();
        ledgers
    }

    /// What took effect of what was delivered; every delivery that was answered is a row with its bytes.
    async fn incoming(&self, api: &Api) -> Ledgers {
        let rows = api.pages(&["inbox"]).await;
        let rows: HashMap<_, _> = rows.iter().map(|row| (text(&row["deliveryId"]), text(&row["state"]))).collect();
        let sales: Vec<_> = self.delivered.values().cloned().collect();
        for sale in &sales {
            let state = rows.get(&sale.id).map(String::as_str);
            assert!(matches!(state, Some("done" | "stale")), "{}: {state:?}", sale.id);
        }
        for sale in sales.iter().step_by(sales.len().div_ceil(COMPARED_BODIES).max(1)) {
            assert_eq!(api.inbox_body(SOURCE, &sale.id).await, expected_body(sale).as_bytes());
        }
        let effects = self.books.effects().await.into_iter().filter(|(_, event)| !event.starts_with(LISTED));
        let effects = effects.map(|(key, event)| Effect { key, event }).collect();
        Ledgers { published: sales, effects, ..Ledgers::default() }
    }

    /// After one more cycle, the table has all that the provider's list has.
    async fn assert_reconciled(&self, api: &Api) {
        let newest = async || {
            let page = api.get(&["reconcile", "sales", "cycles"], &[("limit", "1")]).await.expect(200);
            items(&page).pop()
        };
        let before = newest().await.map_or(0, |cycle| cycle["number"].as_i64().unwrap());
        api.call(Method::POST, &["reconcile", "sales", "run"], "{}").await.expect(202);
        let cycle = eventually("a cycle to end", async || {
            let cycle = newest().await?;
            (cycle["number"].as_i64() > Some(before) && cycle["endedAt"].is_string()).then_some(cycle)
        })
        .await;
        let listed = self.provider.sales("2020-01-01T00:00:00Z", cycle["period"]["to"].as_str().unwrap()).await;
        assert!(!listed.is_empty(), "the run has shown nothing of reconciliation");
        eventually("everything listed to be in the table", async || {
            let table: BTreeSet<_> = self.books.sales().await.into_iter().map(|sale| sale.id).collect();
            listed.iter().all(|(key, _)| table.contains(key)).then_some(())
        })
        .await;
    }
}

async fn until_none_waits(api: &Api, list: &str) {
    eventually(&format!("the end of all {list}"), async || {
        let page = api.get(&[list], &[("state", "waiting"), ("limit", "1")]).await.expect(200);
        items(&page).is_empty().then_some(())
    })
    .await;
}

fn wire(receiver: &Receiver, webhook: &Webhook, failures: fn(&str) -> usize) -> Vec<Wire> {
    let of = |seen: Seen| Wire {
        webhook: webhook.id.clone(),
        event: seen.delivery().to_owned(),
        signature: seen.signature().to_owned(),
        accepted: seen.attempt > failures(seen.delivery()),
        body: seen.body,
    };
    receiver.seen().into_iter().map(of).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
