//! What opens reconciliation's way into the inbox, and its notices' way to the sender: the three do not know each other.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use hikyaku_core::event::{content_hash, render_body};
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::{EventId, OrganizationId};
use hikyaku_core::operational::SourceDisabled;

use crate::clock::SharedClock;
use crate::inbox::{Import, Imported, Inbox, Notice};
use crate::reconcile::adapter::Item;
use crate::reconcile::{Door, Entered, Seen};
use crate::sender::Sender;
use crate::store::{NewEvent, SharedStore, StoreError};

/// The way into the running inbox and sender.
pub(super) struct OpenDoor {
    pub(super) inbox: Arc<Inbox>,
    pub(super) sender: Arc<Sender>,
    pub(super) store: SharedStore,
    pub(super) clock: SharedClock,
}

#[async_trait]
impl Door for OpenDoor {
    async fn enter(&self, source: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError> {
        enter(&self.inbox, source, item, entry).await
    }

    async fn is_healthy(&self, source: &str) -> bool {
        self.inbox.has_source(source) && self.store.ping().await.is_ok()
    }

    async fn switched_off(&self, organization: &OrganizationId, seen: &Seen) -> Result<(), StoreError> {
        let now = self.clock.now();
        let notice = SourceDisabled {
            source: &seen.source,
            reconcile: &seen.reconcile,
            webhook: &seen.webhook,
            active_at: seen.active_at,
            is_reenabled: seen.is_reenabled,
        };
        let Ok(id) = EventId::parse(notice.event_id(now)) else { return Ok(()) };
        let (event_type, data) = (SourceDisabled::event_type(), notice.data(now));
        let notice = Notice { id: id.clone(), event_type: event_type.clone(), data: data.clone() };
        self.inbox.tell(&seen.source, &notice).await?;
        let event = NewEvent {
            body: render_body(&id, &event_type, now, &data),
            content_hash: content_hash(&event_type, &data, None),
            created_at: now,
            key: None,
            id,
            event_type,
            timestamp: now,
        };
        // One that was told before is a conflict, and stays as it was told.
        self.sender.publish(organization.clone(), vec![event]).await.map(|_| ())
    }
}

/// Lets an item into an inbox.
pub(crate) async fn enter(inbox: &Inbox, source: &str, item: &Item, entry: Entry) -> Result<Entered, StoreError> {
    let import = Import {
        event_type: &item.event_type,
        key: &item.key,
        changed_at: item.changed_at,
        item: &item.data,
        is_event: item.is_event,
        entry,
    };
    Ok(match inbox.import(source, &import).await? {
        Imported::Stored => Entered::Stored,
        Imported::Parked => Entered::Parked,
        Imported::Nothing => Entered::Known,
    })
}
