//! The whole: everything that all sides share, a day of it, and what stands at its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hikyaku::clock::{self, Clock, SharedClock, SystemClock};
use hikyaku::sandbox::Sandbox;
use hikyaku::store::Store;
use hikyaku::store::memory::MemoryStore;
use hikyaku_core::ids::EventId;
use hikyaku_core::webhook::Webhook;
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::books::Shelves;
use crate::dice::{Dice, Trace, lock};
use crate::ledger::{Delivery, Ledgers, Line, Row};
use crate::node::{Node, organization};
use crate::plant::{self, Plant};
use crate::road::{Storm, Weather};
use crate::shop::{self, PROVIDER, Post};
use crate::witness::{Witness, ready};
use crate::{Options, people, publisher};

/// After the day: late sales come into the list.
const LATE: Duration = Duration::from_secs(2 * 3600 + 1800);
/// So long everything has to come to its end, in minutes: longer than any retry.
const MAX_END_MINUTES: u32 = 4 * 24 * 60;
/// The pause between two looks whether it has.
const LOOK: Duration = Duration::from_secs(60);

/// When every day begins: some minutes before a month of Japan ends.
pub(crate) fn start() -> Timestamp {
    // 2026-11-30T14:30:00Z.
    Timestamp::from_second(1_796_049_000).expect("it is within the range")
}

/// The nodes' clock: its wall clock can be set.
pub(crate) struct SimClock {
    base: SharedClock,
    wall_ahead_s: AtomicI64,
}

impl SimClock {
    /// From now on the wall clock is so far ahead.
    pub(crate) fn set(&self, ahead: SignedDuration) {
        self.wall_ahead_s.store(ahead.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.wall_ahead_s.load(Ordering::Relaxed));
        self.base.now().saturating_add(ahead).unwrap_or(Timestamp::MAX)
    }

    fn schedule(&self) -> Timestamp {
        self.base.schedule()
    }
}

/// What all sides share.
pub(crate) struct Stage {
    pub(crate) dice: Arc<Dice>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) clock: Arc<SimClock>,
    /// The store itself, with nothing on the way.
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) witness: Arc<Witness>,
    pub(crate) ledgers: Mutex<Ledgers>,
    pub(crate) nodes: Mutex<Vec<Arc<Node>>>,
    /// Lives and webhooks so far: each has a name of its own.
    pub(crate) lives: AtomicU64,
    /// Until when an endpoint is down, in virtual milliseconds.
    pub(crate) down_until: Mutex<BTreeMap<String, i64>>,
    pub(crate) books_down_until: Mutex<i64>,
    pub(crate) shelves: Mutex<Shelves>,
    /// How often a node looks whether another one left it something: the one thing that costs time in a day on which little
    /// happens, so most days have it less often than in use.
    pub(crate) look_every: Duration,
    router: Mutex<Option<Router>>,
    plant: Mutex<Option<Plant>>,
    /// What a fault that lasts was put into.
    planted_into: Mutex<Option<(Plant, String)>>,
    over: CancellationToken,
}

impl Stage {
    fn set(options: Options) -> Arc<Self> {
        let base = clock::fast(Arc::new(SystemClock::start()), 1, start());
        let clock = Arc::new(SimClock { base: base.clone(), wall_ahead_s: AtomicI64::new(0) });
        let store = Arc::new(MemoryStore::new());
        let (weather, ledgers, nodes, lives, down_until, books_down_until, shelves, router, planted_into) =
            Default::default();
        let dice = Arc::new(Dice::new(options.seed));
        Arc::new(Self {
            look_every: dice.between(LOOK / 2, LOOK * 2),
            dice,
            trace: Arc::new(Trace::new(base, options.show)),
            clock,
            witness: Witness::new(store.clone()),
            store,
            weather,
            ledgers,
            nodes,
            lives,
            down_until,
            books_down_until,
            shelves,
            router,
            plant: Mutex::new(options.plant),
            planted_into,
            over: CancellationToken::new(),
        })
    }

    /// Whether the day is over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Whether this fault of ours is to be put in, now and never again.
    pub(crate) fn plants(&self, plant: Plant) -> bool {
        let planted = lock(&self.plant).take_if(|planned| *planned == plant).is_some();
        if planted {
            self.trace.note(format_args!("planted: {plant:?}"));
        }
        planted
    }

    /// Whether this fault of ours, which lasts, is put into this: into the first that is asked about, and from then on into that
    /// one alone.
    pub(crate) fn plants_into(&self, plant: Plant, what: &str) -> bool {
        let mut planted_into = lock(&self.planted_into);
        if self.plants(plant) {
            *planted_into = Some((plant, what.to_owned()));
        }
        planted_into.as_ref().is_some_and(|(planted, into)| *planted == plant && into == what)
    }

    /// A time between these two from now, in virtual milliseconds.
    pub(crate) fn later(&self, from: Duration, to: Duration) -> i64 {
        let length = i64::try_from(self.dice.between(from, to).as_millis()).unwrap_or(i64::MAX);
        self.trace.millis().saturating_add(length)
    }

    pub(crate) fn any_node(&self) -> Option<Arc<Node>> {
        let nodes = lock(&self.nodes);
        let alive: Vec<_> = nodes.iter().filter(|node| !node.fate.is_dead()).cloned().collect();
        self.dice.pick(&alive).cloned()
    }

