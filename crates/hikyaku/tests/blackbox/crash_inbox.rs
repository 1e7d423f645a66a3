//! `kill -9` again and again while thousands of deliveries come in, many of them twice and none in its order: the table
//! equals the events folded, and whatever is announced twice has its cause in the log.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::crash::{draws_of, seed};
use crate::harness::{
    Api, Books, Effect, Ledgers, Published, Receiver, Reply, Sale, Seen, Server, XorShift, eventually, expected_body,
    within,
};

/// Events, each of them sent until it is answered, and every tenth once more after that.
const EVENTS: usize = 5_000;
/// Sales that they are about.
const KEYS: usize = 300;
/// Sales among them that are completed, which is announced: few, because Slack takes one message a second.
const ANNOUNCED_KEYS: usize = 10;
/// Connections of the provider at a time.
const CALLERS: usize = 6;
/// How often the program is killed after the first time.
const KILLS: usize = 5;
/// Answers between two kills, at most.
const ANSWERS_PER_ROUND: usize = 800;
const SOURCE: &str = "receiptroller";

/// Short pauses, a channel, and a route into it: each completed sale once.
fn announcing_to(slack: &Receiver) -> String {
    format!(
        "[inbox]\neffect_timeout = \"2s\"\nretry_first = \"50ms\"\nretry_longest = \"200ms\"\n\n\
         [[destination]]\nname = \"chat\"\nkind = \"slack\"\nurl = \"{}\"\ntemplate = \"{{{{ key }}}}\"\n\n\
         [[route]]\nname = \"announce\"\nsource = \"{SOURCE}\"\nevents = [\"sale.completed\"]\ndestination = \"chat\"\n\
         order = \"every\"\nonce = \"key\"\n",
        slack.url("/services/x")
    )
}

