//! The sandbox as a whole: on virtual time with a receiver that is a function, and its API over a real socket.

mod api;
mod network;
mod run;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hikyaku_core::delivery::Outcome;
use hikyaku_core::event::EventPattern;
use hikyaku_core::retry::RetrySchedule;
use hikyaku_core::signature::Secret;
use jiff::Timestamp;
use url::Url;

use super::engine::Outgoing;
use super::faults::Plan;
use super::{Courier, Receiver, Sandbox, Settings, world};
use crate::clock::SystemClock;

fn start() -> Timestamp {
    "2026-11-30T00:00:00Z".parse().unwrap()
}

/// A receiver that is a function of what comes.
struct Answers<F>(F);

#[async_trait]
impl<F: Fn(&Outgoing) -> Outcome + Send + Sync + 'static> Courier for Answers<F> {
    async fn send(&self, outgoing: &Outgoing, _: Duration) -> Outcome {
        (self.0)(outgoing)
    }
}

fn settings(plan: &str) -> Settings {
    Settings {
        world: world::Settings::default(),
        plan: Plan::parse(plan).unwrap(),
        retries: RetrySchedule::default(),
        attempt_timeout: Duration::from_secs(10),
        time_scale: 1,
        start: start(),
        user_name: "sandbox".to_owned(),
        password: Secret::new("sandbox"),
        receivers: vec![Receiver {
            url: Url::parse("http://127.0.0.1:1/hook").unwrap(),
            secret: Secret::new("a-secret"),
            events: vec![EventPattern::All],
        }],
    }
}

fn sandbox(settings: Settings, answer: impl Fn(&Outgoing) -> Outcome + Send + Sync + 'static) -> Arc<Sandbox> {
    Sandbox::new(settings, Arc::new(SystemClock::start()), Arc::new(Answers(answer)))
}