    /// The webhooks as they are.
    pub(crate) fn webhooks(&self) -> Arc<[Arc<Webhook>]> {
        ready(self.store.webhooks(&organization())).unwrap_or_default()
    }

    pub(crate) fn router(&self) -> Option<Router> {
        lock(&self.router).clone()
    }

    /// One more of these.
    pub(crate) fn happened(&self, what: &'static str) {
        *lock(&self.ledgers).happened.entry(what).or_default() += 1;
    }
}

/// Lives through a day; gives the trace's hash and the ledgers.
pub(crate) async fn live(options: Options) -> (u64, Ledgers) {
    let stage = Stage::set(options);
    let sandbox = shop::open(options.seed, Arc::new(SystemClock::start()), Arc::new(Post(stage.clone())));
    *lock(&stage.router) = Some(sandbox.router());
    for number in 0..=stage.dice.below(2) {
        let node = Node::start(&stage, format!("node{number}"));
        lock(&stage.nodes).push(node);
    }
    let shops = CancellationToken::new();
    let mut tasks = vec![tokio::spawn(people::interfere(stage.clone()))];
    tasks.extend(['a', 'b'].map(|name| tokio::spawn(publisher::publish(stage.clone(), name))));
    tokio::spawn(sandbox.clone().run(shops.clone()));
    sleep(options.length).await;
    stage.over.cancel();
    shops.cancel();
    for task in tasks {
        // A panic of ours is counted like one of the program.
        let _ = task.await;
    }
    end(&stage).await;
    let ledgers = collect(&stage, &sandbox);
    (stage.trace.hash(), plant::tamper(ledgers, options.plant))
}

/// No more faults, and time for everything to come to its end.
async fn end(stage: &Arc<Stage>) {
    stage.trace.note(format_args!("the day is over"));
    *lock(&stage.weather) = Storm::default();
    lock(&stage.down_until).clear();
    *lock(&stage.books_down_until) = 0;
    stage.clock.set(SignedDuration::ZERO);
    // The last life of each node is one of which no crash is planned.
    lock(&stage.nodes).iter().for_each(|node| node.fate.die());
    people::revive(stage);
    sleep(LATE).await;
    compare_once_more(stage).await;
    for _ in 0..MAX_END_MINUTES {
        let waits = ready(stage.store.backlog()).is_ok_and(|backlog| backlog.deliveries + backlog.effects > 0);
        if !waits {
            return;
        }
        sleep(LOOK).await;
    }
    lock(&stage.ledgers).unended.push("something waits for ever".to_owned());
}

/// One more cycle of reconciliation, from beginning to end.
async fn compare_once_more(stage: &Arc<Stage>) {
    let Some(node) = stage.any_node() else { return };
    let asked_at = stage.clock.now();
    // Not one that was under way: what that one has passed by may have come into the list since.
    let is_done = async || {
        let cycles = node.reconciler.cycles(&shop::key(), None, 2).await.unwrap_or_default();
        cycles.iter().any(|cycle| cycle.ended_at.is_some() && cycle.started_at >= asked_at)
    };
    let asked = node.reconciler.request(&shop::key(), None).await;
    for _ in 0..MAX_END_MINUTES {
        if asked.is_ok() && is_done().await {
            return;
        }
        sleep(LOOK).await;
    }
    lock(&stage.ledgers).unended.push("reconciliation".to_owned());
}

/// The ledgers, with what the program says at the end.
fn collect(stage: &Stage, sandbox: &Sandbox) -> Ledgers {
    let mut ledgers = lock(&stage.ledgers).clone();
    ledgers.takers = stage.witness.seen();
    ledgers.listed = shop::listed(sandbox);
    for published in &ledgers.published {
        let Ok(id) = EventId::parse(published.id.clone()) else { continue };
        let Ok(Some(view)) = ready(stage.store.event(&organization(), &id)) else { continue };
        ledgers.bodies.insert(published.id.clone(), view.body);
        ledgers.deliveries.extend(view.deliveries.into_iter().map(|delivery| Delivery {
            event: published.id.clone(),
            webhook: delivery.webhook.as_str().to_owned(),
            state: delivery.state,
            run: delivery.run,
            log: delivery.attempts.iter().map(line).collect(),
        }));
    }
    let ids: BTreeSet<_> = ledgers.received.iter().map(|row| row.id.clone()).collect();
    let effects = ledgers.effects.iter().map(|effect| effect.delivery.clone());
    for delivery in ids.into_iter().chain(effects).collect::<BTreeSet<_>>() {
        let row = ready(stage.store.inbox_row(&organization(), PROVIDER, &delivery));
        let Ok(Some(row)) = row else { continue };
        let effects = row.effects.into_iter();
        let effects = effects.map(|effect| (effect.route, (effect.state.as_str().to_owned(), effect.failures)));
        ledgers.rows.insert(delivery, Row { body: row.body, effects: effects.collect() });
    }
    ledgers
}

fn line(attempt: &hikyaku::store::AttemptRecord) -> Line {
    let (run, number) = (attempt.run, attempt.number);
    Line { run, number, started_at: attempt.started_at, outcome: attempt.outcome }
}
