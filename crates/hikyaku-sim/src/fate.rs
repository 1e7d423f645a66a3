//! One life of a node: from outside a crash is that it says and does nothing more, whatever its tasks still believe.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use hikyaku::store::memory::Operation;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::dice::{Trace, lock};

/// Where a node can crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Before the store does something.
    There(Operation),
    /// After it, before the node knows.
    Back(Operation),
    /// Before a request is sent.
    Sending,
    /// After it was answered, before the node knows.
    Sent,
    /// Before an effect.
    Applying,
    /// After an effect, before the node knows.
    Applied,
}

impl Point {
    /// Those at which it hurts.
    pub(crate) const ALL: [Self; 13] = [
        Self::There(Operation::Commit),
        Self::Back(Operation::Commit),
        Self::There(Operation::ClaimDeliveries),
        Self::Back(Operation::ClaimDeliveries),
        Self::There(Operation::ClaimLanes),
        Self::Back(Operation::ClaimLanes),
        Self::There(Operation::Reconcile),
        Self::Back(Operation::Reconcile),
        Self::Back(Operation::Recover),
        Self::Sending,
        Self::Sent,
        Self::Applying,
        Self::Applied,
    ];
}

/// A life.
pub(crate) struct Fate {
    pub(crate) name: Arc<str>,
    pub(crate) stop: CancellationToken,
    trace: Arc<Trace>,
    dead: AtomicBool,
    still: AtomicBool,
    /// Wakes in the order in which they wait, as a `watch` does not.
    changed: Notify,
    planned: Mutex<Option<Point>>,
}

impl Fate {
    pub(crate) fn new(name: String, trace: Arc<Trace>) -> Arc<Self> {
        let (dead, still, changed, planned) = Default::default();
        Arc::new(Self { name: name.into(), stop: CancellationToken::new(), trace, dead, still, changed, planned })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Whether it neither answers nor asks now.
    pub(crate) fn is_away(&self) -> bool {
        self.is_dead() || self.still.load(Ordering::Relaxed)
    }

    /// It crashes now.
    pub(crate) fn die(&self) {
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.trace.note(format_args!("{} crashes", self.name));
            self.stop.cancel();
            self.changed.notify_waiters();
        }
    }

    /// It will crash where it comes to this point next.
    pub(crate) fn plan(&self, point: Point) {
        *lock(&self.planned) = Some(point);
    }

    /// It stands still, as a stopped process does, or goes on.
    pub(crate) fn stand_still(&self, still: bool) {
        self.still.store(still, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Passes a point: crashes there if that was planned, and never comes back from a crash.
    pub(crate) async fn reach(&self, point: Point) {
        if lock(&self.planned).take_if(|planned| *planned == point).is_some() {
            self.trace.note(format_args!("{} comes to {point:?}", self.name));
            self.die();
        }
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    /// The same, and waits there while the node stands still.
    pub(crate) async fn pass(&self, point: Point) {
        self.reach(point).await;
        loop {
            let changed = self.changed.notified();
            if self.is_dead() {
                pending::<()>().await;
            }
            if !self.is_away() {
                return;
            }
            changed.await;
        }
    }
}
