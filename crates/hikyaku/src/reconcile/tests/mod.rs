//! Reconciliation against lists that do as they are told, and against the sandbox with every fault, on paused time.

mod edges;
mod rig;
mod shop;
mod watch;
mod week;
mod wire;

use std::future::pending;
use std::sync::Arc;

use async_trait::async_trait;
use axum::http::Method;
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::OrganizationId;

use super::adapter::Item;
use super::{Door, Entered, Reconciler, Seen, Settings, Tools, Worker};
use crate::clock::SharedClock;
use crate::outbound::{Exchange, Request, Response};
use crate::store::{SharedStore, StoreError};

/// Nobody, on either side.
struct Nobody;

#[async_trait]
impl Exchange for Nobody {
    async fn exchange(&self, _: Method, _: Request, _: usize) -> Response {
        pending().await
    }
}

#[async_trait]
impl Door for Nobody {
    async fn enter(&self, _: &str, _: &Item, _: Entry) -> Result<Entered, StoreError> {
        pending().await
    }

    async fn is_healthy(&self, _: &str) -> bool {
        false
    }

    async fn switched_off(&self, _: &OrganizationId, _: &Seen) -> Result<(), StoreError> {
        pending().await
    }
}

/// Two processes that have the reconciliation `sales`, over one store.
pub(super) fn two_processes() -> (Worker, Worker) {
    let rig = rig::Rig::new(&[("a", 10)], rig::settings());
    let (store, clock): (SharedStore, SharedClock) = (rig.store.clone(), rig.clock.clone());
    let process = || {
        let (store, clock) = (Arc::clone(&store), Arc::clone(&clock));
        let tools = Tools { store, clock, exchange: Arc::new(Nobody), door: Arc::new(Nobody) };
        Worker::new(rig::settings(), tools)
    };
    (process(), process())
}

/// The reconciliation `sales` of an organization, which nobody runs.
pub(crate) fn idle(organization: &str, store: SharedStore, clock: SharedClock) -> Arc<Reconciler> {
    let organization = OrganizationId::parse(organization).unwrap();
    let tools = Tools { store, clock, exchange: Arc::new(Nobody), door: Arc::new(Nobody) };
    Reconciler::new(vec![Settings { organization, ..rig::settings() }], &tools)
}
