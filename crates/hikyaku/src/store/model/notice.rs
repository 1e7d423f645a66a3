//! Operational events, published in the commit of what they tell of.

use std::collections::HashMap;
use std::time::Duration;

use hikyaku_core::event::{content_hash, render_body};
use hikyaku_core::ids::{DeliveryKey, EventId, ID_RANDOM_BYTES, OrganizationId, WebhookId};
use hikyaku_core::operational::Notice;
use hikyaku_core::webhook::WebhookUrl;
use jiff::Timestamp;

use super::{Lease, NewEvent, Publish};

/// The notice that goes with a change of a webhook, if it switches the webhook on or off.
#[derive(Debug, Clone)]
pub struct SwitchNotice {
    /// The operational event.
    pub event: NewEvent,
    /// The schedule clock: its deliveries are due from here on.
    pub due_at: Timestamp,
}

/// The notices that go with an attempt that used up its delivery. Where they are of the failure of a notice itself, they
/// end by themselves: only a switch-off is told, and a webhook that is off gets none and is not switched off again.
#[derive(Debug, Clone)]
pub struct FinishNotices {
    /// Published if the delivery is exhausted by this finish; `None` of an operational event's.
    pub exhausted: Option<NewEvent>,
    /// Published besides if this switches the webhook off.
    pub switched_off: NewEvent,
    /// The schedule clock: their deliveries are due from here on.
    pub due_at: Timestamp,
}

impl NewEvent {
    /// An operational event about a webhook. `at` is the wall clock; `random` makes its id unique.
    pub fn operational(
        notice: &Notice<'_>,
        webhook: &WebhookId,
        url: &WebhookUrl,
        at: Timestamp,
        random: [u8; ID_RANDOM_BYTES],
    ) -> Self {
        let (id, event_type) = (EventId::generate(at, random), notice.event_type());
        let data = notice.data(webhook, url, at);
        let body = render_body(&id, &event_type, at, &data);
        Self {
            content_hash: content_hash(&event_type, &data, None),
            created_at: at,
            key: None,
            id,
            event_type,
            timestamp: at,
            body,
        }
    }
}

impl SwitchNotice {
    pub(in crate::store) fn into_publish(self, organization: OrganizationId, webhook: WebhookId) -> Publish {
        publish_about(organization, webhook, vec![self.event], self.due_at)
    }
}

impl FinishNotices {
    pub(in crate::store) fn into_publish(self, key: DeliveryKey, switched_off: bool) -> Publish {
        let switched_off = Some(self.switched_off).filter(|_| switched_off);
        let events = self.exhausted.into_iter().chain(switched_off).collect();
        publish_about(key.organization, key.webhook, events, self.due_at)
    }
}

/// A publish that leases nothing: the notices' deliveries are simply due.
fn publish_about(
    organization: OrganizationId,
    webhook: WebhookId,
    events: Vec<NewEvent>,
    due_at: Timestamp,
) -> Publish {
    let lease = Lease { owner: "".into(), duration: Duration::ZERO };
    Publish { organization, events, due_at, lease, room: HashMap::new(), about: Some(webhook) }
}
