//! Test deliveries: one request to a webhook now, of which nothing is kept.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::delivery::{FailureKind, History, Outcome};
use hikyaku_core::event::render_body;
use hikyaku_core::ids::{DeliveryKey, EventId};
use hikyaku_core::operational;
use hikyaku_core::webhook::Webhook;

use super::Sender;
use super::request::request;
use crate::clock;
use crate::outbound::Response;
use crate::store::ClaimedDelivery;
use crate::trace;

/// Most test deliveries under way at a time, in all. They stand beside the slots of deliveries, which they must not
/// hold up, and whoever wants more has to wait for one to end.
pub(super) const MAX_TRIALS: usize = 16;

/// A test delivery that has ended.
#[derive(Debug)]
pub struct Trial {
    /// The id that it carried.
    pub event: EventId,
    /// What came of it.
    pub response: Response,
}

impl Sender {
    /// Sends a `webhook.test` event to a webhook, on or off: one request within the webhook's timeout, signed like any
    /// other, which is neither stored nor repeated and switches nothing off. `None` while too many are under way.
    pub async fn test(&self, webhook: Arc<Webhook>) -> Option<Trial> {
        let _permit = self.trials.try_acquire().ok()?;
        let (timeout, now) = (self.timeout(&webhook), self.clock.now());
        let (event, event_type) = (EventId::generate(now, clock::random()), operational::test_type());
        let body = render_body(&event, &event_type, now, &operational::test_data(&webhook.id));
        let key = DeliveryKey {
            organization: webhook.organization.clone(),
            event: event.clone(),
            webhook: webhook.id.clone(),
        };
        let delivery = ClaimedDelivery {
            key,
            created_at: now,
            run: 1,
            attempt: 1,
            history: History::default(),
            interrupted: None,
            due_at: self.clock.schedule(),
            first_attempt_at: None,
            event_type,
            body,
            webhook,
        };
        let place = trace::Context::of(trace::EVENT, &[delivery.key.organization.as_str(), event.as_str()]).child();
        let response = match request(&delivery, timeout, now, Some(place)) {
            Ok(request) => self.transport.post(request).await,
            Err(error) => Response {
                outcome: Outcome::Failed(FailureKind::Local),
                error: format!("no request was made: the webhook's secret {error}; rotate it"),
                headers: HeaderMap::new(),
                body: Bytes::new(),
                duration: Duration::ZERO,
            },
        };
        Some(Trial { event, response })
    }
}
