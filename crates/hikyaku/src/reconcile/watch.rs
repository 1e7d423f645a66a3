//! Whether the provider's webhook is still on (T4). One that was switched off gets nothing, and nothing that happens
//! meanwhile comes later (R10, R12): somebody has to notice.

use std::time::Duration;

use axum::http::Method;
use hikyaku_core::gap::Period;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{Seen, Stop, Worker, metrics};
use crate::provider_api::Call;

/// How a provider's webhook is watched, by ReceiptRoller's webhook administration (assumed).
#[derive(Debug, Clone)]
pub struct Watch {
    /// Where the list of webhooks is: `POST`.
    pub list: Url,
    /// Where one is changed: `POST` of `{"id","active"}`.
    pub update: Url,
    /// Its id there; else every webhook counts whose URL ends with the source's path.
    pub webhook: Option<String>,
    /// From one look to the next. Each is a call of the budget.
    pub every: Duration,
    /// Whether one that is off is switched on again, once deliveries can be taken.
    pub reenable: bool,
}

impl Watch {
    /// [`Watch::every`] unless something else is said: 240 calls in 30 days.
    pub const DEFAULT_EVERY: Duration = Duration::from_secs(3 * 3600);
}

#[derive(Deserialize)]
struct Listed {
    items: Vec<Webhook>,
}

#[derive(Deserialize)]
struct Webhook {
    id: String,
    #[serde(default)]
    url: String,
    active: bool,
}

impl Worker {
    /// Looks at the provider's webhook, if that is due; returns when it is next.
    pub(super) async fn watch(&self) -> Result<Option<Timestamp>, Stop> {
        let Some(watch) = &self.settings.watch else { return Ok(None) };
        let now = self.tools.clock.schedule();
        if let Some(at) = self.plan().watch_at.filter(|at| *at > now) {
            return Ok(Some(at));
        }
        let webhooks = self.webhooks(watch).await?;
        if webhooks.is_empty() {
            let what = match &watch.webhook {
                Some(id) => format!("the provider has no webhook {id:?}, which `webhook` names"),
                None => "the provider has no webhook that sends here; make one there, or set `webhook`".to_owned(),
            };
            tracing::warn!(reconcile = self.key.name, "nothing comes: {what}");
        }
        let is_active = !webhooks.is_empty() && webhooks.iter().all(|webhook| webhook.active);
        metrics::active(&self.key, is_active);
        if is_active {
            let now = self.tools.clock.now();
            self.change(|state| state.active_at = Some(now)).await?;
        }
        for webhook in webhooks.iter().filter(|webhook| !webhook.active) {
            self.is_off(watch, webhook).await?;
        }
        let next_at = now.checked_add(watch.every).ok();
        self.plan().watch_at = next_at;
        Ok(next_at)
    }

    async fn webhooks(&self, watch: &Watch) -> Result<Vec<Webhook>, Stop> {
        let call = Call { method: Method::POST, url: watch.list.clone(), body: "{}".into() };
        let response = self.ask(&call).await?;
        let listed: Listed = serde_json::from_slice(&response.body)
            .map_err(|error| Stop::List(format!("the list of webhooks cannot be read: {error}")))?;
        let path = format!("/in/{}", self.settings.source);
        let is_ours = |webhook: &Webhook| match &watch.webhook {
            Some(id) => webhook.id == *id,
            None => Url::parse(&webhook.url).is_ok_and(|url| url.path().ends_with(&path)),
        };
        Ok(listed.items.into_iter().filter(is_ours).collect())
    }

    /// Says so, and switches it on again where that is wanted; then what was missed is compared.
    async fn is_off(&self, watch: &Watch, webhook: &Webhook) -> Result<(), Stop> {
        let active_at = self.state().await?.active_at;
        let is_reenabled = watch.reenable && self.tools.door.is_healthy(&self.settings.source).await;
        tracing::warn!(
            reconcile = self.key.name,
            source = self.settings.source,
            webhook = webhook.id,
            active_at = active_at.map(tracing::field::display),
            "the provider has switched the webhook off: nothing comes any more{}",
            if is_reenabled {
                "; it is switched on again"
            } else {
                "; switch it on there once deliveries can be taken"
            }
        );
        let seen = Seen {
            reconcile: self.key.name.clone(),
            source: self.settings.source.clone(),
            webhook: webhook.id.clone(),
            active_at,
            is_reenabled,
        };
        if !is_reenabled {
            return Ok(self.tools.door.switched_off(&self.key.organization, &seen).await?);
        }
        // Once it is on again nothing would show that it was off: what follows from that is stored before. After a crash
        // in between it is still off, and all of it is done again.
        self.want_what_was_missed(active_at).await?;
        self.tools.door.switched_off(&self.key.organization, &seen).await?;
        let body = json!({"id": webhook.id, "active": true}).to_string().into();
        self.ask(&Call { method: Method::POST, url: watch.update.clone(), body }).await?;
        self.want_what_was_missed(active_at).await?;
        let now = self.tools.clock.now();
        self.change(|state| state.active_at = Some(now)).await?;
        metrics::active(&self.key, true);
        Ok(())
    }

    /// Has everything compared since the last good moment.
    async fn want_what_was_missed(&self, active_at: Option<Timestamp>) -> Result<(), Stop> {
        let now = self.tools.clock.now();
        let state = self.state().await?;
        let missed = Period::next(active_at.or(state.mark), self.settings.overlap, self.settings.lookback, now);
        self.change(|state| Self::want(state, missed)).await?;
        Ok(())
    }
}
