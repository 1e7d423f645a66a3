//! Stands beside the store and sees, at the very commit that stores an event, which webhooks it must go to.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use hikyaku::store::Store;
use hikyaku::store::memory::{MemoryStore, Operation};
use hikyaku_core::ids::EventId;
use hikyaku_core::webhook::WhileInactive;

use crate::dice::lock;
use crate::node::organization;

/// The witness.
pub(crate) struct Witness {
    store: Arc<MemoryStore>,
    /// Events that are being published, with their types.
    expected: Mutex<BTreeMap<String, String>>,
    seen: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl Witness {
    pub(crate) fn new(store: Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { store, expected: Mutex::default(), seen: Mutex::default() })
    }

    /// From now on this event may be stored.
    pub(crate) fn expect(&self, event: &str, event_type: &str) {
        lock(&self.expected).insert(event.to_owned(), event_type.to_owned());
    }

    /// Looks at what a call has changed.
    pub(crate) fn look(&self, operation: Operation) {
        let mut expected = lock(&self.expected);
        if operation != Operation::Commit || expected.is_empty() {
            return;
        }
        let is_stored = |event: &str| {
            let id = EventId::parse(event).ok();
            id.and_then(|id| ready(self.store.event(&organization(), &id)).ok().flatten()).is_some()
        };
        let stored: Vec<_> = expected.extract_if(.., |event, _| is_stored(event)).collect();
        for (event, event_type) in stored {
            let webhooks = ready(self.store.webhooks(&organization())).unwrap_or_default();
            let holds = |webhook: &hikyaku_core::webhook::Webhook| {
                webhook.misses(&event_type) && webhook.settings.while_inactive == WhileInactive::Hold
            };
            let takers = webhooks.iter().filter(|webhook| webhook.takes(&event_type) || holds(webhook));
            lock(&self.seen).insert(event, takers.map(|webhook| webhook.id.as_str().to_owned()).collect());
        }
    }

    /// What was seen: the events that are stored, each with the webhooks it must go to.
    pub(crate) fn seen(&self) -> BTreeMap<String, BTreeSet<String>> {
        lock(&self.seen).clone()
    }
}

/// The answer of a future that waits for nothing.
///
/// # Panics
/// If it does wait.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the store in memory answers at once where nothing lies on the way"),
    }
}
