//! What an organization is told when a delivery uses up its attempts.

use hikyaku_core::delivery::Decision;
use hikyaku_core::operational::{Exhausted, Notice, is_operational};
use hikyaku_core::webhook::OffReason;
use jiff::Timestamp;

use super::Sender;
use crate::clock;
use crate::store::{AttemptRecord, ClaimedDelivery, FinishNotices, NewEvent};

impl Sender {
    /// The operational events that go with an attempt after which none is left. What fails to deliver one of those tells
    /// nobody: an endpoint that is down would be sent news of its own failures for ever.
    pub(super) fn notices(
        &self,
        delivery: &ClaimedDelivery,
        record: &AttemptRecord,
        decision: Decision,
    ) -> Option<Box<FinishNotices>> {
        let tells = matches!(decision, Decision::Exhausted { .. }) && !is_operational(delivery.event_type.as_str());
        tells.then(|| {
            let (key, webhook) = (&delivery.key, &delivery.webhook);
            let at = record.started_at.checked_add(record.duration).unwrap_or(Timestamp::MAX);
            let event =
                |notice: &Notice<'_>| NewEvent::operational(notice, &key.webhook, &webhook.url, at, clock::random());
            let exhausted = Exhausted {
                event: &key.event,
                event_type: &delivery.event_type,
                run: record.run,
                attempts: record.number,
                outcome: record.outcome,
                error: &record.error,
            };
            Box::new(FinishNotices {
                exhausted: event(&Notice::Exhausted(exhausted)),
                switched_off: event(&Notice::Disabled(&OffReason::Exhausted(key.event.clone()))),
                due_at: self.clock.schedule(),
            })
        })
    }
}
