//! What waited for a webhook that was deleted: cancelled, in steps that leave the store to the traffic most of the time.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Sender;
use crate::store::MAX_REMOVED_AT_ONCE;

/// The pause between steps: several times what one takes.
const STEP_PAUSE: Duration = Duration::from_millis(100);
/// The pause while there is nothing to do.
const IDLE_PAUSE: Duration = Duration::from_secs(1);

impl Sender {
    /// Cancels what is left of deleted webhooks until `stop` is cancelled. It remembers nothing: a restart goes on with
    /// what the store says.
    pub(super) async fn work_removals_off(&self, stop: &CancellationToken) {
        let mut is_failing = false;
        while !stop.is_cancelled() {
            let stepped = self.store.step_removals(MAX_REMOVED_AT_ONCE).await;
            if let (Err(error), false) = (&stepped, is_failing) {
                tracing::error!(%error, "deliveries to deleted webhooks cannot be cancelled; trying again until the store answers");
            }
            is_failing = stepped.is_err();
            let pause = if matches!(stepped, Ok(true)) { STEP_PAUSE } else { IDLE_PAUSE };
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }
}
