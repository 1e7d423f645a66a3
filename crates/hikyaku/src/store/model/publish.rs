//! Events that are published.

use std::collections::HashMap;

use bytes::Bytes;
use hikyaku_core::event::{CONTENT_HASH_BYTES, EventType};
use hikyaku_core::ids::{EventId, OrganizationId, WebhookId};
use jiff::Timestamp;

use super::{ClaimedDelivery, Lease};

/// Events of one organization to be stored together: all or none.
#[derive(Debug, Clone)]
pub struct Publish {
    /// Whose events.
    pub organization: OrganizationId,
    /// The events, with different ids.
    pub events: Vec<NewEvent>,
    /// The schedule clock: first attempts are due from here on.
    pub due_at: Timestamp,
    /// The lease under which this process attempts the first deliveries itself.
    pub lease: Lease,
    /// For how many deliveries per webhook this process has room now. So many are leased in the same commit and handed
    /// back, in the order of `events`; the rest is simply due.
    pub room: HashMap<WebhookId, u32>,
    /// The webhook that the events are about; it gets none of them, nor misses them.
    pub about: Option<WebhookId>,
}

/// An event, ready to be stored.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it is sent out (R20), by the wall clock or as the publisher said.
    pub timestamp: Timestamp,
    /// When it was published, by the wall clock: its place in searches, and what it ages from.
    pub created_at: Timestamp,
    /// The business key, if the data has one (R24).
    pub key: Option<String>,
    /// Tells a repeated publish from a conflicting one.
    pub content_hash: [u8; CONTENT_HASH_BYTES],
    /// The one body (R9).
    pub body: Bytes,
}

/// What became of a [`Publish`].
#[derive(Debug, Clone)]
pub enum PublishOutcome {
    /// All events are stored, now or before.
    Stored(Vec<PublishedEvent>),
    /// The id is taken by an event with other content; nothing of this publish was written.
    Conflict(EventId),
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct PublishedEvent {
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// When it is sent out; of a repeated one, the first answer's.
    pub timestamp: Timestamp,
    /// To how many webhooks it goes: those that subscribe to its type and were active at the commit, or have their
    /// events held while they are off.
    pub deliveries: u32,
    /// Whether it was stored before, so that nothing was written now.
    pub repeated: bool,
    /// First attempts that this process has leased in the same commit.
    pub leased: Vec<ClaimedDelivery>,
}
