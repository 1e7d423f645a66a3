//! The load of one life: publishers, a provider, and what somebody asks for beside them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::crash::draws_of;
use crate::harness::{Api, Published, expected_body};

/// Publishers at a time, and connections of the provider.
const PUBLISHERS: usize = 3;
const PROVIDERS: usize = 3;
/// The pause of each after an answer: a life may be long, and everything has to end at last.
const PAUSE: Duration = Duration::from_millis(5);
/// Events published in one request.
const BATCH: usize = 3;
/// Events that a recovery sends.
const RECOVERED: usize = 20;
/// More deliveries than are cancelled with their webhook at once.
const REMOVED: usize = 600;
/// The type of the events that both ledgers' endpoints get.
pub(super) const LOAD: &str = "load.made";

/// What somebody asks for while the load runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chores {
    None,
    Recovery,
    Removal,
    Reconciliation,
}

/// What was published and delivered in one life, as far as its end allowed.
#[derive(Default)]
pub(super) struct Story {
    pub(super) published: Vec<Published>,
    pub(super) delivered: Vec<Published>,
    /// Events that a recovery was promised for.
    pub(super) recovered: Vec<String>,
}

/// A life under load.
pub(super) struct Load {
    api: Api,
    life: usize,
    /// An endpoint that only recovered events go to, and one that nobody answers at.
    aside: String,
    nowhere: String,
    story: Mutex<Story>,
    answers: watch::Sender<usize>,
    tasks: Mutex<JoinSet<()>>,
}

impl Load {
    /// Begins; the provider first sends `again` what it has to.
    pub(super) fn start(
        api: Api,
        life: usize,
        again: Vec<Published>,
        chores: Chores,
        (aside, nowhere): (String, String),
    ) -> Arc<Self> {
        let (story, answers, tasks) = (Mutex::default(), watch::channel(0).0, Mutex::default());
        let this = Arc::new(Self { api, life, aside, nowhere, story, answers, tasks });
        let mut tasks = this.tasks.lock().unwrap();
        (0..PUBLISHERS).for_each(|caller| drop(tasks.spawn(this.clone().publish(caller))));
        tasks.spawn(this.clone().deliver(0, again));
        (1..PROVIDERS).for_each(|caller| drop(tasks.spawn(this.clone().deliver(caller, Vec::new()))));
        let chores = this.clone().chores(chores);
        tasks.spawn(async { chores.await.unwrap_or_default() });
        drop(tasks);
        this
    }

    /// Waits for so many answers.
    pub(super) async fn answered(&self, count: usize) {
        // The sender lives as long as we do.
        let _ = self.answers.subscribe().wait_for(|answers| *answers >= count).await;
    }

    /// Waits until everybody has noticed that the program is gone.
    pub(super) async fn end(&self) -> Story {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        tasks.join_all().await;
        std::mem::take(&mut *self.story.lock().unwrap())
    }

    async fn publish(self: Arc<Self>, caller: usize) {
        for batch in 0.. {
            let mut events: Vec<_> =
                (0..BATCH).map(|n| event(&format!("l{}-c{caller}-{batch}-{n}", self.life), LOAD)).collect();
            let answer = self.api.try_publish_batch(&events.iter().map(expected_body).collect::<Vec<_>>()).await;
            let lives = answer.is_ok();
            if let Some(answer) = answer.ok().filter(|answer| is_taken(answer.status, 202)) {
                for (event, answer) in events.iter_mut().zip(answer.json["events"].as_array().unwrap()) {
                    event.answered = answer["deliveries"].as_u64().map(|deliveries| deliveries as usize);
                }
                self.answers.send_modify(|answers| *answers += 1);
                sleep(PAUSE).await;
            }
            self.story.lock().unwrap().published.extend(events);
            if !lives {
                return;
            }
        }
    }

    async fn deliver(self: Arc<Self>, caller: usize, again: Vec<Published>) {
        let mut again = again.into_iter();
        let mut fresh = (0..).map(|n| sale(self.life, &format!("l{}-s{caller}-{n}", self.life)));
        while let Some(mut sale) = again.next().or_else(|| fresh.next()) {
            let status = self.api.try_deliver_signed(&sale.id, expected_body(&sale)).await.ok();
            sale.answered = status.and_then(|status| is_taken(status, 200).then_some(0));
            self.story.lock().unwrap().delivered.push(sale);
            if status.is_none() {
                break;
            }
            self.answers.send_modify(|answers| *answers += 1);
            sleep(PAUSE).await;
        }
        // What it has not come to, it still has to send.
        self.story.lock().unwrap().delivered.extend(again.map(|sale| Published { answered: None, ..sale }));
    }

