//! Changes of webhooks.

use std::time::Duration;

use hikyaku_core::event::EventPattern;
use hikyaku_core::signature::Secret;
use hikyaku_core::webhook::{Setting, Webhook, WebhookUrl};
use jiff::Timestamp;

use super::SwitchNotice;

/// Most rows that are cancelled in one commit when a webhook is removed: a few milliseconds of the store's time.
pub const MAX_REMOVED_AT_ONCE: u32 = 500;

/// What may change of a webhook; `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct WebhookChange {
    /// The new URL.
    pub url: Option<WebhookUrl>,
    /// The new patterns.
    pub events: Option<Vec<EventPattern>>,
    /// The new description.
    pub description: Option<String>,
    /// On or off.
    pub active: Option<bool>,
    /// Settings with their new values.
    pub settings: Vec<Setting>,
    /// A new secret.
    pub rotation: Option<Rotation>,
    /// What is published in the same commit if the change switches the webhook on or off.
    pub notice: Option<SwitchNotice>,
}

/// A new secret for a webhook.
#[derive(Debug, Clone)]
pub struct Rotation {
    /// The secret.
    pub secret: Secret,
    /// How long the one before it stays good.
    pub overlap: Duration,
}

impl WebhookChange {
    /// The webhook as it is after this change, made at `at` by the wall clock.
    pub fn apply(self, mut webhook: Webhook, at: Timestamp) -> Webhook {
        let Self { url, events, description, active, settings, rotation, notice: _ } = self;
        webhook.forget_secrets(at);
        webhook.url = url.unwrap_or(webhook.url);
        webhook.events = events.unwrap_or(webhook.events);
        webhook.description = description.unwrap_or(webhook.description);
        if let Some(active) = active {
            webhook.set_active(active, at);
        }
        settings.into_iter().for_each(|setting| webhook.settings.set(setting));
        if let Some(Rotation { secret, overlap }) = rotation {
            webhook.rotate_secret(secret, overlap, at);
        }
        webhook
    }
}
