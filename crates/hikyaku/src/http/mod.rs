//! The HTTP side: the API under `/v1`, the inbox's door `/in/{source}`, and what an operator's tools ask for. It reads
//! and checks requests and writes answers; what is done is decided in the sender, the inbox and the store.
//!
//! JSON in camelCase; times in RFC 3339, UTC, with milliseconds; every error is a problem document (`problem.rs`).

mod auth;
mod body;
mod events;
mod fields;
mod health;
mod inbox;
mod log;
mod page;
mod problem;
mod receive;
mod request;
mod router;
#[cfg(test)]
mod tests;
mod view;
mod webhooks;

use std::sync::Arc;

use hikyaku_core::signature::Secret;
use metrics_exporter_prometheus::PrometheusHandle;

use crate::clock::SharedClock;
use crate::inbox::{Inbox, Source};
use crate::outbound::Client;
use crate::sender::Sender;
use crate::store::SharedStore;

pub use router::router;

/// Largest body of one event that is taken by default, in bytes.
const DEFAULT_MAX_EVENT_BYTES: usize = 256 * 1024;

/// What the handlers work with.
pub struct State {
    /// Where everything is read from; also where webhooks are written.
    pub store: SharedStore,
    /// Takes what is published.
    pub sender: Arc<Sender>,
    /// Takes what is received.
    pub inbox: Arc<Inbox>,
    /// Judges the URLs of webhooks.
    pub client: Arc<Client>,
    /// The two clocks.
    pub clock: SharedClock,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
    /// What callers of `/v1` and `/metrics` must present as a bearer token; `None`: they are open.
    pub token: Option<Secret>,
    /// The configured sources: whose they are, and of which provider.
    pub sources: Vec<Source>,
    /// The limits.
    pub settings: Settings,
}

/// The limits of requests that are settings. That of a received delivery is the inbox's.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Largest body of one published event, in bytes.
    pub max_event_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_event_bytes: DEFAULT_MAX_EVENT_BYTES }
    }
}