    /// `None`: the program is gone. What it refuses is asked for again.
    async fn chores(self: Arc<Self>, chores: Chores) -> Option<()> {
        match chores {
            Chores::None => Some(()),
            Chores::Recovery => self.recover().await,
            Chores::Removal => self.remove().await,
            Chores::Reconciliation => {
                self.send(Method::POST, &["reconcile", "sales", "run"], "{}", 202).await.map(drop)
            }
        }
    }

    async fn recover(&self) -> Option<()> {
        let (kind, ids) = (format!("aside.l{}", self.life), self.ids("a", RECOVERED));
        let webhook = json!({ "url": self.aside, "events": [kind], "active": false });
        let webhook = self.webhook(webhook).await?;
        self.publish_all(&ids, &kind).await?;
        self.send(Method::PATCH, &["webhooks", &webhook], r#"{"active":true}"#, 200).await?;
        let all = r#"{"from":"2026-01-01T00:00:00Z","to":"2999-01-01T00:00:00Z","which":"all"}"#;
        self.send(Method::POST, &["webhooks", &webhook, "recover"], all, 202).await?;
        self.story.lock().unwrap().recovered.extend(ids);
        Some(())
    }

    async fn remove(&self) -> Option<()> {
        let kind = format!("gone.l{}", self.life);
        let webhook = self.webhook(json!({ "url": self.nowhere, "events": [kind] })).await?;
        for ids in self.ids("g", REMOVED).chunks(100) {
            self.publish_all(ids, &kind).await?;
        }
        self.send(Method::DELETE, &["webhooks", &webhook], "", 204).await.map(drop)
    }

    fn ids(&self, letter: &str, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("l{}-{letter}{n}", self.life)).collect()
    }

    async fn webhook(&self, webhook: serde_json::Value) -> Option<String> {
        let made = self.send(Method::POST, &["webhooks"], &webhook.to_string(), 201).await?;
        Some(made["id"].as_str().unwrap().to_owned())
    }

    async fn publish_all(&self, ids: &[String], kind: &str) -> Option<()> {
        let bodies: Vec<_> = ids.iter().map(|id| expected_body(&event(id, kind))).collect();
        // What was refused may be stored all the same: then it is answered 200 when it comes again.
        while !matches!(self.api.try_publish_batch(&bodies).await.ok()?.status, 200 | 202) {
            sleep(PAUSE).await;
        }
        Some(())
    }

    async fn send(&self, method: Method, segments: &[&str], body: &str, status: u16) -> Option<serde_json::Value> {
        loop {
            let answer = self.api.try_call(method.clone(), segments, body).await.ok()?;
            if is_taken(answer.status, status) {
                return Some(answer.json);
            }
            sleep(PAUSE).await;
        }
    }
}

/// Whether it was taken. A machine under much load may be too slow for the program's own deadlines; then it says so.
fn is_taken(status: u16, taken: u16) -> bool {
    assert!(status == taken || matches!(status, 500 | 503), "{status}");
    status == taken
}

fn event(id: &str, kind: &str) -> Published {
    Published {
        id: id.into(),
        event_type: kind.into(),
        timestamp: "2026-11-30T09:15:00.000Z".into(),
        data: format!(r#"{{ "n": {}.0 }}"#, draws_of(id).below(1000)),
        key: String::new(),
        answered: None,
    }
}

/// A sale's event with a time, a type and a key that its id decides. Few keys are of more than one life: what is under way
/// at its end may be leased for a while.
fn sale(life: usize, id: &str) -> Published {
    let mut random = draws_of(id);
    let key =
        if random.below(10) == 0 { format!("k{}", random.below(20)) } else { format!("k{life}-{}", random.below(12)) };
    Published {
        id: id.into(),
        event_type: ["sale.created", "sale.updated", "sale.voided"][random.below(3)].into(),
        timestamp: format!("2026-11-30T09:15:{:02}.000Z", random.below(60)),
        data: format!(r#"{{ "id": "{key}", "paymentSummary":{{"grandTotal":{}}} }}"#, random.below(10_000)),
        key,
        answered: None,
    }
}
