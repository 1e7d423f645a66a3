//! Three nodes that receive: each delivery takes effect once in a database, and at least once elsewhere, each further
//! time with its cause in a log.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::crash::{sale, seed};
use crate::harness::{Books, Effect, XorShift, expected_body};

const SOURCE: &str = "receiptroller";
const DELIVERIES: usize = 3_000;
const CALLERS: usize = 6;
/// How often a node is killed.
const KILLS: usize = 8;
/// How long the provider waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Short deadlines, and beside the table a system of the business's that gets every event.
fn settings(business: &Receiver) -> String {
    format!(
        "[inbox]\neffect_timeout = \"2s\"\nretry_first = \"50ms\"\nretry_longest = \"500ms\"\n\n\
         [[destination]]\nname = \"forward\"\nkind = \"http\"\nurl = \"{}\"\n\n\
         [[route]]\nname = \"forward\"\nsource = \"{SOURCE}\"\nevents = [\"*\"]\ndestination = \"forward\"\norder = \"every\"\n",
        business.url("/")
    )
}

/// What the provider has still to send; a tenth of it twice.
struct Provider {
    waiting: Mutex<VecDeque<Published>>,
    answers: watch::Sender<usize>,
}

impl Provider {
    fn new(sales: &[Published]) -> Arc<Self> {
        let again = sales.iter().filter(|sale| draws_of(&sale.id).below(10) == 0);
        let waiting = Mutex::new(sales.iter().chain(again).cloned().collect());
        Arc::new(Self { waiting, answers: watch::channel(0).0 })
    }

    async fn send(self: Arc<Self>, balancer: Arc<crate::harness::Balancer>) {
        loop {
            let Some(sale) = self.waiting.lock().unwrap().pop_front() else { return };
            match timeout(PATIENCE, balancer.next().try_deliver_signed(&sale.id, expected_body(&sale))).await {
                Ok(Ok(status)) => {
                    assert_eq!(status, 200);
                    self.answers.send_modify(|answers| *answers += 1);
                }
                _ => self.waiting.lock().unwrap().push_back(sale),
            }
        }
    }

    async fn answered(&self, count: usize) {
        let mut answers = self.answers.subscribe();
        while *answers.borrow_and_update() < count {
            within("a delivery to be answered", answers.changed()).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_three_nodes_killed_in_turn_let_every_delivery_take_effect() {
    let books = Books::postgres().await;
    let store = crate::harness::TestDatabase::create().await;
    let business = Receiver::start(|seen| answer(seen.delivery(), seen.attempt)).await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(books.node(&store.url(), &settings(&business)).await);
    }
    let mut fleet = Fleet::of(servers);
    let mut sales: Vec<_> = (0..DELIVERIES).map(|n| sale(&format!("d{n:04}"))).collect();
    let provider = Provider::new(&sales);
    let mut callers = JoinSet::new();
    (0..CALLERS).for_each(|_| drop(callers.spawn(provider.clone().send(fleet.balancer.clone()))));
    let mut random = XorShift::new(seed());
    for kill in 0..KILLS {
        provider.answered(DELIVERIES * (kill + 1) / (KILLS + 1)).await;
        fleet.crash(random.below(3)).await;
    }
    callers.join_all().await;
    fleet.until_none_waits("inbox").await;
    sales.iter_mut().for_each(|sale| sale.answered = Some(0));
    let rows: HashMap<_, _> = rows(&fleet).await;
    assert_eq!(rows.len(), DELIVERIES);
    for sale in &sales {
        assert!(["done", "stale"].contains(&rows[&sale.id].as_str()), "{}: {}", sale.id, rows[&sale.id]);
    }
    assert_forwarded(&fleet, &business, &sales);
    let effects = books.effects().await.into_iter().map(|(key, event)| Effect { key, event }).collect();
    let ledgers = Ledgers { published: sales, effects, ..Ledgers::default() };
    assert_eq!(ledgers.incoming_faults(), [], "CRASH_SEED={}", seed());
}

/// The state of every row, by its id.
async fn rows(fleet: &Fleet) -> HashMap<String, String> {
    let rows = fleet.api().pages(&["inbox"]).await;
    rows.iter().map(|row| (text(&row["deliveryId"]), text(&row["state"]))).collect()
}

/// Everything came, as it was, and not more often than the logs say why.
fn assert_forwarded(fleet: &Fleet, business: &Receiver, sales: &[Published]) {
    let mut causes: HashMap<String, usize> = HashMap::new();
    for line in fleet.lines().iter().filter(|line| line["route"] == "forward" && line["delivery"].is_string()) {
        let message = line["message"].as_str().unwrap_or_default();
        if ["an effect failed", "work on a key was begun before"].iter().any(|known| message.starts_with(known)) {
            *causes.entry(text(&line["delivery"])).or_default() += 1;
        }
    }
    let mut came: HashMap<&str, usize> = HashMap::new();
    let seen = business.seen();
    seen.iter().for_each(|seen| *came.entry(seen.delivery()).or_default() += 1);
    for sale in sales {
        let (times, explained) = (came.remove(sale.id.as_str()), causes.get(&sale.id).copied().unwrap_or(0));
        assert!(times.is_some_and(|times| (1..=1 + explained).contains(&times)), "{}: {times:?}, {explained}", sale.id);
    }
    assert!(came.is_empty(), "nobody sent {came:?}");
    let bodies: HashMap<_, _> = sales.iter().map(|sale| (sale.id.as_str(), expected_body(sale))).collect();
    assert!(seen.iter().all(|seen| seen.body == bodies[seen.delivery()].as_bytes()));
    assert!(seen.len() > sales.len() + failing(sales), "nothing was interrupted");
}

fn failing(sales: &[Published]) -> usize {
    sales.iter().filter(|sale| failures(&sale.id) > 0).count()
}
