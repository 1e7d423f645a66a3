//! What waited for a webhook that was deleted: cancelled, in steps that leave the store to the traffic most of the time.

use std::time::Duration;

use hikyaku_core::ids::{OrganizationId, WebhookId};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Sender, metrics};
use crate::crash;
use crate::store::{MAX_REMOVED_AT_ONCE, StoreError};

/// The pause between steps: several times what one takes.
const STEP_PAUSE: Duration = Duration::from_millis(100);

impl Sender {
    /// Removes a webhook, whose deliveries then end as cancelled; `false` where there is no such webhook.
    ///
    /// # Errors
    /// The store's.
    pub async fn remove_webhook(&self, organization: &OrganizationId, id: &WebhookId) -> Result<bool, StoreError> {
        let cancelled = self.store.delete_webhook(organization, id, self.clock.now()).await?;
        cancelled.into_iter().for_each(metrics::cancelled);
        Ok(cancelled.is_some())
    }

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
            let pause = match stepped {
                Ok(Some(cancelled)) => {
                    crash::point("removal.stepped");
                    metrics::cancelled(cancelled);
                    STEP_PAUSE
                }
                Ok(None) | Err(_) => self.settings.look_every,
            };
            stop.run_until_cancelled(sleep(pause)).await;
        }
    }
}