/// An event with a sale, a time and a type that its number decides.
fn event(number: usize) -> Published {
    let id = format!("e{number:04}");
    let mut random = draws_of(&id);
    let key = random.below(KEYS);
    let verbs: &[&str] =
        if key < ANNOUNCED_KEYS { &["created", "completed"] } else { &["created", "updated", "voided"] };
    let key = format!("k{key:03}");
    Published {
        event_type: format!("sale.{}", verbs[random.below(verbs.len())]),
        timestamp: format!("2026-11-30T09:15:{:02}.000Z", random.below(60)),
        data: format!(r#"{{ "id": "{key}", "paymentSummary":{{"grandTotal":{}}} }}"#, random.below(10_000)),
        id,
        key,
        answered: None,
    }
}

/// The provider: what it has still to send.
struct Provider {
    queue: Mutex<Queue>,
    answers: watch::Sender<usize>,
}

struct Queue {
    waiting: VecDeque<Published>,
    answered: HashSet<String>,
    random: XorShift,
}

impl Queue {
    /// Puts an event anywhere: nobody promises an order (R19).
    fn put_back(&mut self, event: Published) {
        let place = self.random.below(self.waiting.len() + 1);
        self.waiting.insert(place, event);
    }
}

impl Provider {
    fn of(events: impl IntoIterator<Item = Published>) -> Arc<Self> {
        let (waiting, random) = (events.into_iter().collect(), XorShift::new(seed()));
        let queue = Mutex::new(Queue { waiting, answered: HashSet::new(), random });
        Arc::new(Self { queue, answers: watch::channel(0).0 })
    }

    /// Sends from several connections, until all is answered or nobody is there any more.
    fn send(self: &Arc<Self>, api: &Api) -> Vec<JoinHandle<()>> {
        let caller = |_| {
            let (this, api) = (self.clone(), api.clone());
            tokio::spawn(async move { while this.send_one(&api).await {} })
        };
        (0..CALLERS).map(caller).collect()
    }

    /// Sends one event; whether to go on.
    async fn send_one(&self, api: &Api) -> bool {
        let Some(event) = self.queue.lock().unwrap().waiting.pop_front() else { return false };
        let Ok(status) = api.try_deliver_signed(&event.id, expected_body(&event)).await else {
            self.queue.lock().unwrap().put_back(event);
            return false;
        };
        assert_eq!(status, 200, "{}", event.id);
        let mut queue = self.queue.lock().unwrap();
        if queue.answered.insert(event.id.clone()) && draws_of(&event.id).below(10) == 0 {
            queue.put_back(event);
        }
        drop(queue);
        self.answers.send_modify(|answers| *answers += 1);
        true
    }

    /// Waits for this many answers in all.
    async fn answered(&self, count: usize) {
        self.answers.subscribe().wait_for(|answers| *answers >= count).await.unwrap();
    }
}

/// How Slack takes a message: the first of all it never answers, and of every third sale it breaks the connection once.
fn slack_answers(seen: &Seen, told: &mut HashSet<String>) -> Reply {
    let key = text_of(seen);
    let is_broken = key[1..].parse::<usize>().unwrap().is_multiple_of(3);
    match told.insert(key) {
        _ if seen.order == 0 => Reply::Hang,
        true if is_broken => Reply::Close,
        _ => Reply::Answer(200, b"ok".to_vec()),
    }
}

fn text_of(seen: &Seen) -> String {
    seen.json()["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn t1_t5_c8_kill9_among_5000_events_leaves_the_fold_of_them_and_announces_each_sale_once() {
    let mut told = HashSet::new();
    let mut slack = Receiver::start(move |seen| slack_answers(seen, &mut told)).await;
    let books = Books::sqlite().await;
    let mut server = books.serve(&announcing_to(&slack)).await;
    let events: Vec<_> = (0..EVENTS).map(event).collect();
    let provider = Provider::of(events.clone());
    let mut log = String::new();
    // The first time, a message is on its way.
    kill_when(&mut server, &provider, &mut log, async { drop(slack.next().await) }).await;
    let mut random = XorShift::new(seed());
    let mut answers = *provider.answers.borrow();
    for _ in 0..KILLS {
        answers += 1 + random.below(ANSWERS_PER_ROUND);
        kill_when(&mut server, &provider, &mut log, provider.answered(answers)).await;
        answers = *provider.answers.borrow();
    }
    for caller in provider.send(&server.api()) {
        within("the rest to be answered", caller).await.unwrap();
    }
    let api = server.api();
    let waiting = async || api.inbox(&[("state", "waiting"), ("limit", "1")]).await.is_empty().then_some(());
    eventually("everything to be worked off", waiting).await;
    assert_all_are_kept(&api, &events).await;
    assert!(server.sigterm().await.success());
    log.push_str(&server.log());
    assert_table_is_the_fold(&books, events.clone()).await;
    assert_announced_once(&slack.seen(), &events, &log);
}

/// Lets the provider send, kills the program at a moment, and starts it again.
async fn kill_when(server: &mut Server, provider: &Arc<Provider>, log: &mut String, moment: impl Future<Output = ()>) {
    let callers = provider.send(&server.api());
    within("the moment to kill it", moment).await;
    server.kill9().await;
    for caller in callers {
        within("a caller to notice", caller).await.unwrap();
    }
    log.push_str(&server.log());
    server.restart().await;
}

/// Every event is a row that ended well, and is there once.
async fn assert_all_are_kept(api: &Api, events: &[Published]) {
    let found = api.pages(&["inbox"]).await;
    let mut ids: Vec<_> = found.iter().map(|row| row["deliveryId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    assert!(ids.iter().eq(events.iter().map(|event| &event.id)), "CRASH_SEED={}: {} rows", seed(), ids.len());
    for row in &found {
        assert!(row["state"] == "done" || row["state"] == "stale", "CRASH_SEED={}: {row}", seed());
    }
    for event in events.iter().step_by(50) {
        assert_eq!(api.inbox_body(SOURCE, &event.id).await, expected_body(event).as_bytes());
    }
}

/// C4, C8, C10: a row per sale, as its newest event says, and each event wrote at most once.
async fn assert_table_is_the_fold(books: &Books, mut events: Vec<Published>) {
    let mut newest: BTreeMap<&str, &Published> = BTreeMap::new();
    for event in &events {
        let held = newest.entry(&event.key).or_insert(event);
        if version(event) > version(held) {
            *held = event;
        }
    }
    let total = |event: &Published| {
        serde_json::from_str::<Value>(&event.data).unwrap()["paymentSummary"]["grandTotal"].as_i64()
    };
    let row =
        |event: &Published| Sale { id: event.key.clone(), total: total(event), event: event.id.clone(), biz: None };
    let fold: Vec<_> = newest.into_values().map(row).collect();
    assert!(fold.len() > KEYS / 2, "the run has shown nothing");
    assert_eq!(books.sales().await, fold, "CRASH_SEED={}", seed());
    let effects = books.effects().await.into_iter().map(|(key, event)| Effect { key, event }).collect();
    events.iter_mut().for_each(|event| event.answered = Some(0));
    let ledgers = Ledgers { published: events, effects, ..Ledgers::default() };
    assert_eq!(ledgers.incoming_faults(), [], "CRASH_SEED={}", seed());
}

/// The reference's own rule of what is newer.
fn version(event: &Published) -> (&str, usize, &str) {
    let order = ["sale.created", "sale.updated"];
    let rank = order.iter().position(|known| *known == event.event_type).unwrap_or(order.len());
    (&event.timestamp, rank, &event.id)
}

/// T5: a message per sale that Slack has said ok to; any further one has its cause in the log: a connection that broke
/// before the answer, or work that a crash cut off before its end was written.
fn assert_announced_once(seen: &[Seen], events: &[Published], log: &str) {
    let causes = causes(log, events);
    let mut messages: BTreeMap<String, usize> = BTreeMap::new();
    seen.iter().for_each(|message| *messages.entry(text_of(message)).or_default() += 1);
    let completed = events.iter().filter(|event| event.event_type == "sale.completed");
    let sales: BTreeSet<_> = completed.map(|event| event.key.as_str()).collect();
    assert!(sales.len() > ANNOUNCED_KEYS / 2, "the run has shown nothing");
    assert!(messages.keys().eq(&sales), "CRASH_SEED={}: {sales:?} are completed, told is of {messages:?}", seed());
    for (key, sent) in &messages {
        let explained = causes.get(key).copied().unwrap_or(0);
        assert!(*sent <= 1 + explained, "CRASH_SEED={}: {key} came {sent} times, {explained} explained", seed());
    }
    assert!(seen.len() > sales.len(), "the run has shown nothing: no connection broke");
}

/// How often the log tells of a message's sale that its way to Slack was cut off.
fn causes(log: &str, events: &[Published]) -> BTreeMap<String, usize> {
    let key_of: BTreeMap<_, _> = events.iter().map(|event| (event.id.as_str(), event.key.as_str())).collect();
    let mut causes = BTreeMap::new();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let fields = line.get("fields").unwrap_or(&line);
        let message = fields["message"].as_str().unwrap_or_default();
        let is_cause =
            ["an effect failed", "work on a key was begun before"].iter().any(|known| message.starts_with(known));
        if fields["route"] == "announce" && is_cause {
            let key = key_of[fields["delivery"].as_str().unwrap()];
            *causes.entry(key.to_owned()).or_default() += 1;
        }
    }
    causes
}
