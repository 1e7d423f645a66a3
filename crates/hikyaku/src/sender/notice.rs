//! What an organization is told when a delivery uses up its attempts.

use hikyaku_core::delivery::Decision;
use hikyaku_core::operational::{Exhausted, Notice, is_operational};
use hikyaku_core::webhook::OffReason;
use jiff::Timestamp;

use super::Sender;
use crate::clock;
use crate::store::{AttemptRecord, ClaimedDelivery, FinishNotices, NewEvent};

impl Sender {
    /// The operational events that go with an attempt after which none is left. That one of those was not delivered is
    /// told to nobody: endpoints that are down would be sent news of failed news for ever. That it switched its webhook
    /// off is told, since each webhook goes off once.
    pub(super) fn notices(
        &self,
        delivery: &ClaimedDelivery,
        record: &AttemptRecord,
        decision: Decision,
    ) -> Option<Box<FinishNotices>> {
        let of_news = is_operational(delivery.event_type.as_str());
        let tells = match decision {
            Decision::Exhausted { switch_off } => switch_off || !of_news,
            _ => false,
        };
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
                exhausted: (!of_news).then(|| event(&Notice::Exhausted(exhausted))),
                switched_off: event(&Notice::Disabled(&OffReason::Exhausted(key.event.clone()))),
                due_at: self.clock.schedule(),
            })
        })
    }
}
