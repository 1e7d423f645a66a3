//! The HTTP side: the API under `/v1`, the inbox's door `/in/{source}`, and what an operator's tools ask for. It reads
//! and checks requests and writes answers; what is done is decided in the sender, the inbox and the store.
//!
//! JSON in camelCase; times in RFC 3339, UTC, with milliseconds; every error is a problem document (`problem.rs`).

mod access;
mod backlog;
mod body;
mod caller;
mod deliveries;
mod docs;
mod events;
mod explain;
mod fields;
mod filters;
mod framing;
mod health;
mod inbox;
mod interventions;
mod log;
mod metrics;
mod openapi;
mod origin;
mod outages;
mod page;
mod problem;
mod receive;
mod reconcile;
mod recoveries;
mod request;
mod rotate;
mod router;
mod routes;
mod settings;
mod sources;
#[cfg(test)]
mod tests;
mod tokens;
mod trial;
mod view;
mod webhooks;

use std::sync::Arc;

use metrics_exporter_prometheus::PrometheusHandle;

use crate::clock::SharedClock;
use crate::inbox::destination::Shown;
use crate::inbox::{Inbox, Source};
use crate::outbound::Client;
use crate::reconcile::Reconciler;
use crate::role::Roles;
use crate::sender::Sender;
use crate::store::SharedStore;

pub use access::{Access, MAX_TOKEN_AGE};
pub use backlog::LastBacklog;
pub use framing::{HasTwoLengths, MAX_LINE_BYTES, Watched};
#[cfg(feature = "fuzz")]
pub(crate) use page::read_as_any_cursor;
pub use router::{guard, router};

/// What the handlers work with.
pub struct State {
    /// Where everything is read from; also where webhooks are written.
    pub store: SharedStore,
    /// Takes what is published.
    pub sender: Arc<Sender>,
    /// Takes what is received.
    pub inbox: Arc<Inbox>,
    /// Compares what was received with providers' lists.
    pub reconciler: Arc<Reconciler>,
    /// Judges the URLs of webhooks.
    pub client: Arc<Client>,
    /// How much waits, as it was counted last.
    pub backlog: LastBacklog,
    /// The two clocks.
    pub clock: SharedClock,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
    /// Who may call `/v1` and `/metrics`.
    pub access: Access,
    /// What this node does.
    pub roles: Roles,
    /// The configured sources: whose they are, and of which provider.
    pub sources: Vec<Source>,
    /// The configured destinations.
    pub destinations: Vec<Shown>,
    /// Largest body of one published event, in bytes. That of a received delivery is the inbox's.
    pub max_event_bytes: usize,
}
