//! What would become of a delivery, without receiving it: nothing is stored, sent or opened.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::HeaderMap;
use bytes::Bytes;
use hikyaku_core::delivery::{FailureKind, Outcome};
use jiff::Timestamp;

use super::destination::{self, Origin, Tools};
use super::receive::{Intake, fields};
use super::{OnBadSignature, Order, Route, Settings, Source};
use crate::clock::SharedClock;
use crate::outbound::{Request, Response, Transport};
use crate::store::{NewRow, WorkRow};

/// A configured inbox that is only looked at.
#[derive(Debug, Clone, Copy)]
pub struct Trial<'a> {
    /// How it behaves.
    pub settings: &'a Settings,
    /// Where deliveries come from.
    pub sources: &'a [Source],
    /// Which go where.
    pub routes: &'a [Route],
    /// Where they take effect.
    pub destinations: &'a [destination::Settings],
}

/// What would become of a delivery.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What it would be answered.
    pub answer: Answer,
    /// Its id.
    pub delivery: String,
    /// Its event type; empty if not known.
    pub event_type: String,
    /// Its business key; empty if not known.
    pub key: String,
    /// When the provider sent it out; where the body does not say, now.
    pub timestamp: Timestamp,
    /// Why nothing would be done with it; empty where something would.
    pub park_reason: String,
    /// The routes that would take it.
    pub routes: Vec<TriedRoute>,
}

/// What a delivery would be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// 200: its signature verifies, or no headers were given to look at.
    Taken,
    /// 401, because its signature does not verify as the text says (C11).
    Refused(String),
    /// 200, and it is kept aside for the same reason, while there is room (T2).
    Quarantined(String),
}

/// What a route would do.
#[derive(Debug, Clone)]
pub struct TriedRoute {
    /// What is configured.
    pub route: Route,
    /// Where the present state would be read, if the route's order says so; or why it could not be.
    pub reading: Option<Result<String, String>>,
    /// What the destination would do, in its own words; or why it could do nothing.
    pub effect: Result<String, String>,
}

impl Trial<'_> {
    /// What would become of these bytes; `None` if there is no such source. Without headers no signature is looked at.
    pub fn of(&self, source: &str, headers: Option<&HeaderMap>, body: Bytes, clock: &SharedClock) -> Option<Tried> {
        let source = self.sources.iter().find(|known| known.name == source)?;
        let mut intake = Intake::new(source.clone());
        let own = || self.routes.iter().filter(|route| route.sources.contains(&source.name));
        own().for_each(|route| intake.add_route(route));
        let empty = HeaderMap::new();
        let fields = fields(headers.unwrap_or(&empty));
        let refused = headers.and_then(|_| intake.verify(&fields, &body, clock.now()).err());
        let answer = match (refused.map(|reason| reason.to_string()), source.on_bad_signature) {
            (None, _) => Answer::Taken,
            (Some(reason), OnBadSignature::Refuse) => Answer::Refused(reason),
            (Some(reason), OnBadSignature::Quarantine(_)) => Answer::Quarantined(reason),
        };
        let row = intake.row(&fields, body, &**clock);
        let work = work_row(&row);
        let taken = own().filter(|route| row.routes.contains(&route.name));
        let routes = taken.map(|route| self.route(route, source, &work, clock)).collect();
        Some(Tried {
            answer,
            delivery: row.delivery,
            event_type: row.event_type,
            key: row.key,
            timestamp: Timestamp::from_microsecond(row.version.micros).unwrap_or(row.received_at),
            park_reason: row.park_reason,
            routes,
        })
    }

    fn route(&self, route: &Route, source: &Source, row: &WorkRow, clock: &SharedClock) -> TriedRoute {
        let read = |fetch: &super::fetch::Settings| {
            fetch.url.without_secrets().fill(&source.organization, row).map(String::from)
        };
        let reading = source.fetch.as_ref().filter(|_| route.order == Order::Fetch).map(read);
        let origin = Origin { organization: source.organization.clone(), provider: source.provider.clone() };
        let tools = Tools {
            transport: Arc::new(Nowhere),
            clock: clock.clone(),
            effect_timeout: self.settings.effect_timeout,
            origins: Arc::new([(source.name.clone(), origin)].into()),
        };
        let named = self.destinations.iter().find(|destination| destination.name == route.destination);
        let effect = match (&reading, named) {
            (_, None) => Err(format!("there is no destination {:?}", route.destination)),
            (Some(Err(reason)), _) => Err(dead(reason)),
            (reading, Some(settings)) => match destination::preview(settings, row, &tools) {
                // What is read may well have what the event lacks.
                Ok(Err(reason)) if reading.is_some() => Ok(format!("the event itself would not do: {reason}")),
                Ok(told) => told.map_err(|reason| dead(&reason)),
                Err(error) => Err(error.to_string()),
            },
        };
        TriedRoute { route: route.clone(), reading, effect }
    }
}

fn dead(reason: &str) -> String {
    format!("the row would be dead: {reason}")
}

fn work_row(row: &NewRow) -> WorkRow {
    let NewRow { delivery, source, event_type, key, version, received_at, due_at, body, .. } = row.clone();
    WorkRow { delivery, source, event_type, key, version, failures: 0, received_at, due_since: due_at, body }
}

/// A network that leads nowhere: a trial sends nothing.
struct Nowhere;

#[async_trait]
impl Transport for Nowhere {
    async fn post(&self, _: Request) -> Response {
        Response {
            outcome: Outcome::Failed(FailureKind::Local),
            error: "a trial sends nothing".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            duration: std::time::Duration::ZERO,
        }
    }
}
