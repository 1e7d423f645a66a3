//! Rows that no delivery brought: what a provider's list has and we had not (T4, T5). They enter like a delivery, and take
//! effect like one.

use bytes::Bytes;
use hikyaku_core::event::{EventType, render_body};
use hikyaku_core::gap::Entry;
use hikyaku_core::ids::EventId;
use hikyaku_core::ordering::Version;
use hikyaku_core::provider::Headers;
use jiff::Timestamp;
use serde_json::value::RawValue;

use super::receive::Intake;
use super::{Inbox, Order, hash_id};
use crate::store::{NewRow, RecordOutcome, StoreError};

/// Begins the ids of imported rows. No provider's id does, so that none of them takes the place of a delivery.
const ID_PREFIX: &str = "listed:";

/// An item of a provider's list.
#[derive(Debug)]
pub struct Import<'a> {
    /// What it is called when it is an event.
    pub event_type: &'a str,
    /// Its business key.
    pub key: &'a str,
    /// When it last changed: its version, beside which a late delivery of the same is older, newer or the same (C4).
    pub changed_at: Timestamp,
    /// What the list says of it: a JSON object.
    pub item: &'a RawValue,
    /// Whether that is an event as the provider would have sent it, with an id of its own; else it is an event's `data`.
    pub is_event: bool,
    /// Which version it is, and whether only routes whose order is `fetch` get it.
    pub entry: Entry,
}

/// What became of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// It is stored, and some route takes it.
    Stored,
    /// It is stored, and no route takes it.
    Parked,
    /// It was imported or delivered before, or nobody is there to take it.
    Nothing,
}

impl Inbox {
    /// Stores an item as if it had been delivered to `source`. The same item is stored once.
    ///
    /// # Errors
    /// The store's; the call may be repeated.
    pub async fn import(&self, source: &str, import: &Import<'_>) -> Result<Imported, StoreError> {
        let Some(row) = self.intakes.get(source).and_then(|intake| self.imported_row(intake, import)) else {
            return Ok(Imported::Nothing);
        };
        let is_parked = row.routes.is_empty();
        if is_parked && import.entry == Entry::ForReadings {
            return Ok(Imported::Nothing);
        }
        match self.committer.record(row).await? {
            RecordOutcome::Duplicate => Ok(Imported::Nothing),
            RecordOutcome::Stored if is_parked => Ok(Imported::Parked),
            RecordOutcome::Stored => {
                self.announce();
                Ok(Imported::Stored)
            }
        }
    }

    /// Whether there is such a source.
    pub fn has_source(&self, source: &str) -> bool {
        self.intakes.contains_key(source)
    }

    fn imported_row(&self, intake: &Intake, import: &Import<'_>) -> Option<NewRow> {
        let row = match import.is_event {
            true => intake.row(&Headers::default(), Bytes::copy_from_slice(import.item.get().as_bytes()), &*self.clock),
            false => {
                let (delivery, body) = rendered(import)?;
                let row = intake.row(&Headers::default(), body, &*self.clock);
                NewRow { delivery, ..row }
            }
        };
        let mut routes = intake.routes_for(import.event_type);
        let is_reading = |name: &String| self.outlets.get(name).is_some_and(|of| of.route.order == Order::Fetch);
        if import.entry == Entry::ForReadings {
            routes.retain(is_reading);
        }
        let park_reason = if routes.is_empty() { super::receive::no_route(import.event_type) } else { String::new() };
        Some(NewRow {
            version: version(import, row.delivery.as_str()),
            key: import.key.to_owned(),
            event_type: import.event_type.to_owned(),
            routes,
            park_reason,
            ..row
        })
    }
}

fn version(import: &Import<'_>, delivery: &str) -> Version {
    let own = Version::new(import.changed_at, import.event_type, delivery);
    match import.entry {
        Entry::After(micros) => Version { micros: micros.saturating_add(1), ..own },
        Entry::AtItsTime | Entry::ForReadings => own,
    }
}

/// The body of an event about an item, and its id: the same for the same item after the same.
fn rendered(import: &Import<'_>) -> Option<(String, Bytes)> {
    let Import { key, event_type, changed_at, item, .. } = import;
    let time = match import.entry {
        Entry::After(micros) => format!("{changed_at} after {micros}"),
        Entry::AtItsTime | Entry::ForReadings => changed_at.to_string(),
    };
    let parts = [event_type, *key, &time, item.get()];
    let delivery = format!("{ID_PREFIX}{}", hash_id(parts.join("\n").as_bytes()));
    let (id, event_type) = (EventId::parse(delivery.as_str()).ok()?, EventType::parse(*event_type).ok()?);
    let body = render_body(&id, &event_type, *changed_at, item);
    Some((delivery, body))
}
