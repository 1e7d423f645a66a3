//! A load: many publishers that go from node to node until each of their events has been answered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Answer, Api, Published, expected_body};

/// Events published in one request.
const BATCH: usize = 20;
/// How long a publisher waits for an answer before it turns to another node.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
/// A publisher's pause after it was refused.
const PAUSE: Duration = Duration::from_millis(50);

/// The nodes that a load balancer knows to be there.
#[derive(Default)]
pub(crate) struct Balancer {
    apis: Mutex<Vec<Option<Api>>>,
    turn: AtomicUsize,
}

impl Balancer {
    /// Tells where a node is, or that it is away.
    pub(crate) fn set(&self, node: usize, api: Option<Api>) {
        let mut apis = self.apis.lock().unwrap();
        if apis.len() <= node {
            apis.resize(node + 1, None);
        }
        apis[node] = api;
    }

    /// The next node; one must be there.
    pub(crate) fn next(&self) -> Api {
        let apis: Vec<_> = self.apis.lock().unwrap().iter().flatten().cloned().collect();
        apis[self.turn.fetch_add(1, Ordering::Relaxed) % apis.len()].clone()
    }
}

/// What is published, and what came of it.
pub(crate) struct Load {
    balancer: Arc<Balancer>,
    waiting: Mutex<VecDeque<Vec<Published>>>,
    answered: Mutex<Vec<Published>>,
    count: watch::Sender<usize>,
    /// How many events may be published so far.
    allowed: watch::Sender<usize>,
    refusals: Mutex<Vec<(u16, Duration)>>,
}

impl Load {
    /// Publishes all of these, from several publishers at once.
    pub(crate) fn start(
        balancer: &Arc<Balancer>,
        events: Vec<Published>,
        publishers: usize,
    ) -> (Arc<Self>, JoinSet<()>) {
        let this = Arc::new(Self {
            balancer: Arc::clone(balancer),
            waiting: Mutex::new(events.chunks(BATCH).map(<[_]>::to_vec).collect()),
            answered: Mutex::default(),
            count: watch::channel(0).0,
            allowed: watch::channel(usize::MAX).0,
            refusals: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..publishers {
            tasks.spawn(this.clone().publish());
        }
        (this, tasks)
    }

    async fn publish(self: Arc<Self>) {
        loop {
            self.until_allowed().await;
            let Some(mut batch) = self.waiting.lock().unwrap().pop_front() else { return };
            let bodies: Vec<_> = batch.iter().map(expected_body).collect();
            let answer = self.answer(&bodies).await;
            let answers = answer.json["events"].as_array().unwrap();
            for (event, answer) in batch.iter_mut().zip(answers) {
                assert_eq!(answer["id"], event.id);
                event.answered = Some(answer["deliveries"].as_u64().unwrap() as usize);
            }
            self.count.send_modify(|count| *count += batch.len());
            self.answered.lock().unwrap().extend(batch);
        }
    }

    /// Holds publishers back once so many events are on their way, until more are allowed.
    pub(crate) fn allow(&self, events: usize) {
        self.allowed.send_replace(events);
    }

    async fn until_allowed(&self) {
        let mut allowed = self.allowed.subscribe();
        // The sender lives as long as we do.
        let _ = allowed.wait_for(|allowed| *self.count.borrow() < *allowed).await;
    }

    /// Publishes a batch again and again until it is taken; the ids are what keeps it one.
    async fn answer(&self, bodies: &[String]) -> Answer {
        loop {
            let (api, began) = (self.balancer.next(), Instant::now());
            if let Ok(Ok(answer)) = timeout(ANSWER_PATIENCE, api.try_publish_batch(bodies)).await {
                match answer.status {
                    200 | 202 => return answer,
                    500 | 503 => self.refusals.lock().unwrap().push((answer.status, began.elapsed())),
                    _ => panic!("{answer:?}"),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until this many events have been answered. However slow the machine is, some are from time to time.
    pub(crate) async fn answered(&self, count: usize) {
        let mut answered = self.count.subscribe();
        while *answered.borrow_and_update() < count {
            super::within("a publish to be answered", answered.changed()).await.unwrap();
        }
    }

    /// All that were answered.
    pub(crate) fn published(&self) -> Vec<Published> {
        self.answered.lock().unwrap().clone()
    }

    /// The answers that refused a publish, and how long each took.
    pub(crate) fn refusals(&self) -> Vec<(u16, Duration)> {
        self.refusals.lock().unwrap().clone()
    }
}
