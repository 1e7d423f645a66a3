//! What the inbox tells of its own sources, to the destination that a source names in `notify`: that its provider has
//! switched its webhook off (T4), or that no signature verifies (T2). A notice is a row like any other, so that it is
//! told once, outlasts a crash, and can be looked at and replayed.

use hikyaku_core::event::{EventPattern, EventType, render_body};
use hikyaku_core::ids::EventId;
use hikyaku_core::operational::{SourceDisabled, SourceUnverified};
use hikyaku_core::ordering::Version;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::receive::Intake;
use super::{Inbox, Once, Order, Route, Source};
use crate::store::{NewRow, RecordOutcome, StoreError};

/// The source and the provider of rows that are notices.
pub const NOTICES: &str = "hikyaku";
/// Begins the names of the routes that notices take; none of the configuration's routes has such a name.
const ROUTE_PREFIX: &str = "notify:";

/// Something to be told of a source.
#[derive(Debug)]
pub struct Notice {
    /// What is told twice under one id is told once.
    pub id: EventId,
    /// What it is.
    pub event_type: EventType,
    /// The event's `data`.
    pub data: Box<RawValue>,
}

impl Inbox {
    /// Stores a notice for the destination that its source has named, if it has one.
    ///
    /// # Errors
    /// The store's; the call may be repeated.
    pub async fn tell(&self, source: &str, notice: &Notice) -> Result<(), StoreError> {
        let Some(source) = self.intakes.get(source).map(|intake| &intake.source) else { return Ok(()) };
        if source.notify.is_none() {
            return Ok(());
        }
        let (now, Notice { id, event_type, data }) = (self.clock.now(), notice);
        let row = NewRow {
            organization: source.organization.clone(),
            provider: NOTICES.to_owned(),
            source: NOTICES.to_owned(),
            delivery: id.to_string(),
            event_type: event_type.to_string(),
            version: Version::new(now, event_type.as_str(), id.as_str()),
            key: source.name.clone(),
            body: render_body(id, event_type, now, data),
            received_at: now,
            due_at: self.clock.schedule(),
            routes: vec![route_name(source)],
            park_reason: String::new(),
        };
        if self.record(row).await? == RecordOutcome::Stored {
            self.announce();
        }
        Ok(())
    }

    /// Tells that no signature of a source verifies, once a day and not at the first of them: anybody can send one.
    pub(super) async fn tell_unverified(&self, intake: &Intake, now: Timestamp) {
        let source = &intake.source;
        if source.notify.is_none() || !intake.is_to_be_told(now) {
            return;
        }
        let state = intake.state();
        let since = state.refused_since.unwrap_or(now);
        let seen = SourceUnverified { source: &source.name, since, switched_off_at: state.switched_off_at };
        let Ok(id) = EventId::parse(seen.event_id(now)) else { return };
        let notice = Notice { id, event_type: SourceUnverified::event_type(), data: seen.data(now) };
        if let Err(error) = self.tell(&source.name, &notice).await {
            intake.is_still_to_be_told();
            tracing::warn!(source = source.name, %error, "could not store the notice that no signature verifies");
        }
    }
}

/// The route of a source's notices, if it names a destination for them.
pub(super) fn route_of(source: &Source) -> Option<Route> {
    Some(Route {
        name: route_name(source),
        sources: vec![NOTICES.to_owned()],
        events: [SourceDisabled::event_type(), SourceUnverified::event_type()].map(EventPattern::Exact).into(),
        destination: source.notify.clone()?,
        order: Order::Every,
        once: Once::Delivery,
        backoff: None,
    })
}

fn route_name(source: &Source) -> String {
    format!("{ROUTE_PREFIX}{}", source.name)
}
