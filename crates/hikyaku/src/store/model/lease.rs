//! The right to act on something alone for a while.

use std::sync::Arc;
use std::time::Duration;

use hikyaku_core::webhook::Webhook;

/// A lease to take: by whom, and for how long from now. A store with a clock of its own measures by that one.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The process that takes it; new at every start.
    pub owner: Arc<str>,
    /// How long nobody else may act.
    pub duration: Duration,
}

/// How much longer a lease lasts than an attempt may: for the commit that takes it to be answered, and for the result
/// to be written although the store is slow or away for a moment.
pub const LEASE_MARGIN: Duration = Duration::from_secs(10);

impl Lease {
    /// For how long a delivery to `webhook` is leased: long enough for an attempt that it gives more time to.
    pub fn duration_for(&self, webhook: &Webhook) -> Duration {
        let own = webhook.settings.timeout.map(|timeout| timeout.get() + LEASE_MARGIN);
        own.map_or(self.duration, |own| own.max(self.duration))
    }
}
